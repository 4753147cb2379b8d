//! HTTP/3 on the side of the client.

mod alternatives;
mod connections;
mod costs;
mod fields;
mod hostile;
mod life;
mod limits;
mod malformed;
mod requests;
mod security;
mod streams;
mod takeover;
mod upgrade;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionError, TransportConfig};
use rustls::ClientConfig;

use crate::harness::{Authority, Gateway, Http3, QuicClient};

/// A gateway that serves HTTP/3 with a certificate for `a.test`.
struct Http3Gateway {
    authority: Authority,
    gateway: Gateway,
}

impl Http3Gateway {
    fn start(rest: &str) -> Self {
        Self::start_with("", rest)
    }

    /// With further keys of `[server]`.
    fn start_with(server: &str, rest: &str) -> Self {
        let authority = Authority::new();
        authority.certify("a", &["a.test"]);
        let gateway = Gateway::start(&http3_config(&authority, server, rest));
        Self { authority, gateway }
    }

    /// With these addresses in `[server]`.
    fn start_listening(listen: &str, rest: &str) -> Self {
        let authority = Authority::new();
        authority.certify("a", &["a.test"]);
        let gateway = Gateway::start(&format!("[server]\n{listen}{}{rest}", authority.server("a")));
        Self { authority, gateway }
    }

    /// How clients speak TLS.
    fn tls(&self) -> Arc<ClientConfig> {
        self.authority.client_offering(&["h3"])
    }

    fn connect(&self) -> Http3 {
        Http3::connect(self.gateway.addr(), &self.tls())
    }

    /// A connection, unless the gateway refuses it or is silent for a second.
    fn try_connect(&self) -> Result<Http3, ConnectionError> {
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(Some(Duration::from_secs(1).try_into().expect("in bounds")));
        transport.keep_alive_interval(Some(Duration::from_millis(300)));
        let (address, tls) = (self.gateway.addr(), self.tls());
        QuicClient::connect_by(address, &tls, transport, |connecting| connecting).map(Http3::over)
    }

    fn quic(&self) -> QuicClient {
        QuicClient::connect(self.gateway.addr(), &self.tls())
    }
}

/// The file of an [`Http3Gateway`].
fn http3_config(authority: &Authority, server: &str, rest: &str) -> String {
    let workers = if server.contains("workers") { "" } else { "workers = 2\n" };
    let certificate = authority.server("a");
    format!(
        "[server]\nlisten = [{{ address = \"127.0.0.1:0\", http3 = true }}]\n{workers}{server}\n{certificate}{rest}"
    )
}

/// Bytes that show when some are missing, doubled or out of order.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).expect("a byte")).collect()
}

/// RFC 9114 §8.1 and RFC 9204 §6.
mod codes {
    pub(super) const NO_ERROR: u64 = 0x100;
    pub(super) const INTERNAL_ERROR: u64 = 0x102;
    pub(super) const STREAM_CREATION_ERROR: u64 = 0x103;
    pub(super) const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    pub(super) const FRAME_UNEXPECTED: u64 = 0x105;
    pub(super) const FRAME_ERROR: u64 = 0x106;
    pub(super) const EXCESSIVE_LOAD: u64 = 0x107;
    pub(super) const ID_ERROR: u64 = 0x108;
    pub(super) const SETTINGS_ERROR: u64 = 0x109;
    pub(super) const MISSING_SETTINGS: u64 = 0x10a;
    pub(super) const REQUEST_CANCELLED: u64 = 0x10c;
    pub(super) const REQUEST_INCOMPLETE: u64 = 0x10d;
    pub(super) const MESSAGE_ERROR: u64 = 0x10e;
    pub(super) const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;
    pub(super) const QPACK_ENCODER_STREAM_ERROR: u64 = 0x201;
    pub(super) const QPACK_DECODER_STREAM_ERROR: u64 = 0x202;
}
