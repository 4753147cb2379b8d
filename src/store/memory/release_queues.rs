//! The requests that wait under leaky buckets with `share_by`, over all workers.
//!
//! Each waits until its own slot, and has the requests leave whose turn it is by then: often others than itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use super::in_flight::{DropReason, PlaceClaims, QueueDrop};
use super::turn_signal::TurnSignal;
use crate::clock;
use crate::limit::fair_queue::{FairShare, QueueEntry};
use crate::limit::release_queue::ReleaseQueue;
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::store::Charge;

/// All keys with requests that wait.
#[derive(Debug, Default)]
pub struct ReleaseQueues {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<Fingerprint, KeyQueue, FixedState>,
    /// The number issued last.
    last_ticket: u64,
}

/// The queue of one key.
#[derive(Debug, Default)]
struct KeyQueue {
    waiting: ReleaseQueue<Arc<TurnSignal>>,
    /// Locked for writing while others give way to a request, until it is decided: no other takes the room that was made.
    entrance: Arc<RwLock<()>>,
}

/// A request that comes, from before it is decided until it waits or does not. As long as others give way to one, no other is
/// decided and takes the room that was made.
#[derive(Debug)]
pub struct Entrance {
    queues: Arc<ReleaseQueues>,
    key: Fingerprint,
    lock: Arc<RwLock<()>>,
    guard: Option<EntranceGuard>,
}

