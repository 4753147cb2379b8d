//! The circuit breaker of an upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::harness::api::api;
use crate::harness::servers::{is_up, over};
use crate::harness::{Backend, Client, Gateway, Next, eventually};

/// A server that answers this status, which the test changes.
fn server() -> (Backend, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(500));
    let its = Arc::clone(&status);
    let backend = Backend::start(move |exchange| {
        let status = its.load(Ordering::SeqCst);
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    (backend, status)
}

#[test]
fn requests_are_answered_at_once_while_the_only_server_fails() {
    let (backend, _) = server();
    let gateway =
        Gateway::start(&over(&[&backend], "breaker = { failures = 0.5, requests = 10, for = \"1h\" }"));
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 500);
    }
    for _ in 0..30 {
        let refused = gateway.get("/").expect(503);
        let wait: u64 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
        assert!((3_500..=3_600).contains(&wait), "{wait}");
        assert!(refused.text().contains("requests to it are paused"), "{}", refused.text());
    }
    assert_eq!(backend.count(), 10);
    assert!(!is_up(&gateway, &backend));
    gateway.wait_for_log("upstream `api`: the circuit breaker is open: 10 of 10 attempts in 10 s failed");
    let metric = |name, labels: &[&str]| gateway.metric(name, labels);
    assert_eq!(metric("tollgate_upstream_breaker_open", &["upstream=\"api\""]), 1.0);
    assert_eq!(metric("tollgate_upstream_breaker_openings_total", &["upstream=\"api\""]), 1.0);
    assert_eq!(metric("tollgate_upstream_failures_total", &["error=\"breaker_open\""]), 30.0);
    let status = api(&gateway, "status");
    let text = status["problems"][0]["text"].as_str().expect("a problem").to_owned();
    assert_eq!(text, "Backend `api` is down, its breaker is open: 10 of 10 attempts in 10 s failed");
    assert_eq!(status["problems"][0]["severity"], "bad");
}

#[test]
fn one_request_tries_it_and_an_answer_closes_it() {
    let (backend, status) = server();
    let gateway = Gateway::start(&over(&[&backend], "breaker = { requests = 5, for = \"300ms\" }"));
    (0..5).for_each(|_| drop(gateway.get("/")));
    assert_eq!((gateway.get("/").status, backend.count()), (503, 5));
    // The trials fail, one each time that it is over.
    eventually("two trials", || {
        gateway.get("/");
        (backend.count() >= 7).then_some(())
    });
    assert_eq!(gateway.metric("tollgate_upstream_breaker_openings_total", &[]), 1.0);
    status.store(200, Ordering::SeqCst);
    eventually("it is closed", || (gateway.get("/").status == 200).then_some(()));
    (0..20).for_each(|_| drop(gateway.get("/").expect(200)));
    assert!(is_up(&gateway, &backend));
    assert_eq!(gateway.metric("tollgate_upstream_breaker_open", &[]), 0.0);
    gateway.wait_for_log("the circuit breaker is closed again");
}

/// The trial hangs: others are answered at once, and none follows it to the server.
#[test]
fn others_do_not_wait_for_the_trial() {
    let backend = Backend::start(|exchange| {
        if exchange.target() == "/trial" {
            exchange.wait_at_gate();
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        } else {
            exchange.write("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n");
        }
        Next::KeepAlive
    });
    let gateway = Gateway::start(&over(&[&backend], "breaker = { requests = 5, for = \"1ms\" }"));
    (0..5).for_each(|_| drop(gateway.get("/")));
    std::thread::sleep(Duration::from_millis(20));
    std::thread::scope(|scope| {
        let trial = scope.spawn(|| gateway.get("/trial").status);
        backend.wait_for(6);
        for _ in 0..20 {
            let refused = gateway.get("/").expect(503);
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
        assert_eq!(backend.count(), 6);
        backend.open_gate();
        assert_eq!(trial.join().expect("an answer"), 200);
    });
    assert_eq!(gateway.get("/").status, 500, "it is closed");
}

/// The client of the trial sends its body slowly: it keeps the breaker open for no longer than five seconds.
#[test]
fn a_slow_client_does_not_keep_it_open() {
    let status = Arc::new(AtomicU16::new(500));
    let its = Arc::clone(&status);
    let backend = Backend::start(move |exchange| {
        if exchange.target() == "/slow" {
            exchange.read_body();
        }
        let status = its.load(Ordering::SeqCst);
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let gateway = Gateway::start(&over(&[&backend], "breaker = { requests = 5, for = \"1ms\" }"));
    (0..5).for_each(|_| drop(gateway.get("/").expect(500)));
    std::thread::sleep(Duration::from_millis(20));
    let mut slow = Client::connect(gateway.addr());
    slow.write("POST /slow HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\nx");
    backend.wait_for(6);
    status.store(200, Ordering::SeqCst);
    gateway.get("/").expect(503);
    eventually("the breaker to close", || {
        slow.write("x");
        (gateway.get("/").status == 200).then_some(())
    });
}

#[test]
fn attempts_without_an_answer_count_too_and_those_of_good_servers_do_not_open_it() {
    let (address, _socket) = Backend::refusing();
    let file = format!(
        "[upstreams.api]\nservers = [\"http://{address}\"]\nbreaker = {{ requests = 5, for = \"1h\" }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"api\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"
    );
    let gateway = Gateway::start(&file);
    let statuses: Vec<u16> = (0..10).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [502, 502, 502, 502, 502, 503, 503, 503, 503, 503]);
    let good = Backend::ok();
    let gateway = Gateway::start(&over(&[&good], "breaker = { failures = 0.01, requests = 1 }"));
    (0..50).for_each(|_| drop(gateway.get("/").expect(200)));
    assert_eq!(good.count(), 50);
}
