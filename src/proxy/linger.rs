//! The end of a client's connection: FIN, then what the client still sends is read and dropped for a while. A socket that is
//! closed with bytes unread is reset, and the reset destroys what is on its way to the client (RFC 9112 §9.6).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;

use super::presence::Presence;
use super::worker::Worker;
use crate::clock::deadline::{Deadline, now};
use crate::socket::Stream;

/// How long a client may be silent before the connection is closed.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How long the connection is read in all, however much the client still sends.
const TOTAL: Duration = Duration::from_secs(30);
/// Bytes read at once.
const READ: usize = 4 << 10;

/// Closes our sending side and reads on, until the client closes its own or is silent. Bytes that still wait in the socket are
/// delivered by the kernel after that.
///
/// The connection counts as idle meanwhile: it makes room for others, and a drain does not wait for it.
pub(super) async fn linger(stream: &Stream, presence: &Presence, worker: &Worker) {
    if presence.is_evicted() {
        return linger_for(stream, SILENCE).await;
    }
    let total = if worker.is_draining() { SILENCE } else { TOTAL };
    presence.rest_during(linger_for(stream, total)).await;
}

/// As [`linger`], for so long at most, and without making room.
pub(super) async fn linger_for(stream: &Stream, total: Duration) {
    if stream.close_sending().is_err() {
        return;
    }
    let end = now() + total;
    let mut silent_since = now();
    let (mut deadline, mut scrap) = (Deadline::default(), BytesMut::new());
    poll_fn(|context| {
        while let Poll::Ready(read) = stream.poll_read(context, &mut scrap, READ) {
            scrap.clear();
            silent_since = now();
            if !matches!(read, Ok(1..)) || silent_since >= end {
                return Poll::Ready(());
            }
        }
        deadline.poll(context, end.min(silent_since + SILENCE))
    })
    .await;
}
