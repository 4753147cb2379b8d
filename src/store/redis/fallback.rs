//! What becomes of a request whose limits the shared store could not be asked after.

use smallvec::SmallVec;

use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::store::memory::MemoryStore;
use crate::store::{Charge, ChargeSet, Decisions, Group, OnError, Outcome};

/// Decides by what each limit's [`OnError`] says. Those that count in `memory` are decided there, all or none; a shadow limit
/// refuses nobody, so it can't say `deny`.
pub(super) fn decide(memory: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
    let mut unasked = ChargeSet::default();
    (0..charges.len()).for_each(|place| unasked.insert(place));
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

/// As if nothing had ever been used.
pub(super) fn unlimited(charge: &Charge<'_>) -> Decision {
    Decision { verdict: Verdict::Allow, remaining: charge.algorithm.quota(), reset_after: Micros(0) }
}
