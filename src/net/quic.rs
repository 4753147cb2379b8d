//! QUIC on UDP sockets: which worker serves a packet, and the settings of connections.
//!
//! Workers share an address by SO_REUSEPORT, and the kernel chooses a socket by the addresses of both sides. A client whose
//! address changes thus reaches another worker, and one that has connected before an upgrade reaches the new process. The
//! connection id that such a packet carries names the process and the worker that serve the connection, so that whoever
//! receives the packet can pass it on.

mod connection_id;
mod keys;
mod socket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use rustls::quic::Suite;
use rustls::{ServerConfig, SupportedCipherSuite};

use crate::net::crypto;

pub use connection_id::{ConnectionIds, IdKey, ServerId};
pub use socket::{EarlierProcesses, Packet, PacketInbox, PacketRoutes, WorkerSocket, retain_datagrams};

/// What the processes that take over from one another have in common, and the number of this one.
#[derive(Clone)]
pub struct QuicSecrets {
    /// The number of this process in connection ids.
    pub process: u32,
    /// Masks connection ids.
    pub id_key: IdKey,
    /// Keys stateless resets (RFC 9000 §10.3).
    pub reset_key: [u8; 32],
    /// Keys the tokens by which clients validate their addresses (RFC 9000 §8.1).
    pub token_key: [u8; 32],
}

impl fmt::Debug for QuicSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSecrets").field("process", &self.process).finish_non_exhaustive()
    }
}

/// The maximum number of concurrent requests of a connection.
const MAX_STREAMS: u32 = 100;
/// Control stream, two streams of QPACK, and some of types that are not known here.
const MAX_CONTROL_STREAMS: u32 = 8;
/// The flow-control window of a stream, and of what a connection sends on all its streams.
const STREAM_WINDOW: u32 = 64 << 10;
/// See [`STREAM_WINDOW`].
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of responses of a connection that the client has not acknowledged.
const SEND_WINDOW: u64 = 1 << 20;
/// How long a connection may be silent. An open one is kept alive, so the client is gone then.
const SILENCE: u32 = 60_000;
/// The interval of packets that keep a silent connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The bytes of a handshake that arrive out of order.
const CRYPTO_BUFFER: usize = 16 << 10;
/// Connections of a worker whose first packet it has not looked at yet; further ones are refused.
const MAX_INCOMING: usize = 1_024;
/// Bytes of such a connection that wait, and of all of a worker.
const INCOMING_BUFFER: u64 = 16 << 10;
/// See [`INCOMING_BUFFER`].
const INCOMING_BUFFERS: u64 = 4 << 20;
/// Version 1 (RFC 9000 §15). Drafts have the ALPN of drafts, which is refused.
const VERSIONS: [u32; 1] = [1];

/// The settings of an endpoint whose connections have these ids. `reset_key` keys its stateless resets.
pub fn endpoint_config(ids: &ConnectionIds, reset_key: &[u8; 32]) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(keys::of_resets(reset_key)));
    let ids = ids.clone();
    config.cid_generator(move || Box::new(ids.clone())).supported_versions(VERSIONS.to_vec());
    config
}

/// The settings of connections with these certificates, by ALPN `h3` only. Early data is refused.
///
/// # Errors
///
/// No cipher suite of TLS 1.3 is in the certificates' policy.
pub fn server_config(
    tls: &ServerConfig,
    token_key: &[u8; 32],
) -> Result<quinn::ServerConfig, quinn::crypto::rustls::NoInitialCipherSuite> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.max_early_data_size = 0;
    let quic = match initial_suite(&tls) {
        Some(initial) => QuicServerConfig::with_initial(Arc::new(tls), initial)?,
        None => QuicServerConfig::try_from(tls)?,
    };
    let mut config = quinn::ServerConfig::new(Arc::new(quic), Arc::new(keys::of_tokens(token_key)));
    config
        .transport_config(Arc::new(transport()))
        .max_incoming(MAX_INCOMING)
        .incoming_buffer_size(INCOMING_BUFFER)
        .incoming_buffer_size_total(INCOMING_BUFFERS);
    Ok(config)
}

/// The suite of the packets before keys are agreed on (RFC 9001 §5.2), whether or not the certificates' policy lists it.
/// `None`: the policy lists no suite of TLS 1.3, without which there is no QUIC.
fn initial_suite(tls: &ServerConfig) -> Option<Suite> {
    let suites = &tls.crypto_provider().cipher_suites;
    suites.iter().find_map(SupportedCipherSuite::tls13)?;
    crypto::tls::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_CONTROL_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(SILENCE))))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .crypto_buffer_size(CRYPTO_BUFFER)
        // No message of HTTP/3 goes in datagrams here.
        .datagram_receive_buffer_size(None);
    transport
}
