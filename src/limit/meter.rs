//! An exact meter: the common part of the token bucket, GCRA and the leaky bucket.
//!
//! A *level* rises by [`Meter::unit`] ticks for each unit charged and drains by `drain` ticks every `step` µs. Unit and
//! drain are the reduced fraction p/q = period ÷ count (µs for each unit): a unit is p ticks and q ticks drain in each
//! µs, so nothing is ever rounded. If the exact ticks of a full bucket would pass 2^52, the finest scale that fits is
//! used, with the unit rounded up: against the client, by less than 10^-6 of the rate
//! (`error_is_small_and_against_the_client`).
//!
//! The level stays below 2^53, so doubles represent it. A product that passes 2^53 is larger than any level, and only
//! ever compared with one or subtracted down to zero: saturating here and rounding in a double give the same result.

use super::divisor::Divisor;
use super::limiter::{Packed, Stored};
use super::units::{Cost, EXACT, Micros, Rate, Timestamp};
use super::{Decision, Verdict};

/// The largest level: charges beyond it are dropped.
const MAX_TICKS: u64 = EXACT - 1;
/// The largest level of a full bucket: as much again is left for debt.
const MAX_FULL: u64 = EXACT / 2;

/// The scale for the units of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Meter {
    unit: Divisor,
    drain: Divisor,
    step: Divisor,
}

/// The use of one key, in ticks. The default is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Level {
    at: Timestamp,
    ticks: u64,
}

impl Level {
    /// A level of `ticks` at a time.
    pub(super) const fn new(at: Timestamp, ticks: u64) -> Self {
        Self { at, ticks }
    }

    /// The ticks in use.
    #[inline]
    pub(super) const fn ticks(self) -> u64 {
        self.ticks
    }

    /// The time of the level: that of the key's last charge, or less than one step before it.
    pub(super) const fn at(self) -> Timestamp {
        self.at
    }
}

impl Stored for Level {
    fn pack(&self) -> Option<Packed> {
        Some(Packed { at: self.at, used: self.ticks })
    }

    fn unpack(packed: Packed) -> Option<Self> {
        Some(Self::new(packed.at, packed.used))
    }
}

impl Meter {
    /// A meter that counts up to `units` units exactly, and as many again in debt.
    pub(super) fn counting(rate: Rate, units: Cost) -> Self {
        let max = MAX_FULL / u64::from(units.units());
        let fine = Self::finest(rate, max);
        if fine.unit() <= max {
            return fine;
        }
        // Using up such a bucket takes more than 2^52 µs (142 years) of refill: a tick may well be some µs.
        let step = fine.unit().div_ceil(max);
        Self::new(scaled(rate, 1, step), 1, step)
    }

    /// A meter that fits any cost and is never coarser than 1 µs. It saturates only if draining lasts past the end of
    /// time, 2^53 µs.
    pub(super) fn timing(rate: Rate) -> Self {
        Self::finest(rate, MAX_FULL / u64::from(Cost::MAX))
    }

    /// The exact scale if a unit has at most `max` ticks, else the finest that has; but at least one tick a µs.
    fn finest(rate: Rate, max: u64) -> Self {
        let divisor = greatest_common_divisor(rate.period().0, u64::from(rate.count()));
        let (span, count) = (rate.period().0 / divisor, u64::from(rate.count()) / divisor);
        let drain = if span <= max { count } else { (narrow(wide(max) * wide(count) / wide(span))).max(1) };
        Self::new(scaled(rate, drain, 1), drain, 1)
    }

    fn new(unit: u64, drain: u64, step: u64) -> Self {
        Self { unit: Divisor::new(unit), drain: Divisor::new(drain), step: Divisor::new(step) }
    }

    /// Unit, drain and step: the arguments of the Lua meter.
    pub(super) const fn params(&self) -> [u64; 3] {
        [self.unit.get(), self.drain.get(), self.step.get()]
    }

    /// Ticks that one unit costs.
    #[inline]
    pub(super) const fn unit(&self) -> u64 {
        self.unit.get()
    }

    /// The number of whole units in `ticks`.
    #[inline]
    pub(super) fn units(&self, ticks: u64) -> u64 {
        self.unit.divide(ticks)
    }

