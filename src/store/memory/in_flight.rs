//! The requests in flight under concurrency limits, and those that wait for a place.
//!
//! A key is in the table as long as a place is held or a request waits: the table is bounded by the requests of the
//! process, and nothing is evicted. A request waits with a [`Ticket`], over all workers in one [`FairQueue`] of the key: a
//! request is refused as long as it is the turn of another. A freed place is passed to no request: the next one is woken and
//! decides again, and meanwhile no other can take the place.
//!
//! The maximum of an adaptive limit is that of the key's [`CapacityEstimate`], which learns how its requests went on. It
//! stays while no request is in flight, for up to [`MAX_IDLE_ESTIMATES`] keys of a shard.

mod hand_over;
mod measured;
mod queue;
mod ticket;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;
use foldhash::fast::FixedState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::MemoryStore;
pub use super::turn_signal::DropReason;
use super::turn_signal::TurnSignal;
use crate::limit::adaptive_concurrency::CapacityEstimate;
use crate::limit::concurrency::{self, Concurrency};
use crate::limit::fair_queue::{FairQueue, FairShare, Priority, Room, background_reserve};
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, State, Verdict, Wait};
use crate::store::{Charge, Decisions, Group, Outcome};
use hand_over::FreedPlaces;
pub use hand_over::PlacesOfKey;
use measured::{MeasuredAdmissions, TakenPlaces, algorithm_now, without_reserve};
use queue::leave;
pub use ticket::{PlaceClaims, PlaceShare, QueueDrop, Ticket};
pub use usage::PlaceUsage;

/// All keys with places held or requests waiting.
#[derive(Debug)]
pub struct RequestsInFlight {
    shards: [Mutex<Shard>; SHARDS],
    /// The ticket issued last.
    last_ticket: AtomicU64,
    /// Time is that of requests, in µs: the maximum of adaptive limits is not found, but their ceiling.
    virtual_time: Option<AtomicU64>,
    /// What is told of places that become free, since they were handed over. It changes while all shards are locked.
    freed: ArcSwapOption<FreedPlaces>,
}

const SHARDS: usize = 64;
/// Keys of a shard above which no estimate is kept of a key without requests.
const MAX_IDLE_ESTIMATES: usize = 64;

/// Keys are keyed hashes already, so any hash of them will do.
type Shard = HashMap<Fingerprint, LimitedKey, FixedState>;

/// One key of one limit.
#[derive(Debug, Default)]
struct LimitedKey {
    /// The policy's [`SharedKeyInfo::identity`](crate::store::SharedKeyInfo::identity).
    policy: u128,
    held: u32,
    /// The maximum when it was decided last.
    max: u32,
    /// Of a limit with `share_by`, and while requests wait.
    queue: Option<Box<FairQueue<Arc<TurnSignal>>>>,
    /// Of an adaptive limit, from its first request on.
    capacity: Option<Box<CapacityEstimate>>,
}

/// Places held by a request in flight. Dropped, they are free.
#[derive(Debug)]
pub struct LocalPlaces {
    in_flight: Arc<RequestsInFlight>,
    held: SmallVec<[HeldPlaces; 1]>,
    /// Under adaptive limits, until the outcome is known.
    measured: MeasuredAdmissions,
    /// The route of the request, and when it was passed on.
    sent: Option<(u64, Timestamp)>,
}

/// Places of a key.
#[derive(Clone, Copy, Debug)]
struct HeldPlaces {
    key: Fingerprint,
    units: u32,
    /// Of a limit with `share_by`.
    share: Option<FairShare>,
}

/// The decision on a request under a concurrency limit.
#[derive(Debug)]
pub enum Turn {
    /// It is admitted or refused.
    Decided(Outcome, Option<LocalPlaces>),
    /// It waits in the queue of a limit; nothing was charged. Should it wait for too long, this is its outcome.
    Waits(Outcome, Concurrency),
}

/// A placeholder until the charge is decided; every charge is.
const UNDECIDED: Decision = Decision { verdict: Verdict::Allow, remaining: 0, reset_after: Micros(0) };

/// The shards of a request's keys, locked until this is dropped.
struct LockedShards<'a> {
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>,
    adapts: bool,
    now: Timestamp,
}

impl Default for RequestsInFlight {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            last_ticket: AtomicU64::new(0),
            virtual_time: None,
            freed: ArcSwapOption::empty(),
        }
    }
}

