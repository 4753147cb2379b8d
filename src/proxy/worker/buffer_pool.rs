//! The buffers that a request needs while it is served. Idle connections hold none.

use std::cell::{Cell, RefCell};

use bytes::BytesMut;

use crate::clock::Deadline;
use crate::http1::head_parser::HeadParser;
use crate::plan::seen_request::RoutedHead;
use crate::upstream::exchange::ResponseBuffer;

/// Buffer sets that a worker keeps for later requests.
const MAX_SPARE: usize = 64;
/// A buffer that has grown beyond this is not kept.
const MAX_KEPT: usize = 64 << 10;

/// One connection's buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Bytes received from the client and not consumed yet.
    pub(crate) inbound: BytesMut,
    /// Parses the request head. It remembers the last one, whichever connection had the buffers then.
    pub(crate) head_parser: HeadParser,
    /// What was found out about that head.
    pub(crate) last_head: Cell<Option<LastHead>>,
    /// The bytes for the backend; the body of a local response.
    pub(crate) message: BytesMut,
    /// Bytes received from the backend.
    pub(crate) answer: ResponseBuffer,
    /// Bytes to be sent to the client.
    pub(crate) outbound: BytesMut,
    /// For waits on backends. It stays armed from request to request, whichever connection has the buffers then.
    pub(crate) backend_deadline: Deadline,
    /// When a client that awaits its response is watched: see [`DisconnectWatch`](crate::proxy::session::request_reader::DisconnectWatch).
    pub(crate) watch_deadline: Deadline,
}

/// What was found out about the last head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastHead {
    /// The number of the worker's plan then.
    pub(crate) plan: u64,
    pub(crate) routed: RoutedHead,
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

    /// Keeps the buffers for a later request.
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