    /// Units of so many ticks, rounded up.
    pub(super) fn units_up(&self, ticks: u64) -> u64 {
        self.unit.divide_up(ticks)
    }

    /// Units in use at `now`, rounded up.
    pub(super) fn in_use(&self, level: Level, now: Timestamp) -> u64 {
        self.unit.divide_up(self.drained(level, now).ticks)
    }

    /// The ticks of `units` units, at most the largest level.
    #[inline]
    pub(super) fn ticks(&self, units: u64) -> u64 {
        units.saturating_mul(self.unit()).min(MAX_TICKS)
    }

    /// The ticks that drain in `span`, at most the largest level.
    pub(super) fn drained_in(&self, span: Micros) -> u64 {
        self.step.divide(span.0).saturating_mul(self.drain.get()).min(MAX_TICKS)
    }

    /// The least span in which `ticks` drain.
    #[inline(always)]
    pub(super) fn span(&self, ticks: u64) -> Micros {
        Micros(self.drain.divide_up(ticks).saturating_mul(self.step.get()).min(EXACT))
    }

    /// `level` advanced to `now`. A time before the level's own is replaced by the level's own.
    #[inline(always)]
    pub(super) fn drained(&self, level: Level, now: Timestamp) -> Level {
        let elapsed = now.since(level.at).0;
        let steps = self.step.divide(elapsed);
        match level.ticks.saturating_sub(steps.saturating_mul(self.drain.get())) {
            0 => Level { at: now, ticks: 0 },
            // Only whole steps are subtracted, so that the rest of a step is not lost.
            ticks => Level { at: level.at.plus(Micros(steps * self.step.get())), ticks },
        }
    }

    /// `level` with `cost` added.
    #[inline(always)]
    pub(super) fn charged(&self, level: Level, cost: Cost) -> Level {
        Level { ticks: level.ticks.saturating_add(self.ticks(cost.units().into())).min(MAX_TICKS), ..level }
    }

    /// When `level` has drained to `ticks`; its own time if it is no higher. At most 2^53, the end of time.
    #[inline(always)]
    pub(super) fn falls_to(&self, level: Level, ticks: u64) -> Timestamp {
        let moment = level.at.plus(self.span(level.ticks.saturating_sub(ticks)));
        moment.min(Timestamp(EXACT))
    }

    /// A bucket's decision: of `full` ticks `level` are in use.
    #[inline(always)]
    pub(super) fn report(&self, verdict: Verdict, level: Level, full: u64, now: Timestamp) -> Decision {
        let remaining = self.units(full.saturating_sub(level.ticks));
        let reset_after = match full - remaining * self.unit() {
            0 => Micros(0),
            // One more unit is free when the level has sunk by the missing ticks.
            in_use => self.falls_to(level, in_use - self.unit()).since(now),
        };
        Decision { verdict, remaining, reset_after }
    }

    /// `level` with `difference` units more, or fewer but never less than none.
    pub(super) fn settled(&self, level: Level, difference: i64, now: Timestamp) -> Level {
        let level = self.drained(level, now);
        let change = self.ticks(difference.unsigned_abs());
        let ticks = if difference < 0 {
            level.ticks.saturating_sub(change)
        } else {
            level.ticks.saturating_add(change).min(MAX_TICKS)
        };
        if ticks == 0 { Level::default() } else { Level { ticks, ..level } }
    }

    /// The units of `level`, on the meter `from`, converted to this meter, parts of a unit too, and rounded up to whole
    /// ticks: rounded up to whole units, a level that is converted to and fro more often than a unit drains would never
    /// fall.
    pub(super) fn converted(&self, from: &Self, level: Level, now: Timestamp) -> Level {
        if self == from {
            return level;
        }
        let level = from.drained(level, now);
        if self == from || level.ticks == 0 {
            return level;
        }
        let same_scale = self.unit == from.unit;
        let scaled = || (wide(level.ticks) * wide(self.unit())).div_ceil(wide(from.unit()));
        let ticks = if same_scale { level.ticks } else { narrow(scaled()).min(MAX_TICKS) };
        // Part of a step may have passed since `level.at`: it is not carried over to steps of another length.
        Level { at: level.at.max(now), ticks }
    }

