//! The sliding log: every admitted request of the last period is stored, so it is exact.
//!
//! An event at t counts until t + period and no longer. With `spacing` s, two admitted requests are at least s apart; a
//! spacing longer than the period replaces the period (requests that far apart never share a period anyway).
//!
//! With `count_denied` refused attempts are stored too, and the wait sent to a refused client includes its own attempt:
//! it is admitted after the wait if it makes no further attempt. At most the newest `count` units are kept then: while
//! those count nothing is admitted, and older ones expire before them, so they could never decide anything. Where more
//! count already, since the count was larger before, as many are kept: it may become larger again. An attempt that could
//! never be admitted is not stored.
//!
//! Bound: at most the count is admitted in any half-open span of a period's length. Events are kept in order of time,
//! one per µs; a decision reads at most as many events as its cost, and removes each once.

use std::collections::VecDeque;
use std::fmt::{self, Formatter};

use super::limiter::{Limiter, Names, Packed, Stored};
use super::rate_params::{PerUnit, Window};
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, Verdict, Wait, changed};

/// A log with capacity for this many times its events frees memory.
const ROOMY: usize = 8;

/// The parameters of a sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(crate) rate: Rate,
    pub(crate) spacing: Option<Micros>,
    pub(crate) count_denied: bool,
    /// How long an event counts.
    horizon: Micros,
}

/// The events, oldest first. The default is unused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    events: VecDeque<Event>,
    /// When the log was last written: no earlier than the newest event.
    last: Timestamp,
    /// The sum of all events.
    units: u64,
    /// The newest event with admitted units.
    admitted_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    at: Timestamp,
    admitted: u32,
    denied: u32,
}

/// A state advanced to a time.
#[derive(Clone, Copy)]
struct LogView<'a> {
    log: &'a State,
    /// The time: now, or the log's own if that is later.
    at: Timestamp,
    /// The number of expired events at the front.
    expired: usize,
    /// The sum of the others.
    units: u64,
}

impl Algorithm {
    /// Exact; `spacing` is the least distance between admitted requests; with `count_denied` refused attempts count
    /// too.
    pub fn sliding_log(rate: Rate, spacing: Option<Micros>, count_denied: bool) -> Self {
        Self::SlidingLog(SlidingLog::new(rate, spacing, count_denied))
    }
}

impl SlidingLog {
    /// `rate`'s count in any span of `rate`'s period.
    pub fn new(rate: Rate, spacing: Option<Micros>, count_denied: bool) -> Self {
        let spacing = spacing.filter(|span| span.0 > 0);
        let horizon = rate.period().max(spacing.unwrap_or_default());
        Self { rate, spacing, count_denied, horizon }
    }

    /// The same log, with another rate.
    pub(super) fn with_rate(&self, rate: Rate) -> Self {
        Self::new(rate, self.spacing, self.count_denied)
    }

    /// When the newest event expires.
    fn expires_at(&self, log: &State) -> Timestamp {
        log.events.back().map_or(Timestamp(0), |event| event.at.plus(self.horizon))
    }

