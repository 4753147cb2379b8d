//! The wall clock beside the time that decisions count by.
//!
//! A [`Timestamp`] never goes back and runs evenly; the wall clock is set by people and time servers. Both differ by an
//! offset that changes only when the wall clock is stepped. Windows of a clock or a calendar begin and end by the wall
//! clock, but their states are kept in timestamps: [`WallClock::window`] says where the present window lies.
//!
//! A process has one wall clock, [`system`]. Without a step, and so in virtual time, both times are the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::units::{Micros, Timestamp};

/// A moment by the wall clock: microseconds since 1970-01-01 UTC, below 2^53. It has a meaning outside of the process,
/// and may go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// Whole seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 / Micros::SECOND.0
    }

    /// The span since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` later.
    pub const fn plus(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// The steps that are remembered. Of more, the oldest are forgotten, as if the clock had been right until the next one.
const MAX_STEPS: usize = 64;
/// Steps that together are no more than this count as one, in µs: time servers make such again and again.
const SMALL: u64 = 1_000_000;

/// Where the wall clock stands, and its last steps.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    /// Wall time less timestamp, in µs.
    offset: i64,
    steps: Vec<Step>,
}

/// A change of the offset.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Timestamp,
    /// The offset until then.
    before: i64,
}

/// A window by the wall clock, in timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentWindow {
    /// A later window has a later start. After a step it may lie before the moment at which the window began to count.
    pub start: Timestamp,
    /// Its end, if the clock is not stepped again.
    pub end: Timestamp,
}

/// Where a window lies in timestamps, and its start by the wall clock.
struct Counted {
    window: PresentWindow,
    named: WallTime,
}

impl WallClock {
    /// The clock with this [`Self::offset`] and these [`Self::steps`], of which the last 64 are remembered.
    pub fn resumed(offset: i64, steps: impl IntoIterator<Item = (Timestamp, i64)>) -> Self {
        let mut steps: Vec<_> = steps.into_iter().map(|(at, before)| Step { at, before }).collect();
        steps.drain(..steps.len().saturating_sub(MAX_STEPS));
        Self { offset, steps }
    }

    /// The last steps: when, and the offset until then.
    pub fn steps(&self) -> impl Iterator<Item = (Timestamp, i64)> {
        self.steps.iter().map(|step| (step.at, step.before))
    }

    /// Sets the wall clock `offset` µs before timestamps from `at` on.
    pub fn step(&mut self, at: Timestamp, offset: i64) {
        let is_near = |before: i64| offset.abs_diff(before) <= SMALL;
        if self.steps.last().is_some_and(|last| is_near(last.before)) && is_near(self.offset) {
            self.offset = offset;
            return;
        }
        if self.steps.len() == MAX_STEPS {
            self.steps.remove(0);
        }
        self.steps.push(Step { at, before: self.offset });
        self.offset = offset;
    }

    /// Wall time less timestamp, in µs.
    pub const fn offset(&self) -> i64 {
        self.offset
    }

    /// The wall time of a timestamp, as the clock is set now.
    pub const fn wall_time(&self, at: Timestamp) -> WallTime {
        wall_time(at, self.offset)
    }

    /// The window of `now`, where `named` gives the window of a wall time: its start and its end.
    ///
    /// A step within a window moves its end. A step forward into another window begins that one. A step back into an
    /// earlier window leaves the present one in force until it would have ended, so that each step gives at most one
    /// fresh allowance.
    pub fn window(
        &self,
        now: Timestamp,
        named: impl FnMut(WallTime) -> (WallTime, WallTime),
    ) -> PresentWindow {
        self.counted(now, named).window
    }

    /// The begin of that window by the wall clock.
    pub fn begin(&self, now: Timestamp, named: impl FnMut(WallTime) -> (WallTime, WallTime)) -> WallTime {
        self.counted(now, named).named
    }

    fn counted(&self, now: Timestamp, mut named: impl FnMut(WallTime) -> (WallTime, WallTime)) -> Counted {
        let mut counted: Option<Counted> = None;
        let offsets = self.steps.iter().map(|step| step.before).skip(1).chain([self.offset]);
        for (step, after) in self.steps.iter().zip(offsets) {
            let present = current(counted, step.at, step.before, &mut named);
            let (start, end) = named(wall_time(step.at, after));
            counted = Some(if start == present.named {
                let window = PresentWindow { end: timestamp(end, after), ..present.window };
                Counted { window, named: start }
            } else if start > present.named {
                next(Some(&present), (start, end), after)
            } else {
                present
            });
        }
        current(counted, now, self.offset, &mut named)
    }

