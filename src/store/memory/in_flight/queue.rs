//! Joining and leaving the queues of requests that wait for a place.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::turn_signal::{DropReason, TurnSignal};
use super::ticket::{QueueDrop, Ticket};
use super::{LimitedKey, LockedShards, Shard, Turn, remove_if_unused};
use crate::limit::concurrency::Concurrency;
use crate::limit::fair_queue::{FairShare, QueueEntry};
use crate::limit::units::{Fingerprint, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use crate::store::{Charge, Group, Outcome};

/// What became of a request for which no place is free.
pub(super) enum InQueue {
    Waits(Concurrency),
    /// A limit with a queue refuses it.
    Dropped(QueueDrop),
    /// No limit that refuses it has a queue.
    None,
}

impl InQueue {
    /// The turn that follows; `decided` if the request does not wait.
    pub(super) fn turn(self, outcome: Outcome, decided: impl FnOnce(Outcome) -> Turn) -> Turn {
        match self {
            Self::Waits(limit) => Turn::Waits(outcome, limit),
            Self::Dropped(dropped) => decided(Outcome { dropped: Some(dropped), ..outcome }),
            Self::None => decided(outcome),
        }
    }
}

impl LockedShards<'_> {
    /// See [`RequestsInFlight::wait`](super::RequestsInFlight::wait).
    pub(super) fn wait(
        &mut self,
        charges: &[Charge<'_>],
        decisions: &[Decision],
        ticket: &mut Ticket,
    ) -> InQueue {
        let Some((charge, limit)) = refusing(charges, decisions) else {
            self.leave(ticket);
            return InQueue::None;
        };
        let (place, share, now) = (charge.key, ticket.claims.share(charge.key), self.now);
        let drop_for = |entry: &LimitedKey, reason| {
            let is_over_share = entry.queue.as_ref().is_some_and(|queue| queue.is_over_share(share));
            InQueue::Dropped(QueueDrop { reason, place, is_over_share })
        };
        if let Some(reason) = ticket.signal.dropped() {
            ticket.waits_for = None;
            return self.find(charge.key).map_or(InQueue::None, |entry| drop_for(entry, reason));
        }
        if ticket.waits_for.is_some_and(|(key, _)| key == charge.key) {
            // If it is the turn of another, that one has to know.
            self.find_mut(charge.key).into_iter().for_each(|entry| entry.wake_other(ticket, now));
            return InQueue::Waits(limit);
        }
        self.leave(ticket);
        let Some(shard) = self.shard(charge.key).filter(|_| limit.queue() > 0) else { return InQueue::None };
        let entry = shard.entry(charge.key).or_default();
        entry.policy = charge.shared_key.identity;
        if entry.max == 0 {
            entry.max = limit.max().units();
        }
        ticket.join(entry, (charge, share), now);
        entry.drop_for_arrival(&limit, ticket, now);
        entry.wake_next(now);
        match ticket.signal.dropped() {
            None => InQueue::Waits(limit),
            Some(reason) => {
                ticket.waits_for = None;
                let dropped = drop_for(entry, reason);
                remove_if_unused(shard, charge.key);
                dropped
            }
        }
    }

    /// The request has got its places: it leaves the queue of a key that is locked here.
    pub(super) fn admitted(&mut self, charges: &[Charge<'_>], ticket: &mut Ticket) {
        let Some((key, share)) = ticket.waits_for.take() else { return };
        let now = self.now;
        let limit =
            charges.iter().find(|charge| charge.key == key).and_then(|one| one.algorithm.as_concurrency());
        let Some(entry) = self.find_mut(key) else { return };
        if let (Some(queue), Some(limit)) = (&mut entry.queue, limit) {
            queue.admitted(share, ticket.number, limit.max_wait(), now);
        }
        entry.wake_next(now);
    }

    /// Leaves the queue of a key that is locked here.
    fn leave(&mut self, ticket: &mut Ticket) {
        let now = self.now;
        if let Some((key, share)) = ticket.waits_for
            && let Some(shard) = self.shard(key)
        {
            ticket.waits_for = None;
            leave(shard, key, share, ticket.number, now);
        }
    }
}

impl LimitedKey {
    /// It may be the turn of another request than this one.
    fn wake_other(&mut self, ticket: &Ticket, now: Timestamp) {
        let room = self.room();
        let next = self.queue.as_mut().and_then(|queue| queue.next(room, now));
        next.filter(|next| next.ticket != ticket.number).into_iter().for_each(|next| next.waiter.wake());
    }

    /// A request has come: others may have to go.
    fn drop_for_arrival(&mut self, limit: &Concurrency, arrival: &mut Ticket, now: Timestamp) {
        let Some(queue) = &mut self.queue else { return };
        let mut drop_for = |dropped: QueueEntry<Arc<TurnSignal>>, reason| {
            dropped.waiter.drop_for(reason);
            if !arrival.in_flight.adapts() && dropped.ticket != arrival.number {
                arrival.displaced.push(dropped.ticket);
            }
        };
        while queue.len() > limit.queue() {
            let Some((_, dropped)) = queue.drop_from_longest(now) else { return };
            drop_for(dropped, DropReason::QueueFull);
        }
        if let Some((_, dropped)) = queue.drop_if_slow(limit.max_wait(), now) {
            drop_for(dropped, DropReason::LowPriority);
        }
    }
}

impl Ticket {
    /// Joins the queue by the time of the request's first wait.
    fn join(&mut self, entry: &mut LimitedKey, (charge, share): (&Charge<'_>, FairShare), now: Timestamp) {
        if self.number == u64::MAX {
            self.number = self.in_flight.last_ticket.fetch_add(1, Ordering::Relaxed);
        }
        let waiting = QueueEntry {
            ticket: self.number,
            places: charge.cost.units(),
            since: now,
            waiter: Arc::clone(&self.signal),
        };
        entry.queue.get_or_insert_default().join(share, waiting, now);
        (self.waits_for, self.queue) = (Some((charge.key, share)), Some(charge.key));
    }

    /// The request has waited for too long. It leaves the queue.
    pub fn time_out(&mut self) -> Option<QueueDrop> {
        let (key, share) = self.waits_for.take()?;
        let now = self.in_flight.now();
        let mut shard = self.in_flight.shard(key).lock();
        let queue = shard.get(&key)?.queue.as_ref()?;
        let is_over_share = queue.is_over_share(share);
        leave(&mut shard, key, share, self.number, now);
        Some(QueueDrop { reason: DropReason::MaxWait, place: key, is_over_share })
    }
}

/// The first limit that refuses a request for want of a place, if no other limit refuses.
fn refusing<'a>(charges: &'a [Charge<'a>], decisions: &[Decision]) -> Option<(&'a Charge<'a>, Concurrency)> {
    let mut refusing = None;
    for (index, charge) in charges.iter().enumerate().filter(|(_, charge)| charge.group == Group::Enforced) {
        match (decisions.get(index)?.verdict, charge.algorithm.as_concurrency()) {
            (Verdict::Deny(Wait::Unknown), Some(limit)) => {
                refusing.get_or_insert((charge, *limit));
            }
            (Verdict::Deny(_), _) => return None,
            _ => {}
        }
    }
    refusing
}

/// Removes a request from a queue. The next one may find a place that this one did not take.
pub(super) fn leave(shard: &mut Shard, key: Fingerprint, share: FairShare, ticket: u64, now: Timestamp) {
    let Some(entry) = shard.get_mut(&key) else { return };
    if let Some(queue) = &mut entry.queue {
        queue.leave(share, ticket, now);
    }
    entry.wake_next(now);
    remove_if_unused(shard, key);
}
