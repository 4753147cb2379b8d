//! The steps of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;

use super::buffer_pool::Buffers;
use super::drain::drain;
use super::fixed_response::{self, FixedAnswer, FixedForm};
use super::forward_request::ForwardRequest;
use super::local_response_writer::OverLimit;
use super::noted_values::NotedValues;
use super::peer::ConnectionPeer;
use super::request_context::RequestContext;
use super::request_reader::RequestReader;
use super::respond::{send, send_problem};
use super::session::{NextAction, Session};
use super::settlement::Settlement;
use super::worker::WorkerPlan;
use super::{cors, forward};
use crate::auth::jwt::TokenFault;
use crate::auth::tokens::TokenVerification;
use crate::auth::verification_pool::QueueFull;
use crate::boxed_cold::boxed_cold;
use crate::clock::now;
use crate::http1::request::{Body, RequestError, RequestHead};
use crate::limit::units::{Micros, Timestamp};
use crate::plan::Route;
use crate::plan::action::RouteAction;
use crate::plan::admission::{
    Admission, AdmissionDecision, BanRefusal, BindingLimit, Refusal, RefusalCause, RequestCharges,
};
use crate::plan::auth::{AuthFailure, AuthIndex, CredentialFault, VerifiedCredential};
use crate::plan::resolve::{self, EarlyResponse, RejectReason, Resolution, RoutedRequest, SeenRequest};
use crate::route::identity::Identity;
use crate::store::{BanningRequest, InTurn, Outcome};
use crate::telemetry::metrics::RequestOutcome;

