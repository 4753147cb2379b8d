//! Leases: units of a shared counter that a process takes in advance, and then spends by itself.
//!
//! The units of a lease are charged to the shared counter when they are taken ([`ledger`]). The process spends them for
//! 98 % of the lease, counted from before it asked; what is left then goes back. So no clock that is wrong by less than
//! 2 % spends a unit after the store's time of the grant plus the lease. Units of a window end with their window.
//!
//! Bound: a window never admits more than its count. A bucket admits at most `burst` + (t + lease) × rate units in any
//! period t, since what is spent in t was charged in the period of t + lease that ends with it.
//!
//! The state here is the units that this process has left, and how fast it spends them. It takes as many in advance as it
//! spent in about a tenth of the lease. A key whose requests are rarer than that has no units in advance: the store
//! decides each of them.

pub mod ledger;

use std::fmt::{self, Display as _, Formatter};

use super::limiter::{Limiter, Names, Packed, Stored};
use super::rate_params::Window;
use super::units::{Cost, Micros, Rate, Timestamp};
use super::{Algorithm, Decision, State, Verdict, Wait};

/// The parameters of leases: how long they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    period: Micros,
}

/// The units that a process has of one shared counter. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasedUnits {
    /// When the units end: from then on they are not spent.
    ends: Timestamp,
    /// The units left.
    left: u32,
    /// About how many were spent in a tenth of the lease: halved for each tenth that has passed since `tick`.
    spent: u32,
    /// The number of the tenth of the last charge, modulo 2^16.
    tick: u16,
    /// More units are on their way.
    is_renewing: bool,
}

/// What becomes of units that were taken: see [`Lease::deposit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// The units that the process has now.
    pub units: LeasedUnits,
    /// The units of an earlier lease that go back.
    pub returned: u32,
    /// The new units joined those of an earlier lease, and end when these do.
    pub joined: bool,
}

impl LeasedUnits {
    /// The most units left: 24 bits.
    pub const MAX: u32 = (1 << 24) - 1;
    /// The most units that are counted as spent: 23 bits.
    const MAX_SPENT: u32 = (1 << 23) - 1;

    /// The units left, whether they have ended or not.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// When they end.
    pub const fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Whether more units are on their way.
    pub const fn is_renewing(&self) -> bool {
        self.is_renewing
    }
}

impl Stored for LeasedUnits {
    fn pack(&self) -> Option<Packed> {
        let words = u64::from(self.left) << 40 | u64::from(self.spent) << 17;
        // The tick alone is no use.
        let used = if words == 0 && !self.is_renewing {
            0
        } else {
            words | u64::from(self.is_renewing) << 16 | u64::from(self.tick)
        };
        Some(Packed { at: self.ends, used })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the bits of each part are meant")]
    fn unpack(Packed { at, used }: Packed) -> Option<Self> {
        Some(Self {
            ends: at,
            left: (used >> 40) as u32,
            spent: (used >> 17) as u32 & Self::MAX_SPENT,
            tick: used as u16,
            is_renewing: used >> 16 & 1 == 1,
        })
    }
}

impl Algorithm {
    /// Units in advance for `period`. `None` unless it is 100 ms to 60 s.
    pub fn lease(period: Micros) -> Option<Self> {
        Lease::new(period).map(Self::Lease)
    }

    /// The lease, if it is one.
    pub fn as_lease(&self) -> Option<&Lease> {
        if let Self::Lease(lease) = self { Some(lease) } else { None }
    }

    /// Whether a process may take units of this limit in advance: a bucket of more than one unit, or a window.
    pub fn can_be_leased(&self) -> bool {
        match self {
            Self::TokenBucket(_)
            | Self::FixedWindow(_)
            | Self::CalendarWindow(_)
            | Self::SlidingWindow(_) => true,
            Self::Gcra(limit) => limit.burst > Cost::ONE,
            Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_)
            | Self::Ban(_)
            | Self::Lease(_) => false,
        }
    }

    /// How long the window lasts that counts a charge at `now`, of which `decision` tells. `None`: it has no window.
    /// `now` is the time of the store.
    pub fn rest_of_window(&self, decision: &Decision, now: Timestamp) -> Option<Micros> {
        match self {
            Self::FixedWindow(_) | Self::CalendarWindow(_) => Some(decision.reset_after),
            Self::SlidingWindow(_) => {
                let period = self.rate()?.period().0;
                Some(Micros(period - now.0 % period))
            }
            _ => None,
        }
    }
}

/// As it is stored: without units and without a use, fresh.
impl From<LeasedUnits> for State {
    fn from(units: LeasedUnits) -> Self {
        if units.pack().is_some_and(|packed| packed.used > 0) { Self::Lease(units) } else { Self::Fresh }
    }
}

