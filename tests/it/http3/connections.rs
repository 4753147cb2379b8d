//! Connections of QUIC: several workers, clients whose addresses change, client certificates, and packets of no connection.

use std::fs;
use std::iter::repeat_with;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use super::{Http3Gateway, http3_config, pattern};
use crate::harness::{
    Authority, Backend, Body, Http3, Next, QuicClient, binary, eventually, everything_to, free_address,
    h3_get, h3_request,
};

/// Sends bodies back, as they come.
fn mirror() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    })
}

#[test]
fn many_connections_are_served_by_all_workers() {
    let backend = Backend::ok();
    // A busy machine may lose the first packet of some of 600 connections at once, and sends it again after a second.
    let upstream = format!("[upstreams.api]\nservers = [\"{}\"]\nconnect_timeout = \"20s\"", backend.url());
    let file = everything_to(&backend, "").replacen("[upstreams]\n", "", 1);
    let file = file.replacen(&format!("api = \"{}\"", backend.url()), &upstream, 1);
    let http3 = Http3Gateway::start_with("workers = 4", &file);
    let clients: Vec<_> = (0..60).map(|_| http3.connect()).collect();
    for _ in 0..3 {
        for client in &clients {
            client.get("/").expect(200);
        }
    }
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for answer in client.all((0..10).map(|_| (h3_get("/"), Body::default()))) {
                    answer.expect("an answer").expect(200);
                }
            });
        }
    });
    assert_eq!(backend.count(), 60 * 13);
}

/// The kernel gives the packets of a new port to any worker, which passes them on to the one that has the connection.
#[test]
fn a_client_whose_port_changes_goes_on() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("workers = 4", &everything_to(&backend, ""));
    let clients: Vec<_> = (0..4).map(|_| http3.connect()).collect();
    for round in 0..20 {
        for client in &clients {
            client.quic().change_port();
            assert_eq!(client.get("/").status, 200, "round {round}");
        }
    }
    assert_eq!(backend.count(), 80);
}

#[test]
fn a_transfer_outlives_changes_of_the_port() {
    let backend = mirror();
    let http3 =
        Http3Gateway::start_with("workers = 4", &everything_to(&backend, "max_body_bytes = \"20MiB\""));
    let client = http3.connect();
    let body = pattern(5 << 20);
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| client.exchange(h3_request("POST", "/", &[]), &*body));
        while !transfer.is_finished() {
            client.quic().change_port();
            std::thread::sleep(Duration::from_millis(100));
        }
        let answer = transfer.join().expect("no panic").expect("an answer").expect(200);
        assert!(answer.body == body);
    });
}

#[test]
fn only_a_client_with_a_certificate_by_the_authority_is_served() {
    let backend = Backend::ok();
    let authority = crate::harness::Authority::new();
    ["a", "friend"].iter().for_each(|file| authority.certify(file, &["a.test"]));
    let ca = format!("client_ca = \"{}\"\n", authority.path("ca.pem").display());
    let config = super::http3_config(&authority, "", &(ca + &everything_to(&backend, "")));
    let gateway = crate::harness::Gateway::start(&config);
    let with = |own| {
        let mut tls = (*authority.client_of(own, rustls::ALL_VERSIONS)).clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.into()
    };
    Http3::connect(gateway.addr(), &with(Some("friend"))).get("/").expect(200);
    // Such a client may believe that the handshake is complete, before the gateway refuses its certificate.
    if let Ok(stranger) = QuicClient::try_connect(gateway.addr(), &with(None)) {
        let lost = stranger.block_on(stranger.connection().closed());
        assert!(matches!(lost, quinn::ConnectionError::ConnectionClosed(_)), "{lost}");
    }
    assert_eq!(backend.count(), 1);
}

#[test]
fn another_protocol_is_refused() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    for protocols in [&["h2"][..], &["http/1.1"], &["h3-29"], &[]] {
        let tls = http3.authority.client_offering(protocols);
        assert!(QuicClient::try_connect(http3.gateway.addr(), &tls).is_err(), "{protocols:?}");
    }
    http3.connect().get("/").expect(200);
}

/// The first packets have a suite of their own (RFC 9001 §5.2), whatever the file lists.
#[test]
fn the_ciphers_of_the_file_are_spoken() {
    let backend = Backend::ok();
    let ciphers = format!("ciphers = [\"TLS_AES_256_GCM_SHA384\"]\n{}", everything_to(&backend, ""));
    Http3Gateway::start(&ciphers).connect().get("/").expect(200);
}

/// Any datagram, cut anywhere: the gateway lives and serves others.
#[test]
fn datagrams_of_no_connection_do_no_harm() {
    let backend = Backend::ok();
    let mut http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let mut seed = 7_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let send = |bytes: &[u8]| socket.send_to(bytes, http3.gateway.addr()).expect("it is sent");
    for round in 0..200 {
        let mut bytes: Vec<u8> = (0..150).flat_map(|_| random()).collect();
        // Long headers of version 1, and with an id as long as the gateway's; then short ones.
        if round % 2 == 0 {
            let first = 0xc0 | bytes[0] & 0x3f;
            bytes[..6].copy_from_slice(&[first, 0, 0, 0, 1, if round % 4 == 0 { 14 } else { 8 }]);
        } else {
            bytes[0] &= 0x7f;
        }
        send(&bytes);
        for cut in 0..40 {
            send(&bytes[..cut]);
        }
        if round % 20 == 0 {
            client.get("/").expect(200);
        }
    }
    // An unknown version is answered with those that there are (RFC 9000 §6).
    let other = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    other.set_read_timeout(Some(crate::harness::TIMEOUT)).expect("a socket option");
    let mut first = vec![0; 1200];
    first[..6].copy_from_slice(&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
    other.send_to(&first, http3.gateway.addr()).expect("it is sent");
    let mut answer = [0; 1500];
    let length = other.recv(&mut answer).expect("an answer");
    assert!(length < 100 && answer[1..5] == [0; 4], "version negotiation");
    http3.connect().get("/").expect(200);
    assert!(http3.gateway.alive());
    let lines = http3.gateway.stderr_lines();
    eventually("no warning", || (!lines.iter().any(|line| line.contains(" WARN "))).then_some(()));
}

/// `tollgate check` of a listener at this address: status and standard error.
fn checked(authority: &Authority, address: SocketAddr) -> (Option<i32>, String) {
    let config = http3_config(authority, "", &everything_to(&Backend::ok(), ""));
    let file = authority.path("gateway.toml");
    fs::write(&file, config.replace("127.0.0.1:0", &address.to_string())).expect("it can be written");
    let check = Command::new(binary()).args(["check", "--strict"]).arg(&file).output().expect("it starts");
    (check.status.code(), String::from_utf8_lossy(&check.stderr).into_owned())
}

#[test]
fn a_check_warns_where_udp_cannot_be_received() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    // Nothing else has the port over TCP, so it is not a gateway's.
    let bound = |address| Some((address, UdpSocket::bind(address).ok()?));
    let (address, other) = repeat_with(free_address).find_map(bound).expect("a free port");
    let (status, told) = checked(&authority, address);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains(&format!("warning: cannot receive UDP on {address}")), "{told}");
    drop(other);
    assert_eq!(checked(&authority, address), (Some(0), String::new()));
    // The process that has both ports may be the gateway of this file.
    let gateway = Http3Gateway::start(&everything_to(&Backend::ok(), ""));
    assert_eq!(checked(&authority, gateway.gateway.addr()), (Some(0), String::new()));
}
