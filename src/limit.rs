//! The core. A limit is a pure function of *(state, now, cost)* → *(state', decision)*.
//!
//! For example, a token bucket of 10/s with a burst of 20 that was emptied half a second ago has 5 tokens. A request of cost
//! 5 is admitted and leaves none. A request of cost 6 is refused: it has to wait for 100 ms, and the state stays.
//!
//! Only `std` below here: no clock, no I/O, no async, no logging. Each algorithm file exports its parameters, its
//! `State` and the same few functions (`limiter`); [`Algorithm`] and [`State`] are the closed choice between them
//! (`algorithms`).
//!
//! The caller passes the time. A `now` before the time of the state's last charge is replaced by that time: it grants
//! nothing, and a charge counts at that time. Waits count from `now` nevertheless. A time past 2^53 µs (the year 2255)
//! is replaced by 2^53. Windows of a clock or a calendar also depend on where the wall clock stands (`wall_clock`).

pub mod adaptive_concurrency;
mod algorithms;
pub mod ban;
mod bucket;
pub mod calendar;
pub mod concurrency;
pub mod display;
mod divisor;
pub mod fair_queue;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub mod lease;
mod limiter;
pub mod lua;
mod meter;
mod rate_params;
pub mod release_queue;
pub mod sliding_log;
pub mod sliding_window;
pub mod span;
pub mod token_bucket;
pub mod units;
pub mod wall_clock;

pub use algorithms::{Algorithm, State};
use algorithms::{Chosen as _, each};
use calendar::CalendarWindows;
use limiter::Limiter as _;
pub use limiter::Packed;
use lua::LuaParams;
use units::{Cost, Micros, Timestamp};
use wall_clock::WallTime;

/// An algorithm's decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admit, delay, or refuse.
    pub verdict: Verdict,
    /// How many more requests of one unit would be admitted at this same time, after this decision; never above the
    /// quota.
    pub remaining: u64,
    /// The shortest time after which `remaining` is larger than now (without further requests); zero if it is at its
    /// maximum. Never above the wait of a refusal.
    pub reset_after: Micros,
}

impl Decision {
    /// The time that a ban still lasts: of a decision on refusals.
    pub fn ban_rest(&self) -> Option<Micros> {
        match self.verdict {
            Verdict::Delay(rest) | Verdict::Deny(Wait::After(rest)) => Some(rest),
            Verdict::Allow | Verdict::Deny(_) => None,
        }
    }

    /// Whether the request is refused.
    #[inline]
    pub fn denies(&self) -> bool {
        matches!(self.verdict, Verdict::Deny(_))
    }
}

/// Admit, delay, or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward now.
    Allow,
    /// Forward after this delay: the request holds its place in the queue.
    Delay(Micros),
    /// Refuse.
    Deny(Wait),
}

/// How long a refused request has to wait. Of several waits, the greatest is told: a known one rather than an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Until other requests of the key end: the time is not known.
    Unknown,
    /// A client alone on its key is admitted, for the same cost, exactly this long later; not one microsecond before.
    After(Micros),
    /// Waiting cannot help: the cost exceeds the quota.
    Never,
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window since 1970 UTC.
    #[default]
    Clock,
    /// At the first request.
    FirstRequest,
    /// As days, weeks, months and years do in a time zone.
    Calendar(CalendarWindows),
}

impl Algorithm {
    /// Decides one request. A refusal returns the state unchanged (but for a sliding log with `count_denied`).
    pub fn decide(&self, state: State, now: Timestamp, cost: Cost) -> (State, Decision) {
        each!(self, limit => limit.decide_stored(state, now, cost))
    }

    /// The decision that [`Self::decide`] would give, without charging: its `remaining` and `reset_after` are those of
    /// the uncharged state.
    pub fn peek(&self, state: &State, now: Timestamp, cost: Cost) -> Decision {
        each!(self, limit => limit.ask(state, |own| limit.peek(own, now, cost)))
    }

