//! Random steps: the Lua twins in a real Redis answer as the Rust core does, to the µs.

use proptest::prelude::*;
use tollgate::limit::sliding_log::SlidingLog;
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, State};

use crate::harness::cases::{START, Step, any_algorithm, cost, ordinary_algorithm, passes, trace};
use crate::harness::script::{Shared, charge, hold};

/// An action after a request: a correction of an earlier admission, by a difference.
type Settlement = Option<(usize, i64)>;

fn settlement() -> impl Strategy<Value = Settlement> {
    let difference = prop_oneof![
        4 => -20..=20_i64,
        1 => any::<i64>(),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), -(1_i64 << 33)..1 << 33],
    ];
    prop_oneof![2 => Just(None), 1 => (0..4_usize, difference).prop_map(Some)]
}

/// Without calendars: a server whose clock was set back by more than a window does not know the end of a later one.
/// `calendars.rs` compares those.
fn of_even_windows(algorithms: impl Strategy<Value = Algorithm>) -> impl Strategy<Value = Algorithm> {
    algorithms.prop_filter("windows of a calendar", |algorithm| algorithm.calendar().is_none())
}

/// The same key under the core and under the script.
struct Pair<'a> {
    shared: &'a mut Shared,
    key: Fingerprint,
    algorithm: Algorithm,
    state: State,
    admissions: Vec<Timestamp>,
}

impl Pair<'_> {
    fn decide(&mut self, now: Timestamp, cost: Cost) {
        let (state, expected) = self.algorithm.decide(std::mem::take(&mut self.state), now, cost);
        let answer = self.shared.decide(&[charge(&self.algorithm, self.key, cost)], now);
        assert_eq!(answer, [expected], "{:?} at {now:?} for {cost:?}, then {state:?}", self.algorithm);
        self.state = state;
        if passes(expected.verdict) {
            self.admissions.push(now);
        }
    }

    fn peek(&mut self, now: Timestamp) {
        for cost in [Cost::ZERO, Cost::ONE, cost(u32::try_from(self.algorithm.max_cost()).unwrap())] {
            let expected = self.algorithm.peek(&self.state, now, cost);
            let answer = self.shared.peek(&[charge(&self.algorithm, self.key, cost)], now);
            assert_eq!(
                answer,
                [expected],
                "{:?} at {now:?} for {cost:?} on {:?}",
                self.algorithm,
                self.state
            );
        }
    }

    fn grant(&mut self, units: Cost, now: Timestamp) {
        let (state, granted) = self.algorithm.grant(std::mem::take(&mut self.state), units, now);
        self.state = state;
        let told = self.shared.grant(&charge(&self.algorithm, self.key, Cost::ONE), units, now);
        assert_eq!(told, granted, "{:?} at {now:?}: {units:?} of {:?}", self.algorithm, self.state);
    }

    fn charge(&mut self, units: Cost, now: Timestamp) {
        self.state = self.algorithm.charge(std::mem::take(&mut self.state), units, now);
        let charge = charge(&self.algorithm, self.key, Cost::ONE);
        self.shared.charge(&charge, units, now);
        let (expected, used) = (self.algorithm.in_use(&self.state, now), self.shared.used(&charge, now));
        assert_eq!(used, expected, "{:?} at {now:?}: {units:?} of {:?}", self.algorithm, self.state);
    }

    fn settle(&mut self, before: usize, difference: i64, now: Timestamp) {
        let Some(&admitted_at) = self.admissions.iter().rev().nth(before) else { return };
        let state = std::mem::take(&mut self.state);
        self.state = self.algorithm.settle(state, admitted_at, difference, now);
        self.shared.settle(&charge(&self.algorithm, self.key, Cost::ONE), admitted_at, difference, now);
    }
}

