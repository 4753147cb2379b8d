//! A process that takes over gets the counters of the one before, and decides for both from then on.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::api::good;
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    Backend, Client, Gateway, Load, Next, Redis, binary, eventually, everything_to, free_address, get,
    get_with,
};

/// Far more than a test needs: nothing is refilled meanwhile.
const COUNT: usize = 300;
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

fn toml(backend: &Backend, limit: &str, rest: &str) -> String {
    let (listen, admin) = (free_address(), free_address());
    everything_to(
        backend,
        &format!(
            "limits = [\"all\"]\n[server]\nlisten = [\"{listen}\"]\nworkers = 2\n\
             [admin]\nlisten = \"{admin}\"\n[limits.all]\nkey = \"global\"\n{limit}\n{rest}"
        ),
    )
}

fn start(toml: &str) -> Upgraded {
    let mut command = Command::new(binary());
    command.arg("run").stdin(Stdio::null());
    Upgraded::new(Gateway::start_by(toml, command))
}

fn passed(address: SocketAddr, requests: usize) -> usize {
    (0..requests).filter(|_| get(address, "/").status == 200).count()
}

/// Of all requests during four upgrades, exactly as many pass as of one process.
fn exactly_the_allowance_passes(limit: &str) {
    let backend = Backend::ok();
    let mut gateway = start(&toml(&backend, limit, ""));
    let address = gateway.gateway.addr();
    let load = Load { requests: 40, concurrency: 8 };
    let (statuses, ()) = load.during(address, || (), || (0..4).for_each(|_| gateway.upgrade()));
    let mut admitted = statuses.get(&200).copied().unwrap_or_default();
    assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
    while admitted < COUNT {
        let more = passed(address, 100);
        admitted += more;
        if more < 100 {
            break;
        }
    }
    assert_eq!(admitted, COUNT, "{limit}: {statuses:?}, {}", gateway.gateway.stderr());
    assert_eq!(passed(address, 10), 0, "{limit}");
    gateway.wait_for(4, "the counters of the process before count on");
}

#[test]
fn four_upgrades_under_load_refill_no_token_bucket() {
    exactly_the_allowance_passes("algorithm = \"token-bucket\"\nrate = \"300/day\"\nburst = 300");
}

#[test]
fn four_upgrades_under_load_refill_no_gcra() {
    exactly_the_allowance_passes("algorithm = \"gcra\"\nrate = \"300/day\"\nburst = 300");
}

#[test]
fn four_upgrades_under_load_refill_no_fixed_window() {
    exactly_the_allowance_passes("algorithm = \"fixed-window\"\nrate = \"300/month\"");
}

#[test]
fn four_upgrades_under_load_refill_no_sliding_window() {
    exactly_the_allowance_passes("algorithm = \"sliding-window\"\nrate = \"300/365day\"");
}

#[test]
fn four_upgrades_under_load_refill_no_sliding_log() {
    exactly_the_allowance_passes("algorithm = \"sliding-log\"\nrate = \"300/day\"");
}

/// The queue of a leaky bucket, which nothing leaves during the test.
#[test]
fn an_upgrade_empties_no_queue() {
    let backend = Backend::ok();
    let limit = "algorithm = \"leaky-bucket\"\nrate = \"1/day\"\nqueue = 5\nmax_wait = \"240h\"";
    let toml = toml(&backend, limit, "").replace("workers = 2\n", "workers = 2\ndrain_timeout = \"1s\"\n");
    let mut gateway = start(&toml);
    let address = gateway.gateway.addr();
    let ask = |count| {
        let clients = (0..count).map(|_| {
            let mut client = Client::connect(address);
            client.write(REQUEST);
            client
        });
        clients.collect::<Vec<_>>()
    };
    let decided = |gateway: &Upgraded, decision: &str, count: f64| {
        let label = format!("decision=\"{decision}\"");
        eventually("requests to be decided", || {
            (gateway.gateway.metric("tollgate_decisions_total", &[&label]) == count).then_some(())
        });
    };
    get(address, "/").expect(200);
    let _waiting = ask(3);
    decided(&gateway, "delayed", 3.0);
    gateway.upgrade();
    let _others = ask(5);
    decided(&gateway, "delayed", 2.0);
    decided(&gateway, "limited", 3.0);
}

/// Answers when the gate opens.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
        Next::KeepAlive
    })
}

