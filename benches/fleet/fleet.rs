//! A run: gateways and the store exchange messages in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate::limit::lease::ledger::LeasedCounter;
use tollgate::limit::units::{Cost, Micros, Timestamp};
use tollgate::limit::{Decision, State};

use crate::gateway::{Gateway, Grant, ReturnedUnits, Rules, Step};
use crate::measures::{BoundMeter, Measures};
use crate::scenario::{Mode, Scenario};
use crate::traffic::{Request, Requests};

/// How often gateways forget keys.
const SWEEP: Micros = Micros(2_000_000);

/// A key in the store, and what is known of it from outside.
#[derive(Default)]
struct Key {
    counter: LeasedCounter,
    /// The counter that decides each request when it comes, without gateways.
    ideal: State,
    ideal_admitted: u32,
    admitted: u32,
    bound: BoundMeter,
}

/// From which process of which gateway.
#[derive(Clone, Copy, Debug)]
struct Sender {
    gateway: u32,
    generation: u32,
}

#[derive(Debug)]
enum Call {
    Decide { key: u32, arrived: Timestamp },
    Take { key: u32, wanted: u32, asked: Timestamp },
    Return(Vec<ReturnedUnits>),
}

#[derive(Debug)]
enum Reply {
    Decided {
        key: u32,
        arrived: Timestamp,
        decision: Decision,
    },
    Granted {
        key: u32,
        grant: Grant,
    },
    /// None came for this call.
    NoDecision {
        arrived: Timestamp,
    },
    NoGrant {
        key: u32,
    },
}

#[derive(Debug)]
enum Happening {
    /// At the store; the second says whether the reply arrives.
    Called(Sender, Call, bool),
    /// At a gateway.
    Replied(Sender, Reply),
    /// A gateway looks for units that have ended.
    UnitsEnd(Sender),
    Crash(u32),
    Sweep,
}

/// Something that happens at a moment; of one moment, in the order in which they were planned.
struct Event(Reverse<(Timestamp, u64)>, Happening);

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

pub(crate) struct Fleet<'a> {
    scenario: &'a Scenario,
    rules: Rules,
    gateways: Vec<Gateway>,
    keys: HashMap<u32, Key, FixedState>,
    events: BinaryHeap<Event>,
    planned: u64,
    random: fastrand::Rng,
    measures: Measures,
}

