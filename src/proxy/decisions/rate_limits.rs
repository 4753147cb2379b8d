//! Envoy's rate limit service, version 3, and the health check of gRPC.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, Version};
use prost::Message;

use super::call::{CallText, CallVerdict, RuledCall, counted};
use super::descriptors::{called, fields_of, status};
use super::endpoint::EndpointKind;
use super::{body_of, count, problem};
use crate::http1::request::RequestHead;
use crate::http2::head_sink::{HeadFormat, TextHead};
use crate::plan::admission::BindingLimit;
use crate::plan::decision::{
    CALL_OF_DESCRIPTORS, CalledDescriptor, CheckOwner, DescriptorCharges, DescriptorUse, Ruling,
    write_descriptors,
};
use crate::plan::{Limit, RatelimitHeaders, resolve};
use crate::proxy::answer::local_response_writer::{LocalResponseWriter, OverLimit};
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::record::ratelimit_fields::put_ratelimit;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::record::usage::record_admission;
use crate::proxy::session::Session;
use crate::proxy::session::request_reader::Source;
use crate::proxy::session::response_options::{LocalBody, ResponseOptions};
use crate::proxy::worker::WorkerPlan;
use crate::rate_limit_service::{
    HeaderValue, HealthCheckRequest, HealthCheckResponse, MessageFault, RateLimitCode, RateLimitRequest,
    RateLimitResponse, framed, unframed,
};
use crate::route::RouteRequest;
use crate::route::mask::Masking;
use crate::store::MAX_CHARGES;
use crate::telemetry::metrics::{DecisionLabel, DecisionResult};

/// The head of an answer with a message.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\r\n";
/// Its trailers.
const TRAILERS: &[u8] = b"grpc-status: 0\r\n";

