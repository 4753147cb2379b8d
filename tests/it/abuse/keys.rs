//! Keys that an attacker invents, through the whole gateway: what he can and cannot reset in a full store.

use crate::harness::{Backend, Client, Gateway, everything_to};

const MAX_KEYS: usize = 500;
const FLOOD: usize = 10 * MAX_KEYS;

/// Two limits that any request with their header is charged to, each by itself.
fn gateway(backend: &Backend, burst: u32) -> Gateway {
    let limit = |name: &str| {
        format!(
            "[limits.{name}]\nkey = \"header:x-{name}\"\nrate = \"{burst}/day\"\nalgorithm = \"token-bucket\"\nmissing = \"skip\"\n"
        )
    };
    let rest = format!(
        "limits = [\"login\", \"search\"]\n[server]\nworkers = 2\n[store]\nmax_keys = {MAX_KEYS}\n[admin]\nlisten = \"127.0.0.1:0\"\n{}{}",
        limit("login"),
        limit("search")
    );
    Gateway::start(&everything_to(backend, &rest))
}

/// One request of each key, of which the first `burst` of a key are admitted.
fn spend(client: &mut Client, limit: &str, keys: impl Iterator<Item = usize>) {
    for key in keys {
        client.get("/", &format!("x-{limit}: {key}\r\n")).expect(200);
    }
}

fn refused(client: &mut Client, limit: &str, keys: std::ops::Range<usize>) -> usize {
    keys.filter(|key| client.get("/", &format!("x-{limit}: {key}\r\n")).status == 429).count()
}

#[test]
fn keys_invented_for_one_limit_reset_no_counter_of_another() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, 1);
    let mut client = Client::connect(gateway.addr());
    spend(&mut client, "login", 0..100);
    spend(&mut client, "search", 0..FLOOD);
    let evicted = gateway.metric("tollgate_store_evictions_total", &[]);
    assert!(evicted >= (FLOOD - MAX_KEYS) as f64, "{evicted}");
    assert_eq!(refused(&mut client, "login", 0..100), 100);
}

#[test]
fn keys_invented_for_the_same_limit_reset_only_a_counter_that_was_used_no_more() {
    let backend = Backend::ok();
    // One request exhausts a key, so the flood's keys have used as much as the victim's: the oldest leave.
    let once = gateway(&backend, 1);
    let mut client = Client::connect(once.addr());
    spend(&mut client, "login", 0..FLOOD);
    assert_eq!(refused(&mut client, "login", 0..100), 0);
    // Ten requests exhaust a key, and the flood's keys have used one.
    let tenfold = gateway(&backend, 10);
    let mut client = Client::connect(tenfold.addr());
    (0..10).for_each(|_| spend(&mut client, "login", 0..100));
    spend(&mut client, "login", 100..FLOOD);
    assert_eq!(refused(&mut client, "login", 0..100), 100);
}
