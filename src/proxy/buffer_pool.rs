//! The memory that a request needs while it is served. Idle connections hold none.

use std::cell::RefCell;

use bytes::BytesMut;

use crate::http1::fields::FieldSpan;
use crate::upstream::exchange::ResponseBuffer;

/// Sets that a worker keeps for the next request.
const MAX_SPARE: usize = 64;
/// A buffer that has grown beyond this is not kept.
const MAX_KEPT: usize = 64 << 10;

/// One connection's buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// What the client has sent and nobody has read yet.
    pub(crate) inbound: BytesMut,
    /// Where the fields of its head stand.
    pub(crate) spans: Vec<FieldSpan>,
    /// What the backend is to be sent; the body of an answer of our own.
    pub(crate) message: BytesMut,
    /// What the backend has sent.
    pub(crate) answer: ResponseBuffer,
    /// What the client is to be sent.
    pub(crate) outbound: BytesMut,
}

/// A worker's buffers that are not in use.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a set changes hands twice a request: a pointer moves, not 200 bytes")]
pub(crate) struct BufferPool(RefCell<Vec<Box<Buffers>>>);

impl BufferPool {
    /// Empty buffers.
    pub(crate) fn take(&self) -> Box<Buffers> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the buffers for the next.
    pub(crate) fn put(&self, buffers: Option<Box<Buffers>>) {
        let mut spare = self.0.borrow_mut();
        let Some(mut buffers) = buffers.filter(|_| spare.len() < MAX_SPARE) else { return };
        let Buffers { inbound, message, answer, outbound, .. } = &mut *buffers;
        for buffer in [inbound, message, &mut answer.bytes, outbound] {
            buffer.clear();
            if buffer.capacity() > MAX_KEPT {
                *buffer = BytesMut::new();
            }
        }
        spare.push(buffers);
    }
}
