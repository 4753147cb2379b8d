//! `limit_req` and `limit_conn` of a real nginx, and the same limits here: the same burst, the same numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{send_at_once, statuses, statuses_at_once};
use crate::harness::{Backend, Client, Front, Gateway, HoldingBackend, eventually, everything_to};

const ZONE: &str = "limit_req_zone $binary_remote_addr zone=r:1m rate=2r/m;";

fn gateway(backend: &Backend, limit: &str) -> Gateway {
    Gateway::start(&everything_to(backend, &format!("limits = [\"x\"]\n[limits.x]\nkey = \"ip\"\n{limit}\n")))
}

#[test]
fn limit_req_with_burst_and_nodelay_is_a_token_bucket() {
    let backend = Backend::ok();
    let expected = BTreeMap::from([(200, 6), (429, 14)]);
    let directives = "limit_req zone=r burst=5 nodelay; limit_req_status 429;";
    let front = Front::nginx_with(backend.addr(), ZONE, directives);
    assert_eq!(statuses(send_at_once(front.addr(), 20, "")), expected, "nginx");
    for algorithm in ["token-bucket", "gcra"] {
        let limit = format!("algorithm = \"{algorithm}\"\nrate = \"2/min\"\nburst = 6");
        let gateway = gateway(&backend, &limit);
        assert_eq!(statuses(send_at_once(gateway.addr(), 20, "")), expected, "{algorithm}");
    }
}

#[test]
fn limit_req_with_burst_is_a_leaky_bucket() {
    let backend = Backend::ok();
    // One at once, five delayed by half a minute each.
    let expected = BTreeMap::from([(200, 1), (429, 14)]);
    let directives = "limit_req zone=r burst=5; limit_req_status 429;";
    let front = Front::nginx_with(backend.addr(), ZONE, directives);
    assert_eq!(statuses_at_once(send_at_once(front.addr(), 20, "")), expected, "nginx");
    let limit = "algorithm = \"leaky-bucket\"\nrate = \"2/min\"\nqueue = 5\nmax_wait = \"1h\"";
    let gateway = gateway(&backend, limit);
    assert_eq!(statuses_at_once(send_at_once(gateway.addr(), 20, "")), expected, "tollgate");
}

#[test]
fn limit_req_without_burst_is_a_token_bucket_of_one() {
    let backend = Backend::ok();
    let expected = BTreeMap::from([(200, 1), (429, 9)]);
    let directives = "limit_req zone=r; limit_req_status 429;";
    let front = Front::nginx_with(backend.addr(), ZONE, directives);
    assert_eq!(statuses(send_at_once(front.addr(), 10, "")), expected, "nginx");
    let gateway = gateway(&backend, "algorithm = \"token-bucket\"\nrate = \"2/min\"\nburst = 1");
    assert_eq!(statuses(send_at_once(gateway.addr(), 10, "")), expected, "tollgate");
}

/// With `delay=3`, nginx delays what comes after the first four. Here that takes a leaky bucket that has no such
/// parameter: as many are refused, but five are delayed instead of two. Stated, so that a change is noticed.
#[test]
fn limit_req_with_delay_refuses_as_many_as_a_leaky_bucket() {
    let backend = Backend::ok();
    let directives = "limit_req zone=r burst=5 delay=3; limit_req_status 429;";
    let front = Front::nginx_with(backend.addr(), ZONE, directives);
    let of_nginx = statuses_at_once(send_at_once(front.addr(), 20, ""));
    assert_eq!(of_nginx, BTreeMap::from([(200, 4), (429, 14)]), "nginx");
    let limit = "algorithm = \"leaky-bucket\"\nrate = \"2/min\"\nqueue = 5\nmax_wait = \"1h\"";
    let gateway = gateway(&backend, limit);
    let of_tollgate = statuses_at_once(send_at_once(gateway.addr(), 20, ""));
    assert_eq!((of_tollgate[&200], of_tollgate[&429]), (1, of_nginx[&429]), "tollgate");
}

/// `limit_conn` by the address that a trusted proxy names, as `real_ip` reads it.
#[test]
fn limit_conn_with_real_ip_is_a_concurrency_limit() {
    let nginx_backend = HoldingBackend::start();
    let own_backend = HoldingBackend::start();
    let http = "limit_conn_zone $binary_remote_addr zone=c:1m; set_real_ip_from 127.0.0.1;
                real_ip_header X-Forwarded-For;";
    let address = nginx_backend.url().trim_start_matches("http://").parse().expect("an address");
    let front = Front::nginx_with(address, http, "limit_conn c 3; limit_conn_status 429;");
    let url = own_backend.url();
    let gateway = Gateway::start(&format!(
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[upstreams]\napi = \"{url}\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\n\
         upstream = \"api\"\nlimits = [\"x\"]\n[limits.x]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 3\n"
    ));
    for (name, address, backend) in
        [("nginx", front.addr(), &nginx_backend), ("tollgate", gateway.addr(), &own_backend)]
    {
        let one = send_at_once(address, 10, "x-forwarded-for: 203.0.113.1\r\n");
        let other = send_at_once(address, 2, "x-forwarded-for: 203.0.113.2\r\n");
        backend.holds(5);
        // All are decided before a place is free.
        let mut waiting = one;
        let refused = take_refused(&mut waiting);
        assert_eq!((refused, backend.max()), (7, 5), "{name}");
        backend.open();
        assert_eq!(statuses(waiting), BTreeMap::from([(200, 3)]), "{name}");
        assert_eq!(statuses(other), BTreeMap::from([(200, 2)]), "{name}");
        let again = send_at_once(address, 1, "x-forwarded-for: 203.0.113.1\r\n");
        assert_eq!(statuses(again), BTreeMap::from([(200, 1)]), "{name}: places are free again");
    }
}

/// Takes the seven clients out that are refused; the other three are not answered meanwhile.
fn take_refused(clients: &mut Vec<Client>) -> usize {
    let before = clients.len();
    eventually("seven refusals", || {
        clients.retain_mut(|client| {
            let waits = client.silent_for(Duration::from_millis(50));
            if !waits {
                client.try_read("GET").expect("a response").expect(429);
            }
            waits
        });
        (clients.len() == 3).then_some(())
    });
    before - clients.len()
}
