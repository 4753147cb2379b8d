//! TLS before the first request: bounded in time, and the first to go where there are too many connections.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection;
use super::presence::Presence;
use super::worker::Worker;
use crate::clock::deadline::now;
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
    let mut accepting = pin!(Stream::accept(socket, tls.config.clone()));
    let since = now();
    let shaking = poll_fn(|context| {
        if let Poll::Ready(accepted) = accepting.as_mut().poll(context) {
            presence.rouse();
            return Poll::Ready(accepted);
        }
        if presence.is_evicted() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        presence.rest(since, context);
        Poll::Pending
    });
    timeout(server.header_timeout, shaking).await?
}
