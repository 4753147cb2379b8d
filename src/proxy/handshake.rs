//! The TLS handshake before the first request: bounded in time. Connections in their handshake are evicted first.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection;
use super::connection_handle::ConnectionHandle;
use super::worker::Worker;
use crate::net::Stream;
use crate::telemetry::metrics::ConnectionRejectReason;

/// Performs the TLS handshake with a client, then serves the connection.
pub(crate) async fn serve(socket: TcpStream, handle: Rc<ConnectionHandle>, peer: IpAddr, worker: Rc<Worker>) {
    match tls_handshake(socket, &handle, &worker).await {
        Ok(stream) => connection::serve(stream, handle, peer, worker).await,
        Err(_) if handle.is_evicted() => {}
        // Any client can cause this at any rate, so it is not logged for operators.
        Err(error) => {
            worker.plan().metrics.connection_rejected(handle.listener(), ConnectionRejectReason::Handshake);
            tracing::debug!(%peer, %error, "no TLS");
        }
    }
}

/// Fails after `header_timeout`, or when the connection is evicted.
async fn tls_handshake(socket: TcpStream, handle: &ConnectionHandle, worker: &Worker) -> io::Result<Stream> {
    let plan = worker.plan();
    let server = &plan.server;
    let Some(tls) = &server.tls else { return Err(io::ErrorKind::Unsupported.into()) };
    let shaking = handle.idle_during(Stream::accept(socket, tls.config.clone()));
    timeout(server.header_timeout, shaking)
        .await?
        .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
}
