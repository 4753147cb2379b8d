//! Who a connection is from, where a proxy in front says so (`proxy_protocol = true`).

use std::io;
use std::net::IpAddr;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::preamble::{self, MAX_PREAMBLE, Preamble};
use super::presence::Presence;
use super::worker::Worker;
use crate::aside::aside;
use crate::telemetry::metrics::TurnedAway;

/// The address to take for the peer's. `None`: the connection is to be closed.
pub(crate) async fn peer(
    presence: &Presence,
    stream: &mut TcpStream,
    peer: IpAddr,
    worker: &Worker,
) -> Option<IpAddr> {
    let listener = presence.listener();
    let told = worker.plan().gateway.server.listen.get(listener).is_some_and(|place| place.proxy_protocol);
    // Where nobody says so, a connection needs no memory for it.
    if told { aside(|| named(presence, stream, peer, worker)).await } else { Some(peer) }
}

/// The address that the connection's preamble names.
async fn named(presence: &Presence, stream: &mut TcpStream, peer: IpAddr, worker: &Worker) -> Option<IpAddr> {
    let (plan, place) = (worker.plan(), presence.listener());
    let server = &plan.gateway.server;
    if !server.client.trusts(peer) {
        tracing::debug!(%peer, "a peer that is no trusted proxy connected where PROXY protocol is spoken");
        plan.metrics.turned_away(place, TurnedAway::Untrusted);
        return None;
    }
    match timeout(server.header_timeout, presence.rest_during(read(stream))).await {
        Ok(Some(Ok(preamble))) => Some(preamble.source.unwrap_or(peer)),
        Ok(None) => None,
        Ok(Some(Err(_))) | Err(_) => {
            tracing::debug!(%peer, "no PROXY protocol preamble came, or a malformed one");
            plan.metrics.turned_away(place, TurnedAway::Preamble);
            None
        }
    }
}

/// Takes the preamble from the stream, and no byte behind it.
async fn read(stream: &mut TcpStream) -> io::Result<Preamble> {
    let mut bytes = vec![0; MAX_PREAMBLE];
    let mut taken = 0;
    loop {
        let come = stream.peek(bytes.get_mut(taken..).unwrap_or_default()).await?;
        if come == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let seen = bytes.get(..taken + come).unwrap_or_default();
        let whole = preamble::parse(seen).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let end = whole.map_or(taken + come, |preamble| preamble.length);
        stream.read_exact(bytes.get_mut(taken..end).unwrap_or_default()).await?;
        taken = end;
        if let Some(preamble) = whole {
            return Ok(preamble);
        }
    }
}