#[test]
fn places_are_held_until_requests_end_in_the_process_before() {
    let backend = gated();
    let mut gateway =
        start(&toml(&backend, "algorithm = \"concurrency\"\nmax = 3\nqueue = 1\nmax_wait = \"60s\"", ""));
    let address = gateway.gateway.addr();
    let ask = || {
        let mut client = Client::connect(address);
        client.write(REQUEST);
        client
    };
    let mut busy = [ask(), ask(), ask()];
    backend.wait_for(3);
    // It waits for a place in the process before, and then in the next one.
    let mut waits = ask();
    let waiting = || gateway.gateway.metric("tollgate_concurrency_waiting", &[]);
    eventually("a request to wait", || (waiting() == 1.0).then_some(()));
    // Of connections that were accepted before the hand-over, and send their request after it.
    let mut silent: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    gateway.hand_over();
    assert_eq!(gateway.gateway.metric("tollgate_concurrency_held", &[]), 3.0);
    eventually("the request to wait here", || {
        (gateway.gateway.metric("tollgate_concurrency_waiting", &[]) == 1.0).then_some(())
    });
    get(address, "/").expect(429);
    for client in &mut silent {
        client.write(REQUEST);
        client.read().expect(429);
    }
    backend.open_gate();
    for client in &mut busy {
        client.read().expect(200);
    }
    waits.read().expect(200);
    gateway.wait_for(1, "stopped");
    eventually("all places to be free", || {
        (gateway.gateway.metric("tollgate_concurrency_held", &[]) == 0.0).then_some(())
    });
    for _ in 0..4 {
        get(address, "/").expect(200);
    }
}

/// A request that is decided in the process before once the next one has its counters.
#[test]
fn requests_of_the_process_before_are_decided_by_the_next_one() {
    let backend = gated();
    let limit = "algorithm = \"fixed-window\"\nrate = \"6/month\"\nban = { after = 3, within = \"1h\", for = \"1h\" }";
    let mut gateway = start(&toml(&backend, limit, "").replace("\"global\"", "\"ip\""));
    let address = gateway.gateway.addr();
    let mut busy = Client::connect(address);
    busy.write(REQUEST);
    backend.wait_for(1);
    let mut silent: Vec<Client> = (0..12).map(|_| Client::connect(address)).collect();
    gateway.hand_over();
    backend.open_gate();
    let mut statuses = Vec::new();
    for client in &mut silent {
        client.write(REQUEST);
        statuses.push(client.read().status);
        statuses.push(get(address, "/").status);
    }
    busy.read().expect(200);
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    let bans = good(&gateway.gateway, "GET bans", "");
    assert_eq!(bans["bans"].as_array().map(Vec::len), Some(1), "{bans}");
    gateway.wait_for(1, "stopped");
    // The ban of the limit, and the idempotency key of a charge, outlive one more upgrade.
    gateway.upgrade();
    let after = good(&gateway.gateway, "GET bans", "");
    assert_eq!(after["bans"].as_array().map(Vec::len), Some(1), "{after}");
    get(address, "/").expect(429);
}

/// A cost that is known once the response has passed, which was reserved in the process before.
#[test]
fn costs_are_settled_where_the_counters_are() {
    let backend = gated();
    let limit = "algorithm = \"fixed-window\"\nrate = \"100/month\"";
    let cost = "limits = [\"all\"]\ncost = { reserve = 50, settle = \"bytes\", per = 1 }";
    let mut gateway = start(&toml(&backend, limit, "").replace("limits = [\"all\"]", cost));
    let mut client = Client::connect(gateway.gateway.addr());
    client.write(REQUEST);
    backend.wait_for(1);
    let used = |gateway: &Upgraded| {
        good(&gateway.gateway, "GET limits/all/keys/everyone", "")["policies"][0]["used"].clone()
    };
    assert_eq!(used(&gateway), 50);
    gateway.hand_over();
    assert_eq!(used(&gateway), 50);
    backend.open_gate();
    client.read().expect(200);
    eventually("the cost to be settled", || (used(&gateway) == 4).then_some(()));
    gateway.wait_for(1, "stopped");
    assert_eq!(used(&gateway), 4);
}

/// The second process has no request in flight, and the first one asks it until its own have ended.
#[test]
fn a_process_in_between_ends_after_the_one_before_it() {
    let backend = gated();
    let limit = "algorithm = \"fixed-window\"\nrate = \"100/month\"";
    let cost = "limits = [\"all\"]\ncost = { reserve = 50, settle = \"bytes\", per = 1 }";
    let mut gateway = start(&toml(&backend, limit, "").replace("limits = [\"all\"]", cost));
    let address = gateway.gateway.addr();
    let mut busy = Client::connect(address);
    busy.write(REQUEST);
    backend.wait_for(1);
    let mut silent: Vec<Client> = (0..10).map(|_| Client::connect(address)).collect();
    gateway.hand_over();
    gateway.hand_over();
    let used = |gateway: &Upgraded| {
        good(&gateway.gateway, "GET limits/all/keys/everyone", "")["policies"][0]["used"].clone()
    };
    // It would have ended meanwhile.
    for _ in 0..20 {
        assert_eq!(used(&gateway), 50);
    }
    // The first process is at the limit, too, once a request of its own has reserved the rest.
    let mut last = silent.pop().expect("a client");
    last.write(REQUEST);
    backend.wait_for(2);
    for client in &mut silent {
        client.write(REQUEST);
        client.read().expect(429);
    }
    get(address, "/").expect(429);
    backend.open_gate();
    busy.read().expect(200);
    last.read().expect(200);
    eventually("the costs to be settled", || (used(&gateway) == 8).then_some(()));
    gateway.wait_for(2, "stopped");
    assert_eq!(used(&gateway), 8);
}