impl State {
    /// The leased units; none if it is a state of another algorithm.
    pub fn leased_units(&self) -> LeasedUnits {
        if let Self::Lease(units) = self { *units } else { LeasedUnits::default() }
    }
}

impl Lease {
    /// The shortest lease: 100 ms.
    pub const MIN: Micros = Micros(100_000);
    /// The longest lease: 60 s.
    pub const MAX: Micros = Micros(60_000_000);
    /// Fewer units are not taken in advance: each would cost a call of its own.
    const MIN_UNITS: u32 = 2;

    /// `None` unless `period` is 100 ms to 60 s.
    pub fn new(period: Micros) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&period).then_some(Self { period })
    }

    /// How long units are leased.
    pub const fn duration(&self) -> Micros {
        self.period
    }

    /// The most units that are taken of a limit with this rate: rate × lease, at least one.
    pub fn max_units(&self, rate: Rate) -> u32 {
        let units = u128::from(rate.count()) * u128::from(self.period.0) / u128::from(rate.period().0);
        u32::try_from(units).unwrap_or(u32::MAX).clamp(1, LeasedUnits::MAX)
    }

    /// When units end that the store was asked for at `asked`, in a window of which `rest` is left: 2 % early.
    pub fn ends(&self, asked: Timestamp, rest: Option<Micros>) -> Timestamp {
        let span = rest.map_or(self.period, |rest| rest.min(self.period));
        asked.plus(Micros(span.0 - span.0.div_ceil(50)))
    }

    /// How long after a grant the store still takes units back: with time for the way.
    pub const fn returnable(&self) -> Micros {
        Micros(2 * self.period.0 + Micros::SECOND.0)
    }

    /// How long a process refuses by a refusal of the store without asking again, where the limit would admit sooner: a
    /// tenth of the lease and no more than 100 ms, in which at most a quarter of a bucket refills.
    pub fn pause(&self, algorithm: &Algorithm) -> Micros {
        let quarter = algorithm.window().0 / 4;
        Micros((self.period.0 / 10).min(100_000).min(quarter))
    }

    /// The units that a request may spend, or that were counted before, at `now`.
    fn current(&self, units: LeasedUnits, now: Timestamp) -> LeasedUnits {
        let tick = self.tick(now);
        if now >= self.forget_at(&units) {
            return LeasedUnits { tick, left: units.left, ends: units.ends, ..LeasedUnits::default() };
        }
        let passed = tick.wrapping_sub(units.tick).min(31);
        LeasedUnits { spent: units.spent >> passed, tick, ..units }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    fn tick(&self, now: Timestamp) -> u16 {
        (now.0 / (self.period.0 / 10)) as u16
    }

    /// How many units are wanted in advance: about as many as were spent in the last tenth of the lease.
    fn wanted(units: LeasedUnits) -> u32 {
        let wanted = units.spent / 2;
        if wanted < Self::MIN_UNITS { 0 } else { wanted }
    }

    /// Whether more units are due: few are left of those that are wanted.
    fn is_due(units: LeasedUnits) -> bool {
        !units.is_renewing && units.left <= Self::wanted(units) / 2 && Self::wanted(units) > 0
    }

    fn spend(units: LeasedUnits, cost: Cost) -> LeasedUnits {
        LeasedUnits { spent: units.spent.saturating_add(cost.units()).min(LeasedUnits::MAX_SPENT), ..units }
    }

    /// Counts a request that the store has decided, and whether more units are due.
    pub fn note_spent(&self, units: LeasedUnits, now: Timestamp, cost: Cost) -> (LeasedUnits, bool) {
        let mut units = Self::spend(self.current(units, now), cost);
        if units.left == 0 {
            // Nothing is spent until then: this keeps the count as long as it is worth anything.
            units.ends = now.plus(Micros(self.period.0 / 2));
        }
        (units, Self::is_due(units))
    }

    /// Begins to take more units: how many, at most `max`. `None`: none are due.
    pub fn begin_renewal(&self, units: LeasedUnits, now: Timestamp, max: u32) -> Option<(LeasedUnits, u32)> {
        let units = self.current(units, now);
        let wanted = Self::wanted(units).min(max);
        let is_due = Self::is_due(units) && wanted >= Self::MIN_UNITS;
        is_due.then_some((LeasedUnits { is_renewing: true, ..units }, wanted))
    }

    /// Ends a renewal that brought no units.
    #[must_use]
    pub fn end_renewal(units: LeasedUnits) -> LeasedUnits {
        LeasedUnits { is_renewing: false, ..units }
    }

    /// Adds units that were taken, which end at `ends`. They join units that last at least half as long, and then end when
    /// these do; others are returned.
    pub fn deposit(&self, before: LeasedUnits, taken: u32, ends: Timestamp, now: Timestamp) -> Deposit {
        let before = Self::end_renewal(self.current(before, now));
        let rest = before.ends.since(now);
        let total = u64::from(before.left) + u64::from(taken);
        if before.left > 0 && rest.0 >= ends.since(now).0 / 2 && total <= LeasedUnits::MAX.into() {
            let units = LeasedUnits { ends: before.ends.min(ends), left: before.left + taken, ..before };
            return Deposit { units, returned: 0, joined: true };
        }
        let units = LeasedUnits { ends, left: taken.min(LeasedUnits::MAX), ..before };
        Deposit { units, returned: before.left, joined: false }
    }

    /// Pays for a request, if there are enough: when the units end, and how many are left.
    pub fn pay(
        &self,
        units: LeasedUnits,
        now: Timestamp,
        cost: Cost,
    ) -> (LeasedUnits, Option<(Timestamp, u32)>) {
        let (units, decision) = self.decide(units, now, cost);
        (units, (!decision.denies()).then_some((units.ends, units.left)))
    }

    /// Puts units back of a request that is not admitted after all, if they were of the lease that ends at `ends`.
    pub fn put_back(units: LeasedUnits, cost: Cost, ends: Timestamp) -> Option<LeasedUnits> {
        let left = units.left.checked_add(cost.units()).filter(|left| *left <= LeasedUnits::MAX)?;
        (units.ends == ends).then_some(LeasedUnits { left, ..units })
    }

    /// Takes all units away that have ended at `now`; without a time, all.
    pub fn withdraw(units: LeasedUnits, now: Option<Timestamp>) -> (LeasedUnits, u32) {
        if now.is_some_and(|now| now < units.ends) {
            return (units, 0);
        }
        (LeasedUnits { left: 0, ..units }, units.left)
    }
}

