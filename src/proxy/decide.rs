//! The decision on a request: the store's, that of a ban, and the action that follows.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use super::fixed_response::FixedAnswer;
use super::forward_request::ForwardRequest;
use super::request_context::RequestContext;
use super::request_reader::RequestReader;
use super::worker::WorkerPlan;
use crate::auth::forward::ServiceAnswer;
use crate::boxed_cold::boxed_cold;
use crate::limit::units::Micros;
use crate::plan::Route;
use crate::plan::admission::{BanRefusal, BindingLimit, Refusal, RefusalCause, RequestCharges};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{EarlyResponse, LocatedRequest, RoutedRequest};
use crate::store::{BanningRequest, InTurn, Outcome};
use crate::telemetry::metrics::RequestOutcome;

/// The action for a request.
pub(super) enum RequestAction<'p, 'h> {
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
    /// The client left during its delay: its slot is unused.
    GiveUp,
}

/// A limit's refusal.
pub(super) struct OverLimitRequest<'p> {
    pub(super) refusal: Refusal<'p>,
    /// The limit that the rate-limit headers describe.
    pub(super) tightest: Option<BindingLimit<'p>>,
    pub(super) route: &'p Route,
}

impl<'p> RequestAction<'p, '_> {
    /// A limit refuses the request.
    pub(super) fn refuse(
        ctx: &mut RequestContext,
        routed: &RoutedRequest<'p, '_>,
        refusal: Refusal<'p>,
        tightest: Option<BindingLimit<'p>>,
    ) -> Self {
        let refusal = refusal.spread(|most| fastrand::u64(0..=most));
        ctx.refused(routed, &refusal, tightest.as_ref());
        match refusal.why {
            RefusalCause::Unreadable(fault) => {
                Self::Early(EarlyResponse::Reject(RejectReason::unreadable_body(fault)))
            }
            RefusalCause::Repeated => {
                Self::Early(EarlyResponse::Reject(RejectReason::repeated_key(refusal.limit)))
            }
            _ => Self::Refuse(OverLimitRequest { refusal, tightest, route: routed.route }),
        }
    }

    /// The same because of a ban.
    pub(super) fn refuse_banned(
        ctx: &mut RequestContext,
        routed: &RoutedRequest<'p, '_>,
        BanRefusal { refusal, tightest, .. }: BanRefusal<'p>,
    ) -> Self {
        ctx.list_binding(&tightest, refusal.retry_after());
        Self::refuse(ctx, routed, refusal, Some(tightest))
    }
}

/// The refusal of a request because of a ban, if there is one. A ban that this request begins counts from the decision,
/// which comes after the wait for a place.
#[cold]
pub(super) fn banned<'p>(ctx: &RequestContext, charges: &RequestCharges<'p>) -> Option<BanRefusal<'p>> {
    let now = ctx.started.plus(ctx.delay);
    let refusal = charges.banned(ctx.worker.shared.store.bans(), now)?;
    Some(refusal.not_before(ctx.plan.counters.known_wait(&charges.charges, now)))
}

/// Refuses a request because of a ban before its credential is looked at or its body is read: a client that is banned
/// causes no such work. Counters that need either are not looked at.
pub(super) fn refuse_before_auth<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    located: &LocatedRequest<'p, 'r>,
) -> Option<RequestAction<'p, 'r>> {
    if ctx.worker.shared.store.bans().is_empty() {
        return None;
    }
    let charges = RequestCharges::early(plan, located.route, &located.request(), &plan.secret);
    let ban = banned(ctx, &charges)?;
    let routed = located.with_early_charges(charges);
    ctx.count_ban(&routed, ban.index);
    Some(RequestAction::refuse_banned(ctx, &routed, ban))
}

/// The refusal because of a ban that the store has told of.
#[cold]
pub(super) fn banned_by_store<'p>(
    ctx: &RequestContext,
    charges: &RequestCharges<'p>,
    outcome: &Outcome,
) -> Option<BanRefusal<'p>> {
    let unknown = || charges.banned_until_known(ctx.started.plus(ctx.delay));
    banned(ctx, charges).or_else(|| if outcome.decisions.is_empty() { unknown() } else { None })
}

/// Asks the store, with the time at which the request head was complete. Without charges, the store is not asked.
/// `None`: the client left while the request waited for a place.
pub(super) async fn decide(
    ctx: &mut RequestContext,
    assessment: &RequestCharges<'_>,
    reader: &RequestReader,
) -> Option<Outcome> {
    let charges = &assessment.charges;
    if charges.is_empty() {
        return Some(Outcome::default());
    }
    if assessment.takes_places() {
        return boxed_cold(|| take_turn(ctx, assessment, reader)).await;
    }
    if assessment.may_ban() {
        let bans = assessment.bans();
        let request = BanningRequest { charges, bans: &bans };
        return Some(boxed_cold(|| ctx.plan.counters.decide_banning(request, ctx.started)).await);
    }
    Some(ctx.plan.counters.decide(charges, ctx.started).await)
}

/// The same under concurrency limits: the request may wait for a place.
async fn take_turn(
    ctx: &mut RequestContext,
    assessment: &RequestCharges<'_>,
    reader: &RequestReader,
) -> Option<Outcome> {
    let bans = assessment.bans();
    let request = BanningRequest { charges: &assessment.charges, bans: &bans };
    let (plan, shared) = (Rc::clone(&ctx.plan), Arc::clone(&ctx.worker.shared));
    let turn = plan.counters.admit(request, ctx.started, || shared.clock.now());
    let InTurn { outcome, places, waited } = tokio::select! {
        biased;
        turn = turn => turn,
        () = reader.gone() => return None,
    };
    ctx.places = places;
    if waited > Micros(0) {
        ctx.delay = waited;
        ctx.fate = RequestOutcome::Delayed;
    }
    Some(outcome)
}
