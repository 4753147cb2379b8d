//! Places when a process ends: it finishes what is in flight, and its successor holds these places meanwhile.

use rustix::process::Signal;

use crate::harness::in_flight::{begin, fits, held, limited};
use crate::harness::{Gateway, HoldingBackend, eventually, free_address};

#[test]
fn a_process_that_drains_finishes_what_is_in_flight_and_what_waits() {
    let backend = HoldingBackend::start();
    let limit = "max = 1\nqueue = 5\nmax_wait = \"25s\"";
    let mut gateway = Gateway::start(&limited(&backend, limit, "", ""));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut second = begin(&gateway, "/1");
    std::thread::sleep(std::time::Duration::from_millis(150));
    gateway.signal(Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(150));
    backend.open();
    first.read().expect(200);
    second.read().expect(200);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert_eq!((backend.max(), backend.arrivals().len()), (1, 2));
}

#[test]
fn a_successor_knows_the_places_of_the_process_before() {
    let backend = HoldingBackend::start();
    let (address, admins) = (free_address(), [free_address(), free_address()]);
    let toml = |admin: std::net::SocketAddr| {
        let server = format!("[server]\nlisten = [\"{address}\"]\nworkers = 2\n");
        limited(&backend, "max = 2", "", &server).replace("127.0.0.1:0", &admin.to_string())
    };
    let mut before = Gateway::start(&toml(admins[0]));
    let mut clients = [begin(&before, "/0"), begin(&before, "/1")];
    backend.holds(2);
    begin(&before, "/2").read().expect(429);
    let next = Gateway::start_with(&toml(admins[1]), &["--takeover"]);
    assert_eq!(held(&next), 2, "the requests are in flight in the process before");
    begin(&next, "/3").read().expect(429);
    assert!(before.alive(), "it waits for its requests");
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    assert_eq!(before.wait_for_exit().code(), Some(0));
    eventually("the places to be free", || (held(&next) == 0).then_some(()));
    fits(&next, &backend, 2);
}
