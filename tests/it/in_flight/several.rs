//! Several concurrency limits on one route, and queues whose requests come and go.

use std::collections::BTreeMap;

use crate::harness::api::api;
use crate::harness::in_flight::{all_gone, begin, comes_to_hold, fits, held, limited};
use crate::harness::{Client, Gateway, HoldingBackend, Load};

/// A limit `y` by the field `x-org`, on the route beside `x`.
fn start(backend: &HoldingBackend, x: &str, y: &str) -> Gateway {
    let other = format!("[limits.y]\nalgorithm = \"concurrency\"\nkey = \"header:x-org\"\n{y}\n");
    Gateway::start(&limited(
        backend,
        x,
        "limits = [\"x\", \"y\"]",
        &format!("{other}[server]\nworkers = 4\n"),
    ))
}

fn request(target: &str, client: &str, org: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: test\r\nx-client: {client}\r\nx-org: {org}\r\n\r\n")
}

fn send(gateway: &Gateway, target: &str, client: &str, org: &str) -> Client {
    let mut connection = Client::connect(gateway.addr());
    connection.write(request(target, client, org));
    connection
}

/// The places of `o` under the limit `y`.
fn held_by_org(gateway: &Gateway) -> u64 {
    let key = api(gateway, "limits/y/keys/o");
    let number = |name: &str| key["policies"][0][name].as_u64().expect("a number");
    number("quota") - number("remaining")
}

#[test]
fn a_request_takes_its_places_of_all_limits_or_of_none() {
    let backend = HoldingBackend::start();
    let gateway = start(&backend, "max = 1", "max = 2");
    let mut clients = vec![send(&gateway, "/a", "a", "o")];
    backend.holds(1);
    let refused = send(&gateway, "/a-again", "a", "o").read().expect(429);
    assert_eq!(refused.header("ratelimit"), Some("\"x\";r=0"));
    assert_eq!((held(&gateway), held_by_org(&gateway)), (1, 1));
    clients.push(send(&gateway, "/b", "b", "o"));
    backend.holds(2);
    let refused = send(&gateway, "/c", "c", "o").read().expect(429);
    assert_eq!(refused.header("ratelimit"), Some("\"y\";r=0"));
    clients.push(send(&gateway, "/c-elsewhere", "c", "p"));
    backend.holds(3);
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_hold(&gateway, 0);
    assert_eq!(held_by_org(&gateway), 0);
}

/// A request that waits for one limit and then for another is not forgotten: every place that is freed wakes the next.
#[test]
fn requests_under_two_limits_all_have_their_turn() {
    let backend = HoldingBackend::start();
    let queue = "max = 2\nqueue = 100\nmax_wait = \"28s\"";
    let gateway = start(&backend, queue, queue);
    let load = Load { requests: 240, concurrency: 24 };
    let statuses = load
        .run(gateway.addr(), |number| request("/quick", ["a", "b"][number % 2], ["o", "p", "q"][number % 3]));
    assert_eq!(statuses, BTreeMap::from([(200, 240)]));
    assert!(backend.max() <= 4, "{}", backend.max());
    comes_to_hold(&gateway, 0);
    assert_eq!(held_by_org(&gateway), 0);
}

/// Requests leave the queue from its middle and its front while others go on; every one that stays is answered.
#[test]
fn requests_that_leave_the_queue_hold_no_other_up() {
    let backend = HoldingBackend::start();
    let limit = "max = 3\nqueue = 200\nmax_wait = \"28s\"";
    let gateway = Gateway::start(&limited(&backend, limit, "", "[server]\nworkers = 4\n"));
    let mut clients: Vec<_> = (0..120).map(|number| Some(begin(&gateway, &format!("/{number}")))).collect();
    backend.holds(3);
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 3 == 0 {
            client.take().expect("it is there").reset();
        }
        if number == 60 {
            backend.open();
        }
    }
    for mut client in clients.into_iter().flatten() {
        client.read().expect(200);
    }
    assert!(backend.arrivals().len() >= 80);
    all_gone(&gateway, 120);
    fits(&gateway, &backend, 3);
}

/// A place that is free is not given past the first that waits, although that one waits for another limit too.
#[test]
fn a_request_waits_for_its_second_limit_without_holding_the_first() {
    let backend = HoldingBackend::start();
    let queue = "max = 1\nqueue = 9\nmax_wait = \"28s\"";
    let gateway = start(&backend, queue, queue);
    let read = std::time::Duration::from_millis(150);
    let mut first = send(&gateway, "/a-o", "a", "o");
    let mut second = send(&gateway, "/b-p", "b", "p");
    backend.holds(2);
    // Waits for the client's place, then for that of the organization.
    let mut both = send(&gateway, "/a-p", "a", "p");
    std::thread::sleep(read);
    backend.release("/a-o");
    first.read().expect(200);
    std::thread::sleep(read);
    assert_eq!((held(&gateway), backend.present()), (0, 1), "it waits for the other, and holds nothing");
    backend.release("/b-p");
    second.read().expect(200);
    backend.has_got(3);
    backend.open();
    both.read().expect(200);
    comes_to_hold(&gateway, 0);
}
