//! The requests that wait under a leaky bucket with `share_by`: which of them leaves next, and which one is dropped.
//!
//! The bucket gives each request that it admits a slot: a moment at which so many units may leave as the request costs. The
//! slots belong to the queue, and the requests take them in the order of a [`FairQueue`]. So the requests leave at the rate
//! of the bucket, whoever they are of: until any moment, at most as many units have left as the slots until then have.
//!
//! A request that costs more than the next slot has waits until the slots that are over have as many units. The slot of a
//! request that has ended is for those that still wait. When none waits, all slots are void: the bucket gives new ones.
//!
//! Pure: no clock, no I/O. Moments are of any clock that does not go back.

use std::collections::BTreeMap;

use super::fair_queue::{FairQueue, FairShare, QueueEntry, Room};
use super::units::{Micros, Timestamp};

/// The requests that wait under one key of a leaky bucket. `W` is what is kept of each.
#[derive(Debug)]
pub struct ReleaseQueue<W> {
    waiting: FairQueue<(FairShare, W)>,
    /// The slots that are to come, by time, each with the number of the request that brought it: its units.
    slots: BTreeMap<(Timestamp, u64), u32>,
    /// The units of slots that are over, which no request has taken.
    credit: u64,
}

/// Every request may leave as far as places are concerned: the slots decide.
const ANY: Room = Room { free: u32::MAX, reserve: 0 };
/// What a unit counts for in the shares.
const UNIT: Micros = Micros::SECOND;

impl<W> Default for ReleaseQueue<W> {
    fn default() -> Self {
        Self { waiting: FairQueue::default(), slots: BTreeMap::new(), credit: 0 }
    }
}

impl<W> ReleaseQueue<W> {
    /// The requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The time until the last slot.
    pub fn drained_in(&self, now: Timestamp) -> Micros {
        self.slots.last_key_value().map_or(Micros(0), |((last, _), _)| last.since(now))
    }

    /// The slot that is next.
    pub fn next_slot(&self) -> Option<Timestamp> {
        self.slots.first_key_value().map(|((slot, _), _)| *slot)
    }

    /// The request whose turn it is to take it, as long as no other comes.
    pub fn next(&mut self, now: Timestamp) -> Option<(u64, &W)> {
        self.waiting.next(ANY, now).map(|next| (next.ticket, &next.waiter.1))
    }

    /// A request waits, with the slot that the bucket has given it. Its `places` are its units.
    pub fn join(&mut self, share: FairShare, slot: Timestamp, entry: QueueEntry<W>, now: Timestamp) {
        self.slots.insert((slot, entry.ticket), entry.places);
        self.waiting.join(share, with_share(share, entry), now);
    }

    /// The requests that leave now, in order.
    pub fn release(&mut self, now: Timestamp) -> Vec<QueueEntry<W>> {
        while let Some(slot) = self.slots.first_entry().filter(|slot| slot.key().0 <= now) {
            self.credit = self.credit.saturating_add(slot.remove().into());
        }
        let mut released = Vec::new();
        while let Some(next) = self.waiting.next(ANY, now) {
            let (share, ticket, units) = (next.waiter.0, next.ticket, next.places);
            let Some(left) = self.credit.checked_sub(units.into()) else { break };
            self.credit = left;
            released.extend(self.waiting.served(share, ticket, UNIT, now).map(without_share));
        }
        self.void_slots();
        released
    }

    /// A request does not wait any more.
    pub fn leave(&mut self, share: FairShare, ticket: u64, now: Timestamp) {
        self.waiting.leave(share, ticket, now);
        self.void_slots();
    }

    /// Whether the key has more requests, by weight, than others of its priority have on average.
    pub fn is_over_share(&self, share: FairShare) -> bool {
        self.waiting.is_over_share(share)
    }

    /// Whether a request that comes has others dropped for it where the bucket is full: there is a key with more requests.
    pub fn gives_way_to(&self, share: FairShare) -> bool {
        self.waiting.is_shorter_than_longest(share)
    }

    /// Drops the newest requests of the keys with the most, until a request that comes has room for so many units. Their last
    /// slots are gone. Returns the requests with the units that they had; less if the key of the arrival has the most.
    pub fn make_room(&mut self, share: FairShare, units: u64, now: Timestamp) -> (Vec<QueueEntry<W>>, u64) {
        let (mut dropped, mut freed) = (Vec::new(), 0);
        while freed < units && self.gives_way_to(share) {
            let Some((_, entry)) = self.waiting.drop_from_longest(now) else { break };
            freed += u64::from(entry.places);
            dropped.push(without_share(entry));
        }
        self.cut_slots(freed);
        self.void_slots();
        (dropped, freed)
    }

    /// Takes so many units from the last slots.
    fn cut_slots(&mut self, mut units: u64) {
        while let Some(mut last) = self.slots.last_entry().filter(|_| units > 0) {
            let cut = units.min(u64::from(*last.get()));
            units -= cut;
            // Not more than the slot has.
            *last.get_mut() -= u32::try_from(cut).unwrap_or(u32::MAX);
            if *last.get() == 0 {
                last.remove();
            }
        }
    }

    fn void_slots(&mut self) {
        if self.waiting.is_empty() {
            self.slots.clear();
            self.credit = 0;
        }
    }
}

fn with_share<W>(share: FairShare, entry: QueueEntry<W>) -> QueueEntry<(FairShare, W)> {
    let QueueEntry { ticket, places, since, waiter } = entry;
    QueueEntry { ticket, places, since, waiter: (share, waiter) }
}

fn without_share<W>(entry: QueueEntry<(FairShare, W)>) -> QueueEntry<W> {
    let QueueEntry { ticket, places, since, waiter: (_, waiter) } = entry;
    QueueEntry { ticket, places, since, waiter }
}