/// A run's result.
pub(crate) struct Outcome {
    pub(crate) measures: Measures,
    /// Admitted of what one counter would have admitted: more of one key does not make up for less of another.
    pub(crate) share: f64,
    pub(crate) admitted: u64,
    /// That counted.
    pub(crate) seconds: f64,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            rules: Rules::new(scenario),
            gateways: (0..scenario.gateways).map(|_| Gateway::default()).collect(),
            keys: HashMap::default(),
            events: BinaryHeap::new(),
            planned: 0,
            random: fastrand::Rng::with_seed(11),
            measures: Measures::new(scenario),
        }
    }

    pub(crate) fn run(mut self) -> Outcome {
        let mut requests = Requests::new(self.scenario);
        let mut request = requests.next();
        self.plan(request.at.plus(SWEEP), Happening::Sweep);
        if let Some(period) = self.scenario.crashes {
            self.plan(request.at.plus(period), Happening::Crash(0));
        }
        while request.at < self.measures.until() {
            while self.events.peek().is_some_and(|event| event.0.0.0 <= request.at) {
                self.next_event();
            }
            self.request(&request);
            request = requests.next();
        }
        while !self.events.is_empty() {
            self.next_event();
        }
        self.measures.hold(0, self.measures.until());
        let admitted = self.keys.values().map(|key| u64::from(key.admitted)).sum();
        let ideal = self.keys.values().map(|key| u64::from(key.ideal_admitted)).sum::<u64>();
        let same = self.keys.values().map(|key| u64::from(key.admitted.min(key.ideal_admitted))).sum::<u64>();
        let seconds = self.scenario.seconds as f64;
        Outcome { measures: self.measures, share: same as f64 / ideal as f64, admitted, seconds }
    }

    fn plan(&mut self, at: Timestamp, happening: Happening) {
        self.planned += 1;
        self.events.push(Event(Reverse((at, self.planned)), happening));
    }

    fn next_event(&mut self) {
        let Some(Event(Reverse((now, _)), happening)) = self.events.pop() else { return };
        match happening {
            Happening::Called(sender, call, is_heard) => self.called(sender, call, is_heard, now),
            Happening::Replied(sender, reply) => self.replied(sender, reply, now),
            Happening::UnitsEnd(sender) => {
                let gateway = &mut self.gateways[sender.gateway as usize];
                if gateway.generation == sender.generation {
                    let returns = gateway.take_returns(now);
                    if !returns.is_empty() {
                        self.send(sender, Call::Return(returns), now);
                    }
                }
            }
            Happening::Crash(gateway) => {
                let units = self.gateways[gateway as usize].crash();
                self.measures.hold(-i64::try_from(units).unwrap_or_default(), now);
                let next = (gateway + 1) % self.scenario.gateways as u32;
                let at = now.plus(self.scenario.crashes.unwrap_or_default());
                if at < self.measures.until() {
                    self.plan(at, Happening::Crash(next));
                }
            }
            Happening::Sweep => {
                let rules = &self.rules;
                let kept: usize = self.gateways.iter_mut().map(|gateway| gateway.forget(rules, now)).sum();
                let average = kept as f64 / self.scenario.gateways as f64;
                self.measures.entries = self.measures.entries.max(average);
                if now.plus(SWEEP) < self.measures.until() {
                    self.plan(now.plus(SWEEP), Happening::Sweep);
                }
            }
        }
    }

    fn request(&mut self, request: &Request) {
        let Request { at, key, gateway } = *request;
        let known = self.keys.entry(key).or_default();
        let ideal;
        (known.ideal, ideal) = self.rules.shared.decide(std::mem::take(&mut known.ideal), at, Cost::ONE);
        if !ideal.denies() && self.measures.counts(at) {
            known.ideal_admitted += 1;
            if let Some(block) = self.measures.block(at) {
                block.1 += 1;
            }
        }
        let sender = Sender { gateway, generation: self.gateways[gateway as usize].generation };
        self.decide(sender, key, at, at);
    }

    /// A gateway decides a request that came at `arrived`.
    fn decide(&mut self, sender: Sender, key: u32, arrived: Timestamp, now: Timestamp) {
        let gateway = &mut self.gateways[sender.gateway as usize];
        let (step, wanted) = gateway.decide(&self.rules, key, arrived, now);
        match step {
            Step::Admit => {
                self.bound(key, now);
                if self.rules.lease().is_some() {
                    self.measures.hold(-1, now);
                }
                self.admit(key, arrived, now, now);
            }
            Step::Refuse => self.measures.decided(arrived, now),
            Step::Wait => {}
            Step::Ask => self.send(sender, Call::Decide { key, arrived }, now),
        }
        self.take(sender, key, wanted, now);
    }

    /// Counts an admission against the bound of the contract.
    fn bound(&mut self, key: u32, now: Timestamp) {
        let excess = self.keys.entry(key).or_default().bound.count(self.scenario, now);
        self.measures.max_excess = self.measures.max_excess.max(excess);
        assert!(
            excess <= 0.0 || self.rules.mode == Mode::Divided,
            "{excess} units above the bound: {:?}",
            self.scenario
        );
    }

    fn admit(&mut self, key: u32, arrived: Timestamp, charged: Timestamp, now: Timestamp) {
        self.measures.decided(arrived, now);
        if self.measures.counts(arrived) {
            self.keys.entry(key).or_default().admitted += 1;
        }
        if let Some(block) = self.measures.block(charged) {
            block.0 += 1;
        }
    }

    fn take(&mut self, sender: Sender, key: u32, wanted: Option<u32>, now: Timestamp) {
        if let Some(wanted) = wanted {
            self.send(sender, Call::Take { key, wanted, asked: now }, now);
        }
    }

    fn send(&mut self, sender: Sender, call: Call, now: Timestamp) {
        if self.measures.counts(now) {
            let calls = &mut self.measures.calls;
            let kind = match call {
                Call::Decide { .. } => &mut calls.exact,
                Call::Take { .. } => &mut calls.takes,
                Call::Return(_) => &mut calls.returns,
            };
            *kind += 1;
        }
        let is_lost = self.scenario.loss > 0.0 && self.random.f64() < self.scenario.loss;
        let is_called = !is_lost || self.random.bool();
        if is_lost {
            let reply = match call {
                Call::Decide { arrived, .. } => Some(Reply::NoDecision { arrived }),
                Call::Take { key, .. } => Some(Reply::NoGrant { key }),
                Call::Return(_) => None,
            };
            if let Some(reply) = reply {
                self.plan(now.plus(self.scenario.timeout()), Happening::Replied(sender, reply));
            }
        }
        if is_called {
            self.plan(now.plus(self.way(sender)), Happening::Called(sender, call, !is_lost));
        } else if let Call::Return(returns) = call {
            self.no_longer_held(&returns, now);
        }
    }

    /// From a gateway to the store, or back.
    fn way(&self, sender: Sender) -> Micros {
        let trips = self.scenario.round_trips;
        Micros(trips[sender.gateway as usize % trips.len()].0 / 2)
    }

    fn no_longer_held(&mut self, returns: &[ReturnedUnits], now: Timestamp) {
        let units = returns.iter().map(|returned| i64::from(returned.units)).sum::<i64>();
        self.measures.hold(-units, now);
        if self.measures.counts(now) {
            self.measures.returned += units.unsigned_abs();
        }
    }

    /// The store gets a call.
    fn called(&mut self, sender: Sender, call: Call, is_heard: bool, now: Timestamp) {
        let algorithm = self.rules.shared;
        let reply = match call {
            Call::Decide { key, arrived } => {
                let counter = &mut self.keys.entry(key).or_default().counter;
                let decision;
                (counter.state, decision) =
                    algorithm.decide(std::mem::take(&mut counter.state), now, Cost::ONE);
                if !decision.denies() {
                    self.bound(key, now);
                }
                Reply::Decided { key, arrived, decision }
            }
            Call::Take { key, wanted, asked } => {
                let Some(lease) = self.rules.lease() else { return };
                let counter = &mut self.keys.entry(key).or_default().counter;
                let (taken, decision) = counter.take(&algorithm, lease, wanted, now);
                let rest_of_window = algorithm.rest_of_window(&decision, now);
                if is_heard {
                    self.measures.hold(taken.into(), now);
                }
                if self.measures.counts(now) {
                    self.measures.granted += u64::from(taken);
                }
                let grant = Grant { asked, granted_at: now, taken, wanted, rest_of_window, decision };
                Reply::Granted { key, grant }
            }
            Call::Return(returns) => {
                self.no_longer_held(&returns, now);
                let Some(lease) = self.rules.lease() else { return };
                for ReturnedUnits { key, units, granted_at } in returns {
                    let counter = &mut self.keys.entry(key).or_default().counter;
                    counter.give_back(&algorithm, lease, units, granted_at, now);
                }
                return;
            }
        };
        if is_heard {
            self.plan(now.plus(self.way(sender)), Happening::Replied(sender, reply));
        }
    }

    /// A gateway gets a reply, or gives up waiting for one.
    fn replied(&mut self, sender: Sender, reply: Reply, now: Timestamp) {
        let gateway = &mut self.gateways[sender.gateway as usize];
        if gateway.generation != sender.generation {
            if let Reply::Granted { grant, .. } = reply {
                self.measures.hold(-i64::from(grant.taken), now);
            }
            return;
        }
        match reply {
            Reply::Decided { key, arrived, decision } => {
                let wanted = gateway.note_decision(&self.rules, key, &decision, now);
                if decision.denies() {
                    self.measures.decided(arrived, now);
                } else {
                    let charged = Timestamp(now.0 - self.way(sender).0);
                    self.admit(key, arrived, charged, now);
                }
                self.take(sender, key, wanted, now);
            }
            // Refused.
            Reply::NoDecision { arrived } => self.measures.decided(arrived, now),
            Reply::Granted { key, grant } => self.renewed(sender, key, Some(&grant), now),
            Reply::NoGrant { key } => self.renewed(sender, key, None, now),
        }
    }

    fn renewed(&mut self, sender: Sender, key: u32, grant: Option<&Grant>, now: Timestamp) {
        let gateway = &mut self.gateways[sender.gateway as usize];
        let (waiting, looks) = gateway.end_renewal(&self.rules, key, grant, now);
        for look in looks {
            self.plan(look, Happening::UnitsEnd(sender));
        }
        for arrived in waiting {
            self.decide(sender, key, arrived, now);
        }
    }
}
