//! The sum of what is settled is the sum of what the backends have reported, to the unit, and no reservation is admitted
//! beyond the allowance.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::metered::{a_day, comes_to_use, metered, used};
use crate::harness::{Backend, Client, Gateway, Next, Redis, eventually};

const ALLOWANCE: u64 = 100_000;
const RESERVED: u64 = 2_000;
const STREAMS: usize = 50;
const COST: &str = "{ reserve = 2000, settle = \"sse:/usage/total_tokens\" }";

/// What must be charged at least: what clients have got whole, and the least of what is in flight.
#[derive(Debug, Default)]
struct Ledger {
    settled: u64,
    in_flight: u64,
}

impl Ledger {
    fn sum(&self) -> u64 {
        self.settled + self.in_flight
    }
}

/// What a stream uses.
fn tokens(number: usize) -> u64 {
    500 + (number as u64 * 7_919) % 7_501
}

/// A backend that streams the tokens of each request.
fn streaming(ledger: &Arc<Mutex<Ledger>>) -> Backend {
    let ledger = Arc::clone(ledger);
    Backend::start(move |exchange| {
        let tokens: u64 = exchange.field("x-tokens").unwrap().parse().unwrap();
        ledger.lock().unwrap().in_flight += RESERVED.min(tokens);
        exchange.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        for event in [
            "data: {\"usage\":null}\n\n".to_owned(),
            format!("data: {{\"usage\":{{\"total_tokens\":{tokens}}}}}\n\n"),
        ] {
            exchange.write(format!("{:x}\r\n{event}\r\n", event.len()));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        exchange.write("0\r\n\r\n");
        Next::KeepAlive
    })
}

/// Streams until the allowance is used up. Returns how many requests were admitted beyond it.
fn stream_all(gateways: &[&Gateway], ledger: &Mutex<Ledger>) -> u64 {
    let (next, over) = (&AtomicUsize::new(0), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for stream in 0..STREAMS {
            let address = gateways[stream % gateways.len()].addr();
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut refused = 0;
                while refused < 3 {
                    let tokens = tokens(next.fetch_add(1, Ordering::Relaxed));
                    // Whatever happens until this request is admitted, at least this much is charged then.
                    let before = ledger.lock().unwrap().sum();
                    let response = client.exchange(format!(
                        "GET /0/ HTTP/1.1\r\nhost: test\r\nx-client: a\r\nx-tokens: {tokens}\r\n\r\n"
                    ));
                    if response.status == 429 {
                        refused += 1;
                        continue;
                    }
                    assert_eq!(response.status, 200);
                    over.fetch_add(u64::from(before + RESERVED > ALLOWANCE), Ordering::Relaxed);
                    let mut ledger = ledger.lock().unwrap();
                    ledger.in_flight -= RESERVED.min(tokens);
                    ledger.settled += tokens;
                }
            });
        }
    });
    over.load(Ordering::Relaxed)
}

#[test]
fn in_memory_the_sums_are_equal_to_the_unit() {
    for algorithm in [
        a_day(100_000),
        "algorithm = \"token-bucket\"\nrate = \"1/day\"\nburst = 100000".to_owned(),
        "algorithm = \"gcra\"\nrate = \"1/day\"\nburst = 100000".to_owned(),
        "algorithm = \"sliding-window\"\nrate = \"100000/day\"".to_owned(),
        "algorithm = \"sliding-log\"\nrate = \"100000/day\"".to_owned(),
    ] {
        let ledger = Arc::<Mutex<Ledger>>::default();
        let backend = streaming(&ledger);
        let gateway = Gateway::start(&metered(&backend.url(), &[COST], &algorithm, ""));
        assert_eq!(stream_all(&[&gateway], &ledger), 0, "requests were admitted beyond the allowance");
        let Ledger { settled, in_flight } = *ledger.lock().unwrap();
        assert_eq!((used(&gateway, "a"), in_flight), (settled, 0), "{algorithm}");
        // Refused with less than a reservation left.
        assert!(settled > ALLOWANCE - RESERVED, "{settled}");
    }
}

/// A gateway that settles tells the store soon after its client has the response. So another one may admit before that.
#[test]
fn with_two_gateways_the_sums_are_equal_to_the_unit() {
    for algorithm in [a_day(100_000), "algorithm = \"sliding-log\"\nrate = \"100000/day\"".to_owned()] {
        let redis = Redis::start();
        let ledger = Arc::<Mutex<Ledger>>::default();
        let backend = streaming(&ledger);
        let store = redis.store_table();
        let toml = metered(&backend.url(), &[COST], &algorithm, &store);
        let gateways = [(); 2].map(|()| Gateway::start(&toml));
        for gateway in &gateways {
            eventually("the store to be up", || {
                (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(())
            });
        }
        stream_all(&[&gateways[0], &gateways[1]], &ledger);
        let settled = ledger.lock().unwrap().settled;
        for gateway in &gateways {
            comes_to_use(gateway, "a", settled);
            assert_eq!(used(gateway, "a"), settled);
            assert!(gateway.metric("tollgate_store_unsettled_units_total", &[]) < 0.5);
        }
    }
}
