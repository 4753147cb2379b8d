//! What tests of concurrency limits stand on: a gateway before a backend that holds requests, and how many places of a
//! key are held.

use std::time::Duration;

use crate::harness::gateways::api::api;
use crate::harness::{Client, Gateway, HoldingBackend, eventually};

/// A file with a route `all` that has the limit `x` by the field `x-client`, and an admin listener. `limit` has the
/// limit's numbers, `route` further lines of the route, `rest` further tables.
pub(crate) fn limited(backend: &HoldingBackend, limit: &str, route: &str, rest: &str) -> String {
    let url = backend.url();
    format!(
        "[upstreams]\napi = \"{url}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\n\
         upstream = \"api\"\n{}\n{route}\n[limits.x]\nalgorithm = \"concurrency\"\nkey = \"header:x-client\"\n{limit}\n{rest}\n",
        if route.contains("limits =") { "" } else { "limits = [\"x\"]" },
    )
}

/// A request of the client `a`.
pub(crate) fn ask(target: &str) -> String {
    ask_with(target, "")
}

/// The same with further fields.
pub(crate) fn ask_with(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: test\r\nx-client: a\r\n{fields}\r\n")
}

/// Sends a request of the client `a` on a connection of its own, and reads nothing.
pub(crate) fn begin(gateway: &Gateway, target: &str) -> Client {
    let mut client = Client::connect(gateway.addr());
    client.write(ask(target));
    client
}

/// The places that the client `a` holds under the limit `x`.
pub(crate) fn held(gateway: &Gateway) -> u64 {
    let key = api(gateway, "limits/x/keys/a");
    let number = |name: &str| key["policies"][0][name].as_u64().unwrap_or_else(|| panic!("{key}"));
    number("quota") - number("remaining")
}

/// Waits until the client `a` holds this number of places.
#[track_caller]
pub(crate) fn comes_to_hold(gateway: &Gateway, places: u64) {
    eventually(&format!("{places} places held"), || (held(gateway) == places).then_some(()));
}

/// Waits until the gateway has accepted this number of connections, and none of them is open: a request that its client
/// has left may be read after the client's reset.
#[track_caller]
pub(crate) fn all_gone(gateway: &Gateway, connections: usize) {
    eventually(&format!("{connections} connections to come and go"), || {
        let accepted = gateway.metric("tollgate_connections_accepted_total", &[]);
        let open = gateway.metric("tollgate_connections", &[]);
        (accepted >= connections as f64 && open < 0.5).then_some(())
    });
}

/// Waits until no place is held, and asserts that `max` requests and no more fit then. The backend must hold nothing.
#[track_caller]
pub(crate) fn fits(gateway: &Gateway, backend: &HoldingBackend, max: usize) {
    comes_to_hold(gateway, 0);
    backend.holds(0);
    backend.close();
    let mut admitted: Vec<_> = (0..max).map(|number| begin(gateway, &format!("/fits-{number}"))).collect();
    backend.holds(max);
    let waits =
        |places: f64| (gateway.metric("tollgate_concurrency_waiting", &["limit=\"x\""]) - places).abs() < 0.5;
    // It is refused at once, or it waits in a queue, which it leaves.
    let mut one_more = begin(gateway, "/fits-no-more");
    let is_refused = eventually("a refusal or a wait", || {
        let is_silent = one_more.silent_for(Duration::from_millis(20));
        (!is_silent || waits(1.0)).then_some(!is_silent)
    });
    if is_refused {
        one_more.read().expect(429);
    }
    assert_eq!((backend.present(), held(gateway)), (max, max as u64));
    drop(one_more);
    eventually("an empty queue", || waits(0.0).then_some(()));
    backend.open();
    for client in &mut admitted {
        client.read().expect(200);
    }
    comes_to_hold(gateway, 0);
    backend.close();
}