/// Connects as a process that takes the counters over, and reads all of them.
fn take_counters(process: u32) -> UnixStream {
    let name = format!("tollgate/counters/{process}");
    let address = UnixAddress::from_abstract_name(name).expect("a name");
    let mut stream = UnixStream::connect_addr(&address).expect("it waits");
    stream.write_all(b"TGC1").expect("it listens");
    let read = |stream: &mut UnixStream| {
        let mut length = [0; 8];
        stream.read_exact(&mut length).expect("a length");
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).expect("short")];
        stream.read_exact(&mut bytes).expect("all bytes");
        bytes
    };
    assert!(read(&mut stream).starts_with(b"{"), "what it counts by");
    stream.write_all(b"F").expect("it listens");
    assert!(read(&mut stream).starts_with(b"tollgate counters"));
    assert_eq!(read(&mut stream), b"[]", "no places");
    stream
}

#[test]
fn a_process_whose_successor_dies_decides_again() {
    let backend = Backend::ok();
    let gateway = start(&toml(&backend, "algorithm = \"fixed-window\"\nrate = \"5/month\"", ""));
    let address = gateway.gateway.addr();
    assert_eq!(passed(address, 2), 2);
    for _ in 0..2 {
        let successor = take_counters(gateway.process());
        let mut waits = Client::connect(address);
        waits.write(REQUEST);
        let mut call = [0; 16];
        (&successor).read_exact(&mut call).expect("it is asked");
        // It is gone without a reply.
        drop(successor);
        waits.read().expect(200);
    }
    assert_eq!(passed(address, 3), 1);
}

#[test]
fn what_is_no_protocol_changes_nothing() {
    let backend = Backend::ok();
    let gateway = start(&toml(&backend, "algorithm = \"fixed-window\"\nrate = \"5/month\"", ""));
    let address = gateway.gateway.addr();
    let name = format!("tollgate/counters/{}", gateway.process());
    let hello = b"TGC1F";
    for bytes in [
        &b""[..],
        &hello[..1],
        &hello[..4],
        b"TGC0",
        b"TGC1x",
        b"TGC1F\0\0\0\0\0\0\0\0\0\0\0\0",
        b"TGC1F\x10\0\0\0aaaaaaaa{\"x\":1}",
    ] {
        let socket = UnixAddress::from_abstract_name(&name).expect("a name");
        let mut stream = UnixStream::connect_addr(&socket).expect("it waits");
        stream.write_all(bytes).expect("it listens");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        let mut all = Vec::new();
        // It may be cut off with bytes unread.
        let _ = stream.read_to_end(&mut all);
        assert!(!bytes.starts_with(b"TGC1F") || all.len() > 100);
    }
    assert_eq!(passed(address, 7), 5);
}

#[test]
fn counters_of_another_size_and_of_a_shared_store_stay_where_they_are() {
    let backend = Backend::ok();
    let limit = "algorithm = \"fixed-window\"\nrate = \"5/month\"";
    let file = toml(&backend, limit, "");
    let mut gateway = start(&file);
    let address = gateway.gateway.addr();
    assert_eq!(passed(address, 2), 2);
    gateway.gateway.write_config(&format!("{file}[store]\nmax_keys = 10\n"));
    gateway.upgrade();
    gateway.wait_for(1, "are not used, and begin at 0: `max_keys` in [store] has changed");
    assert_eq!(passed(address, 7), 5);
    let redis = Redis::start();
    let shared = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"5s\"\n", redis.url());
    gateway.gateway.write_config(&format!("{file}{shared}"));
    gateway.upgrade();
    assert_eq!(passed(address, 7), 5);
    gateway.upgrade();
    assert_eq!(passed(address, 1), 0);
    gateway.signal(Signal::TERM);
}

/// A store keeps bans and overrides, and is away: two processes in a row know them from the one before.
#[test]
fn upgrades_while_the_store_is_away_forget_no_ban_and_no_override() {
    let (backend, mut redis) = (Backend::ok(), Redis::start());
    let one = "algorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 1";
    let toml = toml(&backend, one, &redis.store_table()).replace("\"global\"", "\"header:x-client\"");
    let mut gateway = start(&toml);
    let address = gateway.gateway.addr();
    let client = |name| get_with(address, "/", &format!("x-client: {name}\r\n"));
    let is_banned = || client("banned").banned_for().is_some();
    eventually("the store", || (gateway.gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
    good(&gateway.gateway, "POST limits/all/keys/banned/ban", r#"{"for": "1h"}"#);
    good(&gateway.gateway, "PUT limits/all/keys/larger/override", r#"{"rate": "9/366day", "burst": 9}"#);
    redis.kill();
    for _ in 0..2 {
        gateway.upgrade();
        assert!(is_banned());
        let status = || client("larger").status;
        assert_eq!(std::iter::repeat_with(status).take(10).filter(|status| *status == 200).count(), 9);
    }
    // A store that has lost them is believed.
    redis.restart();
    eventually("an end of the ban", || (!is_banned()).then_some(()));
}
