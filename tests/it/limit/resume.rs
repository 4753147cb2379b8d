//! Going on from what was told of a counter, for all algorithms, ordinary and extreme, after random histories.

use proptest::prelude::*;
use tollgate::limit::calendar::CalendarUnit;
use tollgate::limit::units::{Cost, EXACT, Micros, Timestamp};
use tollgate::limit::{Algorithm, Align, Decision, State, Verdict};
use tollgate::time_zones;

use crate::harness::cases::{
    START, Step, any_algorithm, cost, forward_trace, ordinary_algorithm, passes, rate, trace,
};

/// What happened to a key before its store was lost, and when it is looked at.
#[derive(Clone, Debug)]
struct History {
    algorithm: Algorithm,
    steps: Vec<Step>,
    /// The last admission is corrected by this number of units.
    correction: i64,
    /// How long after the last step, in 1/1000 of the limit's window.
    later: u64,
}

impl History {
    /// The state that was lost, and the moment.
    fn play(&self) -> (State, Timestamp) {
        let (mut state, mut now, mut admitted_at) = (State::default(), START, START);
        for step in &self.steps {
            now = step.moment(&self.algorithm, now);
            let (after, decision) = self.algorithm.decide(state, now, step.cost(&self.algorithm));
            state = after;
            if passes(decision.verdict) {
                admitted_at = now;
            }
        }
        state = self.algorithm.settle(state, admitted_at, self.correction, now);
        let window = u128::from(self.algorithm.window().0.min(EXACT / 8));
        let later = u64::try_from(window * u128::from(self.later) / 1000).unwrap();
        (state, now.plus(Micros(later)))
    }
}

fn history(steps: impl Strategy<Value = Vec<Step>>) -> impl Strategy<Value = History> {
    let algorithm = prop_oneof![ordinary_algorithm().boxed(), any_algorithm().boxed()];
    let correction = prop_oneof![4 => Just(0), 1 => -5..50_i64, 1 => 0..i64::from(u32::MAX)];
    let later = prop_oneof![Just(0), 0..1000_u64];
    (algorithm, steps, correction, later).prop_map(|(algorithm, steps, correction, later)| History {
        algorithm,
        steps,
        correction,
        later,
    })
}

fn resumed(algorithm: &Algorithm, state: &State, now: Timestamp) -> (State, Decision) {
    let told = algorithm.peek(state, now, Cost::ONE);
    (algorithm.resume(told.remaining, told.reset_after, now), told)
}

fn tells_its_reset(algorithm: &Algorithm) -> bool {
    !matches!(algorithm, Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_))
}

/// The spacing of a log whose count its answers leave open.
fn spaced(algorithm: &Algorithm) -> bool {
    algorithm.to_string().contains(" apart") && algorithm.quota() > 1
}

/// Plays `steps` from `now` on against `ours`; whatever it admits, `lost` has to admit, too.
fn never_more_generous(
    algorithm: &Algorithm,
    mut ours: State,
    mut lost: State,
    mut now: Timestamp,
    steps: &[Step],
) {
    for step in steps {
        let cost = step.cost(algorithm);
        let (charged, decision) = algorithm.decide(ours, now, cost);
        ours = charged;
        if passes(decision.verdict) {
            let (charged, there) = algorithm.decide(lost, now, cost);
            assert!(passes(there.verdict), "{cost:?} at {now:?}: {decision:?}, but {there:?}");
            assert!(delay(decision.verdict) >= delay(there.verdict), "{cost:?} at {now:?}");
            lost = charged;
        }
        now = step.moment(algorithm, now);
    }
}

