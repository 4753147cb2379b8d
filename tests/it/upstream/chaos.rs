//! Servers that die, hang, fail, answer slowly and return, under load: what clients see of it.
//!
//! `benches/chaos.py` is the long form, beside other proxies.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::servers::over;
use crate::harness::{Backend, Client, Gateway, Next};

/// What a server does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Dead,
    Hanging,
    Failing,
    Slow,
}

const TROUBLES: [Trouble; 5] =
    [Trouble::None, Trouble::Dead, Trouble::Hanging, Trouble::Failing, Trouble::Slow];

/// A server, and the number of what it does in [`TROUBLES`].
struct Server {
    backend: Backend,
    trouble: Arc<AtomicUsize>,
}

impl Server {
    fn new() -> Self {
        let trouble = Arc::new(AtomicUsize::new(0));
        let its = Arc::clone(&trouble);
        let backend = Backend::start(move |exchange| {
            exchange.read_body();
            match TROUBLES[its.load(Ordering::SeqCst)] {
                Trouble::Dead => return Next::Reset,
                Trouble::Hanging => {
                    std::thread::sleep(Duration::from_secs(1));
                    return Next::Close;
                }
                Trouble::Failing => {
                    exchange.write("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n");
                    return Next::KeepAlive;
                }
                Trouble::Slow => std::thread::sleep(Duration::from_millis(50)),
                Trouble::None => {}
            }
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            Next::KeepAlive
        });
        Self { backend, trouble }
    }

    fn set(&self, trouble: Trouble) {
        let number = TROUBLES.iter().position(|one| *one == trouble).expect("one of the list");
        self.trouble.store(number, Ordering::SeqCst);
    }
}

/// Sends GET, and every fifth time POST with an id of its own, until `ended`. Returns the numbers of GETs, and of those
/// that failed.
fn send_requests(gateway: &Gateway, number: usize, ended: &AtomicBool) -> (usize, usize) {
    let mut client = Client::connect(gateway.addr());
    let (mut all, mut failed) = (0, 0);
    for turn in 0.. {
        if ended.load(Ordering::SeqCst) {
            break;
        }
        if turn % 5 == 4 {
            let id = format!("{number}-{turn}");
            let post = format!("POST / HTTP/1.1\r\nhost: test\r\nx-id: {id}\r\ncontent-length: 2\r\n\r\nhi");
            client.exchange(post);
        } else {
            all += 1;
            failed += usize::from(client.get("/", "").status != 200);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (all, failed)
}

#[test]
fn clients_see_hardly_any_of_it_and_no_post_is_sent_twice() {
    let servers: Vec<_> = (0..5).map(|_| Server::new()).collect();
    let backends: Vec<_> = servers.iter().map(|server| &server.backend).collect();
    let lines = "eject = { failures = 3, for = \"300ms\", statuses = [\"5xx\"] }\nslow_start = \"500ms\"\n\
                 retry = { attempts = 4, budget = 1, on = [\"5xx\", \"timeout\"] }";
    let gateway = Gateway::start(&over(&backends, lines));
    let ended = AtomicBool::new(false);
    let rounds = [
        [Trouble::Dead, Trouble::None, Trouble::None, Trouble::None, Trouble::Failing],
        [Trouble::None, Trouble::Hanging, Trouble::None, Trouble::Slow, Trouble::None],
        [Trouble::Failing, Trouble::None, Trouble::Dead, Trouble::None, Trouble::None],
        [Trouble::None, Trouble::None, Trouble::Slow, Trouble::Hanging, Trouble::Failing],
        [Trouble::None, Trouble::Dead, Trouble::None, Trouble::None, Trouble::Dead],
    ];
    let counts: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (gateway, ended) = (&gateway, &ended);
                scope.spawn(move || send_requests(gateway, number, ended))
            })
            .collect();
        for round in rounds.iter().chain([&[Trouble::None; 5]]) {
            servers.iter().zip(round).for_each(|(server, trouble)| server.set(*trouble));
            std::thread::sleep(Duration::from_millis(1_000));
        }
        // All are back: each gets requests again.
        let before: Vec<_> = servers.iter().map(|server| server.backend.count()).collect();
        let begun = Instant::now();
        let is_asked = |index: usize| servers[index].backend.count() > before[index];
        while !(0..servers.len()).all(is_asked) {
            assert!(begun.elapsed() < Duration::from_secs(20), "a server that is back gets no requests");
            std::thread::sleep(Duration::from_millis(10));
        }
        ended.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let (all, failed) = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(all > 500, "{all} requests");
    assert!(failed * 1_000 <= all, "{failed} of {all} requests failed");
    let mut posts: HashMap<String, usize> = HashMap::new();
    for request in servers.iter().flat_map(|server| server.backend.requests()) {
        if let Some(id) = request.header("x-id") {
            *posts.entry(id).or_default() += 1;
        }
    }
    assert!(posts.len() > 50);
    assert!(posts.values().all(|count| *count == 1), "a POST was sent twice");
}
