//! The steps of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use super::buffer_pool::Buffers;
use super::credentials::{Verified, refuse_credential, relay_answer, verify};
use super::decide::{OverLimitRequest, RequestAction, banned, banned_by_store, decide, refuse_before_auth};
use super::drain::drain;
use super::fixed_response::{self, FixedAnswer, FixedForm};
use super::forward_request::ForwardRequest;
use super::local_response_writer::OverLimit;
use super::noted_values::NotedValues;
use super::peer::ConnectionPeer;
use super::read_content::{ReadPart, read_content};
use super::request_body::BodyOptions;
use super::request_context::RequestContext;
use super::request_reader::{RequestReader, upload_fault};
use super::respond::{send, send_problem};
use super::session::{NextAction, Session};
use super::settlement::Settlement;
use super::undecided::{HeldBytes, UndecidedRequest};
use super::worker::WorkerPlan;
use super::{cors, forward};
use crate::auth::forward::ServiceAnswer;
use crate::boxed_cold::boxed_cold;
use crate::http1::request::{Body, RequestError, RequestHead};
use crate::limit::units::{Micros, Timestamp};
use crate::plan::Route;
use crate::plan::action::RouteAction;
use crate::plan::admission::{Admission, AdmissionDecision};
use crate::plan::auth::{AuthFailure, CallerIdentity, CredentialCheck, CredentialFault};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{self, EarlyResponse, LocatedRequest, RouteLookup, RoutedRequest};
use crate::route::content::RequestContent;
use crate::route::identity::Identity;
use crate::store::Outcome;
use crate::telemetry::metrics::RequestOutcome;

/// Serves the request with the head at the front of the buffer. The head was complete at `now`.
pub(crate) async fn answer(session: &mut Session, now: Timestamp) -> NextAction {
    let mut ctx = RequestContext::begin(&session.worker, &session.peer, now);
    let plan = Rc::clone(&ctx.plan);
    let Session { worker, reader, peer, buffers, may_keep, is_last, .. } = &mut *session;
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
    let (identity, body) = (OnceCell::new(), OnceCell::new());
    let ahead = inbound.get(length..).unwrap_or_default();
    let held = HeldBytes::default();
    let mut undecided = UndecidedRequest {
        worker,
        max_buffered: plan.server.max_buffered,
        held: &held,
        head: inbound.capacity(),
        stream: UndecidedRequest::stream_of(reader.source()),
        entry: None,
    };
    let findings = Findings { identity: &identity, body: &body, ahead, held: &held };
    // Left where it is written: it is large enough that moving it costs measurably.
    let mut action = None;
    {
        let mut judging = pin!(async {
            action = Some(judge(&mut ctx, &plan, head, peer, reader, &findings).await);
        });
        poll_fn(|context| undecided.poll_decided(judging.as_mut(), context)).await;
    }
    match action {
        None => {
            leave_body(inbound, length, body);
            let response = overloaded(&mut ctx);
            Box::pin(early(session, &mut ctx, &response)).await
        }
        Some(RequestAction::Forward(delivery, target)) => {
            message.clear();
            delivery.write_head(&mut ctx, head, target, peer, message);
            leave_body(inbound, length, body);
            forward::forward(session, &mut ctx, &delivery).await
        }
        Some(RequestAction::Answer(fixed)) => {
            leave_body(inbound, length, body);
            // Boxed: its state would be part of every connection's.
            Box::pin(fixed_response::answer(session, &mut ctx, &fixed)).await
        }
        Some(RequestAction::Relay(response)) => {
            leave_body(inbound, length, body);
            Box::pin(relay(session, &mut ctx, &response)).await
        }
        Some(RequestAction::Early(response)) => {
            leave_body(inbound, length, body);
            early(session, &mut ctx, &response).await
        }
        Some(RequestAction::Refuse(refused)) => {
            leave_body(inbound, length, body);
            over_limit(session, &mut ctx, &refused).await
        }
        Some(RequestAction::GiveUp) => NextAction::Drop,
    }
}

/// What is found out about a request before it is charged.
#[derive(Clone, Copy)]
struct Findings<'p, 'r> {
    /// What its credential says, once it was verified.
    identity: &'p OnceCell<Arc<Identity>>,
    /// Its body, once it was read.
    body: &'r OnceCell<Box<ReadBody>>,
    /// The bytes received behind its head.
    ahead: &'r [u8],
    /// What it holds meanwhile.
    held: &'r HeldBytes,
}

/// The body of a request, as keys see it.
#[derive(Debug)]
struct ReadBody {
    content: RequestContent,
    /// The bytes received after the part that was read; `None`: nothing was read.
    received: Option<BytesMut>,
}

/// Removes the head, so that the body, or the part of it that was not read yet, is at the front.
fn leave_body(inbound: &mut BytesMut, length: usize, body: OnceCell<Box<ReadBody>>) {
    inbound.advance(length);
    if let Some(received) = body.into_inner().and_then(|body| body.received) {
        *inbound = received;
    }
}

