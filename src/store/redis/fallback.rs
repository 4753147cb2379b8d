//! The decision on a request where the shared store is unavailable.

use smallvec::SmallVec;

use crate::limit::units::{Cost, Micros, Timestamp};
use crate::limit::{Decision, Verdict};
use crate::store::memory::MemoryStore;
use crate::store::memory::in_flight::{Ticket, Turn};
use crate::store::{Charge, ChargeSet, Decisions, OnError, Outcome};

/// Decides by each limit's [`OnError`]. A charge of a leased limit whose units are paid has cost zero. Limits that count in `memory` are decided there, all or none. A shadow limit
/// refuses no request, so it cannot have `deny`. Places of concurrency limits are not taken.
pub(super) fn decide(memory: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
    if charges.iter().any(refuses) {
        return unavailable(charges);
    }
    decided(charges, memory.decide_without_places(&local(charges), now), now)
}

/// The same for a request with concurrency limits, which takes its places or its turn in `memory`.
pub(super) fn admit(
    memory: &MemoryStore,
    charges: &[Charge<'_>],
    now: Timestamp,
    ticket: &mut Ticket,
) -> Turn {
    if charges.iter().any(refuses) {
        return Turn::Decided(unavailable(charges), None);
    }
    match memory.admit(&local(charges), now, ticket) {
        Turn::Decided(outcome, places) => Turn::Decided(decided(charges, outcome, now), places),
        Turn::Waits(outcome, limit) => Turn::Waits(decided(charges, outcome, now), limit),
    }
}

/// A leased limit counts nothing here: it spends the units that are left, and then refuses.
fn is_local(charge: &Charge<'_>) -> bool {
    charge.shared_key.on_error == OnError::Local && !charge.is_leased()
}

fn local<'a>(charges: &[Charge<'a>]) -> SmallVec<[Charge<'a>; 4]> {
    charges.iter().filter(|charge| is_local(charge)).copied().collect()
}

/// The outcome for all charges from that of the local ones.
fn decided(charges: &[Charge<'_>], local: Outcome, now: Timestamp) -> Outcome {
    let mut decided = local.decisions.iter().copied();
    let decision = |charge| if is_local(charge) { decided.next() } else { None }.unwrap_or(unlimited(charge));
    let decisions = Decisions::Together(charges.iter().map(decision).collect());
    let counted_at = local.counted_at.map(|times| {
        let mut times = times.into_iter();
        let time = |charge| if is_local(charge) { times.next() } else { None }.unwrap_or(now);
        charges.iter().map(time).collect()
    });
    let dropped = local.dropped;
    Outcome { decisions, decided_locally: all(charges), counted_at, dropped, ..Outcome::default() }
}

fn unavailable(charges: &[Charge<'_>]) -> Outcome {
    Outcome { decided_locally: all(charges), unavailable: true, ..Outcome::default() }
}

fn all(charges: &[Charge<'_>]) -> ChargeSet {
    let mut all = ChargeSet::default();
    (0..charges.len()).for_each(|index| all.insert(index));
    all
}

fn refuses(charge: &Charge<'_>) -> bool {
    charge.refuses_without_store(charge.is_leased() && charge.cost == Cost::ZERO)
}

/// The decision of an unused limit.
pub(super) fn unlimited(charge: &Charge<'_>) -> Decision {
    Decision { verdict: Verdict::Allow, remaining: charge.algorithm.quota(), reset_after: Micros(0) }
}