/// A status of gRPC, and why.
type CallStatus = (u8, &'static str);
const INVALID_ARGUMENT: u8 = 3;
const NOT_FOUND: u8 = 5;
const UNIMPLEMENTED: u8 = 12;

/// Decides the descriptors of a call, all or none.
pub(super) async fn answer(
    session: &mut Session,
    mut ctx: RequestContext,
    head: &RequestHead<'_>,
) -> NextAction {
    let kind = EndpointKind::RateLimit;
    let body = match message_of(session, &mut ctx, head).await {
        Ok(body) => body,
        Err(after) => {
            count(&ctx, kind, DecisionResult::Error);
            return after;
        }
    };
    let plan = Rc::clone(&ctx.plan);
    let result = match unframed::<RateLimitRequest>(&body) {
        Ok(message) => decide(&mut ctx, &plan, session, head, message).await,
        Err(fault) => Err(status_of(fault)),
    };
    match result {
        Ok(response) => {
            let is_over = response.overall_code == i32::from(RateLimitCode::OverLimit);
            count(&ctx, kind, if is_over { DecisionResult::Refused } else { DecisionResult::Allowed });
            send_message(session, &mut ctx, &response).await
        }
        Err(status) => {
            ctx.is_counted = false;
            count(&ctx, kind, DecisionResult::Error);
            send_status(session, &mut ctx, status).await
        }
    }
}

/// Says that the gateway serves, until it drains.
pub(super) async fn answer_health(
    session: &mut Session,
    mut ctx: RequestContext,
    head: &RequestHead<'_>,
) -> NextAction {
    let body = match message_of(session, &mut ctx, head).await {
        Ok(body) => body,
        Err(after) => return after,
    };
    match unframed::<HealthCheckRequest>(&body) {
        Ok(request) if matches!(&*request.service, b"" | b"envoy.service.ratelimit.v3.RateLimitService") => {
            let status = if session.worker.is_draining() { 2 } else { 1 };
            send_message(session, &mut ctx, &HealthCheckResponse { status }).await
        }
        Ok(_) => send_status(session, &mut ctx, (NOT_FOUND, "there is no such service")).await,
        Err(fault) => send_status(session, &mut ctx, status_of(fault)).await,
    }
}

fn status_of(fault: MessageFault) -> CallStatus {
    match fault {
        MessageFault::Compressed => (UNIMPLEMENTED, "messages are not to be compressed"),
        MessageFault::Framing => (INVALID_ARGUMENT, "the call has not one whole message"),
        MessageFault::Malformed => (INVALID_ARGUMENT, "the message is malformed"),
    }
}

/// The body of a call of gRPC.
async fn message_of(
    session: &mut Session,
    ctx: &mut RequestContext,
    head: &RequestHead<'_>,
) -> Result<Bytes, NextAction> {
    if !ctx.options.grpc {
        let other = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this is a call of gRPC, over HTTP/2", "no_grpc");
        return Err(problem(session, ctx, other).await);
    }
    match body_of(session, ctx, head).await {
        Ok(body) => Ok(body),
        Err(fault) => Err(problem(session, ctx, fault).await),
    }
}

/// Decides a message.
async fn decide(
    ctx: &mut RequestContext,
    plan: &WorkerPlan,
    session: &Session,
    head: &RequestHead<'_>,
    message: RateLimitRequest,
) -> Result<RateLimitResponse, CallStatus> {
    let (mut seen, peer) = (None, &session.peer);
    let seen = resolve::see_call(plan, head, peer.as_seen(), &mut seen);
    let call = seen.map_err(|_| (INVALID_ARGUMENT, "the call is malformed"))?.request();
    let domain = String::from_utf8_lossy(&message.domain).into_owned();
    let descriptors = called(plan, message, ctx.started);
    let charges = DescriptorCharges::of(plan, &descriptors, call, &plan.secret);
    if charges.most() > MAX_CHARGES {
        return Err((INVALID_ARGUMENT, "a call is charged to at most 32 rates at once"));
    }
    let now = ctx.started;
    let asked = RuledCall::rule(plan, charges.asked, now, true).await;
    // Numbers are told of the others, too, if one refuses.
    let is_open = asked.ruling.admits();
    let charged = RuledCall::rule(plan, charges.charged, now, !is_open).await;
    ctx.is_counted = true;
    ctx.open_record(peer, Some(head));
    let needs_text = ctx.log.record.is_some() || !(is_open && charged.ruling.admits());
    let path = if needs_text {
        write_descriptors(&descriptors, Masking::Ids(&plan.short_ids))
    } else {
        String::new()
    };
    let write_label = |owner: CheckOwner, limit: &Limit, label: &mut String| {
        let Some(descriptor) = descriptors.get(owner.item) else { return };
        let request = RouteRequest { content: &descriptor.content, ..call };
        let matched = plan.route(owner.route).matched(&request);
        limit.key.write_label(matched, Masking::of(limit.reveal, &plan.short_ids), label);
    };
    let text = CallText {
        method: CALL_OF_DESCRIPTORS,
        host: &domain,
        path: &path,
        consumer: None,
        write_label: &write_label,
    };
    ctx.open_call(&text);
    let reported = RuledCall::undecided(charges.reported);
    report(ctx, plan, &reported, &text).await;
    if is_open {
        charged.count(ctx, plan, &text);
    } else {
        asked.count(ctx, plan, &text);
    }
    let numbers = |(item, descriptor): (usize, &CalledDescriptor<'_>)| match descriptor.usage {
        DescriptorUse::Asked => status(item, descriptor, &asked, now),
        _ => status(item, descriptor, &charged, now),
    };
    let statuses = descriptors.iter().enumerate().map(numbers).collect();
    let deciding = if is_open { charged } else { asked };
    let routes = descriptors.iter().filter_map(|one| one.rule).map(|rule| rule.route);
    let mut response = conclude(ctx, plan, deciding, &text);
    response.statuses = statuses;
    let is_admitted = response.overall_code == i32::from(RateLimitCode::Ok);
    let mut parts: Vec<_> = routes.collect();
    if let Some(own) = ctx.route.or(parts.first().copied()) {
        ctx.route = None;
        ctx.on_route(own, plan.route(own));
        if let Some(at) = parts.iter().position(|part| *part == own) {
            parts.remove(at);
        }
    }
    parts.into_iter().for_each(|part| ctx.count_part(plan, part, is_admitted));
    Ok(response)
}

/// Charges what has been spent already.
async fn report(ctx: &mut RequestContext, plan: &WorkerPlan, reported: &RuledCall<'_>, text: &CallText<'_>) {
    let charges = &reported.charges.charges;
    for (owner, check) in reported.charges.owners.iter().zip(&charges.checks) {
        let (Some(cost), Some(own)) = (check.cost(), charges.charges.get(check.indices())) else { continue };
        plan.counters.charge(own, cost, ctx.started).await;
        if let Some(usage) = &check.limit.usage {
            let ledger = ctx.worker.shared.store.usage();
            let at = (&reported.outcome, ctx.started);
            record_admission((ledger, usage), (check, DecisionLabel::Allowed), at, text.consumer);
        }
        let of = counted(*owner);
        let _ = ctx.count_check(of, check, DecisionLabel::Allowed, (&reported.outcome, true));
        let write_label = |label: &mut String| (text.write_label)(*owner, check.limit, label);
        ctx.note_asker(owner.limit, charges.key_hash(check), false, write_label);
    }
}

/// The answer to a call: its code, and what Envoy adds to the response for its client.
fn conclude(
    ctx: &mut RequestContext,
    plan: &WorkerPlan,
    deciding: RuledCall<'_>,
    text: &CallText<'_>,
) -> RateLimitResponse {
    match &deciding.ruling {
        Ruling::Decided(admission) => {
            ctx.list_policies(&deciding.charges.charges, &deciding.outcome, admission);
        }
        Ruling::Banned { ban, .. } => ctx.list_binding(&ban.tightest, ban.refusal.retry_after()),
        Ruling::Unkeyed(_) | Ruling::Unavailable => {}
    }
    let (verdict, route) = deciding.end(ctx, plan, text);
    ctx.route = route;
    let code =
        |code: RateLimitCode| RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() };
    match verdict {
        CallVerdict::Admitted(tightest) => {
            ctx.answered(StatusCode::OK, None);
            let response_headers_to_add = admitted_fields(ctx, plan, tightest.as_ref());
            RateLimitResponse { response_headers_to_add, ..code(RateLimitCode::Ok) }
        }
        CallVerdict::Refused(refusal, tightest) => {
            let which = plan.server.ratelimit_headers;
            let listed = ctx.lines.ratelimit.take();
            let reject = refusal.limit.reject.as_deref();
            let (tightest, listed) = (tightest.as_ref(), listed.as_deref());
            let templates = &plan.refusal_templates;
            let is_asked = true;
            let over = OverLimit { refusal: &refusal, tightest, reject, which, listed, templates, is_asked };
            ctx.answered(over.status(), None);
            refusal_of(ctx, plan, |page| page.over_limit(&over).length)
        }
        CallVerdict::Unavailable => {
            ctx.answered(StatusCode::SERVICE_UNAVAILABLE, Some("store"));
            let status = StatusCode::SERVICE_UNAVAILABLE;
            refusal_of(ctx, plan, |page| {
                page.problem(status, "the limits cannot be checked at the moment").length
            })
        }
    }
}