fn delay(verdict: Verdict) -> Micros {
    if let Verdict::Delay(span) = verdict { span } else { Micros(0) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_was_told_is_told_again(history in history(trace())) {
        let (algorithm, (state, now)) = (&history.algorithm, history.play());
        let (ours, told) = resumed(algorithm, &state, now);
        let again = algorithm.peek(&ours, now, Cost::ONE);
        prop_assert_eq!(again.remaining, told.remaining);
        if tells_its_reset(algorithm) {
            prop_assert_eq!(again.reset_after, told.reset_after);
        }
    }

    #[test]
    fn what_goes_on_is_never_more_generous(history in history(forward_trace()), steps in forward_trace()) {
        let (algorithm, (state, now)) = (&history.algorithm, history.play());
        let (ours, told) = resumed(algorithm, &state, now);
        prop_assert!(algorithm.peek(&ours, now, Cost::ONE).reset_after >= told.reset_after);
        if !spaced(algorithm) {
            never_more_generous(algorithm, ours, state, now, &steps);
        }
    }

    /// And a moment before and after, for every cost of a small quota, and not only for the requests of a trace.
    #[test]
    fn at_no_moment_does_more_pass(history in history(forward_trace()), spans in prop::collection::vec(0..3000_u64, 1..20)) {
        let (algorithm, (state, now)) = (&history.algorithm, history.play());
        let (ours, told) = resumed(algorithm, &state, now);
        if spaced(algorithm) {
            return Ok(());
        }
        let window = algorithm.window().0.min(EXACT / 8);
        let shares = spans.iter().map(|share| window / 1000 * share);
        let edges = [told.reset_after.0, told.reset_after.0.saturating_sub(1), window - now.0 % window, window];
        for moment in edges.into_iter().chain(shares).map(|span| now.plus(Micros(span))) {
            let max = u32::try_from(algorithm.quota()).unwrap();
            for units in (1..=max.min(20)).chain([max / 3 + 1, max]) {
                let passed = |state: &State| passes(algorithm.peek(state, moment, cost(units)).verdict);
                prop_assert!(!passed(&ours) || passed(&state), "{units} units at {moment:?}");
            }
        }
    }

    /// Every microsecond of this window and the next, where counts are as large as windows are long.
    #[test]
    fn at_no_microsecond_is_more_left_of_a_sliding_window(
        count in 1..2_000_u32, period in 1_000..1_200_u64, shares in (0..=1000_u32, 0..=1000_u32), elapsed in 0..1_200_u64,
    ) {
        let window = Algorithm::sliding_window(rate(count, period));
        let start = Timestamp(START.0 / period * period);
        let spend = |state: State, now: Timestamp, share: u32| match count * share / 1000 {
            0 => state,
            units => window.decide(state, now, cost(units)).0,
        };
        let now = start.plus(Micros(period + elapsed % period));
        let state = spend(spend(State::default(), start, shares.0), now, shares.1);
        let (ours, _) = resumed(&window, &state, now);
        for moment in (0..=2 * period).map(|span| now.plus(Micros(span))) {
            let left = |state| window.peek(state, moment, Cost::ONE).remaining;
            prop_assert!(left(&ours) <= left(&state), "{moment:?}");
        }
    }

    /// A clock that ran backwards grants a bucket no more than its last microsecond, and a fixed window nothing.
    #[test]
    fn a_clock_that_ran_backwards_grants_a_microsecond(history in history(trace()), steps in forward_trace()) {
        let (algorithm, (state, now)) = (&history.algorithm, history.play());
        let (ours, _) = resumed(algorithm, &state, now);
        for step in steps.iter().filter(|_| tells_its_reset(algorithm)) {
            let (moment, cost) = (step.moment(algorithm, now), step.cost(algorithm));
            let grace = if matches!(algorithm, Algorithm::FixedWindow(_)) { Micros(0) } else { Micros(1) };
            let passed = passes(algorithm.peek(&ours, moment, cost).verdict);
            prop_assert!(!passed || passes(algorithm.peek(&state, moment.plus(grace), cost).verdict));
        }
    }

    /// Of a log with spacing only that is told, and when its count is used up.
    #[test]
    fn spacing_is_kept(
        count in 1..20_u32, period in 1_000..5_000_000_u64, spacing in 1..2_000_000_u64, counts_denied: bool,
        steps in forward_trace(), later in 0..1000_u64, after in forward_trace(),
    ) {
        let algorithm = Algorithm::sliding_log(rate(count, period), Some(Micros(spacing)), counts_denied);
        let (state, now) = History { algorithm, steps, correction: 0, later }.play();
        let (ours, told) = resumed(&algorithm, &state, now);
        let passed = |moment| passes(algorithm.peek(&ours, moment, Cost::ONE).verdict);
        if told.remaining > 0 {
            prop_assert_eq!(ours, State::Fresh);
        } else if told.reset_after > Micros(spacing) || count == 1 {
            never_more_generous(&algorithm, ours, state, now, &after);
        } else {
            let opens = now.plus(told.reset_after);
            prop_assert!(passed(opens) && !passed(Timestamp(opens.0 - 1)));
        }
    }

    #[test]
    fn no_number_is_too_strange(
        algorithm in any_algorithm(),
        remaining in prop_oneof![Just(0), Just(u64::MAX), 0..20_u64, 0..=u64::from(Cost::MAX), any::<u64>()],
        reset_after in prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(EXACT), any::<u64>(), 0..100_000_000_u64],
        now in prop_oneof![Just(0), Just(EXACT - 1), Just(EXACT), Just(u64::MAX), 0..EXACT, Just(START.0)],
        units in 1..=Cost::MAX,
        difference in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
    ) {
        let now = Timestamp(now);
        let state = algorithm.resume(remaining, Micros(reset_after), now);
        // By this clock, the window of a calendar that was told of may be over.
        let is_over = algorithm.calendar().is_some() && algorithm.forget_at(&state) <= now;
        prop_assert!(
            now.0 >= EXACT || is_over || algorithm.peek(&state, now, Cost::ONE).remaining <= remaining
        );
        prop_assert!(state.weight() == 1);
        for moment in [now, START, Timestamp(EXACT), now.plus(Micros(reset_after))] {
            algorithm.peek(&state, moment, cost(units));
            algorithm.decide(state.clone(), moment, cost(units));
            algorithm.settle(state.clone(), now, difference, moment);
            algorithm.used(&state, moment);
            algorithm.forget_at(&state);
        }
    }

    #[test]
    fn a_full_allowance_is_a_fresh_state(algorithm in any_algorithm(), more in 0..5_u64) {
        let state = algorithm.resume(algorithm.quota() + more, Micros(0), START);
        let used = algorithm.used(&state, START);
        // A queue of which nothing is told may have a unit in it.
        let unit = if algorithm.name() == "leaky-bucket" { u32::MAX } else { 0 };
        prop_assert!(used <= unit);
    }
}

