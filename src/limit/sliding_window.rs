//! The sliding window: current count + previous count × overlap, in windows aligned to the clock.
//!
//! With a window of P µs, of which e have passed, and counts c and b of this window and the one before, c + b × (P - e)
//! ÷ P units are in use: the counter that Cloudflare described in 2017, here in exact integers. The remaining part of b
//! is rounded up to whole units, which decides the same, since costs and counts are whole.
//!
//! Bound: at most the count n is admitted in one aligned window, and less than 2n in any period of a window's length.

use std::fmt::{self, Formatter};

use super::limiter::{Limiter, Names, Packed, Stored, Viewed};
use super::rate_params::PerUnit;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait, changed};

/// The parameters of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    pub(crate) rate: Rate,
}

/// The time of the key's last charge, and the counts of that window and of the one before, at most 2^32 - 1 units each.
/// The default is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    pub(super) current: u32,
    pub(super) previous: u32,
}

/// A state advanced to a time.
#[derive(Clone, Copy)]
pub(super) struct WindowView {
    /// The time: now, or the state's own if that is later.
    at: Timestamp,
    /// The beginning of that time's window.
    start: Timestamp,
    current: u32,
    previous: u32,
}

impl Stored for State {
    fn pack(&self) -> Option<Packed> {
        let used = u64::from(self.previous) << u32::BITS | u64::from(self.current);
        Some(Packed { at: self.last, used })
    }

    fn unpack(packed: Packed) -> Option<Self> {
        Some(Self { last: packed.at, current: packed.low(), previous: packed.high() })
    }
}

impl From<WindowView> for State {
    #[inline]
    fn from(view: WindowView) -> Self {
        Self { last: view.at, current: view.current, previous: view.previous }
    }
}

impl Algorithm {
    /// Current count + previous count x overlap, windows aligned to the clock.
    pub fn sliding_window(rate: Rate) -> Self {
        Self::SlidingWindow(SlidingWindow::new(rate))
    }
}

impl SlidingWindow {
    /// `rate`'s count in windows of `rate`'s period.
    pub fn new(rate: Rate) -> Self {
        Self { rate }
    }

    /// The least previous count, of at most `max`, with a weight that falls by one unit `elapsed` µs into a window,
    /// and not before: no other that falls then falls more slowly afterwards. If none falls then, the one that falls
    /// soonest after.
    fn falling(&self, elapsed: u64, max: u32) -> u32 {
        let period = self.rate.period().0;
        let falls = period.div_ceil(elapsed.max(1));
        let not_before = if elapsed > 1 { (period - 1) / (elapsed - 1) } else { u64::MAX };
        u32::try_from(falls.min(not_before)).unwrap_or(u32::MAX).min(max)
    }

    /// The largest count, of at least `min`, with a weight that leaves room for the first unit `elapsed` µs into the
    /// next window.
    fn sunk(&self, elapsed: u64, min: u32) -> u32 {
        let period = self.rate.period().0;
        let (room, left) = (u64::from(self.rate.count() - 1), period.saturating_sub(elapsed));
        let count = match (room, left) {
            // There is room when nothing is left, of any count.
            (0, _) => 0,
            (_, 0) => u64::MAX,
            _ => multiply_divide(room, period, left),
        };
        u32::try_from(count).unwrap_or(u32::MAX).max(min)
    }

    #[inline]
    fn weighted(&self, view: WindowView) -> u64 {
        let previous = u64::from(view.previous);
        let gone = multiply_divide(previous, view.at.since(view.start).0, self.rate.period().0);
        u64::from(view.current) + previous - gone
    }

    /// The first time at which `units` fit, if they do not yet: `units` is at most the window's count.
    #[inline]
    fn opens(&self, view: WindowView, units: u32) -> Timestamp {
        let next = view.start.plus(self.rate.period());
        let room = self.rate.count() - units;
        if let Some(room) = room.checked_sub(view.current) {
            let moment = view.start.plus(self.sinks(view.previous, room));
            if moment < next {
                return moment;
            }
        }
        // In the next window the current count is the previous one; in the one after that it is gone.
        next.plus(self.sinks(view.current, room))
    }

    /// When, within a window, the weight of `previous` has sunk to `room`: the whole window if it never does.
    #[inline]
    fn sinks(&self, previous: u32, room: u32) -> Micros {
        let period = self.rate.period().0;
        if previous <= room {
            return Micros(0);
        }
        Micros(period - multiply_divide(room.into(), period, previous.into()))
    }
}

impl Limiter for SlidingWindow {
    type State = State;

