//! Connections: how many one client may have, and how long a tunnel may be silent.

use std::time::Duration;

use crate::harness::{Backend, Client, Gateway, Next, eventually, everything_to};

fn gateway(backend: &Backend, server: &str) -> Gateway {
    let rest =
        format!("[server]\nmax_connections_per_client = 2\n{server}\n[admin]\nlisten = \"127.0.0.1:0\"\n");
    Gateway::start(&everything_to(backend, &rest))
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let mut open: Vec<Client> = (0..2).map(|_| Client::connect(gateway.addr())).collect();
    open.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    for _ in 0..3 {
        let mut third = Client::connect(gateway.addr());
        let answer = third.read().expect(503);
        assert!(answer.closed, "{}", answer.head);
    }
    let mut other = Client::connect_from([127, 0, 0, 2].into(), gateway.addr());
    other.get("/", "").expect(200);
    open.pop();
    eventually("its place to be free again", || {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        client.try_read("GET").is_ok_and(|answer| answer.status == 200).then_some(())
    });
    let refused = gateway.metric("tollgate_connections_refused_total", &["reason=\"per_client\""]);
    assert!(refused >= 3.0, "{refused}");
}

#[test]
fn trusted_proxies_have_no_bound() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "trusted_proxies = [\"127.0.0.1\"]");
    let mut open: Vec<Client> = (0..6).map(|_| Client::connect(gateway.addr())).collect();
    open.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
}

#[test]
fn where_connections_are_scarce_the_excess_is_closed_at_once() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "max_connections = 4");
    let mut open: Vec<Client> = (0..2).map(|_| Client::connect(gateway.addr())).collect();
    open.iter_mut().for_each(|client| drop(client.get("/", "").expect(200)));
    assert!(Client::connect(gateway.addr()).closes());
}

#[test]
fn a_silent_tunnel_is_closed_and_a_busy_one_is_not() {
    let backend = Backend::start(|exchange| {
        exchange
            .write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        loop {
            let bytes = exchange.read_some();
            if bytes.is_empty() {
                return Next::Close;
            }
            exchange.write(bytes);
        }
    });
    let gateway = Gateway::start(&everything_to(&backend, "tunnel_timeout = \"2s\""));
    let mut client = Client::connect(gateway.addr());
    client
        .exchange("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .expect(101);
    // Longer in all than the time-out, but never silent for so long.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        client.write("x");
        assert_eq!(client.read_exact(1).expect("the echo"), b"x");
    }
    assert!(client.closes());
}
