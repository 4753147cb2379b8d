//! A gateway: the units that it holds, and the answer that is on its way to it. Its time is that of its own clock.

use tollgate::limit::lease::{Lease, LeasedUnits};
use tollgate::limit::units::{Cost, Micros, Timestamp};
use tollgate::limit::{Algorithm, State};

use super::scenario::{Mutant, Scenario};

/// A gateway asks for this number of units when it holds fewer.
pub(super) const WANTED: u32 = 2;

/// The default has just started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LeasingGateway {
    pub(super) held: Held,
    pub(super) answer: Option<Answer>,
}

/// [`LeasedUnits`], without the count of how fast they are spent, and with the time of their grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) left: u32,
    ends: Timestamp,
    /// By the store's clock. Of units that joined, the time of the first grant.
    granted_at: Timestamp,
}

/// A grant, and when the gateway asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    pub(super) asked_at: Timestamp,
    pub(super) grant: Grant,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) units: u32,
    /// By the store's clock.
    pub(super) at: Timestamp,
    pub(super) rest_of_window: Option<Micros>,
}

/// Units that go back, and the store's time of their grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Returned {
    pub(super) units: u32,
    pub(super) granted_at: Timestamp,
}

impl Held {
    fn new(units: LeasedUnits, granted_at: Timestamp) -> Self {
        match units.left() {
            0 => Self::default(),
            left => Self { left, ends: units.ends(), granted_at },
        }
    }

    fn units(self, lease: &Lease) -> LeasedUnits {
        lease.deposit(LeasedUnits::default(), self.left, self.ends, Timestamp(0)).units
    }
}

impl LeasingGateway {
    /// Whether it asks for units: it does not wait for others, and has few.
    pub(super) fn may_ask(&self) -> bool {
        self.answer.is_none() && self.held.left < WANTED
    }

    /// The answer arrives. Returns the units of an earlier lease.
    pub(super) fn deposit(&mut self, scenario: &Scenario, now: Timestamp) -> Option<Returned> {
        let Answer { asked_at, grant } = self.answer.take()?;
        let (lease, before) = (&scenario.lease, self.held);
        let ends = ends(scenario, asked_at, grant.rest_of_window, now);
        let deposit = lease.deposit(before.units(lease), grant.units, ends, now);
        let granted_at = if deposit.joined { before.granted_at } else { grant.at };
        self.held = Held::new(deposit.units, granted_at);
        returned(deposit.returned, before.granted_at)
    }

    /// Decides a request of one unit: whether it is admitted.
    pub(super) fn spend(&mut self, scenario: &Scenario, now: Timestamp) -> bool {
        let units = State::Lease(self.held.units(&scenario.lease));
        let (after, decision) = Algorithm::Lease(scenario.lease).decide(units, now, Cost::ONE);
        self.held = Held::new(after.leased_units(), self.held.granted_at);
        !decision.denies()
    }

    /// Gives back units that have ended at this time; without a time all, since it stops.
    pub(super) fn give_back(&mut self, scenario: &Scenario, now: Option<Timestamp>) -> Option<Returned> {
        let granted_at = self.held.granted_at;
        let (rest, units) = Lease::withdraw(self.held.units(&scenario.lease), now);
        if !scenario.has(Mutant::SpendsReturned) {
            self.held = Held::new(rest, granted_at);
        }
        returned(units, granted_at)
    }
}

/// When units end that an answer brings at `now`.
fn ends(scenario: &Scenario, asked_at: Timestamp, rest: Option<Micros>, now: Timestamp) -> Timestamp {
    let lease = &scenario.lease;
    match scenario.mutant {
        Some(Mutant::WholeLease) => {
            asked_at.plus(rest.map_or(lease.duration(), |rest| rest.min(lease.duration())))
        }
        Some(Mutant::CountedFromAnswer) => lease.ends(now, rest),
        Some(Mutant::PastWindow) => lease.ends(asked_at, None),
        _ => lease.ends(asked_at, rest),
    }
}

fn returned(units: u32, granted_at: Timestamp) -> Option<Returned> {
    (units > 0).then_some(Returned { units, granted_at })
}
