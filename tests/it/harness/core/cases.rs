//! Random limits and random traces for the tests of the core, ordinary and extreme.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use tollgate::limit::calendar::CalendarUnit;
use tollgate::limit::units::{Cost, EXACT, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Decision, State, Verdict};
use tollgate::time_zones;

/// A day in October 2024: a multiple of every window up to the day.
pub(crate) const START: Timestamp = Timestamp(20_000 * 86_400_000_000);

pub(crate) fn cost(units: u32) -> Cost {
    Cost::new(units).unwrap()
}

pub(crate) fn rate(count: u32, period: u64) -> Rate {
    Rate::new(count, Micros(period)).unwrap()
}

/// Rates whose scale is exact for small bursts, with periods that divide evenly and that do not.
pub(crate) fn ordinary_rate() -> impl Strategy<Value = Rate> {
    let period = prop_oneof![Just(1_000_u64), Just(1_000_000), Just(60_000_000), 1_000..5_000_000_u64];
    (1..=40_u32, period).prop_map(|(count, period)| rate(count, period))
}

/// Anything that configuration admits, with a liking for the ends.
pub(crate) fn any_rate() -> impl Strategy<Value = Rate> {
    let count = prop_oneof![Just(1), Just(Cost::MAX), 1..=100_u32, 1..=Cost::MAX, Just(999_999_937)];
    let period = prop_oneof![
        Just(Rate::MIN_PERIOD.0),
        Just(Rate::MAX_PERIOD.0),
        1_000..=Rate::MAX_PERIOD.0,
        Just(86_400_000_000)
    ];
    prop_oneof![
        ordinary_rate().boxed(),
        (count, period).prop_map(|(count, period)| rate(count, period)).boxed()
    ]
}

fn any_units() -> impl Strategy<Value = Cost> {
    prop_oneof![1..=50_u32, Just(1), Just(Cost::MAX), 1..=Cost::MAX].prop_map(cost)
}

/// All six algorithms.
pub(crate) fn algorithm(
    rate: impl Strategy<Value = Rate> + 'static,
    units: impl Strategy<Value = Cost> + 'static,
) -> impl Strategy<Value = Algorithm> {
    let wait = prop_oneof![Just(0), 0..20_000_000_u64, Just(Rate::MAX_PERIOD.0)];
    let spacing = prop_oneof![Just(None), (0..2_000_000_u64).prop_map(|span| Some(Micros(span)))];
    (0..9, rate, units, wait, spacing, any::<bool>()).prop_map(|(kind, rate, units, wait, spacing, flag)| {
        match kind {
            0 => Algorithm::token_bucket(rate, units),
            1 => Algorithm::gcra(rate, units),
            2 => Algorithm::leaky_bucket(rate, units, Micros(wait)),
            3 => Algorithm::fixed_window(rate, if flag { Align::Clock } else { Align::FirstRequest }),
            4 => Algorithm::sliding_window(rate),
            5 => Algorithm::sliding_log(rate, None, false),
            6 => Algorithm::sliding_log(rate, spacing, flag),
            7 => Algorithm::sliding_log(rate, None, true),
            _ => by_calendar(rate, flag),
        }
    })
}

/// A fixed window of days, or of months of different lengths.
fn by_calendar(rate: Rate, is_month: bool) -> Algorithm {
    let unit = if is_month { CalendarUnit::Month(31) } else { CalendarUnit::Day };
    let calendar = time_zones::calendar(unit, "Europe/Berlin").expect("a time zone");
    let rate = Rate::new(rate.count(), unit.longest()).expect("a period in range");
    Algorithm::fixed_window(rate, Align::Calendar(calendar))
}

/// All six with anything that configuration admits.
pub(crate) fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    algorithm(any_rate(), any_units())
}

/// All six with small numbers on an exact scale.
pub(crate) fn ordinary_algorithm() -> impl Strategy<Value = Algorithm> {
    algorithm(ordinary_rate(), (1..=20_u32).prop_map(cost))
}

/// How far time moves before a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Stay,
    Micros(u64),
    /// 1/1000 of the time that one unit takes.
    Intervals(u64),
    /// 1/1000 of the limit's window.
    Windows(u64),
    /// To the first µs of a later window, or one before it.
    Edge(u64, bool),
    /// Backwards by 1/1000 of the limit's window.
    Back(u64),
}

