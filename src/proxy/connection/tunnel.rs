//! An upgraded connection (RFC 9110 §7.8), or a stream of HTTP/2 with a WebSocket (RFC 8441). Bytes are relayed both ways
//! until one side closes, both are silent for too long, one acknowledges nothing for as long, or the worker is drained.

mod side;

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use crate::clock::{Deadline, now};
use crate::net::AckTimeout;
use crate::proxy::worker::buffer_pool::Buffers;
use crate::upstream::pool::UpstreamConnection;
use side::TunnelSide;

/// Bytes that either side sent after its head.
#[derive(Debug)]
pub(crate) struct EarlyBytes {
    client: BytesMut,
    backend: BytesMut,
}

impl EarlyBytes {
    /// Those in the buffers of the request.
    pub(crate) fn take(buffers: &mut Buffers) -> Self {
        let take =
            |bytes: &mut BytesMut| if bytes.is_empty() { BytesMut::new() } else { std::mem::take(bytes) };
        Self { client: take(&mut buffers.inbound), backend: take(&mut buffers.answer.bytes) }
    }
}

/// How a tunnel has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelEnd {
    /// Bytes sent to the client.
    pub(crate) sent: u64,
    /// The client has got all that the backend has sent, and its end.
    pub(crate) is_whole: bool,
}

/// Joins client and backend. When neither has transferred a byte for `silence`, or at `end`, both are closed. For a
/// blocked socket, the kernel measures the time without acknowledged bytes.
pub(crate) async fn run(
    client: &impl TunnelSide,
    backend: UpstreamConnection,
    early: EarlyBytes,
    times: (Duration, Option<Instant>),
) -> TunnelEnd {
    match (backend.stream(), backend.websocket()) {
        (Some(stream), _) => relay(client, stream, early, times).await,
        (None, Some(stream)) => relay(client, stream, early, times).await,
        (None, None) => TunnelEnd { sent: 0, is_whole: false },
    }
}

async fn relay(
    client: &impl TunnelSide,
    backend: &impl TunnelSide,
    EarlyBytes { client: mut inbound, backend: mut answer }: EarlyBytes,
    (silence, end): (Duration, Option<Instant>),
) -> TunnelEnd {
    let (mut up, mut down) = (Direction::new(silence), Direction::new(silence));
    let (mut deadline, mut moved, mut last) = (Deadline::default(), 0, now());
    let (mut was_blocked, mut end_timer) = (false, Deadline::default());
    #[expect(
        clippy::let_underscore_must_use,
        reason = "either side may break the tunnel off at any time, and both are closed then"
    )]
    let _: Result<(), BrokenSide> = poll_fn(|context| {
        if end.is_some_and(|end| end_timer.poll(context, end).is_ready()) {
            return Poll::Ready(Ok(()));
        }
        let sent = match up.poll(context, client, backend, &mut inbound) {
            // What the backend has sent before still goes to the client.
            Poll::Ready(Err(BrokenSide::Receiver)) => up.drop_received(context, client, &mut inbound),
            sent => sent?,
        };
        let received = down.poll(context, backend, client, &mut answer)?;
        if received.is_ready() && (sent.is_ready() || up.is_broken) {
            return Poll::Ready(Ok(()));
        }
        // A side that has sent all may still give up.
        if sent.is_ready() && client.poll_reset(context).is_ready()
            || received.is_ready() && backend.poll_reset(context).is_ready()
        {
            return Poll::Ready(Ok(()));
        }
        let blocked = up.blocked || down.blocked;
        let has_moved = std::mem::replace(&mut moved, up.moved + down.moved) != moved;
        if has_moved || was_blocked {
            last = now();
        }
        was_blocked = blocked;
        let stalled = match (up.stalled_since, down.stalled_since) {
            (None, stalled) | (stalled, None) => stalled,
            (Some(one), Some(other)) => Some(one.min(other)),
        };
        let since = match (blocked, stalled) {
            (true, None) => return Poll::Pending,
            (true, Some(stalled)) => stalled,
            (false, stalled) => stalled.map_or(last, |stalled| stalled.min(last)),
        };
        deadline.poll(context, since + silence).map(Ok)
    })
    .await;
    TunnelEnd { sent: down.written, is_whole: down.closed }
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
    /// Since when the receiving side accepts no bytes, where the kernel does not measure that.
    stalled_since: Option<Instant>,
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
            stalled_since: None,
        }
    }

    /// Reads and drops what is sent to a side that takes no more. Unread bytes would reset the connection at its end, and the
    /// reset destroys what is on its way back. Ready once the sending side has closed.
    #[cold]
    fn drop_received(
        &mut self,
        context: &mut Context<'_>,
        from: &impl TunnelSide,
        buffer: &mut BytesMut,
    ) -> Poll<()> {
        self.is_broken = true;
        self.stalled_since = None;
        loop {
            from.release(buffer.len());
            buffer.clear();
            if !matches!(ready!(from.poll_read(context, buffer)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }

    /// Ready once one side has closed and the close was passed on to the other.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &impl TunnelSide,
        to: &impl TunnelSide,
        buffer: &mut BytesMut,
    ) -> Poll<Result<(), BrokenSide>> {
        let to_fails = |_| BrokenSide::Receiver;
        self.blocked = false;
        while !self.closed {
            if !buffer.is_empty() {
                let last = from.is_read_to_end();
                let Poll::Ready(written) = to.poll_write(context, buffer, last).map_err(to_fails)? else {
                    self.note_pending(to);
                    return Poll::Pending;
                };
                buffer.advance(written);
                from.release(written);
                self.moved += written as u64;
                self.written += written as u64;
                self.stalled_since = None;
                self.ended = last && buffer.is_empty();
                continue;
            }
            if to.poll_flush(context).map_err(to_fails)?.is_pending() {
                self.note_pending(to);
                return Poll::Pending;
            }
            if self.ended {
                to.close_sending();
                self.closed = true;
            } else {
                let read = ready!(from.poll_read(context, buffer)).map_err(|_| BrokenSide::Sender)?;
                self.moved += read as u64;
                self.ended = read == 0;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The receiving side accepts no bytes.
    fn note_pending(&mut self, to: &impl TunnelSide) {
        self.blocked = to.is_measured(&self.ack_timeout);
        if !self.blocked && to.stalls() {
            self.stalled_since.get_or_insert_with(now);
        }
    }
}
