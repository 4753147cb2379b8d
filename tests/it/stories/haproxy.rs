//! A ban with a stick table and gpc0 of a real HAProxy, and the same ban here.

use std::net::SocketAddr;

use crate::harness::{Backend, Client, Front, Gateway, everything_to};

/// Five requests of an address are admitted, and its fourth refusal is its last: then it is banned.
const STICK_TABLE: &str = "stick-table type ip size 1m expire 1h store gpc0,http_req_cnt
 http-request track-sc0 src
 http-request deny deny_status 403 if { sc0_get_gpc0 ge 4 }
 acl over sc0_http_req_cnt gt 5
 acl counted sc0_inc_gpc0 gt 0
 http-request deny deny_status 429 if over counted";

/// How many requests are admitted, how many are refused before the ban, and whether all others are refused by it.
fn course(
    address: SocketAddr,
    from: u8,
    is_ban: impl Fn(&crate::harness::Response) -> bool,
) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for _ in 0..20 {
        let response = Client::connect_from([127, 0, 0, from].into(), address).get("/", "");
        match response.status {
            200 => counts.0 += 1,
            _ if is_ban(&response) => counts.2 += 1,
            _ => counts.1 += 1,
        }
    }
    counts
}

/// HAProxy's fourth refusal is by its limit and bans what follows; here the fourth refusal is the ban's first.
#[test]
fn a_ban_after_refusals() {
    let backend = Backend::ok();
    let front = Front::haproxy(backend.addr(), STICK_TABLE);
    let limit = "limits = [\"x\"]\n[limits.x]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\n\
                 rate = \"5/366day\"\nban = { after = 5, within = \"1h\", for = \"1h\" }\n";
    let gateway = Gateway::start(&everything_to(&backend, limit));
    for from in [2, 3] {
        let of_haproxy = course(front.addr(), from, |response| response.status == 403);
        let of_tollgate = course(gateway.addr(), from, |response| response.banned_for().is_some());
        assert_eq!(of_haproxy, (5, 4, 11), "HAProxy");
        assert_eq!(of_tollgate, of_haproxy, "tollgate");
    }
    assert_eq!(backend.count(), 20, "each address is counted for itself");
}
