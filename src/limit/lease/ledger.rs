//! The store's side of leases: grants, and units that come back.
//!
//! A grant is a charge. Units that come back to a window are taken off its count, as if they had never been charged.
//!
//! Units that come back to a bucket must not count twice: the bucket may have refilled meanwhile, and would have been full
//! without them. Of a bucket that was never used, the level without a charge of u ticks lies below the level with it by
//! u, but never by more than the lowest level since the charge, since no level falls below zero. So [`LevelFloor`]
//! keeps that lowest level, and no more comes back. It also is taken off the floor: the same room counts once.
//!
//! The floor of a period follows from few numbers, whoever else charges the counter: between two grants the level is
//! never lower than the one that the last left, drained up to now.

use crate::limit::bucket::Metered as _;
use crate::limit::meter::{Level, Meter};
use crate::limit::units::{Cost, Micros, Timestamp};
use crate::limit::{Algorithm, Decision, State};

use super::Lease;

/// A shared counter of which processes take units in advance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeasedCounter {
    /// The counter.
    pub state: State,
    /// Of a bucket, after its first grant.
    pub floor: Option<LevelFloor>,
}

/// The lowest levels of a bucket: in the present period, and in the one before it. A period is at least as long as units
/// may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelFloor {
    meter: Meter,
    /// When the present period began: after the first grant in it.
    since: Timestamp,
    /// The lowest level in the period before; zero if there is none.
    before: u64,
    /// The lowest level in the present period.
    within: u64,
    /// The level after the last grant or return.
    last: Level,
}

impl LevelFloor {
    /// The floor up to `now`, at which the bucket has this level.
    fn until(floor: Option<Self>, meter: Meter, level: Level, now: Timestamp, period: Micros) -> Self {
        let fresh = Self { meter, since: now, before: 0, within: u64::MAX, last: level };
        let Some(floor) = floor.filter(|floor| floor.meter == meter) else { return fresh };
        let lowest = meter.drained(floor.last, now).ticks().min(level.ticks());
        let within = floor.within.min(lowest);
        if now.since(floor.since) >= period {
            return Self { before: within, ..fresh };
        }
        Self { within, ..floor }
    }

    /// The lowest level since `at`.
    fn since(&self, at: Timestamp) -> u64 {
        if at >= self.since { self.within } else { self.within.min(self.before) }
    }

    /// The floor after a grant or a return that left this level, of which `ticks` came back.
    fn after(self, level: Level, ticks: u64) -> Self {
        let within = self.within.saturating_sub(if self.within == u64::MAX { 0 } else { ticks });
        Self {
            before: self.before.saturating_sub(ticks),
            within: within.min(level.ticks()),
            last: level,
            ..self
        }
    }
}

impl LeasedCounter {
    /// Takes units in advance: `wanted`, or what remains. Of a window at most half of what remains, or one, so that its last
    /// units are not withheld from other processes; a bucket refills. Returns their number, and the decision on a request of one unit afterwards.
    pub fn take(
        &mut self,
        algorithm: &Algorithm,
        lease: &Lease,
        wanted: u32,
        now: Timestamp,
    ) -> (u32, Decision) {
        let floor = self.floor_until(algorithm, lease, now);
        let remaining =
            u32::try_from(algorithm.peek(&self.state, now, Cost::ONE).remaining).unwrap_or(u32::MAX);
        let most = if floor.is_some() { remaining } else { (remaining / 2).max(1).min(remaining) };
        let taken = wanted.min(most);
        if let Some(cost) = Cost::new(taken) {
            self.state = algorithm.decide(std::mem::take(&mut self.state), now, cost).0;
        }
        self.keep_floor(algorithm, floor, 0, now);
        (taken, algorithm.peek(&self.state, now, Cost::ONE))
    }

    /// Takes units back that were granted at `granted_at` and not spent. Those that come too late stay charged.
    pub fn give_back(
        &mut self,
        algorithm: &Algorithm,
        lease: &Lease,
        units: u32,
        granted_at: Timestamp,
        now: Timestamp,
    ) {
        let floor = self.floor_until(algorithm, lease, now);
        if now.since(granted_at) > lease.returnable() {
            return;
        }
        let Some((meter, level)) = meter_and_level(algorithm, &self.state, now) else {
            let state = std::mem::take(&mut self.state);
            self.state = algorithm.settle(state, granted_at, -i64::from(units), now);
            return;
        };
        let lowest = floor.map_or(0, |floor| floor.since(granted_at));
        let ticks = meter.ticks(units.into()).min(lowest).min(level.ticks());
        self.lower(algorithm, ticks, now);
        self.keep_floor(algorithm, floor, ticks, now);
    }

    fn floor_until(&self, algorithm: &Algorithm, lease: &Lease, now: Timestamp) -> Option<LevelFloor> {
        let (meter, level) = meter_and_level(algorithm, &self.state, now)?;
        Some(LevelFloor::until(self.floor, meter, level, now, lease.returnable()))
    }

    fn keep_floor(
        &mut self,
        algorithm: &Algorithm,
        floor: Option<LevelFloor>,
        returned: u64,
        now: Timestamp,
    ) {
        let level = meter_and_level(algorithm, &self.state, now).map(|(_, level)| level);
        self.floor = floor.zip(level).map(|(floor, level)| floor.after(level, returned));
    }

    /// Takes ticks off a bucket's level.
    fn lower(&mut self, algorithm: &Algorithm, ticks: u64, now: Timestamp) {
        let Some((_, level)) = meter_and_level(algorithm, &self.state, now) else { return };
        let level = Level::new(level.at(), level.ticks().saturating_sub(ticks));
        self.state = match algorithm {
            _ if level.ticks() == 0 => State::Fresh,
            Algorithm::Gcra(_) => State::Gcra(level),
            _ => State::TokenBucket(level),
        };
    }
}

/// The meter of a bucket, and its level at `now`. `None`: it is no bucket that is leased.
fn meter_and_level(algorithm: &Algorithm, state: &State, now: Timestamp) -> Option<(Meter, Level)> {
    let (meter, level) = match algorithm {
        Algorithm::TokenBucket(limit) => (
            limit.bucket().meter,
            if let State::TokenBucket(level) = state { *level } else { Level::default() },
        ),
        Algorithm::Gcra(limit) => {
            (limit.bucket().meter, if let State::Gcra(level) = state { *level } else { Level::default() })
        }
        _ => return None,
    };
    Some((meter, meter.drained(level, now)))
}