/// The request was evicted from the budget of undecided requests. A part of its body may have been read and dropped.
#[cold]
fn overloaded(ctx: &mut RequestContext) -> EarlyResponse {
    ctx.terms = BodyOptions::default();
    ctx.form.keep = false;
    EarlyResponse::Reject(RejectReason::overloaded())
}

/// Finds the route, checks the limits, and decides the action.
async fn judge<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &'r RequestHead<'r>,
    peer: &'r ConnectionPeer,
    reader: &mut RequestReader,
    findings: &Findings<'p, 'r>,
) -> RequestAction<'p, 'r> {
    let lookup = resolve::locate(plan, Some(&ctx.worker.shared.loop_mark), head, peer.as_seen());
    note(ctx, plan, head, peer, findings, &lookup);
    // It is large enough that moving it costs measurably: it is moved here, and by `assign`.
    let mut located = match lookup.outcome {
        Ok(located) => located,
        Err(unroutable) => return RequestAction::Early(unroutable.response),
    };
    let check = match &located.route.auth {
        Some(auth) => plan.check_credential(auth, &located.request()),
        None => CredentialCheck::Known(None),
    };
    let caller = match check {
        CredentialCheck::Known(consumer) if !located.route.reads_body => {
            CallerIdentity { consumer, granted: &[] }
        }
        check => {
            let (ctx, reader, located) = (&mut *ctx, &mut *reader, &mut located);
            match boxed_cold(move || learn(ctx, plan, head, reader, findings, located, check)).await {
                Ok(caller) => caller,
                Err(action) => return action,
            }
        }
    };
    ctx.authenticated(located.route, caller.consumer);
    let draw = draw(located.route);
    let mut routed = match located.assign(plan, &plan.secret, caller, draw) {
        Ok(routed) => routed,
        Err(unroutable) => {
            if let Some(seen) = &unroutable.seen {
                ctx.sample_rejection(head, seen.request().host);
            }
            return RequestAction::Early(unroutable.response);
        }
    };
    charge(ctx, &mut routed, reader).await
}

/// Checks the limits of a request, and decides the action.
async fn charge<'p, 'r>(
    ctx: &mut RequestContext,
    routed: &mut RoutedRequest<'p, 'r>,
    reader: &RequestReader,
) -> RequestAction<'p, 'r> {
    if !ctx.worker.shared.store.bans().is_empty()
        && let Some(ban) = banned(ctx, &routed.charges)
    {
        ctx.count_ban(routed, ban.index);
        return RequestAction::refuse_banned(ctx, routed, ban);
    }
    if let Some(refusal) = routed.charges.missing() {
        ctx.decided(routed, &Outcome::default());
        return RequestAction::refuse(ctx, routed, refusal, None);
    }
    let Some(outcome) = decide(ctx, &routed.charges, reader).await else { return RequestAction::GiveUp };
    if outcome.banned
        && let Some(ban) = banned_by_store(ctx, &routed.charges, &outcome)
    {
        if outcome.decisions.is_empty() {
            ctx.count_ban(routed, ban.index);
        } else {
            ctx.decided(routed, &outcome);
            ctx.name_ban(routed, ban.index);
        }
        return RequestAction::refuse_banned(ctx, routed, ban);
    }
    ctx.decided(routed, &outcome);
    if outcome.unavailable {
        return RequestAction::Early(EarlyResponse::Reject(RejectReason::unavailable()));
    }
    let admission = routed.charges.decide(&outcome);
    ctx.list_policies(&routed.charges, &outcome, &admission);
    let Admission { sentence, tightest } = admission;
    if let AdmissionDecision::Admit(_) = sentence {
        ctx.settlement = Settlement::begin(&ctx.worker, &ctx.plan, routed, &outcome, ctx.started);
    }
    let since = match sentence {
        AdmissionDecision::Refuse(refusal) => return RequestAction::refuse(ctx, routed, refusal, tightest),
        AdmissionDecision::Admit(delay) => {
            ctx.note(tightest.as_ref());
            if let Some(tightest) = &tightest {
                ctx.note_key(routed, tightest.limit);
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
        RouteAction::Redirect(redirect) => {
            FixedForm::Redirect(redirect, std::mem::take(&mut routed.target).into_owned())
        }
        RouteAction::Respond(response) => FixedForm::Respond(response),
        RouteAction::Forward(_) | RouteAction::Split(_) => {
            let delivery = ForwardRequest::new(routed, tightest, since);
            return RequestAction::Forward(delivery, std::mem::take(&mut routed.target));
        }
    };
    RequestAction::Answer(Box::new(FixedAnswer { route, tightest, form }))
}

/// The random number of a request: only one that is split needs it.
fn draw(route: &Route) -> u64 {
    match &route.action {
        RouteAction::Split(_) => fastrand::u64(..),
        RouteAction::Forward(_) | RouteAction::Redirect(_) | RouteAction::Respond(_) => 0,
    }
}

/// Verifies the credential of a request, and reads its body if limits count by it.
///
/// # Errors
///
/// It is answered before the limits of its route are checked.
async fn learn<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &RequestHead<'r>,
    reader: &mut RequestReader,
    findings: &Findings<'p, 'r>,
    located: &mut LocatedRequest<'p, 'r>,
    check: CredentialCheck<'p>,
) -> Result<CallerIdentity<'p>, RequestAction<'p, 'r>> {
    if let Some(action) = refuse_before_auth(ctx, plan, located) {
        return Err(action);
    }
    let caller = match check {
        CredentialCheck::Known(consumer) => CallerIdentity { consumer, granted: &[] },
        CredentialCheck::Refused(failure) => {
            ctx.sample_rejection(head, located.request().host);
            ctx.credential_unfit(failure);
            return Err(refuse_credential(ctx, plan, failure, located, reader).await);
        }
        CredentialCheck::Pending(auth) => match verify(ctx, plan, auth, located, reader).await? {
            Verified::Accepted(identity) => {
                let identity = &**findings.identity.get_or_init(|| identity);
                CallerIdentity { consumer: plan.verified(auth, identity), granted: &identity.fields }
            }
            Verified::Wrong(_turn) => {
                ctx.sample_rejection(head, located.request().host);
                let failure = AuthFailure { auth, fault: CredentialFault::Invalid };
                return Err(refuse_credential(ctx, plan, failure, located, reader).await);
            }
            Verified::Answered(answer) => {
                ctx.sample_rejection(head, located.request().host);
                return Err(relay_answer(ctx, plan, auth, answer, located, reader).await);
            }
        },
    };
    if located.route.reads_body {
        let read = read_body(ctx, located.route, head, reader, findings).await;
        let body = read.map_err(|reason| RequestAction::Early(EarlyResponse::Reject(reason)))?;
        located.set_content(&body.content);
    }
    Ok(caller)
}

