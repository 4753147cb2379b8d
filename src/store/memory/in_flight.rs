//! The requests in flight under concurrency limits, and those that wait for a place.
//!
//! A key is in the table as long as a place is held or a request waits: the table is bounded by the requests of the
//! process, and nothing is evicted. A request waits with a [`Ticket`]. Places are taken in the order of tickets, over
//! all workers: a request is refused as long as one with an earlier ticket waits for the same key. A freed place is
//! passed to no request: the first one is woken and decides again, and meanwhile no other can take the place.
//!
//! The maximum of an adaptive limit is that of the key's [`CapacityEstimate`], which learns how its requests went on. It
//! stays while no request is in flight, for up to [`MAX_IDLE_ESTIMATES`] keys of a shard.

mod hand_over;
mod measured;
mod usage;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use foldhash::fast::FixedState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::MemoryStore;
use crate::limit::adaptive_concurrency::CapacityEstimate;
use crate::limit::concurrency::{self, Concurrency};
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, State, Verdict, Wait};
use crate::store::{Charge, Decisions, Group, Outcome};
use hand_over::FreedPlaces;
pub use hand_over::PlacesOfKey;
use measured::{MeasuredAdmissions, TakenPlaces, algorithm_now};
pub use usage::PlaceUsage;

/// All keys with places held or requests waiting.
#[derive(Debug)]
pub struct RequestsInFlight {
    shards: [Mutex<Shard>; SHARDS],
    /// The ticket issued last.
    last_ticket: AtomicU64,
    /// Whether the maximum of adaptive limits is found; else it is their ceiling.
    adapts: bool,
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
    /// By ticket.
    waiting: VecDeque<Waiter>,
    /// Of an adaptive limit, from its first request on.
    capacity: Option<Box<CapacityEstimate>>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    place_freed: Arc<Notify>,
}

/// The turn of a request that waits for a place. Dropped, it leaves the queue. The charges of its request are the same
/// whenever it is decided again.
#[derive(Debug)]
pub struct Ticket {
    in_flight: Arc<RequestsInFlight>,
    /// Until the request waits, it is later than all.
    number: u64,
    place_freed: Arc<Notify>,
    /// The key that the request waits for.
    waits_for: Option<Fingerprint>,
}

/// Places held by a request in flight. Dropped, they are free.
#[derive(Debug)]
pub struct LocalPlaces {
    in_flight: Arc<RequestsInFlight>,
    held: HeldPlaces,
    /// Under adaptive limits, until the outcome is known.
    measured: MeasuredAdmissions,
    /// The route of the request, and when it was passed on.
    sent: Option<(u64, Timestamp)>,
}

/// Keys, and the number of places of each.
type HeldPlaces = SmallVec<[(Fingerprint, u32); 2]>;

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
}

