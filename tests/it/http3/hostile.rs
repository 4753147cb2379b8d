//! Clients that attack: handshakes that stop, settings of QUIC that let nothing through, and floods that cost them little.

use std::net::UdpSocket;
use std::time::Duration;

use quinn::{ConnectionError, TransportConfig, VarInt};

use super::{Http3Gateway, codes};
use crate::harness::quic_client::{H3_SETTINGS, h3_frame, h3_head};
use crate::harness::{Backend, QuicClient, QuicEnd, eventually, everything_to};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn get() -> Vec<u8> {
    h3_head(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")])
}

fn connect(http3: &Http3Gateway, transport: TransportConfig) -> QuicClient {
    let connected =
        QuicClient::connect_by(http3.gateway.addr(), &http3.tls(), transport, |connecting| connecting);
    connected.expect("a connection")
}

/// The packets of a client that has had no answer yet.
fn first_flight(http3: &Http3Gateway) -> Vec<Vec<u8>> {
    let deaf = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = deaf.local_addr().expect("it is bound");
    let (sender, captured) = tokio::sync::oneshot::channel();
    std::thread::scope(|scope| {
        let flight = scope.spawn(move || {
            let mut flight = Vec::new();
            let mut buffer = [0; 2_000];
            deaf.set_read_timeout(Some(crate::harness::TIMEOUT)).expect("a socket option");
            while let Ok((length, _)) = deaf.recv_from(&mut buffer) {
                flight.push(buffer[..length].to_vec());
                // The first packets come at once, and again only after longer than this.
                deaf.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket option");
            }
            sender.send(()).ok();
            flight
        });
        let connected =
            QuicClient::connect_by(address, &http3.tls(), TransportConfig::default(), |connecting| async {
                captured.await.ok();
                drop(connecting);
                Err(ConnectionError::TimedOut)
            });
        assert!(connected.is_err());
        flight.join().expect("no panic")
    })
}

/// What the gateway answers until it gives the handshakes up.
#[test]
fn a_handshake_that_stops_has_its_time_and_amplifies_little() {
    let backend = Backend::ok();
    let config = everything_to(&backend, ADMIN);
    let http3 = Http3Gateway::start_with("header_timeout = \"1s\"\nworkers = 1", &config);
    let given_up = || http3.gateway.metric("tollgate_connections_refused_total", &["reason=\"tls\""]);
    let flight = first_flight(&http3);
    assert!(!flight.is_empty());
    let attacker = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let sent: usize = flight.iter().map(Vec::len).sum();
    for packet in &flight {
        attacker.send_to(packet, http3.gateway.addr()).expect("it is sent");
    }
    eventually("the gateway to give the handshake up", || (given_up() > 0.5).then_some(()));
    attacker.set_nonblocking(true).expect("a socket option");
    let mut buffer = [0; 2_000];
    let received: usize = std::iter::from_fn(|| attacker.recv(&mut buffer).ok()).sum();
    // QUIC's library sends one packet more, if the three times are not used up when it begins it.
    assert!(received > 0 && received <= 3 * sent + 1_500, "{sent} bytes sent, {received} received");
    // The same with a part of what a client says: nothing but the first packet, whose rest never comes.
    let half = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    half.send_to(&first_flight(&http3)[0], http3.gateway.addr()).expect("it is sent");
    eventually("the gateway to give this up, too", || (given_up() > 1.5).then_some(()));
    assert_eq!(http3.quic().fate(&get()), QuicEnd::Answered(200));
}

/// Many handshakes that stop: the gateway asks further clients to show their address, and serves those that do.
#[test]
fn a_flood_of_handshakes_costs_others_nothing() {
    let backend = Backend::ok();
    let config = everything_to(&backend, ADMIN);
    let http3 = Http3Gateway::start_with("header_timeout = \"60s\"\nworkers = 1", &config);
    let flights: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..48).map(|_| scope.spawn(|| first_flight(&http3))).collect();
        all.into_iter().map(|flight| flight.join().expect("no panic")).collect()
    });
    let mut answers = Vec::new();
    let mut sockets = Vec::new();
    for flight in &flights {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(crate::harness::TIMEOUT)).expect("a socket option");
        for packet in flight {
            socket.send_to(packet, http3.gateway.addr()).expect("it is sent");
        }
        let mut buffer = [0; 2_000];
        let length = socket.recv(&mut buffer).expect("an answer");
        answers.push((buffer[0], length));
        sockets.push(socket);
    }
    // Retry (RFC 9000 §17.2.5).
    let retries = answers.iter().filter(|(first, _)| first & 0xb0 == 0xb0).count();
    assert_eq!(retries, 48 - 32, "{answers:x?}");
    for _ in 0..5 {
        assert_eq!(http3.quic().fate(&get()), QuicEnd::Answered(200));
    }
    drop(sockets);
}