#[test]
fn a_bucket_keeps_its_fraction() {
    let bucket = Algorithm::token_bucket(rate(3, 1_000_000), cost(5));
    let ours = bucket.resume(2, Micros(100_000), START);
    let told = bucket.peek(&ours, START, cost(3));
    assert_eq!((told.remaining, told.reset_after), (2, Micros(100_000)));
    assert!(passes(bucket.peek(&ours, START.plus(Micros(100_000)), cost(3)).verdict));
    assert!(!passes(bucket.peek(&ours, START.plus(Micros(99_999)), cost(3)).verdict));
}

#[test]
fn a_debt_is_paid_off_as_it_was_told() {
    let gcra = Algorithm::gcra(rate(10, 1_000_000), cost(5));
    let ours = gcra.resume(0, Micros(7_000_000), START);
    let told = gcra.peek(&ours, START, Cost::ONE);
    assert_eq!((told.remaining, told.reset_after), (0, Micros(7_000_000)));
}

#[test]
fn a_window_from_the_first_request_ends_when_it_was_told_to() {
    let window = Algorithm::fixed_window(rate(3, 1_000_000), Align::FirstRequest);
    let ours = window.resume(0, Micros(250_000), START);
    assert!(!passes(window.peek(&ours, START.plus(Micros(249_999)), Cost::ONE).verdict));
    assert_eq!(window.peek(&ours, START.plus(Micros(250_000)), Cost::ONE).remaining, 3);
}

/// The server's clock is another, and its reply takes a while: the window ends at an edge of the calendar all the same, and
/// not a window later.
#[test]
fn a_window_of_a_calendar_ends_at_the_edge_that_is_near() {
    for unit in [CalendarUnit::Day, CalendarUnit::Month(1)] {
        let calendar = time_zones::calendar(unit, "Europe/Berlin").expect("a time zone");
        let window = Algorithm::fixed_window(rate(3, 86_400_000_000), Align::Calendar(calendar));
        let (state, decision) = window.decide(State::default(), START, cost(3));
        let edge = START.plus(decision.reset_after);
        for (now, skew) in [(START, 1), (START, 2_000_000), (START, -1), (START, -2_000_000), (START, 0)] {
            let reset_after = Micros(decision.reset_after.0.saturating_add_signed(skew));
            let ours = window.resume(0, reset_after, now);
            assert_eq!(ours, state, "{unit:?} {skew}");
            assert!(!passes(window.peek(&ours, Timestamp(edge.0 - 1), Cost::ONE).verdict), "{unit:?} {skew}");
            assert_eq!(window.peek(&ours, edge, Cost::ONE).remaining, 3, "{unit:?} {skew}");
        }
    }
}

#[test]
fn a_sliding_window_falls_when_it_was_told_to() {
    let window = Algorithm::sliding_window(rate(10, 1_000_000));
    // 4 in the window before: all of them weigh a tenth into this one, one less at 1/4.
    let (state, _) = window.decide(State::default(), START, cost(4));
    let now = START.plus(Micros(1_100_000));
    let (ours, told) = resumed(&window, &state, now);
    assert_eq!((told.remaining, told.reset_after), (6, Micros(150_000)));
    let again = window.peek(&ours, now, Cost::ONE);
    assert_eq!((again.remaining, again.reset_after), (6, Micros(150_000)));
}

#[test]
fn an_empty_queue_and_one_of_a_unit_are_told_alike_and_taken_for_the_longer() {
    let queue = Algorithm::leaky_bucket(rate(10, 1_000_000), cost(5), Micros(10_000_000));
    let ours = queue.resume(5, Micros(0), START);
    assert_eq!(queue.peek(&ours, START, Cost::ONE).verdict, Verdict::Delay(Micros(100_000)));
    assert_eq!(queue.peek(&ours, START.plus(Micros(100_000)), Cost::ONE).verdict, Verdict::Allow);
}
