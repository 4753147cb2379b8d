//! The steps of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use super::buffer_pool::Buffers;
use super::credentials::{refuse_credential, relay_answer, verify};
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
use crate::plan::auth::{CredentialFault, VerifiedCredential};
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{self, EarlyResponse, Resolution, RoutedRequest};
use crate::plan::seen_request::SeenRequest;
use crate::route::content::RequestContent;
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
    let verified = VerifiedCredential::unknown(now);
    let body = OnceCell::new();
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
    let findings = Findings { verified: &verified, body: &body, ahead, held: &held };
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

/// What is found out about a request while it is resolved.
#[derive(Clone, Copy)]
struct Findings<'p, 'r> {
    /// The result of verifying its credential.
    verified: &'p VerifiedCredential,
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
    let routed = match resolve(ctx, plan, head, peer, findings) {
        Ok(routed) => routed,
        Err(unresolved) => {
            let again = || resolve_again(ctx, plan, head, peer, reader, findings, unresolved);
            match boxed_cold(again).await {
                Ok(routed) => routed,
                Err(action) => return action,
            }
        }
    };
    let reader = &*reader;
    if !ctx.worker.shared.store.bans().is_empty()
        && let Some(ban) = banned(ctx, &routed.charges)
    {
        ctx.count_ban(&routed, ban.index);
        return RequestAction::refuse_banned(ctx, &routed, ban);
    }
    if let Some(refusal) = routed.charges.missing() {
        ctx.decided(&routed, &Outcome::default());
        return RequestAction::refuse(ctx, &routed, refusal, None);
    }
    let Some(outcome) = decide(ctx, &routed.charges, reader).await else { return RequestAction::GiveUp };
    if outcome.banned
        && let Some(ban) = banned_by_store(ctx, &routed.charges, &outcome)
    {
        if outcome.decisions.is_empty() {
            ctx.count_ban(&routed, ban.index);
        } else {
            ctx.decided(&routed, &outcome);
            ctx.name_ban(&routed, ban.index);
        }
        return RequestAction::refuse_banned(ctx, &routed, ban);
    }
    ctx.decided(&routed, &outcome);
    if outcome.unavailable {
        return RequestAction::Early(EarlyResponse::Reject(RejectReason::unavailable()));
    }
    let admission = routed.charges.decide(&outcome);
    ctx.list_policies(&routed.charges, &outcome, &admission);
    let Admission { sentence, tightest } = admission;
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
        RouteAction::Redirect(redirect) => FixedForm::Redirect(redirect, routed.target.into_owned()),
        RouteAction::Respond(response) => FixedForm::Respond(response),
        RouteAction::Forward(_) | RouteAction::Split(_) => {
            let delivery = ForwardRequest::new(&routed, tightest, since);
            return RequestAction::Forward(delivery, routed.target);
        }
    };
    RequestAction::Answer(Box::new(FixedAnswer { route, tightest, form }))
}

/// A request that is answered before any limit of its route is checked.
struct Unresolved<'p, 'r> {
    response: EarlyResponse,
    route: Option<&'p Route>,
    seen: Option<Box<SeenRequest<'r>>>,
}

