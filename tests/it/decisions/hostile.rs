//! Callers that mean harm, and what a client can cause through an honest one.

use tollgate::rate_limit_service::{RateLimitCode, SHOULD_RATE_LIMIT, framed};

use crate::harness::{Client, Gateway, RateLimitClient, descriptor, eventually, message};

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[server]
body_timeout = \"1s\"
[decisions]
listen = \"127.0.0.1:0\"
[store]
max_keys = 10000
[upstreams]
echo = \"builtin:echo\"
[limits.per-key]
algorithm = \"token-bucket\"
key = \"descriptor:api_key\"
rate = \"3/h\"
[limits.wide]
algorithm = \"sliding-window\"
key = \"descriptor:wide\"
rate = [\"1000/s\", \"2000/min\", \"3000/h\", \"4000/day\"]
[[routes]]
path = \"/*\"
upstream = \"echo\"
[[descriptors]]
match = { api_key = \"*\" }
limits = [\"per-key\"]
[[descriptors]]
match = { wide = \"*\" }
limits = [\"wide\"]
";

fn start() -> (Gateway, RateLimitClient) {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    (gateway, client)
}

#[test]
fn bytes_that_are_no_message_are_said_to_be_none() {
    let (gateway, client) = start();
    let mut whole = Vec::new();
    framed(&message("shop", &[descriptor(&[("api_key", "k")], Some(1))]), &mut whole);
    for length in 0..whole.len() {
        assert_eq!(client.call(SHOULD_RATE_LIMIT, &whole[..length]), Err(3), "cut at {length}");
    }
    let mut two = whole.clone();
    two.extend(&whole);
    assert_eq!(client.call(SHOULD_RATE_LIMIT, &two), Err(3));
    let mut compressed = whole.clone();
    compressed[0] = 1;
    assert_eq!(client.call(SHOULD_RATE_LIMIT, &compressed), Err(12));
    assert_eq!(client.call(SHOULD_RATE_LIMIT, b"\0\0\0\0\x02\xff\xff"), Err(3));
    // None of these has charged anything.
    let left = client.ask(&message("shop", &[descriptor(&[("api_key", "k")], None)])).expect("an answer");
    assert_eq!(left.statuses[0].limit_remaining, 2);
    assert_eq!(gateway.metric("tollgate_requests_total", &["route=\"none\""]), 0.0);
}

#[test]
fn large_calls_are_bounded_and_what_a_client_can_cause_is_decided() {
    let (_gateway, client) = start();
    // A header of 60 KiB, in ten descriptors.
    let long = "a".repeat(60 << 10);
    let call = message("shop", &vec![descriptor(&[("api_key", &long)], None); 10]);
    let refused = client.ask(&call).expect("an answer");
    assert_eq!(refused.overall_code, i32::from(RateLimitCode::OverLimit), "ten units of three");
    let many = message("shop", &vec![descriptor(&[("other", "a"), ("entry", "\0")], None); 10_000]);
    let answer = client.ask(&many).expect("an answer");
    assert_eq!((answer.overall_code, answer.statuses.len()), (i32::from(RateLimitCode::Ok), 10_000));
    let charged = message("shop", &vec![descriptor(&[("api_key", "a")], None); 10_000]);
    assert_eq!(client.ask(&charged), Err(3), "more rates than are decided at once");
    let wide: Vec<_> = (0..9).map(|number| descriptor(&[("wide", &number.to_string())], None)).collect();
    assert_eq!(client.ask(&message("shop", &wide)), Err(3));
    assert!(client.ask(&message("shop", &wide[..8])).is_ok());
    let too_large = message("shop", &vec![descriptor(&[("api_key", &long)], None); 20]);
    assert_eq!(client.ask(&too_large), Err(8));
    let next = client.ask(&message("shop", &[descriptor(&[("api_key", "k")], None)]));
    assert!(next.is_ok(), "the connection goes on");
}

#[test]
fn a_flood_of_keys_holds_to_the_bound_of_the_store() {
    let (gateway, client) = start();
    for round in 0..300 {
        // As many as the gateway takes before it has said how many it takes.
        let calls: Vec<_> = (0..100)
            .map(|number| message("shop", &[descriptor(&[("api_key", &format!("{round}-{number}"))], None)]))
            .collect();
        assert!(client.all(&calls).iter().all(Result::is_ok));
    }
    assert!(gateway.metric("tollgate_store_keys", &[]) <= 10_000.0);
    gateway.get("/").expect(200);
}

#[test]
fn half_calls_end_and_harm_no_neighbour() {
    let (gateway, neighbour) = start();
    let slow = RateLimitClient::connect(gateway.decisions_addr());
    let request = || {
        http::Request::post(format!("http://ratelimit{SHOULD_RATE_LIMIT}"))
            .header("content-type", "application/grpc")
            .body(())
            .expect("a request")
    };
    let half: Vec<_> = (0..50)
        .map(|_| {
            let (mut body, answer) = slow.http2.begin(request());
            body.send_data(bytes::Bytes::from_static(b"\0\0\0\0\x20half"), false).expect("sent");
            (body, answer)
        })
        .collect();
    let mut cut = Client::connect(gateway.decisions_addr());
    let address = gateway.decisions_addr();
    cut.write(format!("POST /v1/decide HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{\"url\""));
    let whole = message("shop", &[descriptor(&[("api_key", "k")], None)]);
    assert!(neighbour.ask(&whole).is_ok());
    for (body, answer) in half {
        let answer = slow.http2.finish(answer).expect("an answer");
        assert_eq!(answer.headers.get("grpc-status").expect("a status"), "4", "it came too late");
        drop(body);
    }
    assert_eq!(cut.read().status, 408);
    assert!(neighbour.ask(&whole).is_ok());
    eventually("no bytes of half calls", || {
        (gateway.metric("tollgate_buffered_bytes", &[]) == 0.0).then_some(())
    });
}
