//! `health` of an upstream: what a check asks of each server, and which answers are good.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::statuses::StatusSet;

/// The health checks of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: Probe,
    /// The port that is asked; `None`: the server's own.
    pub port: Option<u16>,
    /// From one check to the next; at least 1 ms.
    pub interval: Duration,
    /// From connecting to the end of the check; at least 1 ms.
    pub timeout: Duration,
    /// Successful checks in a row that make a server healthy again; at least 1.
    pub healthy: u32,
    /// Failed checks in a row that make it unhealthy; at least 1.
    pub unhealthy: u32,
}

/// What a check asks of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A connection, with the handshake of TLS where the server speaks TLS. Nothing is sent after it.
    Tcp,
    /// A request without a body, in the protocol of the upstream.
    Http(Box<HttpProbe>),
    /// A call of `grpc.health.v1.Health/Check`.
    Grpc(Box<GrpcProbe>),
}

/// A request of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// Its method.
    pub method: Method,
    /// Path and query, in origin-form.
    pub path: Box<str>,
    /// Its Host; `None`: the upstream's, or the server's own.
    pub host: Option<HeaderValue>,
    /// Its further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The statuses of good answers.
    pub statuses: StatusSet,
}

/// A gRPC call of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcProbe {
    /// The service that is asked about; empty: the server as a whole.
    pub service: Box<str>,
    /// Its `:authority`; `None`: the upstream's host, or the server's own.
    pub host: Option<HeaderValue>,
    /// Its metadata.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Probe {
    /// The Host of the check, where it has one of its own.
    pub fn host(&self) -> Option<&HeaderValue> {
        match self {
            Self::Tcp => None,
            Self::Http(probe) => probe.host.as_ref(),
            Self::Grpc(probe) => probe.host.as_ref(),
        }
    }
}

/// `` `GET /healthz` on port 8081 ``. Values of headers may be secrets.
impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.probe {
            Probe::Tcp => f.write_str("a connection")?,
            Probe::Http(probe) => write!(f, "`{} {}`", probe.method, probe.path)?,
            Probe::Grpc(probe) if probe.service.is_empty() => f.write_str("gRPC")?,
            Probe::Grpc(probe) => write!(f, "gRPC for `{}`", probe.service)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, " on port {port}"))
    }
}
