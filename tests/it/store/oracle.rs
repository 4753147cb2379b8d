//! Random requests get the same answers from the store as from a plain map that knows nothing of sets, locks or bounds.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::limit::units::{Fingerprint, Micros, Timestamp};
use tollgate::limit::{Algorithm, Decision, State};
use tollgate::store::{Charge, Group};

use crate::harness::charges::{NOON, admits, all, charge, key, store};

/// All counters, and a request decided in the plainest way: on a copy of them.
#[derive(Clone, Default)]
struct Plain(HashMap<Fingerprint, State>);

impl Plain {
    fn state(&self, key: Fingerprint) -> State {
        self.0.get(&key).cloned().unwrap_or_default()
    }

    fn decide(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Vec<Decision> {
        let mut decisions = HashMap::new();
        let admitted = self.decide_group(charges, Group::Enforced, now, true, &mut decisions);
        for (index, Charge { group, .. }) in charges.iter().enumerate() {
            if !decisions.contains_key(&index) {
                self.decide_group(charges, *group, now, admitted, &mut decisions);
            }
        }
        (0..charges.len()).map(|index| decisions[&index]).collect()
    }

    fn decide_group(
        &mut self,
        charges: &[Charge<'_>],
        group: Group,
        now: Timestamp,
        may_charge: bool,
        decisions: &mut HashMap<usize, Decision>,
    ) -> bool {
        let group: Vec<_> = charges.iter().enumerate().filter(|(_, charge)| charge.group == group).collect();
        let mut copy = self.clone();
        for (index, charge) in &group {
            let (state, decision) = charge.algorithm.decide(copy.state(charge.key), now, charge.cost);
            copy.0.insert(charge.key, state);
            decisions.insert(*index, decision);
        }
        let admitted = group.iter().all(|(index, _)| admits(decisions[index].verdict));
        if admitted && may_charge {
            *self = copy;
            return true;
        }
        for (index, charge) in &group {
            let before = self.state(charge.key);
            let (after, decision) = charge.algorithm.decide(before.clone(), now, charge.cost);
            let refused_alone = may_charge && !admits(decision.verdict);
            let told =
                if refused_alone { decision } else { charge.algorithm.peek(&before, now, charge.cost) };
            if refused_alone {
                self.0.insert(charge.key, after);
            }
            decisions.insert(*index, Decision { verdict: decisions[index].verdict, ..told });
        }
        admitted
    }
}

/// One request: how long after the one before, and its charges as (limit, client, cost, shadow place or 3 for enforced).
type Request = (u64, Vec<(usize, u64, u32, u8)>);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let charge = (0..8_usize, 0..3_u64, prop_oneof![4 => 1..4_u32, 1 => 1..14_u32], 0..8_u8);
    let pause = prop_oneof![Just(0), 0..100_000_u64, 0..3_000_000_u64];
    prop::collection::vec((pause, prop::collection::vec(charge, 0..6)), 1..60)
}

fn charges<'a>(algorithms: &'a [Algorithm], request: &[(usize, u64, u32, u8)]) -> Vec<Charge<'a>> {
    let place = |place| if place < 3 { Group::Shadow(place) } else { Group::Enforced };
    let charge = |&(limit, client, cost, group): &(usize, u64, u32, u8)| Charge {
        group: place(group),
        ..charge(&algorithms[limit], key(limit as u64, client), cost)
    };
    request.iter().map(charge).collect()
}

proptest! {
    #[test]
    fn the_store_agrees_with_a_plain_map(requests in requests()) {
        let algorithms = all(10, Micros::SECOND);
        let (store, mut plain, mut now) = (store(10_000, &algorithms), Plain::default(), NOON);
        for (pause, request) in &requests {
            now = now.plus(Micros(*pause));
            let charges = charges(&algorithms, request);
            prop_assert_eq!(store.decide(&charges, now).decisions.to_vec(), plain.decide(&charges, now));
        }
        prop_assert_eq!(store.evictions(), 0);
    }
}
