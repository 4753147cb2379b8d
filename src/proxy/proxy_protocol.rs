//! The client address of a connection, read from the PROXY protocol header of a proxy in front (`proxy_protocol =
//! true`).

use std::io;
use std::net::IpAddr;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection_handle::ConnectionHandle;
use super::proxy_header::{self, MAX_PREAMBLE, ProxyHeader};
use super::worker::Worker;
use crate::boxed_cold::boxed_cold;
use crate::telemetry::metrics::ConnectionRejectReason;

/// The address to use as the peer's. `None`: the connection is to be closed.
pub(crate) async fn peer(
    handle: &ConnectionHandle,
    stream: &mut TcpStream,
    peer: IpAddr,
    worker: &Worker,
) -> Option<IpAddr> {
    let listener = handle.listener();
    let expected = worker.plan().server.listen.get(listener).is_some_and(|listener| listener.proxy_protocol);
    // Without the PROXY protocol, a connection needs no memory for reading the header.
    if expected { boxed_cold(|| named(handle, stream, peer, worker)).await } else { Some(peer) }
}

/// The address in the connection's PROXY protocol header.
async fn named(
    handle: &ConnectionHandle,
    stream: &mut TcpStream,
    peer: IpAddr,
    worker: &Worker,
) -> Option<IpAddr> {
    let (plan, listener) = (worker.plan(), handle.listener());
    let server = &plan.server;
    if !server.client.trusts(peer) {
        tracing::debug!(%peer, "a peer that is no trusted proxy connected where PROXY protocol is spoken");
        plan.metrics.connection_rejected(listener, ConnectionRejectReason::Untrusted);
        return None;
    }
    match timeout(server.header_timeout, handle.idle_during(read(stream))).await {
        Ok(Some(Ok(header))) => Some(header.source.unwrap_or(peer)),
        Ok(None) => None,
        Ok(Some(Err(_))) | Err(_) => {
            tracing::debug!(%peer, "no PROXY protocol header came, or a malformed one");
            plan.metrics.connection_rejected(listener, ConnectionRejectReason::Preamble);
            None
        }
    }
}

/// Reads the header from the stream, and no byte after it.
async fn read(stream: &mut TcpStream) -> io::Result<ProxyHeader> {
    let mut bytes = vec![0; MAX_PREAMBLE];
    let mut consumed = 0;
    loop {
        let received = stream.peek(bytes.get_mut(consumed..).unwrap_or_default()).await?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let seen = bytes.get(..consumed + received).unwrap_or_default();
        let whole = proxy_header::parse(seen).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let end = whole.map_or(consumed + received, |header| header.length);
        stream.read_exact(bytes.get_mut(consumed..end).unwrap_or_default()).await?;
        consumed = end;
        if let Some(header) = whole {
            return Ok(header);
        }
    }
}
