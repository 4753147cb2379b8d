//! A gateway: what it decides by itself, and what it remembers of the store.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate::limit::lease::{Lease, LeasedUnits};
use tollgate::limit::units::{Cost, Micros, Timestamp};
use tollgate::limit::{Algorithm, Decision, State, Verdict, Wait};

use crate::scenario::{Flow, Mode, Scenario};

/// The longest time for which a refusal of the store is remembered by its wait.
const LONGEST_REFUSAL: Micros = Micros::SECOND;

/// What all gateways go by.
pub(crate) struct Rules {
    pub(crate) mode: Mode,
    /// The limit of the store.
    pub(crate) shared: Algorithm,
    /// What a gateway decides by itself: by its units in advance, or by its part of the limit.
    local: Algorithm,
    max_units: u32,
    flow: Flow,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Admit,
    Refuse,
    /// It waits for the units that are on their way.
    Wait,
    /// The store decides.
    Ask,
}

/// Units that go back to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnedUnits {
    pub(crate) key: u32,
    pub(crate) units: u32,
    pub(crate) granted_at: Timestamp,
}

/// The store's reply to a question for units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) asked: Timestamp,
    pub(crate) granted_at: Timestamp,
    pub(crate) taken: u32,
    pub(crate) wanted: u32,
    pub(crate) rest_of_window: Option<Micros>,
    /// On one unit more.
    pub(crate) decision: Decision,
}

/// What a gateway knows of a key.
#[derive(Default)]
struct Entry {
    /// Its units, or the counter of its part of the limit.
    state: State,
    /// When the units were granted that are left: the first, if they were joined.
    granted_at: Timestamp,
    refused_until: Timestamp,
    /// When the requests came that wait for units.
    waiting: Vec<Timestamp>,
}

#[derive(Default)]
pub(crate) struct Gateway {
    keys: HashMap<u32, Entry, FixedState>,
    /// Grows by one when it loses its memory: replies to the process before are void.
    pub(crate) generation: u32,
    /// Units that go back with the next call.
    returns: Vec<ReturnedUnits>,
    /// Keys whose units end, by the moment at which the gateway looks.
    ending: HashMap<u64, Vec<u32>, FixedState>,
}

impl Rules {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let shared = scenario.limit.algorithm();
        let (local, max_units) = match scenario.mode {
            Mode::Exact => (shared, 0),
            Mode::Divided => (scenario.limit.divided(scenario.gateways), 0),
            Mode::Leased(lease) => (Algorithm::Lease(lease), lease.max_units(scenario.limit.rate())),
        };
        Self { mode: scenario.mode, shared, local, max_units, flow: scenario.flow }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.local.as_lease()
    }

    /// When a refusal of the store ends that comes at `now`; zero if it is none.
    fn refused_until(&self, decision: &Decision, now: Timestamp) -> Timestamp {
        let wait = match decision.verdict {
            Verdict::Allow | Verdict::Delay(_) => return Timestamp(0),
            Verdict::Deny(Wait::After(wait)) => wait.min(LONGEST_REFUSAL),
            Verdict::Deny(_) => LONGEST_REFUSAL,
        };
        now.plus(self.lease().map_or(wait, |lease| wait.max(lease.pause(&self.shared))))
    }
}

impl Gateway {
    /// Decides a request, and how many units it asks the store for at the same time, if any.
    pub(crate) fn decide(
        &mut self,
        rules: &Rules,
        key: u32,
        arrived: Timestamp,
        now: Timestamp,
    ) -> (Step, Option<u32>) {
        let entry = self.keys.entry(key).or_default();
        if rules.mode != Mode::Exact {
            let decision;
            (entry.state, decision) = rules.local.decide(std::mem::take(&mut entry.state), now, Cost::ONE);
            if !decision.denies() {
                let is_due = rules.lease().is_some() && decision.reset_after > Micros(0);
                let is_paused = rules.flow.pauses && now < entry.refused_until;
                return (
                    Step::Admit,
                    if is_due && !is_paused { entry.begin_renewal(rules, now) } else { None },
                );
            }
        }
        let step = match () {
            () if rules.mode == Mode::Divided || now < entry.refused_until => Step::Refuse,
            () if entry.state.leased_units().is_renewing() && (now == arrived || rules.flow.waits_again) => {
                entry.waiting.push(arrived);
                Step::Wait
            }
            () => Step::Ask,
        };
        (step, None)
    }

