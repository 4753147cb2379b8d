//! What a worker remembers of refusals is what the server would say, or nothing.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Decision, Verdict, Wait};
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::denial_cache::DenialCache;
use tollgate::store::{Charge, ChargeSet, Decisions, Group, Outcome, ParamsId};

use crate::harness::charges::{NOON, all, charge, index, key, store};

const MILLISECOND: Micros = Micros(1_000);

fn limit(count: u32) -> Algorithm {
    Algorithm::gcra(Rate::new(count, Micros::SECOND).unwrap(), Cost::ONE)
}

fn later(span: u64) -> Timestamp {
    NOON.plus(Micros(span))
}

fn decision(verdict: Verdict, reset_after: Micros) -> Decision {
    Decision { verdict, remaining: 0, reset_after }
}

fn refused(wait: u64) -> Decision {
    decision(Verdict::Deny(Wait::After(Micros(wait))), Micros(wait))
}

fn allowed() -> Decision {
    decision(Verdict::Allow, Micros(0))
}

fn outcome(decisions: &[Decision]) -> Outcome {
    Decisions::Together(decisions.iter().copied().collect()).into()
}

/// What is recalled `elapsed` µs after the charges were so decided.
fn recalled(charges: &[Charge<'_>], decisions: &[Decision], elapsed: u64) -> Option<Vec<Decision>> {
    let mut refusals = DenialCache::default();
    refusals.remember(charges, &outcome(decisions), NOON, NOON);
    refusals.recall(charges, later(elapsed)).map(|outcome| outcome.decisions.to_vec())
}

/// The wait of the whole call; `None` if it passes, a day and more if it never does.
fn wait(charges: &[Charge<'_>], outcome: &Outcome) -> Option<Micros> {
    let enforced =
        charges.iter().zip(outcome.decisions.iter()).filter(|(charge, _)| charge.group == Group::Enforced);
    let waits = enforced.filter_map(|(_, decision)| match decision.verdict {
        Verdict::Deny(Wait::After(wait)) => Some(wait),
        Verdict::Deny(Wait::Never) => Some(Rate::MAX_PERIOD),
        Verdict::Allow | Verdict::Delay(_) | Verdict::Deny(Wait::Unknown) => None,
    });
    waits.max()
}

/// A charge of a random call: limit, client, cost, shadow place or 3 for enforced.
type Sample = (u64, u64, u32, u8);

fn samples() -> impl Strategy<Value = Vec<Vec<Sample>>> {
    let cost = prop_oneof![4 => 1..3_u32, 2 => 5..11_u32, 1 => 11..13_u32];
    let charge = (0..9_u64, 0..2_u64, cost, (1..8_u8).prop_map(|index| index.min(3)));
    prop::collection::vec(prop::collection::vec(charge, 1..5), 1..6)
}

fn charges<'a>(algorithms: &'a [Algorithm], samples: &[Sample]) -> Vec<Charge<'a>> {
    let charge = |&(limit, client, cost, group): &Sample| Charge {
        group: if group < 3 { Group::Shadow(group) } else { Group::Enforced },
        ..charge(&algorithms[index(limit)], key(limit, client), cost)
    };
    samples.iter().map(charge).collect()
}

/// When something is asked.
#[derive(Clone, Copy, Debug)]
enum Pause {
    /// So long after the last.
    For(u64),
    /// When the last wait that was told is over, or 1 µs before.
    Out(bool),
}

/// A step: which call, when, and how long until the server decides.
type Step = (prop::sample::Index, Pause, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = prop_oneof![Just(0), 0..50_000_u64, 0..900_000_u64];
    let pause = prop_oneof![3 => span.prop_map(Pause::For), 1 => any::<bool>().prop_map(Pause::Out)];
    prop::collection::vec((any::<prop::sample::Index>(), pause, 0..20_000_u64), 1..120)
}

