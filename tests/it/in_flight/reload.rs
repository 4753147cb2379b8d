//! Places outlive reloads: requests in flight stay in flight.

use crate::harness::in_flight::{begin, comes_to_hold, fits, limited};
use crate::harness::{Client, Gateway, HoldingBackend, eventually};

fn file(backend: &HoldingBackend, max: usize) -> String {
    limited(backend, &format!("max = {max}"), "", "")
}

fn begin_all(gateway: &Gateway, backend: &HoldingBackend, count: usize) -> Vec<Client> {
    let before = backend.present();
    let clients = (before..before + count).map(|number| begin(gateway, &format!("/{number}"))).collect();
    backend.holds(before + count);
    clients
}

#[test]
fn a_lower_max_admits_none_until_enough_have_ended() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&file(&backend, 5));
    let mut clients = begin_all(&gateway, &backend, 5);
    gateway.reload(&file(&backend, 2), "reload");
    for (number, client) in clients.iter_mut().enumerate().take(4) {
        begin(&gateway, "/refused").read().expect(429);
        backend.release(&format!("/{number}"));
        client.read().expect(200);
    }
    comes_to_hold(&gateway, 1);
    assert_eq!(backend.max(), 5);
    let mut sixth = begin(&gateway, "/5");
    backend.holds(2);
    begin(&gateway, "/refused").read().expect(429);
    backend.open();
    clients[4].read().expect(200);
    sixth.read().expect(200);
    fits(&gateway, &backend, 2);
}

#[test]
fn a_higher_max_admits_more_at_once() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&file(&backend, 2));
    let mut clients = begin_all(&gateway, &backend, 2);
    gateway.reload(&file(&backend, 4), "reload");
    clients.extend(begin_all(&gateway, &backend, 2));
    begin(&gateway, "/refused").read().expect(429);
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    fits(&gateway, &backend, 4);
}

#[test]
fn a_limit_that_is_removed_and_added_again_knows_its_places() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&file(&backend, 3));
    let mut clients = begin_all(&gateway, &backend, 2);
    gateway.reload(&limited(&backend, "max = 3", "limits = []", ""), "reload");
    // Not counted, as there is no limit now.
    clients.extend(begin_all(&gateway, &backend, 3));
    gateway.reload(&file(&backend, 3), "reload");
    clients.extend(begin_all(&gateway, &backend, 1));
    begin(&gateway, "/refused").read().expect(429);
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    fits(&gateway, &backend, 3);
}

/// Its places are those of requests before the first reload, whose end is not missed.
#[test]
fn requests_that_end_while_the_limit_is_gone_give_their_places_back() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&file(&backend, 3));
    let without =
        file(&backend, 3).replace("limits = [\"x\"]", "").split("[limits.x]").next().map(str::to_owned);
    let mut clients = begin_all(&gateway, &backend, 3);
    gateway.reload(&without.expect("a part"), "reload");
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    gateway.reload(&file(&backend, 3), "reload");
    fits(&gateway, &backend, 3);
}

/// A request that waits goes on by the file with which it began.
#[test]
fn a_queue_outlives_a_reload() {
    let backend = HoldingBackend::start();
    let with = |max: usize| limited(&backend, &format!("max = {max}\nqueue = 5\nmax_wait = \"25s\""), "", "");
    let gateway = Gateway::start(&with(1));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut second = begin(&gateway, "/1");
    std::thread::sleep(std::time::Duration::from_millis(150));
    gateway.reload(&with(2), "reload");
    backend.release("/0");
    first.read().expect(200);
    eventually("the request that waited", || backend.arrivals().contains(&"/1".to_owned()).then_some(()));
    backend.open();
    second.read().expect(200);
    fits(&gateway, &backend, 2);
}