fn admitted_fields(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    tightest: Option<&BindingLimit<'_>>,
) -> Vec<HeaderValue> {
    let (mut lines, which) = (BytesMut::new(), plan.server.ratelimit_headers);
    if which != RatelimitHeaders::Off {
        put_ratelimit(&mut TextHead(&mut lines), which, tightest, ctx.lines.ratelimit.as_deref(), None);
    }
    fields_of(&lines)
}

/// The refusal that the client would get from the gateway itself. `write` writes it, and returns the length of its body.
fn refusal_of(
    ctx: &RequestContext,
    plan: &WorkerPlan,
    write: impl FnOnce(LocalResponseWriter<'_>) -> usize,
) -> RateLimitResponse {
    let (mut scrap, mut outbound) = (BytesMut::new(), BytesMut::new());
    let date = ctx.worker.date(ctx.started);
    let options = ResponseOptions { keep: true, ..ResponseOptions::unread(Version::HTTP_2) };
    let length = write(LocalResponseWriter {
        scrap: &mut scrap,
        outbound: &mut outbound,
        date: &date,
        request_id: &[],
        cors: &[],
        cookies: &[],
        headers: &[],
        options,
        errors: &plan.errors,
        values: ctx.template_values(),
    });
    let (head, body) = outbound.split_at(outbound.len().saturating_sub(length));
    let lines = memchr::memchr(b'\n', head).and_then(|end| head.get(end + 1..)).unwrap_or_default();
    RateLimitResponse {
        overall_code: RateLimitCode::OverLimit.into(),
        statuses: Vec::new(),
        response_headers_to_add: fields_of(lines),
        raw_body: body.to_vec(),
    }
}

/// Sends an answer with a message.
async fn send_message(session: &mut Session, ctx: &mut RequestContext, message: &impl Message) -> NextAction {
    let Source::Stream(stream) = session.reader.source() else { return NextAction::Drop };
    let mut data = Vec::with_capacity(message.encoded_len() + 5);
    framed(message, &mut data);
    let mut rest = &*data;
    let sent = match stream.send_head(HEAD, HeadFormat::Http1, false) {
        Ok(()) => poll_fn(|context| stream.poll_send(context, &mut rest, false)).await,
        lost => lost,
    };
    match sent.and_then(|()| stream.end(TRAILERS)) {
        Ok(()) => {
            ctx.response.bytes_out = data.len() as u64;
            NextAction::Keep
        }
        Err(_) => {
            ctx.response.error = ctx.response.error.or(Some("client_gone"));
            NextAction::Drop
        }
    }
}

/// Sends an answer without a message. The text is printable ASCII without `%`.
async fn send_status(
    session: &mut Session,
    ctx: &mut RequestContext,
    (code, text): CallStatus,
) -> NextAction {
    let mut answer = BytesMut::new();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: {code}\r\ngrpc-message: {text}\r\n\r\n"
    );
    answer.extend_from_slice(head.as_bytes());
    ctx.answered(StatusCode::OK, Some("malformed_call"));
    match session.writer.send(&mut answer, &LocalBody::default(), false).await {
        Ok(()) => NextAction::Keep,
        Err(_) => NextAction::Drop,
    }
}
