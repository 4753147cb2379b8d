//! `slow_start`: a server that is back gets little at first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::servers::{is_up, over};
use crate::harness::{Backend, Client, Gateway, Next, eventually};

/// A server that passes its health checks only while the flag is set.
fn checked() -> (Backend, Arc<AtomicBool>) {
    let healthy = Arc::new(AtomicBool::new(true));
    let its = Arc::clone(&healthy);
    let backend = Backend::start(move |exchange| {
        let status = if exchange.target() == "/healthz" && !its.load(Ordering::SeqCst) { 500 } else { 200 };
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    (backend, healthy)
}

fn asked(backend: &Backend) -> usize {
    backend.requests().iter().filter(|request| request.target() == "/").count()
}

#[test]
fn a_server_that_is_back_gets_a_tenth_of_its_share_at_first() {
    for balance in ["round-robin", "random", "least-requests"] {
        let ((server, healthy), good) = (checked(), Backend::ok());
        let lines = format!(
            "balance = \"{balance}\"\nslow_start = \"1h\"\nhealth = {{ path = \"/healthz\", interval = \"20ms\", unhealthy = 1, healthy = 1 }}"
        );
        let file = over(&[&server, &good], &lines).replace("[admin]", "[server]\nworkers = 1\n[admin]");
        let gateway = Gateway::start(&file);
        let mut client = Client::connect(gateway.addr());
        let mut ask = |count: usize| (0..count).for_each(|_| drop(client.get("/", "").expect(200)));
        ask(200);
        let before = asked(&server);
        assert!((60..=140).contains(&before), "{balance}: at first each has its share: {before}");
        healthy.store(false, Ordering::SeqCst);
        eventually("it is down", || (!is_up(&gateway, &server)).then_some(()));
        let away = asked(&server);
        ask(50);
        assert_eq!(asked(&server), away);
        healthy.store(true, Ordering::SeqCst);
        eventually("it is up", || is_up(&gateway, &server).then_some(()));
        ask(440);
        let back = asked(&server) - away;
        // Of two drawn servers the less busy one is chosen, and here none is busy: the first drawn.
        assert!((15..=75).contains(&back), "{balance}: {back} of 440");
        if balance == "round-robin" {
            assert_eq!(back, 40);
        }
    }
}

#[test]
fn a_server_that_a_reload_adds_begins_slowly() {
    let servers = [Backend::ok(), Backend::ok(), Backend::ok()];
    let file = |servers: &[&Backend]| {
        over(servers, "slow_start = \"1h\"").replace("[admin]", "[server]\nworkers = 1\n[admin]")
    };
    let gateway = Gateway::start(&file(&[&servers[0], &servers[1]]));
    let mut client = Client::connect(gateway.addr());
    let mut ask = |count: usize| (0..count).for_each(|_| drop(client.get("/", "").expect(200)));
    ask(20);
    assert_eq!(
        servers.each_ref().map(asked),
        [10, 10, 0],
        "servers of the first plan have their share at once"
    );
    gateway.reload(&file(&[&servers[0], &servers[1], &servers[2]]), "reloaded:");
    ask(210);
    assert_eq!(servers.each_ref().map(asked), [110, 110, 10]);
}
