//! An upgraded connection (RFC 9110 §7.8): bytes pass both ways until one side closes, both
//! are silent for too long, or the worker is drained.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use super::buffers::Buffers;
use crate::clock::deadline::{Deadline, now};
use crate::socket::Stream;
use crate::upstream::pool::Connection;

/// Bytes taken from one side at once.
const PART: usize = 16 << 10;

/// Joins client and backend. What either has sent behind its head stands in the buffers.
/// When neither has moved a byte for `silence`, both are closed.
pub(crate) async fn run(client: &Stream, backend: Connection, mut buffers: Box<Buffers>, silence: Duration) {
    let backend = backend.stream();
    let mut up = Way::default();
    let mut down = Way::default();
    let (mut deadline, mut moved, mut last) = (Deadline::default(), 0, now());
    let Buffers { inbound, answer, .. } = &mut *buffers;
    // Either side may break the tunnel off at any time; that is how tunnels end.
    let _: io::Result<()> = poll_fn(|context| {
        let sent = up.poll(context, client, backend, inbound)?;
        let received = down.poll(context, backend, client, &mut answer.bytes)?;
        if sent.is_ready() && received.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if std::mem::replace(&mut moved, up.moved + down.moved) != moved {
            last = now();
        }
        deadline.poll(context, last + silence).map(Ok)
    })
    .await;
}

/// One of a tunnel's two directions.
#[derive(Debug, Default)]
struct Way {
    ended: bool,
    closed: bool,
    /// Bytes read and bytes written.
    moved: u64,
}

impl Way {
    /// Ready once one side has closed and the other has been told.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        while !self.closed {
            if !buffer.is_empty() {
                let written = ready!(to.poll_write(context, buffer, &[]))?;
                buffer.advance(written);
                self.moved += written as u64;
                continue;
            }
            ready!(to.poll_flush(context))?;
            if self.ended {
                // A side that is gone already needs not be told.
                let _ = to.close_sending();
                self.closed = true;
            } else {
                let read = ready!(from.poll_read(context, buffer, PART))?;
                self.moved += read as u64;
                self.ended = read == 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}
