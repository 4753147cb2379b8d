//! Which server a request goes to.

use crate::harness::servers::{failing, over};
use crate::harness::{Backend, Client, Gateway, Next, get_with};

/// A server that says its name.
fn named(name: &'static str) -> Backend {
    Backend::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{name}"))
}

#[test]
fn lots_reach_every_server() {
    let servers = [Backend::ok(), Backend::ok(), Backend::ok()];
    let gateway = Gateway::start(&over(&[&servers[0], &servers[1], &servers[2]], "balance = \"random\""));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..300 {
        client.get("/", "").expect(200);
    }
    // Less than 60 of 300 at a chance of a third: once in many millions of runs.
    assert!(servers.iter().all(|server| server.count() >= 60));
}

#[test]
fn a_server_that_is_slow_gets_few_requests() {
    let slow = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let fast = Backend::ok();
    let file = over(&[&slow, &fast], "balance = \"least-requests\"");
    let gateway = Gateway::start(&file);
    let mut clients: Vec<Client> = Vec::new();
    for round in 1..=60 {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        crate::harness::eventually("the request to arrive", || {
            (slow.count() + fast.count() >= round).then_some(())
        });
        clients.push(client);
    }
    // One waits there; a few more only where an answer of the fast one was still on its way.
    assert!((1..=12).contains(&slow.count()), "{} of 60", slow.count());
    slow.open_gate();
    clients.into_iter().for_each(|mut client| _ = client.read().expect(200));
    // What is answered is in flight no more.
    let before = slow.count();
    (0..40).for_each(|_| _ = gateway.get("/").expect(200));
    assert!(slow.count() > before);
}

/// The server of each of these clients.
fn served(gateway: &Gateway) -> Vec<String> {
    let server_of =
        |client| get_with(gateway.addr(), "/", &format!("x-user: {client}\r\n")).expect(200).text();
    (0..40).map(server_of).collect()
}

const BY_USER: &str = "balance = \"hash\"\nhash_key = \"header:x-user\"";

#[test]
fn a_key_has_its_server_for_any_client_and_any_order_of_the_list() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let gateway = Gateway::start(&over(&[&a, &b, &c], BY_USER));
    let servers = served(&gateway);
    assert!(["a", "b", "c"].iter().all(|name| servers.iter().any(|server| server == name)), "{servers:?}");
    assert_eq!(served(&gateway), servers);
    let other = Gateway::start(&over(&[&c, &a, &b], BY_USER));
    assert_eq!(served(&other), servers, "another gateway of the fleet");
}

#[test]
fn only_the_keys_of_an_ejected_server_move() {
    let ((broken, _), b, c) = (failing(), named("b"), named("c"));
    let file = |rule: &str| {
        over(&[&broken, &b, &c], &format!("{BY_USER}\nretry = {{ attempts = 2, budget = 1 }}\n{rule}"))
    };
    let by_retry = served(&Gateway::start(&file("eject = { failures = 0 }")));
    let asked = broken.count();
    let gateway = Gateway::start(&file("eject = { failures = 1, for = \"1h\" }"));
    assert_eq!(served(&gateway), by_retry, "a retry and an ejection lead to the same next server");
    assert_eq!(broken.count(), asked + 1);
    let whole = Gateway::start(&over(&[&b, &c], BY_USER));
    assert_eq!(served(&whole), by_retry, "as if it had never been listed");
}

#[test]
fn without_the_field_the_address_stands_in() {
    let (a, b) = (named("a"), named("b"));
    let gateway = Gateway::start(&over(&[&a, &b], BY_USER));
    (0..20).for_each(|_| _ = gateway.get("/").expect(200));
    assert_eq!(a.count().min(b.count()), 0, "one client, one server");
}
