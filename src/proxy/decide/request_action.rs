//! The store's decision on a request, and the action that follows from the whole decision.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use crate::auth::forward::ServiceAnswer;
use crate::limit::units::{Fingerprint, Micros};
use crate::plan::Route;
use crate::plan::admission::{BindingLimit, Refusal, RefusalCause, RequestCharges};
use crate::plan::auth::CredentialFault;
use crate::plan::decision::{FailureKind, LimitPhase, RequestDecision};
use crate::plan::early_response::EarlyResponse;
use crate::plan::reject_reason::RejectReason;
use crate::proxy::answer::fixed_response::FixedAnswer;
use crate::proxy::forward::forward_request::ForwardRequest;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::request_reader::RequestReader;
use crate::store::{DropReason, InTurn, Outcome, StoreRequest};
use crate::telemetry::metrics::RequestOutcome;

/// The action for a request.
pub(crate) enum RequestAction<'p, 'h> {
    /// Forward to the backend, with this path and query.
    Forward(ForwardRequest<'p>, Cow<'h, str>),
    /// Answer it: the route has no backend.
    Answer(Box<FixedAnswer<'p>>),
    /// Send the answer of a service that has refused it.
    Relay(Arc<ServiceAnswer>),
    /// Respond before any limit is checked.
    Early(EarlyResponse),
    /// A limit refuses.
    Refuse(OverLimitRequest<'p>),
    /// The client left while the request waited: in a queue, during a delay, or for the answer of a service.
    GiveUp,
}

/// A limit's refusal.
pub(crate) struct OverLimitRequest<'p> {
    pub(crate) refusal: Refusal<'p>,
    /// The limit that the rate-limit headers describe.
    pub(crate) tightest: Option<BindingLimit<'p>>,
    pub(crate) route: &'p Route,
}

impl<'p, 'r> RequestAction<'p, 'r> {
    /// A limit refuses the request.
    pub(crate) fn refuse(
        ctx: &mut RequestContext,
        decision: &RequestDecision<'p, 'r>,
        refusal: Refusal<'p>,
        tightest: Option<BindingLimit<'p>>,
    ) -> Self {
        let (request, refusal) = (decision.request(), refusal.spread(|most| fastrand::u64(0..=most)));
        match decision.phase() {
            LimitPhase::Failures(failure, _) => {
                ctx.credential_refused(request, failure, Some((&refusal, tightest.as_ref())));
            }
            LimitPhase::BeforeAuth | LimitPhase::Route => ctx.refused(request, &refusal, tightest.as_ref()),
        }
        match refusal.why {
            RefusalCause::Unreadable(fault) => {
                Self::Early(EarlyResponse::Reject(RejectReason::unreadable_body(fault)))
            }
            RefusalCause::Repeated => {
                Self::Early(EarlyResponse::Reject(RejectReason::repeated_key(refusal.limit)))
            }
            _ => {
                if let (Some(noted), Some(reject)) = (&mut ctx.noted, request.route.reject_of(refusal.limit))
                {
                    noted.set_members(reject, request.request().content);
                }
                Self::Refuse(OverLimitRequest { refusal, tightest, route: request.route })
            }
        }
    }

    /// The request is answered before its limits decide.
    #[cold]
    pub(crate) fn early(
        ctx: &mut RequestContext,
        decision: &RequestDecision<'p, 'r>,
        response: EarlyResponse,
    ) -> Self {
        let request = decision.request();
        ctx.sample_rejection(request.head(), request.request().host);
        if let EarlyResponse::Unauthenticated(failure) = &response
            && failure.fault == CredentialFault::Invalid
        {
            ctx.credential_refused(request, *failure, None);
        }
        Self::Early(response)
    }

