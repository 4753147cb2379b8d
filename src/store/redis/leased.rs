//! Requests under leased limits: units in advance pay for them, as far as they last, and the servers decide the rest.
//!
//! A request whose units are all here is decided without a call. Otherwise one call decides all its charges, all or none:
//! those that are paid already have cost zero in it. If it refuses, the units that were paid are put back.
//!
//! A refusal is final only while no units are on their way to this process: else it waits for these.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::PlaceId;
use super::client::RedisClient;
use super::errors::CallError;
use super::fallback;
use super::leased_key::LeasedKey;
use super::renewal::LeaseKeeper;
use crate::clock::{self, micros};
use crate::limit::lease::Lease;
use crate::limit::units::{Cost, Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::store::{Charge, ChargeSet, Decisions, Group, Outcome, StoreRequest};

/// How often a request waits for units that are on their way before it asks the servers itself.
const WAITS: u32 = 1;
/// How often a refused request waits for units that are on their way.
const MAX_WAITS: u32 = 8;

/// The charges of a request, of which units in advance have paid some.
pub(super) struct PaidCharges<'a> {
    /// Those that are paid have cost zero.
    pub(super) charges: SmallVec<[Charge<'a>; 4]>,
    /// Of each charge that is paid: when the units end, and how many were left.
    paid: SmallVec<[Option<(Timestamp, u32)>; 4]>,
}

impl PaidCharges<'_> {
    fn are_all(&self) -> bool {
        self.paid.iter().all(Option::is_some)
    }

    /// The charges that are paid, by index.
    fn set(&self) -> ChargeSet {
        let mut set = ChargeSet::default();
        let paid = self.paid.iter().enumerate().filter(|(_, paid)| paid.is_some());
        paid.for_each(|(index, _)| set.insert(index));
        set
    }
}

impl RedisClient {
    /// Decides a request whose units are all in advance here. `None`: they do not suffice, or a limit is exact.
    #[inline]
    pub(in crate::store) fn spend(&self, request: StoreRequest<'_>, now: Timestamp) -> Option<Outcome> {
        let first = request.charges.first()?.of_lease()?;
        let decisions = match request.charges {
            [charge] => {
                // If another thread writes to its set, the slow way finds the units.
                let decision = self.memory.decide_in_place(&first, now).filter(|spent| !spent.denies())?;
                Decisions::Alone(self.spent(charge, &decision, now))
            }
            charges => self.spend_together(charges, now)?,
        };
        self.counts.leased.add(1);
        Some(self.paid_outcome(request.charges, decisions, now))
    }

    fn spend_together(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Decisions> {
        // A shadow limit that lacks units must not take those of the others.
        if charges.iter().any(|charge| charge.group.is_shadow()) {
            return None;
        }
        let units: SmallVec<[Charge<'_>; 4]> = charges.iter().map(Charge::of_lease).collect::<Option<_>>()?;
        let outcome = self.memory.decide(&units, now);
        if outcome.decisions.iter().any(Decision::denies) {
            return None;
        }
        let decided = charges.iter().zip(&*outcome.decisions);
        Some(Decisions::Together(decided.map(|(charge, spent)| self.spent(charge, spent, now)).collect()))
    }

    /// The decision on a charge of which units in advance have paid: what the servers said last, and what is left here.
    /// Begins to take more if they are due.
    fn spent(&self, charge: &Charge<'_>, spent: &Decision, now: Timestamp) -> Decision {
        if spent.reset_after > Micros(0) {
            self.renew(charge, now);
        }
        self.told(charge, spent.remaining, now)
    }

    fn told(&self, charge: &Charge<'_>, left: u64, now: Timestamp) -> Decision {
        let Decision { remaining, reset_after, .. } = self.memory.peek(charge, now);
        let (all, quota) = (remaining.saturating_add(left), charge.algorithm.quota());
        let reset_after = if all < quota { reset_after } else { Micros(0) };
        Decision { verdict: Verdict::Allow, remaining: all.min(quota), reset_after }
    }

    fn paid_outcome(&self, charges: &[Charge<'_>], decisions: Decisions, now: Timestamp) -> Outcome {
        let settles = charges.iter().any(|charge| charge.shared_key.settles);
        let counted_at = || charges.iter().map(|_| self.script.server_time(now)).collect();
        Outcome { counted_at: settles.then(counted_at), ..decisions.into() }
    }

    /// Pays for the charges, each by itself, as far as there are units.
    pub(super) fn pay<'a>(&self, charges: &[Charge<'a>], now: Timestamp) -> PaidCharges<'a> {
        let mut all = PaidCharges { charges: charges.iter().copied().collect(), paid: SmallVec::new() };
        for charge in &mut all.charges {
            let units = charge.of_lease();
            let paid = units.and_then(|units| {
                let lease = units.algorithm.as_lease()?;
                self.memory.change_leased_units(&units, now, |before| lease.pay(before, now, charge.cost))
            });
            if paid.is_some() {
                charge.cost = Cost::ZERO;
            }
            all.paid.push(paid);
        }
        all
    }