/// The action for a request.
enum RequestAction<'p, 'h> {
    /// Forward to the backend, with this path and query.
    Forward(ForwardRequest<'p>, Cow<'h, str>),
    /// Answer it: the route has no backend.
    Answer(Box<FixedAnswer<'p>>),
    /// Respond before any limit is checked.
    Early(EarlyResponse),
    /// A limit refuses.
    Refuse(OverLimitRequest<'p>),
    /// The client left during its delay: its slot is unused.
    GiveUp,
}

/// A limit's refusal.
struct OverLimitRequest<'p> {
    refusal: Refusal<'p>,
    /// The limit that the rate-limit headers describe.
    tightest: Option<BindingLimit<'p>>,
    route: &'p Route,
}

/// Serves the request with the head at the front of the buffer. The head was complete at `now`.
pub(crate) async fn answer(session: &mut Session, now: Timestamp) -> NextAction {
    let mut ctx = RequestContext::begin(&session.worker, &session.peer, now);
    let plan = Rc::clone(&ctx.plan);
    let Session { reader, peer, buffers, may_keep, is_last, .. } = &mut *session;
    let Buffers { inbound, spans, message, .. } = &mut **buffers.get_or_insert_default();
    // Parsed in place: it is large enough that moving it costs measurably.
    let parsed = RequestHead::parse(inbound, spans);
    let head = match &parsed {
        Ok(head) => head,
        &Err(fault) => return refuse(session, &mut ctx, fault).await,
    };
    ctx.take_head(peer, head, *may_keep);
    ctx.open_record(peer, Some(head));
    let length = head.length;
    *is_last = !head.keep_alive && head.body == Body::EMPTY;
    let verified = VerifiedCredential::unknown(now);
    match judge(&mut ctx, &plan, head, peer, reader, &verified).await {
        RequestAction::Forward(delivery, target) => {
            message.clear();
            delivery.write_head(&mut ctx, head, target, peer, message);
            inbound.advance(length);
            forward::forward(session, &mut ctx, &delivery).await
        }
        RequestAction::Answer(fixed) => {
            inbound.advance(length);
            // Boxed: its state would be part of every connection's.
            Box::pin(fixed_response::answer(session, &mut ctx, &fixed)).await
        }
        RequestAction::Early(response) => {
            inbound.advance(length);
            early(session, &mut ctx, &response).await
        }
        RequestAction::Refuse(refused) => {
            inbound.advance(length);
            over_limit(session, &mut ctx, &refused).await
        }
        RequestAction::GiveUp => NextAction::Drop,
    }
}

/// Finds the route, checks the limits, and decides the action.
async fn judge<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &'r RequestHead<'r>,
    peer: &'r ConnectionPeer,
    reader: &RequestReader,
    verified: &'p VerifiedCredential,
) -> RequestAction<'p, 'r> {
    let mut resolved = resolve(ctx, plan, head, peer, verified);
    if let Err(Unresolved { response: EarlyResponse::Unverified(auth), seen: Some(seen), .. }) = resolved {
        resolved = match boxed_cold(|| verify(ctx, plan, auth, &seen, verified)).await {
            Ok(()) => resolve(ctx, plan, head, peer, verified),
            Err(reason) => return RequestAction::Early(EarlyResponse::Reject(reason)),
        };
    }
    let routed = match resolved {
        Ok(routed) => routed,
        Err(unresolved) => return boxed_cold(|| refuse_unresolved(ctx, plan, unresolved, reader)).await,
    };
    if !ctx.worker.shared.store.bans().is_empty()
        && let Some(BanRefusal { index, refusal, tightest }) = banned(ctx, &routed.charges)
    {
        ctx.count_ban(&routed, index);
        return RequestAction::refuse(ctx, &routed, refusal, Some(tightest));
    }
    if let Some(refusal) = routed.charges.missing() {
        ctx.decided(&routed, &Outcome::default());
        return RequestAction::refuse(ctx, &routed, refusal, None);
    }
    let Some(outcome) = decide(ctx, &routed.charges, reader).await else { return RequestAction::GiveUp };
    if outcome.banned
        && let Some(BanRefusal { index, refusal, tightest }) = banned_by_store(ctx, &routed.charges, &outcome)
    {
        if outcome.decisions.is_empty() {
            ctx.count_ban(&routed, index);
        } else {
            ctx.decided(&routed, &outcome);
            ctx.name_ban(&routed, index);
        }
        return RequestAction::refuse(ctx, &routed, refusal, Some(tightest));
    }
    ctx.decided(&routed, &outcome);
    if outcome.unavailable {
        return RequestAction::Early(EarlyResponse::Reject(RejectReason::unavailable()));
    }
    let Admission { sentence, tightest } = routed.charges.decide(&outcome);
    if let AdmissionDecision::Admit(_) = sentence {
        ctx.settlement = Settlement::begin(&ctx.worker, &ctx.plan, &routed, &outcome, ctx.started);
    }
    let since = match sentence {
        AdmissionDecision::Refuse(refusal) => return RequestAction::refuse(ctx, &routed, refusal, tightest),
        AdmissionDecision::Admit(delay) => {
            ctx.note(tightest.as_ref());
            if let Some(tightest) = &tightest {
                ctx.note_key(&routed, tightest.limit);
            }
            match delay {
                Micros(0) if ctx.delay == Micros(0) => ctx.started,
                Micros(0) => ctx.worker.shared.clock.now(),
                delay if wait(ctx, delay, reader).await => ctx.worker.shared.clock.now(),
                _ => return RequestAction::GiveUp,
            }
        }
    };
    let route = routed.route;
    let form = match &route.action {
        &RouteAction::Forward(upstream) => {
            let delivery = ForwardRequest::new(&routed, upstream, tightest, since);
            return RequestAction::Forward(delivery, routed.target);
        }
        RouteAction::Redirect(redirect) => FixedForm::Redirect(redirect, routed.target.into_owned()),
        RouteAction::Respond(response) => FixedForm::Respond(response),
    };
    RequestAction::Answer(Box::new(FixedAnswer { route, tightest, form }))
}

impl<'p> RequestAction<'p, '_> {
    /// A limit refuses the request.
    fn refuse(
        ctx: &mut RequestContext,
        routed: &RoutedRequest<'p, '_>,
        refusal: Refusal<'p>,
        tightest: Option<BindingLimit<'p>>,
    ) -> Self {
        ctx.refused(routed, &refusal, tightest.as_ref());
        match refusal.why {
            RefusalCause::Repeated => {
                Self::Early(EarlyResponse::Reject(RejectReason::repeated_key(refusal.limit)))
            }
            _ => Self::Refuse(OverLimitRequest { refusal, tightest, route: routed.route }),
        }
    }
}

/// A request that is answered before any limit of its route is checked.
struct Unresolved<'p, 'r> {
    response: EarlyResponse,
    route: Option<&'p Route>,
    seen: Option<Box<SeenRequest<'r>>>,
}

/// Refuses a request that is answered before any limit of its route is checked.
async fn refuse_unresolved<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    unresolved: Unresolved<'p, '_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    match unresolved {
        Unresolved {
            response: EarlyResponse::Unauthenticated(failure),
            route: Some(route),
            seen: Some(seen),
        } => refuse_credential(ctx, plan, failure, route, &seen, reader).await,
        Unresolved { response, .. } => RequestAction::Early(response),
    }
}

