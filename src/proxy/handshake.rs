//! TLS before the first request: bounded in time, and the first to go where there are too many connections.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection;
use super::presence::Presence;
use super::worker::Worker;
use crate::socket::Stream;
use crate::telemetry::metrics::TurnedAway;

/// Agrees on TLS with a client, then serves it.
pub(crate) async fn serve(socket: TcpStream, presence: Rc<Presence>, peer: IpAddr, worker: Rc<Worker>) {
    match shake(socket, &presence, &worker).await {
        Ok(stream) => connection::serve(stream, presence, peer, worker).await,
        Err(_) if presence.is_evicted() => {}
        // Anybody can cause it as often as they like: not for an operator's eyes.
        Err(error) => {
            worker.plan().metrics.turned_away(presence.listener(), TurnedAway::Handshake);
            tracing::debug!(%peer, %error, "no TLS");
        }
    }
}

/// Fails after `header_timeout`, or when it has to make room.
async fn shake(socket: TcpStream, presence: &Presence, worker: &Worker) -> io::Result<Stream> {
    let plan = worker.plan();
    let server = &plan.gateway.server;
    let Some(tls) = &server.tls else { return Err(io::ErrorKind::Unsupported.into()) };
    let shaking = presence.rest_during(Stream::accept(socket, tls.config.clone()));
    timeout(server.header_timeout, shaking)
        .await?
        .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
}
