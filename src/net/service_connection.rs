//! A connection to a service that the gateway itself calls over HTTP/1.1.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::TlsClientConfig;

/// An open connection. Its task ends with it.
#[derive(Debug)]
pub struct ServiceConnection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ServiceConnectError {
    /// No connection, or no TLS.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The peer does not speak HTTP.
    #[error("the connection broke: {0}")]
    Handshake(#[from] hyper::Error),
}

impl Drop for ServiceConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServiceConnection {
    /// Connects; `tls`: with TLS. The caller bounds the time. Needs a runtime around it.
    ///
    /// # Errors
    ///
    /// See [`ServiceConnectError`].
    pub async fn open(
        host: &str,
        port: u16,
        tls: Option<&TlsClientConfig>,
    ) -> Result<Self, ServiceConnectError> {
        let socket = TcpStream::connect((host, port)).await?;
        // A socket that does not support it still works.
        drop(socket.set_nodelay(true));
        let Some(trust) = tls else { return Self::over(TokioIo::new(socket)).await };
        let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "no certificate can be for its name");
        let name = trust.name(host).ok_or_else(nameless)?;
        let stream = TlsConnector::from(Arc::clone(&trust.config)).connect(name, socket).await?;
        Self::over(TokioIo::new(stream)).await
    }

    async fn over(stream: impl Read + Write + Unpin + Send + 'static) -> Result<Self, ServiceConnectError> {
        let (sender, connection) = handshake(stream).await?;
        let run = async { _ = connection.await };
        Ok(Self { sender, task: tokio::spawn(run) })
    }

    /// Whether the connection can be used again. The caller bounds the time.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and reads the head of its response. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// The connection has ended, or the peer has sent something else than HTTP.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.send_request(request).await
    }
}
