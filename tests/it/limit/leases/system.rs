//! The state machine: what may happen, in any order.

use stateright::{Model, Property};
use tollgate::limit::units::Timestamp;

use super::gateway::{Answer, LeasingGateway, Returned};
use super::scenario::{GATEWAYS, Mutant, Scenario};
use super::spent::Spent;
use super::store::LeaseStore;

/// The contract.
pub(super) const BOUND: &str = "no more is spent than the contract allows";
/// Shows that the contract is tested: without these the model would be void.
pub(super) const MUCH: &str = "a window is used up, or a bucket exceeded by what the lease allows";
pub(super) const SPENT_AGAIN: &str = "units that come back are spent by another gateway";
pub(super) const LOST: &str = "after a failover more is spent than otherwise";

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct System {
    moment: usize,
    store: LeaseStore,
    gateways: [LeasingGateway; GATEWAYS],
    /// The units on their way to the store, in no order.
    returned: Vec<Returned>,
    spent: Spent,
    trail: Trail,
}

/// What becomes of units that come back to a store that had none left, if they are followed. The numbers are gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Trail {
    #[default]
    None,
    SentBackBy(usize),
    CameBackFrom(usize),
    GrantedTo(usize),
    SpentAgain,
}

/// The numbers of `number` are gateways.
///
/// A question changes nothing before it arrives, so it has no step of its own. A message that is lost is one that never
/// arrives: the model need not deliver any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Time goes on to the next moment. Gateways send back the units that have ended.
    Wait,
    /// The store gets a question that was asked at this moment or an earlier one, and grants units.
    Grant { number: usize, asked: usize },
    /// The answer arrives.
    Deposit { number: usize },
    /// The answer is lost: the gateway may ask again.
    LoseAnswer { number: usize },
    /// A gateway admits a request by its own units.
    Spend { number: usize },
    /// The store decides a request.
    Decide,
    /// A gateway stops: it sends back all units.
    Stop { number: usize },
    /// A gateway is killed, and starts without units.
    Crash { number: usize },
    /// The units with this index come back.
    TakeBack { index: usize },
    /// The replica gets all writes.
    Replicate,
    /// The replica takes over.
    FailOver,
}

impl Model for Scenario {
    type State = System;
    type Action = Step;

    fn init_states(&self) -> Vec<System> {
        vec![System {
            moment: 0,
            store: LeaseStore::default(),
            gateways: Default::default(),
            returned: Vec::new(),
            spent: Spent::default(),
            trail: Trail::None,
        }]
    }

    fn actions(&self, system: &System, steps: &mut Vec<Step>) {
        steps.push(Step::Decide);
        if system.may_wait(self) {
            steps.push(Step::Wait);
        }
        for (number, gateway) in system.gateways.iter().enumerate().take(self.gateways) {
            // Units that are granted at the last moment could be spent only then, as those are that the store decides.
            if gateway.may_ask() && !self.is_last(system.moment) {
                steps.extend((0..=system.moment).map(|asked| Step::Grant { number, asked }));
            }
            if gateway.answer.is_some() {
                steps.extend([Step::Deposit { number }, Step::LoseAnswer { number }]);
            }
            if gateway.held.left > 0 {
                steps.extend([Step::Spend { number }, Step::Stop { number }]);
            }
            if *gateway != LeasingGateway::default() {
                steps.push(Step::Crash { number });
            }
        }
        steps.extend((0..system.returned.len()).map(|index| Step::TakeBack { index }));
        if system.store.is_behind() {
            steps.extend([Step::Replicate, Step::FailOver]);
        }
    }