/// How much a request costs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spend {
    Units(u32),
    /// 1/1000 of the quota.
    Share(u64),
    /// The largest that can be admitted.
    Most,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    time: Move,
    spend: Spend,
}

impl Step {
    pub(crate) fn moment(&self, algorithm: &Algorithm, now: Timestamp) -> Timestamp {
        let window = algorithm.window().0;
        let part = |span: u64, thousandths: u64| {
            u64::try_from(u128::from(span) * u128::from(thousandths) / 1000).unwrap()
        };
        let moved = match self.time {
            Move::Stay => now.0,
            Move::Micros(span) => now.0 + span,
            Move::Intervals(thousandths) => now.0 + part(window / algorithm.quota(), thousandths),
            Move::Windows(thousandths) => now.0 + part(window, thousandths),
            Move::Edge(windows, before) => now.0 - now.0 % window + windows * window - u64::from(before),
            Move::Back(thousandths) => now.0.saturating_sub(part(window, thousandths)).max(START.0 / 2),
        };
        // After a wait of a million years, the next steps must still be before the maximum timestamp.
        Timestamp(if moved > EXACT / 2 { now.0 } else { moved })
    }

    pub(crate) fn cost(&self, algorithm: &Algorithm) -> Cost {
        let units = match self.spend {
            Spend::Units(units) => units,
            Spend::Share(thousandths) => {
                u32::try_from(algorithm.quota() * thousandths / 1000).unwrap().max(1)
            }
            Spend::Most => u32::try_from(algorithm.max_cost()).unwrap(),
        };
        cost(units)
    }
}

fn spend() -> impl Strategy<Value = Spend> {
    prop_oneof![
        4 => (1..=3_u32).prop_map(Spend::Units),
        2 => (1..=1000_u64).prop_map(Spend::Share),
        1 => Just(Spend::Most),
        1 => (1..=Cost::MAX).prop_map(Spend::Units),
    ]
}

fn onwards() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Stay),
        1 => (1..4_u64).prop_map(Move::Micros),
        3 => (1..3000_u64).prop_map(Move::Intervals),
        3 => (1..2500_u64).prop_map(Move::Windows),
        1 => (1..3_u64, any::<bool>()).prop_map(|(windows, before)| Move::Edge(windows, before)),
    ]
}

/// A trace in which time only goes forwards.
pub(crate) fn forward_trace() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((onwards(), spend()).prop_map(|(time, spend)| Step { time, spend }), 1..60)
}

/// A trace in which time goes backwards now and then.
pub(crate) fn trace() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![9 => onwards(), 1 => (1..1500_u64).prop_map(Move::Back)];
    prop::collection::vec((time, spend()).prop_map(|(time, spend)| Step { time, spend }), 1..60)
}

/// One decision and what was around it.
pub(crate) struct Seen<'a> {
    pub(crate) before: &'a State,
    pub(crate) after: &'a State,
    pub(crate) now: Timestamp,
    pub(crate) cost: Cost,
    pub(crate) decision: Decision,
}

/// Plays a trace and shows each decision to `look`.
pub(crate) fn play(algorithm: &Algorithm, trace: &[Step], mut look: impl FnMut(Seen<'_>)) {
    let (mut state, mut now) = (State::default(), START);
    for step in trace {
        now = step.moment(algorithm, now);
        let cost = step.cost(algorithm);
        let before = state.clone();
        let (after, decision) = algorithm.decide(state, now, cost);
        look(Seen { before: &before, after: &after, now, cost, decision });
        state = after;
    }
}

pub(crate) fn passes(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Deny(_))
}

/// Whether the two states answer alike from `now` on, as far as a few probes see.
pub(crate) fn alike(algorithm: &Algorithm, one: &State, other: &State, now: Timestamp) -> bool {
    let window = algorithm.window().0.min(EXACT / 8);
    let max = u32::try_from(algorithm.max_cost()).unwrap();
    let costs = [1, 2, max / 2, max].into_iter().filter_map(Cost::new);
    costs.into_iter().all(|cost| {
        [0, 1, window / 7, window / 2, window - 1, window, 2 * window].into_iter().all(|span| {
            let moment = now.plus(Micros(span));
            algorithm.peek(one, moment, cost) == algorithm.peek(other, moment, cost)
        })
    })
}
