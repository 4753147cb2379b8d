//! The algorithms once more, written from their definitions: slow, exact in 128 bits, never forgetful. Random traces,
//! clocks that run backwards and corrections included, must find the core and the definition of one mind.
//!
//! A definition only says whether a request passes; how much remains and how long to wait is found by trying.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Decision, State, Verdict, Wait};

use crate::harness::cases::{START, Step, cost, ordinary_rate, passes, trace};

/// A key under a definition.
trait Definition: Clone {
    /// Whether a request passes at `now`, and after what delay. Time never runs backwards here.
    fn passes(&self, now: i128, cost: i128) -> Option<Micros>;
    /// A request that passed.
    fn charge(&mut self, now: i128, cost: i128);
    /// A request that did not.
    fn refused(&mut self, _now: i128, _cost: i128) {}
    /// A correction.
    fn settle(&mut self, admitted_at: i128, difference: i128, now: i128);
}

/// The numbers of a rate as the definitions want them: n units in every p µs.
#[derive(Clone, Copy)]
struct Per {
    n: i128,
    p: i128,
}

impl From<Rate> for Per {
    fn from(rate: Rate) -> Self {
        Self { n: rate.count().into(), p: rate.period().0.into() }
    }
}

/// Tokens, in p-ths of one; n p-ths are added every µs.
#[derive(Clone)]
struct Tokens {
    per: Per,
    burst: i128,
    left: i128,
    at: i128,
}

impl Tokens {
    fn at(&self, now: i128) -> i128 {
        (self.left + (now - self.at) * self.per.n).min(self.burst * self.per.p)
    }
}

impl Definition for Tokens {
    fn passes(&self, now: i128, cost: i128) -> Option<Micros> {
        (self.at(now) >= cost * self.per.p).then_some(Micros(0))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        (self.left, self.at) = (self.at(now) - cost * self.per.p, now);
    }

    fn settle(&mut self, _admitted_at: i128, difference: i128, now: i128) {
        self.left = (self.at(now) - difference * self.per.p).min(self.burst * self.per.p);
        self.at = now;
    }
}

/// The theoretical arrival time, in n-ths of a µs; a unit takes p of them.
#[derive(Clone)]
struct Schedule {
    per: Per,
    burst: i128,
    arrival: i128,
}

impl Definition for Schedule {
    fn passes(&self, now: i128, cost: i128) -> Option<Micros> {
        let arrival = self.arrival.max(now * self.per.n) + cost * self.per.p;
        (arrival - self.burst * self.per.p <= now * self.per.n).then_some(Micros(0))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        self.arrival = self.arrival.max(now * self.per.n) + cost * self.per.p;
    }

    fn settle(&mut self, _admitted_at: i128, difference: i128, now: i128) {
        let fresh = now * self.per.n;
        self.arrival = (self.arrival.max(fresh) + difference * self.per.p).max(fresh);
    }
}

/// The requests in the queue: the departure of each, in n-ths of a µs.
#[derive(Clone)]
struct Queue {
    per: Per,
    queue: i128,
    max_wait: i128,
    through: Vec<i128>,
}

impl Definition for Queue {
    fn passes(&self, now: i128, _cost: i128) -> Option<Micros> {
        let ahead = (self.through.last().unwrap_or(&0) - now * self.per.n).max(0);
        let wait = (ahead + self.per.n - 1) / self.per.n;
        let joins = ahead <= self.queue * self.per.p && wait <= self.max_wait;
        joins.then(|| Micros(wait.try_into().unwrap()))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        let begins = self.through.last().copied().unwrap_or(0).max(now * self.per.n);
        self.through.push(begins + cost * self.per.p);
    }

    fn settle(&mut self, _admitted_at: i128, difference: i128, now: i128) {
        let begins = self.through.last().copied().unwrap_or(0).max(now * self.per.n);
        self.through.push((begins + difference * self.per.p).max(now * self.per.n));
    }
}

/// What was charged in each clock-aligned window. A weighted count, or a plain one.
#[derive(Clone)]
struct Windows {
    per: Per,
    weighted: bool,
    counts: HashMap<i128, i128>,
}

impl Windows {
    fn count(&self, window: i128) -> i128 {
        self.counts.get(&window).copied().unwrap_or(0)
    }
}

impl Definition for Windows {
    fn passes(&self, now: i128, cost: i128) -> Option<Micros> {
        let window = now.div_euclid(self.per.p);
        let overlap = if self.weighted { self.per.p - now.rem_euclid(self.per.p) } else { 0 };
        let in_use = (self.count(window) + cost) * self.per.p + self.count(window - 1) * overlap;
        (in_use <= self.per.n * self.per.p).then_some(Micros(0))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        *self.counts.entry(now.div_euclid(self.per.p)).or_default() += cost;
    }