/// As [`compare`], with a gift or a charge by hand in place of each correction.
fn compare_by_hand(
    shared: &mut Shared,
    algorithm: Algorithm,
    steps: &[(Step, u32)],
    change: fn(&mut Pair<'_>, Cost, Timestamp),
) {
    let (key, state) = (shared.new_key(), State::default());
    let mut pair = Pair { shared, key, algorithm, state, admissions: Vec::new() };
    let mut now = START;
    for (step, units) in steps {
        now = step.moment(&algorithm, now);
        pair.decide(now, step.cost(&algorithm));
        if *units > 0 {
            now = step.moment(&algorithm, now);
            change(&mut pair, cost(*units), now);
            pair.peek(now);
        }
    }
    pair.peek(now);
}

fn compare(shared: &mut Shared, algorithm: Algorithm, steps: &[(Step, Settlement)]) {
    let (key, state) = (shared.new_key(), State::default());
    let mut pair = Pair { shared, key, algorithm, state, admissions: Vec::new() };
    let mut now = START;
    for (step, settlement) in steps {
        now = step.moment(&algorithm, now);
        pair.decide(now, step.cost(&algorithm));
        if let Some((before, difference)) = settlement {
            now = step.moment(&algorithm, now);
            pair.settle(*before, *difference, now);
            pair.peek(now);
        }
    }
    pair.peek(now);
}

fn requests() -> impl Strategy<Value = Vec<(Step, Settlement)>> {
    trace().prop_map(|steps| steps.into_iter().map(|step| (step, None)).collect())
}

fn requests_and_settlements() -> impl Strategy<Value = Vec<(Step, Settlement)>> {
    let steps = trace().prop_flat_map(|steps| {
        let settlements = prop::collection::vec(settlement(), steps.len());
        (Just(steps), settlements)
    });
    steps.prop_map(|(steps, settlements)| steps.into_iter().zip(settlements).collect())
}

#[test]
fn ordinary_limits_decide_alike() {
    hold(150, (of_even_windows(ordinary_algorithm()), requests()), |shared, (algorithm, steps)| {
        compare(shared, algorithm, &steps);
    });
}

#[test]
fn limits_with_the_largest_numbers_decide_alike() {
    hold(150, (of_even_windows(any_algorithm()), requests()), |shared, (algorithm, steps)| {
        compare(shared, algorithm, &steps)
    });
}

#[test]
fn corrections_are_alike() {
    let algorithm = prop_oneof![of_even_windows(ordinary_algorithm()), of_even_windows(any_algorithm())];
    hold(150, (algorithm, requests_and_settlements()), |shared, (algorithm, steps)| {
        compare(shared, algorithm, &steps);
    });
}

/// Requests, most of them with some units after it.
fn requests_and_units() -> impl Strategy<Value = Vec<(Step, u32)>> {
    let units = prop_oneof![2 => Just(0_u32), 2 => 1..20_u32, 1 => 1..=Cost::MAX];
    trace().prop_flat_map(move |steps| {
        let units = prop::collection::vec(units.clone(), steps.len());
        (Just(steps), units).prop_map(|(steps, units)| steps.into_iter().zip(units).collect::<Vec<_>>())
    })
}

#[test]
fn gifts_are_alike() {
    let algorithm = prop_oneof![of_even_windows(ordinary_algorithm()), of_even_windows(any_algorithm())];
    hold(150, (algorithm, requests_and_units()), |shared, (algorithm, steps)| {
        compare_by_hand(shared, algorithm, &steps, |pair, units, now| pair.grant(units, now));
    });
}

#[test]
fn charges_by_hand_are_alike() {
    let algorithm = prop_oneof![of_even_windows(ordinary_algorithm()), of_even_windows(any_algorithm())];
    hold(150, (algorithm, requests_and_units()), |shared, (algorithm, steps)| {
        compare_by_hand(shared, algorithm, &steps, |pair, units, now| pair.charge(units, now));
    });
}

/// A gift ends no event for good: where the clock goes back afterwards, the event counts again in both.
#[test]
fn a_gift_before_the_clock_goes_back_is_alike() {
    let rate = Rate::new(10, Micros(1000)).unwrap();
    let algorithm = Algorithm::SlidingLog(SlidingLog::new(rate, None, false));
    let mut shared = Shared::start();
    let (key, state) = (shared.new_key(), State::default());
    let mut pair = Pair { shared: &mut shared, key, algorithm, state, admissions: Vec::new() };
    pair.decide(START, cost(3));
    pair.decide(START.plus(Micros(500)), cost(4));
    pair.grant(cost(1), START.plus(Micros(1000)));
    pair.peek(START.plus(Micros(600)));
    pair.decide(START.plus(Micros(600)), cost(2));
}

/// `multiply_divide` of the sliding window's Lua implementation, for all triples.
fn multiply_divide(shared: &mut Shared, triples: &[[u128; 3]]) -> Vec<i64> {
    let twin = include_str!("../../../src/limit/sliding_window.lua");
    let (_, rest) = twin.split_once("local function multiply_divide").unwrap();
    let (body, _) = rest.split_once("\nend\n").unwrap();
    let script = format!(
        "local EXACT, floor = 2 ^ 53, math.floor\nlocal function multiply_divide{body}\nend\nlocal all = {{}}
        for i = 1, #ARGV, 3 do
          all[#all + 1] = multiply_divide(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
        end
        return all"
    );
    let numbers: Vec<_> = triples.iter().flatten().map(ToString::to_string).collect();
    let words: Vec<_> =
        ["EVAL", &script, "0"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    shared.command(&words).integers()
}

/// a, b and c with a × b = q × c - 1: a quotient that is rounded anywhere on the way comes out as q.
fn near_miss() -> impl Strategy<Value = [u128; 3]> {
    const Q: u128 = (1 << 31) - 1;
    (prop_oneof![2..1_u128 << 20, 2..Q], prop_oneof![0..8_u128, 0..1_u128 << 13]).prop_map(|(a, turns)| {
        // By Fermat, as q is prime.
        let inverse = (0..31).rev().fold(1, |power: u128, bit| {
            let square = power * power % Q;
            if (Q - 2) >> bit & 1 == 1 { square * a % Q } else { square }
        });
        let b = Q - inverse + turns * Q;
        [a, b, (a * b + 1) / Q]
    })
}

#[test]
fn wide_products_are_divided_exactly() {
    hold(100, prop::collection::vec(near_miss(), 100), |shared, triples| {
        let expected: Vec<_> = triples.iter().map(|[a, b, c]| i64::try_from(a * b / c).unwrap()).collect();
        assert_eq!(multiply_divide(shared, &triples), expected);
    });
}
