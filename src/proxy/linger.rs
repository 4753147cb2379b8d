//! The end of a client's connection: FIN, then what the client still sends is read and dropped for a while. A socket that is
//! closed with bytes unread is reset, and the reset destroys what is on its way to the client (RFC 9112 §9.6). A stream of HTTP/2
//! ends in the same way, without the FIN.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::connection_handle::ConnectionHandle;
use super::worker::Worker;
use crate::clock::deadline::{Deadline, now};
use crate::http2::server_stream::ServerStream;
use crate::net::Stream;

/// How long a client may be silent before the connection or the stream is closed.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How long the connection is read in all, however much the client still sends.
const TOTAL: Duration = Duration::from_secs(30);
/// How long a stream of HTTP/2 is read in all. A stream costs little meanwhile, and there are clients that send 100 MB in a minute
/// before they look at their answer.
const TOTAL_OF_STREAM: Duration = Duration::from_secs(300);
/// Bytes read at once.
const READ: usize = 4 << 10;

/// Closes our sending side and reads on, until the client closes its own or is silent. Bytes that still wait in the socket are
/// delivered by the kernel after that.
///
/// The connection counts as idle meanwhile: it makes room for others, and a drain does not wait for it.
pub(super) async fn linger(stream: &Stream, handle: &ConnectionHandle, worker: &Worker) {
    if handle.is_evicted() {
        return linger_for(stream, SILENCE).await;
    }
    let total = if worker.is_draining() { SILENCE } else { TOTAL };
    handle.idle_during(linger_for(stream, total)).await;
}

/// As [`linger`], for so long at most, and without making room.
pub(super) async fn linger_for(stream: &Stream, total: Duration) {
    if stream.close_sending().is_err() {
        return;
    }
    let (mut bounds, mut scrap) = (Bounds::new(total), BytesMut::new());
    poll_fn(|context| {
        while let Poll::Ready(read) = stream.poll_read(context, &mut scrap, READ) {
            scrap.clear();
            bounds.received();
            if !matches!(read, Ok(1..)) || bounds.silent_since >= bounds.end {
                return Poll::Ready(());
            }
        }
        bounds.poll(context)
    })
    .await;
}

/// Reads and drops what is left of a request that was answered before it had come whole: some clients see an answer only once they
/// have sent all. A stream that is dropped at once is reset in one write with its answer, which others take for a fault.
/// A drain does not wait for a client that still sends.
pub(super) async fn linger_stream(stream: &ServerStream, worker: &Worker) {
    let mut bounds = Bounds::new(TOTAL_OF_STREAM);
    poll_fn(|context| {
        let (over, dropped) = stream.discard(context);
        if over || stream.poll_reset(context).is_ready() {
            return Poll::Ready(());
        }
        if dropped > 0 && !worker.is_draining() {
            bounds.received();
        }
        bounds.poll(context)
    })
    .await;
}

/// How long a client is read: until it was silent for long enough, but not beyond an end.
struct Bounds {
    end: Instant,
    silent_since: Instant,
    deadline: Deadline,
}

impl Bounds {
    fn new(total: Duration) -> Self {
        let begun = now();
        Self { end: begun + total, silent_since: begun, deadline: Deadline::default() }
    }

    /// The client has sent something.
    fn received(&mut self) {
        self.silent_since = now();
    }

    /// Ready once the time is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll(context, self.end.min(self.silent_since + SILENCE))
    }
}
