//! Sliding logs longer than what the script reads at once, and shorter again.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, State};

use crate::harness::cases::{START, cost, rate};
use crate::harness::script::{Shared, charge, hold, name};

/// One request: its time after the previous request (negative: before it), its cost, and perhaps a correction of an
/// earlier admission.
type Request = (i64, u32, Option<(usize, i64)>);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let pause = prop_oneof![
        20 => 0..3_000_i64,
        2 => Just(0),
        1 => -5_000..0_i64,
        1 => 0..400_000_i64,
    ];
    let units = prop_oneof![9 => 1..=2_u32, 1 => 1..300_u32];
    let correction = prop_oneof![9 => Just(None), 1 => (0..400_usize, -3..=3_i64).prop_map(Some)];
    prop::collection::vec((pause, units, correction), 300..1_200)
}

fn log() -> impl Strategy<Value = Algorithm> {
    let spacing = prop_oneof![3 => Just(None), 1 => (0..500_u64).prop_map(|span| Some(Micros(span)))];
    (100..400_u32, spacing, any::<bool>())
        .prop_map(|(count, spacing, denied)| Algorithm::sliding_log(rate(count, 1_000_000), spacing, denied))
}

fn compare(shared: &mut Shared, log: Algorithm, requests: &[Request]) {
    let (key, mut state, mut now) = (shared.new_key(), State::default(), START);
    let mut admissions = Vec::new();
    for (pause, units, correction) in requests {
        now = Timestamp(now.0.saturating_add_signed(*pause));
        let (after, expected) = log.decide(state, now, cost(*units));
        state = after;
        assert_eq!(shared.decide(&[charge(&log, key, cost(*units))], now), [expected], "{log:?}");
        admissions.push(now);
        if let Some((before, difference)) = *correction {
            let admitted_at = admissions[admissions.len().saturating_sub(1 + before)];
            state = log.settle(state, admitted_at, difference, now);
            shared.settle(&charge(&log, key, cost(1)), admitted_at, difference, now);
            let answer = shared.peek(&[charge(&log, key, cost(*units))], now);
            assert_eq!(answer, [log.peek(&state, now, cost(*units))], "{log:?}");
        }
    }
}

#[test]
fn long_logs_decide_alike() {
    hold(12, (log(), requests()), |shared, (log, requests)| compare(shared, log, &requests));
}

#[test]
fn a_log_gives_back_the_room_of_what_has_expired() {
    let (mut shared, log) = (Shared::start(), Algorithm::sliding_log(rate(1_000, 1_000_000), None, false));
    let key = shared.new_key();
    let mut longest = 0;
    for turn in 0..10_000 {
        // One a millisecond: a thousand events count at any moment.
        let now = START.plus(Micros(turn * 1_000));
        assert_eq!(shared.decide(&[charge(&log, key, cost(1))], now).len(), 1);
        longest = longest.max(shared.command(&["STRLEN", &name(key, &log)]).integer());
    }
    assert!((16 * 1_000..48 + 16 * 2_002).contains(&longest), "{longest} B for 1,000 events");
}
