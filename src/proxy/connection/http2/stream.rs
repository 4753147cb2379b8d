//! One HTTP/2 stream: one request, served by one task like a request of HTTP/1.1.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use crate::boxed_cold::boxed_cold;
use crate::http1::request::RequestError;
use crate::http2::connection::ReceivedRequest;
use crate::http2::head::HeadError;
use crate::plan::ListenerRole;
use crate::proxy::answer::next_action::{NextAction, PendingTunnel};
use crate::proxy::connection::linger::linger_stream;
use crate::proxy::connection::stream_guard::StreamGuard;
use crate::proxy::connection::tunnel::{self, EarlyBytes};
use crate::proxy::session::Session;
use crate::proxy::session::request_reader::Source;
use crate::proxy::session::server_stream::{ResponseOutcome, ServerStream, StreamTransport};
use crate::proxy::{decide, decisions};

/// Idle tasks that a worker keeps; together 200 KB.
const MAX_IDLE_TASKS: usize = 64;

thread_local! {
    /// Tasks of the worker that have served a stream and wait for the next. The future of a stream takes 3 KB. To
    /// allocate, move and free one for each request costs more than to wake a task. A slot with a dropped task has
    /// no strong reference.
    static IDLE_TASKS: RefCell<Vec<Weak<TaskSlot>>> = const { RefCell::new(Vec::new()) };
}

/// Hands a request to an idle task.
#[derive(Debug, Default)]
struct TaskSlot {
    next: RefCell<Option<(ReceivedRequest, StreamGuard)>>,
    waker: RefCell<Option<Waker>>,
}

/// Serves a request in an idle task of the worker, or in a new one.
pub(super) fn spawn(request: ReceivedRequest, guard: StreamGuard) {
    let idle = IDLE_TASKS.with_borrow_mut(|idle| {
        while let Some(slot) = idle.pop() {
            if let Some(slot) = slot.upgrade() {
                return Some(slot);
            }
        }
        None
    });
    match idle {
        Some(slot) => slot.give(request, guard),
        None => drop(tokio::task::spawn_local(serve_in_turn(request, guard))),
    }
}

/// Serves a request, and then those that follow, of any connection of the worker.
async fn serve_in_turn(mut request: ReceivedRequest, mut guard: StreamGuard) {
    let slot = Rc::<TaskSlot>::default();
    loop {
        serve(request, guard).await;
        if !slot.wait_idle() {
            return;
        }
        (request, guard) = poll_fn(|context| slot.poll(context)).await;
    }
}

impl TaskSlot {
    fn give(&self, request: ReceivedRequest, guard: StreamGuard) {
        *self.next.borrow_mut() = Some((request, guard));
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Adds the task to the idle ones. Returns whether there was room.
    fn wait_idle(self: &Rc<Self>) -> bool {
        IDLE_TASKS.with_borrow_mut(|idle| {
            let room = idle.len() < MAX_IDLE_TASKS;
            if room {
                idle.push(Rc::downgrade(self));
            }
            room
        })
    }

    fn poll(&self, context: &Context<'_>) -> Poll<(ReceivedRequest, StreamGuard)> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(next);
        }
        self.waker.borrow_mut().get_or_insert_with(|| context.waker().clone());
        Poll::Pending
    }
}

/// Serves one request.
async fn serve(request: ReceivedRequest, guard: StreamGuard) {
    let streams = guard.streams();
    let worker = Rc::clone(&streams.worker);
    let mut buffers = worker.spare.take();
    let timeout = worker.plan().server.write_timeout;
    let unknown_length = request.head.as_ref().is_ok_and(|head| head.unknown_length);
    let stream = Rc::new(ServerStream::new(StreamTransport::Http2(request.stream), unknown_length, timeout));
    let mut tunnel = None;
    let mut session =
        Session::new(Source::Stream(Rc::clone(&stream)), Rc::clone(&streams.peer), worker, guard.opened());
    if let Ok(head) = request.head {
        buffers.inbound.extend_from_slice(&head.text);
        // The head is held once.
        drop(head);
        session.buffers = Some(buffers);
        let now = session.worker.shared.clock.now();
        match session.peer.role {
            ListenerRole::Traffic => {
                if let NextAction::Tunnel(pending) = decide::answer(&mut session, now).await {
                    tunnel = Some(pending);
                }
            }
            ListenerRole::Decisions => _ = boxed_cold(|| decisions::answer(&mut session, now)).await,
        }
    } else {
        let fault = match request.head {
            Err(HeadError::Protocol) => RequestError::Protocol,
            _ => RequestError::HeadTooLarge,
        };
        session.buffers = Some(buffers);
        decide::refuse_unread(&mut session, fault).await;
    }
    if let Some(pending) = tunnel {
        return begin_tunnel(session, stream, pending, guard);
    }
    session.worker.spare.put(session.buffers.take());
    drop(session);
    match stream.finish() {
        ResponseOutcome::Unanswered => guard.client_reset(stream.round_trip()),
        ResponseOutcome::Told => {
            if !poll_fn(|context| Poll::Ready(stream.discard(context).0)).await {
                drop(tokio::task::spawn_local(linger(stream, guard)));
            }
        }
    }
}

/// Joins a stream to its backend, in a task of its own: that of the request is larger by kilobytes.
#[cold]
fn begin_tunnel(
    mut session: Session,
    stream: Rc<ServerStream>,
    pending: Box<PendingTunnel>,
    guard: StreamGuard,
) {
    let early = EarlyBytes::take(session.buffers.get_or_insert_default());
    session.worker.spare.put(session.buffers.take());
    drop(tokio::task::spawn_local(async move {
        let PendingTunnel { backend, silence, end, places, settlement } = *pending;
        let ended = tunnel::run(stream.transport(), backend, early, (silence, end)).await;
        if !ended.is_whole {
            stream.cancel();
        }
        // What the client still sends is of no use: it is told so (RFC 9113 §8.1).
        drop((places, stream, guard));
        if let Some(mut settlement) = settlement {
            settlement.finish_tunnel(ended.sent);
        }
    }));
}

/// Lingers in a task of its own: that of the request is larger by kilobytes, which thousands of refused uploads would
/// hold.
async fn linger(stream: Rc<ServerStream>, guard: StreamGuard) {
    linger_stream(&stream, &guard.streams().worker).await;
}
