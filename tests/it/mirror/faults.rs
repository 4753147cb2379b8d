//! Whatever the mirror does, requests are answered as without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::{all_counted, counted, file, post, wait_for, with_urls};
use crate::harness::servers::is_up;
use crate::harness::{Backend, Client, Gateway, Next, eventually, get, send};

/// Ten requests, half of them with a body, each of which is answered by the backend.
fn ten(gateway: &Gateway) {
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        assert_eq!(client.get("/", "").expect(200).text(), "ok");
        assert_eq!(client.exchange(post("/", "abc")).expect(200).text(), "ok");
    }
}

#[test]
fn answers_of_a_mirror_are_dropped_whatever_they_are() {
    let api = Backend::ok();
    let large = vec![b'x'; 3 << 20];
    let huge =
        [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", large.len()).as_bytes(), &large].concat();
    // The backend closes after each answer. A copy of a POST on a connection that is being closed could not be sent again.
    let answers: [(&[u8], &str); 12] = [
        (b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", "sent"),
        (b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc", "sent"),
        (
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nconnection: close\r\n\
              content-length: 0\r\n\r\n",
            "sent",
        ),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
              3\r\nabc\r\n0\r\nx-a: 1\r\n\r\n",
            "sent",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "sent"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef", "sent"),
        (&huge, "sent"),
        (b"HTTP/1.1 500 Oh\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", "server_error"),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "failed"),
        (b"garbage\r\n\r\n", "failed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "failed"),
        (b"HTTP/1.1 2", "failed"),
    ];
    for (bytes, result) in answers {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let canary = Backend::answering_once(bytes);
        let gateway = Gateway::start(&file(&api, &canary, "", ""));
        ten(&gateway);
        eventually(&shown, || (counted(&gateway, result) >= 10.0).then_some(()));
        assert_eq!((counted(&gateway, result), all_counted(&gateway)), (10.0, 10.0), "{shown}");
    }
}

#[test]
fn a_mirror_that_resets_or_refuses_fails_no_request() {
    let api = Backend::ok();
    let resetting = Backend::start(|_| Next::Reset);
    let gateway = Gateway::start(&file(&api, &resetting, "", ""));
    ten(&gateway);
    wait_for(&gateway, "failed", 10);
    gateway
        .wait_for_log("mirror: a copy of a request of route \"all\" got no answer from upstream \"canary\"");
    let (address, _held) = Backend::refusing();
    let urls = (&*api.url(), &*format!("http://{address}"));
    let gateway = Gateway::start(&with_urls(urls, ("", ""), ""));
    ten(&gateway);
    wait_for(&gateway, "failed", 10);
    gateway.wait_for_log("got no answer from upstream \"canary\"");
    let lines = gateway.stderr_lines().iter().filter(|line| line.contains("got no answer")).count();
    assert!(lines <= 2, "one a worker: {}", gateway.stderr());
    assert_eq!(gateway.metric("tollgate_upstream_failures_total", &["upstream=\"canary\""]), 0.0);
    assert_eq!(gateway.metric("tollgate_upstream_up", &["upstream=\"canary\""]), 1.0);
    assert!(gateway.access_log(10).iter().all(|line| line["status"] == 200 && line["error"].is_null()));
}

/// Copies that hang have places of their own, and an end.
#[test]
fn a_mirror_that_hangs_takes_a_bounded_number_of_copies() {
    let (api, canary) = (
        Backend::ok(),
        Backend::start(|exchange| {
            exchange.hang();
            Next::Close
        }),
    );
    let gateway = Gateway::start(&format!("{}[server]\nworkers = 1\n", file(&api, &canary, "", "")));
    let mut client = Client::connect(gateway.addr());
    let begun = Instant::now();
    (0..400).for_each(|_| drop(client.get("/", "").expect(200)));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    wait_for(&gateway, "busy", 400 - 256);
    canary.close_connections();
    eventually("the others fail", || (counted(&gateway, "failed") >= 256.0).then_some(()));
}

#[test]
fn a_mirror_that_is_silent_is_given_up_after_the_timeout_of_the_route() {
    let (api, canary) = (
        Backend::ok(),
        Backend::start(|exchange| {
            if exchange.target() == "/body" {
                exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
            }
            exchange.hang();
            Next::Close
        }),
    );
    let gateway = Gateway::start(&file(&api, &canary, "", "timeout = \"300ms\""));
    let mut client = Client::connect(gateway.addr());
    (0..5).for_each(|_| drop(client.get("/", "").expect(200)));
    wait_for(&gateway, "failed", 5);
    (0..5).for_each(|_| drop(client.get("/body", "").expect(200)));
    eventually("they were answered", || (counted(&gateway, "sent") >= 5.0).then_some(()));
}

/// A server that answers this status, which the test changes.
fn server() -> (Backend, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(500));
    let its = Arc::clone(&status);
    let backend = Backend::start(move |exchange| {
        let marked = exchange.field("x-tollgate-mirror").is_some();
        let status = if marked { its.load(Ordering::SeqCst) } else { 200 };
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    (backend, status)
}

#[test]
fn a_mirror_that_fails_is_left_alone_for_a_while() {
    let (api, (canary, status)) = (Backend::ok(), server());
    let gateway = Gateway::start(&with_urls(
        (&api.url(), &canary.url()),
        ("", "[[routes]]\nname = \"direct\"\npath = \"/direct\"\nupstream = \"canary\"\n"),
        "breaker = { requests = 10, for = \"300ms\" }",
    ));
    let mut client = Client::connect(gateway.addr());
    eventually("the breaker opens", || {
        client.get("/", "").expect(200);
        (counted(&gateway, "breaker_open") > 0.0).then_some(())
    });
    assert!(counted(&gateway, "server_error") >= 10.0);
    let gets = canary.count();
    assert_eq!(gateway.metric("tollgate_upstream_breaker_open", &["upstream=\"canary\""]), 0.0);
    get(gateway.addr(), "/direct").expect(200);
    assert!(is_up(&gateway, &canary));
    assert!(canary.count() > gets);
    status.store(200, Ordering::SeqCst);
    eventually("it is tried again", || {
        client.get("/", "").expect(200);
        (counted(&gateway, "sent") >= 3.0).then_some(())
    });
}

/// Each file without a `breaker` has one for copies: half of 20 attempts.
#[test]
fn there_is_always_a_breaker_of_copies() {
    let (api, (canary, _)) = (Backend::ok(), server());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    for number in 1..=20 {
        client.get("/", "").expect(200);
        eventually("it is answered", || {
            (counted(&gateway, "server_error") >= f64::from(number)).then_some(())
        });
    }
    (0..5).for_each(|_| drop(client.get("/", "").expect(200)));
    eventually("the breaker is open", || (counted(&gateway, "breaker_open") >= 5.0).then_some(()));
    assert_eq!((canary.count(), all_counted(&gateway)), (20, 25.0));
}

/// An upstream that serves requests, too, loses no server and no connection to copies.
#[test]
fn copies_eject_no_server_and_take_no_connection_of_requests() {
    let (api, bad, good) = (Backend::ok(), server().0, server().0);
    let gateway = Gateway::start(&format!(
        "[server]\nworkers = 1\n[upstreams]\napi = \"{}\"\n[upstreams.canary]\nservers = [\"{}\", \"{}\"]\n\
         eject = {{ failures = 2, for = \"1h\", statuses = [\"5xx\"] }}\nmax_connections = 1\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nmirror = {{ upstream = \"canary\" }}\n\
         [[routes]]\nname = \"direct\"\npath = \"/direct\"\nupstream = \"canary\"\n",
        api.url(),
        bad.url(),
        good.url()
    ));
    let mut client = Client::connect(gateway.addr());
    (0..15).for_each(|_| drop(client.get("/", "").expect(200)));
    wait_for(&gateway, "server_error", 15);
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 0.0);
    assert!(is_up(&gateway, &bad) && is_up(&gateway, &good));
    assert_eq!(gateway.metric("tollgate_upstream_connections", &["upstream=\"canary\""]), 0.0);
    (0..4).for_each(|_| drop(client.get("/direct", "").expect(200)));
    assert!(bad.count() >= 2 && good.count() >= 2);
}

#[test]
fn a_drained_server_gets_no_copies() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    gateway.get("/").expect(200);
    wait_for(&gateway, "sent", 1);
    let path = format!("POST upstreams/canary/servers/{}/drain", canary.addr());
    assert_eq!(crate::harness::api::ask(&gateway, &path, "{}").0, 200);
    gateway.get("/").expect(200);
    eventually("it fails", || (counted(&gateway, "failed") >= 1.0).then_some(()));
    assert_eq!(canary.count(), 1);
}

#[test]
fn copies_under_way_do_not_prolong_the_end() {
    let (api, canary) = (
        Backend::ok(),
        Backend::start(|exchange| {
            exchange.hang();
            Next::Close
        }),
    );
    let toml = format!("[server]\ndrain_timeout = \"1h\"\n{}", file(&api, &canary, "", ""));
    let mut gateway = Gateway::start(&toml);
    send(gateway.addr(), "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").expect(200);
    canary.wait_for(1);
    let begun = Instant::now();
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn copies_under_way_outlive_a_reload_and_the_mirror_may_go() {
    let api = Backend::ok();
    let canary = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    (0..5).for_each(|_| drop(gateway.get("/").expect(200)));
    canary.wait_for(5);
    let without = file(&api, &canary, "", "").replace("mirror = { upstream = \"canary\" }\n", "");
    gateway.reload(&without, "mirror canary, 100 %, per consumer, bodies up to 65536 bytes");
    (0..5).for_each(|_| drop(gateway.get("/").expect(200)));
    canary.open_gate();
    wait_for(&gateway, "sent", 5);
    assert_eq!((api.count(), canary.count()), (10, 5));
}

/// The mirror is slow, and the backend is not: no request waits.
#[test]
fn a_slow_mirror_slows_no_request() {
    let (api, canary) = (
        Backend::ok(),
        Backend::start(|exchange| {
            exchange.read_body();
            std::thread::sleep(Duration::from_millis(400));
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            Next::KeepAlive
        }),
    );
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    let begun = Instant::now();
    for _ in 0..40 {
        client.exchange(post("/", "abc")).expect(200);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "40 in {:?}", begun.elapsed());
    wait_for(&gateway, "sent", 40);
}
