//! A cluster's way to decide limits whose counters lie on several servers: one server after the other.
//!
//! Who is asked later sees what was admitted before; when one refuses, what the others have charged is given back. So there is never
//! more admitted than the limits allow. For the moment between a charge and its refund, others may be refused who would have passed.
//! `config` refuses routes whose charges can't be given back. Shadow limits come last, when it is known whether the request passes.

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::errors::CallError;
use super::fallback;
use super::reply::Reply;
use super::script_client::{ScriptClient, ScriptOp};
use super::slot::HashSlot;
use crate::limit::units::Timestamp;
use crate::limit::{Decision, Verdict};
use crate::store::{Charge, ChargeSet, Decisions, Group, Outcome};

/// Decides charges that lie in more than one slot, all until `deadline`. `now` is this machine's time.
pub(super) async fn decide(
    script: &ScriptClient,
    charges: &[Charge<'_>],
    now: Timestamp,
    deadline: Instant,
) -> Outcome {
    let decisions = charges.iter().map(fallback::unlimited).collect();
    let unasked = ChargeSet::default();
    let mut session = Session { script, charges, now, deadline, decisions, unasked, admitted: true };
    let paid = session.ask_the_enforced().await;
    let unavailable = session.go_on_without();
    if !session.admitted {
        session.refund(&paid).await;
    }
    if !unavailable {
        session.ask_the_shadows().await;
    }
    let decisions = if unavailable { Decisions::default() } else { Decisions::Together(session.decisions) };
    Outcome { decisions, unasked: session.unasked, unavailable }
}

/// One request while it is decided.
struct Session<'a> {
    script: &'a ScriptClient,
    charges: &'a [Charge<'a>],
    now: Timestamp,
    deadline: Instant,
    /// One per charge; unlimited until it is known better.
    decisions: SmallVec<[Decision; 4]>,
    unasked: ChargeSet,
    /// Nobody has refused yet.
    admitted: bool,
}

/// Charges that lie on one server, by their places.
struct Part {
    slot: HashSlot,
    places: SmallVec<[usize; 4]>,
}

/// A part that was charged, and the server's time at which it was.
type Paid = (Part, Timestamp);

impl Session<'_> {
    /// Asks for one part after the other. Once one refuses, the rest are only looked at: a refusal names all who refuse.
    async fn ask_the_enforced(&mut self) -> SmallVec<[Paid; 4]> {
        let mut paid = SmallVec::new();
        for part in self.parts(|group| group == Group::Enforced) {
            let charging = self.admitted;
            match self.ask(&part).await {
                Ok(reply) => {
                    self.put(&part.places, &reply.outcome.decisions);
                    if charging && self.admitted {
                        paid.push((part, reply.now));
                    }
                }
                Err(_) => part.places.iter().for_each(|place| self.unasked.insert(*place)),
            }
        }
        paid
    }

    /// Decides what could not be asked by what its limits say. True if one of them wants the request refused for that.
    fn go_on_without(&mut self) -> bool {
        let places: SmallVec<[usize; 4]> =
            (0..self.charges.len()).filter(|place| self.unasked.contains(*place)).collect();
        if places.is_empty() || !self.admitted {
            return false;
        }
        let outcome = self.script.without(&self.chosen(&places), self.now);
        self.put(&places, &outcome.decisions);
        self.admitted &= !outcome.unavailable;
        outcome.unavailable
    }

    /// Gives back what was charged: it is told as if it had not been.
    async fn refund(&mut self, paid: &[Paid]) {
        for (part, at) in paid {
            for place in &part.places {
                let (charge, decision) = (&self.charges[*place], &mut self.decisions[*place]);
                let whole = charge.algorithm.quota();
                decision.remaining = (decision.remaining + u64::from(charge.cost.units())).min(whole);
            }
            let charges = self.chosen(&part.places);
            let asked = self.script.ask(part.slot, ScriptOp::Refund(*at), &charges);
            // Where it can't be given back, it was spent on a refusal: less than allowed, never more.
            let _ = timeout_at(self.deadline, asked).await;
        }
    }

    /// Shadow limits decide alone, and are charged only if the request passes.
    async fn ask_the_shadows(&mut self) {
        for part in self.parts(|group| group != Group::Enforced) {
            let admitted = self.admitted;
            match self.ask(&part).await {
                Ok(reply) => self.put(&part.places, &reply.outcome.decisions),
                Err(_) => {
                    part.places.iter().for_each(|place| self.unasked.insert(*place));
                    if admitted {
                        let outcome = self.script.without(&self.chosen(&part.places), self.now);
                        self.put(&part.places, &outcome.decisions);
                    }
                }
            }
            self.admitted = admitted;
        }
    }

    async fn ask(&self, part: &Part) -> Result<Reply, CallError> {
        let question = if self.admitted { ScriptOp::Decide } else { ScriptOp::Peek };
        let charges = self.chosen(&part.places);
        let asked = self.script.ask(part.slot, question, &charges);
        timeout_at(self.deadline, asked).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Notes what was decided of the charges at these places.
    fn put(&mut self, places: &[usize], decisions: &[Decision]) {
        for (place, decision) in places.iter().zip(decisions) {
            self.decisions[*place] = *decision;
            self.admitted &= !matches!(decision.verdict, Verdict::Deny(_));
        }
    }

    /// The charges of these groups by slot, in the order in which they stand.
    fn parts(&self, of: impl Fn(Group) -> bool) -> SmallVec<[Part; 4]> {
        let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
        for (place, charge) in self.charges.iter().enumerate().filter(|(_, charge)| of(charge.group)) {
            let slot = self.script.slot(charge);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => part.places.push(place),
                None => parts.push(Part { slot, places: SmallVec::from_slice(&[place]) }),
            }
        }
        parts
    }

    fn chosen(&self, places: &[usize]) -> SmallVec<[Charge<'_>; 4]> {
        places.iter().map(|place| self.charges[*place]).collect()
    }
}
