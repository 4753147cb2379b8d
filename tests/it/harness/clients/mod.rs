//! Clients, and how what they receive is read.

pub(crate) mod any_certificate;
pub(crate) mod asker;
pub(crate) mod body_scan;
pub(crate) mod client;
pub(crate) mod client_libraries;
pub(crate) mod content_coding;
pub(crate) mod exposition;
pub(crate) mod frames;
pub(crate) mod grpc;
pub(crate) mod hpack;
pub(crate) mod http2;
pub(crate) mod http2_client;
#[cfg(feature = "http3")]
pub(crate) mod http3_client;
pub(crate) mod multiplexed;
pub(crate) mod promql;
#[cfg(feature = "http3")]
pub(crate) mod quic_client;
pub(crate) mod random_json;
pub(crate) mod rate_limit_client;
pub(crate) mod ratelimit;
pub(crate) mod response;
pub(crate) mod tls;
pub(crate) mod websocket;
