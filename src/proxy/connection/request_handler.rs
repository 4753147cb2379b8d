//! The handlers of a thread's requests. A handler is the future that serves one request of HTTP/1.1 after the other, for
//! whichever connection has one.
//!
//! The state of a request under way takes kilobytes. A connection that waits for a request has none of it, and a handler
//! that has served one stays in the processor's caches for the next.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use crate::boxed_cold::boxed_cold;
use crate::limit::units::Timestamp;
use crate::plan::ListenerRole;
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::session::Session;
use crate::proxy::{decide, decisions};

/// Handlers that a thread keeps for later requests.
const MAX_SPARE: usize = 64;

thread_local! {
    /// The handlers of this thread, which is a worker's, that are not in use.
    static SPARE: RefCell<Vec<RequestHandler>> = const { RefCell::new(Vec::new()) };
}

/// Serves one request at a time.
struct RequestHandler {
    slot: Rc<HandlerSlot>,
    /// Never ready.
    serving: Pin<Box<dyn Future<Output = ()>>>,
}

/// Where a connection hands its session to a handler, and takes it back.
#[derive(Default)]
struct HandlerSlot {
    request: Cell<Option<(Box<Session>, Timestamp)>>,
    response: Cell<Option<(Box<Session>, NextAction)>>,
}

/// Serves the request at the front of the session's buffer. Its head was complete at `now`. Returns the session and what
/// is to be done with its connection.
pub(crate) async fn answer(session: Box<Session>, now: Timestamp) -> (Box<Session>, NextAction) {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    let mut handler = spare.unwrap_or_else(RequestHandler::new);
    handler.slot.request.set(Some((session, now)));
    let answered = poll_fn(|context| {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "it is never ready: it waits for another request instead"
        )]
        let _: Poll<()> = handler.serving.as_mut().poll(context);
        handler.slot.response.take().map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < MAX_SPARE {
            spare.push(handler);
        }
    });
    answered
}

impl RequestHandler {
    #[cold]
    fn new() -> Self {
        let slot = Rc::<HandlerSlot>::default();
        Self { serving: Box::pin(serve(Rc::clone(&slot))), slot }
    }
}

async fn serve(slot: Rc<HandlerSlot>) {
    loop {
        // No task is woken: a connection polls the handler that it has given a request.
        let next = || slot.request.take().map_or(Poll::Pending, Poll::Ready);
        let (mut session, now) = poll_fn(|_| next()).await;
        let after = match session.peer.role {
            ListenerRole::Traffic => decide::answer(&mut session, now).await,
            ListenerRole::Decisions => boxed_cold(|| decisions::answer(&mut session, now)).await,
        };
        slot.response.set(Some((session, after)));
    }
}
