//! Places when a process ends: it finishes what is in flight, and its successor is not blocked.

use rustix::process::Signal;

use crate::harness::in_flight::{begin, fits, held, limited};
use crate::harness::{Gateway, HoldingBackend, free_address};

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
fn a_successor_counts_for_itself() {
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
    assert_eq!(held(&next), 0, "it knows nothing of the places of the process before");
    let mut more = [begin(&next, "/3"), begin(&next, "/4")];
    backend.holds(4);
    begin(&next, "/5").read().expect(429);
    assert!(before.alive(), "it waits for its requests");
    backend.open();
    for client in clients.iter_mut().chain(&mut more) {
        client.read().expect(200);
    }
    assert_eq!(before.wait_for_exit().code(), Some(0));
    fits(&next, &backend, 2);
}
