//! The steps of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.
//!
//! The order of the steps is that of [`plan::decision`](crate::plan::decision), which says what it needs next. This room
//! gets it, with async: it asks the store, verifies a credential or reads a body. For example, a route with a limit by a
//! field of JSON reads the body first, which counts towards `max_buffered` while it waits, and forwards the bytes that it
//! has read.

mod acme_challenge;
pub(super) mod credentials;
pub(super) mod pending_request;
pub(super) mod read_content;
mod read_request;
pub(super) mod request_action;
pub(super) mod undecided;

use std::cell::OnceCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};

use super::answer::cors;
use super::answer::drain::drain;
use super::answer::fixed_response::{self, FixedAnswer, FixedForm};
use super::answer::local_response_writer::OverLimit;
use super::answer::next_action::NextAction;
use super::answer::respond::{send, send_problem};
use super::answer::usage;
use super::forward;
use super::forward::exchange_deadline::ExchangeDeadline;
use super::forward::forward_request::ForwardRequest;
use super::forward::mirror::RequestCopy;
use super::record::noted_values::NotedValues;
use super::record::request_context::RequestContext;
use super::session::Session;
use super::session::request_reader::RequestReader;
use super::session::response_writer::ResponseWriter;
use super::worker::WorkerPlan;
use super::worker::buffer_pool::{Buffers, LastHead};
use crate::auth::forward::ServiceAnswer;
use crate::auth::password_lanes::LaneTurn;
use crate::boxed_cold::boxed_cold;
use crate::http1::request::{Body, RequestError};
use crate::limit::units::{Micros, Timestamp};
use crate::plan::Route;
use crate::plan::action::RouteAction;
use crate::plan::admission::RefusalCause;
use crate::plan::auth::{AuthFailure, CallerIdentity, CredentialFault};
use crate::plan::decision::{Need, RequestDecision, RequestVerdict};
use crate::plan::early_response::EarlyResponse;
use crate::plan::reject_reason::RejectReason;
use crate::plan::resolve::{self, RouteLookup, RoutedRequest};
use crate::plan::seen_request::SeenRequest;
use crate::route::content::RequestContent;
use crate::store::{Outcome, StoreRequest};
use crate::telemetry::metrics::RequestOutcome;
use credentials::{Verified, verify};
use pending_request::{AskedFor, PendingRequest, ReadBody};
use read_request::{read_for_route, read_route_body};
use request_action::{OverLimitRequest, RequestAction, decide_otherwise};
use undecided::{HeldBytes, UndecidedRequest, WaitFailure};

/// Serves the request with the head at the front of the buffer. The head was complete at `now`.
pub(crate) async fn answer(session: &mut Session, now: Timestamp) -> NextAction {
    let mut ctx = RequestContext::begin(&session.worker, &session.peer, now);
    let plan = Rc::clone(&ctx.plan);
    let Session { worker, reader, writer, peer, buffers, may_keep, is_last, .. } = &mut *session;
    let Buffers { inbound, head_parser, last_head, message, outbound, .. } =
        &mut **buffers.get_or_insert_default();
    // Parsed in place: it is large enough that moving it costs measurably.
    let mut parsed = head_parser.parse(inbound);
    let head = match &mut parsed {
        Ok(head) => head,
        &mut Err(fault) => return refuse(session, &mut ctx, fault).await,
    };
    head.body = reader.source().body(head.body);
    let head = &*head;
    last_head.set(last_head.take().filter(|_| head.is_repeated));
    ctx.take_head(peer, head, *may_keep);
    ctx.open_record(peer, Some(head));
    *is_last = !head.keep_alive && head.body == Body::EMPTY;
    let (length, body, held) = (head.length, OnceCell::new(), HeldBytes::default());
    let ahead = inbound.get(head.length..).unwrap_or_default();
    let max_buffered = plan.server.max_buffered;
    let mut undecided =
        UndecidedRequest::new(worker, max_buffered, &held, inbound.capacity(), reader.source());
    let (plan, identity, held) = (&*plan, &OnceCell::new(), &held);
    let asked = None;
    let pending = PendingRequest { plan, peer, head, last_head, identity, body: &body, ahead, held, asked };
    // Left where they are written: they are large enough that moving them costs measurably.
    let (mut seen, mut action) = (None, None);
    let waited = {
        let mut deciding = pin!(async {
            action = Some(decide_request(&mut ctx, reader, &pending, &mut seen).await);
        });
        let mut held = (&mut *writer, &mut *outbound);
        poll_fn(|context| undecided.poll_decided(deciding.as_mut(), &mut held, context)).await
    };
    // A further refusal joins the responses that are held back. What may take time does not delay them.
    let is_prompt =
        matches!(action, Some(RequestAction::Refuse(_))) && ctx.body_options.body() == Body::EMPTY;
    if !outbound.is_empty() && !is_prompt && !send_held(writer, outbound).await {
        return NextAction::Drop;
    }
    match action {
        None => {
            leave_body(inbound, length, body);
            let response = waited.err().unwrap_or(WaitFailure::Evicted).response(&mut ctx);
            Box::pin(early(session, &mut ctx, &response)).await
        }
        Some(RequestAction::Forward(forward_request, target)) => {
            message.clear();
            forward_request.write_head(&mut ctx, head, target, peer, message);
            leave_body(inbound, length, body);
            forward::forward(session, &mut ctx, &forward_request).await
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
            over_limit(session, &mut ctx, &refused, false).await
        }
        Some(RequestAction::GiveUp) => NextAction::Drop,
    }
}

