//! Traefik's `rateLimit` and `inFlightReq`, and the same limits here. Debian has no Traefik: where its binary is not on
//! the path, the numbers are those of its documentation, and the test says so.

use std::collections::BTreeMap;

use super::{send_at_once, statuses};
use crate::harness::{Backend, Front, Gateway, HoldingBackend, everything_to, tools};

/// What Traefik's documentation says, or what the real one does if it is here.
fn of_traefik(
    documented: BTreeMap<u16, usize>,
    measure: impl FnOnce() -> BTreeMap<u16, usize>,
) -> BTreeMap<u16, usize> {
    if tools::is_here("traefik") {
        return measure();
    }
    eprintln!("`traefik` is not on the path: compared with the numbers of its documentation");
    documented
}

/// <https://doc.traefik.io/traefik/middlewares/http/ratelimit/>: `burst` is the maximum number of requests that pass in
/// the same arbitrarily small period; others get 429.
#[test]
fn rate_limit_as_documented_or_as_measured_is_a_token_bucket() {
    let backend = Backend::ok();
    let expected = of_traefik(BTreeMap::from([(200, 5), (429, 15)]), || {
        let middleware = "rateLimit: { average: 1, period: 1m, burst: 5 }";
        statuses(send_at_once(Front::traefik(backend.addr(), middleware).addr(), 20, ""))
    });
    let limit = "limits = [\"x\"]\n[limits.x]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/min\"\nburst = 5\n";
    let gateway = Gateway::start(&everything_to(&backend, limit));
    assert_eq!(statuses(send_at_once(gateway.addr(), 20, "")), expected);
}

/// <https://doc.traefik.io/traefik/middlewares/http/inflightreq/>: `amount` is the maximum number of simultaneous
/// requests; others get 429.
#[test]
fn in_flight_req_as_documented_or_as_measured_is_a_concurrency_limit() {
    let admitted = |address, backend: &HoldingBackend| {
        let clients = send_at_once(address, 20, "");
        backend.holds(4);
        // Time for all to be decided, before a place is free.
        std::thread::sleep(std::time::Duration::from_secs(1));
        backend.open();
        statuses(clients)
    };
    let expected = of_traefik(BTreeMap::from([(200, 4), (429, 16)]), || {
        let backend = HoldingBackend::start();
        let address = backend.url().trim_start_matches("http://").parse().expect("an address");
        admitted(Front::traefik(address, "inFlightReq: { amount: 4 }").addr(), &backend)
    });
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&format!(
        "[upstreams]\napi = \"{}\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"x\"]\n\
         [limits.x]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 4\n",
        backend.url()
    ));
    assert_eq!(admitted(gateway.addr(), &backend), expected);
}
