//! Requests that wait before they are decided: what they hold counts towards `max_buffered`, and `max_duration` runs.

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;

use crate::http1::request::Body;
use crate::plan::early_response::EarlyResponse;
use crate::plan::reject_reason::RejectReason;
use crate::proxy::forward::exchange_deadline::{ExchangeDeadline, TOO_LONG};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::request_reader::Source;
use crate::proxy::session::response_writer::ResponseWriter;
use crate::proxy::session::server_stream::ServerStream;
use crate::proxy::worker::Worker;
use crate::shared::buffer_budget::BufferedRequest;

/// The state of a request under way beside its buffers, in bytes: its task, session, context and stream. 8 to 11 KiB were
/// measured with release builds.
const REQUEST_STATE: usize = 8 << 10;

/// Why the wait of a request ends before it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFailure {
    /// It is evicted from the budget of undecided requests.
    Evicted,
    /// The `max_duration` of its route has passed.
    Overrun,
}

impl WaitFailure {
    /// The response to the request. A part of its body may have been read and dropped.
    #[cold]
    pub(crate) fn response(self, ctx: &mut RequestContext) -> EarlyResponse {
        let body = std::mem::take(&mut ctx.body_options).body();
        ctx.limits.places = None;
        match self {
            Self::Evicted => {
                ctx.options.keep = false;
                RejectReason::overloaded().into()
            }
            Self::Overrun => {
                ctx.options.keep &= body == Body::EMPTY;
                RejectReason::wait_failed(TOO_LONG).into()
            }
        }
    }
}

/// What a request holds before it is decided, reported by the steps that take it.
#[derive(Default)]
pub(crate) struct HeldBytes {
    /// The client's network, once known.
    network: Cell<Option<IpAddr>>,
    /// The capacity of the buffers of its body.
    body: Cell<usize>,
    /// The end of its exchange, on a route with `max_duration`. Boxed, since few routes have it.
    deadline: Cell<Option<Box<ExchangeDeadline>>>,
}

impl HeldBytes {
    /// The request comes from this network.
    pub(crate) fn set_network(&self, network: IpAddr) {
        self.network.set(Some(network));
    }

    /// The exchange ends then.
    pub(crate) fn set_deadline(&self, deadline: ExchangeDeadline) {
        self.deadline.set(Some(Box::new(deadline)));
    }

    /// Ready once `max_duration` has passed.
    fn poll_deadline(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut deadline) = self.deadline.take() else { return Poll::Pending };
        let passed = deadline.poll(context);
        self.deadline.set(Some(deadline));
        passed
    }

    /// Buffers of the body have this capacity.
    pub(crate) fn set_body(&self, capacity: usize) {
        self.body.set(capacity);
    }
}

/// A request that is being decided.
pub(crate) struct UndecidedRequest<'r> {
    worker: &'r Worker,
    /// See `[server] max_buffered`.
    max_buffered: usize,
    held: &'r HeldBytes,
    /// The capacity of the buffer that holds its head.
    head: usize,
    /// Where its body arrives by itself, though nobody reads it.
    stream: Option<Rc<ServerStream>>,
    /// Its entry in the budget, from when it waits.
    entry: Option<BufferedRequest>,
}

impl<'r> UndecidedRequest<'r> {
    /// `head`: the capacity of the buffer that holds its head.
    pub(crate) fn new(
        worker: &'r Worker,
        max_buffered: usize,
        held: &'r HeldBytes,
        head: usize,
        source: &Source,
    ) -> Self {
        Self { worker, max_buffered, held, head, stream: Self::stream_of(source), entry: None }
    }

    /// The stream on which a body can arrive before it is read.
    fn stream_of(source: &Source) -> Option<Rc<ServerStream>> {
        match source {
            Source::Http1(_) => None,
            Source::Stream(stream) => Some(Rc::clone(stream)),
        }
    }

    /// Ready once `deciding` has ended, or once the wait has failed: `deciding` is then to be dropped. Meanwhile `held` is
    /// sent: the responses to requests before this one.
    pub(crate) fn poll_decided(
        &mut self,
        deciding: Pin<&mut impl Future<Output = ()>>,
        held: &mut (&mut ResponseWriter, &mut BytesMut),
        context: &mut Context<'_>,
    ) -> Poll<Result<(), WaitFailure>> {
        match deciding.poll(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => {
                let (writer, held) = held;
                if !held.is_empty() {
                    #[expect(clippy::let_underscore_must_use, reason = "a fault returns when more is sent")]
                    let _: Poll<_> = writer.poll_held(context, held);
                }
                self.poll_failure(context).map(Err)
            }
        }
    }

    /// Ready once the wait has failed.
    #[cold]
    fn poll_failure(&mut self, context: &mut Context<'_>) -> Poll<WaitFailure> {
        match self.held.poll_deadline(context) {
            Poll::Ready(()) => Poll::Ready(WaitFailure::Overrun),
            Poll::Pending => self.poll_evicted(context).map(|()| WaitFailure::Evicted),
        }
    }

    /// Counts what the request holds while it waits. Ready once it is evicted.
    fn poll_evicted(&mut self, context: &Context<'_>) -> Poll<()> {
        // Only a request with a client waits.
        let Some(network) = self.held.network.get() else { return Poll::Pending };
        let unread = self.stream.as_ref().map_or(0, |stream| stream.poll_unread(context));
        let bytes = REQUEST_STATE + self.head + self.held.body.get() + unread;
        let budget = &self.worker.shared.buffer_budget;
        let entry = self.entry.get_or_insert_with(|| budget.begin(network, context));
        entry.resize(bytes, self.max_buffered);
        entry.poll_evicted(context)
    }
}
