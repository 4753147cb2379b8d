//! What a worker remembers of refusals, so that a client that hammers a closed gate costs the server next to nothing.
//!
//! What is refused stays refused until its wait is over, whatever else happens; unless a counter is reset, refunded or its limit raised,
//! which is why nothing is remembered for more than a second. So a memory never admits: it says no, or nothing.
//!
//! It answers the same call alone: the same charges in the same order, at the same costs. A higher cost is refused, too,
//! but for how long is not known from a lower one's wait, and the wait that a client is told has to be honest.
//!
//! It is worth what it was when it was learned. What the same client was admitted meanwhile with another call makes
//! the true wait longer than the one remembered; then the server says so when that one is over.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::store::{Charge, Decisions, Group, Outcome};

/// A call of more charges is not remembered.
const MOST_CHARGES: usize = 4;
/// So many sets of so many calls: 8,192 calls in 1.3 MB, taken when the first is remembered.
const SETS: usize = 4_096;
const WAYS: usize = 2;
/// Whatever opens the gate before its time is seen after this.
const LONGEST: Micros = Micros::SECOND;

/// The refusals of one worker. Of calls that meet in a set, those that open last are kept.
#[derive(Debug, Default)]
pub struct DenialCache {
    /// None until something is remembered.
    sets: Vec<[Refusal; WAYS]>,
}

/// What the server said of one call.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    call: Call,
    asked: Timestamp,
    /// When the server's answer came: waits count from some moment between the two.
    told: Timestamp,
    /// No longer than this it is certain.
    until: Timestamp,
    /// As many as the call has charges; the rest stands for nothing.
    decisions: [Decision; MOST_CHARGES],
}

/// A hash of all that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call(u128);

impl DenialCache {
    /// Remembers a refused call. `asked` is when it was asked and `told` when the answer came: the server decided in between.
    ///
    /// Not every call: nothing is remembered where the server was not asked, where no enforced limit refuses, or where a
    /// limit of the call counts refused attempts, as then each of them has to be seen.
    pub fn remember(&mut self, charges: &[Charge<'_>], outcome: &Outcome, asked: Timestamp, told: Timestamp) {
        let Some(wait) = certain_for(charges, outcome) else { return };
        let mut decisions = Refusal::NONE.decisions;
        decisions.iter_mut().zip(outcome.decisions.iter()).for_each(|(kept, decided)| *kept = *decided);
        let call = Call::of(charges);
        let refusal = Refusal { call, asked, told, until: asked.plus(wait), decisions };
        if self.sets.is_empty() {
            self.sets = vec![[Refusal::NONE; WAYS]; SETS];
        }
        let Some(set) = self.sets.get_mut(call.place()) else { return };
        let same = set.iter().position(|known| known.call == call);
        let seat = match same {
            Some(seat) => set.get_mut(seat),
            None => set.iter_mut().min_by_key(|known| known.until),
        };
        if let Some(seat) = seat {
            *seat = refusal;
        }
    }

    /// What the server would say of a call that cannot pass yet: what it said, with waits shorter by what has elapsed since it was
    /// told, so that none is told too short. `None` where that is not known.
    #[inline]
    pub fn recall(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcome> {
        if self.sets.is_empty() || charges.len() > MOST_CHARGES {
            return None;
        }
        let call = Call::of(charges);
        let known = self.sets.get(call.place())?.iter().find(|known| known.call == call)?;
        let certain = known.asked <= now && now < known.until;
        certain.then(|| known.outcome(charges.len(), now.since(known.told)))
    }
}

impl Refusal {
    /// Holds nothing: it is over before anything is asked.
    const NONE: Self = Self {
        call: Call(0),
        asked: Timestamp(0),
        told: Timestamp(0),
        until: Timestamp(0),
        decisions: [Decision { verdict: Verdict::Allow, remaining: 0, reset_after: Micros(0) }; MOST_CHARGES],
    };

    fn outcome(&self, charges: usize, elapsed: Micros) -> Outcome {
        let mut later = self.decisions.iter().take(charges).map(|decision| aged(*decision, elapsed));
        let decisions = match (charges, later.next()) {
            (1, Some(decision)) => Decisions::Alone(decision),
            (_, first) => Decisions::Together(first.into_iter().chain(later).collect()),
        };
        decisions.into()
    }
}

impl Call {
    fn of(charges: &[Charge<'_>]) -> Self {
        // Keys are keyed hashes already: nobody can look for two calls that are taken for one.
        let mut hasher = SipHasher13::new();
        for Charge { key, numbers, cost, group, .. } in charges {
            hasher.write_u128(key.0);
            hasher.write_u64(u64::from(numbers.0) << u32::BITS | u64::from(cost.units()));
            hasher.write_u16(match group {
                Group::Enforced => 0,
                Group::Shadow(place) => u16::from(*place) + 1,
            });
        }
        Self(hasher.finish128().as_u128())
    }

    /// Which set it belongs to.
    fn place(self) -> usize {
        // Only the low end is meant.
        self.0 as usize % SETS
    }
}

/// How long it is certain that the call is refused, from when it was asked: until the last of the enforced limits opens. `None` where
/// that is not to be remembered.
fn certain_for(charges: &[Charge<'_>], outcome: &Outcome) -> Option<Micros> {
    let asked = outcome.unasked.is_empty() && !outcome.unavailable;
    let whole = charges.len() <= MOST_CHARGES && charges.len() == outcome.decisions.len();
    if !asked || !whole || charges.iter().any(|charge| charge.algorithm.counts_denied()) {
        return None;
    }
    let enforced =
        charges.iter().zip(outcome.decisions.iter()).filter(|(charge, _)| charge.group == Group::Enforced);
    let waits = enforced.filter_map(|(_, decision)| match decision.verdict {
        Verdict::Deny(Wait::After(wait)) => Some(wait),
        Verdict::Deny(Wait::Never) => Some(LONGEST),
        Verdict::Allow | Verdict::Delay(_) => None,
    });
    waits.max().map(|wait| wait.min(LONGEST))
}

/// What was decided, `elapsed` later: who refused only for a shorter time would let it pass.
fn aged(decision: Decision, elapsed: Micros) -> Decision {
    let left = |span: Micros| Micros(span.0.saturating_sub(elapsed.0));
    let verdict = match decision.verdict {
        Verdict::Deny(Wait::After(wait)) if wait > elapsed => Verdict::Deny(Wait::After(left(wait))),
        Verdict::Delay(wait) if wait > elapsed => Verdict::Delay(left(wait)),
        never @ Verdict::Deny(Wait::Never) => never,
        _ => Verdict::Allow,
    };
    let reset_after = match (verdict, left(decision.reset_after)) {
        // More is free than was told, but how much more is not known; enough only when the wait is over.
        (Verdict::Deny(Wait::After(wait)), Micros(0)) => wait,
        (Verdict::Deny(Wait::After(wait)), reset_after) => reset_after.min(wait),
        (_, reset_after) => reset_after,
    };
    Decision { verdict, reset_after, ..decision }
}