    /// The level of a bucket of `full` ticks with `remaining` free units, fewer than all, and one more `reset_after`
    /// from `now`. With none free it may be in debt, for which no bound is known.
    pub(super) fn resumed(&self, full: u64, remaining: u64, reset_after: Micros, now: Timestamp) -> Level {
        let in_use = full.saturating_sub(remaining.saturating_mul(self.unit()));
        let max = if remaining == 0 { MAX_TICKS } else { in_use };
        self.falling_to(in_use.saturating_sub(self.unit()), max, reset_after, now)
    }

    /// The highest level that falls to `base` ticks `span` from `now`, but at most `max`.
    ///
    /// A span in whole µs leaves open how many ticks of its last step were needed: all are assumed. Past the end of
    /// time nothing is known: `max` is assumed.
    fn falling_to(&self, base: u64, max: u64, span: Micros, now: Timestamp) -> Level {
        let room = max.saturating_sub(base);
        // A level that falls at once is never reported: it would have fallen already.
        let end = now.plus(span.max(Micros(1)));
        if end.0 >= EXACT {
            let at = Timestamp(EXACT.saturating_sub(self.span(room).0));
            return Level { at: at.max(now), ticks: base + room };
        }
        let steps = self.step.divide_up(end.since(now).0);
        let above = steps.saturating_mul(self.drain.get()).min(room);
        Level { at: Timestamp(end.0.saturating_sub(self.span(above).0)), ticks: base + above }
    }

    /// When `level` has drained completely.
    pub(super) fn forget_at(&self, level: Level) -> Timestamp {
        self.falls_to(level, 0)
    }
}

/// The ticks of a unit when `drain` ticks drain every `step` µs, rounded up: the longer a unit lasts, the lower the
/// rate.
fn scaled(rate: Rate, drain: u64, step: u64) -> u64 {
    narrow((wide(rate.period().0) * wide(drain)).div_ceil(wide(rate.count().into()) * wide(step)))
}

// Products above 2^53 occur only when a limit is made, of which Redis' Lua gets the results, and when a level is
// converted.
fn wide(number: u64) -> u128 {
    number.into()
}

/// A number divided by more than it was multiplied with fits again.
fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u32, period: u64) -> Rate {
        Rate::new(count, Micros(period)).unwrap()
    }

    /// µs that a unit lasts on `meter`, over what it should last, minus one.
    fn error(meter: &Meter, rate: Rate) -> f64 {
        let lasts = (wide(meter.unit()) * wide(meter.step.get()) * wide(rate.count().into())) as f64;
        let should = (wide(rate.period().0) * wide(meter.drain.get())) as f64;
        lasts / should - 1.0
    }

    #[test]
    fn ordinary_rates_are_exact() {
        for (count, period) in
            [(10, 1_000_000), (100, 60_000_000), (3, 1_000_000), (1_000_000, 86_400_000_000)]
        {
            let rate = rate(count, period);
            for meter in [Meter::counting(rate, Cost::new(count).unwrap()), Meter::timing(rate)] {
                assert_eq!(meter.unit() * u64::from(count), period * meter.drain.get(), "{rate:?} {meter:?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn error_is_small_and_against_the_client(
            count in proptest::prop_oneof![1..=1000_u32, 999_000_000..=Cost::MAX, 1..=Cost::MAX],
            period in proptest::prop_oneof![1_000..=2_000_000_u64, 31_000_000_000_000..=Rate::MAX_PERIOD.0],
            units in proptest::prop_oneof![1..=1000_u32, 999_000_000..=Cost::MAX],
        ) {
            let rate = rate(count, period);
            let units = Cost::new(units).unwrap();
            let counting = Meter::counting(rate, units);
            assert!(counting.unit() * u64::from(units.units()) <= MAX_FULL);
            for meter in [counting, Meter::timing(rate)] {
                let error = error(&meter, rate);
                assert!((-1e-15..1e-6).contains(&error), "{meter:?} is off by {error}");
            }
        }
    }
}
