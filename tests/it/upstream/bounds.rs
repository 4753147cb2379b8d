//! `max_connections` and `max_pending` of an upstream: exact over all workers, first come first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::servers::over;
use crate::harness::{Authority, Backend, Client, Gateway, Next, eventually};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const PATIENT: &str = "connect_timeout = \"30s\"\n";

/// Answers once the test opens the gate; `/now` at once.
fn gated() -> Backend {
    Backend::start(|exchange| {
        if exchange.target() != "/now" {
            exchange.wait_at_gate();
        }
        exchange.write(OK);
        Next::KeepAlive
    })
}

fn bounded(servers: &[&Backend], lines: &str) -> Gateway {
    Gateway::start(&over(servers, &format!("{PATIENT}{lines}")))
}

fn asking(gateway: &Gateway, path: &str) -> Client {
    let mut client = Client::connect(gateway.addr());
    client.write(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
    client
}

fn wait_for_pending(gateway: &Gateway, count: usize) {
    eventually("requests that wait", || {
        (gateway.metric("tollgate_upstream_pending", &[]) == count as f64).then_some(())
    });
}

fn error(gateway: &Gateway, index: usize) -> String {
    gateway.access_log(index)[index - 1]["error"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn all_workers_together_never_have_more() {
    let (open, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&max);
    let backend = Backend::start(move |exchange| {
        seen.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        exchange.wait_at_gate();
        open.fetch_sub(1, Ordering::SeqCst);
        exchange.write(OK);
        Next::KeepAlive
    });
    let gateway = bounded(&[&backend], "max_connections = 3");
    let clients: Vec<Client> = (0..20).map(|_| asking(&gateway, "/")).collect();
    wait_for_pending(&gateway, 17);
    backend.wait_for(3);
    assert_eq!((backend.count(), backend.connections()), (3, 3));
    backend.open_gate();
    for mut client in clients {
        client.read().expect(200);
    }
    assert_eq!((backend.count(), backend.connections()), (20, 3), "connections go from worker to worker");
    assert!(max.load(Ordering::SeqCst) <= 3);
    assert_eq!(gateway.metric("tollgate_upstream_connections", &["upstream=\"api\""]), 3.0);
}

#[test]
fn first_come_first_served() {
    let backend = gated();
    let gateway = bounded(&[&backend], "max_connections = 1");
    let mut clients = vec![asking(&gateway, "/0")];
    backend.wait_for(1);
    for index in 1..8 {
        clients.push(asking(&gateway, &format!("/{index}")));
        wait_for_pending(&gateway, index);
    }
    backend.open_gate();
    for client in &mut clients {
        client.read().expect(200);
    }
    let order: Vec<String> = backend.requests().iter().map(|request| request.target().to_owned()).collect();
    assert_eq!(order, ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"]);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn beyond_max_pending_the_answer_is_503() {
    let backend = gated();
    let gateway = bounded(&[&backend], "max_connections = 1\nmax_pending = 1\nretry = { attempts = 3 }");
    let mut first = asking(&gateway, "/");
    backend.wait_for(1);
    let mut second = asking(&gateway, "/");
    wait_for_pending(&gateway, 1);
    let refused = gateway.get("/").expect(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(error(&gateway, 1), "upstream_full");
    backend.open_gate();
    first.read().expect(200);
    second.read().expect(200);
    first.get("/", "").expect(200);
    assert_eq!(gateway.metric("tollgate_upstream_up", &[]), 1.0);
}

#[test]
fn no_request_waits_where_max_pending_is_zero_nor_longer_than_connect_timeout() {
    let backend = gated();
    let gateway = bounded(&[&backend], "max_connections = 1\nmax_pending = 0");
    let _busy = asking(&gateway, "/");
    backend.wait_for(1);
    gateway.get("/").expect(503);
    let lines = "max_connections = 1\nconnect_timeout = \"50ms\"";
    let gateway = Gateway::start(&over(&[&backend], lines));
    let _busy = asking(&gateway, "/");
    backend.wait_for(2);
    gateway.get("/").expect(503);
    assert_eq!((error(&gateway, 1).as_str(), backend.count()), ("upstream_full", 2));
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let backend = gated();
    let gateway = bounded(&[&backend], "max_connections = 1\nmax_pending = 1");
    let mut first = asking(&gateway, "/first");
    backend.wait_for(1);
    let leaving = asking(&gateway, "/leaving");
    wait_for_pending(&gateway, 1);
    leaving.reset();
    wait_for_pending(&gateway, 0);
    let mut next = asking(&gateway, "/next");
    wait_for_pending(&gateway, 1);
    backend.open_gate();
    first.read().expect(200);
    next.read().expect(200);
    assert!(backend.requests().iter().all(|request| request.target() != "/leaving"));
}

/// One that is not kept makes room, too.
#[test]
fn a_connection_that_closes_wakes_the_next() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write(OK);
        if exchange.target() == "/reset" { Next::Reset } else { Next::Close }
    });
    let gateway = bounded(&[&backend], "max_connections = 1");
    let mut first = asking(&gateway, "/reset");
    backend.wait_for(1);
    let mut second = asking(&gateway, "/close");
    wait_for_pending(&gateway, 1);
    let mut third = asking(&gateway, "/close");
    wait_for_pending(&gateway, 2);
    backend.open_gate();
    first.read().expect(200);
    second.read().expect(200);
    third.read().expect(200);
    assert_eq!(backend.connections(), 3);
}

/// A request whose kept connection was stale waits for a new one, and takes no kept one that is handed on to it.
#[test]
fn a_repeated_request_gets_no_kept_connection() {
    let (dropped, is_waiting) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let waits = Arc::clone(&is_waiting);
    let backend = Backend::start(move |exchange| {
        match exchange.target() {
            "/drop" if !dropped.swap(true, Ordering::SeqCst) => {
                exchange.wait_at_gate();
                return Next::Reset;
            }
            "/slow" => {
                eventually("the repeated request waits", || waits.load(Ordering::SeqCst).then_some(()));
            }
            _ => {}
        }
        exchange.write(OK);
        Next::KeepAlive
    });
    let gateway = bounded(&[&backend], "max_connections = 1");
    gateway.get("/first").expect(200);
    let mut repeated = asking(&gateway, "/drop");
    backend.wait_for(2);
    let mut slow = asking(&gateway, "/slow");
    wait_for_pending(&gateway, 1);
    backend.open_gate();
    backend.wait_for(3);
    wait_for_pending(&gateway, 1);
    is_waiting.store(true, Ordering::SeqCst);
    slow.read().expect(200);
    repeated.read().expect(200);
    assert_eq!((backend.count(), backend.connections()), (4, 3));
}

/// An unused connection to one server does not keep a request from another.
#[test]
fn all_servers_share_the_bound() {
    let (one, other) = (Backend::ok(), Backend::ok());
    let gateway = bounded(&[&one, &other], "max_connections = 1");
    let mut client = Client::connect(gateway.addr());
    for _ in 0..6 {
        client.get("/", "").expect(200);
    }
    assert_eq!((one.count(), other.count()), (3, 3));
    assert_eq!(gateway.metric("tollgate_upstream_connections", &[]), 1.0);
}

#[test]
fn kept_connections_go_from_worker_to_worker() {
    let authority = Authority::new();
    authority.certify("server", &["127.0.0.1"]);
    let (plain, secure) = (Backend::ok(), Backend::ok_tls(authority.backend("server")));
    let lines = format!("max_connections = 1\n{}", authority.trusted(""));
    for (backend, lines) in [(&plain, "max_connections = 1"), (&secure, &*lines)] {
        let gateway = bounded(&[backend], lines);
        for _ in 0..20 {
            gateway.get("/").expect(200);
        }
        assert_eq!((backend.count(), backend.connections()), (20, 1));
    }
}

#[test]
fn a_stale_one_is_replaced() {
    let backend = Backend::ok();
    let gateway = bounded(&[&backend], "max_connections = 1\nmax_pending = 0");
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        client.get("/", "").expect(200);
        backend.close_connections();
    }
    assert_eq!((backend.count(), backend.connections()), (5, 5));
}

#[test]
fn a_tunnel_counts_until_it_ends() {
    let backend = Backend::start(|exchange| {
        if exchange.field("upgrade").is_none() {
            exchange.write(OK);
            return Next::KeepAlive;
        }
        exchange
            .write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        exchange.hang();
        Next::Close
    });
    let gateway = bounded(&[&backend], "max_connections = 1\nmax_pending = 0");
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    client.read_head().expect("an answer").expect(101);
    gateway.get("/").expect(503);
    client.reset();
    eventually("the tunnel to end", || (gateway.get("/").status == 200).then_some(()));
}

#[test]
fn a_reload_that_raises_or_removes_the_bound_lets_the_next_through() {
    for line in ["max_connections = 2", ""] {
        let backend = gated();
        let toml = over(&[&backend], &format!("{PATIENT}max_connections = 1"));
        let gateway = Gateway::start(&toml);
        let mut first = asking(&gateway, "/");
        backend.wait_for(1);
        let mut second = asking(&gateway, "/now");
        wait_for_pending(&gateway, 1);
        gateway.reload(&toml.replace("max_connections = 1", line), "reloaded: ");
        second.read().expect(200);
        backend.open_gate();
        first.read().expect(200);
        assert_eq!(backend.connections(), 2);
    }
}