    /// The end of the window that [`Self::window`] said to begin at `start`, if the last step had to do with it:
    /// `Timestamp(0)` if the step ended it.
    pub fn end(
        &self,
        start: Timestamp,
        mut named: impl FnMut(WallTime) -> (WallTime, WallTime),
    ) -> Option<Timestamp> {
        let in_force = self.window(self.steps.last()?.at, &mut named);
        if start <= in_force.start {
            return Some(if start == in_force.start { in_force.end } else { Timestamp(0) });
        }
        let following = self.window(in_force.end, named);
        (start == following.start).then_some(following.end)
    }
}

/// The window in force at `now`: the one before, unless it is over.
fn current(
    before: Option<Counted>,
    now: Timestamp,
    offset: i64,
    named: &mut impl FnMut(WallTime) -> (WallTime, WallTime),
) -> Counted {
    match before {
        Some(before) if now < before.window.end => before,
        before => next(before.as_ref(), named(wall_time(now, offset)), offset),
    }
}

/// A window that follows another one.
fn next(before: Option<&Counted>, (start, end): (WallTime, WallTime), offset: i64) -> Counted {
    let not_before = before.map_or(Timestamp(0), |before| before.window.start.plus(Micros(1)));
    let window =
        PresentWindow { start: timestamp(start, offset).max(not_before), end: timestamp(end, offset) };
    Counted { window, named: start }
}

const fn wall_time(at: Timestamp, offset: i64) -> WallTime {
    WallTime(at.0.saturating_add_signed(offset))
}

const fn timestamp(at: WallTime, offset: i64) -> Timestamp {
    Timestamp(at.0.saturating_add_signed(offset.saturating_neg()))
}

/// The wall clock of this process. Most are never stepped, and their requests read one flag.
#[derive(Debug)]
pub struct SystemWallClock {
    is_stepped: AtomicBool,
    clock: RwLock<WallClock>,
}

static SYSTEM: SystemWallClock = SystemWallClock {
    is_stepped: AtomicBool::new(false),
    clock: RwLock::new(WallClock { offset: 0, steps: Vec::new() }),
};

/// The wall clock of this process.
pub fn system() -> &'static SystemWallClock {
    &SYSTEM
}

impl SystemWallClock {
    /// The clock as it is set now.
    pub fn copy(&self) -> WallClock {
        self.stepped(WallClock::clone).unwrap_or_default()
    }

    /// Goes on as another process's clock: windows lie where they lay there.
    pub fn resume(&self, clock: WallClock) {
        *self.clock.write().unwrap_or_else(PoisonError::into_inner) = clock;
        self.is_stepped.store(true, Ordering::Release);
    }

    /// See [`WallClock::step`].
    pub fn step(&self, at: Timestamp, offset: i64) {
        self.clock.write().unwrap_or_else(PoisonError::into_inner).step(at, offset);
        self.is_stepped.store(true, Ordering::Release);
    }