    const NAMES: Names = Names {
        name: "sliding-window",
        letter: 'w',
        quota: "rate",
        module: ("sliding_window", include_str!("sliding_window.lua")),
    };

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    #[inline(always)]
    fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        self.decide_by_view(state, now, cost)
    }

    fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        self.peek_by_view(*state, now, cost)
    }

    /// Corrects the count of the window of `admitted_at`. Where that is neither the current nor the previous one, a charge
    /// is one of the current window, and a refund is void.
    fn settle(&self, state: State, admitted_at: Timestamp, difference: i64, now: Timestamp) -> State {
        let mut view = self.view(state, now);
        if admitted_at >= view.start {
            view.current = changed(view.current, difference);
        } else if admitted_at.plus(self.rate.period()) >= view.start {
            view.previous = changed(view.previous, difference);
        } else if difference > 0 {
            view.current = changed(view.current, difference);
        } else {
            return state;
        }
        if view.current == 0 && view.previous == 0 { State::default() } else { view.into() }
    }

    fn counted_at(&self, state: &State, now: Timestamp) -> Timestamp {
        now.max(state.last)
    }

    fn grant(&self, state: State, units: Cost, now: Timestamp) -> State {
        let view = self.view(state, now);
        let Some(left @ 1..) = self.weighted(view).checked_sub(units.units().into()) else {
            return State::default();
        };
        let previous = match units.units() > view.current {
            // The largest count with a weight of at most the rest.
            true => multiply_divide(
                left,
                self.rate.period().0,
                view.start.plus(self.rate.period()).since(view.at).0,
            ),
            false => view.previous.into(),
        };
        let current = view.current.saturating_sub(units.units());
        WindowView { current, previous: u32::try_from(previous).unwrap_or(u32::MAX), ..view }.into()
    }

    /// Units in use count for this window, where they weigh most for longest, but as few as possible for the window
    /// before, so that they fall by a unit at the reported time.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let used = self.rate.count().saturating_sub(remaining);
        if used == 0 {
            return State::default();
        }
        let period = self.rate.period().0;
        let falls = (now.0 % period).saturating_add(reset_after.0.max(1));
        if falls <= period {
            let previous = self.falling(falls, used);
            return State { last: now, current: used - previous, previous };
        }
        // Only this window's count has a weight beyond its end. It is the use, or more in debt.
        let current = if remaining == 0 { self.sunk(falls - period, used) } else { used };
        State { last: now, current, previous: 0 }
    }

    /// The end of the last window in which the charges have any weight.
    fn forget_at(&self, state: &State) -> Timestamp {
        let start = Timestamp(state.last.0 - state.last.0 % self.rate.period().0);
        match (state.current, state.previous) {
            (0, 0) => Timestamp(0),
            (0, _) => start.plus(self.rate.period()),
            _ => start.plus(self.rate.period()).plus(self.rate.period()),
        }
    }

    /// Units in use at `now`, rounded up.
    fn in_use(&self, state: &State, now: Timestamp) -> u64 {
        self.weighted(self.view(*state, now))
    }

    fn params(&self) -> [u64; 5] {
        [self.rate.period().0, self.rate.count().into(), 0, 0, 0]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in any {}, weighted", self.rate.count(), PerUnit(self.rate.period()))
    }
}

impl Viewed for SlidingWindow {
    type View = WindowView;

    #[inline]
    fn view(&self, state: State, now: Timestamp) -> WindowView {
        let at = now.max(state.last);
        let start = Timestamp(at.0 - at.0 % self.rate.period().0);
        let (current, previous) = if state.last >= start {
            (state.current, state.previous)
        } else if state.last.plus(self.rate.period()) >= start {
            (0, state.current)
        } else {
            (0, 0)
        };
        WindowView { at, start, current, previous }
    }

    #[inline(always)]
    fn verdict(&self, view: WindowView, now: Timestamp, cost: Cost) -> Verdict {
        let count = self.rate.count();
        if cost.units() > count {
            Verdict::Deny(Wait::Never)
        } else if self.weighted(view) <= u64::from(count - cost.units()) {
            Verdict::Allow
        } else {
            Verdict::Deny(Wait::After(self.opens(view, cost.units()).since(now)))
        }
    }

    #[inline(always)]
    fn report(&self, verdict: Verdict, view: WindowView, now: Timestamp) -> Decision {
        let remaining =
            self.rate.count().saturating_sub(u32::try_from(self.weighted(view)).unwrap_or(u32::MAX));
        let reset_after = if remaining == self.rate.count() {
            Micros(0)
        } else {
            self.opens(view, remaining + 1).since(now)
        };
        Decision { verdict, remaining: remaining.into(), reset_after }
    }

    #[inline(always)]
    fn charged(&self, view: WindowView, cost: Cost) -> WindowView {
        WindowView { current: view.current.saturating_add(cost.units()), ..view }
    }
}

/// a × b ÷ c, rounded down, exact for a < 2^32, b < 2^45 and any c > 0 with a quotient below 2^53.
///
/// Doubles find the same number by long division of `a` in digits of seven bits (`long_division_in_doubles` below).
fn multiply_divide(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As in the Lua implementation: a remainder below c and a digit below 2^7 give sums below 2^53.
    fn long_division_in_doubles(a: f64, b: f64, c: f64) -> f64 {
        let (mut quotient, mut rest) = (0.0, 0.0);
        for digit_index in (0..5).rev() {
            let digit = (a / 128_f64.powi(digit_index)).floor() % 128.0;
            let part = rest * 128.0 + digit * b;
            quotient = quotient * 128.0 + (part / c).floor();
            rest = part % c;
        }
        quotient
    }

    proptest! {
        #[test]
        fn doubles_give_the_same(a in 0..=u32::MAX, b in 0..=Rate::MAX_PERIOD.0, c in 1..=Rate::MAX_PERIOD.0, small in 1..=u32::MAX) {
            for (a, b, c) in [(a, b, c.max(b)), (a.min(small), b, u64::from(small.max(a)))] {
                let exact = multiply_divide(a.into(), b, c);
                prop_assert_eq!(exact as f64, long_division_in_doubles(a.into(), b as f64, c as f64));
            }
        }
    }
}