    /// Takes note of a decision of the store on a request; the units it asks for now.
    pub(crate) fn note_decision(
        &mut self,
        rules: &Rules,
        key: u32,
        decision: &Decision,
        now: Timestamp,
    ) -> Option<u32> {
        let entry = self.keys.entry(key).or_default();
        if decision.denies() {
            entry.refused_until = rules.refused_until(decision, now);
            return None;
        }
        let (units, is_due) = rules.lease()?.note_spent(entry.state.leased_units(), now, Cost::ONE);
        entry.state = State::Lease(units);
        if is_due { entry.begin_renewal(rules, now) } else { None }
    }

    /// Ends a renewal, with the units that it brought. Returns the requests that waited, and when to look for units that
    /// go back.
    pub(crate) fn end_renewal(
        &mut self,
        rules: &Rules,
        key: u32,
        grant: Option<&Grant>,
        now: Timestamp,
    ) -> (Vec<Timestamp>, Vec<Timestamp>) {
        let (Some(lease), Some(entry)) = (rules.lease(), self.keys.get_mut(&key)) else {
            return (Vec::new(), Vec::new());
        };
        let before = entry.state.leased_units();
        let mut units = Lease::end_renewal(before);
        let mut looks = Vec::new();
        if let Some(grant) = grant {
            if grant.decision.denies() {
                entry.refused_until = rules.refused_until(&grant.decision, now);
            }
            if rules.flow.pauses && grant.taken < grant.wanted {
                entry.refused_until = entry.refused_until.max(now.plus(lease.pause(&rules.shared)));
            }
            if grant.taken > 0 {
                let ends = lease.ends(grant.asked, grant.rest_of_window);
                let deposit = lease.deposit(before, grant.taken, ends, now);
                if deposit.returned > 0 {
                    let (units, granted_at) = (deposit.returned, entry.granted_at);
                    self.returns.push(ReturnedUnits { key, units, granted_at });
                    looks.push(look_at(lease, now));
                }
                let joins = deposit.joined.then_some(entry.granted_at);
                entry.granted_at = joins.map_or(grant.granted_at, |first| first.min(grant.granted_at));
                units = deposit.units;
                let ended = look_at(lease, units.ends().max(now));
                looks.push(ended);
                self.ending.entry(ended.0).or_default().push(key);
            }
        }
        entry.state = State::Lease(units);
        (std::mem::take(&mut entry.waiting), looks)
    }

    /// The units that go back now: those that have ended, and those of earlier leases.
    pub(crate) fn take_returns(&mut self, now: Timestamp) -> Vec<ReturnedUnits> {
        let mut returns = std::mem::take(&mut self.returns);
        for key in self.ending.remove(&now.0).unwrap_or_default() {
            let Some(entry) = self.keys.get_mut(&key) else { continue };
            let (left, units) = Lease::withdraw(entry.state.leased_units(), Some(now));
            if units > 0 {
                entry.state = State::Lease(left);
                returns.push(ReturnedUnits { key, units, granted_at: entry.granted_at });
            }
        }
        returns
    }

    /// Loses its memory, with the requests that wait. Returns the number of units that are lost.
    pub(crate) fn crash(&mut self) -> u64 {
        let units = self.keys.values().map(|entry| u64::from(entry.state.leased_units().left()));
        let returns = self.returns.iter().map(|returned| u64::from(returned.units));
        let lost = units.chain(returns).sum();
        *self = Self { generation: self.generation + 1, ..Self::default() };
        lost
    }

    /// Forgets what is no longer needed. Returns the number of keys that are left.
    pub(crate) fn forget(&mut self, rules: &Rules, now: Timestamp) -> usize {
        self.keys.retain(|_, entry| {
            let is_renewing = entry.state.leased_units().is_renewing();
            is_renewing || now < entry.refused_until || now < rules.local.forget_at(&entry.state)
        });
        self.keys.len()
    }
}

impl Entry {
    fn begin_renewal(&mut self, rules: &Rules, now: Timestamp) -> Option<u32> {
        let units: LeasedUnits = self.state.leased_units();
        let (units, wanted) = rules.lease()?.begin_renewal(units, now, rules.max_units)?;
        self.state = State::Lease(units);
        Some(wanted)
    }
}

/// When a gateway looks for units that end at `ends`: in steps of a fiftieth of the lease, so that one call takes back
/// those of many keys.
fn look_at(lease: &Lease, ends: Timestamp) -> Timestamp {
    Timestamp(ends.0.next_multiple_of(lease.duration().0 / 50))
}
