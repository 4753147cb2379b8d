//! Decides limits with counters on several nodes of a cluster: one node after the other.
//!
//! A later node sees the decisions of earlier ones; if one denies, the charges on the others are refunded. So never
//! more is admitted than the limits allow. Between a charge and its refund, other requests may be denied that would
//! have been admitted. `config` rejects routes with charges that cannot be refunded. Shadow limits come last, once it
//! is known whether the request is admitted.

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::call::PlaceId;
use super::errors::CallError;
use super::fallback;
use super::reply::Reply;
use super::script_client::{ScriptClient, ScriptOp};
use super::slot::HashSlot;
use crate::limit::units::Timestamp;
use crate::limit::{Decision, Verdict};
use crate::store::{Charge, ChargeSet, Decisions, Group, Outcome, StoreRequest};

/// Decides charges in more than one slot, all until `deadline`. Those that are paid already are not asked about. `now` is this
/// machine's time.
pub(super) async fn decide(
    script: &ScriptClient,
    (charges, paid): (&[Charge<'_>], ChargeSet),
    now: Timestamp,
    deadline: Instant,
    place: Option<PlaceId>,
) -> Outcome {
    let mut session =
        DecisionSession { skipped: paid, ..DecisionSession::new(script, (charges, now), deadline, place) };
    let charged = session.ask_the_enforced().await;
    let unavailable = session.go_on_without();
    if !session.admitted {
        session.refund(&charged).await;
    }
    if !unavailable {
        session.ask_the_shadows().await;
    }
    let decisions = if unavailable { Decisions::default() } else { Decisions::Together(session.decisions) };
    let counted_at =
        charges.iter().any(|charge| charge.shared_key.settles).then(|| session.counted_at.into_boxed_slice());
    Outcome {
        decisions,
        decided_locally: session.decided_locally,
        unavailable,
        banned: false,
        dropped: None,
        counted_at,
    }
}

/// What the servers would decide on charges in more than one slot, each by itself, all until `deadline`.
pub(super) async fn look(
    script: &ScriptClient,
    charges: &[Charge<'_>],
    now: Timestamp,
    deadline: Instant,
) -> Result<Decisions, CallError> {
    let mut session = DecisionSession::new(script, (charges, now), deadline, None);
    // Nothing is charged.
    session.admitted = false;
    for part in session.parts(|_| true) {
        let reply = session.ask(&part).await?;
        session.put(&part.indices, &reply);
    }
    Ok(Decisions::Together(session.decisions))
}

/// The state of one request's decision.
struct DecisionSession<'a> {
    script: &'a ScriptClient,
    charges: &'a [Charge<'a>],
    now: Timestamp,
    deadline: Instant,
    /// The id of its places.
    place: Option<PlaceId>,
    /// One per charge; unlimited until decided.
    decisions: SmallVec<[Decision; 4]>,
    /// When each charge counted, by the clock that counted it.
    counted_at: SmallVec<[Timestamp; 4]>,
    decided_locally: ChargeSet,
    /// Charges that are not asked about, by index.
    skipped: ChargeSet,
    /// No limit has denied yet.
    admitted: bool,
}

/// Charges on one server, by index.
struct ServerCharges {
    slot: HashSlot,
    indices: SmallVec<[usize; 4]>,
}

/// A part that was charged, and the server's time of the charge.
type Paid = (ServerCharges, Timestamp);

impl<'a> DecisionSession<'a> {
    fn new(
        script: &'a ScriptClient,
        (charges, now): (&'a [Charge<'a>], Timestamp),
        deadline: Instant,
        place: Option<PlaceId>,
    ) -> Self {
        let decisions = charges.iter().map(fallback::unlimited).collect();
        let (decided_locally, counted_at) = (ChargeSet::default(), charges.iter().map(|_| now).collect());
        let (skipped, admitted) = (ChargeSet::default(), true);
        Self {
            script,
            charges,
            now,
            deadline,
            place,
            decisions,
            counted_at,
            decided_locally,
            skipped,
            admitted,
        }
    }

    /// Decides one part after the other. Once one denies, the rest are only peeked at: the outcome names all limits
    /// that deny.
    async fn ask_the_enforced(&mut self) -> SmallVec<[Paid; 4]> {
        let mut paid = SmallVec::new();
        for part in self.parts(|group| group == Group::Enforced) {
            let charging = self.admitted;
            match self.ask(&part).await {
                Ok(reply) => {
                    self.put(&part.indices, &reply);
                    if charging && self.admitted {
                        paid.push((part, reply.now));
                    }
                }
                Err(_) => part.indices.iter().for_each(|index| self.decided_locally.insert(*index)),
            }
        }
        paid
    }

    /// Decides charges without a reply by their limits' `on_error`. True if one of them has the request refused for
    /// that.
    fn go_on_without(&mut self) -> bool {
        let indices: SmallVec<[usize; 4]> =
            (0..self.charges.len()).filter(|index| self.decided_locally.contains(*index)).collect();
        if indices.is_empty() || !self.admitted {
            return false;
        }
        let outcome = self.script.without(&self.chosen(&indices), self.now);
        self.put_local(&indices, &outcome);
        self.admitted &= !outcome.unavailable;
        outcome.unavailable
    }

    /// Refunds charges: the outcome reports them as uncharged.
    async fn refund(&mut self, paid: &[Paid]) {
        for (part, at) in paid {
            for index in &part.indices {
                let (charge, decision) = (&self.charges[*index], &mut self.decisions[*index]);
                let whole = charge.algorithm.quota();
                decision.remaining = (decision.remaining + u64::from(charge.cost.units())).min(whole);
            }
            let charges = self.chosen(&part.indices);
            let asked = self.script.ask(
                part.slot,
                ScriptOp::Refund(*at),
                StoreRequest::of(&charges),
                self.now,
                self.place,
            );
            // If a refund fails, the charge was spent on a denial: less is admitted than allowed, never more.
            let _ = timeout_at(self.deadline, asked).await;
        }
    }

    /// Shadow limits decide separately, and are charged only if the request is admitted.
    async fn ask_the_shadows(&mut self) {
        for part in self.parts(|group| group != Group::Enforced) {
            let admitted = self.admitted;
            match self.ask(&part).await {
                Ok(reply) => self.put(&part.indices, &reply),
                Err(_) => {
                    part.indices.iter().for_each(|index| self.decided_locally.insert(*index));
                    if admitted {
                        let outcome = self.script.without(&self.chosen(&part.indices), self.now);
                        self.put_local(&part.indices, &outcome);
                    }
                }
            }
            self.admitted = admitted;
        }
    }

    async fn ask(&self, part: &ServerCharges) -> Result<Reply, CallError> {
        let question = if self.admitted { ScriptOp::Decide } else { ScriptOp::Peek };
        let charges = self.chosen(&part.indices);
        let asked = self.script.ask(part.slot, question, StoreRequest::of(&charges), self.now, self.place);
        timeout_at(self.deadline, asked).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Stores a server's decisions on the charges at these indices.
    fn put(&mut self, indices: &[usize], reply: &Reply) {
        indices.iter().for_each(|index| self.counted_at[*index] = reply.now);
        self.put_decisions(indices, &reply.outcome.decisions);
    }

    /// Stores the decisions without the servers.
    fn put_local(&mut self, indices: &[usize], outcome: &Outcome) {
        for (index, time) in indices.iter().zip(outcome.counted_at.iter().flatten()) {
            self.counted_at[*index] = *time;
        }
        self.put_decisions(indices, &outcome.decisions);
    }

    fn put_decisions(&mut self, indices: &[usize], decisions: &[Decision]) {
        for (index, decision) in indices.iter().zip(decisions) {
            self.decisions[*index] = *decision;
            self.admitted &= !matches!(decision.verdict, Verdict::Deny(_));
        }
    }

    /// The charges of these groups by slot, in their order.
    fn parts(&self, of: impl Fn(Group) -> bool) -> SmallVec<[ServerCharges; 4]> {
        let mut parts: SmallVec<[ServerCharges; 4]> = SmallVec::new();
        for (index, charge) in self.charges.iter().enumerate() {
            if !of(charge.group) || self.skipped.contains(index) {
                continue;
            }
            let slot = self.script.slot(charge);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => part.indices.push(index),
                None => parts.push(ServerCharges { slot, indices: SmallVec::from_slice(&[index]) }),
            }
        }
        parts
    }

    fn chosen(&self, indices: &[usize]) -> SmallVec<[Charge<'_>; 4]> {
        indices.iter().map(|index| self.charges[*index]).collect()
    }
}