/// Verifies the credential of a request for the auth at `index`, away from the worker unless that takes little time. A
/// token whose key is unknown waits for the issuer's newest keys.
async fn verify(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    index: AuthIndex,
    seen: &SeenRequest<'_>,
    verified: &VerifiedCredential,
) -> Result<(), RejectReason> {
    let prepare = || plan.verification(index, &seen.request(), verified.now());
    let Some(mut verification) = prepare() else { return Err(RejectReason::unverified()) };
    let issuer = plan.auth(index).tokens().and_then(|tokens| tokens.issuer());
    if let Some(issuer) = issuer
        && verification.lacks_keys()
    {
        issuer.refresh(now()).await;
        verification = prepare().filter(|newer| !newer.lacks_keys()).ok_or_else(RejectReason::unverified)?;
    }
    let mut result = run(ctx, verification).await?;
    if let (Err(TokenFault::UnknownKey), Some(issuer)) = (&result, issuer)
        && issuer.refresh(now()).await
        && let Some(newer) = prepare()
    {
        result = run(ctx, newer).await?;
    }
    verified.set(index, result);
    Ok(())
}

async fn run(
    ctx: &RequestContext,
    verification: TokenVerification,
) -> Result<Result<Arc<Identity>, TokenFault>, RejectReason> {
    if verification.is_quick() {
        return Ok(verification.run());
    }
    let verified = ctx.worker.shared.verification.run(move || verification.run()).await;
    verified.map_err(|QueueFull| RejectReason::unverified())
}

/// Charges a wrong credential to the limit that bounds them: a request with one gets 401, or 429 once the limit is used
/// up.
async fn refuse_credential<'p>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    failure: AuthFailure,
    route: &'p Route,
    seen: &SeenRequest<'_>,
    reader: &RequestReader,
) -> RequestAction<'p, 'static> {
    let request = seen.request();
    let mut refused = None;
    if let Some(charges) = plan.failure_charges(failure, route, &request, &plan.secret) {
        refused = match banned(ctx, &charges) {
            Some(BanRefusal { refusal, tightest, .. }) => Some((refusal, Some(tightest))),
            None => {
                let Some(outcome) = decide(ctx, &charges, reader).await else { return RequestAction::GiveUp };
                if outcome.unavailable {
                    return RequestAction::Early(EarlyResponse::Reject(RejectReason::unavailable()));
                }
                let ban = outcome.banned.then(|| banned_by_store(ctx, &charges, &outcome)).flatten();
                let Admission { sentence, tightest } = charges.decide(&outcome);
                match (ban, sentence) {
                    (Some(BanRefusal { refusal, tightest, .. }), _) => Some((refusal, Some(tightest))),
                    (None, AdmissionDecision::Refuse(refusal)) => Some((refusal, tightest)),
                    (None, AdmissionDecision::Admit(_)) => None,
                }
            }
        };
        ctx.count_failure(failure, &charges, &request, refused.is_some());
    }
    if failure.fault == CredentialFault::Invalid {
        ctx.credential_refused(
            failure,
            refused.as_ref().map(|(refusal, tightest)| (refusal, tightest.as_ref())),
        );
    }
    match refused {
        None => RequestAction::Early(EarlyResponse::Unauthenticated(failure)),
        Some((refusal, tightest)) => RequestAction::Refuse(OverLimitRequest { refusal, tightest, route }),
    }
}

/// Resolves the request, and notes the data known then.
fn resolve<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &'r RequestHead<'r>,
    peer: &'r ConnectionPeer,
    verified: &'p VerifiedCredential,
) -> Result<RoutedRequest<'p, 'r>, Unresolved<'p, 'r>> {
    let loop_mark = Some(&ctx.worker.shared.loop_mark);
    let resolution = resolve::resolve(plan, &plan.secret, loop_mark, head, peer.as_seen(), verified);
    if let Err(response @ EarlyResponse::Unverified(_)) = resolution.outcome {
        // It is resolved again, and noted then.
        return Err(Unresolved { response, route: None, seen: resolution.seen });
    }
    ctx.noted = NotedValues::of(plan, head, &resolution);
    let Resolution { client, host, route, seen, outcome } = resolution;
    peer.check_client(client, &plan.server.client, head.fields);
    ctx.identify(client.address, &host);
    if let Some((index, route)) = route {
        ctx.on_route(index, route);
        match (&route.cors, &outcome) {
            (Some(cors), Err(EarlyResponse::Preflight)) => {
                cors::put_preflight(cors, head.fields, &mut ctx.cors)
            }
            (Some(cors), _) => cors::put_actual(cors, head.fields, &mut ctx.cors),
            (None, _) => {}
        }
    }
    if let Err(EarlyResponse::Reject(_) | EarlyResponse::Unauthenticated(_)) = outcome {
        ctx.sample_rejection(head, &host);
    }
    ctx.authenticated(&outcome);
    outcome.map_err(|response| Unresolved { response, route: route.map(|(_, route)| route), seen })
}