    fn view<'a>(&self, log: &'a State, now: Timestamp) -> LogView<'a> {
        let at = now.max(log.last);
        if self.expires_at(log) <= at {
            return LogView { log, at, expired: log.events.len(), units: 0 };
        }
        let (mut expired, mut units) = (0, log.units);
        while let Some(event) = log.events.get(expired).filter(|event| event.at.plus(self.horizon) <= at) {
            expired += 1;
            units -= event.units();
        }
        LogView { log, at, expired, units }
    }

    fn verdict(&self, view: LogView<'_>, now: Timestamp, cost: Cost) -> Verdict {
        let (count, cost) = (u64::from(self.rate.count()), u64::from(cost.units()));
        if cost > count {
            return Verdict::Deny(Wait::Never);
        }
        if view.units + cost <= count && self.spaced_at(view.log) <= view.at {
            return Verdict::Allow;
        }
        let own = if self.count_denied { cost } else { 0 };
        Verdict::Deny(Wait::After(self.opens(view, own, cost).since(now)))
    }

    fn report(&self, verdict: Verdict, view: LogView<'_>, now: Timestamp) -> Decision {
        let room = u64::from(self.rate.count()).saturating_sub(view.units);
        let (remaining, max) = match self.spacing {
            None => (room, u64::from(self.rate.count())),
            // Requests at the same time are not spaced: no second one is admitted.
            Some(_) if self.spaced_at(view.log) > view.at => (0, 1),
            Some(_) => (room.min(1), 1),
        };
        let reset_after =
            if remaining == max { Micros(0) } else { self.opens(view, 0, remaining + 1).since(now) };
        Decision { verdict, remaining, reset_after }
    }

    /// The time from which `spacing` admits a request.
    fn spaced_at(&self, log: &State) -> Timestamp {
        match (self.spacing, log.admitted_at) {
            (Some(spacing), Some(last)) => last.plus(spacing),
            _ => Timestamp(0),
        }
    }

    /// The first time at which `units` are admitted, if an attempt of `own` units is logged now and nothing else
    /// happens.
    fn opens(&self, view: LogView<'_>, own: u64, units: u64) -> Timestamp {
        let mut excess = (view.units + own + units).saturating_sub(self.rate.count().into());
        let mut moment = view.at;
        for event in view.log.events.range(view.expired..) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(event.units());
            moment = event.at.plus(self.horizon);
        }
        if excess > 0 {
            moment = view.at.plus(self.horizon);
        }
        moment.max(self.spaced_at(view.log))
    }

    /// The event of an attempt at `at`. `None`: nothing is logged of it.
    fn event(&self, verdict: Verdict, at: Timestamp, cost: Cost) -> Option<Event> {
        match verdict {
            // A request that costs nothing yet.
            _ if cost == Cost::ZERO => None,
            Verdict::Deny(Wait::After(_)) if self.count_denied => {
                Some(Event { at, admitted: 0, denied: cost.units() })
            }
            Verdict::Deny(_) => None,
            Verdict::Allow | Verdict::Delay(_) => Some(Event { at, admitted: cost.units(), denied: 0 }),
        }
    }

    /// [`Algorithm::decide_log`].
    pub(super) fn decide_in_place(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: Cost,
        may_hold: impl FnOnce(usize) -> bool,
    ) -> Option<Decision> {
        // How many events are trimmed is known only when they are.
        if self.count_denied {
            return None;
        }
        let view = self.view(state, now);
        let verdict = self.verdict(view, now, cost);
        let Some(event) = self.event(verdict, view.at, cost) else {
            return Some(self.report(verdict, view, now));
        };
        let (expired, kept) = (view.expired, state.events.len() - view.expired);
        let joins = kept > 0 && state.events.back().is_some_and(|newest| newest.at == event.at);
        if !may_hold(kept + usize::from(!joins)) {
            return None;
        }
        self.log(state, expired, event);
        Some(self.report(verdict, self.view(state, now), now))
    }

    /// Adds an attempt, which may be denied.
    fn log(&self, state: &mut State, expired: usize, event: Event) {
        let max_units = state.append(expired, event).max(self.rate.count().into());
        if self.count_denied {
            state.trim(max_units);
        }
    }
}

impl State {
    /// Removes the expired events and adds `event`. Returns the units of the others.
    fn append(&mut self, expired: usize, event: Event) -> u64 {
        let state = self;
        for gone in state.events.drain(..expired) {
            state.units -= gone.units();
        }
        let before = state.units;
        state.last = event.at;
        if event.admitted > 0 {
            state.admitted_at = Some(event.at);
        }
        match state.events.back_mut().filter(|newest| newest.at == event.at) {
            Some(newest) => {
                // An event holds no more than a count does.
                let held = newest.units();
                newest.admitted = newest.admitted.saturating_add(event.admitted);
                newest.denied = newest.denied.saturating_add(event.denied);
                state.units += newest.units() - held;
            }
            None => {
                state.units += event.units();
                state.events.push_back(event);
            }
        }
        if state.events.capacity() > ROOMY * state.events.len() {
            state.events.shrink_to(2 * state.events.len());
        }
        before
    }
}

