//! What a ban promises, on random histories of refusals: beside a plain list of all refusals, and beside the memory store.

use proptest::prelude::*;
use tollgate::limit::units::{Micros, Timestamp};
use tollgate::limit::{Algorithm, Decision, State, Verdict, Wait};
use tollgate::store::memory::MemoryStore;

use crate::harness::cases::{START, cost};
use crate::harness::charges::{self, charge};
use crate::harness::refusals::{BanCase, Refusal, ban, history, history_with_backward_steps};

/// The definition of a ban, by a list of all refusals. Time must not go backwards.
struct Definition<'a> {
    case: &'a BanCase,
    refusals: Vec<(Timestamp, u64)>,
    until: Timestamp,
    bans: usize,
}

impl<'a> Definition<'a> {
    fn of(case: &'a BanCase) -> Self {
        Self { case, refusals: Vec::new(), until: Timestamp(0), bans: 0 }
    }

    /// The refusals in (t - `within`, t].
    fn counting(&self, now: Timestamp) -> u64 {
        let counts = |(at, _): &&(Timestamp, u64)| at.plus(self.case.within) > now;
        self.refusals.iter().filter(counts).map(|(_, units)| units).sum()
    }

    /// Returns how long the key is banned from now on.
    fn refuse(&mut self, now: Timestamp, units: u32) -> Option<Micros> {
        if now >= self.until {
            self.refusals.push((now, units.into()));
            if self.counting(now) < self.case.after.into() {
                return None;
            }
            let longest = self.case.spans.iter().max().unwrap().0;
            if now >= self.until.plus(Micros(10 * longest)) {
                self.bans = 0;
            }
            let last = self.case.spans.len() - 1;
            self.until = now.plus(self.case.spans[self.bans.min(last)]);
            self.bans += 1;
            self.refusals.clear();
        }
        Some(self.until.since(now))
    }
}

fn banned_for(decision: &Decision) -> Option<Micros> {
    match decision.verdict {
        Verdict::Allow => None,
        Verdict::Deny(Wait::After(rest)) => Some(rest),
        other => panic!("a ban never says {other:?}"),
    }
}

fn moments(case: &BanCase, history: &[Refusal]) -> Vec<(Timestamp, u32)> {
    let mut now = START;
    let moved = history.iter().map(|refusal| {
        now = refusal.moment(case, now);
        (now, refusal.units)
    });
    moved.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A ban begins exactly at the refusal that makes `after` within `within`, and lasts for the span that is its turn.
    #[test]
    fn a_ban_begins_as_defined(case in ban(), history in history()) {
        let algorithm = case.algorithm();
        let (mut state, mut definition) = (State::default(), Definition::of(&case));
        for (now, units) in moments(&case, &history) {
            let (after, decision) = algorithm.decide(state, now, cost(units));
            prop_assert_eq!(banned_for(&decision), definition.refuse(now, units), "{:?} at {:?}", case, now);
            let left = if decision.denies() { 0 } else { u64::from(case.after) - definition.counting(now) };
            prop_assert_eq!(decision.remaining, left);
            state = after;
        }
    }

    /// Wherever the clock goes: no refusal during a ban changes anything, a look says what is known, no more refusals
    /// are kept than can be without a ban, and a forgotten state is as good as none.
    #[test]
    fn a_ban_keeps_its_promises(case in ban(), history in history_with_backward_steps()) {
        let algorithm = case.algorithm();
        let mut state = State::default();
        for (now, units) in moments(&case, &history) {
            let before = state.clone();
            let was = algorithm.peek(&before, now, cost(units));
            let (after, decision) = algorithm.decide(state, now, cost(units));
            prop_assert_eq!(algorithm.peek(&after, now, cost(1)), decision);
            if was.denies() {
                prop_assert_eq!((&after, decision), (&before, was));
            }
            prop_assert!(after.weight() <= case.after as usize);
            let forgotten = algorithm.forget_at(&after);
            let next = algorithm.decide(after.clone(), forgotten, cost(1)).1;
            prop_assert_eq!(next, algorithm.decide(State::default(), forgotten, cost(1)).1);
            state = after;
        }
    }

    #[test]
    fn the_memory_store_bans_as_the_core_does(case in ban(), history in history_with_backward_steps()) {
        let algorithm = case.algorithm();
        let store = MemoryStore::new(10_000).unwrap();
        store.register(&algorithm);
        let mut state = State::default();
        for (now, units) in moments(&case, &history) {
            let (after, decision) = algorithm.decide(state, now, cost(units));
            state = after;
            prop_assert_eq!(store.decide_alone(&charge(&algorithm, charges::key(0, 1), units), now), decision);
        }
    }

    /// A reload with other numbers forgets no ban, begins none, and keeps the refusals that fit.
    #[test]
    fn a_conversion_begins_no_ban(from in ban(), to in ban(), history in history()) {
        let (old, new) = (from.algorithm(), to.algorithm());
        let (mut state, mut last) = (State::default(), START);
        for (now, units) in moments(&from, &history) {
            (state, _) = old.decide(state, now, cost(units));
            last = now;
        }
        let before = old.peek(&state, last, cost(1));
        let after = new.peek(&new.convert(&old, state, last), last, cost(1));
        prop_assert_eq!(banned_for(&after), banned_for(&before));
        prop_assert!(after.denies() || after.remaining > 0);
    }
}

#[test]
fn a_ban_has_one_to_eight_spans_and_a_bounded_count() {
    let span = Micros::SECOND;
    assert!(Algorithm::ban(0, span, &[span]).is_none() && Algorithm::ban(10_001, span, &[span]).is_none());
    assert!(Algorithm::ban(1, span, &[]).is_none() && Algorithm::ban(1, span, &[span; 9]).is_none());
    assert!(Algorithm::ban(1, span, &[span; 8]).is_some() && Algorithm::ban(10_000, span, &[span]).is_some());
}