    fn settle(&mut self, admitted_at: i128, difference: i128, now: i128) {
        let (window, present) = (admitted_at.div_euclid(self.per.p), now.div_euclid(self.per.p));
        let counts = window == present || self.weighted && window == present - 1;
        // A charge of a window that has passed is charged to the present one.
        let window = if counts || difference < 0 { window } else { present };
        let count = self.counts.entry(window).or_default();
        *count = (*count + difference).max(0);
    }
}

/// A window that begins at the first request after the last window.
#[derive(Clone)]
struct FirstRequest {
    per: Per,
    begins: i128,
    count: i128,
}

impl Definition for FirstRequest {
    fn passes(&self, now: i128, cost: i128) -> Option<Micros> {
        let count = if now < self.begins + self.per.p { self.count } else { 0 };
        (count + cost <= self.per.n).then_some(Micros(0))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        if self.count == 0 || now >= self.begins + self.per.p {
            (self.begins, self.count) = (now, 0);
        }
        self.count += cost;
    }

    fn settle(&mut self, admitted_at: i128, difference: i128, now: i128) {
        let is_present = self.count > 0 && now < self.begins + self.per.p;
        if is_present && (self.begins..self.begins + self.per.p).contains(&admitted_at) {
            self.count = (self.count + difference).max(0);
        } else if difference > 0 {
            self.charge(now, difference);
        }
    }
}

/// Everything that ever happened: when, how much, and whether it was admitted.
#[derive(Clone)]
struct Everything {
    per: Per,
    spacing: i128,
    count_denied: bool,
    events: Vec<(i128, i128, bool)>,
}

impl Definition for Everything {
    fn passes(&self, now: i128, cost: i128) -> Option<Micros> {
        // Here too a spacing longer than the period stretches the period.
        let period = self.per.p.max(self.spacing);
        let counts = self.events.iter().filter(|(at, ..)| now - at < period);
        let in_use: i128 = counts.map(|(_, units, _)| units).sum();
        let spaced =
            self.events.iter().filter(|(.., admitted)| *admitted).all(|(at, ..)| now - at >= self.spacing);
        (in_use + cost <= self.per.n && spaced).then_some(Micros(0))
    }

    fn charge(&mut self, now: i128, cost: i128) {
        self.events.push((now, cost, true));
    }

    fn refused(&mut self, now: i128, cost: i128) {
        if self.count_denied && cost <= self.per.n {
            self.events.push((now, cost, false));
        }
    }

    fn settle(&mut self, admitted_at: i128, difference: i128, now: i128) {
        let period = self.per.p.max(self.spacing);
        let is_admission = |(at, _, admitted): &(i128, i128, bool)| *at == admitted_at && *admitted;
        // An event that was wholly refused at the same time is no admission, but has its time.
        let is_there = self.events.iter().any(|event| is_admission(event) || event.0 == admitted_at);
        if now - admitted_at >= period || !is_there {
            return if difference > 0 {
                self.charge(now, difference)
            };
        }
        let mut change = difference;
        for (at, units, admitted) in &mut self.events {
            if *at == admitted_at && *admitted {
                let after = (*units + change).max(0);
                change -= after - *units;
                *units = after;
            }
        }
        self.events.retain(|(_, units, _)| *units > 0);
    }
}

/// How many requests of one unit pass at `now`, one after another: no more than `quota` are tried.
fn remaining(definition: &impl Definition, now: i128, quota: u64) -> u64 {
    let mut definition = definition.clone();
    let passed = (0..quota).take_while(|_| {
        let passes = definition.passes(now, 1).is_some();
        definition.charge(now, 1);
        passes
    });
    passed.count() as u64
}

/// The least span after which `cost` passes, by bisection: once it passes it goes on to pass.
fn wait(definition: &impl Definition, now: i128, cost: i128) -> i128 {
    let (mut refused, mut passes) = (0_i128, 1_i128);
    while definition.passes(now + passes, cost).is_none() {
        (refused, passes) = (passes, passes * 2);
    }
    while passes - refused > 1 {
        let middle = i128::midpoint(refused, passes);
        if definition.passes(now + middle, cost).is_some() { passes = middle } else { refused = middle }
    }
    passes
}

fn decide(
    definition: &mut impl Definition,
    algorithm: &Algorithm,
    now: Timestamp,
    last: i128,
    cost: Cost,
) -> Decision {
    let (seen, units) = (i128::from(now.0).max(last), i128::from(cost.units()));
    let verdict = match definition.passes(seen, units) {
        Some(delay) => {
            definition.charge(seen, units);
            if delay == Micros(0) { Verdict::Allow } else { Verdict::Delay(delay) }
        }
        None if u64::from(cost.units()) > algorithm.max_cost() => Verdict::Deny(Wait::Never),
        None => {
            definition.refused(seen, units);
            let span = seen + wait(definition, seen, units) - i128::from(now.0);
            Verdict::Deny(Wait::After(Micros(span.try_into().unwrap())))
        }
    };
    let remaining = remaining(definition, seen, algorithm.quota());
    Decision { verdict, remaining, reset_after: Micros(0) }
}