/// A state stays in its box.
impl Limiter for SlidingLog {
    type State = Box<State>;

    const NAMES: Names = Names {
        name: "sliding-log",
        letter: 's',
        quota: "rate",
        module: ("sliding_log", include_str!("sliding_log.lua")),
    };

    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn decide(&self, mut state: Box<State>, now: Timestamp, cost: Cost) -> (Box<State>, Decision) {
        let view = self.view(&state, now);
        let verdict = self.verdict(view, now, cost);
        let Some(event) = self.event(verdict, view.at, cost) else {
            let decision = self.report(verdict, view, now);
            return (state, decision);
        };
        let expired = view.expired;
        self.log(&mut state, expired, event);
        let decision = self.report(verdict, self.view(&state, now), now);
        (state, decision)
    }

    fn peek(&self, state: &Box<State>, now: Timestamp, cost: Cost) -> Decision {
        let view = self.view(state, now);
        self.report(self.verdict(view, now, cost), view, now)
    }

    /// Corrects units admitted at `admitted_at`, if they still count at `now`. Otherwise a charge is an event of its own,
    /// and a refund is void.
    fn settle(
        &self,
        mut state: Box<State>,
        admitted_at: Timestamp,
        difference: i64,
        now: Timestamp,
    ) -> Box<State> {
        let LogView { at, expired, .. } = self.view(&state, now);
        let found = state.events.binary_search_by_key(&admitted_at, |event| event.at);
        let Some(index) = found.ok().filter(|index| *index >= expired) else {
            let admitted = changed(0, difference);
            if admitted > 0 {
                state.append(expired, Event { at, admitted, denied: 0 });
            }
            return state;
        };
        let event = &mut state.events[index];
        let before = event.units();
        event.admitted = changed(event.admitted, difference);
        let after = event.units();
        state.units = state.units - before + after;
        if after == 0 {
            state.events.remove(index);
        }
        if state.events.is_empty() {
            return Box::default();
        }
        state.admitted_at = state.events.iter().rev().find(|event| event.admitted > 0).map(|event| event.at);
        state
    }

    fn counted_at(&self, state: &Box<State>, now: Timestamp) -> Timestamp {
        now.max(state.last)
    }

    fn grant(&self, mut state: Box<State>, units: Cost, now: Timestamp) -> Box<State> {
        let units = u64::from(units.units());
        if units >= self.view(&state, now).units {
            return Box::default();
        }
        // Expired events stay, since `now` is not logged here: a clock that goes back makes them count again.
        state.units -= units;
        let mut left = units;
        while let Some(newest) = state.events.back_mut().filter(|newest| left > 0 || newest.units() == 0) {
            left -= newest.lose(left);
            if newest.units() == 0 {
                state.events.pop_back();
            }
        }
        state.admitted_at = state.events.iter().rev().find(|event| event.admitted > 0).map(|event| event.at);
        state
    }

