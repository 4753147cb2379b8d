//! Exactly `max` requests are in flight, and what a refusal says.

use crate::harness::in_flight::{ask, begin, comes_to_hold, fits, held, limited};
use crate::harness::{Client, Gateway, HoldingBackend, Load, Response, eventually};

const NUMBERS: [&str; 6] = [
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

fn numbers(response: &Response) -> [Option<&str>; 6] {
    NUMBERS.map(|name| response.header(name))
}

#[test]
fn of_a_thousand_connections_exactly_max_requests_pass() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 20", "", ""));
    let mut clients: Vec<_> = (0..1_000).map(|_| Client::connect(gateway.addr())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write(ask(&format!("/{number}")));
    }
    eventually("980 refusals", || {
        (gateway.metric("tollgate_decisions_total", &["decision=\"limited\""]) > 979.5).then_some(())
    });
    backend.holds(20);
    assert_eq!(held(&gateway), 20);
    backend.open();
    let responses: Vec<_> = clients.iter_mut().map(Client::read).collect();
    let admitted = responses.iter().filter(|response| response.status == 200);
    assert!(admitted.clone().all(|response| numbers(response) == [None; 6]), "no numbers when it admits");
    assert_eq!(admitted.count(), 20);
    for refused in responses.iter().filter(|response| response.status != 200) {
        assert_eq!(refused.status, 429, "{}", refused.head);
        let expected = [Some("\"x\";r=0"), Some("\"x\";q=20"), None, Some("20"), Some("0"), None];
        assert_eq!(numbers(refused), expected, "{}", refused.head);
    }
    assert_eq!((backend.max(), backend.arrivals().len()), (20, 20));
    fits(&gateway, &backend, 20);
}

#[test]
fn a_thousand_busy_connections_never_exceed_max() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 20", "", "[server]\nworkers = 4\n"));
    let load = Load { requests: 10_000, concurrency: 1_000 };
    let statuses = load.run(gateway.addr(), |_| ask("/quick"));
    let (admitted, refused) = (statuses[&200], statuses.get(&429).copied().unwrap_or(0));
    assert_eq!(admitted + refused, 10_000, "{statuses:?}");
    // A busy machine may never have 20 at once.
    assert!((1..=20).contains(&backend.max()), "{}", backend.max());
    assert_eq!(backend.arrivals().len(), admitted);
    fits(&gateway, &backend, 20);
}

/// The fields describe the limit that has numbers to tell, whatever the order of the route's limits.
#[test]
fn an_admitted_response_has_the_numbers_of_the_limit_beside_it() {
    let backend = HoldingBackend::start();
    backend.open();
    let bucket = "[limits.t]\nalgorithm = \"token-bucket\"\nkey = \"header:x-client\"\nrate = \"5/366day\"\n";
    for order in ["\"x\", \"t\"", "\"t\", \"x\""] {
        let toml = limited(&backend, "max = 1", &format!("limits = [{order}]"), bucket);
        let gateway = Gateway::start(&toml);
        let admitted = begin(&gateway, "/").read().expect(200);
        assert!(admitted.header("ratelimit").is_some_and(|value| value.starts_with("\"t\";r=4")), "{order}");
    }
}

/// A cost is a number of places.
#[test]
fn a_request_takes_as_many_places_as_it_costs() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 7", "cost = 3", ""));
    let mut clients = [begin(&gateway, "/1"), begin(&gateway, "/2")];
    backend.holds(2);
    assert_eq!(held(&gateway), 6);
    begin(&gateway, "/3").read().expect(429);
    backend.release("/1");
    clients[0].read().expect(200);
    comes_to_hold(&gateway, 3);
    let mut third = begin(&gateway, "/4");
    backend.holds(2);
    backend.open();
    clients[1].read().expect(200);
    third.read().expect(200);
    comes_to_hold(&gateway, 0);
}

/// A shadow limit refuses nothing; it counts what it would have refused.
#[test]
fn a_shadow_limit_only_counts() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 2\nmode = \"shadow\"", "", ""));
    let mut clients: Vec<_> = (0..5).map(|number| begin(&gateway, &format!("/{number}"))).collect();
    backend.holds(5);
    let counted = |decision: &str| {
        gateway.metric("tollgate_decisions_total", &[&format!("decision=\"{decision}\"")]).round()
    };
    assert_eq!([counted("allowed"), counted("shadow_limited"), counted("limited")], [2.0, 3.0, 0.0]);
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_hold(&gateway, 0);
}
