//! Concurrency limits and bans in a cluster: the keys of one request stand on several nodes.

use crate::harness::api::api;
use crate::harness::fleet_config::PATIENT;
use crate::harness::in_flight::{comes_to_hold, fits, limited};
use crate::harness::{Client, Cluster, Gateway, HoldingBackend, eventually};

/// Two gateways, with the limit `x` by client and the limit `all` for all clients together.
fn fleet(backend: &HoldingBackend, cluster: &Cluster, limit: &str) -> [Gateway; 2] {
    let all = "[limits.all]\nalgorithm = \"concurrency\"\nkey = \"global\"\nmax = 5\n";
    let store = format!("[store]\nbackend = \"redis\"\nurl = {}\n{PATIENT}\n", cluster.urls());
    let toml = limited(backend, limit, "limits = [\"x\", \"all\"]", &format!("{all}{store}"));
    std::array::from_fn(|_| {
        let gateway = Gateway::start(&toml);
        eventually("the store to be up", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
        gateway
    })
}

/// Sends a request of this client on a connection of its own, and reads nothing.
fn begin(gateway: &Gateway, name: &str) -> Client {
    let mut client = Client::connect(gateway.addr());
    client.write(format!("GET /{name} HTTP/1.1\r\nhost: test\r\nx-client: {name}\r\n\r\n"));
    client
}

#[test]
fn places_of_all_limits_are_taken_or_of_none() {
    let (backend, cluster) = (HoldingBackend::start(), Cluster::start());
    let gateways = fleet(&backend, &cluster, "max = 2");
    let [one, other] = &gateways;
    let mut admitted = vec![begin(one, "a"), begin(other, "a")];
    backend.holds(2);
    for gateway in &gateways {
        begin(gateway, "a").read().expect(429);
    }
    admitted.extend(["b", "b", "c"].map(|name| begin(one, name)));
    backend.holds(5);
    // The limit of all refuses, and gives the places of the clients back.
    for name in ["c", "d", "e", "f"] {
        begin(other, name).read().expect(429);
    }
    backend.open();
    admitted.iter_mut().for_each(|client| drop(client.read().expect(200)));
    for gateway in &gateways {
        comes_to_hold(gateway, 0);
    }
    fits(other, &backend, 2);
    assert_eq!(backend.max(), 5);
    assert!(one.metric("tollgate_store_errors_total", &[]) < 0.5);
}

#[test]
fn refusals_begin_a_ban_within_a_second() {
    let (backend, cluster) = (HoldingBackend::start(), Cluster::start());
    let ban = "max = 1\nban = { after = 4, within = \"10min\", for = \"1h\" }";
    let gateways = fleet(&backend, &cluster, ban);
    let mut first = begin(&gateways[0], "a");
    backend.holds(1);
    for gateway in gateways.iter().cycle().take(4) {
        assert_eq!(begin(gateway, "a").read().expect(429).banned_for(), None);
    }
    for gateway in &gateways {
        eventually("the ban", || (api(gateway, "bans")["total"] == 1).then_some(()));
    }
    backend.open();
    first.read().expect(200);
    // A place is free a moment after the response: each gateway has a client of its own.
    for (gateway, other) in gateways.iter().zip(["b", "c"]) {
        assert!(begin(gateway, "a").read().expect(429).banned_for().is_some());
        begin(gateway, other).read().expect(200);
    }
}
