//! The clock: the only part of the program that reads the time. Decisions take their time from [`Clock`].
//!
//! Timeouts have [`Deadline`], which costs a busy connection nothing: its timer is armed at most once per span, not
//! once per request.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::{Sleep, sleep_until};

use crate::limit::units::{Micros, Timestamp};

/// A source of [`Timestamp`]s.
#[derive(Debug)]
pub enum Clock {
    /// Wall time at start plus monotonic elapsed time: it never runs backwards, whatever NTP does.
    System {
        /// The monotonic reading at start.
        started: Instant,
        /// The wall time at start.
        at_start: Timestamp,
    },
    /// A clock that tests set by hand.
    Manual(AtomicU64),
}

impl Clock {
    /// The system's clock, from now on.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn system() -> Self {
        // If the machine's clock is before 1970, time counts from 1970.
        let at_start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::System { started: Instant::now(), at_start: Timestamp(micros(at_start).0) }
    }

    /// A clock that stands at `at` until it is moved.
    pub const fn manual(at: Timestamp) -> Self {
        Self::Manual(AtomicU64::new(at.0))
    }

    /// The present moment.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { started, at_start } => {
                at_start.plus(micros(Instant::now().saturating_duration_since(*started)))
            }
            Self::Manual(at) => Timestamp(at.load(Ordering::Relaxed)),
        }
    }

    /// The same moment on the clock of timeouts, without another reading. A manual clock has no such moment: the
    /// present one is returned.
    pub fn instant(&self, at: Timestamp) -> tokio::time::Instant {
        match self {
            Self::System { started, at_start } => {
                (*started + Duration::from_micros(at.since(*at_start).0)).into()
            }
            Self::Manual(_) => now(),
        }
    }

    /// Moves a manual clock forward; the system's clock stays as it is.
    pub fn advance(&self, span: Micros) {
        if let Self::Manual(at) = self {
            at.fetch_add(span.0, Ordering::Relaxed);
        }
    }
}

/// The kernel's monotonic clock, as service managers compare it: since the machine's start.
pub fn monotonic() -> Micros {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    micros(Duration::try_from(time).unwrap_or_default())
}

/// A duration in whole microseconds, rounded down.
pub fn micros(span: Duration) -> Micros {
    Micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

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
    pub fn poll(&mut self, context: &mut Context<'_>, at: tokio::time::Instant) -> Poll<()> {
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

/// The monotonic clock's present reading, for time-outs only; decisions take theirs from [`Clock`].
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