    /// Corrects a cost admitted at `admitted_at` by `difference` units: if necessary into debt, during which nothing is
    /// admitted, or as a refund when negative, down to an unused state.
    ///
    /// The buckets give back in full even units refilled meanwhile: over any period, units admitted less units given
    /// back keep the bound. The windows and the log give back only units that still count at `now`, and the log only
    /// those of an admission that it finds at `admitted_at`; a charge that finds neither counts at `now`. So
    /// `admitted_at` has to be [`Self::counted_at`]. Debt is bounded: by 2^53 ticks of a bucket's meter (at least as much
    /// as the whole burst), by 2^32 - 1 units of a window or an event.
    pub fn settle(&self, state: State, admitted_at: Timestamp, difference: i64, now: Timestamp) -> State {
        each!(self, limit => limit.change(state, |own| limit.settle(own, admitted_at, difference, now)))
    }

    /// When a charge at `now` counted that left `state`: `now`, or the state's own time if that is later.
    pub fn counted_at(&self, state: &State, now: Timestamp) -> Timestamp {
        each!(self, limit => limit.ask(state, |own| limit.counted_at(own, now)))
    }

    /// A state for which [`Self::peek`] returns this `remaining` at `now`: for going on from a shared store's decision
    /// on a counter. Numbers that no state has are replaced by the nearest that a state has.
    ///
    /// If the numbers fit several states, the state is the one that stays full for longest, so as not to admit requests
    /// that the counter would have refused:
    ///
    /// - A bucket and a fixed window return the same `reset_after`, too. If the clock ran backwards, a bucket may admit
    ///   1 µs earlier.
    /// - A sliding window returns the same or a later `reset_after`; a sliding log mostly a later one: units in use
    ///   count from `now` on for a whole period. If the clock ran backwards, either may expire sooner.
    /// - A sliding log with `spacing` does not return its count: only the spacing is kept, and a count that is known to
    ///   be used up.
    pub fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> State {
        each!(self, limit => limit.resume_stored(remaining, reset_after, now))
    }

    /// Converts a state written under `from`, the same algorithm with other parameters, rounding against the client by
    /// less than one unit. A new window length starts afresh, and so does another algorithm.
    pub fn convert(&self, from: &Self, state: State, now: Timestamp) -> State {
        each!(self, limit => limit.convert_stored(from, state, now))
    }

    /// The time from which `state` equals the default state.
    pub fn forget_at(&self, state: &State) -> Timestamp {
        each!(self, limit => limit.ask(state, |own| limit.forget_at(own)))
    }

    /// Used ÷ quota at `now` as a fraction of 2^16 (65,536 = all used; more = in debt), for choosing the key to evict.
    /// Rounded up: only a fresh state is 0.
    pub fn used(&self, state: &State, now: Timestamp) -> u32 {
        let (used, quota) = each!(self, limit => limit.ask(state, |own| limit.used(own, now)));
        fraction(used, quota)
    }

    /// `q` of the RateLimit fields: burst, window count, or queue.
    pub fn quota(&self) -> u64 {
        each!(self, limit => limit.quota())
    }

    /// `w` of the RateLimit fields: the window, or for buckets the quota ÷ rate, rounded up; at most 2^53 µs.
    pub fn window(&self) -> Micros {
        each!(self, limit => limit.window())
    }

    /// The cost of a request that takes the whole quota.
    pub fn whole(&self) -> Cost {
        // A quota is a count of the config file, which has the range of a cost.
        u32::try_from(self.quota()).ok().and_then(Cost::new).unwrap_or(Cost::ONE)
    }

    /// The largest cost that can ever be admitted. (Any cost may join a leaky bucket's queue.)
    pub fn max_cost(&self) -> u64 {
        each!(self, limit => limit.max_cost())
    }

