//! The decision on a request where the shared store is unavailable.

use smallvec::SmallVec;

use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::store::memory::MemoryStore;
use crate::store::{Charge, ChargeSet, Decisions, Group, OnError, Outcome};

/// Decides by each limit's [`OnError`]. Limits that count in `memory` are decided there, all or none. A shadow limit
/// refuses no request, so it cannot have `deny`.
pub(super) fn decide(memory: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
    let mut unasked = ChargeSet::default();
    (0..charges.len()).for_each(|index| unasked.insert(index));
    if charges.iter().any(refuses) {
        return Outcome { decisions: Decisions::default(), unasked, unavailable: true };
    }
    let is_local = |charge: &Charge<'_>| charge.remote.on_error == OnError::Local;
    let local: SmallVec<[Charge<'_>; 4]> =
        charges.iter().filter(|charge| is_local(charge)).copied().collect();
    let decided = memory.decide(&local, now).decisions;
    let mut decided = decided.iter().copied();
    let decision = |charge| if is_local(charge) { decided.next() } else { None }.unwrap_or(unlimited(charge));
    let decisions = Decisions::Together(charges.iter().map(decision).collect());
    Outcome { decisions, unasked, unavailable: false }
}

fn refuses(charge: &Charge<'_>) -> bool {
    charge.group == Group::Enforced && charge.remote.on_error == OnError::Deny
}

/// The decision of an unused limit.
pub(super) fn unlimited(charge: &Charge<'_>) -> Decision {
    Decision { verdict: Verdict::Allow, remaining: charge.algorithm.quota(), reset_after: Micros(0) }
}
