//! Windows of a calendar: the Lua twin in a real Redis answers as the Rust core does, to the µs.

use proptest::prelude::*;
use tollgate::limit::calendar::CalendarUnit;
use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::wall_clock::WallTime;
use tollgate::limit::{Algorithm, Align, State};
use tollgate::time_zones;

use crate::harness::cases::{START, cost, passes};
use crate::harness::script::{Shared, charge};

/// Zones with daylight saving of an hour and of half an hour, without, and at both ends of the world.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Kiritimati", "Etc/GMT+12"];

fn unit() -> impl Strategy<Value = CalendarUnit> {
    prop_oneof![
        Just(CalendarUnit::Day),
        Just(CalendarUnit::Week),
        Just(CalendarUnit::WeekFromSunday),
        (1..=31_u8).prop_map(CalendarUnit::Month),
        Just(CalendarUnit::Year),
    ]
}

fn by_calendar(unit: CalendarUnit, zone: &str, count: u32) -> Algorithm {
    let calendar = time_zones::calendar(unit, zone).expect("a time zone");
    Algorithm::fixed_window(Rate::new(count, unit.longest()).expect("a rate"), Align::Calendar(calendar))
}

/// What happens next, after time has moved.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(u32),
    Grant(u32),
    Charge(u32),
    /// Corrects the admission before the last ones by this number of units.
    Settle(usize, i64),
}

/// How far time moves before a step: by thousandths of the longest window, or to the next edge or 1 µs before it.
#[derive(Clone, Copy, Debug)]
enum Move {
    On(u64),
    Back(u64),
    Edge(bool),
}

fn steps() -> impl Strategy<Value = Vec<(Move, Step)>> {
    let moves = prop_oneof![
        5 => (0..400_u64).prop_map(Move::On),
        1 => (0..5_000_u64).prop_map(Move::On),
        1 => (0..900_u64).prop_map(Move::Back),
        3 => any::<bool>().prop_map(Move::Edge),
    ];
    let step = prop_oneof![
        5 => (0..8_u32).prop_map(Step::Ask),
        1 => (1..8_u32).prop_map(Step::Grant),
        1 => (1..8_u32).prop_map(Step::Charge),
        2 => (0..3_usize, -8..9_i64).prop_map(|(before, difference)| Step::Settle(before, difference)),
    ];
    prop::collection::vec((moves, step), 1..25)
}

fn moved(algorithm: &Algorithm, now: Timestamp, latest: Timestamp, step: Move) -> Timestamp {
    let calendar = algorithm.calendar().expect("a calendar");
    let part = |thousandths: u64| algorithm.window().0 / 1_000 * thousandths;
    match step {
        Move::On(thousandths) => now.plus(Micros(part(thousandths))),
        // Never more than a window before the latest step.
        Move::Back(thousandths) => {
            let back = Timestamp(now.0 - part(thousandths));
            back.max(Timestamp(calendar.window(WallTime(calendar.window(WallTime(latest.0)).0.0 - 1)).0.0))
        }
        Move::Edge(before) => Timestamp(calendar.window(WallTime(now.0)).1.0 - u64::from(before)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn calendars_decide_alike(unit in unit(), zone in prop::sample::select(&ZONES[..]), count in 1..20_u32, steps in steps()) {
        let mut shared = Shared::start();
        let algorithm = &by_calendar(unit, zone, count);
        let key = shared.new_key();
        let (mut state, mut now, mut latest) = (State::Fresh, START, START);
        let mut admissions: Vec<Timestamp> = Vec::new();
        for (how, step) in steps {
            now = moved(algorithm, now, latest, how);
            latest = latest.max(now);
            let one = charge(algorithm, key, Cost::ONE);
            match step {
                Step::Ask(units) => {
                    let units = Cost::new(units).unwrap_or(Cost::ZERO);
                    let (next, expected) = algorithm.decide(state, now, units);
                    let answer = shared.decide(&[charge(algorithm, key, units)], now);
                    prop_assert_eq!(answer, vec![expected], "{:?} at {:?}, then {:?}", algorithm, now, &next);
                    state = next;
                    if passes(expected.verdict) {
                        admissions.push(algorithm.counted_at(&state, now));
                    }
                }
                Step::Grant(units) => {
                    let (next, given) = algorithm.grant(state, cost(units), now);
                    prop_assert_eq!(shared.grant(&one, cost(units), now), given);
                    state = next;
                }
                Step::Charge(units) => {
                    shared.charge(&one, cost(units), now);
                    state = algorithm.charge(state, cost(units), now);
                }
                Step::Settle(before, difference) => {
                    let Some(at) = admissions.iter().rev().nth(before) else { continue };
                    shared.settle(&one, *at, difference, now);
                    state = algorithm.settle(state, *at, difference, now);
                }
            }
            prop_assert_eq!(shared.used(&one, now), algorithm.in_use(&state, now), "{:?} {:?}", algorithm, &state);
            let expected = algorithm.peek(&state, now, Cost::ONE);
            prop_assert_eq!(shared.peek(&[one], now), vec![expected], "{:?} at {:?}: {:?}", algorithm, now, &state);
        }
    }
}
