//! Requests under leaky buckets with `share_by`: who has room in a full queue, and who leaves next.

use smallvec::SmallVec;

use super::counters::Counters;
use super::memory::in_flight::QueueDrop;
use super::memory::release_queues::{Entrance, QueueStanding, ReleaseTicket};
use super::{Charge, Decisions, DropReason, Group, KeyOperation, Outcome, PlaceClaims};
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::units::{Cost, Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};

/// A request that its leaky buckets have admitted, and that leaves by shares.
#[derive(Debug)]
pub struct PendingRelease {
    first: ReleaseTicket,
    others: Vec<ReleaseTicket>,
}

/// A request enters a queue in which others wait.
#[derive(Debug)]
pub struct QueueEntrance {
    /// If the bucket refuses it nevertheless.
    pub refused: QueueDrop,
    /// Others have given way to it.
    was_alone: bool,
    _entrance: Entrance,
}

impl Counters {
    /// Makes room for a request that only full buckets refuse: others are dropped, of keys with more of the queue. The
    /// entrance is to be kept until it is decided, and waits itself. `None`: no bucket's queue is divided.
    pub async fn make_room(
        &self,
        charges: &[Charge<'_>],
        claims: &PlaceClaims,
        now: Timestamp,
    ) -> Option<QueueEntrance> {
        let queues = self.memory.release_queues();
        let (_, charge, _) = by_shares(charges, claims).next()?;
        let QueueStanding { has_room, is_over_share, mut entrance } = queues.standing(charge.key, claims);
        // While a request waits for a place, others enter.
        let takes_places = charges.iter().any(|charge| charge.algorithm.as_concurrency().is_some());
        if !takes_places {
            entrance.enter(has_room).await;
        }
        if has_room {
            self.drop_others(charges, claims, now).await;
        }
        let refused = QueueDrop { reason: DropReason::QueueFull, place: charge.key, is_over_share };
        Some(QueueEntrance { refused, was_alone: has_room, _entrance: entrance })
    }

    /// Whether others would give way to a request now that has entered together with others, and was refused.
    pub fn others_give_way(&self, entered: &QueueEntrance, claims: &PlaceClaims) -> bool {
        let queues = self.memory.release_queues();
        !entered.was_alone && queues.standing(entered.refused.place, claims).has_room
    }

    async fn drop_others(&self, charges: &[Charge<'_>], claims: &PlaceClaims, now: Timestamp) {
        let looked = self.look(charges, now).await;
        if looked.unavailable || is_refused_by_others(charges, claims, &looked.decisions) {
            return;
        }
        for (index, charge, bucket) in by_shares(charges, claims) {
            let decision = looked.decisions.get(index);
            let Some(Verdict::Deny(Wait::After(wait))) = decision.map(|decision| decision.verdict) else {
                continue;
            };
            let freed = self.memory.release_queues().make_room(charge.key, claims, bucket.units_in(wait));
            if let Some(freed) = u32::try_from(freed).ok().and_then(Cost::new) {
                // If the store cannot be asked now, it refuses this request as it would have.
                let _ = self.execute(&KeyOperation::Grant(freed), &[*charge], now).await;
            }
        }
    }

    /// An admitted request joins the queues of its buckets. `None`: it waits in none.
    pub fn join_queues(
        &self,
        charges: &[Charge<'_>],
        claims: &PlaceClaims,
        outcome: &Outcome,
    ) -> Option<PendingRelease> {
        let queues = self.memory.release_queues();
        let mut tickets = by_shares(charges, claims).filter_map(|(index, charge, bucket)| {
            let Verdict::Delay(delay) = outcome.decisions.get(index)?.verdict else { return None };
            Some(queues.join(charge, claims, delay, bucket.max_wait()))
        });
        Some(PendingRelease { first: tickets.next()?, others: tickets.collect() })
    }
}

impl PendingRelease {
    /// Waits until all buckets have let the request go. Returns the [`Charge::key`] of the first of them.
    ///
    /// # Errors
    ///
    /// It was dropped from a queue, with the time until the queue of now is empty.
    pub async fn released(self) -> Result<Fingerprint, (QueueDrop, Micros)> {
        self.first.released().await?;
        for ticket in &self.others {
            ticket.released().await?;
        }
        Ok(self.first.key())
    }
}

impl Outcome {
    /// The request has left the queues of its buckets, after this wait.
    pub fn leave_queues(&mut self, charges: &[Charge<'_>], claims: &PlaceClaims, waited: Micros) {
        self.change_decisions(|decisions| {
            for decision in decisions.iter_mut() {
                if let Verdict::Delay(delay) = &mut decision.verdict {
                    *delay = Micros(delay.0.saturating_sub(waited.0));
                }
            }
            for (index, ..) in by_shares(charges, claims) {
                let decision = decisions.get_mut(index);
                if let Some(Decision { verdict: Verdict::Delay(delay), .. }) = decision {
                    *delay = Micros(0);
                }
            }
        });
    }

    /// The request was dropped from the queue of a bucket that had admitted it; `wait` is told to the client.
    pub fn drop_from_queue(&mut self, charges: &[Charge<'_>], dropped: QueueDrop, wait: Micros) {
        let place = charges.iter().position(|charge| charge.key == dropped.place);
        self.change_decisions(|decisions| {
            if let Some(decision) = place.and_then(|index| decisions.get_mut(index)) {
                decision.verdict = Verdict::Deny(Wait::After(wait.max(Micros::SECOND)));
            }
        });
        self.dropped = Some(dropped);
    }

    /// The request has waited for this place, and has got it: a decision that admits it has delayed it.
    pub fn got_place(&mut self, charges: &[Charge<'_>], place: Fingerprint) {
        let index = charges.iter().position(|charge| charge.key == place);
        self.change_decisions(|decisions| {
            if let Some(decision) = index.and_then(|index| decisions.get_mut(index))
                && decision.verdict == Verdict::Allow
            {
                decision.verdict = Verdict::Delay(Micros(0));
            }
        });
    }

    fn change_decisions(&mut self, change: impl FnOnce(&mut [Decision])) {
        let mut decisions = SmallVec::from_slice(&self.decisions);
        change(&mut decisions);
        self.decisions = Decisions::Together(decisions);
    }
}

/// The charges of enforced buckets whose queues are divided.
fn by_shares<'a>(
    charges: &'a [Charge<'a>],
    claims: &PlaceClaims,
) -> impl Iterator<Item = (usize, &'a Charge<'a>, &'a LeakyBucket)> {
    charges.iter().enumerate().filter_map(move |(index, charge)| {
        let bucket = charge.algorithm.as_leaky_bucket()?;
        (charge.group == Group::Enforced && claims.has_share(charge.key)).then_some((index, charge, bucket))
    })
}

/// Whether another charge than these refuses the request.
fn is_refused_by_others(charges: &[Charge<'_>], claims: &PlaceClaims, decisions: &[Decision]) -> bool {
    charges.iter().zip(decisions).enumerate().any(|(index, (charge, decision))| {
        charge.group == Group::Enforced
            && decision.denies()
            && !matches!(decision.verdict, Verdict::Deny(Wait::Unknown))
            && by_shares(charges, claims).all(|(of_shares, ..)| of_shares != index)
    })
}