impl RequestsInFlight {
    /// Decides all charges of a request, all or none; a request that no other limit refuses may wait. `memory` decides
    /// the other charges.
    pub(super) fn decide(
        self: &Arc<Self>,
        memory: &MemoryStore,
        charges: &[Charge<'_>],
        now: Timestamp,
        ticket: &mut Ticket,
    ) -> Turn {
        self.set_time(now);
        let mut locked = self.lock(charges);
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::from_elem(UNDECIDED, charges.len());
        let has_places = locked.evaluate(charges, Group::Enforced, now, ticket, &mut decisions);
        let others: SmallVec<[Charge<'_>; 4]> = of_others(charges).map(|(_, charge)| *charge).collect();
        let decided = memory.decide_beside(&others, now, has_places);
        for ((index, _), decision) in of_others(charges).zip(&decided.decisions) {
            decisions[index] = *decision;
        }
        let counted_at = decided.counted_at.map(|times| {
            let mut all: Box<[Timestamp]> = charges.iter().map(|_| now).collect();
            of_others(charges).zip(times).for_each(|((index, _), time)| all[index] = time);
            all
        });
        let admitted = is_admitted(charges, &decisions);
        let mut taken = TakenPlaces::default();
        if admitted {
            locked.admitted(charges, ticket);
        }
        locked.settle(charges, admitted, now, ticket, (&mut decisions, &mut taken));
        let waits = (!admitted).then(|| locked.wait(charges, &decisions, ticket));
        let outcome = Outcome { counted_at, ..Outcome::from(Decisions::Together(decisions)) };
        match waits {
            None => Turn::Decided(outcome, taken.into_places(self)),
            Some(in_queue) => {
                in_queue.turn(outcome, |outcome| Turn::Decided(outcome, taken.into_places(self)))
            }
        }
    }

    /// Whether it is the turn of another request to take a place of one of the keys.
    pub fn is_waited_for(&self, charges: &[Charge<'_>], ticket: &Ticket) -> bool {
        let mut locked = self.lock(charges);
        of_concurrency(charges).any(|(_, charge, _)| locked.is_waited_for(charge.key, ticket))
    }

    /// The outcome of a request that has to wait after others, with these decisions on its charges alone.
    pub fn behind_others(&self, charges: &[Charge<'_>], decisions: Decisions, ticket: &Ticket) -> Outcome {
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::from_slice(&decisions);
        let mut locked = self.lock(charges);
        for (index, charge, _) in of_concurrency(charges) {
            if let Some(decision) = decisions.get_mut(index)
                && !decision.denies()
                && locked.is_waited_for(charge.key, ticket)
            {
                decision.verdict = Verdict::Deny(Wait::Unknown);
            }
        }
        Decisions::Together(decisions).into()
    }

    /// Takes part in the queue of the first limit that refuses for want of a place, if no other limit refuses and there
    /// is room; else leaves all queues. `decided`: what follows then.
    pub fn wait(
        &self,
        charges: &[Charge<'_>],
        outcome: Outcome,
        ticket: &mut Ticket,
        decided: impl FnOnce(Outcome) -> Turn,
    ) -> Turn {
        let in_queue = self.lock(charges).wait(charges, &outcome.decisions, ticket);
        in_queue.turn(outcome, decided)
    }

    /// Takes the places of an admitted request whatever the maximum: a shared store has decided.
    pub fn hold(
        self: &Arc<Self>,
        charges: &[Charge<'_>],
        outcome: &Outcome,
        ticket: &mut Ticket,
    ) -> Option<LocalPlaces> {
        let mut taken = TakenPlaces::default();
        let mut locked = self.lock(charges);
        locked.admitted(charges, ticket);
        for (index, charge, _) in of_concurrency(charges) {
            if outcome.decisions.get(index).is_some_and(|decision| decision.verdict == Verdict::Allow) {
                locked.add(charge, &ticket.claims, &mut taken);
            }
        }
        taken.into_places(self)
    }

    /// The decision on a charge alone; nothing is taken.
    pub fn look(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let shard = self.shard(charge.key).lock();
        let entry = shard.get(&charge.key);
        let held = entry.map_or(0, |key| key.held);
        let algorithm = algorithm_now(charge, entry, self.adapts());
        algorithm.peek(&State::Concurrency(concurrency::State::new(held)), now, charge.cost)
    }

    /// The places that the key holds.
    pub(super) fn held(&self, charge: &Charge<'_>) -> u32 {
        self.shard(charge.key).lock().get(&charge.key).map_or(0, |key| key.held)
    }

    /// Locks the shards of the keys under concurrency limits, each once and in ascending order.
    fn lock(&self, charges: &[Charge<'_>]) -> LockedShards<'_> {
        let mut shards: SmallVec<[usize; 4]> =
            of_concurrency(charges).map(|(_, charge, _)| shard_of(charge.key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.into_iter().map(|index| (index, self.shards[index].lock())).collect();
        LockedShards { shards: locked, adapts: self.adapts(), now: self.now() }
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard> {
        &self.shards[shard_of(key)]
    }

    /// Gives places of a key back.
    pub(in crate::store) fn release(&self, key: Fingerprint, units: u32) {
        self.give_back(HeldPlaces { key, units, share: None });
    }

    fn give_back(&self, HeldPlaces { key, units, share }: HeldPlaces) {
        let now = self.now();
        let mut shard = self.shard(key).lock();
        let Some(entry) = shard.get_mut(&key) else { return };
        if let Some(freed) = &*self.freed.load() {
            freed.tell(PlacesOfKey { key: key.0, policy: entry.policy, places: units });
        }
        entry.held = entry.held.saturating_sub(units);
        if let (Some(queue), Some(share)) = (&mut entry.queue, share) {
            queue.give_back(share, units, now);
        }
        entry.wake_next(now);
        remove_if_unused(&mut shard, key);
    }
}

impl LockedShards<'_> {
    fn shard(&mut self, key: Fingerprint) -> Option<&mut Shard> {
        let wanted = shard_of(key);
        self.shards.iter_mut().find(|(index, _)| *index == wanted).map(|(_, shard)| &mut **shard)
    }

    fn find(&self, key: Fingerprint) -> Option<&LimitedKey> {
        let wanted = shard_of(key);
        self.shards.iter().find(|(index, _)| *index == wanted)?.1.get(&key)
    }

    fn find_mut(&mut self, key: Fingerprint) -> Option<&mut LimitedKey> {
        self.shard(key)?.get_mut(&key)
    }

    /// Takes the places of a charge, whose shard is locked.
    fn add(&mut self, charge: &Charge<'_>, claims: &PlaceClaims, taken: &mut TakenPlaces) {
        let (adapts, now) = (self.adapts, self.now);
        let Some(shard) = self.shard(charge.key) else { return };
        let entry = shard.entry(charge.key).or_default();
        entry.policy = charge.shared_key.identity;
        entry.held = entry.held.saturating_add(charge.cost.units());
        let share = claims.own_share(charge.key);
        if let Some(share) = share {
            entry.queue.get_or_insert_default().take(share, charge.cost.units(), now);
        }
        taken.held.push(HeldPlaces { key: charge.key, units: charge.cost.units(), share });
        if let Some(bounds) = charge.algorithm.as_concurrency().and_then(Concurrency::capacity_bounds)
            && adapts
        {
            taken.measured.push(entry.admit(charge.key, bounds, now));
        }
    }

    fn held(&self, key: Fingerprint) -> u32 {
        self.find(key).map_or(0, |key| key.held)
    }

    /// Whether it is the turn of another request to take a place of this key. In the queue of another key, only earlier
    /// requests are before it: of those that wait for each other's keys one goes on.
    fn is_waited_for(&mut self, key: Fingerprint, ticket: &Ticket) -> bool {
        let now = self.now;
        let Some(entry) = self.find_mut(key) else { return false };
        let room = entry.room();
        let next = entry.queue.as_mut().and_then(|queue| queue.next(room, now));
        let waits_here = ticket.waits_for.is_some_and(|(waits_for, _)| waits_for == key);
        next.is_some_and(
            |next| if waits_here { next.ticket != ticket.number } else { next.ticket < ticket.number },
        )
    }

    /// Decides the concurrency charges of a group, each as if those before it were taken. Returns whether all admit.
    fn evaluate(
        &mut self,
        charges: &[Charge<'_>],
        group: Group,
        now: Timestamp,
        ticket: &Ticket,
        decisions: &mut [Decision],
    ) -> bool {
        let mut admitted = true;
        for (index, charge, _) in of_concurrency(charges).filter(|(_, charge, _)| charge.group == group) {
            let before = of_concurrency(&charges[..index])
                .filter(|(_, other, _)| other.group == group && other.key == charge.key)
                .fold(self.held(charge.key), |held, (_, other, _)| held.saturating_add(other.cost.units()));
            let state = State::Concurrency(concurrency::State::new(before));
            let mut algorithm = algorithm_now(charge, self.find(charge.key), self.adapts);
            if let (Some(entry), Some(limit)) = (self.find_mut(charge.key), algorithm.as_concurrency()) {
                entry.max = limit.max().units();
            }
            if ticket.claims.priority == Priority::Background {
                algorithm = without_reserve(charge, &algorithm);
            }
            let (_, mut decision) = algorithm.decide(state, now, charge.cost);
            if decision.verdict == Verdict::Allow && self.is_waited_for(charge.key, ticket) {
                decision.verdict = Verdict::Deny(Wait::Unknown);
            }
            admitted &= decision.verdict == Verdict::Allow;
            decisions[index] = decision;
        }
        admitted
    }

    /// Takes the places of a request that is admitted, and decides its shadow limits.
    fn settle(
        &mut self,
        charges: &[Charge<'_>],
        admitted: bool,
        now: Timestamp,
        ticket: &Ticket,
        (decisions, taken): (&mut [Decision], &mut TakenPlaces),
    ) {
        if admitted {
            self.take(charges, Group::Enforced, (decisions, &ticket.claims), taken);
        } else {
            self.report_uncharged(charges, Group::Enforced, now, decisions);
        }
        for charge in of_concurrency(charges).map(|(_, charge, _)| charge) {
            if charge.group == Group::Enforced {
                continue;
            }
            self.evaluate(charges, charge.group, now, ticket, decisions);
            if admitted {
                self.take(charges, charge.group, (decisions, &ticket.claims), taken);
            }
        }
    }

    /// Takes the places of a group's charges that admit.
    fn take(
        &mut self,
        charges: &[Charge<'_>],
        group: Group,
        (decisions, claims): (&[Decision], &PlaceClaims),
        taken: &mut TakenPlaces,
    ) {
        for (index, charge, _) in of_concurrency(charges).filter(|(_, charge, _)| charge.group == group) {
            if decisions[index].verdict == Verdict::Allow {
                self.add(charge, claims, taken);
            }
        }
    }

    /// Verdicts stay, `remaining` becomes that of the present state.
    fn report_uncharged(
        &self,
        charges: &[Charge<'_>],
        group: Group,
        now: Timestamp,
        decisions: &mut [Decision],
    ) {
        for (index, charge, _) in of_concurrency(charges).filter(|(_, charge, _)| charge.group == group) {
            let state = State::Concurrency(concurrency::State::new(self.held(charge.key)));
            let algorithm = algorithm_now(charge, self.find(charge.key), self.adapts);
            decisions[index].remaining = algorithm.peek(&state, now, charge.cost).remaining;
        }
    }
}

impl LimitedKey {
    /// The places that are free.
    fn room(&self) -> Room {
        Room { free: self.max.saturating_sub(self.held), reserve: background_reserve(self.max) }
    }

    /// A place may be free for the next request that waits.
    fn wake_next(&mut self, now: Timestamp) {
        let room = self.room();
        if let Some(next) = self.queue.as_mut().and_then(|queue| queue.next(room, now)) {
            next.waiter.wake();
        }
    }
}

impl Drop for LocalPlaces {
    fn drop(&mut self) {
        self.abandon();
        for places in self.held.drain(..) {
            self.in_flight.give_back(places);
        }
    }
}

fn remove_if_unused(shard: &mut Shard, key: Fingerprint) {
    let Some(entry) = shard.get_mut(&key) else { return };
    if entry.queue.as_ref().is_some_and(|queue| queue.is_unused()) {
        entry.queue = None;
    }
    if entry.held > 0 || entry.queue.is_some() {
        return;
    }
    if entry.capacity.is_none() || shard.len() > MAX_IDLE_ESTIMATES {
        shard.remove(&key);
    }
}

fn shard_of(key: Fingerprint) -> usize {
    // Only the low bits are used.
    key.0 as usize % SHARDS
}

/// The charges of concurrency limits.
fn of_concurrency<'a>(
    charges: &'a [Charge<'a>],
) -> impl Iterator<Item = (usize, &'a Charge<'a>, &'a Concurrency)> {
    let all = charges.iter().enumerate();
    all.filter_map(|(index, charge)| Some((index, charge, charge.algorithm.as_concurrency()?)))
}

/// The other charges.
fn of_others<'a>(charges: &'a [Charge<'a>]) -> impl Iterator<Item = (usize, &'a Charge<'a>)> {
    charges.iter().enumerate().filter(|(_, charge)| charge.algorithm.as_concurrency().is_none())
}

fn is_admitted(charges: &[Charge<'_>], decisions: &[Decision]) -> bool {
    let mut enforced = charges.iter().zip(decisions).filter(|(charge, _)| charge.group == Group::Enforced);
    enforced.all(|(_, decision)| !matches!(decision.verdict, Verdict::Deny(_)))
}
