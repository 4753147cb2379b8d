//! The ban: a key that is refused too often within a span is refused everything for a time.
//!
//! Its state is the refusals that still count, and the last ban; what it decides on is a refusal (its cost: how many).
//! A refusal at t counts until t + `within` and no longer. The refusal that makes `after` of them begins a ban: the
//! count begins anew, and the ban lasts as long as the list says: the first ban the first span, each further one the
//! next, and then always the last. Bans are forgotten when ten times the longest span has passed since the last ended.
//!
//! Refusals during a ban do not count, and leave the state unchanged.
//!
//! Bound: a state keeps at most `after` refusals, one entry per µs.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};

use super::limiter::{Limiter, Names, Packed, Stored};
use super::rate_params::{PerUnit, Window};
use super::units::{Cost, Micros, Timestamp};
use super::wall_clock::WallTime;
use super::{Algorithm, Decision, Verdict, Wait};

/// Bans are forgotten after this many times the longest span.
const FORGOTTEN_AFTER: u64 = 10;

/// The parameters of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ban {
    pub(crate) after: u32,
    pub(crate) within: Micros,
    /// The spans of successive bans; those past `count` are zero.
    spans: [Micros; Ban::MAX_SPANS],
    count: usize,
}

/// The refusals that count, oldest first, and the last ban. The default is unused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    refusals: VecDeque<(Timestamp, u32)>,
    /// The sum of all refusals.
    units: u32,
    /// When the last ban ends or has ended; zero without one.
    until: Timestamp,
    /// The bans so far that are not forgotten.
    bans: u32,
}

impl State {
    /// The state as numbers, for files that outlive the process.
    pub(super) fn words(&self) -> Vec<u64> {
        let refusals = self.refusals.iter().flat_map(|(at, count)| [at.0, u64::from(*count)]);
        [self.until.0, self.bans.into()].into_iter().chain(refusals).collect()
    }

    /// The state with these numbers. `None`: there is none.
    pub(super) fn of_words(words: &[u64]) -> Option<Self> {
        let ([until, bans], refusals) = words.split_first_chunk()?;
        let (pairs, []) = refusals.as_chunks::<2>() else { return None };
        let refusal = |&[at, count]: &[u64; 2]| Some((Timestamp(at), u32::try_from(count).ok()?));
        let refusals = pairs.iter().map(refusal).collect::<Option<VecDeque<_>>>()?;
        let is_ordered = refusals.iter().is_sorted_by(|(one, _), (next, _)| one <= next);
        let units = refusals.iter().try_fold(0_u32, |units, (_, count)| units.checked_add(*count))?;
        let (until, bans) = (Timestamp(*until), u32::try_from(*bans).ok()?);
        is_ordered.then_some(Self { refusals, units, until, bans })
    }
}

impl Stored for Box<State> {
    fn pack(&self) -> Option<Packed> {
        None
    }

    fn unpack(_: Packed) -> Option<Self> {
        None
    }

    fn weight(&self) -> usize {
        self.refusals.len().max(1)
    }
}

impl Algorithm {
    /// After `after` refusals within `within`, a ban for the first of `spans`; each further one for the next. `None`
    /// unless `after` is 1 to [`Ban::MAX_AFTER`], and there are 1 to [`Ban::MAX_SPANS`] spans.
    pub fn ban(after: u32, within: Micros, spans: &[Micros]) -> Option<Self> {
        Ban::new(after, within, spans).map(Self::Ban)
    }

    /// The ban, if it is one.
    pub fn as_ban(&self) -> Option<&Ban> {
        if let Self::Ban(ban) = self { Some(ban) } else { None }
    }
}

impl Ban {
    /// The maximum number of spans.
    pub const MAX_SPANS: usize = 8;
    /// The maximum of `after`: each refusal that counts is kept.
    pub const MAX_AFTER: u32 = 10_000;

    fn new(after: u32, within: Micros, spans: &[Micros]) -> Option<Self> {
        let mut kept = [Micros(0); Self::MAX_SPANS];
        kept.get_mut(..spans.len())?.copy_from_slice(spans);
        let sound = (1..=Self::MAX_AFTER).contains(&after) && !spans.is_empty();
        sound.then_some(Self { after, within, spans: kept, count: spans.len() })
    }

    /// Why a key is banned: `20 refusals in 10 minutes`.
    pub fn cause(&self) -> impl Display {
        let (after, within) = (self.after, Window(self.within));
        std::fmt::from_fn(move |f| {
            let noun = if after == 1 { "refusal" } else { "refusals" };
            write!(f, "{after} {noun} in {within}")
        })
    }

    /// The spans of successive bans.
    pub(crate) fn spans(&self) -> &[Micros] {
        self.spans.get(..self.count).unwrap_or_default()
    }

    /// How long after the end of a ban it is forgotten.
    fn memory(&self) -> Micros {
        let longest = self.spans().iter().max().copied().unwrap_or_default();
        Micros(longest.0.saturating_mul(FORGOTTEN_AFTER))
    }

