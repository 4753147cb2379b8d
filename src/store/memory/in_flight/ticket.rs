//! The turn of a request that waits for a place.

use std::num::NonZeroU32;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::turn_signal::{DropReason, TurnSignal};
use super::{RequestsInFlight, leave};
use crate::limit::fair_queue::{FairShare, Priority};
use crate::limit::units::{Fingerprint, Timestamp};

/// Whose shares of places a request takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceClaims {
    /// The priority of its route.
    pub priority: Priority,
    /// Of the limits that have `share_by`.
    pub shares: SmallVec<[PlaceShare; 1]>,
}

/// The share of the places of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceShare {
    /// The [`Charge::key`](crate::store::Charge::key) of the limit.
    pub place: Fingerprint,
    /// The key of `share_by`.
    pub key: Fingerprint,
    /// Its weight.
    pub weight: NonZeroU32,
}

/// The turn of a request that waits for a place. Dropped, it leaves the queue. The charges of its request are the same
/// whenever it is decided again.
#[derive(Debug)]
pub struct Ticket {
    pub(super) in_flight: Arc<RequestsInFlight>,
    pub(super) claims: PlaceClaims,
    /// Until the request waits, it is later than all.
    pub(super) number: u64,
    pub(super) signal: Arc<TurnSignal>,
    /// The key that the request waits for, and its share.
    pub(super) waits_for: Option<(Fingerprint, FairShare)>,
    pub(super) queue: Option<Fingerprint>,
    /// In virtual time: the numbers of the tickets that its arrival has dropped.
    pub(super) displaced: Vec<u64>,
}

/// The refusal of a request that a queue has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDrop {
    /// Why.
    pub reason: DropReason,
    /// The [`Charge::key`](crate::store::Charge::key) of the limit with the queue.
    pub place: Fingerprint,
    /// The key of its share has more places and requests than others that wait.
    pub is_over_share: bool,
}

impl PlaceClaims {
    /// The share of the places of the limit with this charge.
    pub(in crate::store) fn share(&self, place: Fingerprint) -> FairShare {
        let (key, weight) =
            self.of(place).map_or((Fingerprint(0), NonZeroU32::MIN), |share| (share.key, share.weight));
        FairShare { priority: self.priority, key, weight }
    }

    /// Whether the limit with this charge has `share_by`.
    pub(in crate::store) fn has_share(&self, place: Fingerprint) -> bool {
        self.of(place).is_some()
    }

    /// The same, if the limit has `share_by`.
    pub(super) fn own_share(&self, place: Fingerprint) -> Option<FairShare> {
        self.of(place).map(|_| self.share(place))
    }

    fn of(&self, place: Fingerprint) -> Option<&PlaceShare> {
        self.shares.iter().find(|share| share.place == place)
    }
}

impl Ticket {
    /// Ends when a place may be free, or the request is dropped.
    pub async fn changed(&self) {
        self.signal.changed().await;
    }

    /// Whether the request has been dropped from the queue: decided again, it is refused.
    pub fn is_dropped(&self) -> bool {
        self.signal.dropped().is_some()
    }

    /// Whose shares it takes.
    pub fn claims(&self) -> &PlaceClaims {
        &self.claims
    }

    /// In virtual time, the numbers of the tickets that its arrival has dropped.
    pub fn take_displaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.displaced)
    }

    /// The key for whose place the request waits, or waited last.
    pub fn queue(&self) -> Option<Fingerprint> {
        self.queue
    }

    /// Its number, if it has waited.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn leave(&mut self) {
        if let Some((key, share)) = self.waits_for.take() {
            let now = self.in_flight.now();
            leave(&mut self.in_flight.shard(key).lock(), key, share, self.number, now);
        }
    }
}

impl RequestsInFlight {
    /// A ticket for a request that does not wait yet.
    pub fn ticket(self: &Arc<Self>, claims: PlaceClaims) -> Ticket {
        let in_flight = Arc::clone(self);
        Ticket {
            in_flight,
            claims,
            number: u64::MAX,
            signal: Arc::default(),
            waits_for: None,
            queue: None,
            displaced: Vec::new(),
        }
    }

    /// The number of the ticket whose turn it is to take a place of this key.
    pub fn next_ticket(&self, key: Fingerprint, now: Timestamp) -> Option<u64> {
        let mut shard = self.shard(key).lock();
        let entry = shard.get_mut(&key)?;
        let room = entry.room();
        entry.queue.as_mut()?.next(room, now).map(|next| next.ticket)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}