    /// Whether refused attempts count, too: then a refusal changes the state.
    pub fn counts_denied(&self) -> bool {
        each!(self, limit => limit.counts_denied())
    }

    /// The algorithm's name as configured: `token-bucket`, …
    pub fn name(&self) -> &'static str {
        each!(self, limit => limit.names().name)
    }

    /// The parameter of the config file that sets the quota: `burst`, `queue` or `rate`.
    pub fn quota_parameter(&self) -> &'static str {
        each!(self, limit => limit.names().quota)
    }

    /// The letter of the algorithm in the names of shared counters.
    pub fn letter(&self) -> char {
        each!(self, limit => limit.names().letter)
    }

    /// The period that a state depends on: states of another period start afresh. `None`: states are converted.
    pub fn state_period(&self) -> Option<Micros> {
        each!(self, limit => limit.period())
    }

    /// Whether a state keeps each event, so that it is never packed.
    #[inline(always)]
    pub fn keeps_events(&self) -> bool {
        each!(self, limit => limit.keeps_events())
    }

    /// This algorithm's Lua implementation and its parameters. Those of a calendar are of the time around `now`.
    pub fn twin(&self, now: WallTime) -> LuaParams<'_> {
        each!(self, limit => limit.twin(now))
    }

    /// The calendar that windows follow, if they do.
    pub fn calendar(&self) -> Option<CalendarWindows> {
        if let Self::CalendarWindow(window) = self { window.calendar() } else { None }
    }

    /// [`Self::window`] of the window that is current at `now`: those of a calendar differ in length.
    pub fn window_at(&self, now: Timestamp) -> Micros {
        match self.calendar() {
            None => self.window(),
            Some(calendar) => {
                let (start, end) = calendar.window(wall_clock::system().wall_time(now));
                end.since(start)
            }
        }
    }

    /// [`Self::decide`] on a packed state, for a store's hot path. `None` for a sliding log, which has no such state.
    #[inline(always)]
    pub fn decide_packed(&self, state: Packed, now: Timestamp, cost: Cost) -> Option<(Packed, Decision)> {
        each!(self, limit => limit.decide_packed(state, now, cost))
    }

    /// [`Self::decide`] on a sliding log in place, for a store's hot path. `may_hold` is asked whether the log may hold
    /// this number of events. `None`, with the state unchanged: it may not, it has a state of another kind, or it counts
    /// refused attempts.
    pub fn decide_log(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: Cost,
        may_hold: impl FnOnce(usize) -> bool,
    ) -> Option<Decision> {
        match (self, state) {
            (Self::SlidingLog(limit), State::SlidingLog(own)) => {
                limit.decide_in_place(own, now, cost, may_hold)
            }
            _ => None,
        }
    }

    /// The state of this algorithm from its packed form. A sliding log's is fresh: it is never packed.
    pub fn unpacked(&self, state: Packed) -> State {
        if state.used == 0 {
            return State::Fresh;
        }
        each!(self, limit => limit.unpack_stored(state))
    }
}

/// `count` corrected by `difference`, within 0 to 2^32 - 1.
fn changed(count: u32, difference: i64) -> u32 {
    let changed = i64::from(count).saturating_add(difference).max(0);
    u32::try_from(changed).unwrap_or(u32::MAX)
}

/// `used` ÷ `quota` in 2^-16, rounded up.
fn fraction(used: u64, quota: u64) -> u32 {
    let parts = if used < 1 << 48 {
        (used << 16).div_ceil(quota.max(1))
    } else {
        used.div_ceil((quota >> 16).max(1))
    };
    u32::try_from(parts).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_up_to_the_greatest_quota() {
        for quota in [1, 3, 1 << 16, (1 << 48) - 1, 1 << 48, 1 << 53] {
            assert_eq!((fraction(0, quota), fraction(quota, quota)), (0, 1 << 16), "{quota}");
            assert!(fraction(quota / 2 + 1, quota) > 1 << 15, "{quota}");
        }
    }
}