    /// Puts units back of a request that is not admitted.
    pub(super) fn put_back(&self, charges: &[Charge<'_>], paid: &PaidCharges<'_>, now: Timestamp) {
        for (charge, paid) in charges.iter().zip(&paid.paid) {
            let (Some((ends, _)), Some(units)) = (paid, charge.of_lease()) else { continue };
            let is_back =
                self.memory.change_leased_units(&units, now, |before| match before.ends() == *ends {
                    true => Lease::put_back(before, charge.cost, *ends, now)
                        .map_or((before, false), |back| (back, true)),
                    false => (before, false),
                });
            if let (false, Some(key)) = (is_back, self.leased_key(charge)) {
                // They were taken no earlier than this.
                let asked = Timestamp(ends.0.saturating_sub(key.lease.duration().0));
                let granted_at = self.script.server_time(asked);
                self.leases.put_back(&self.memory, key, (charge.cost, *ends), granted_at, now);
            }
        }
    }

    /// Asks the servers about what units in advance do not pay for.
    pub(super) async fn ask_for_rest(
        &self,
        request: StoreRequest<'_>,
        now: Timestamp,
        asked: Instant,
        place: Option<PlaceId>,
    ) -> Result<Outcome, CallError> {
        let charges = request.charges;
        let (deadline, mut present, mut waits) = (asked + self.script.timeout(), now, 0);
        loop {
            let paid = self.pay(charges, present);
            if paid.are_all() {
                self.counts.leased.add(1);
                let decisions = self.decisions(charges, &paid, None, present);
                return Ok(self.paid_outcome(charges, decisions, present));
            }
            let lacking = |index: usize| paid.paid[index].is_none();
            if let Some(renewal) = self.renewal_of(charges, lacking).filter(|_| waits < WAITS) {
                // Meanwhile others may spend them.
                self.put_back(charges, &paid, present);
                waits += if is_over(renewal, deadline).await { 1 } else { WAITS };
                present = now.plus(micros(asked.elapsed()));
                continue;
            }
            // Bans hear of a refusal once it is final.
            let sent = (paid.charges.as_slice(), paid.set());
            let outcome = match self.ask_servers(sent, &[], present, clock::now(), place).await {
                Ok(outcome) => outcome,
                Err(fault) => {
                    self.put_back(charges, &paid, present);
                    return Err(fault);
                }
            };
            present = now.plus(micros(asked.elapsed()));
            if admits(charges, &outcome) {
                let decisions = self.decisions(charges, &paid, Some(&outcome), present);
                return Ok(Outcome { decisions, ..outcome });
            }
            self.put_back(charges, &paid, present);
            if waits < MAX_WAITS && self.finds_units(charges, &outcome, deadline, present).await {
                (waits, present) = (waits + 1, now.plus(micros(asked.elapsed())));
                continue;
            }
            let outcome = paused(charges, outcome);
            self.reporter.refused(&self.script, request, &outcome, present);
            return Ok(outcome);
        }
    }

    /// Units on their way for the charges at these indices, if there are any.
    fn renewal_of(
        &self,
        charges: &[Charge<'_>],
        lacks: impl Fn(usize) -> bool,
    ) -> Option<watch::Receiver<()>> {
        let lacking = charges.iter().enumerate().filter(|(index, _)| lacks(*index));
        self.leases.renewal_of(lacking.filter_map(|(_, charge)| Some(charge.of_lease()?.key)))
    }

    /// Whether units may have come for the refused charges at these indices.
    async fn finds_units(
        &self,
        charges: &[Charge<'_>],
        outcome: &Outcome,
        deadline: Instant,
        now: Timestamp,
    ) -> bool {
        if self.has_units(charges, outcome, now) {
            return true;
        }
        let refused = |index: usize| outcome.decisions.get(index).is_some_and(Decision::denies);
        match self.renewal_of(charges, refused) {
            Some(renewal) => is_over(renewal, deadline).await,
            None => false,
        }
    }

    /// Whether all limits that refuse a request have units for it here.
    fn has_units(&self, charges: &[Charge<'_>], outcome: &Outcome, now: Timestamp) -> bool {
        let decided = charges.iter().zip(&*outcome.decisions);
        let mut refusing = decided
            .filter(|(charge, decision)| charge.group == Group::Enforced && decision.denies())
            .peekable();
        // Without one it is refused for another reason.
        refusing.peek().is_some()
            && refusing.all(|(charge, _)| {
                charge.of_lease().is_some_and(|units| !self.memory.peek_cost(&units, now).denies())
            })
    }

    /// Whether a remembered refusal stands, although units may have come since.
    #[inline]
    pub(super) fn stands(&self, charges: &[Charge<'_>], outcome: &Outcome, now: Timestamp) -> bool {
        !charges.iter().any(Charge::is_leased) || !self.has_units(charges, outcome, now)
    }

    /// The decisions on an admitted request, in the order of its charges.
    fn decisions(
        &self,
        charges: &[Charge<'_>],
        paid: &PaidCharges<'_>,
        outcome: Option<&Outcome>,
        now: Timestamp,
    ) -> Decisions {
        let decided = |index: usize, charge: &Charge<'_>| {
            if let Some((_, left)) = paid.paid[index] {
                let units = charge.of_lease().map(|units| self.memory.peek_cost(&units, now));
                let is_due = units.is_some_and(|units| units.reset_after > Micros(0));
                if is_due {
                    self.renew(charge, now);
                }
                return self.told(charge, left.into(), now);
            }
            let decision = outcome.and_then(|outcome| outcome.decisions.get(index).copied());
            let decision = decision.unwrap_or_else(|| fallback::unlimited(charge));
            let is_here = outcome.is_some_and(|outcome| outcome.decided_locally.contains(index));
            if let (false, false, Some(units)) = (decision.denies(), is_here, charge.of_lease()) {
                self.note_spent(charge, &units, now);
            }
            decision
        };
        let all = charges.iter().enumerate();
        Decisions::Together(all.map(|(index, charge)| decided(index, charge)).collect())
    }

    /// Counts a charge that the servers have decided: many of these are worth units in advance.
    fn note_spent(&self, charge: &Charge<'_>, units: &Charge<'_>, now: Timestamp) {
        let Some(lease) = units.algorithm.as_lease() else { return };
        let is_due =
            self.memory.change_leased_units(units, now, |before| lease.note_spent(before, now, charge.cost));
        if is_due {
            self.renew(charge, now);
        }
    }

    /// The outcome of a request without the servers: units in advance pay as far as they last.
    pub(super) fn spend_without(&self, request: StoreRequest<'_>, now: Timestamp) -> Outcome {
        let paid = self.pay(request.charges, now);
        let outcome = self.script.without(&paid.charges, now);
        if !admits(request.charges, &outcome) {
            self.put_back(request.charges, &paid, now);
        }
        self.without(request, outcome, now)
    }
}

impl RedisClient {
    fn leased_key(&self, charge: &Charge<'_>) -> Option<LeasedKey> {
        LeasedKey::of(charge, self.script.slot(charge), self.script.name(charge).into())
    }

    /// Takes more units of a charge's counter, if they are due.
    pub(super) fn renew(&self, charge: &Charge<'_>, now: Timestamp) {
        let Some(key) = self.leased_key(charge) else { return };
        let Some(rate) = key.algorithm.rate() else { return };
        let Some(renewal) = self.leases.begin(&key) else { return };
        let max = key.lease.max_units(rate);
        let wanted = self.memory.change_leased_units(&key.units(), now, |units| {
            match key.lease.begin_renewal(units, now, max) {
                Some((units, wanted)) => (units, wanted),
                None => (units, 0),
            }
        });
        if wanted > 0 {
            drop(tokio::task::spawn_local(self.keeper().renew(renewal, key, wanted, now)));
        }
    }

    /// Returns all units, and takes no more.
    pub(in crate::store) async fn return_leases(&self, now: Timestamp) {
        self.leases.close();
        let (asked, longest) = (clock::now(), self.script.timeout());
        while let Some(mut renewal) = self.leases.any_renewal() {
            let rest = longest.saturating_sub(asked.elapsed());
            if timeout(rest, renewal.changed()).await.is_err() {
                break;
            }
        }
        self.keeper().give_back(self.leases.all(&self.memory, now)).await;
    }

    /// The units in advance that are not spent.
    pub(in crate::store) fn leased_units(&self, now: Timestamp) -> u64 {
        self.leases.units(&self.memory, now)
    }

    fn keeper(&self) -> LeaseKeeper {
        let (leases, script) = (Arc::clone(&self.leases), Rc::clone(&self.script));
        LeaseKeeper { leases, script, memory: Arc::clone(&self.memory) }
    }
}

/// Waits until a renewal is over. Returns false at the deadline.
async fn is_over(mut renewal: watch::Receiver<()>, deadline: Instant) -> bool {
    timeout_at(deadline, renewal.changed()).await.is_ok()
}

/// Whether the enforced limits admit.
fn admits(charges: &[Charge<'_>], outcome: &Outcome) -> bool {
    let mut decided = charges.iter().zip(&*outcome.decisions);
    !outcome.unavailable
        && !outcome.banned
        && decided.all(|(charge, decision)| charge.group != Group::Enforced || !decision.denies())
}

/// A refusal whose waits are at least the pauses of its leased limits: so long this process does not ask again.
fn paused(charges: &[Charge<'_>], mut outcome: Outcome) -> Outcome {
    let pause = |(charge, mut decision): (&Charge<'_>, Decision)| {
        let lease = charge.shared_key.lease.as_ref().and_then(|policy| policy.lease());
        if let (Some(lease), Verdict::Deny(Wait::After(wait))) = (lease, decision.verdict) {
            decision.verdict = Verdict::Deny(Wait::After(wait.max(lease.pause(charge.algorithm))));
        }
        decision
    };
    let decided = charges.iter().zip(outcome.decisions.iter().copied());
    outcome.decisions = Decisions::Together(decided.map(pause).collect());
    outcome
}