/// Plays requests and corrections (a difference, and how many admissions ago) against both.
fn of_one_mind(algorithm: Algorithm, mut definition: impl Definition, steps: &[(Step, i64, usize)]) {
    let (mut state, mut now, mut last) = (State::default(), START, 0);
    let fresh = definition.clone();
    let counts_denied = algorithm.to_string().contains("refused attempts count too");
    let mut admissions = Vec::new();
    for (step, difference, older) in steps {
        now = step.moment(&algorithm, now);
        let cost = cost(step.cost(&algorithm).units().min(2_000_000));
        let expected = decide(&mut definition, &algorithm, now, last, cost);
        let (after, decision) = algorithm.decide(state, now, cost);
        state = after;
        assert_eq!(Decision { reset_after: Micros(0), ..decision }, expected, "{algorithm} at {now:?}");
        let logged = counts_denied && decision.verdict != Verdict::Deny(Wait::Never);
        if passes(decision.verdict) || logged {
            last = last.max(now.0.into());
        }
        if passes(decision.verdict) {
            admissions.push(last);
            // What was forgotten in favour of refused attempts is not found again: there only the newest is corrected.
            let older = if counts_denied { 0 } else { older % admissions.len() };
            let admitted_at = admissions[admissions.len() - 1 - older];
            let moment = Timestamp(admitted_at.try_into().unwrap());
            state = algorithm.settle(state, moment, *difference, now);
            definition.settle(admitted_at, (*difference).into(), last);
        }
        // Where nothing is left, nothing is remembered, not even when.
        if algorithm.forget_at(&state) == Timestamp(0) {
            (definition, last) = (fresh.clone(), 0);
            admissions.clear();
        }
    }
}

/// Traces in which after every fourth admission or so that one, or an older one, is corrected.
fn steps() -> impl Strategy<Value = Vec<(Step, i64, usize)>> {
    let differences = prop_oneof![3 => Just(0_i64), 1 => -10..10_i64];
    let corrections = prop::collection::vec((differences, 0..4_usize), 60);
    (trace(), corrections).prop_map(|(trace, corrections)| {
        trace
            .into_iter()
            .zip(corrections)
            .map(|(step, (difference, older))| (step, difference, older))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn token_bucket(rate in ordinary_rate(), burst in 1..=30_u32, steps in steps()) {
        let per = Per::from(rate);
        let definition = Tokens { per, burst: burst.into(), left: i128::from(burst) * per.p, at: 0 };
        of_one_mind(Algorithm::token_bucket(rate, cost(burst)), definition, &steps);
    }

    #[test]
    fn gcra(rate in ordinary_rate(), burst in 1..=30_u32, steps in steps()) {
        let definition = Schedule { per: rate.into(), burst: burst.into(), arrival: 0 };
        of_one_mind(Algorithm::gcra(rate, cost(burst)), definition, &steps);
    }

    #[test]
    fn leaky_bucket(count in 1..=40_u32, period in 1_000..4_500_000_u64, queue in 1..=30_u32, max_wait in 0..20_000_000_u64, steps in steps()) {
        let rate = Rate::new(count, Micros(period)).unwrap();
        let definition = Queue { per: rate.into(), queue: queue.into(), max_wait: max_wait.into(), through: Vec::new() };
        of_one_mind(Algorithm::leaky_bucket(rate, cost(queue), Micros(max_wait)), definition, &steps);
    }

    #[test]
    fn fixed_window_by_the_clock(rate in ordinary_rate(), steps in steps()) {
        let definition = Windows { per: rate.into(), weighted: false, counts: HashMap::new() };
        of_one_mind(Algorithm::fixed_window(rate, Align::Clock), definition, &steps);
    }

    #[test]
    fn fixed_window_from_the_first_request(rate in ordinary_rate(), steps in steps()) {
        let definition = FirstRequest { per: rate.into(), begins: 0, count: 0 };
        of_one_mind(Algorithm::fixed_window(rate, Align::FirstRequest), definition, &steps);
    }

    #[test]
    fn sliding_window(rate in ordinary_rate(), steps in steps()) {
        let definition = Windows { per: rate.into(), weighted: true, counts: HashMap::new() };
        of_one_mind(Algorithm::sliding_window(rate), definition, &steps);
    }

    #[test]
    fn sliding_log(rate in ordinary_rate(), spacing in prop_oneof![Just(0), 0..2_000_000_u64], count_denied: bool, steps in steps()) {
        let definition = Everything { per: rate.into(), spacing: spacing.into(), count_denied, events: Vec::new() };
        of_one_mind(Algorithm::sliding_log(rate, Some(Micros(spacing)), count_denied), definition, &steps);
    }
}
