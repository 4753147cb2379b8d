//! How long connections of HTTP/3 live: their ends, reloads, and what a client resumes.

use std::sync::Arc;

use quinn::ConnectionError;
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Http3Gateway, codes, http3_config};
use crate::harness::quic_client::h3_head;
use crate::harness::{Backend, Body, Http3, Next, QuicClient, QuicEnd, eventually, everything_to, h3_get};

/// The largest id of a request stream: none is refused yet (RFC 9114 §5.2).
const MAX_ID: u64 = (1 << 62) - 4;

fn get() -> Vec<u8> {
    h3_head(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")])
}

/// Answers once the test opens the gate. The end of a request may come after its head, and is then that of a body.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

fn common_name(client: &QuicClient) -> String {
    let shown = client.connection().peer_identity().expect("a certificate");
    let chain = shown.downcast::<Vec<CertificateDer<'static>>>().expect("certificates of rustls");
    let (_, parsed) = X509Certificate::from_der(&chain[0]).expect("a certificate");
    let name = parsed.subject().iter_common_name().next().expect("a common name");
    name.as_str().expect("text").to_owned()
}

#[test]
fn a_connection_ends_after_its_requests() {
    let backend = Backend::ok();
    let server = "max_requests_per_connection = 10";
    let http3 = Http3Gateway::start_with(server, &everything_to(&backend, ""));
    let client = http3.quic();
    let _control = client.open_control();
    for _ in 0..10 {
        assert_eq!(client.fate(&get()), QuicEnd::Answered(200));
    }
    // A client that keeps the connection open learns twice: no more, and from which stream on.
    assert_eq!(client.goaways(2), [MAX_ID, 40]);
    assert_eq!(client.close_code(), codes::NO_ERROR);
    let client = http3.connect();
    let served = client.requests_until_told_to_leave("/");
    assert!((10..50).contains(&served), "{served}");
    http3.connect().get("/").expect(200);
}

#[test]
fn a_connection_ends_at_its_age() {
    let backend = gated();
    let server = "max_connection_age = \"1s\"";
    let http3 = Http3Gateway::start_with(server, &everything_to(&backend, ""));
    let client = http3.quic();
    let stream = client.send(&get());
    assert_eq!(client.goaways(2), [MAX_ID, 4]);
    // A request that was on its way is told that it was not looked at.
    assert_eq!(client.fate(&get()), QuicEnd::Reset(0x10b));
    assert_eq!(client.connection().close_reason(), None, "a request is open");
    backend.open_gate();
    assert_eq!(client.end_of(stream), QuicEnd::Answered(200));
    assert_eq!(client.close_code(), codes::NO_ERROR);
    backend.only();
}

#[test]
fn an_idle_connection_ends_in_time() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("idle_timeout = \"1s\"", &everything_to(&backend, ""));
    let (silent, used) = (http3.quic(), http3.quic());
    assert_eq!(used.fate(&get()), QuicEnd::Answered(200));
    assert_eq!((silent.close_code(), used.close_code()), (codes::NO_ERROR, codes::NO_ERROR));
}

#[test]
fn draining_finishes_open_streams_and_loses_none() {
    let backend = gated();
    let mut http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let (idle, stubborn) = (http3.quic(), http3.quic());
    let open = stubborn.send(&get());
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| client.all((0..20).map(|_| (h3_get("/"), Body::default()))));
        backend.wait_for(21);
        http3.gateway.signal(Signal::TERM);
        assert_eq!(idle.goaways(2), [MAX_ID, 0]);
        assert_eq!(idle.close_code(), codes::NO_ERROR);
        assert!(QuicClient::try_connect(http3.gateway.addr(), &http3.tls()).is_err(), "no more connections");
        backend.open_gate();
        for answer in streams.join().expect("no panic") {
            answer.expect("an answer").expect(200);
        }
    });
    // A client that does not close the connection does not hold the process.
    assert_eq!(stubborn.end_of(open), QuicEnd::Answered(200));
    assert_eq!(stubborn.close_code(), codes::NO_ERROR);
    assert!(http3.gateway.wait_for_exit().success());
}

/// A worker without connections ends sooner than the others. Their sockets get its packets then.
#[test]
fn while_a_worker_drains_new_clients_are_refused_and_none_waits_in_vain() {
    let backend = gated();
    let mut http3 = Http3Gateway::start_with("workers = 4\n", &everything_to(&backend, ""));
    let client = http3.quic();
    let open = client.send(&get());
    backend.wait_for(1);
    http3.gateway.signal(Signal::TERM);
    eventually("the sockets of the workers that have ended to be closed", || {
        let is_refused = |_| matches!(http3.try_connect(), Err(ConnectionError::ConnectionClosed(_)));
        (0..12).all(is_refused).then_some(())
    });
    // A client whose port changes is at another socket.
    client.change_port();
    backend.open_gate();
    assert_eq!(client.end_of(open), QuicEnd::Answered(200));
    client.close();
    assert!(http3.gateway.wait_for_exit().success());
}

#[test]
fn a_reload_shows_new_certificates_and_keeps_open_connections() {
    let backend = Backend::ok();
    let limited = |rate: u32| {
        everything_to(
            &backend,
            &format!(
                "limits = [\"few\"]\n[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"{rate}/day\"\nalign = \"first-request\"\n"
            ),
        )
    };
    let http3 = Http3Gateway::start(&limited(1000));
    let open = http3.quic();
    assert_eq!(common_name(&open), "a");
    assert_eq!(open.fate(&get()), QuicEnd::Answered(200));
    http3.authority.certify_with("a", &["a.test"], |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "renewed");
    });
    http3.gateway.reload(&http3_config(&http3.authority, "", &limited(1)), "server: new certificates");
    // Each worker sees the new plan at its next connection.
    for _ in 0..4 {
        assert_eq!(common_name(&http3.quic()), "renewed");
    }
    assert_eq!(
        open.fate(&get()),
        QuicEnd::Answered(429),
        "an open connection has the limits of the new file"
    );
}

/// RFC 9001 §9.2: early data can be repeated by anyone who has seen it.
#[test]
fn a_resumed_session_sends_no_early_data() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let mut tls = (*http3.tls()).clone();
    tls.enable_early_data = true;
    let tls = Arc::new(tls);
    let first = Http3::connect(http3.gateway.addr(), &tls);
    first.get("/").expect(200);
    first.end();
    for _ in 0..2 {
        let begin = |connecting: quinn::Connecting| async {
            match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    assert!(!accepted.await, "early data was accepted");
                    Ok(connection)
                }
                Err(connecting) => connecting.await,
            }
        };
        let connected = QuicClient::connect_by(http3.gateway.addr(), &tls, Default::default(), begin);
        let resumed = Http3::over(connected.expect("a connection"));
        resumed.get("/").expect(200);
        resumed.end();
    }
    assert_eq!(backend.count(), 3);
}

#[test]
fn many_requests_one_after_the_other() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    for _ in 0..1_000 {
        client.get("/").expect(200);
    }
    for round in 0..3 {
        let answers = client.all((0..300).map(|_| (h3_get("/"), Body::default())));
        let served = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.status == 200)).count();
        assert_eq!(served, 300, "round {round}");
    }
    assert_eq!(backend.count(), 1_900);
    eventually("the log", || (http3.gateway.stdout_lines().len() == 1_900).then_some(()));
}
