//! Several limits of one request, decided all or none without waiting for a lock.
//!
//! Each state is read with the version of its set. A request that is admitted locks all of these sets at the versions
//! read, so no state has changed since. A request that is refused writes nothing: it checks that no version has changed,
//! so all states were valid at one moment. Where another thread was faster, it begins again, and after a few tries the
//! caller waits for the locks instead.

use smallvec::SmallVec;

use super::set::{Locked, SlotView};
use super::slot::{Content, CounterSlot, Tag};
use super::table::CounterTable;
use crate::limit::units::Timestamp;
use crate::limit::{Decision, Packed};
use crate::store::{Charge, Group};

/// The maximum number of charges that are decided here.
const MAX: usize = 4;
/// How often other threads may be faster.
const TRIES: u32 = 8;

/// A stored state, and what its algorithm makes of it.
struct ProposedState<'a> {
    seen: SlotView<'a>,
    before: Packed,
    after: Packed,
    decision: Decision,
}

type Proposals<'a> = SmallVec<[ProposedState<'a>; MAX]>;

/// Decides enforced limits with stored keys and states that keep their size. `None` for any others, or when other
/// threads keep on writing to the same sets.
pub(super) fn decide(
    table: &CounterTable,
    charges: &[Charge<'_>],
    now: Timestamp,
) -> Option<SmallVec<[Decision; 4]>> {
    if !can_decide(charges) {
        return None;
    }
    charges.iter().for_each(|charge| table.prefetch(charge.key));
    for _ in 0..TRIES {
        // A loop: to collect costs half as much again.
        let (mut proposals, mut denied) = (Proposals::new(), false);
        for charge in charges {
            let proposal = propose(table, charge, now)?;
            denied |= proposal.decision.denies();
            proposals.push(proposal);
        }
        if denied {
            if proposals.iter().all(|proposal| proposal.seen.is_current()) {
                let of_charge = |(charge, proposal)| uncharged(charge, proposal, now);
                return Some(charges.iter().zip(&proposals).map(of_charge).collect());
            }
        } else if write(charges, &proposals) {
            return Some(proposals.iter().map(|proposal| proposal.decision).collect());
        }
    }
    None
}

/// Whether the charges are few and enforced, none is corrected later, and no two have one key.
fn can_decide(charges: &[Charge<'_>]) -> bool {
    let is_simple = |(index, charge): (usize, &Charge<'_>)| {
        charge.group == Group::Enforced
            && !charge.shared_key.settles
            && charges[..index].iter().all(|earlier| earlier.key != charge.key)
    };
    charges.len() <= MAX && charges.iter().enumerate().all(is_simple)
}

fn slot(charge: &Charge<'_>, state: Packed) -> CounterSlot {
    CounterSlot::new(Tag::of(charge.key), charge.params, Content::State(state))
}

#[inline(always)]
fn propose<'a>(table: &'a CounterTable, charge: &Charge<'_>, now: Timestamp) -> Option<ProposedState<'a>> {
    let seen = table.look(charge.key, &slot(charge, Packed::default()))?;
    let Content::State(before) = seen.slot.content() else { return None };
    let (after, decision) = charge.algorithm.decide_packed(before, now, charge.cost)?;
    // An unused state takes no slot.
    (after.used > 0).then_some(ProposedState { seen, before, after, decision })
}

/// The decision on a charge of a refused request: its numbers are those of the uncharged state.
fn uncharged(charge: &Charge<'_>, proposal: &ProposedState<'_>, now: Timestamp) -> Decision {
    if proposal.decision.denies() {
        return proposal.decision;
    }
    let state = charge.algorithm.unpacked(proposal.before);
    Decision { verdict: proposal.decision.verdict, ..charge.algorithm.peek(&state, now, charge.cost) }
}

/// Writes all states, or none if one of the sets has changed. It waits for no lock, so two requests that lock the same
/// sets in different orders cannot block each other.
#[inline(always)]
fn write(charges: &[Charge<'_>], proposals: &Proposals<'_>) -> bool {
    let mut locked: SmallVec<[Locked<'_>; MAX]> = SmallVec::new();
    for (index, ProposedState { seen, .. }) in proposals.iter().enumerate() {
        match proposals[..index].iter().find(|earlier| earlier.seen.shares_set(seen)) {
            Some(earlier) if earlier.seen.shares_version(seen) => {}
            Some(_) => return false,
            None => match seen.lock() {
                Some(set) => locked.push(set),
                None => return false,
            },
        }
    }
    for (charge, proposal) in charges.iter().zip(proposals) {
        proposal.seen.write(&slot(charge, proposal.after));
    }
    true
}
