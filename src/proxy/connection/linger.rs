//! The end of a client connection: FIN, then bytes that the client still sends are read and dropped for a while. A
//! socket closed with unread bytes is reset, and the reset destroys data on its way to the client (RFC 9112 §9.6). An
//! HTTP/2 stream ends in the same way, without the FIN.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::net::Stream;
use crate::proxy::session::server_stream::ServerStream;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::ConnectionHandle;

/// How long a client may be silent before the connection or the stream is closed.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
/// The maximum time that the connection is read, however much the client still sends.
const TOTAL: Duration = Duration::from_secs(30);
/// The maximum time that an HTTP/2 stream is read. A stream costs little meanwhile, and some clients send 100 MB in a
/// minute before they read their response.
const TOTAL_OF_STREAM: Duration = Duration::from_secs(300);
/// Bytes read at once.
const READ: usize = 4 << 10;

/// Closes the gateway's sending side and reads on, until the client closes its own or is silent. The kernel delivers
/// bytes that still wait in the socket after that.
///
/// The connection counts as idle meanwhile: it can be evicted, and a drain does not wait for it.
pub(crate) async fn linger(stream: &Stream, handle: &ConnectionHandle, worker: &Worker) {
    if handle.is_evicted() {
        return linger_for(stream, SILENCE).await;
    }
    let total = if worker.is_draining() { SILENCE } else { TOTAL };
    handle.idle_during(linger_for(stream, total)).await;
}

/// As [`linger`], for at most `total`, and without being evicted.
pub(crate) async fn linger_for(stream: &Stream, total: Duration) {
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

/// Reads and drops the rest of a request that was answered before its end was received: some clients read a response
/// only once they have sent everything. A stream dropped at once is reset in one write with its response, which other
/// clients treat as an error. A drain does not wait for a client that still sends.
pub(crate) async fn linger_stream(stream: &ServerStream, worker: &Worker) {
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

/// How long a client is read: until it has been silent for long enough, but not beyond an end.
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

    /// Records that the client has sent bytes.
    fn received(&mut self) {
        self.silent_since = now();
    }

    /// Ready once the time is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll(context, self.end.min(self.silent_since + SILENCE))
    }
}