impl Default for RequestsInFlight {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            last_ticket: AtomicU64::new(0),
            adapts: true,
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
        let mut locked = self.lock(charges);
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::from_elem(UNDECIDED, charges.len());
        let has_places = locked.evaluate(charges, Group::Enforced, now, ticket.number, &mut decisions);
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
            locked.take(charges, Group::Enforced, &decisions, &mut taken);
        } else {
            locked.report_uncharged(charges, Group::Enforced, now, &mut decisions);
        }
        for index in 0..charges.len() {
            let charge = &charges[index];
            if charge.group == Group::Enforced || charge.algorithm.as_concurrency().is_none() {
                continue;
            }
            locked.evaluate(charges, charge.group, now, ticket.number, &mut decisions);
            if admitted {
                locked.take(charges, charge.group, &decisions, &mut taken);
            }
        }
        let waits = (!admitted).then(|| locked.wait(charges, &decisions, ticket)).flatten();
        let outcome = Outcome { counted_at, ..Outcome::from(Decisions::Together(decisions)) };
        match waits {
            Some(limit) => Turn::Waits(outcome, limit),
            None => {
                locked.leave(ticket);
                Turn::Decided(outcome, taken.into_places(self))
            }
        }
    }

    /// A ticket for a request that does not wait yet.
    pub fn ticket(self: &Arc<Self>) -> Ticket {
        let place_freed = Arc::default();
        Ticket { in_flight: Arc::clone(self), number: u64::MAX, place_freed, waits_for: None }
    }

    /// Whether a request with an earlier ticket waits for one of the keys.
    pub fn is_waited_for(&self, charges: &[Charge<'_>], ticket: &Ticket) -> bool {
        let locked = self.lock(charges);
        of_concurrency(charges).any(|(_, charge, _)| locked.is_waited_for(charge.key, ticket.number))
    }

    /// The outcome of a request that has to wait after others, with these decisions on its charges alone.
    pub fn behind_others(&self, charges: &[Charge<'_>], decisions: Decisions, ticket: &Ticket) -> Outcome {
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::from_slice(&decisions);
        let locked = self.lock(charges);
        for (index, charge, _) in of_concurrency(charges) {
            if let Some(decision) = decisions.get_mut(index)
                && !decision.denies()
                && locked.is_waited_for(charge.key, ticket.number)
            {
                decision.verdict = Verdict::Deny(Wait::Unknown);
            }
        }
        Decisions::Together(decisions).into()
    }

    /// Takes part in the queue of the first limit that refuses for want of a place, if no other limit refuses and there
    /// is room; else leaves all queues.
    pub fn wait(
        &self,
        charges: &[Charge<'_>],
        outcome: &Outcome,
        ticket: &mut Ticket,
    ) -> Option<Concurrency> {
        let mut locked = self.lock(charges);
        let limit = locked.wait(charges, &outcome.decisions, ticket);
        if limit.is_none() {
            locked.leave(ticket);
        }
        limit
    }

    /// Takes the places of an admitted request whatever the maximum: a shared store has decided.
    pub fn hold(self: &Arc<Self>, charges: &[Charge<'_>], outcome: &Outcome) -> Option<LocalPlaces> {
        let mut taken = TakenPlaces::default();
        let mut locked = self.lock(charges);
        for (index, charge, _) in of_concurrency(charges) {
            if outcome.decisions.get(index).is_some_and(|decision| decision.verdict == Verdict::Allow) {
                locked.add(charge, &mut taken);
            }
        }
        taken.into_places(self)
    }

    /// The decision on a charge alone; nothing is taken.
    pub(super) fn look(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let shard = self.shard(charge.key).lock();
        let entry = shard.get(&charge.key);
        let held = entry.map_or(0, |key| key.held);
        let algorithm = algorithm_now(charge, entry, self.adapts);
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
        LockedShards { shards: locked, adapts: self.adapts }
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard> {
        &self.shards[shard_of(key)]
    }

    /// Gives places of a key back.
    pub(in crate::store) fn release(&self, key: Fingerprint, units: u32) {
        let mut shard = self.shard(key).lock();
        let Some(entry) = shard.get_mut(&key) else { return };
        if let Some(freed) = &*self.freed.load() {
            freed.tell(PlacesOfKey { key: key.0, policy: entry.policy, places: units });
        }
        entry.held = entry.held.saturating_sub(units);
        entry.wake_first();
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

    /// Takes the places of a charge, whose shard is locked.
    fn add(&mut self, charge: &Charge<'_>, taken: &mut TakenPlaces) {
        let adapts = self.adapts;
        let Some(shard) = self.shard(charge.key) else { return };
        let entry = shard.entry(charge.key).or_default();
        entry.policy = charge.shared_key.identity;
        entry.held = entry.held.saturating_add(charge.cost.units());
        taken.held.push((charge.key, charge.cost.units()));
        if let Some(bounds) = charge.algorithm.as_concurrency().and_then(Concurrency::capacity_bounds)
            && adapts
        {
            taken.measured.push(entry.admit(charge.key, bounds));
        }
    }

    fn held(&self, key: Fingerprint) -> u32 {
        self.find(key).map_or(0, |key| key.held)
    }

    fn is_waited_for(&self, key: Fingerprint, ticket: u64) -> bool {
        self.find(key).and_then(|key| key.waiting.front()).is_some_and(|first| first.ticket < ticket)
    }

    /// Decides the concurrency charges of a group, each as if those before it were taken. Returns whether all admit.
    fn evaluate(
        &self,
        charges: &[Charge<'_>],
        group: Group,
        now: Timestamp,
        ticket: u64,
        decisions: &mut [Decision],
    ) -> bool {
        let mut admitted = true;
        for (index, charge, _) in of_concurrency(charges).filter(|(_, charge, _)| charge.group == group) {
            let before = of_concurrency(&charges[..index])
                .filter(|(_, other, _)| other.group == group && other.key == charge.key)
                .fold(self.held(charge.key), |held, (_, other, _)| held.saturating_add(other.cost.units()));
            let state = State::Concurrency(concurrency::State::new(before));
            let algorithm = algorithm_now(charge, self.find(charge.key), self.adapts);
            let (_, mut decision) = algorithm.decide(state, now, charge.cost);
            if decision.verdict == Verdict::Allow && self.is_waited_for(charge.key, ticket) {
                decision.verdict = Verdict::Deny(Wait::Unknown);
            }
            admitted &= decision.verdict == Verdict::Allow;
            decisions[index] = decision;
        }
        admitted
    }

    /// Takes the places of a group's charges that admit.
    fn take(
        &mut self,
        charges: &[Charge<'_>],
        group: Group,
        decisions: &[Decision],
        taken: &mut TakenPlaces,
    ) {
        for (index, charge, _) in of_concurrency(charges).filter(|(_, charge, _)| charge.group == group) {
            if decisions[index].verdict == Verdict::Allow {
                self.add(charge, taken);
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

    /// See [`RequestsInFlight::wait`].
    fn wait(
        &mut self,
        charges: &[Charge<'_>],
        decisions: &[Decision],
        ticket: &mut Ticket,
    ) -> Option<Concurrency> {
        let mut refusing = None;
        for (index, charge) in
            charges.iter().enumerate().filter(|(_, charge)| charge.group == Group::Enforced)
        {
            match (decisions.get(index)?.verdict, charge.algorithm.as_concurrency()) {
                (Verdict::Deny(Wait::Unknown), Some(limit)) => {
                    refusing.get_or_insert((charge.key, *limit));
                }
                (Verdict::Deny(_), _) => return None,
                _ => {}
            }
        }
        let (key, limit) = refusing?;
        if ticket.waits_for == Some(key) {
            return Some(limit);
        }
        if self.find(key).map_or(0, |key| key.waiting.len()) >= limit.queue() {
            return None;
        }
        self.leave(ticket);
        ticket.join(self.shard(key)?.entry(key).or_default(), key);
        Some(limit)
    }

    /// Leaves the queue of a key that is locked here.
    fn leave(&mut self, ticket: &mut Ticket) {
        if let Some(key) = ticket.waits_for
            && let Some(shard) = self.shard(key)
        {
            ticket.waits_for = None;
            leave(shard, key, ticket.number);
        }
    }
}

impl LimitedKey {
    /// A place may be free for the first request that waits.
    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.place_freed.notify_one();
        }
    }
}

impl Ticket {
    /// Ends when a place may be free.
    pub async fn place_freed(&self) {
        self.place_freed.notified().await;
    }

    /// Joins the queue by the time of the request's first wait.
    fn join(&mut self, entry: &mut LimitedKey, key: Fingerprint) {
        if self.number == u64::MAX {
            self.number = self.in_flight.last_ticket.fetch_add(1, Ordering::Relaxed);
        }
        let waiter = Waiter { ticket: self.number, place_freed: Arc::clone(&self.place_freed) };
        let at = entry.waiting.partition_point(|other| other.ticket < self.number);
        entry.waiting.insert(at, waiter);
        self.waits_for = Some(key);
    }

    fn leave(&mut self) {
        if let Some(key) = self.waits_for.take() {
            leave(&mut self.in_flight.shard(key).lock(), key, self.number);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for LocalPlaces {
    fn drop(&mut self) {
        self.abandon();
        for (key, units) in self.held.drain(..) {
            self.in_flight.release(key, units);
        }
    }
}

/// Removes a request from a queue. The next one may find a place that this one did not take.
fn leave(shard: &mut Shard, key: Fingerprint, ticket: u64) {
    let Some(entry) = shard.get_mut(&key) else { return };
    entry.waiting.retain(|waiter| waiter.ticket != ticket);
    entry.wake_first();
    remove_if_unused(shard, key);
}

fn remove_if_unused(shard: &mut Shard, key: Fingerprint) {
    let Some(entry) = shard.get(&key).filter(|entry| entry.held == 0 && entry.waiting.is_empty()) else {
        return;
    };
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