/// Spends units. `remaining` is the units left. A `reset_after` that is not zero says that more units are due.
impl Limiter for Lease {
    type State = LeasedUnits;

    const NAMES: Names =
        Names { name: "lease", letter: 'u', quota: "lease", module: ("lease", include_str!("lease.lua")) };

    #[inline(always)]
    fn decide(&self, state: LeasedUnits, now: Timestamp, cost: Cost) -> (LeasedUnits, Decision) {
        match state.left.checked_sub(cost.units()).filter(|_| state.left > 0 && now < state.ends) {
            Some(left) => {
                let units = Self::spend(LeasedUnits { left, ..self.current(state, now) }, cost);
                let reset_after = Micros(Self::is_due(units).into());
                (units, Decision { verdict: Verdict::Allow, remaining: left.into(), reset_after })
            }
            None => (state, self.peek(&state, now, cost)),
        }
    }

    fn peek(&self, state: &LeasedUnits, now: Timestamp, cost: Cost) -> Decision {
        let left = if now < state.ends { state.left } else { 0 };
        let verdict =
            if left >= cost.units() && left > 0 { Verdict::Allow } else { Verdict::Deny(Wait::Unknown) };
        let is_due = now < state.ends && Self::is_due(*state);
        Decision { verdict, remaining: left.into(), reset_after: Micros(is_due.into()) }
    }

    /// A correction changes the shared counter, not the units in advance.
    fn settle(&self, state: LeasedUnits, _at: Timestamp, _difference: i64, _now: Timestamp) -> LeasedUnits {
        state
    }

    /// No units: another process's are not known.
    fn resume(&self, _remaining: u64, _reset_after: Micros, _now: Timestamp) -> LeasedUnits {
        LeasedUnits::default()
    }

    /// The units stay; how fast they were spent is counted anew.
    fn convert(&self, from: &Self, state: LeasedUnits, _now: Timestamp) -> LeasedUnits {
        if from == self { state } else { LeasedUnits { spent: 0, ..state } }
    }

    /// Units that have ended stay until they go back.
    fn forget_at(&self, state: &LeasedUnits) -> Timestamp {
        if state.left == 0 { state.ends } else { state.ends.plus(self.period) }
    }

    /// The units left: those with the fewest are evicted first.
    fn in_use(&self, state: &LeasedUnits, now: Timestamp) -> u64 {
        match state {
            LeasedUnits { left: 0, spent: 0, is_renewing: false, .. } => 0,
            _ if now < state.ends => u64::from(state.left) + 1,
            _ => 1,
        }
    }

    fn quota(&self) -> u64 {
        LeasedUnits::MAX.into()
    }

    fn window(&self) -> Micros {
        self.period
    }

    fn period(&self) -> Option<Micros> {
        None
    }

    fn params(&self) -> [u64; 5] {
        [self.period.0, 0, 0, 0, 0]
    }

    fn explain(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("units in advance for ")?;
        Window(self.period).fmt(f)
    }

    fn abridge(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("lease ")?;
        Window(self.period).fmt(f)
    }
}

#[cfg(test)]
mod tests;