/// Verifies the credential of a request, or reads its body, and resolves it again; or answers it before any limit of its
/// route is checked.
async fn resolve_again<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &'r RequestHead<'r>,
    peer: &'r ConnectionPeer,
    reader: &mut RequestReader,
    findings: &Findings<'p, 'r>,
    mut unresolved: Unresolved<'p, 'r>,
) -> Result<RoutedRequest<'p, 'r>, RequestAction<'p, 'r>> {
    let verified = findings.verified;
    if let Unresolved {
        response: EarlyResponse::Unverified(_) | EarlyResponse::Unread | EarlyResponse::Unauthenticated(_),
        route: Some(route),
        seen: seen @ Some(_),
    } = &mut unresolved
        && let Some(request) = seen.take()
    {
        match refuse_before_auth(ctx, plan, route, request) {
            ControlFlow::Continue(request) => *seen = Some(request),
            ControlFlow::Break(action) => return Err(action),
        }
    }
    loop {
        match unresolved {
            Unresolved {
                response: EarlyResponse::Unverified(auth),
                route: Some(route),
                seen: Some(seen),
            } if !verified.is_known() => {
                verify(ctx, plan, (auth, route), &seen, reader, verified).await?;
            }
            Unresolved { response: EarlyResponse::Unread, route: Some(route), .. }
                if findings.body.get().is_none() =>
            {
                let read = read_body(ctx, route, head, reader, findings).await;
                read.map_err(|reason| RequestAction::Early(EarlyResponse::Reject(reason)))?;
            }
            Unresolved {
                response: EarlyResponse::Unauthenticated(failure),
                route: Some(route),
                seen: Some(seen),
            } => {
                let action = match verified.answer() {
                    Some(answer) => {
                        relay_answer(ctx, plan, (failure.auth, route), answer, &seen, reader).await
                    }
                    None => refuse_credential(ctx, plan, failure, route, &seen, reader).await,
                };
                verified.end_turn();
                return Err(action);
            }
            Unresolved { response, .. } => return Err(RequestAction::Early(response)),
        }
        unresolved = match resolve(ctx, plan, head, peer, findings) {
            Ok(routed) => return Ok(routed),
            Err(unresolved) => unresolved,
        };
    }
}

/// Reads the body of a request whose limits count by it.
async fn read_body<'r>(
    ctx: &mut RequestContext,
    route: &Route,
    head: &RequestHead<'r>,
    reader: &mut RequestReader,
    findings: &Findings<'_, 'r>,
) -> Result<(), RejectReason> {
    match read_content(reader, head, findings.ahead, &route.json_pointers, findings.held).await {
        Ok((content, part)) => {
            let received = part.map(|ReadPart { begun, received }| {
                ctx.terms.turn_to_begun(begun);
                received
            });
            findings.body.get_or_init(|| Box::new(ReadBody { content, received }));
            Ok(())
        }
        Err(fault) => {
            // No byte can be read after it.
            ctx.terms = BodyOptions::default();
            ctx.form.keep = false;
            Err(RejectReason::body_lost(upload_fault(Some(fault))))
        }
    }
}

/// Resolves the request, and notes the data known then.
fn resolve<'p, 'r>(
    ctx: &mut RequestContext,
    plan: &'p WorkerPlan,
    head: &'r RequestHead<'r>,
    peer: &'r ConnectionPeer,
    findings: &Findings<'p, 'r>,
) -> Result<RoutedRequest<'p, 'r>, Unresolved<'p, 'r>> {
    let loop_mark = Some(&ctx.worker.shared.loop_mark);
    let resolution = resolve::resolve(
        plan,
        &plan.secret,
        loop_mark,
        head,
        peer.as_seen(),
        findings.verified,
        findings.body.get().map(|body| &body.content),
    );
    // A request whose credential had to be verified is resolved again.
    ctx.cors.clear();
    ctx.noted = NotedValues::of(plan, head, &resolution);
    // Its outcome is moved once, at the end: it is large enough that moving it costs measurably.
    let Resolution { client, ref host, route, ref outcome, .. } = resolution;
    peer.check_client(client, &plan.server.client, head.fields);
    ctx.identify(client.address, host);
    findings.held.set_network(client.network);
    if let Some((index, route)) = route {
        ctx.on_route(index, route);
        match (&route.cors, outcome) {
            (Some(cors), Err(EarlyResponse::Preflight)) => {
                cors::put_preflight(cors, head.fields, &mut ctx.cors)
            }
            (Some(cors), _) => cors::put_actual(cors, head.fields, &mut ctx.cors),
            (None, _) => {}
        }
    }
    if let Err(EarlyResponse::Reject(_) | EarlyResponse::Unauthenticated(_)) = outcome {
        ctx.sample_rejection(head, host);
    }
    ctx.authenticated(outcome);
    match resolution.outcome {
        Ok(routed) => Ok(routed),
        Err(response) => {
            Err(Unresolved { response, route: route.map(|(_, route)| route), seen: resolution.seen })
        }
    }
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
        EarlyResponse::Unverified(_) | EarlyResponse::Unread => {
            page.problem(response.status(), "the request is not resolved")
        }
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
