//! The clock: the only part of the program that reads the time. Decisions take their time from [`Clock`].
//!
//! Timeouts have [`Deadline`], which costs a busy connection nothing: its timer is armed at most once per span, not
//! once per request.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Sleep, sleep_until};

use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::{self, SystemWallClock, WallTime};

/// A change of the wall clock's offset from which on it is a step, in µs. Readings that belong together differ by less.
const MIN_STEP: i64 = 1_000;
/// How often the clocks are read again where the process was interrupted between readings.
const READINGS: usize = 5;
/// The least that the machine is suspended for, in µs: shorter differences come from the readings.
const MIN_SUSPEND: u64 = 100_000;

/// A source of [`Timestamp`]s and of [`WallTime`].
#[derive(Debug)]
pub enum Clock {
    /// The time since the process started, after the moment that it counts from, mostly the wall time; and the wall
    /// clock as it is now.
    System {
        /// The monotonic reading at start.
        started: Instant,
        /// The moment at start.
        at_start: Timestamp,
        /// How long the machine was suspended since then, in µs: the monotonic clock stands meanwhile.
        suspended: AtomicU64,
        /// How long the machine had been up at start, suspends included; `None`: the system did not tell.
        up_at_start: Option<Micros>,
    },
    /// A clock that tests set by hand: both times are the same.
    Manual(AtomicU64),
}

impl Clock {
    /// The system's clock, from now on.
    pub fn system() -> Self {
        Self::system_from(Timestamp(system_time().0))
    }

    /// The system's clock, with `at_start` as the present moment: that of a process whose counters count on.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn system_from(at_start: Timestamp) -> Self {
        Self::System {
            at_start,
            started: Instant::now(),
            suspended: AtomicU64::new(0),
            up_at_start: uptime(),
        }
    }

    /// A clock that stands at `at` until it is moved.
    pub const fn manual(at: Timestamp) -> Self {
        Self::Manual(AtomicU64::new(at.0))
    }

    /// The present moment.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { started, at_start, suspended, .. } => {
                let elapsed = micros(Instant::now().saturating_duration_since(*started));
                at_start.plus(elapsed).plus(Micros(suspended.load(Ordering::Relaxed)))
            }
            Self::Manual(at) => Timestamp(at.load(Ordering::Relaxed)),
        }
    }

    /// The wall time now.
    pub fn wall_now(&self) -> WallTime {
        match self {
            Self::System { .. } => system_time(),
            Self::Manual(at) => WallTime(at.load(Ordering::Relaxed)),
        }
    }

    /// The same moment on the clock of timeouts, without another reading. A manual clock has no such moment: the
    /// present one is returned.
    pub fn instant(&self, at: Timestamp) -> tokio::time::Instant {
        match self {
            Self::System { started, at_start, suspended, .. } => {
                let elapsed = at.since(at_start.plus(Micros(suspended.load(Ordering::Relaxed))));
                (*started + Duration::from_micros(elapsed.0)).into()
            }
            Self::Manual(_) => now(),
        }
    }

    /// Counts the time that the machine was suspended, and notes in `wall_clock` where the wall clock stands now. Returns
    /// by how many µs it was stepped, if it was.
    pub fn follow(&self, wall_clock: &SystemWallClock) -> Option<i64> {
        let Self::System { started, suspended, up_at_start, .. } = self else { return None };
        if let (Some(up_at_start), Some(up)) = (up_at_start, uptime()) {
            let awake = micros(started.elapsed());
            let all = up.0.saturating_sub(up_at_start.0).saturating_sub(awake.0);
            if all >= suspended.load(Ordering::Relaxed) + MIN_SUSPEND {
                suspended.store(all, Ordering::Relaxed);
            }
        }
        let (at, offset) = self.offset();
        let step = offset - wall_clock.offset();
        if step.abs() < MIN_STEP {
            return None;
        }
        wall_clock.step(at, offset);
        Some(step)
    }

    /// Wall time less timestamp in µs, from readings as close together as possible.
    fn offset(&self) -> (Timestamp, i64) {
        let read = |_| {
            let (before, wall, after) = (self.now(), system_time(), self.now());
            (after.since(before), before, wall.0.cast_signed() - before.0.cast_signed())
        };
        let closest = (0..READINGS).map(read).min_by_key(|(apart, ..)| *apart);
        closest.map_or((self.now(), wall_clock::system().offset()), |(_, at, offset)| (at, offset))
    }

    /// Moves a manual clock forward; the system's clock stays as it is.
    pub fn advance(&self, span: Micros) {
        if let Self::Manual(at) = self {
            at.fetch_add(span.0, Ordering::Relaxed);
        }
    }
}

/// The wall clock's reading. If it is before 1970, it counts as 1970.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads a clock")]
fn system_time() -> WallTime {
    WallTime(micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).0)
}

/// How long the machine has been up, by CLOCK_BOOTTIME, which runs while it is suspended; in hundredths of a second. `None`:
/// the system does not tell.
fn uptime() -> Option<Micros> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let whole = seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)?;
    Some(Micros(whole.checked_mul(10_000)?))
}

/// The kernel's monotonic clock, as service managers compare it: since the machine's start.
pub fn monotonic() -> Micros {
    let time = clock_gettime(ClockId::Monotonic);
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