    fn next_state(&self, system: &System, step: Step) -> Option<System> {
        let (mut next, now) = (system.clone(), self.time(system.moment));
        match step {
            Step::Wait => next.wait(self),
            Step::Grant { number, asked } => next.grant(self, number, asked, now),
            Step::Deposit { number } => {
                let returned = next.gateways[number].deposit(self, Self::local(number, now));
                next.send_back(self, number, returned);
            }
            Step::LoseAnswer { number } => next.gateways[number].answer = None,
            Step::Spend { number } => next.spend(self, number, now),
            Step::Decide => {
                if next.store.decide(self, now) {
                    next.spent.add(self);
                }
            }
            Step::Stop { number } => {
                let returned = next.gateways[number].give_back(self, None);
                next.send_back(self, number, returned);
            }
            Step::Crash { number } => next.gateways[number] = LeasingGateway::default(),
            Step::TakeBack { index } => next.take_back(self, index, now),
            Step::Replicate => next.store.replicate(),
            Step::FailOver => {
                let lost = next.store.fail_over();
                next.spent.lose(lost);
            }
        }
        Some(next)
    }

    /// Units may be granted and sent back without end: the replica lacks few of these grants.
    fn within_boundary(&self, system: &System) -> bool {
        system.store.is_within_boundary(self)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(BOUND, |scenario: &Self, system: &System| {
                system.spent.is_allowed(scenario, scenario.time(system.moment))
            }),
            Property::sometimes(MUCH, |scenario: &Self, system: &System| system.spent.is_much(scenario)),
        ];
        if self.follows_units {
            properties.push(Property::sometimes(SPENT_AGAIN, |_: &Self, system: &System| {
                system.trail == Trail::SpentAgain
            }));
        }
        if self.lag.is_some() {
            properties.push(Property::sometimes(LOST, |scenario: &Self, system: &System| {
                !system.spent.is_as_without_failover(scenario, scenario.time(system.moment))
            }));
        }
        properties
    }
}

impl System {
    fn may_wait(&self, scenario: &Scenario) -> bool {
        !scenario.is_last(self.moment) && self.store.may_lag_until(scenario, scenario.time(self.moment + 1))
    }

    fn wait(&mut self, scenario: &Scenario) {
        let (now, then) = (scenario.time(self.moment), scenario.time(self.moment + 1));
        self.moment += 1;
        self.spent.advance(scenario, now, then);
        self.store.expire(scenario, then);
        for number in 0..GATEWAYS {
            let returned = self.gateways[number].give_back(scenario, Some(Scenario::local(number, then)));
            self.send_back(scenario, number, returned);
        }
    }

    fn grant(&mut self, scenario: &Scenario, number: usize, asked: usize, now: Timestamp) {
        let asked_at = Scenario::local(number, scenario.time(asked));
        let grant = self.store.grant(scenario, now);
        let gateway = &mut self.gateways[number];
        gateway.answer = grant.map(|grant| Answer { asked_at, grant });
        if let Trail::CameBackFrom(other) = self.trail {
            let is_others = grant.is_some() && number != other && gateway.held.left == 0;
            self.trail = if is_others { Trail::GrantedTo(number) } else { Trail::None };
        }
    }

    fn spend(&mut self, scenario: &Scenario, number: usize, now: Timestamp) {
        if self.gateways[number].spend(scenario, Scenario::local(number, now)) {
            self.spent.add(scenario);
            if self.trail == Trail::GrantedTo(number) {
                self.trail = Trail::SpentAgain;
            }
        }
    }

    fn send_back(&mut self, scenario: &Scenario, number: usize, returned: Option<Returned>) {
        if scenario.follows_units && returned.is_some() && self.trail == Trail::None {
            self.trail = Trail::SentBackBy(number);
        }
        self.returned.extend(returned);
        self.returned.sort_unstable();
    }

    fn take_back(&mut self, scenario: &Scenario, index: usize, now: Timestamp) {
        let returned = self.returned.remove(index);
        let was_used_up = self.store.is_used_up(scenario, now);
        self.store.take_back(scenario, returned, now);
        if scenario.has(Mutant::ReturnedTwice) {
            self.store.take_back(scenario, returned, now);
        }
        if let Trail::SentBackBy(number) = self.trail {
            let is_alone = self.returned.is_empty() && was_used_up;
            let has_room = !self.store.is_used_up(scenario, now);
            self.trail = if is_alone && has_room { Trail::CameBackFrom(number) } else { Trail::None };
        }
    }
}