/// The refusal of a request because of a ban, if there is one. A ban that this request begins counts from the decision,
/// which comes after the wait for a place.
#[cold]
fn banned<'p>(ctx: &RequestContext, charges: &RequestCharges<'p>) -> Option<BanRefusal<'p>> {
    let now = ctx.started.plus(ctx.delay);
    let refusal = charges.banned(ctx.worker.shared.store.bans(), now)?;
    Some(refusal.not_before(ctx.plan.counters.known_wait(&charges.charges, now)))
}

/// The refusal because of a ban that the store has told of.
#[cold]
fn banned_by_store<'p>(
    ctx: &RequestContext,
    charges: &RequestCharges<'p>,
    outcome: &Outcome,
) -> Option<BanRefusal<'p>> {
    let unknown = || charges.banned_until_known(ctx.started.plus(ctx.delay));
    banned(ctx, charges).or_else(|| if outcome.decisions.is_empty() { unknown() } else { None })
}

/// Asks the store, with the time at which the request head was complete. Without charges, the store is not asked.
/// `None`: the client left while the request waited for a place.
async fn decide(
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

/// Waits for the request's delay. False if the client left meanwhile.
async fn wait(ctx: &mut RequestContext, delay: Micros, reader: &RequestReader) -> bool {
    ctx.delay = Micros(ctx.delay.0 + delay.0);
    ctx.trace_delay(delay);
    tokio::select! {
        biased;
        () = reader.gone() => return false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => {}
    }
    ctx.fate = RequestOutcome::Delayed;
    true
}

/// Responds to bytes that are no request head. No bytes can be read after them.
pub(crate) async fn refuse_unread(session: &mut Session, fault: RequestError) -> NextAction {
    let now = session.worker.shared.clock.now();
    let mut ctx = RequestContext::begin(&session.worker, &session.peer, now);
    refuse(session, &mut ctx, fault).await
}

async fn refuse(session: &mut Session, ctx: &mut RequestContext, fault: RequestError) -> NextAction {
    ctx.open_record(&session.peer, None);
    ctx.client = Some(session.peer.address);
    ctx.form.to_head = session.buffers.as_ref().is_some_and(|buffers| buffers.inbound.starts_with(b"HEAD "));
    send_problem(session, ctx, (fault.status(), fault.reason(), fault.reason())).await
}

/// Responds to a request that is neither charged nor forwarded.
async fn early(session: &mut Session, ctx: &mut RequestContext, response: &EarlyResponse) -> NextAction {
    drain(session, ctx).await;
    ctx.answered(response.status(), response.error());
    let challenges = match response {
        EarlyResponse::Unauthenticated(failure) => ctx.challenges(*failure),
        _ => String::new(),
    };
    send(session, ctx, |page| match response {
        EarlyResponse::Preflight => page.preflight(),
        EarlyResponse::Options => page.options(),
        EarlyResponse::Redirect(location) => page.redirect(location),
        EarlyResponse::Reject(reason) => page.problem(reason.status, &reason.detail),
        EarlyResponse::Unverified(_) => page.problem(response.status(), "the credential is not verified"),
        EarlyResponse::Unauthenticated(failure) => {
            page.unauthenticated(response.status(), failure.fault.detail(), &challenges)
        }
    })
    .await
}

async fn over_limit(
    session: &mut Session,
    ctx: &mut RequestContext,
    refused: &OverLimitRequest<'_>,
) -> NextAction {
    let OverLimitRequest { refusal, tightest, route } = refused;
    drain(session, ctx).await;
    let reject = route.reject_of(refusal.limit);
    let which = ctx.plan.server.ratelimit_headers;
    let over = OverLimit { refusal, tightest: tightest.as_ref(), reject, which };
    ctx.answered(over.status(), None);
    send(session, ctx, |page| page.over_limit(&over)).await
}
