//! What a connection costs that does nothing.

use rustix::process::{Resource, getrlimit};

use crate::harness::{Authority, Backend, Client, Gateway, everything_to};

/// Files of this process and of the gateway that are no client's.
const OTHERS: u64 = 1_000;
/// The most that an idle connection may cost.
const MOST_KIB: f64 = 40.0;

/// As many connections as are asked for, or as this system lets a process have.
fn possible(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let count = wanted.min(usize::try_from(files).unwrap_or(usize::MAX));
    if count < wanted {
        eprintln!("only {count} connections of {wanted}: this process may open no more files");
    }
    count
}

/// KiB for each of the connections that `connect` makes and that have served a request.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn kib_each(gateway: &Gateway, count: usize, connect: impl Fn(usize) -> Client) -> f64 {
    let mut first = connect(0);
    first.get("/", "").expect(200);
    let before = gateway.resident_kib();
    let mut idle: Vec<Client> = (0..count).map(connect).collect();
    idle.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    let open = gateway.metric("tollgate_connections", &["listener"]);
    assert_eq!(open, (count + 1) as f64, "none had to make room");
    (gateway.resident_kib() - before) as f64 / count as f64
}

#[test]
fn ten_thousand_idle_connections_take_less_than_40_kib_each() {
    let backend = Backend::ok();
    let rest = "[server]\nmax_connections = 20000\nidle_timeout = \"1h\"\nheader_timeout = \"1h\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(&backend, rest));
    let each = kib_each(&gateway, possible(10_000), |number| {
        // Several addresses, as one has too few ports where others run beside.
        let source = [127, 0, 0, u8::try_from(2 + number % 8).expect("a small number")];
        Client::connect_from(source.into(), gateway.addr())
    });
    println!("{each:.1} KiB each");
    assert!(each <= MOST_KIB, "{each:.1} KiB each");
}

#[test]
fn idle_connections_behind_tls_take_no_more() {
    let backend = Backend::ok();
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let rest = "[server]\nmax_connections = 20000\nidle_timeout = \"1h\"\nheader_timeout = \"1h\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{rest}{}", authority.server("a"))));
    let config = authority.client();
    let each =
        kib_each(&gateway, possible(1_000), |_| Client::connect_tls(gateway.addr(), &config, "a.test"));
    println!("{each:.1} KiB each");
    assert!(each <= MOST_KIB, "{each:.1} KiB each");
}
