//! Upgrades of the gateway with connections of HTTP/3: those of earlier processes go on, and new clients are served, whatever
//! ids they choose.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{ConnectionId, TransportConfig};
use rustls::ClientConfig;

use super::Http3Gateway;
use crate::harness::quic_client::{h3_head, quic_config};
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    Authority, Backend, Next, QuicClient, QuicEnd, everything_to, free_address_of_datagrams,
};

/// So many ports that the kernel gives packets of some to each of two workers' sockets.
const PORTS: usize = 8;

fn get(path: &str) -> Vec<u8> {
    h3_head(&[(":method", "GET"), (":scheme", "https"), (":path", path), (":authority", "a.test")])
}

/// Answers `/slow` once the test opens the gate, and others at once.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        if exchange.target() == "/slow" {
            exchange.wait_at_gate();
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

/// A gateway whose address stays, and how its clients speak TLS.
struct World {
    upgraded: Upgraded,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    authority: Authority,
}

impl World {
    fn start(backend: &Backend) -> Self {
        let address = free_address_of_datagrams();
        let listen = format!("listen = [{{ address = \"{address}\", http3 = true }}]\nworkers = 2\n");
        let Http3Gateway { authority, gateway } =
            Http3Gateway::start_listening(&listen, &everything_to(backend, ""));
        let tls = authority.client_offering(&["h3"]);
        Self { upgraded: Upgraded::new(gateway), address, tls, authority }
    }

    fn connect(&self) -> QuicClient {
        QuicClient::connect(self.address, &self.tls)
    }

    /// Clients whose first packets carry ids as long as the gateway's, which thus name processes and workers at random.
    fn newcomers_are_served(&self, moment: &str) {
        for length in [8, 14, 14, 14, 14, 20] {
            let mut config = quic_config(&self.tls);
            config.initial_dst_cid_provider(Arc::new(move || {
                let random: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
                ConnectionId::new(&random)
            }));
            let mut transport = TransportConfig::default();
            let silence = std::time::Duration::from_secs(5).try_into().expect("in bounds");
            transport.max_idle_timeout(Some(silence));
            config.transport_config(Arc::new(transport));
            let client = QuicClient::connect_as(self.address, config, |connecting| connecting);
            let client = client.unwrap_or_else(|error| panic!("{moment}, an id of {length} bytes: {error}"));
            assert_eq!(client.fate(&get("/")), QuicEnd::Answered(200), "{moment}");
        }
    }
}

#[test]
fn connections_and_newcomers_are_served_during_an_upgrade_and_after_it() {
    let backend = gated();
    let mut world = World::start(&backend);
    let earlier = world.connect();
    let open = earlier.send(&get("/slow"));
    backend.wait_for(1);
    world.newcomers_are_served("before");
    world.upgraded.hand_over();
    world.newcomers_are_served("during");
    // Other ports, whose packets the new process receives.
    (0..PORTS).for_each(|_| earlier.is_followed_to_another_port());
    backend.open_gate();
    assert_eq!(earlier.end_of(open), QuicEnd::Answered(200));
    earlier.close();
    world.upgraded.wait_for(1, "stopped");
    world.newcomers_are_served("after");
}

/// The new process reads no UDP, so the one before goes on to read its own.
#[test]
fn connections_outlive_an_upgrade_to_a_file_without_http3() {
    let backend = gated();
    let mut world = World::start(&backend);
    let earlier = world.connect();
    let open = earlier.send(&get("/slow"));
    backend.wait_for(1);
    let tcp = format!("listen = [\"{}\"]\nworkers = 2\n", world.address);
    let certificate = world.authority.server("a");
    let rest = everything_to(&backend, "");
    world.upgraded.gateway.write_config(&format!("[server]\n{tcp}{certificate}{rest}"));
    world.upgraded.hand_over();
    // The worker without connections has ended. The kernel chooses a socket by the client's port.
    (0..PORTS).for_each(|_| earlier.is_followed_to_another_port());
    backend.open_gate();
    assert_eq!(earlier.end_of(open), QuicEnd::Answered(200));
    earlier.close();
    world.upgraded.wait_for(1, "stopped");
}

/// The new process reads the UDP sockets of one address, and the one before goes on to read those of the other.
#[test]
fn connections_outlive_an_upgrade_that_takes_http3_from_one_address() {
    let backend = gated();
    let addresses = [free_address_of_datagrams(), free_address_of_datagrams()];
    let listen = |lists: [bool; 2]| {
        let list = |(address, http3)| format!("{{ address = \"{address}\", http3 = {http3} }}");
        let lists: Vec<_> = addresses.iter().zip(lists).map(list).collect();
        format!("listen = [{}]\nworkers = 2\n", lists.join(", "))
    };
    let rest = everything_to(&backend, "");
    let Http3Gateway { authority, gateway } = Http3Gateway::start_listening(&listen([true, true]), &rest);
    let tls = authority.client_offering(&["h3"]);
    let mut upgraded = Upgraded::new(gateway);
    let clients = addresses.map(|address| QuicClient::connect(address, &tls));
    let open = clients.each_ref().map(|client| client.send(&get("/slow")));
    backend.wait_for(2);
    let certificate = authority.server("a");
    upgraded.gateway.write_config(&format!("[server]\n{}{certificate}{rest}", listen([false, true])));
    upgraded.hand_over();
    for client in &clients {
        (0..PORTS).for_each(|_| client.is_followed_to_another_port());
    }
    backend.open_gate();
    for (stream, client) in open.into_iter().zip(&clients) {
        assert_eq!(client.end_of(stream), QuicEnd::Answered(200));
        client.close();
    }
    upgraded.wait_for(1, "stopped");
    assert_eq!(QuicClient::connect(addresses[1], &tls).fate(&get("/")), QuicEnd::Answered(200));
}

/// Two processes drain at a time: the packets of the first go by way of the second.
#[test]
fn connections_outlive_an_upgrade_during_an_upgrade() {
    let backend = gated();
    let mut world = World::start(&backend);
    let mut clients = Vec::new();
    for stage in 0..3 {
        let client = world.connect();
        let open = client.send(&get("/slow"));
        clients.push((client, open));
        backend.wait_for(clients.len() + 6 * stage);
        if stage < 2 {
            world.upgraded.hand_over();
        }
        world.newcomers_are_served("in between");
    }
    for (client, _) in &clients {
        (0..PORTS).for_each(|_| client.is_followed_to_another_port());
    }
    backend.open_gate();
    for (number, (client, open)) in clients.into_iter().enumerate() {
        assert_eq!(client.end_of(open), QuicEnd::Answered(200), "of process {number}");
        client.close();
    }
    world.upgraded.wait_for(2, "stopped");
    world.newcomers_are_served("after");
}