/// Sends the responses that are held back. False if the client is gone, or accepts nothing.
async fn send_held(writer: &mut ResponseWriter, held: &mut BytesMut) -> bool {
    boxed_cold(|| poll_fn(|context| writer.poll_held(context, held))).await.is_ok()
}

/// Removes the head, so that the body, or the part of it that was not read yet, is at the front.
fn leave_body(inbound: &mut BytesMut, length: usize, body: OnceCell<Box<ReadBody>>) {
    inbound.advance(length);
    if let Some(received) = body.into_inner().and_then(|body| body.received) {
        *inbound = received;
    }
}

/// Finds the route, and drives the decision to its end.
pub(super) async fn decide_request<'p, 'r>(
    ctx: &mut RequestContext,
    reader: &mut RequestReader,
    pending: &PendingRequest<'p, 'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RequestAction<'p, 'r> {
    let plan = pending.plan;
    if let Some(text) = acme_challenge::answer(ctx, pending) {
        return RequestAction::Early(EarlyResponse::KeyAuthorization(text));
    }
    if !plan.body_pointers().is_empty()
        && let Err(reason) = boxed_cold(|| read_for_route(ctx, reader, pending)).await
    {
        return RequestAction::Early(reason.into());
    }
    let lookup = locate(ctx, pending, seen);
    note(ctx, pending, &lookup);
    let located = match lookup.outcome {
        Ok(located) => located,
        Err(unroutable) => return RequestAction::Early(unroutable.response),
    };
    let draw = draw(located.route);
    let mut decision = RequestDecision::new(plan, &plan.secret, located, draw);
    if pending.asked.is_some() {
        decision = decision.of_another_proxy();
    }
    let mut learned = Learned::default();
    let mut need = decision.begin(plan.counters.known(ctx.started), ctx);
    loop {
        need = match need {
            Need::Store if pending.asked.is_some_and(|asked| asked.peeks) => {
                let looked = boxed_cold(|| look(ctx, plan, &decision)).await;
                decision.decided(&looked, plan.counters.known(ctx.started), ctx)
            }
            Need::Store if decision.request().charges.is_plain() => {
                let request = StoreRequest::of(&decision.request().charges.charges);
                let outcome = plan.counters.decide(request, ctx.started).await;
                decision.decided(&outcome, plan.counters.known(ctx.started), ctx)
            }
            Need::Store => {
                let RoutedRequest { charges, route, .. } = decision.request();
                match boxed_cold(|| decide_otherwise(ctx, charges, route, reader)).await {
                    Some(outcome) => decision.decided(
                        &outcome,
                        plan.counters.known(ctx.started.plus(ctx.limits.delay)),
                        ctx,
                    ),
                    None => return RequestAction::GiveUp,
                }
            }
            Need::Done => return act(ctx, &mut decision, learned.answer, reader).await,
            need => {
                let (ctx, decision, learned) = (&mut *ctx, &mut decision, &mut learned);
                let reader = &mut *reader;
                match boxed_cold(move || learn(ctx, reader, pending, decision, learned, need)).await {
                    Some(need) => need,
                    None => return RequestAction::GiveUp,
                }
            }
        };
    }
}

/// Finds the route: that of the head before it if the two are equal.
#[inline]
fn locate<'p, 'r>(
    ctx: &RequestContext,
    &PendingRequest { plan, peer, head, last_head, body, asked, .. }: &PendingRequest<'p, 'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> RouteLookup<'p, 'r> {
    if let Some(AskedFor { client, secure, .. }) = asked {
        return resolve::locate_asked(plan, head, (client, secure), seen);
    }
    if let Some(read) = body.get() {
        let loop_mark = Some(&ctx.worker.shared.loop_mark);
        return resolve::locate_by_body(plan, loop_mark, (head, &read.content), peer.as_seen(), seen);
    }
    let is_known = |last: &LastHead| last.plan == plan.number && !plan.table.reads_connection();
    let last = last_head.get().filter(is_known).map(|last| last.routed);
    let loop_mark = Some(&ctx.worker.shared.loop_mark);
    let lookup = resolve::locate_again(plan, loop_mark, head, peer.as_seen(), last, seen);
    if last.is_none() {
        last_head.set(lookup.routed_head().map(|routed| LastHead { plan: plan.number, routed }));
    }
    lookup
}

/// What is learned on the way, and is needed at the end of the decision.
#[derive(Default)]
struct Learned {
    /// The next password of the client is checked once this one was charged.
    turn: Option<LaneTurn>,
    /// The service has refused the request with this answer.
    answer: Option<Arc<ServiceAnswer>>,
}

/// What the store would decide, without charging.
async fn look(ctx: &RequestContext, plan: &WorkerPlan, decision: &RequestDecision<'_, '_>) -> Outcome {
    let charges = &decision.request().charges;
    plan.counters.look(&charges.charges, ctx.started).await
}

/// Verifies the credential of a request, or reads its body. `None`: the client has left meanwhile.
async fn learn<'p, 'r>(
    ctx: &mut RequestContext,
    reader: &mut RequestReader,
    pending: &PendingRequest<'p, 'r>,
    decision: &mut RequestDecision<'p, 'r>,
    learned: &mut Learned,
    need: Need,
) -> Option<Need> {
    let plan = pending.plan;
    Some(match need {
        Need::Credential(auth) => match verify(ctx, plan, auth, decision, reader).await {
            Err(need) => need,
            Ok(Verified::ClientGone) => return None,
            Ok(Verified::Accepted(identity)) => {
                let identity = &**pending.identity.get_or_init(|| identity);
                let consumer = plan.verified(auth, identity);
                let caller = CallerIdentity { consumer, granted: &identity.fields };
                decision.accepted(caller, plan.counters.known(ctx.started), ctx)
            }
            Ok(Verified::Wrong(turn)) => {
                learned.turn = turn;
                let failure = AuthFailure { auth, fault: CredentialFault::Invalid };
                decision.refused(failure, plan.counters.known(ctx.started), ctx)
            }
            Ok(Verified::Answered(answer)) => {
                let refuses = answer.refuses_credential;
                learned.answer = Some(answer);
                decision.answered(auth, refuses, plan.counters.known(ctx.started), ctx)
            }
        },
        // The body stays with the proxy that asks.
        Need::Body if pending.asked.is_some() => {
            decision.read(&RequestContent::Unknown, plan.counters.known(ctx.started), ctx)
        }
        Need::Body => match read_route_body(ctx, decision.request(), reader, pending).await {
            Ok(body) => decision.read(&body.content, plan.counters.known(ctx.started), ctx),
            Err(reason) => decision.reject(reason),
        },
        need => need,
    })
}

/// The action that follows from the decision. A delayed request waits first.
async fn act<'p, 'r>(
    ctx: &mut RequestContext,
    decision: &mut RequestDecision<'p, 'r>,
    answer: Option<Arc<ServiceAnswer>>,
    reader: &RequestReader,
) -> RequestAction<'p, 'r> {
    let (delay, tightest) = match decision.verdict() {
        RequestVerdict::Admitted(delay, tightest) => (delay, tightest),
        RequestVerdict::Refused(refusal, tightest) => {
            return RequestAction::refuse(ctx, decision, refusal, tightest);
        }
        RequestVerdict::Early(response) => return RequestAction::early(ctx, decision, response),
        RequestVerdict::Answered => return RequestAction::relay(ctx, decision, answer),
    };
    let routed = decision.request_mut();
    ctx.note(tightest.as_ref());
    if let Some(tightest) = &tightest {
        ctx.note_key(routed, (tightest.limit, tightest.call));
    }
    let since = match delay {
        Micros(0) if ctx.limits.delay == Micros(0) => ctx.started,
        Micros(0) => ctx.worker.shared.clock.now(),
        delay if wait(ctx, delay, reader).await => ctx.worker.shared.clock.now(),
        _ => return RequestAction::GiveUp,
    };
    ctx.limits.admitted = true;
    let route = routed.route;
    let form = match &route.action {
        RouteAction::Redirect(redirect) => {
            FixedForm::Redirect(redirect, std::mem::take(&mut routed.target).into_owned())
        }
        RouteAction::Respond(response) if !response.usage.is_empty() => {
            match boxed_cold(|| usage::report(ctx, &response.usage, routed)).await {
                Ok(json) => FixedForm::Usage(response, json),
                Err(_) => return RequestAction::Early(RejectReason::unavailable().into()),
            }
        }
        RouteAction::Respond(response) => FixedForm::Respond(response),
        RouteAction::Forward(_) | RouteAction::Split(_) | RouteAction::Decide => {
            let plan = (&**ctx.plan, ctx.options.is_multiplexed());
            let forward_request = ForwardRequest::new(routed, tightest, since, plan);
            if let Some(mirror) = &route.mirror {
                forward_request.copy.set(RequestCopy::begin(ctx, routed, mirror));
            }
            return RequestAction::Forward(forward_request, std::mem::take(&mut routed.target));
        }
    };
    RequestAction::Answer(Box::new(FixedAnswer { route, tightest, form }))
}

/// The random number of a request: only one that is split needs it.
fn draw(route: &Route) -> u64 {
    match &route.action {
        RouteAction::Split(_) => fastrand::u64(..),
        RouteAction::Forward(_)
        | RouteAction::Redirect(_)
        | RouteAction::Respond(_)
        | RouteAction::Decide => 0,
    }
}

/// Notes the client, the host and the route of a request.
fn note(
    ctx: &mut RequestContext,
    &PendingRequest { plan, peer, head, held, asked, .. }: &PendingRequest<'_, '_>,
    lookup: &RouteLookup<'_, '_>,
) {
    ctx.noted = NotedValues::of(plan, head, lookup);
    let RouteLookup { client, host, route, outcome } = lookup;
    let early = outcome.as_ref().err().map(|unroutable| &unroutable.response);
    if asked.is_none() {
        peer.check_client(*client, &plan.server.client, head.fields);
    }
    ctx.identify(client.address, host);
    held.set_network(client.network);
    if let Some((index, route)) = *route {
        ctx.on_route(index, route);
        // The exchange of a request that is asked about is that of the proxy that asks.
        if route.max_duration.is_some() && asked.is_none() {
            held.set_deadline(ExchangeDeadline::new(route, || ctx.worker.shared.clock.instant(ctx.started)));
        }
        match (&route.cors, early) {
            (Some(cors), Some(EarlyResponse::Preflight)) => {
                cors::put_preflight(cors, head.fields, &mut ctx.lines.cors)
            }
            (Some(cors), _) => cors::put_actual(cors, head.fields, &mut ctx.lines.cors),
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
    ctx.limits.delay = Micros(ctx.limits.delay.0 + delay.0);
    ctx.trace_delay(delay);
    tokio::select! {
        biased;
        () = reader.gone() => return false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => {}
    }
    ctx.limits.outcome = RequestOutcome::Delayed;
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
    ctx.options.to_head =
        session.buffers.as_ref().is_some_and(|buffers| buffers.inbound.starts_with(b"HEAD "));
    send_problem(session, ctx, (fault.status(), fault.reason(), fault.reason())).await
}

/// Responds to a request that is neither charged nor forwarded.
pub(super) async fn early(
    session: &mut Session,
    ctx: &mut RequestContext,
    response: &EarlyResponse,
) -> NextAction {
    drain(session, ctx).await;
    ctx.answered(response.status(), response.error());
    let challenges = match response {
        EarlyResponse::Unauthenticated(failure) => ctx.challenges(*failure),
        _ => String::new(),
    };
    send(session, ctx, |page| match response {
        EarlyResponse::Preflight => page.preflight(),
        EarlyResponse::Options => page.options(),
        EarlyResponse::KeyAuthorization(text) => page.key_authorization(text),
        EarlyResponse::Redirect(location) => page.redirect(location),
        EarlyResponse::Reject(reason) => match reason.retry_after {
            Some(seconds) => page.unavailable(&reason.detail, Some(seconds.get().into())),
            None => page.problem(reason.status, &reason.detail),
        },
        EarlyResponse::Unauthenticated(failure) => {
            page.unauthenticated(response.status(), failure.fault.detail(), &challenges)
        }
    })
    .await
}

/// Sends the answer of a service that has refused the request.
pub(super) async fn relay(
    session: &mut Session,
    ctx: &mut RequestContext,
    answer: &ServiceAnswer,
) -> NextAction {
    drain(session, ctx).await;
    ctx.answered(answer.status, Some(CredentialFault::Answered.error()));
    send(session, ctx, |page| page.relayed(answer)).await
}

pub(super) async fn over_limit(
    session: &mut Session,
    ctx: &mut RequestContext,
    refused: &OverLimitRequest<'_>,
    is_asked: bool,
) -> NextAction {
    let OverLimitRequest { refusal, tightest, route } = refused;
    drain(session, ctx).await;
    let reject = route.reject_of(refusal.limit);
    let plan = Rc::clone(&ctx.plan);
    let (which, templates) = (plan.server.ratelimit_headers, &plan.refusal_templates);
    let listed = ctx.lines.ratelimit.take();
    let (tightest, listed) = (tightest.as_ref(), listed.as_deref());
    let over = OverLimit { refusal, tightest, reject, which, listed, templates, is_asked };
    let error = match refusal.why {
        RefusalCause::Overloaded => Some("overloaded"),
        _ => None,
    };
    ctx.answered(over.status(), error);
    send(session, ctx, |page| page.over_limit(&over)).await
}