    /// The span of the ban after `bans` others.
    fn span(&self, bans: u32) -> Micros {
        let index = (bans as usize).min(self.count.saturating_sub(1));
        self.spans().get(index).copied().unwrap_or_default()
    }

    /// The refusals that count at `now`: how many entries have expired, and the sum of the others.
    fn counting(&self, state: &State, now: Timestamp) -> (usize, u32) {
        let (mut expired, mut units) = (0, state.units);
        for (at, count) in &state.refusals {
            if at.plus(self.within) > now {
                break;
            }
            expired += 1;
            units -= count;
        }
        (expired, units)
    }

    /// No earlier than the newest refusal: time that runs backwards makes no refusal count longer.
    fn time(state: &State, now: Timestamp) -> Timestamp {
        state.refusals.back().map_or(now, |(at, _)| now.max(*at))
    }

    fn report(&self, state: &State, now: Timestamp) -> Decision {
        if now < state.until {
            let rest = state.until.since(now);
            return Decision { verdict: Verdict::Deny(Wait::After(rest)), remaining: 0, reset_after: rest };
        }
        let (expired, units) = self.counting(state, Self::time(state, now));
        let reset_after =
            state.refusals.get(expired).map_or(Micros(0), |(at, _)| at.plus(self.within).since(now));
        let remaining = self.after.saturating_sub(units).into();
        Decision { verdict: Verdict::Allow, remaining, reset_after }
    }
}

impl Limiter for Ban {
    type State = Box<State>;

    const NAMES: Names =
        Names { name: "ban", letter: 'b', quota: "after", module: ("ban", include_str!("ban.lua")) };

    /// Counts `cost` refusals at `now`. Denied: the key is banned, or this begins a ban. `remaining` is the number of
    /// refusals without a ban, plus one.
    fn decide(&self, mut state: Box<State>, now: Timestamp, cost: Cost) -> (Box<State>, Decision) {
        if now < state.until {
            let decision = self.report(&state, now);
            return (state, decision);
        }
        let at = Self::time(&state, now);
        let (expired, units) = self.counting(&state, at);
        if now >= state.until.plus(self.memory()) {
            state.bans = 0;
        }
        match units.saturating_add(cost.units()) {
            units if units >= self.after => {
                let until = now.plus(self.span(state.bans));
                *state = State { until, bans: state.bans.saturating_add(1), ..State::default() };
            }
            units => {
                state.refusals.drain(..expired);
                state.units = units;
                match state.refusals.back_mut() {
                    Some((last, count)) if *last == at => *count += cost.units(),
                    _ => state.refusals.push_back((at, cost.units())),
                }
            }
        }
        let decision = self.report(&state, now);
        (state, decision)
    }

    /// Whether the key is banned.
    fn peek(&self, state: &Box<State>, now: Timestamp, _cost: Cost) -> Decision {
        self.report(state, now)
    }

    /// Refusals are never corrected.
    fn settle(&self, state: Box<State>, _: Timestamp, _: i64, _: Timestamp) -> Box<State> {
        state
    }

    /// A ban of the known length, without the refusals before it.
    fn resume(&self, remaining: u64, reset_after: Micros, now: Timestamp) -> Box<State> {
        match remaining {
            0 => Box::new(State { until: now.plus(reset_after), bans: 1, ..State::default() }),
            _ => Box::default(),
        }
    }

    /// The last ban stays, and the refusals that count for as long as before; no more than can be without a ban.
    fn convert(&self, _from: &Self, mut state: Box<State>, _now: Timestamp) -> Box<State> {
        while state.units >= self.after {
            let Some((_, count)) = state.refusals.pop_front() else { break };
            state.units -= count;
        }
        state
    }

    fn forget_at(&self, state: &Box<State>) -> Timestamp {
        let counting = state.refusals.back().map_or(Timestamp(0), |(at, _)| at.plus(self.within));
        match state.bans {
            0 => counting,
            _ => counting.max(state.until.plus(self.memory())),
        }
    }

    /// The refusals that count at `now`; of a banned key all that can count.
    fn in_use(&self, state: &Box<State>, now: Timestamp) -> u64 {
        let held = if now < state.until { self.after } else { self.counting(state, now).1 };
        held.into()
    }

    fn quota(&self) -> u64 {
        self.after.into()
    }

    fn window(&self) -> Micros {
        self.within
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    /// A refusal changes the state, and so does the one that begins a ban.
    fn counts_denied(&self) -> bool {
        true
    }

    #[inline(always)]
    fn keeps_events(&self) -> bool {
        true
    }

    fn params(&self) -> [u64; 5] {
        [self.after.into(), self.within.0, self.memory().0, 0, 0]
    }

    fn spans(&self, _now: WallTime) -> &[Micros] {
        Self::spans(self)
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: banned for ", self.cause())?;
        for (index, span) in self.spans().iter().enumerate() {
            let joint = if index > 0 { ", then " } else { "" };
            write!(f, "{joint}{}", Window(*span))?;
        }
        Ok(())
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "after {} in {}", self.after, PerUnit(self.within))
    }
}
