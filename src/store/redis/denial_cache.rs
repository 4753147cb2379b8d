//! A worker's cache of denials: a client that goes on sending denied requests causes almost no calls to the server.
//!
//! A denied call stays denied until its wait is over, unless a counter is reset or refunded, or its limit is raised. So
//! a denial is cached for at most a second. The cache never admits: it denies, or has no answer.
//!
//! An entry answers the same call alone: the same charges in the same order, at the same costs. A higher cost would be
//! denied too, but its wait is unknown from that of a lower cost, and the client has to be sent a correct wait.
//!
//! An entry holds the decision at the time it was learned. If the same client is admitted meanwhile by another call,
//! the true wait is longer than the cached one; the server says so when the cached wait is over.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::limit::units::{Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::store::{Charge, Decisions, Group, Outcome};

/// The maximum number of charges of a cached call.
const MAX_CACHED_CHARGES: usize = 4;
/// The number of sets: 8,192 calls in 1.3 MB, allocated with the first entry.
const SETS: usize = 4_096;
const WAYS: usize = 2;
/// The maximum age of an entry: an earlier admission is noticed after this.
const LONGEST: Micros = Micros::SECOND;

/// The denials of one worker. Of the calls in a full set, those with the longest waits are kept.
#[derive(Debug, Default)]
pub struct DenialCache {
    /// Empty until the first entry.
    sets: Vec<[CachedRefusal; WAYS]>,
}

/// The server's decision on one call.
#[derive(Clone, Copy, Debug)]
struct CachedRefusal {
    call: Call,
    asked: Timestamp,
    /// When the reply arrived: waits count from a moment between the call and the reply.
    replied: Timestamp,
    /// The denial is certain until then.
    until: Timestamp,
    /// As many as the call has charges; the rest is unused.
    decisions: [Decision; MAX_CACHED_CHARGES],
}

/// A hash of the whole call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call(u128);

impl DenialCache {
    /// Caches a denied call. `asked` is the time of the call and `replied` that of the reply: the server decided in
    /// between.
    ///
    /// Four kinds are not cached: a call decided without the server; one that no enforced limit denies; one with a limit
    /// that counts denied attempts, since the server has to see each of them; and one with a limit that gives costs back.
    pub fn remember(
        &mut self,
        charges: &[Charge<'_>],
        outcome: &Outcome,
        asked: Timestamp,
        replied: Timestamp,
    ) {
        let Some(wait) = certain_for(charges, outcome) else { return };
        let mut decisions = CachedRefusal::NONE.decisions;
        decisions.iter_mut().zip(outcome.decisions.iter()).for_each(|(kept, decided)| *kept = *decided);
        let call = Call::of(charges);
        let refusal = CachedRefusal { call, asked, replied, until: asked.plus(wait), decisions };
        if self.sets.is_empty() {
            self.sets = vec![[CachedRefusal::NONE; WAYS]; SETS];
        }
        let Some(set) = self.sets.get_mut(call.index()) else { return };
        let same = set.iter().position(|known| known.call == call);
        let slot = match same {
            Some(slot) => set.get_mut(slot),
            None => set.iter_mut().min_by_key(|known| known.until),
        };
        if let Some(slot) = slot {
            *slot = refusal;
        }
    }

    /// The cached decision on a call that is certainly still denied: waits are shortened by the time since the reply,
    /// so that no wait is too short. `None` if there is no such entry.
    #[inline]
    pub fn recall(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Outcome> {
        if self.sets.is_empty() || charges.len() > MAX_CACHED_CHARGES {
            return None;
        }
        let call = Call::of(charges);
        let known = self.sets.get(call.index())?.iter().find(|known| known.call == call)?;
        let certain = known.asked <= now && now < known.until;
        certain.then(|| known.outcome(charges.len(), now.since(known.replied)))
    }
}

impl CachedRefusal {
    /// An empty entry: it has expired at any time.
    const NONE: Self = Self {
        call: Call(0),
        asked: Timestamp(0),
        replied: Timestamp(0),
        until: Timestamp(0),
        decisions: [Decision { verdict: Verdict::Allow, remaining: 0, reset_after: Micros(0) };
            MAX_CACHED_CHARGES],
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
        // Keys are keyed hashes already: no client can search for two calls with the same hash.
        let mut hasher = SipHasher13::new();
        for Charge { key, params, cost, group, .. } in charges {
            hasher.write_u128(key.0);
            hasher.write_u64(u64::from(params.0) << u32::BITS | u64::from(cost.units()));
            hasher.write_u16(match group {
                Group::Enforced => 0,
                Group::Shadow(index) => u16::from(*index) + 1,
            });
        }
        Self(hasher.finish128().as_u128())
    }

    /// The set of the call.
    fn index(self) -> usize {
        // Only the low bits are used.
        self.0 as usize % SETS
    }
}

/// How long the call is certainly denied, from the time of the call: until the last of the enforced limits admits.
/// `None` if it is not to be cached.
fn certain_for(charges: &[Charge<'_>], outcome: &Outcome) -> Option<Micros> {
    let asked = outcome.decided_locally.is_empty() && !outcome.unavailable;
    let whole = charges.len() <= MAX_CACHED_CHARGES && charges.len() == outcome.decisions.len();
    let changes = |charge: &Charge<'_>| charge.algorithm.counts_denied() || charge.shared_key.settles;
    if !asked || !whole || charges.iter().any(changes) {
        return None;
    }
    let enforced =
        charges.iter().zip(outcome.decisions.iter()).filter(|(charge, _)| charge.group == Group::Enforced);
    let waits = enforced.filter_map(|(_, decision)| match decision.verdict {
        Verdict::Deny(Wait::After(wait)) => Some(wait),
        Verdict::Deny(Wait::Never) => Some(LONGEST),
        Verdict::Allow | Verdict::Delay(_) | Verdict::Deny(Wait::Unknown) => None,
    });
    waits.max().map(|wait| wait.min(LONGEST))
}

/// The decision `elapsed` later: a limit with a shorter wait admits by then.
fn aged(decision: Decision, elapsed: Micros) -> Decision {
    let left = |span: Micros| Micros(span.0.saturating_sub(elapsed.0));
    let verdict = match decision.verdict {
        Verdict::Deny(Wait::After(wait)) if wait > elapsed => Verdict::Deny(Wait::After(left(wait))),
        Verdict::Delay(wait) if wait > elapsed => Verdict::Delay(left(wait)),
        lasting @ Verdict::Deny(Wait::Never | Wait::Unknown) => lasting,
        _ => Verdict::Allow,
    };
    let reset_after = match (verdict, left(decision.reset_after)) {
        // More is available than was reported, but how much more is unknown; it suffices only when the wait is over.
        (Verdict::Deny(Wait::After(wait)), Micros(0)) => wait,
        (Verdict::Deny(Wait::After(wait)), reset_after) => reset_after.min(wait),
        (_, reset_after) => reset_after,
    };
    Decision { verdict, reset_after, ..decision }
}