#[derive(Debug)]
enum EntranceGuard {
    /// For one that others give way to.
    Alone(#[expect(dead_code, reason = "it is held")] OwnedRwLockWriteGuard<()>),
    /// For the others.
    Shared(#[expect(dead_code, reason = "it is held")] OwnedRwLockReadGuard<()>),
}

/// A request that waits. Dropped, it leaves the queue.
#[derive(Debug)]
pub struct ReleaseTicket {
    queues: Arc<ReleaseQueues>,
    key: Fingerprint,
    share: FairShare,
    number: u64,
    signal: Arc<TurnSignal>,
    slot: Timestamp,
    /// When it has waited for as long as it may.
    until: Timestamp,
}

/// How a request that comes stands to those that wait.
#[derive(Debug)]
pub struct QueueStanding {
    /// Another key has more requests, by weight: where the bucket is full, these give way.
    pub has_room: bool,
    /// Its key has more than its share.
    pub is_over_share: bool,
    /// Its entrance, which is open.
    pub entrance: Entrance,
}

impl Entrance {
    /// Waits until it may be decided; `alone`: others give way to it.
    pub async fn enter(&mut self, alone: bool) {
        let lock = Arc::clone(&self.lock);
        self.guard = Some(match alone {
            true => EntranceGuard::Alone(lock.write_owned().await),
            false => EntranceGuard::Shared(lock.read_owned().await),
        });
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.guard = None;
        // Its own part of the lock is the last but that of the queue, if no other enters.
        self.queues.queues.lock().forget_if_unused(self.key, 2);
    }
}

impl ReleaseQueues {
    /// How a request that comes stands to those that wait under this key.
    pub fn standing(self: &Arc<Self>, key: Fingerprint, claims: &PlaceClaims) -> QueueStanding {
        let (share, mut queues) = (claims.share(key), self.queues.lock());
        let queue = queues.by_key.entry(key).or_default();
        QueueStanding {
            has_room: queue.waiting.gives_way_to(share),
            is_over_share: queue.waiting.is_over_share(share),
            entrance: Entrance {
                queues: Arc::clone(self),
                key,
                lock: Arc::clone(&queue.entrance),
                guard: None,
            },
        }
    }

    /// Has requests dropped that have more of the queue, so that one that comes has room for these units. Returns the units that
    /// they had: none of a key that has no more than the arrival.
    pub fn make_room(&self, key: Fingerprint, claims: &PlaceClaims, units: u64) -> u64 {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.by_key.get_mut(&key) else { return 0 };
        let (dropped, freed) = queue.waiting.make_room(claims.share(key), units, now());
        for entry in &dropped {
            entry.waiter.drop_for(DropReason::QueueFull);
        }
        watch_next(&mut queue.waiting, 0, now());
        queues.forget_if_empty(key);
        freed
    }

    /// A request waits, that its bucket has admitted with this delay.
    pub fn join(
        self: &Arc<Self>,
        charge: &Charge<'_>,
        claims: &PlaceClaims,
        delay: Micros,
        max_wait: Micros,
    ) -> ReleaseTicket {
        let (now, key, signal) = (now(), charge.key, Arc::<TurnSignal>::default());
        let (share, slot) = (claims.share(key), now.plus(delay));
        let mut queues = self.queues.lock();
        queues.last_ticket += 1;
        let (number, waiter) = (queues.last_ticket, Arc::clone(&signal));
        let entry = QueueEntry { ticket: number, places: charge.cost.units(), since: now, waiter };
        queues.by_key.entry(key).or_default().waiting.join(share, slot, entry, now);
        drop(queues);
        let until = now.plus(max_wait.max(delay));
        ReleaseTicket { queues: Arc::clone(self), key, share, number, signal, slot, until }
    }

    /// The requests leave whose turn it is. Returns until when a request that stays may sleep, whose own slot is this.
    fn release(
        &self,
        key: Fingerprint,
        (number, slot): (u64, Timestamp),
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut queues = self.queues.lock();
        let queue = &mut queues.by_key.get_mut(&key)?.waiting;
        queue.release(now).iter().for_each(|entry| entry.waiter.end());
        let next_slot = queue.next_slot();
        let is_next = watch_next(queue, number, now);
        queues.forget_if_empty(key);
        if is_next { next_slot } else { Some(slot).filter(|slot| *slot > now) }
    }
}

/// The next request watches the slots of requests that are gone, besides its own. Returns whether it is this one.
fn watch_next(queue: &mut ReleaseQueue<Arc<TurnSignal>>, number: u64, now: Timestamp) -> bool {
    let next = queue.next(now);
    let is_other = next.filter(|(ticket, _)| *ticket != number);
    is_other.into_iter().for_each(|(_, signal)| signal.wake());
    next.is_some_and(|(ticket, _)| ticket == number)
}

impl Queues {
    fn forget_if_empty(&mut self, key: Fingerprint) {
        self.forget_if_unused(key, 1);
    }

    /// Forgets the queue of a key if none waits, and so many know its entrance.
    fn forget_if_unused(&mut self, key: Fingerprint, known: usize) {
        let is_unused =
            |queue: &KeyQueue| queue.waiting.is_empty() && Arc::strong_count(&queue.entrance) <= known;
        if self.by_key.get(&key).is_some_and(is_unused) {
            self.by_key.remove(&key);
        }
    }
}

impl ReleaseTicket {
    /// Waits until the request leaves.
    ///
    /// # Errors
    ///
    /// It was dropped, with the time until the last slot of the queue.
    pub async fn released(&self) -> Result<(), (QueueDrop, Micros)> {
        loop {
            let present = now();
            let next = self.queues.release(self.key, (self.number, self.slot), present);
            if self.signal.is_ended() {
                return Ok(());
            }
            if let Some(reason) = self.signal.dropped() {
                return Err(self.dropped(reason));
            }
            if present >= self.until {
                return Err(self.dropped(DropReason::MaxWait));
            }
            let next = next.map_or(self.until, |next| next.min(self.until));
            // Either way it is looked at again.
            let _ = timeout(Duration::from_micros(next.since(present).0), self.signal.changed()).await;
        }
    }

    /// The key of its bucket.
    pub fn key(&self) -> Fingerprint {
        self.key
    }

    fn dropped(&self, reason: DropReason) -> (QueueDrop, Micros) {
        let queues = self.queues.queues.lock();
        let queue = queues.by_key.get(&self.key).map(|queue| &queue.waiting);
        // It gave way since its key had the most.
        let is_over_share =
            reason == DropReason::QueueFull || queue.is_some_and(|queue| queue.is_over_share(self.share));
        let wait = queue.map_or(Micros(0), |queue| queue.drained_in(now()));
        (QueueDrop { reason, place: self.key, is_over_share }, wait)
    }
}

impl Drop for ReleaseTicket {
    fn drop(&mut self) {
        if self.signal.is_ended() || self.signal.dropped().is_some() {
            return;
        }
        let mut queues = self.queues.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(&self.key) {
            let now = now();
            queue.waiting.leave(self.share, self.number, now);
            watch_next(&mut queue.waiting, self.number, now);
            queues.forget_if_empty(self.key);
        }
    }
}

fn now() -> Timestamp {
    Timestamp(clock::monotonic().0)
}
