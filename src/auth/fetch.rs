//! One GET over a connection of its own.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::net::TlsClientConfig;

/// The timeout to connect, send, and read the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a key set, bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The URL of a key set, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetUrl {
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

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// Why there is no key set.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or no TLS.
    #[error("no connection: {0}")]
    Connect(io::Error),
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
pub(super) async fn get(url: &KeySetUrl) -> Result<Bytes, FetchError> {
    timeout(TIMEOUT, exchange(url)).await.unwrap_or(Err(FetchError::Timeout))
}

async fn exchange(url: &KeySetUrl) -> Result<Bytes, FetchError> {
    let socket = TcpStream::connect((&*url.host, url.port)).await.map_err(FetchError::Connect)?;
    let Some(trust) = &url.tls else { return over(TokioIo::new(socket), url).await };
    let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "no certificate can be for its name");
    let name = trust.name(&url.host).ok_or_else(|| FetchError::Connect(nameless()))?;
    let stream = TlsConnector::from(Arc::clone(&trust.config)).connect(name, socket).await;
    over(TokioIo::new(stream.map_err(FetchError::Connect)?), url).await
}

async fn over(
    stream: impl Read + Write + Unpin + Send + 'static,
    url: &KeySetUrl,
) -> Result<Bytes, FetchError> {
    let (mut sender, connection) = handshake(stream).await?;
    let request = Request::get(url.path.as_str())
        .header(HOST, &*url.authority)
        .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let task = tokio::spawn(async { _ = connection.await });
    let answered = ask(&mut sender, request).await;
    task.abort();
    answered
}

async fn ask(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<Bytes, FetchError> {
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    body.map(|body| body.to_bytes()).map_err(|_| FetchError::Body)
}
