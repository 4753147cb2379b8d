//! Random histories of concurrency limits and bans: the Lua twins in a real Redis answer as the Rust core does.

use tollgate::limit::units::Micros;
use tollgate::limit::{Algorithm, State};

use crate::harness::cases::{START, cost};
use crate::harness::places::{Event, events, max};
use crate::harness::refusals::{BanCase, Refusal, ban, history_with_backward_steps};
use crate::harness::script::{Shared, charge, hold};

fn compare_places(shared: &mut Shared, max: u32, events: &[Event]) {
    let algorithm = Algorithm::concurrency(cost(max), 0, Micros(0));
    let key = shared.new_key();
    let (mut state, mut now, mut requests) = (State::default(), START, Vec::new());
    for (id, event) in (1..).zip(events) {
        now = event.moment(now);
        match event {
            Event::Begin { .. } => {
                let units = event.units(max);
                let (after, expected) = algorithm.decide(state, now, cost(units));
                state = after;
                let answer = shared.admit(&[charge(&algorithm, key, cost(units))], id, now);
                assert_eq!(answer, [expected], "{units} of {max} at {now:?}, then {state:?}");
                if !expected.denies() {
                    requests.push((id, now, units));
                }
            }
            Event::End { .. } => {
                let Some(index) = event.index(requests.len()) else { continue };
                let (id, admitted_at, units) = requests.swap_remove(index);
                state = algorithm.settle(state, admitted_at, -i64::from(units), now);
                let charge = charge(&algorithm, key, cost(units));
                shared.release(&charge, id, now);
                // What a gateway repeats frees no second place.
                shared.release(&charge, id, now);
            }
        }
        let answer = shared.peek(&[charge(&algorithm, key, cost(1))], now);
        assert_eq!(answer, [algorithm.peek(&state, now, cost(1))], "{state:?} at {now:?}");
    }
}

fn compare_bans(shared: &mut Shared, case: &BanCase, history: &[Refusal]) {
    let algorithm = case.algorithm();
    let key = shared.new_key();
    let (mut state, mut now) = (State::default(), START);
    for refusal in history {
        now = refusal.moment(case, now);
        let was_banned = algorithm.peek(&state, now, cost(1)).denies();
        let (after, expected) = algorithm.decide(state, now, cost(refusal.units));
        state = after;
        let (answer, begun) = shared.refuse(&charge(&algorithm, key, cost(refusal.units)), now);
        assert_eq!(answer, expected, "{case:?} at {now:?}, then {state:?}");
        assert_eq!(begun, expected.denies() && !was_banned, "{case:?} at {now:?}");
    }
}

#[test]
fn places_are_held_alike() {
    hold(300, (max(), events()), |shared, (max, events)| compare_places(shared, max, &events));
}

#[test]
fn bans_begin_alike() {
    hold(300, (ban(), history_with_backward_steps()), |shared, (case, history)| {
        compare_bans(shared, &case, &history);
    });
}
