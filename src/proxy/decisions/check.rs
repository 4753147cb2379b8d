//! `/check/…`: another proxy asks about a request that it forwards.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use bytes::BytesMut;
use http::StatusCode;

use super::asked_request::{AskedFault, AskedRequest};
use super::count;
use super::endpoint::EndpointKind;
use crate::boxed_cold::boxed_cold;
use crate::http1::head_writer::put_field;
use crate::http1::request::RequestHead;
use crate::http2::head_sink::TextHead;
use crate::plan::seen_request::SeenRequest;
use crate::plan::{Plan, RatelimitHeaders};
use crate::proxy::answer::drain::drain;
use crate::proxy::answer::fixed_response;
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::answer::respond::{send, send_problem};
use crate::proxy::decide::pending_request::{AskedFor, PendingRequest};
use crate::proxy::decide::request_action::RequestAction;
use crate::proxy::decide::undecided::{HeldBytes, UndecidedRequest, WaitFailure};
use crate::proxy::decide::{self, decide_request};
use crate::proxy::forward::forward_request::ForwardRequest;
use crate::proxy::record::ratelimit_fields::put_ratelimit;
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::worker::buffer_pool::Buffers;
use crate::telemetry::metrics::DecisionResult;

/// Answers whether the request may pass: 200, or the refusal that its client would get from the gateway.
pub(super) async fn answer(
    session: &mut Session,
    mut ctx: RequestContext,
    head: &RequestHead<'_>,
    kind: EndpointKind<'_>,
) -> NextAction {
    let plan = Rc::clone(&ctx.plan);
    let asked = match request_of(head, kind, &plan) {
        Ok(asked) => asked,
        Err(fault) => {
            count(&ctx, kind, DecisionResult::Error);
            ctx.answered(StatusCode::BAD_REQUEST, Some("malformed_question"));
            return send(session, &mut ctx, |page| page.problem(StatusCode::BAD_REQUEST, &fault.to_string()))
                .await;
        }
    };
    let mut spans = Vec::new();
    let asked_head = match RequestHead::parse(&asked.head, &mut spans) {
        Ok(asked_head) => asked_head,
        Err(fault) => {
            count(&ctx, kind, DecisionResult::Refused);
            let refusal = (fault.status(), fault.reason(), fault.reason());
            return send_problem(session, &mut ctx, refusal).await;
        }
    };
    ctx.is_counted = true;
    ctx.open_record(&session.peer, Some(&asked_head));
    let asked = AskedFor { client: asked.client, secure: asked.secure, peeks: false };
    let (identity, body, held, last_head) =
        (OnceCell::new(), OnceCell::new(), HeldBytes::default(), Cell::new(None));
    let peer = Rc::clone(&session.peer);
    let pending = PendingRequest {
        plan: &plan,
        peer: &peer,
        head: &asked_head,
        last_head: &last_head,
        identity: &identity,
        body: &body,
        ahead: &[],
        held: &held,
        asked: Some(asked),
    };
    let mut seen = None;
    let action = decided(session, &mut ctx, &pending, &mut seen).await;
    let after = respond(session, &mut ctx, action).await;
    let is_admitted = ctx.response.status.is_success();
    count(&ctx, kind, if is_admitted { DecisionResult::Allowed } else { DecisionResult::Refused });
    after
}

fn request_of(
    head: &RequestHead<'_>,
    kind: EndpointKind<'_>,
    plan: &Plan,
) -> Result<AskedRequest, AskedFault> {
    let rule = &plan.server.client;
    match kind {
        EndpointKind::Original { .. } => AskedRequest::original(head, rule),
        EndpointKind::Envoy(path) => AskedRequest::itself(head, path, rule),
        _ => AskedRequest::forwarded(head.fields, rule),
    }
}

/// Drives the decision on the request. `None`: it was evicted from the budget of undecided requests.
pub(super) async fn decided<'p, 'r>(
    session: &mut Session,
    ctx: &mut RequestContext,
    pending: &PendingRequest<'p, 'r>,
    seen: &'r mut Option<SeenRequest<'r>>,
) -> Option<RequestAction<'p, 'r>> {
    let max_buffered = pending.plan.server.max_buffered;
    let Session { worker, reader, writer, buffers, .. } = session;
    let Buffers { inbound, outbound, .. } = &mut **buffers.get_or_insert_default();
    let mut undecided =
        UndecidedRequest::new(worker, max_buffered, pending.held, inbound.capacity(), reader.source());
    let mut action = None;
    {
        let mut deciding = pin!(async {
            action = Some(decide_request(ctx, reader, pending, seen).await);
        });
        let mut waiting = (writer, outbound);
        // `max_duration` is of the exchange of the proxy that asks.
        _ = poll_fn(|context| undecided.poll_decided(deciding.as_mut(), &mut waiting, context)).await;
    }
    action
}

/// Answers as the gateway would answer the client, but an admitted request with 200.
async fn respond(
    session: &mut Session,
    ctx: &mut RequestContext,
    action: Option<RequestAction<'_, '_>>,
) -> NextAction {
    match action {
        None => {
            let response = WaitFailure::Evicted.response(ctx);
            decide::early(session, ctx, &response).await
        }
        Some(RequestAction::Forward(request, _)) => admitted(session, ctx, &request).await,
        Some(RequestAction::Answer(fixed)) => {
            boxed_cold(|| fixed_response::answer(session, ctx, &fixed)).await
        }
        Some(RequestAction::Relay(response)) => boxed_cold(|| decide::relay(session, ctx, &response)).await,
        Some(RequestAction::Early(response)) => decide::early(session, ctx, &response).await,
        Some(RequestAction::Refuse(refused)) => decide::over_limit(session, ctx, &refused, true).await,
        Some(RequestAction::GiveUp) => NextAction::Drop,
    }
}

/// The request may pass: 200 with the rate-limit fields, and the cookies of the service that has admitted it.
async fn admitted(
    session: &mut Session,
    ctx: &mut RequestContext,
    request: &ForwardRequest<'_>,
) -> NextAction {
    drain(session, ctx).await;
    let mut fields = BytesMut::new();
    let which = ctx.plan.server.ratelimit_headers;
    if which != RatelimitHeaders::Off {
        let listed = ctx.lines.ratelimit.as_deref();
        put_ratelimit(&mut TextHead(&mut fields), which, request.tightest.as_ref(), listed, None);
    }
    fields.extend_from_slice(&ctx.lines.cookies);
    put_field(&mut fields, b"date", &ctx.worker.date(ctx.started));
    ctx.answered(StatusCode::OK, None);
    send(session, ctx, |page| page.fixed(StatusCode::OK, &fields, None, "")).await
}
