//! Several servers, and when another attempt is made: when no byte was written (any method), or when the method is
//! idempotent, the body was not begun and no byte of an answer was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Backend, Client, Gateway, Next, eventually, send};

fn over(servers: &[String], rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{}]\n{rest}\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n[server]\nworkers = 1\n",
        servers.join(", ")
    )
}

fn quoted(url: &str) -> String {
    format!("\"{url}\"")
}

fn request(method: &str) -> String {
    format!("{method} / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody")
}

#[test]
fn servers_take_turns_by_weight() {
    let (first, second) = (Backend::ok(), Backend::ok());
    let heavy = format!("{{ url = \"{}\", weight = 2 }}", second.url());
    let gateway = Gateway::start(&over(&[quoted(&first.url()), heavy], ""));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..30 {
        client.get("/", "").expect(200);
    }
    assert_eq!((first.count(), second.count()), (10, 20));
}

#[test]
fn a_server_that_refuses_is_passed_over_by_any_method() {
    let (closed, _held) = Backend::refusing();
    let backend = Backend::ok();
    let gateway = Gateway::start(&over(&[quoted(&format!("http://{closed}")), quoted(&backend.url())], ""));
    let mut client = Client::connect(gateway.addr());
    for method in ["GET", "POST", "PATCH", "PUT", "DELETE", "POST"] {
        client.exchange(request(method)).expect(200);
        assert_eq!(backend.latest().body, b"body", "{method}");
    }
    assert_eq!(backend.count(), 6);
}

#[test]
fn one_attempt_means_one() {
    let (closed, _held) = Backend::refusing();
    let backend = Backend::ok();
    let servers = [quoted(&format!("http://{closed}")), quoted(&backend.url())];
    let gateway = Gateway::start(&over(&servers, "retry = { attempts = 1 }"));
    let statuses: Vec<_> = (0..4).map(|_| gateway.get("/").status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 502).count(),
        2,
        "every second is lost: {statuses:?}"
    );
}

/// The backend closes after its first answer, as servers do with idle connections: the next request must not fail for it.
#[test]
fn a_stale_connection_is_no_failure_for_any_method() {
    for method in ["GET", "POST", "PATCH", "DELETE"] {
        let backend = Backend::ok();
        let gateway = Gateway::start(&over(&[quoted(&backend.url())], ""));
        let mut client = Client::connect(gateway.addr());
        for round in 1..=5 {
            client.exchange(request(method)).expect(200);
            assert_eq!(backend.count(), round, "{method}");
            backend.close_connections();
            // The close must have come for the gateway to see it; loopback needs no time, a busy machine a little.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Opens this many connections to servers whose handlers wait at their gates.
fn open_together(gateway: &Gateway, backends: &[&Backend], count: usize) {
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| gateway.get("/held").expect(200));
        }
        let held = || backends.iter().map(|backend| backend.count()).sum::<usize>() >= count;
        eventually("all of them at the servers", || held().then_some(()));
        backends.iter().for_each(|backend| backend.open_gate());
    });
}