/// A server, a worker that asks it, and what a test has seen of them.
struct Scene<'a> {
    far: MemoryStore,
    refusals: DenialCache,
    /// When each key was last charged.
    charged: HashMap<Fingerprint, Timestamp>,
    /// When each call was last decided, and how long after it was asked.
    learned: HashMap<&'a [Sample], (Timestamp, u64)>,
    /// When the last wait that was told is over.
    opens: Timestamp,
}

impl<'a> Scene<'a> {
    /// Has the call answered, from memory or by the server, and compares. Says what time it is then.
    fn ask(&mut self, call: &'a [Sample], charges: &[Charge<'_>], now: Timestamp, lag: u64) -> Timestamp {
        if let Some(here) = self.refusals.recall(charges, now) {
            let there = self.far.decide(charges, now);
            self.compare(call, charges, &here, &there);
            return now;
        }
        let decided = now.plus(Micros(lag));
        let there = self.far.decide(charges, decided);
        self.refusals.remember(charges, &there, now, now);
        self.learned.insert(call, (decided, lag));
        match wait(charges, &there) {
            Some(wait) => self.opens = decided.plus(wait.min(Micros::SECOND)),
            None => self.charged.extend(charges.iter().map(|charge| (charge.key, decided))),
        }
        decided
    }

    /// Both refuse, and for as long: but the memory counts from when it asked, and knows of nothing that was admitted since.
    fn compare(&self, call: &[Sample], charges: &[Charge<'_>], here: &Outcome, there: &Outcome) {
        assert!(charges.iter().all(|charge| !charge.algorithm.counts_denied()));
        let (Some(told), Some(truth)) = (wait(charges, here), wait(charges, there)) else {
            panic!("{charges:?}: {here:?}, but {there:?}");
        };
        let (decided, lag) = self.learned[call];
        let early = if truth == Rate::MAX_PERIOD { 0 } else { lag };
        let twice =
            |(at, charge): (usize, &Charge<'_>)| charges[..at].iter().any(|other| other.key == charge.key);
        if charges.iter().enumerate().any(twice) {
            // The second to a key waits for what the first would leave, if that passed: it need not mean much.
            return;
        }
        assert!(told.0 + early <= truth.0, "{here:?}, but {there:?}");
        let touched = |charge: &Charge<'_>| self.charged.get(&charge.key).is_some_and(|at| *at >= decided);
        if !charges.iter().any(touched) {
            assert_eq!(told.0 + early, truth.0);
            here.decisions
                .iter()
                .zip(there.decisions.iter())
                .for_each(|(here, there)| alike(here, there, lag));
        }
    }
}

fn alike(here: &Decision, there: &Decision, lag: u64) {
    let refuses = |decision: &Decision| matches!(decision.verdict, Verdict::Deny(_));
    assert!(here.remaining <= there.remaining);
    assert!(lag > 0 || refuses(here) == refuses(there), "{here:?}, but {there:?}");
    if let Verdict::Deny(Wait::After(wait)) = here.verdict {
        assert!(Micros(0) < here.reset_after && here.reset_after <= wait);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recalled_is_what_the_server_says(samples in samples(), steps in steps(), prompt: bool) {
        let spaced = Algorithm::sliding_log(Rate::new(10, Micros::SECOND).unwrap(), Some(Micros(30_000)), false);
        let algorithms: Vec<_> = all(10, Micros::SECOND).into_iter().chain([spaced]).collect();
        let (charged, learned) = (HashMap::new(), HashMap::new());
        let mut scene =
            Scene { far: store(1000, &algorithms), refusals: DenialCache::default(), charged, learned, opens: NOON };
        let mut now = NOON;
        for (call, pause, lag) in &steps {
            let call = call.get(&samples);
            let lag = if prompt { 0 } else { *lag };
            now = now.max(match pause {
                Pause::For(span) => now.plus(Micros(*span)),
                Pause::Out(before) => Timestamp(scene.opens.0 - u64::from(*before)),
            });
            now = scene.ask(call, &charges(&algorithms, call), now, lag);
        }
    }
}

#[test]
fn a_refusal_is_recalled_with_what_is_left_of_its_wait() {
    let limit = limit(10);
    let one = [charge(&limit, key(0, 0), 1)];
    let told = decision(Verdict::Deny(Wait::After(Micros(500))), Micros(300));
    for (elapsed, wait, reset) in
        [(0, 500, 300), (100, 400, 200), (299, 201, 1), (300, 200, 200), (499, 1, 1)]
    {
        let left = decision(Verdict::Deny(Wait::After(Micros(wait))), Micros(reset));
        assert_eq!(recalled(&one, &[told], elapsed), Some(vec![left]));
    }
    assert_eq!(recalled(&one, &[told], 500), None);
}

#[test]
fn a_call_waits_for_the_longest_and_the_others_open_before() {
    let limit = limit(10);
    let both = [charge(&limit, key(0, 0), 1), charge(&limit, key(1, 0), 1)];
    let told = [refused(300), refused(500)];
    assert_eq!(recalled(&both, &told, 299), Some(vec![refused(1), refused(201)]));
    assert_eq!(recalled(&both, &told, 300), Some(vec![allowed(), refused(200)]));
    assert_eq!(recalled(&both, &told, 500), None);
}

#[test]
fn a_shadow_and_a_queue_are_told_as_they_stand_by_then() {
    let limit = limit(10);
    let shadow = Charge { group: Group::Shadow(0), ..charge(&limit, key(0, 0), 1) };
    let all = [shadow, charge(&limit, key(1, 0), 1), charge(&limit, key(2, 0), 1)];
    let delayed = |wait| decision(Verdict::Delay(Micros(wait)), Micros(wait));
    let told = [refused(5_000), refused(500), delayed(400)];
    assert_eq!(recalled(&all, &told, 100), Some(vec![refused(4_900), refused(400), delayed(300)]));
    assert_eq!(recalled(&all, &told, 450), Some(vec![refused(4_550), refused(50), allowed()]));
    assert_eq!(recalled(&all, &told, 500), None, "no request waits for a shadow");
}

#[test]
fn nothing_is_remembered_for_more_than_a_second() {
    let limit = limit(10);
    let one = [charge(&limit, key(0, 0), 1)];
    for told in [refused(5_000_000), decision(Verdict::Deny(Wait::Never), Micros(0))] {
        assert!(recalled(&one, &[told], 999_999).is_some());
        assert_eq!(recalled(&one, &[told], 1_000_000), None);
    }
}

#[test]
fn a_clock_that_runs_backwards_recalls_nothing() {
    let limit = limit(10);
    let one = [charge(&limit, key(0, 0), 1)];
    let mut refusals = DenialCache::default();
    refusals.remember(&one, &outcome(&[refused(500)]), NOON, NOON);
    assert_eq!(refusals.recall(&one, Timestamp(NOON.0 - 1)), None);
    assert!(refusals.recall(&one, NOON).is_some());
}

#[test]
fn only_the_same_call_is_answered() {
    let (limit, other) = (limit(10), limit(20));
    let (one, two) = (charge(&limit, key(0, 0), 2), charge(&limit, key(1, 0), 2));
    let mut refusals = DenialCache::default();
    refusals.remember(&[one, two], &outcome(&[refused(500), allowed()]), NOON, NOON);
    let costs = |cost| Charge { cost: Cost::new(cost).unwrap(), ..one };
    let params = Charge { params: ParamsId::of(&other), algorithm: &other, ..one };
    let shadow = Charge { group: Group::Shadow(0), ..two };
    let client = Charge { key: key(0, 1), ..one };
    for another in [
        &[two, one][..],
        &[one],
        &[two],
        &[one, two, one],
        &[costs(1), two],
        &[costs(3), two],
        &[params, two],
        &[one, shadow],
        &[client, two],
        &[],
    ] {
        assert_eq!(refusals.recall(another, NOON), None, "{another:?}");
    }
    assert!(refusals.recall(&[one, two], NOON).is_some());
}

#[test]
fn some_outcomes_are_not_remembered() {
    let limit = limit(10);
    let counting = Algorithm::sliding_log(Rate::new(10, Micros::SECOND).unwrap(), None, true);
    let (one, counts) = (charge(&limit, key(0, 0), 1), charge(&counting, key(1, 0), 1));
    let shadow = |charge| Charge { group: Group::Shadow(0), ..charge };
    let recalled = |charges: &[Charge<'_>], outcome: &Outcome| {
        let mut refusals = DenialCache::default();
        refusals.remember(charges, outcome, NOON, NOON);
        refusals.recall(charges, NOON).is_some()
    };
    let told = outcome(&[refused(500)]);
    assert!(recalled(&[one], &told));
    assert!(!recalled(&[counts], &told), "each attempt counts");
    assert!(!recalled(&[one, shadow(counts)], &outcome(&[refused(500), allowed()])), "also in shadow");
    assert!(!recalled(&[shadow(one)], &told), "a shadow refuses no request");
    assert!(!recalled(&[one], &outcome(&[allowed()])));
    assert!(!recalled(&[one], &outcome(&[decision(Verdict::Delay(MILLISECOND), MILLISECOND)])));
    assert!(!recalled(&[one; 5], &outcome(&[refused(500); 5])), "too many charges");
    assert!(!recalled(&[one], &outcome(&[refused(500); 2])), "not an answer to this");
    let mut decided_locally = ChargeSet::default();
    decided_locally.insert(0);
    assert!(!recalled(&[one], &Outcome { decided_locally, ..told.clone() }));
    assert!(!recalled(&[one], &Outcome { unavailable: true, ..told.clone() }));
}

/// The server decided at some moment between the question and its answer, and its wait counts from there.
#[test]
fn a_wait_is_told_from_the_answer_on_and_believed_from_the_question_on() {
    let limit = limit(10);
    let one = [charge(&limit, key(0, 0), 1)];
    let mut refusals = DenialCache::default();
    refusals.remember(&one, &outcome(&[refused(500)]), NOON, later(30));
    assert_eq!(refusals.recall(&one, later(10)), Some(outcome(&[refused(500)])));
    assert_eq!(refusals.recall(&one, later(130)), Some(outcome(&[refused(400)])));
    assert_eq!(refusals.recall(&one, later(499)), Some(outcome(&[refused(31)])));
    assert_eq!(refusals.recall(&one, later(500)), None);
}

#[test]
fn what_is_learned_anew_takes_the_place_of_what_was_known() {
    let limit = limit(10);
    let one = [charge(&limit, key(0, 0), 1)];
    let mut refusals = DenialCache::default();
    for (asked, wait) in [(0, 500), (100, 900), (200, 300)] {
        refusals.remember(&one, &outcome(&[refused(wait)]), later(asked), later(asked));
        let told = refusals.recall(&one, later(asked)).unwrap();
        assert_eq!(told, outcome(&[refused(wait)]));
    }
    assert_eq!(refusals.recall(&one, later(500)), None);
}

#[test]
fn a_flood_of_clients_forgets_those_that_open_first() {
    let limit = limit(10);
    let mut refusals = DenialCache::default();
    let call = |client| [charge(&limit, key(0, client), 1)];
    for client in 0..100_000 {
        refusals.remember(&call(client), &outcome(&[refused(500_000)]), later(client), later(client));
    }
    let known = |clients: std::ops::Range<u64>| {
        clients.filter(|client| refusals.recall(&call(*client), later(100_000)).is_some()).count()
    };
    let (last, first) = (known(98_000..100_000), known(0..50_000));
    assert!(last > 1_900, "{last} of the last 2,000");
    assert!(first < 50, "{first} of the first 50,000");
}
