//! Vectors of other limiters' own tests (`tests/vectors/ratelimit.json` names them), replayed with a fake clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use serde_json::Value;
use tollgate::limit::units::{Cost, Micros, Timestamp};
use tollgate::limit::{Algorithm, State, Verdict, Wait};

use crate::harness::cases::{START, cost, rate};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../vectors/ratelimit.json")).unwrap()
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("no {field} in {row}"))
}

fn moment(row: &Value) -> Timestamp {
    START.plus(Micros(number(row, "at_ms") * 1000))
}

/// `None` for a cost of 0, which is never charged here.
fn cost_of(row: &Value) -> Option<Cost> {
    Cost::new(u32::try_from(number(row, "cost")).unwrap())
}

#[test]
fn gcra_as_throttled_and_redis_cell() {
    let vectors = vectors();
    let burst = number(&vectors["gcra"], "burst_total");
    let algorithm = Algorithm::gcra(rate(1, 1_000_000), cost(u32::try_from(burst).unwrap()));
    let rows = vectors["gcra"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 16);
    let mut state = State::default();
    for row in rows {
        let Some(cost) = cost_of(row) else {
            assert_eq!(algorithm.peek(&state, moment(row), Cost::ONE).remaining, number(row, "remaining"));
            continue;
        };
        let (after, decision) = algorithm.decide(state, moment(row), cost);
        state = after;
        let retry_after_ms = match decision.verdict {
            Verdict::Deny(Wait::After(wait)) => i64::try_from(wait.0 / 1000).unwrap(),
            _ => -1,
        };
        assert_eq!(decision.remaining, number(row, "remaining"), "{row}");
        assert_eq!(matches!(decision.verdict, Verdict::Deny(_)), row["limited"].as_bool().unwrap(), "{row}");
        assert_eq!(retry_after_ms, row["retry_after_ms"].as_i64().unwrap(), "{row}");
        // Their `reset` is when all is refilled; ours is when more is. Theirs is our moment of forgetting.
        let full_in = algorithm.forget_at(&state).since(moment(row));
        assert_eq!(full_in, Micros(number(row, "reset_after_ms") * 1000), "{row}");
    }
}

fn token_bucket(rows: &[Value], burst: u32) {
    let algorithm = Algorithm::token_bucket(rate(10, 1_000_000), cost(burst));
    let mut state = State::default();
    for row in rows {
        let before = algorithm.peek(&state, moment(row), Cost::ONE).remaining;
        assert_eq!(before, number(row, "tokens_before"), "{row}");
        let Some(cost) = cost_of(row) else { continue };
        let (after, decision) = algorithm.decide(state, moment(row), cost);
        state = after;
        assert_eq!(decision.verdict == Verdict::Allow, row["allowed"].as_bool().unwrap(), "{row}");
    }
}

#[test]
fn token_bucket_as_golang() {
    let vectors = vectors();
    let rows = |name: &str| vectors["token_bucket"][name].as_array().unwrap().clone();
    assert!(rows("burst1").len() == 9 && rows("burst3").len() == 13);
    token_bucket(&rows("burst1"), 1);
    token_bucket(&rows("burst3"), 3);
}

/// As long as the clock stands behind, golang's bucket and ours agree. When it comes back to where it was, golang's has
/// refilled for the time it came back through; ours has not, as no new moment has been reached.
#[test]
fn token_bucket_as_golang_when_the_clock_jumps_back() {
    let vectors = vectors();
    let rows = vectors["token_bucket"]["jump_backwards_burst3_first_rows"].as_array().unwrap();
    token_bucket(&rows[..5], 3);
    assert_eq!((number(&rows[5], "at_ms"), rows[5]["allowed"].as_bool()), (100, Some(true)));
    let algorithm = Algorithm::token_bucket(rate(10, 1_000_000), cost(3));
    let state = rows[..5]
        .iter()
        .fold(State::default(), |state, row| algorithm.decide(state, moment(row), Cost::ONE).0);
    let wait = Wait::After(Micros(100_000));
    assert_eq!(algorithm.peek(&state, moment(&rows[5]), Cost::ONE).verdict, Verdict::Deny(wait));
}
