//! What black-box tests stand on: the real binary, a raw client and scripted backends.
//!
//! Nothing here interprets HTTP more kindly than the RFCs do: the client's parser panics on any answer that a strict
//! peer would refuse, and the backend records requests byte for byte. Every wait is bounded by [`TIMEOUT`].

pub(crate) mod corpus;
pub(crate) mod published;

mod backends;
mod clients;
mod core;
mod documents;
mod gateways;
mod logs;
mod machine;
mod redis_servers;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) use backends::acme_server;
pub(crate) use backends::backend::{Backend, Exchange, Next, Recorded};
pub(crate) use backends::collector::{Collector, SpanKind, Told, only as only_span};
pub(crate) use backends::drop_proxy::DropProxy;
pub(crate) use backends::front::Front;
pub(crate) use backends::holding::HoldingBackend;
pub(crate) use backends::pebble::{Pebble, PebbleOptions};
pub(crate) use backends::servers;
pub(crate) use backends::unix_relay::UnixRelay;
pub(crate) use clients::any_certificate;
pub(crate) use clients::client::{Client, refuses_connections};
pub(crate) use clients::client_libraries::{CostServer, Versions};
pub(crate) use clients::grpc::{GrpcClient, GrpcServer};
pub(crate) use clients::http2::{Frame, FrameServer, Frames, Http2Backend, send_all};
pub(crate) use clients::http2_client::{Body, Http2, get as h2_get, reason as h2_reason};
#[cfg(feature = "http3")]
pub(crate) use clients::http3_client::{Http3, Http3Lost, h3_get, h3_request};
pub(crate) use clients::multiplexed::{Multiplexed, Unanswered};
#[cfg(feature = "http3")]
pub(crate) use clients::quic_client::{self, QuicClient, QuicEnd};
pub(crate) use clients::rate_limit_client::{RateLimitClient, descriptor, message};
pub(crate) use clients::response::{Fault, Response};
pub(crate) use clients::tls::{Authority, session as tls_session};
pub(crate) use clients::websocket::{self, WebSocket, websocket_at};
pub(crate) use clients::{
    asker, body_scan, content_coding, exposition, frames, hpack, promql, random_json, ratelimit,
};
pub(crate) use core::{
    cases, charges, in_flight, metered, overload_model, places, refusals, sample_request, trace,
};
pub(crate) use documents::{descriptors, mmdb, newcomer, page_run, page_session, pages, shown, sources};
pub(crate) use gateways::all_versions::AllVersions;
pub(crate) use gateways::binary::binary;
pub(crate) use gateways::fake_clock::FakeClock;
pub(crate) use gateways::fleet::Fleet;
pub(crate) use gateways::gateway::Gateway;
pub(crate) use gateways::ports::{free_address, free_address_of_all, free_address_of_datagrams};
pub(crate) use gateways::{api, config, config_folder, fleet_config, upgraded};
pub(crate) use logs::{field_list, log_files, nginx_day, replayed};
pub(crate) use machine::load::Load;
pub(crate) use machine::promtool::promtool;
pub(crate) use machine::terminal::TerminalProgram;
pub(crate) use machine::{busy, container, dockerfile, package_builder, system, tools};
pub(crate) use redis_servers::redis::{Answer, Connection, Redis};
pub(crate) use redis_servers::redis_cluster::Cluster;
pub(crate) use redis_servers::redis_sentinel::Sentinel;
pub(crate) use redis_servers::redis_tls::{Certificates, TlsRedis};
pub(crate) use redis_servers::script;

/// The longest that any single step may take before a test fails. Generous: the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends `bytes` on a connection of its own and reads one response (interim ones are kept in `interim`).
pub(crate) fn send(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Response {
    Client::connect(address).exchange(bytes)
}

/// `GET path` with further fields (`"x-api-key: a\r\n"`), on a connection of its own.
pub(crate) fn get_with(address: SocketAddr, path: &str, fields: &str) -> Response {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: test\r\n{fields}\r\n"))
}

/// `GET path`, on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    get_with(address, path, "")
}

/// A configuration with one route that sends everything to `backend`. `rest` follows the route's own lines, so it may
/// begin with more of them (`limits = ["a"]`) and go on with other tables.
pub(crate) fn everything_to(backend: &Backend, rest: &str) -> String {
    let url = backend.url();
    format!(
        "[upstreams]\napi = \"{url}\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n{rest}\n"
    )
}

/// Waits until `condition` gives something; panics with `what` when it never does. The longer it waits, the longer are its pauses,
/// since many tests that wait at a time would take the processors from those that work.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        // Longer than a single step: it may be about hundreds of them.
        let waited = started.elapsed();
        assert!(waited < 2 * TIMEOUT, "waited {:?} in vain: {what}", 2 * TIMEOUT);
        std::thread::sleep((waited / 8).clamp(Duration::from_millis(3), Duration::from_millis(40)));
    }
}

/// The harness against itself, so that a fault in it is not taken for one of the gateway's.
#[test]
fn the_client_and_the_backend_understand_each_other() {
    let backend = Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange
            .write("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        exchange.write(format!("{:x}\r\n", body.len()));
        exchange.write(&body);
        exchange.write("\r\n0\r\nx-sum: 1\r\n\r\n");
        if exchange.earlier == 1 { Next::Reset } else { Next::KeepAlive }
    });
    let mut client = Client::connect(backend.addr());
    client.write_bytewise("POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi", Duration::ZERO);
    let response = client.read().expect(200);
    assert_eq!((response.text().as_str(), response.interim.len(), response.closed), ("hi", 1, false));
    assert_eq!(response.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    client.write("POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nt: 1\r\n\r\n");
    assert_eq!(client.read().text(), "abc");
    assert_eq!(backend.latest().trailers, "t: 1\r\n");
    assert_eq!(backend.latest().raw_body, b"3\r\nabc\r\n0\r\nt: 1\r\n\r\n");
    assert!(client.closes(), "the backend resets after its second answer");
}
