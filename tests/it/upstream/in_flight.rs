//! Requests in flight: of a route, and of each server.

use serde_json::Value;

use crate::harness::api::api;
use crate::harness::servers::over;
use crate::harness::{Backend, Client, Gateway, Next, eventually};

/// A server that answers once the test opens its gate.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

/// Requests in flight of the only route, and of each server.
fn in_flight(gateway: &Gateway) -> (f64, Vec<u64>) {
    let samples = api(gateway, "samples");
    let servers = samples["upstreams"]["api"]["servers"].as_array().cloned().unwrap_or_default();
    let counts = servers.iter().map(|server: &Value| server["in_flight"].as_u64().expect("a number"));
    (gateway.metric("tollgate_requests_in_flight", &[]), counts.collect())
}

#[test]
fn requests_are_counted_until_their_response_has_ended() {
    for balance in ["round-robin", "least-requests"] {
        let servers = [gated(), gated()];
        let gateway = Gateway::start(&over(&servers.each_ref(), &format!("balance = \"{balance}\"")));
        assert_eq!(in_flight(&gateway), (0.0, vec![0, 0]));
        let target = gateway.addr();
        let asking: Vec<_> =
            (0..6).map(|_| std::thread::spawn(move || Client::connect(target).get("/", "").status)).collect();
        eventually("six requests in flight", || {
            let (of_route, of_servers) = in_flight(&gateway);
            (of_route == 6.0 && of_servers.iter().sum::<u64>() == 6).then_some(())
        });
        // A reload keeps the counts of requests that began before it.
        let text = std::fs::read_to_string(gateway.config_path()).expect("the file");
        gateway.reload(&format!("{text}\n[log]\nlevel = \"debug\"\n"), "reloaded:");
        assert_eq!(in_flight(&gateway).1.iter().sum::<u64>(), 6);
        servers.iter().for_each(Backend::open_gate);
        for asked in asking {
            assert_eq!(asked.join().expect("no panic"), 200);
        }
        eventually("none", || (in_flight(&gateway) == (0.0, vec![0, 0])).then_some(()));
    }
}