/// Reads the body of a request whose limits count by it.
async fn read_body<'r>(
    ctx: &mut RequestContext,
    route: &Route,
    head: &RequestHead<'r>,
    reader: &mut RequestReader,
    findings: &Findings<'_, 'r>,
) -> Result<&'r ReadBody, RejectReason> {
    match read_content(reader, head, findings.ahead, &route.json_pointers, findings.held).await {
        Ok((content, part)) => {
            let received = part.map(|ReadPart { begun, received }| {
                ctx.terms.turn_to_begun(begun);
                received
            });
            Ok(findings.body.get_or_init(|| Box::new(ReadBody { content, received })))
        }
        Err(fault) => {
            // No byte can be read after it.
            ctx.terms = BodyOptions::default();
            ctx.form.keep = false;
            Err(RejectReason::body_lost(upload_fault(Some(fault))))
        }
    }
}

/// Notes the client, the host and the route of a request.
fn note(
    ctx: &mut RequestContext,
    plan: &WorkerPlan,
    head: &RequestHead<'_>,
    peer: &ConnectionPeer,
    findings: &Findings<'_, '_>,
    lookup: &RouteLookup<'_, '_>,
) {
    ctx.noted = NotedValues::of(plan, head, lookup);
    let RouteLookup { client, host, route, outcome } = lookup;
    let early = outcome.as_ref().err().map(|unroutable| &unroutable.response);
    peer.check_client(*client, &plan.server.client, head.fields);
    ctx.identify(client.address, host);
    findings.held.set_network(client.network);
    if let Some((index, route)) = *route {
        ctx.on_route(index, route);
        match (&route.cors, early) {
            (Some(cors), Some(EarlyResponse::Preflight)) => {
                cors::put_preflight(cors, head.fields, &mut ctx.cors)
            }
            (Some(cors), _) => cors::put_actual(cors, head.fields, &mut ctx.cors),
            (None, _) => {}
        }
    }
    if let Some(EarlyResponse::Reject(_)) = early {
        ctx.sample_rejection(head, host);
    }
    ctx.cut_credentials();
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
        EarlyResponse::Unauthenticated(failure) => {
            page.unauthenticated(response.status(), failure.fault.detail(), &challenges)
        }
    })
    .await
}

/// Sends the answer of a service that has refused the request.
async fn relay(session: &mut Session, ctx: &mut RequestContext, answer: &ServiceAnswer) -> NextAction {
    drain(session, ctx).await;
    ctx.answered(answer.status, Some(CredentialFault::Answered.error()));
    send(session, ctx, |page| page.relayed(answer)).await
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
    let listed = ctx.listed.take();
    let over = OverLimit { refusal, tightest: tightest.as_ref(), reject, which, listed: listed.as_deref() };
    ctx.answered(over.status(), None);
    send(session, ctx, |page| page.over_limit(&over)).await
}
