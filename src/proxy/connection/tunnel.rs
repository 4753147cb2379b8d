//! An upgraded connection (RFC 9110 §7.8). Bytes are relayed both ways until one side closes, both are silent for too
//! long, one acknowledges nothing for as long, or the worker is drained.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::net::{AckTimeout, Stream};
use crate::proxy::worker::buffer_pool::Buffers;
use crate::upstream::pool::UpstreamConnection;

/// Bytes read from one side at once.
const PART: usize = 16 << 10;

thread_local! {
    /// The buffer of this thread's next read. A tunnel that waits holds none.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// Joins client and backend. Bytes that either sent after its head are in the buffers. When neither has transferred a
/// byte for `silence`, or at `end`, both are closed. For a blocked side, the kernel measures the time without acknowledged bytes.
/// Returns the bytes sent to the client.
pub(crate) async fn run(
    client: &Stream,
    backend: UpstreamConnection,
    mut buffers: Box<Buffers>,
    (silence, end): (Duration, Option<Instant>),
) -> u64 {
    // An HTTP/2 stream is never upgraded.
    let Some(backend) = backend.stream() else { return 0 };
    let (mut up, mut down) = (Direction::new(silence), Direction::new(silence));
    let (mut deadline, mut moved, mut last) = (Deadline::default(), 0, now());
    let (mut was_blocked, mut end_timer) = (false, Deadline::default());
    let Buffers { inbound, answer, .. } = &mut *buffers;
    #[expect(
        clippy::let_underscore_must_use,
        reason = "either side may break the tunnel off at any time, and both are closed then"
    )]
    let _: Result<(), BrokenSide> = poll_fn(|context| {
        if end.is_some_and(|end| end_timer.poll(context, end).is_ready()) {
            return Poll::Ready(Ok(()));
        }
        let sent = match up.poll(context, client, backend, inbound) {
            // What the backend has sent before still goes to the client.
            Poll::Ready(Err(BrokenSide::Receiver)) => up.drop_received(context, client, inbound),
            sent => sent?,
        };
        let received = down.poll(context, backend, client, &mut answer.bytes)?;
        if received.is_ready() && (sent.is_ready() || up.is_broken) {
            return Poll::Ready(Ok(()));
        }
        let blocked = up.blocked || down.blocked;
        let has_moved = std::mem::replace(&mut moved, up.moved + down.moved) != moved;
        if has_moved || was_blocked {
            last = now();
        }
        was_blocked = blocked;
        if blocked {
            return Poll::Pending;
        }
        deadline.poll(context, last + silence).map(Ok)
    })
    .await;
    down.written
}

/// The side of a direction on which reading or writing has failed.
#[derive(Debug)]
enum BrokenSide {
    Sender,
    Receiver,
}

/// One of the two directions of a tunnel.
#[derive(Debug)]
struct Direction {
    ended: bool,
    closed: bool,
    /// The receiving side takes no more.
    is_broken: bool,
    /// Bytes read and bytes written.
    moved: u64,
    written: u64,
    /// How long the receiving side may acknowledge nothing.
    ack_timeout: AckTimeout,
    /// The receiving side's socket accepts no bytes at present, and the kernel measures for how long.
    blocked: bool,
}

impl Direction {
    fn new(silence: Duration) -> Self {
        let ack_timeout = AckTimeout::new(silence);
        Self {
            ended: false,
            closed: false,
            is_broken: false,
            moved: 0,
            written: 0,
            ack_timeout,
            blocked: false,
        }
    }

    /// Reads and drops what is sent to a side that takes no more. Unread bytes would reset the connection at its end, and the
    /// reset destroys what is on its way back. Ready once the sending side has closed.
    #[cold]
    fn drop_received(&mut self, context: &mut Context<'_>, from: &Stream, buffer: &mut BytesMut) -> Poll<()> {
        self.is_broken = true;
        loop {
            buffer.clear();
            if !matches!(ready!(from.poll_read(context, buffer, PART)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }

    /// Ready once one side has closed and the close was passed on to the other.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
        buffer: &mut BytesMut,
    ) -> Poll<Result<(), BrokenSide>> {
        let to_fails = |_: io::Error| BrokenSide::Receiver;
        self.blocked = false;
        while !self.closed {
            if !buffer.is_empty() {
                let Poll::Ready(written) = to.poll_write(context, buffer, &[]).map_err(to_fails)? else {
                    self.blocked = self.ack_timeout.enforce(to);
                    return Poll::Pending;
                };
                buffer.advance(written);
                self.moved += written as u64;
                self.written += written as u64;
                continue;
            }
            if to.poll_flush(context).map_err(to_fails)?.is_pending() {
                self.blocked = self.ack_timeout.enforce(to);
                return Poll::Pending;
            }
            if self.ended {
                #[expect(clippy::let_underscore_must_use, reason = "a side that is gone already is not told")]
                let _ = to.close_sending();
                self.closed = true;
            } else {
                if buffer.capacity() == 0 {
                    *buffer = SPARE.take();
                }
                let read = from.poll_read(context, buffer, PART);
                if buffer.is_empty() {
                    SPARE.set(std::mem::take(buffer));
                }
                let read = ready!(read).map_err(|_| BrokenSide::Sender)?;
                self.moved += read as u64;
                self.ended = read == 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}
