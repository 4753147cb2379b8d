//! One GET over a connection of its own.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::timeout;

use crate::net::TlsClientConfig;
use crate::net::service_connection::{ServiceConnectError, ServiceConnection};

/// The timeout to connect, send, and read the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a key set, bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The URL of a service that the gateway asks, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTarget {
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `host:port` as in a Host header, or the host alone if the port is the scheme's.
    pub authority: Box<str>,
    /// `https://`: TLS to the server.
    pub tls: Option<TlsClientConfig>,
    /// The path and query.
    pub path: PathAndQuery,
}

impl fmt::Display for ServiceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// Why there is no key set.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ServiceConnectError),
    /// It took too long.
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    /// The connection ended, or sent something else than HTTP.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The URL cannot be asked for.
    #[error("its URL makes no request: {0}")]
    Request(#[from] http::Error),
    /// Another status than 200. Redirects are not followed.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// The body is longer than 1 MiB, or broke off.
    #[error("its answer is longer than 1 MiB, or broke off")]
    Body,
}

/// The body of the response.
pub(super) async fn get(url: &ServiceTarget) -> Result<Bytes, FetchError> {
    timeout(TIMEOUT, exchange(url)).await.unwrap_or(Err(FetchError::Timeout))
}

async fn exchange(target: &ServiceTarget) -> Result<Bytes, FetchError> {
    let ServiceTarget { host, port, tls, .. } = target;
    let mut connection = ServiceConnection::open(host, *port, tls.as_ref()).await?;
    let request = Request::get(target.path.as_str())
        .header(HOST, &*target.authority)
        .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(CONNECTION, "close")
        .body(Full::default())?;
    let answer = connection.send(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    body.map(|body| body.to_bytes()).map_err(|_| FetchError::Body)
}
