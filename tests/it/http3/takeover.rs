//! Upgrades: the new process has the UDP sockets, and the process before goes on with its connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{codes, http3_config, pattern};
use crate::harness::upgraded::Upgraded;
use crate::harness::{
    Authority, Backend, Gateway, Http3, Http3Lost, Next, QuicClient, everything_to,
    free_address_of_datagrams, h3_request,
};

/// RFC 9114 §8.1: the request was not looked at, so that a client sends it again.
const REQUEST_REJECTED: u64 = 0x10b;

/// A gateway at an address that its successors have, too.
struct Site {
    authority: Authority,
    address: std::net::SocketAddr,
    backend: Backend,
}

impl Site {
    fn new(backend: Backend) -> Self {
        let authority = Authority::new();
        authority.certify("a", &["a.test"]);
        Self { authority, address: free_address_of_datagrams(), backend }
    }

    /// The file, by which `/who` is answered with this status.
    fn config(&self, who: u16) -> String {
        let routes = format!(
            "max_body_bytes = \"20MiB\"\n[[routes]]\npath = \"/who\"\nrespond = {{ status = {who} }}\n"
        );
        let file = http3_config(&self.authority, "", &everything_to(&self.backend, &routes));
        file.replace("127.0.0.1:0", &self.address.to_string()).replace("workers = 2", "workers = 3")
    }

    fn start(&self) -> Upgraded {
        Upgraded::new(Gateway::start(&self.config(403)))
    }

    fn connect(&self) -> Http3 {
        Http3::connect(self.address, &self.authority.client_offering(&["h3"]))
    }
}

/// Answers with the body of the request, once the gate is open.
fn gated() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.wait_at_gate();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    })
}

#[test]
fn requests_in_flight_finish_and_new_connections_are_of_the_new_process() {
    let site = Site::new(gated());
    let mut upgraded = site.start();
    let clients: Vec<_> = (0..12).map(|_| site.connect()).collect();
    for client in &clients {
        client.get("/who").expect(403);
    }
    let body = pattern(300_000);
    let mut held: Vec<_> =
        clients.iter().map(|client| (client, client.begin(h3_request("POST", "/", &[])))).collect();
    for (client, (upload, _)) in &mut held {
        client.send(upload, &body[..20_000]).expect("the stream is open");
    }
    site.backend.wait_for(12);
    upgraded.gateway.write_config(&site.config(410));
    upgraded.hand_over();
    for _ in 0..20 {
        site.connect().get("/who").expect(410);
    }
    // Bodies go on in the process before, for some clients from another port.
    for (number, (client, (upload, _))) in held.iter_mut().enumerate() {
        if number % 2 == 0 {
            client.quic().change_port();
        }
        client.send(upload, &body[20_000..]).expect("the stream is open");
        client.end_body(upload).expect("the stream is open");
    }
    site.backend.open_gate();
    for (client, (_upload, download)) in held {
        let answer = client.finish(download).expect("an answer").expect(200);
        assert!(answer.body == body, "{} bytes came back", answer.body.len());
        assert_eq!(client.quic().close_code(), codes::NO_ERROR, "the process before drains");
    }
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
    site.connect().get("/who").expect(410);
}

/// A client that sends again only what HTTP/3 says was not looked at.
fn requests_until(site: &Site, is_over: &AtomicBool, served: &AtomicUsize) -> Vec<String> {
    let mut faults = Vec::new();
    let mut client = site.connect();
    while !is_over.load(Ordering::SeqCst) {
        match client.try_get("/") {
            Ok(answer) if answer.status == 200 => {
                served.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            Ok(answer) => faults.push(format!("{}", answer.status)),
            // GOAWAY came first, or the request was rejected.
            Err(Http3Lost::Leaving | Http3Lost::Reset(REQUEST_REJECTED)) => {}
            // The request met a connection that had ended well.
            Err(Http3Lost::Other(_)) if closed_well(client.quic()) => {}
            Err(lost) => faults.push(format!("{lost:?}")),
        }
        std::mem::replace(&mut client, site.connect()).end();
    }
    faults
}

fn closed_well(client: &QuicClient) -> bool {
    use quinn::ConnectionError::ApplicationClosed;
    let reason = client.connection().close_reason();
    reason.is_some_and(|reason| {
        matches!(reason, ApplicationClosed(close) if close.error_code.into_inner() == codes::NO_ERROR)
    })
}

#[test]
fn three_upgrades_under_load_lose_no_request() {
    let site = Site::new(Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    }));
    let mut upgraded = site.start();
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let faults: Vec<String> = std::thread::scope(|scope| {
        let client = || scope.spawn(|| requests_until(&site, &is_over, &served));
        let clients: Vec<_> = (0..4).map(|_| client()).collect();
        for _ in 0..3 {
            let before = served.load(Ordering::SeqCst);
            crate::harness::eventually("requests", || {
                (served.load(Ordering::SeqCst) > before + 100).then_some(())
            });
            upgraded.upgrade();
        }
        is_over.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    assert!(faults.is_empty(), "{faults:?}");
    // A request that was sent twice was looked at once.
    assert_eq!(site.backend.count(), served.load(Ordering::SeqCst));
}

/// A connection with an open request goes on beside the new process for as long as the request does.
#[test]
fn an_old_connection_and_new_ones_share_the_port() {
    let site = Site::new(gated());
    let mut upgraded = site.start();
    let old = site.connect();
    let (mut upload, download) = old.begin(h3_request("POST", "/", &[]));
    old.send(&mut upload, b"a").expect("the stream is open");
    site.backend.wait_for(1);
    upgraded.gateway.write_config(&site.config(410));
    upgraded.hand_over();
    for round in 0..40 {
        if round % 10 == 0 {
            old.quic().change_port();
        }
        old.send(&mut upload, &pattern(2_000)).expect("the stream is open");
        site.connect().get("/who").expect(410);
    }
    old.end_body(&mut upload).expect("the stream is open");
    site.backend.open_gate();
    let answer = old.finish(download).expect("an answer").expect(200);
    assert_eq!(answer.body.len(), 1 + 40 * 2_000);
    assert_eq!(upgraded.gateway.wait_for_exit().code(), Some(0));
}