/// A server that answers the first request of each connection alone. Those to `/held` wait at its gate.
fn once_a_connection() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        if exchange.target() == "/held" {
            exchange.wait_at_gate();
        } else if exchange.earlier > 0 || exchange.target() == "/never" {
            return Next::Close;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

/// Many kept connections may have been closed: the one repeat goes on a new one.
#[test]
fn after_a_stale_connection_the_request_is_repeated_once_on_a_new_one() {
    for lines in ["", "retry = { attempts = 1 }"] {
        let backend = once_a_connection();
        let gateway = Gateway::start(&over(&[quoted(&backend.url())], lines));
        open_together(&gateway, &[&backend], 4);
        gateway.get("/").expect(200);
        assert_eq!(backend.count(), 4 + 2, "{lines}");
    }
}

#[test]
fn attempts_count_requests_on_stale_connections() {
    for (lines, most) in [("", 2), ("retry = { attempts = 1 }", 2), ("retry = { attempts = 3 }", 3)] {
        let servers = [once_a_connection(), once_a_connection()];
        let gateway = Gateway::start(&over(&servers.each_ref().map(|server| quoted(&server.url())), lines));
        open_together(&gateway, &servers.each_ref(), 8);
        gateway.get("/never").expect(502);
        let sent = servers[0].count() + servers[1].count() - 8;
        assert!(sent <= most, "{lines}: sent {sent} times");
        assert!(sent > 1, "{lines}: a stale connection is not a failure");
    }
}

/// Two servers that read requests whole; the first request to come to either is reset, later ones are answered.
fn failing_once() -> ([Backend; 2], Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let server = || {
        let counter = Arc::clone(&calls);
        Backend::start(move |exchange| {
            exchange.read_body();
            if counter.fetch_add(1, Ordering::SeqCst) == 0 {
                return Next::Reset;
            }
            exchange.write("HTTP/1.1 200 OK\r\nx-kind: ok\r\ncontent-length: 0\r\n\r\n");
            Next::KeepAlive
        })
    };
    ([server(), server()], calls)
}

fn over_both(servers: &[Backend; 2]) -> String {
    over(&[quoted(&servers[0].url()), quoted(&servers[1].url())], "")
}

#[test]
fn an_idempotent_request_without_body_is_tried_on_another_server() {
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"] {
        let (servers, calls) = failing_once();
        let gateway = Gateway::start(&over_both(&servers));
        let response = send(gateway.addr(), format!("{method} / HTTP/1.1\r\nhost: test\r\n\r\n"));
        assert_eq!((response.status, calls.load(Ordering::SeqCst)), (200, 2), "{method}");
        assert_eq!((servers[0].count(), servers[1].count()), (1, 1), "{method}");
    }
}

#[test]
fn what_may_have_had_an_effect_is_never_sent_twice() {
    let cases = [
        ("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n", "not idempotent"),
        ("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody", "not idempotent"),
        ("PATCH / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody", "not idempotent"),
        ("PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nbody", "its body was begun"),
        ("BREW / HTTP/1.1\r\nhost: test\r\n\r\n", "unknown"),
    ];
    for (request, why) in cases {
        let (servers, calls) = failing_once();
        let gateway = Gateway::start(&over_both(&servers));
        send(gateway.addr(), request).expect(502);
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{request:?}: {why}");
    }
}

#[test]
fn an_answer_that_has_begun_is_never_asked_for_again() {
    let begins = || {
        Backend::start(|exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-le");
            // A reset at once could overtake these bytes.
            std::thread::sleep(std::time::Duration::from_millis(100));
            Next::Close
        })
    };
    let servers = [begins(), begins()];
    let gateway = Gateway::start(&over_both(&servers));
    gateway.get("/").expect(502);
    assert_eq!(servers[0].count() + servers[1].count(), 1);
}

#[test]
fn a_retry_is_charged_once() {
    let (servers, calls) = failing_once();
    let limit = "[limits.two]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"2/h\"\nburst = 2\n";
    let route = "upstream = \"api\"\nlimits = [\"two\"]\n";
    let gateway = Gateway::start(&(over_both(&servers).replace("upstream = \"api\"\n", route) + limit));
    let first = gateway.get("/").expect(200);
    assert_eq!(calls.load(Ordering::SeqCst), 2, "it was tried again");
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    gateway.get("/").expect(200);
    gateway.get("/").expect(429);
}

/// `retry.budget`: at most 20 % of the last 10 s, and at least 10 a second: dead servers must not get double load.
#[test]
fn retries_are_bounded_by_their_budget() {
    let servers = [Backend::start(|_| Next::Reset), Backend::start(|_| Next::Reset)];
    let gateway = Gateway::start(&over_both(&servers));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..1_000 {
        client.get("/", "").expect(502);
    }
    let extra = servers[0].count() + servers[1].count() - 1_000;
    assert!(extra >= 10, "some are tried again: {extra}");
    assert!(extra <= 400, "20 % of the requests, and what 10 a second allow: {extra}");
}