    /// The times of the events are unknown: all are assumed at `now`; a single one has a known time.
    ///
    /// With `spacing` only the next admission and its time are known: that is kept. Unless the wait is longer than the
    /// spacing, the number of units in use is unknown, so only one is assumed.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Box<State> {
        let opens = now.plus(reset_after.max(Micros(1)));
        let before_opening = |span: Micros| Timestamp(opens.0.saturating_sub(span.0));
        let spaced = self.spacing.filter(|spacing| reset_after <= *spacing && self.rate.count() > 1);
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let (at, units) = match (self.rate.count().saturating_sub(remaining), spaced) {
            (0, _) => return Box::default(),
            (_, _) if self.spacing.is_some() && remaining > 0 => return Box::default(),
            (_, Some(spacing)) => (before_opening(spacing), 1),
            (1, None) => (before_opening(self.horizon), 1),
            (units, None) => (before_opening(self.horizon).max(now), units),
        };
        Box::new(State::once(at, units))
    }

    fn forget_at(&self, state: &Box<State>) -> Timestamp {
        self.expires_at(state)
    }

    /// Units that count at `now`.
    fn in_use(&self, state: &Box<State>, now: Timestamp) -> u64 {
        self.view(state, now).units
    }

    #[inline(always)]
    fn keeps_events(&self) -> bool {
        true
    }

    fn counts_denied(&self) -> bool {
        self.count_denied
    }

    fn params(&self) -> [u64; 5] {
        let spacing = self.spacing.unwrap_or_default();
        [self.rate.period().0, self.rate.count().into(), spacing.0, self.count_denied.into(), 0]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in any {}, exactly", self.rate.count(), PerUnit(self.rate.period()))?;
        if let Some(spacing) = self.spacing {
            write!(f, ", at least {} apart", Window(spacing))?;
        }
        if self.count_denied { f.write_str(", refused attempts count too") } else { Ok(()) }
    }
}

/// A log counts as one entry for each event, and is never packed.
impl Stored for Box<State> {
    fn pack(&self) -> Option<Packed> {
        None
    }

    fn unpack(_: Packed) -> Option<Self> {
        None
    }

    fn weight(&self) -> usize {
        self.events.len().max(1)
    }
}

impl State {
    /// The state as numbers, for files that outlive the process.
    pub(super) fn words(&self) -> Vec<u64> {
        let admitted_at = self.admitted_at.map_or(u64::MAX, |at| at.0);
        let events = self.events.iter();
        let events =
            events.flat_map(|event| [event.at.0, u64::from(event.admitted) << 32 | u64::from(event.denied)]);
        [self.last.0, admitted_at].into_iter().chain(events).collect()
    }

    /// The state with these numbers. `None`: there is none.
    pub(super) fn of_words(words: &[u64]) -> Option<Self> {
        let ([last, admitted_at], events) = words.split_first_chunk()?;
        let (pairs, []) = events.as_chunks::<2>() else { return None };
        #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
        let event = |&[at, units]: &[u64; 2]| Event {
            at: Timestamp(at),
            admitted: (units >> 32) as u32,
            denied: units as u32,
        };
        let events: VecDeque<Event> = pairs.iter().map(event).collect();
        let is_ordered = events.iter().is_sorted_by(|one, next| one.at < next.at);
        let (last, units) = (Timestamp(*last), events.iter().map(|event| event.units()).sum());
        let is_sound = is_ordered && events.back().is_none_or(|newest| newest.at <= last);
        let admitted_at = (*admitted_at != u64::MAX).then_some(Timestamp(*admitted_at));
        is_sound.then_some(Self { events, last, units, admitted_at })
    }

    /// Units admitted at one time.
    fn once(at: Timestamp, units: u32) -> Self {
        let events = VecDeque::from([Event { at, admitted: units, denied: 0 }]);
        Self { events, last: at, units: units.into(), admitted_at: Some(at) }
    }

    /// Removes the oldest units beyond the newest `max`, of one event the refused ones first.
    fn trim(&mut self, max: u64) {
        while self.units > max {
            let excess = self.units - max;
            let Some(oldest) = self.events.front_mut() else { return };
            self.units -= oldest.lose(excess);
            if oldest.units() == 0 {
                self.events.pop_front();
            }
        }
    }
}

impl Event {
    fn units(&self) -> u64 {
        u64::from(self.admitted) + u64::from(self.denied)
    }

    /// Removes up to `max` units, the refused ones first. Returns their number.
    fn lose(&mut self, max: u64) -> u64 {
        let before = self.units();
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let denied = self.denied.min(max);
        self.denied -= denied;
        self.admitted = self.admitted.saturating_sub(max - denied);
        before - self.units()
    }
}
