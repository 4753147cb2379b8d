//! What decides when several rules apply to a server: the table of `docs/upstreams.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::harness::servers::{is_up, over};
use crate::harness::{Backend, Gateway, Next, eventually, get_with};

/// A server whose health and status the test changes.
struct Server {
    backend: Backend,
    healthy: Arc<AtomicBool>,
    status: Arc<AtomicU16>,
}

impl Server {
    fn new(status: u16) -> Self {
        let (healthy, status) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU16::new(status)));
        let (well, its) = (Arc::clone(&healthy), Arc::clone(&status));
        let backend = Backend::start(move |exchange| {
            let status = match exchange.target() {
                "/healthz" if well.load(Ordering::SeqCst) => 200,
                "/healthz" => 500,
                _ => its.load(Ordering::SeqCst),
            };
            exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
            Next::KeepAlive
        });
        Self { backend, healthy, status }
    }

    fn asked(&self) -> usize {
        self.backend.requests().iter().filter(|request| request.target() == "/").count()
    }
}

const HEALTH: &str = "health = { path = \"/healthz\", interval = \"20ms\", unhealthy = 1, healthy = 1 }";

fn gateway(servers: &[&Server], lines: &str) -> Gateway {
    let backends: Vec<_> = servers.iter().map(|server| &server.backend).collect();
    let file = over(&backends, &format!("{HEALTH}\n{lines}"));
    Gateway::start(&file.replace("[admin]", "[server]\nworkers = 1\n[admin]"))
}

#[test]
fn an_open_breaker_stands_above_health_and_ejection() {
    let (one, other) = (Server::new(500), Server::new(500));
    let lines = "eject = { failures = 2, for = \"1h\", statuses = [\"5xx\"] }\nbreaker = { requests = 6, for = \"1h\" }";
    let gateway = gateway(&[&one, &other], lines);
    let statuses: Vec<u16> = (0..10).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [500, 500, 500, 500, 500, 500, 503, 503, 503, 503]);
    // Both are well by their checks now, and one of them is ejected: neither matters.
    one.status.store(200, Ordering::SeqCst);
    other.status.store(200, Ordering::SeqCst);
    let refused = gateway.get("/").expect(503);
    assert!(refused.text().contains("requests to it are paused"), "{}", refused.text());
    one.healthy.store(false, Ordering::SeqCst);
    other.healthy.store(false, Ordering::SeqCst);
    eventually("both are down", || (!is_up(&gateway, &one.backend)).then_some(()));
    assert!(gateway.get("/").expect(503).text().contains("requests to it are paused"));
    assert_eq!(one.asked() + other.asked(), 6);
}

#[test]
fn an_unhealthy_server_gets_nothing_even_if_all_others_are_ejected() {
    let (ill, ejected) = (Server::new(200), Server::new(500));
    let lines = "eject = { failures = 1, for = \"1h\", statuses = [\"5xx\"] }\nretry = { on = [\"5xx\"], attempts = 5 }";
    let gateway = gateway(&[&ill, &ejected], lines);
    eventually("it is ejected", || {
        gateway.get("/");
        (!is_up(&gateway, &ejected.backend)).then_some(())
    });
    ill.healthy.store(false, Ordering::SeqCst);
    eventually("it is down", || (!is_up(&gateway, &ill.backend)).then_some(()));
    let before = ill.asked();
    // The ejected one is the last that is healthy.
    assert_eq!(gateway.get("/").status, 500);
    assert_eq!((ill.asked(), ejected.asked()), (before, 2));
}

#[test]
fn an_ejected_server_is_asked_only_if_no_other_is_left() {
    let (good, ejected) = (Server::new(200), Server::new(500));
    let lines = "eject = { failures = 1, for = \"1h\", statuses = [\"5xx\"] }\nslow_start = \"1h\"\nretry = { on = [\"5xx\"], attempts = 2 }";
    let gateway = gateway(&[&good, &ejected], lines);
    (0..40).for_each(|_| drop(gateway.get("/").expect(200)));
    assert_eq!(ejected.asked(), 1);
    // Now the other fails, and the retry is for the ejected one, which is back.
    ejected.status.store(200, Ordering::SeqCst);
    good.status.store(503, Ordering::SeqCst);
    gateway.get("/").expect(200);
    assert_eq!(ejected.asked(), 2);
}

#[test]
fn an_ejected_server_comes_back_with_a_tenth_of_its_share() {
    let (good, other) = (Server::new(200), Server::new(500));
    let lines = "eject = { failures = 1, for = \"200ms\", statuses = [\"5xx\"] }\nslow_start = \"1h\"\nretry = { on = [\"5xx\"] }";
    let gateway = gateway(&[&good, &other], lines);
    eventually("it is ejected", || {
        gateway.get("/").expect(200);
        (other.asked() == 1).then_some(())
    });
    other.status.store(200, Ordering::SeqCst);
    eventually("it is back", || {
        gateway.get("/").expect(200);
        (other.asked() == 2).then_some(())
    });
    let (before, all) = (other.asked(), good.asked() + other.asked());
    (0..220).for_each(|_| drop(gateway.get("/").expect(200)));
    assert_eq!(good.asked() + other.asked() - all, 220);
    assert_eq!(other.asked() - before, 20);
}

#[test]
fn a_sticky_cookie_yields_to_ejection_and_health_and_precedes_slow_start() {
    let (one, other) = (Server::new(200), Server::new(200));
    let lines = "eject = { failures = 1, for = \"200ms\", statuses = [\"5xx\"] }\nslow_start = \"1h\"\nsticky = { cookie = \"route\" }";
    let gateway = gateway(&[&one, &other], lines);
    let set = gateway.get("/").expect(200).header("set-cookie").expect("a cookie").to_owned();
    let cookie = format!("cookie: {}\r\n", set.split(';').next().unwrap_or_default());
    let get = || get_with(gateway.addr(), "/", &cookie);
    let (named, other) = if one.asked() == 1 { (&one, &other) } else { (&other, &one) };
    named.status.store(500, Ordering::SeqCst);
    assert_eq!(get().status, 500, "an ejection begins with it");
    assert!(get().expect(200).header("set-cookie").is_some());
    assert_eq!((named.asked(), other.asked()), (2, 1));
    named.status.store(200, Ordering::SeqCst);
    eventually("it is back", || {
        get().expect(200);
        (named.asked() == 3).then_some(())
    });
    (0..20).for_each(|_| drop(get().expect(200)));
    assert_eq!(named.asked(), 23, "clients with its cookie do not wait for slow start");
    named.healthy.store(false, Ordering::SeqCst);
    eventually("it is down", || (!is_up(&gateway, &named.backend)).then_some(()));
    assert!(get().expect(200).header("set-cookie").is_some());
    assert_eq!(named.asked(), 23);
}
