//! An upgraded connection (RFC 9110 §7.8): bytes pass both ways until one side closes or the worker is drained.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};

use super::buffers::Buffers;
use crate::socket::Stream;
use crate::upstream::pool::Connection;

/// Bytes taken from one side at once.
const PART: usize = 16 << 10;

/// Joins client and backend. What either has sent behind its head stands in the buffers.
pub(crate) async fn run(client: &Stream, backend: Connection, mut buffers: Box<Buffers>) {
    let backend = &backend.stream;
    let mut up = Way::default();
    let mut down = Way::default();
    let Buffers { inbound, answer, .. } = &mut *buffers;
    // Either side may break the tunnel off at any time; that is how tunnels end.
    let _: io::Result<()> = poll_fn(|context| {
        let up = up.poll(context, client, backend, inbound)?;
        let down = down.poll(context, backend, client, &mut answer.bytes)?;
        if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await;
}

/// One of a tunnel's two directions.
#[derive(Debug, Default)]
struct Way {
    ended: bool,
    closed: bool,
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
                continue;
            }
            ready!(to.poll_flush(context))?;
            if self.ended {
                // A side that is gone already needs not be told.
                let _ = to.close_sending();
                self.closed = true;
            } else {
                self.ended = ready!(from.poll_read(context, buffer, PART))? == 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}
