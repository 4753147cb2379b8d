//! Exactly as many calls are admitted as the limits hold, whoever asks.

use std::thread;

use tollgate::rate_limit_service::RateLimitCode;

use crate::harness::{Gateway, RateLimitClient, Redis, descriptor, message, send};

const LIMITS: &str = "
[decisions]
listen = \"127.0.0.1:0\"
[upstreams]
echo = \"builtin:echo\"
[limits.all]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"global\"
rate = \"100/day\"
[limits.per-key]
algorithm = \"token-bucket\"
key = \"descriptor:api_key\"
rate = \"60/day\"
[[routes]]
path = \"/*\"
upstream = \"echo\"
limits = [\"all\"]
[[descriptors]]
match = { api_key = \"*\" }
limits = [\"per-key\", \"all\"]
";

/// How many calls of each of these threads are admitted: two ask for the key `a`, one for `b`.
fn admitted_calls(addresses: &[std::net::SocketAddr]) -> [usize; 2] {
    let call = |key: &str| message("shop", &[descriptor(&[("api_key", key)], None)]);
    let ask = |address, key: &'static str| {
        let call = call(key);
        thread::spawn(move || {
            let client = RateLimitClient::connect(address);
            let answers = client.all(vec![&call; 80]);
            let is_ok = |answer: &&Result<tollgate::rate_limit_service::RateLimitResponse, u16>| {
                answer.as_ref().expect("an answer").overall_code == i32::from(RateLimitCode::Ok)
            };
            answers.iter().filter(is_ok).count()
        })
    };
    let of = |key| addresses.iter().map(|address| ask(*address, key)).collect::<Vec<_>>();
    let sum = |threads: Vec<thread::JoinHandle<usize>>| {
        threads.into_iter().map(|one| one.join().expect("no panic")).sum()
    };
    let (a, b) = (of("a"), of("b"));
    [sum(a), sum(b)]
}

fn admitted_requests(gateway: &Gateway, count: usize) -> usize {
    (0..count).filter(|_| gateway.get("/").status == 200).count()
}

#[test]
fn calls_and_requests_share_exact_counters() {
    let gateway = Gateway::start(LIMITS);
    let address = gateway.decisions_addr();
    let [a, b] = admitted_calls(&[address, address]);
    assert!(a <= 60 && b <= 60, "{a} {b}");
    assert_eq!(a + b + admitted_requests(&gateway, 30), 100);
}

#[test]
fn a_fleet_counts_as_one() {
    let redis = Redis::start();
    // The server is given all the time it wants.
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"10s\"\n", redis.url());
    let file = format!("{store}{LIMITS}");
    let gateways = [Gateway::start(&file), Gateway::start(&file)];
    let addresses = gateways.each_ref().map(Gateway::decisions_addr);
    let [a, b] = admitted_calls(&addresses);
    assert!(a <= 60 && b <= 60, "{a} {b}");
    assert_eq!(a + b, 100);
    let body = r#"{"limits":[{"name":"all"}],"key":{}}"#;
    let (address, length) = (addresses[0], body.len());
    let call =
        format!("POST /v1/decide HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}");
    assert_eq!(send(address, call).expect(200).json()["allowed"], false);
}