/// Bytes on all streams, and on each: none may be sent.
#[test]
fn a_client_that_lets_nothing_through_is_cut() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("write_timeout = \"1s\"", &everything_to(&backend, ""));
    for of_connection in [true, false] {
        let mut transport = TransportConfig::default();
        match of_connection {
            true => transport.receive_window(VarInt::from_u32(0)),
            false => transport.stream_receive_window(VarInt::from_u32(0)),
        };
        let client = connect(&http3, transport);
        let streams: Vec<_> = (0..20).map(|_| client.send(&get())).collect();
        for mut stream in streams {
            let code = client.block_on(stream.receiving.received_reset()).expect("the connection is open");
            assert_eq!(
                code.map(u64::from),
                Some(codes::REQUEST_CANCELLED),
                "of the connection: {of_connection}"
            );
        }
    }
    assert_eq!(http3.quic().fate(&get()), QuicEnd::Answered(200));
}

/// The gateway's control stream needs one (RFC 9114 §6.2).
#[test]
fn a_client_without_room_for_the_control_stream_is_cut() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("header_timeout = \"1s\"", &everything_to(&backend, ""));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(VarInt::from_u32(0));
    let client = connect(&http3, transport);
    assert_eq!(client.close_code(), codes::STREAM_CREATION_ERROR);
    assert_eq!(backend.count(), 0);
}

/// A browser may tell the priority of each request (RFC 9218 §7.2), on a connection that lives for long.
#[test]
fn frames_of_control_are_bounded_by_the_requests() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let mut control = client.open_control();
    let priority = h3_frame(0xf_0700, b"\0u=1");
    // More than the 10,000 that a connection may send without requests.
    for _ in 0..1_500 {
        client.block_on(control.write_all(&priority.repeat(8))).expect("the gateway reads");
        assert_eq!(client.fate(&get()), QuicEnd::Answered(200));
    }
    client.block_on(control.write_all(&priority.repeat(10_001))).ok();
    assert_eq!(client.close_code(), codes::EXCESSIVE_LOAD);
}

/// Streams of unknown types are told to stop. They count as frames of control do.
#[test]
fn a_flood_of_unknown_streams_closes_the_connection() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let mut control = client.open_control();
    let most = h3_frame(0xf_0700, b"\0u=1").repeat(9_900);
    client.block_on(control.write_all(&most)).expect("the gateway reads");
    let connection = client.connection().clone();
    let flooding = client.spawn(async move {
        while let Ok(mut stream) = connection.open_uni().await {
            if stream.write_all(&[0x21]).await.is_err() {
                break;
            }
            stream.finish().ok();
        }
    });
    assert_eq!(client.close_code(), codes::EXCESSIVE_LOAD);
    client.block_on(flooding).expect("no panic");
    assert_eq!(http3.quic().fate(&get()), QuicEnd::Answered(200));
}

/// A frame that ends after 2^62 bytes: nothing of it is held, and the connection is idle.
#[test]
fn a_control_frame_without_end_keeps_no_connection_open() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("idle_timeout = \"1s\"", &everything_to(&backend, ""));
    let client = http3.quic();
    let endless = [&[0x21][..], &[0xff; 8]].concat();
    let begin = [&[0][..], &h3_frame(H3_SETTINGS, b""), &endless].concat();
    let mut control = client.open_one_way(&begin);
    let sending = client.spawn(async move {
        while control.write_all(&[0; 1_000]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(client.close_code(), codes::NO_ERROR);
    client.block_on(sending).expect("no panic");
}
