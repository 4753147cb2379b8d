//! TLS at the admin listener, and the answer to a client that speaks HTTP without it.

use std::io;
use std::sync::Arc;

use http::StatusCode;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::response::{AdminResponse, problem};

/// A connection after its first bytes.
pub(super) enum Opening {
    /// The handshake is complete.
    Tls(Box<TlsStream<TcpStream>>),
    /// A request of HTTP begins. Nothing of it was read.
    Http(TcpStream),
}

/// Performs the handshake, unless the first byte is that of a request. The caller bounds the time.
///
/// # Errors
///
/// The client speaks no TLS or no version of the file, rejects the certificate, lacks one of its own, or has left.
pub(super) async fn open(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Opening> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    // A method begins with a letter. A record of TLS begins with 20 to 24.
    if read > 0 && first.iter().all(u8::is_ascii_alphabetic) {
        return Ok(Opening::Http(stream));
    }
    let tls = TlsAcceptor::from(config).accept(stream).await?;
    Ok(Opening::Tls(Box::new(tls)))
}

/// The answer to a request without TLS.
pub(super) fn plain_request() -> AdminResponse {
    problem(
        StatusCode::BAD_REQUEST,
        "the admin listener speaks TLS, and this request came without it: write `https://`",
    )
}