    /// The answer of the service that has refused the request goes to the client.
    #[cold]
    pub(crate) fn relay(
        ctx: &mut RequestContext,
        decision: &RequestDecision<'p, 'r>,
        answer: Option<Arc<ServiceAnswer>>,
    ) -> Self {
        let request = decision.request();
        ctx.sample_rejection(request.head(), request.request().host);
        // Other answers refuse no credential.
        if let LimitPhase::Failures(failure, FailureKind::Answered) = decision.phase() {
            ctx.credential_refused(request, failure, None);
        }
        answer.map_or_else(|| Self::Early(RejectReason::unverified().into()), Self::Relay)
    }
}

/// Asks the store about a request whose limits have bans or places, with the time at which the request head was complete.
/// `None`: the client left while the request waited for a place.
pub(crate) async fn decide_otherwise(
    ctx: &mut RequestContext,
    charges: &RequestCharges<'_>,
    route: &Route,
    reader: &RequestReader,
) -> Option<Outcome> {
    if charges.leaves_by_shares() {
        return leave_in_turn(ctx, charges, route, reader).await;
    }
    decide_at_once(ctx, charges, route, reader).await
}

/// The same without the queues of leaky buckets.
async fn decide_at_once(
    ctx: &mut RequestContext,
    charges: &RequestCharges<'_>,
    route: &Route,
    reader: &RequestReader,
) -> Option<Outcome> {
    if charges.takes_places() {
        return take_turn(ctx, charges, route, reader).await;
    }
    let bans = charges.bans();
    let request = StoreRequest { charges: &charges.charges, bans: &bans };
    Some(ctx.plan.counters.decide(request, ctx.started).await)
}

/// The same under leaky buckets with shares: the request may displace others, and waits until it leaves.
async fn leave_in_turn(
    ctx: &mut RequestContext,
    charges: &RequestCharges<'_>,
    route: &Route,
    reader: &RequestReader,
) -> Option<Outcome> {
    let (plan, shared) = (Rc::clone(&ctx.plan), Arc::clone(&ctx.worker.shared));
    let claims = charges.claims(route.priority);
    let mut entrance = plan.counters.make_room(&charges.charges, &claims, ctx.started).await;
    let mut outcome = decide_at_once(ctx, charges, route, reader).await?;
    // Requests that a shared store was deciding at the same moment wait by now, and may give way.
    if let Some(entered) = entrance.take_if(|entered| {
        charges.is_refused_at(entered.refused.place, &outcome)
            && plan.counters.others_give_way(entered, &claims)
    }) {
        drop(entered);
        entrance = plan.counters.make_room(&charges.charges, &claims, ctx.started).await;
        outcome = decide_at_once(ctx, charges, route, reader).await?;
    }
    let refused = entrance.as_ref().map(|entrance| entrance.refused);
    if !charges.admits(&outcome) || outcome.unavailable || outcome.banned {
        outcome.dropped = outcome.dropped.or(refused);
        if let Some(dropped) = refused.filter(|dropped| charges.is_refused_at(dropped.place, &outcome)) {
            ctx.count_wait(charges, route, dropped.place, Micros(0), Some(dropped.reason));
        }
        return Some(outcome);
    }
    let since = shared.clock.now();
    let pending = plan.counters.join_queues(&charges.charges, &claims, &outcome);
    drop(entrance);
    let Some(pending) = pending else { return Some(outcome) };
    let released = tokio::select! {
        biased;
        released = pending.released() => released,
        () = reader.gone() => return None,
    };
    let waited = shared.clock.now().since(since);
    ctx.limits.delay = Micros(ctx.limits.delay.0 + waited.0);
    ctx.limits.outcome = RequestOutcome::Delayed;
    match released {
        Ok(place) => {
            ctx.count_wait(charges, route, place, waited, None);
            outcome.leave_queues(&charges.charges, &claims, waited);
        }
        Err((dropped, wait)) => {
            ctx.limits.places = None;
            ctx.count_wait(charges, route, dropped.place, waited, Some(dropped.reason));
            outcome.drop_from_queue(&charges.charges, dropped, wait);
        }
    }
    Some(outcome)
}

/// The same under concurrency limits: the request may wait for a place.
async fn take_turn(
    ctx: &mut RequestContext,
    charges: &RequestCharges<'_>,
    route: &Route,
    reader: &RequestReader,
) -> Option<Outcome> {
    let bans = charges.bans();
    let request = StoreRequest { charges: &charges.charges, bans: &bans };
    let (plan, shared) = (Rc::clone(&ctx.plan), Arc::clone(&ctx.worker.shared));
    let turn =
        plan.counters.admit(request, charges.claims(route.priority), ctx.started, || shared.clock.now());
    let InTurn { mut outcome, places, waited, queue } = tokio::select! {
        biased;
        turn = turn => turn,
        () = reader.gone() => return None,
    };
    ctx.limits.places = places;
    if let Some(place) = queue {
        ctx.count_wait(charges, route, place, waited, outcome.dropped.map(|drop| drop.reason));
    }
    if waited > Micros(0) {
        ctx.limits.delay = waited;
        ctx.limits.outcome = RequestOutcome::Delayed;
        if let Some(place) = queue {
            outcome.got_place(&charges.charges, place);
        }
    }
    Some(outcome)
}

impl RequestContext {
    /// Counts a wait in the queue of the limit with this charge.
    fn count_wait(
        &self,
        charges: &RequestCharges<'_>,
        route: &Route,
        place: Fingerprint,
        waited: Micros,
        dropped: Option<DropReason>,
    ) {
        if let Some(used) = charges.index_of(place).and_then(|index| route.limits.get(index))
            && self.is_counted
        {
            self.plan.metrics.waited(used.limit, waited, dropped);
        }
    }
}