    /// What `ask` finds, unless the clock was never stepped.
    #[inline]
    pub fn stepped<T>(&self, ask: impl FnOnce(&WallClock) -> T) -> Option<T> {
        if !self.is_stepped.load(Ordering::Acquire) {
            return None;
        }
        Some(ask(&self.clock.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// See [`WallClock::wall_time`].
    #[inline]
    pub fn wall_time(&self, at: Timestamp) -> WallTime {
        self.stepped(|clock| clock.wall_time(at)).unwrap_or(WallTime(at.0))
    }

    /// See [`WallClock::offset`].
    pub fn offset(&self) -> i64 {
        self.stepped(WallClock::offset).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000_000;
    const DAY: u64 = 24 * HOUR;

    fn day(wall: WallTime) -> (WallTime, WallTime) {
        let start = wall.0 - wall.0 % DAY;
        (WallTime(start), WallTime(start + DAY))
    }

    fn hours(count: i64) -> i64 {
        count * HOUR.cast_signed()
    }

    /// The window of an hour, in hours.
    fn window(clock: &WallClock, hour: u64) -> (u64, u64) {
        let PresentWindow { start, end } = clock.window(Timestamp(hour * HOUR), day);
        (start.0 / HOUR, end.0 / HOUR)
    }

    #[test]
    fn without_a_step_a_window_is_where_it_is_named() {
        let clock = WallClock::default();
        assert_eq!([0, 23, 24, 50].map(|hour| window(&clock, hour)), [(0, 24), (0, 24), (24, 48), (48, 72)]);
        assert_eq!(clock.end(Timestamp(0), day), None);
    }

    #[test]
    fn a_step_within_the_window_moves_its_end() {
        for (by, end) in [(2, 22), (-2, 26)] {
            let mut clock = WallClock::default();
            clock.step(Timestamp(10 * HOUR), hours(by));
            assert_eq!(window(&clock, 10), (0, end), "the same window, so its count stays");
            assert_eq!(clock.end(Timestamp(0), day), Some(Timestamp(end * HOUR)));
            assert_eq!(window(&clock, end), (end, end + 24));
            assert_eq!(clock.wall_time(Timestamp(end * HOUR)), WallTime(DAY));
        }
    }

    /// The windows of a process that goes on as another one are those of the other one, whatever its steps.
    #[test]
    fn a_resumed_clock_has_the_same_windows() {
        let mut clock = WallClock::default();
        for (hour, offset) in [(10, 70), (100, 0), (130, -2)] {
            clock.step(Timestamp(hour * HOUR), hours(offset));
        }
        let resumed = WallClock::resumed(clock.offset(), clock.steps());
        for hour in 0..300 {
            assert_eq!(window(&resumed, hour), window(&clock, hour));
        }
        let many = (0..100).map(|number| (Timestamp(number), 5));
        assert_eq!(WallClock::resumed(0, many).steps().next(), Some((Timestamp(36), 5)));
    }

    /// Booted three days behind, and corrected.
    #[test]
    fn a_step_forward_begins_the_window_of_the_new_time() {
        let mut clock = WallClock::default();
        clock.step(Timestamp(10 * HOUR), hours(70));
        let PresentWindow { start, end } = clock.window(Timestamp(10 * HOUR), day);
        assert!(start > Timestamp(0) && end == Timestamp(26 * HOUR), "10 + 70 is the 8th hour of a day");
        assert_eq!(clock.end(Timestamp(0), day), Some(Timestamp(0)), "the window before is over");
        assert_eq!(clock.end(start, day), Some(end));
        assert_eq!(window(&clock, 26), (26, 50));
    }

    /// Booted three days ahead, and corrected: the present window stays until it is over, and then days are those of the
    /// right time.
    #[test]
    fn a_step_back_leaves_the_present_window_until_it_is_over() {
        let mut clock = WallClock::default();
        clock.step(Timestamp(100 * HOUR), hours(-70));
        assert_eq!(window(&clock, 100), (96, 120));
        assert_eq!(window(&clock, 119), (96, 120));
        let following = clock.window(Timestamp(120 * HOUR), day);
        assert_eq!(following.end, Timestamp(142 * HOUR), "120 - 70 is the 2nd hour of a day");
        assert!(following.start > Timestamp(96 * HOUR));
        assert_eq!(clock.end(following.start, day), Some(following.end));
        assert_eq!(clock.end(Timestamp(96 * HOUR), day), Some(Timestamp(120 * HOUR)));
        assert_eq!(window(&clock, 142), (142, 166));
    }

    /// A clock that runs fast, and is set back by a time server again and again.
    #[test]
    fn small_steps_never_end_a_window() {
        let mut clock = WallClock::default();
        for number in 1..10_000 {
            let at = Timestamp(5 * HOUR + number * HOUR / 1_000);
            clock.step(at, -2_000 * number.cast_signed());
            let PresentWindow { start, end } = clock.window(at, day);
            assert_eq!((start, end), (Timestamp(0), Timestamp(DAY + 2_000 * number)), "step {number}");
            assert_eq!(clock.end(start, day), Some(end));
        }
        assert!(clock.steps.len() < MAX_STEPS);
    }

    proptest! {
        /// Whatever the steps: windows follow each other, and none begins but at the end of the one before or with a step.
        #[test]
        fn each_step_begins_at_most_one_window(
            steps in prop::collection::vec((1..100_u64, -200_i64..200), 0..16),
        ) {
            let mut clock = WallClock::default();
            let (mut now, mut windows, mut begun) = (Timestamp(1_000 * HOUR), Vec::<PresentWindow>::new(), 0);
            let mut see = |clock: &WallClock, now: Timestamp| -> Result<(), TestCaseError> {
                let present = clock.window(now, day);
                prop_assert!(now < present.end, "{present:?} at {now:?}");
                prop_assert!(present.end.since(now).0 <= DAY);
                match windows.last().copied() {
                    Some(last) if last.start == present.start => *windows.last_mut().expect("one") = present,
                    Some(last) => {
                        prop_assert!(last.start < present.start, "{last:?}, then {present:?}");
                        begun += usize::from(now < last.end);
                        windows.push(present);
                    }
                    None => windows.push(present),
                }
                if let Some(end) = clock.end(present.start, day) {
                    prop_assert_eq!(end, present.end);
                }
                Ok(())
            };
            for (after, offset) in &steps {
                for minutes in (0..after * 60).step_by(20) {
                    see(&clock, now.plus(Micros(minutes * HOUR / 60)))?;
                }
                now = now.plus(Micros(after * HOUR));
                see(&clock, now)?;
                clock.step(now, hours(*offset));
                see(&clock, now)?;
            }
            for minutes in (0..100 * 60).step_by(20) {
                see(&clock, now.plus(Micros(minutes * HOUR / 60)))?;
            }
            prop_assert!(begun <= steps.len(), "{begun} windows begun before the end of another, {} steps", steps.len());
        }
    }
}
