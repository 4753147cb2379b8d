//! Ejection of servers that fail requests: when, for how long, and how many stay.

use std::sync::atomic::Ordering;

use crate::harness::servers::{failing, is_up, over, over_within};
use crate::harness::{Backend, Client, Gateway, Next, eventually, send};

#[test]
fn a_server_that_fails_so_often_in_a_row_is_left_alone() {
    let ((broken, _), good) = (failing(), Backend::ok());
    let gateway = Gateway::start(&over(&[&broken, &good], "eject = { failures = 3, for = \"1h\" }"));
    assert!(is_up(&gateway, &broken));
    // Connections of their own, so that both workers learn of it.
    for _ in 0..40 {
        gateway.get("/").expect(200);
    }
    assert_eq!((broken.count(), good.count()), (3, 40), "all workers count together");
    assert!(!is_up(&gateway, &broken) && is_up(&gateway, &good));
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 1.0);
    gateway.wait_for_log("is ejected");
}

#[test]
fn the_default_is_five() {
    let ((broken, _), good) = (failing(), Backend::ok());
    let gateway = Gateway::start(&over(&[&broken, &good], ""));
    for _ in 0..40 {
        gateway.get("/").expect(200);
    }
    assert_eq!(broken.count(), 5);
}

#[test]
fn ordinary_traffic_tries_it_again_and_trusts_it_when_it_answers() {
    let ((server, broken), good) = (failing(), Backend::ok());
    let gateway = Gateway::start(&over(&[&server, &good], "eject = { failures = 2, for = \"50ms\" }"));
    let mut client = Client::connect(gateway.addr());
    eventually("a second ejection", || {
        client.get("/", "").expect(200);
        (gateway.metric("tollgate_upstream_ejections_total", &[]) >= 2.0).then_some(())
    });
    assert_eq!(server.count(), 3, "two failures, and one when it came back");
    broken.store(false, Ordering::SeqCst);
    eventually("it takes its turns again", || {
        client.get("/", "").expect(200);
        (server.count() >= 10).then_some(())
    });
    assert!(is_up(&gateway, &server));
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 2.0);
}

#[test]
fn half_of_the_servers_stay() {
    let servers: Vec<_> = (0..5).map(|_| failing().0).collect();
    let all: Vec<&Backend> = servers.iter().collect();
    let lines = "eject = { failures = 1, for = \"1h\" }\nretry = { attempts = 1 }";
    let gateway = Gateway::start(&over(&all, lines));
    for _ in 0..50 {
        gateway.get("/").expect(502);
    }
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 2.0);
    assert!(!servers.iter().any(|server| is_up(&gateway, server)), "none answers, those that stay neither");
    assert_eq!(servers.iter().filter(|server| server.count() == 1).count(), 2);
}

#[test]
fn one_alone_is_never_ejected() {
    let (server, broken) = failing();
    let gateway = Gateway::start(&over(&[&server], "eject = { failures = 1, for = \"1h\" }"));
    for _ in 0..10 {
        gateway.get("/").expect(502);
    }
    broken.store(false, Ordering::SeqCst);
    gateway.get("/").expect(200);
    assert_eq!(server.count(), 11);
}

#[test]
fn nought_failures_means_never() {
    let ((broken, _), good) = (failing(), Backend::ok());
    let gateway = Gateway::start(
        &over(&[&broken, &good], "eject = { failures = 0 }\n")
            .replace("[admin]", "[server]\nworkers = 1\n[admin]"),
    );
    for _ in 0..40 {
        gateway.get("/").expect(200);
    }
    assert_eq!(broken.count(), 20, "every second request tries it");
}

#[test]
fn silence_counts_and_what_is_not_http_counts() {
    let hanging = || {
        Backend::start(|exchange| {
            exchange.hang();
            Next::Close
        })
    };
    for (bad, status) in [(hanging(), 504), (Backend::answering_once("nonsense\r\n\r\n"), 502)] {
        let good = Backend::ok();
        let gateway =
            Gateway::start(&over_within(&[&bad, &good], "eject = { failures = 2, for = \"1h\" }", "2s"));
        let statuses: Vec<u16> = (0..20).map(|_| gateway.get("/").status).collect();
        assert_eq!(statuses.iter().filter(|given| **given == status).count(), 2, "{statuses:?}");
        assert_eq!((bad.count(), good.count()), (2, 18));
    }
}

/// An answer is a sign of life, and a client must not be able to have a server ejected.
#[test]
fn neither_error_pages_nor_bad_clients_count() {
    let sick = || Backend::answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let servers = [sick(), sick()];
    let file = over_within(&[&servers[0], &servers[1]], "eject = { failures = 1, for = \"1h\" }", "500ms");
    let gateway = Gateway::start(&format!("{file}[server]\nbody_timeout = \"600ms\"\n"));
    for _ in 0..10 {
        gateway.get("/").expect(503);
    }
    for _ in 0..4 {
        let bad = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\nnonsense\r\n";
        send(gateway.addr(), bad).expect(400);
        // Silent for longer than the route's time-out, with half of its body unsent.
        let mut slow = Client::connect(gateway.addr());
        slow.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nab");
        slow.read();
        let mut gone = Client::connect(gateway.addr());
        gone.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nab");
        gone.reset();
    }
    assert!(servers.iter().all(|server| is_up(&gateway, server)));
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 0.0);
}

#[test]
fn a_retry_goes_to_a_server_that_was_not_tried() {
    let (broken, good) = ([failing().0, failing().0], Backend::ok());
    let lines = "eject = { failures = 0 }\nretry = { attempts = 3, budget = 1 }";
    let gateway = Gateway::start(&over(&[&broken[0], &broken[1], &good], lines));
    for round in 1..=20 {
        gateway.get("/").expect(200);
        assert_eq!(good.count(), round);
    }
}

#[test]
fn a_reload_keeps_what_is_known() {
    let ((broken, _), good) = (failing(), Backend::ok());
    let file = over(&[&broken, &good], "eject = { failures = 2, for = \"1h\" }");
    let gateway = Gateway::start(&file);
    (0..10).for_each(|_| _ = gateway.get("/").expect(200));
    gateway.reload(&format!("{file}[log]\nlevel = \"debug\"\n"), "reloaded:");
    (0..10).for_each(|_| _ = gateway.get("/").expect(200));
    assert_eq!(broken.count(), 2);
    assert!(!is_up(&gateway, &broken));
}
