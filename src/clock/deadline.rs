//! Timeouts that cost a busy connection nothing: the timer is armed at most once per span, not once per request.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that moves often and passes rarely.
///
/// The timer stays armed at some earlier deadline; when it fires there, it is armed again at the present one. So moving
/// the deadline further away, which every request does, touches no timer.
#[derive(Debug, Default)]
pub struct Deadline {
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready once `at` has passed; otherwise the task is woken then. A passed deadline stays passed.
    pub fn poll(&mut self, context: &mut Context<'_>, at: Instant) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

/// The monotonic clock's present reading, for time-outs only; decisions take theirs from [`super::Clock`].
pub fn now() -> Instant {
    Instant::now()
}
