//! TLS before the first request: bounded in time, and the first to go where there are too many connections.

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

/// Agrees on TLS with a client, then serves it.
pub(crate) async fn serve(socket: TcpStream, handle: Rc<ConnectionHandle>, peer: IpAddr, worker: Rc<Worker>) {
    match tls_handshake(socket, &handle, &worker).await {
        Ok(stream) => connection::serve(stream, handle, peer, worker).await,
        Err(_) if handle.is_evicted() => {}
        // Anybody can cause it as often as they like: not for an operator's eyes.
        Err(error) => {
            worker.plan().metrics.connection_rejected(handle.listener(), ConnectionRejectReason::Handshake);
            tracing::debug!(%peer, %error, "no TLS");
        }
    }
}

/// Fails after `header_timeout`, or when it has to make room.
async fn tls_handshake(socket: TcpStream, handle: &ConnectionHandle, worker: &Worker) -> io::Result<Stream> {
    let plan = worker.plan();
    let server = &plan.gateway.server;
    let Some(tls) = &server.tls else { return Err(io::ErrorKind::Unsupported.into()) };
    let shaking = handle.idle_during(Stream::accept(socket, tls.config.clone()));
    timeout(server.header_timeout, shaking)
        .await?
        .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
}
