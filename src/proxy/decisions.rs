//! What others ask on the listener of `[decisions]`: whether a request that they forward, or would, may pass.
//!
//! For example, Envoy asks by gRPC about descriptors, nginx by a request of its own about the one in `x-original-*`, and an
//! application by JSON. A request that is asked about takes the way of one that comes to the gateway (`decide`), but is not
//! forwarded: the answer says whether it is admitted. Descriptors and limits that are named have no route to find, and are
//! charged all or none ([`CallCharges`](crate::plan::decision::CallCharges)).

mod access;
mod asked_request;
mod call;
mod check;
mod decide_api;
mod descriptors;
mod endpoint;
mod rate_limits;

use std::future::poll_fn;
use std::pin::pin;

use bytes::{Buf as _, Bytes};
use http::StatusCode;

use super::answer::next_action::NextAction;
use super::answer::respond::send;
use super::decide;
use super::decide::read_content::{BodyEnd, ReadPart, read_body};
use super::decide::undecided::{HeldBytes, UndecidedRequest};
use super::record::request_context::RequestContext;
use super::session::Session;
use super::session::request_body::BodyOptions;
use super::session::request_reader::upload_fault;
use super::worker::buffer_pool::Buffers;
use crate::http1::request::{Body, RequestError, RequestHead};
use crate::limit::units::Timestamp;
use crate::telemetry::metrics::DecisionResult;
use access::AccessDenied;
use endpoint::{DecisionEndpoint, EndpointKind};

/// The maximum size of a call, bytes. Envoy sends the values of headers as they are, each of up to 60 KiB.
const MAX_CALL: usize = 1 << 20;

/// A problem of a call: status, detail, and the error's name.
type CallProblem = (StatusCode, &'static str, &'static str);

/// Serves the call with the head at the front of the buffer. The head was complete at `now`.
pub(crate) async fn answer(session: &mut Session, now: Timestamp) -> NextAction {
    let text = match take_head(session) {
        Ok(text) => text,
        Err(fault) => return decide::refuse_unread(session, fault).await,
    };
    let mut spans = Vec::new();
    // It was parsed before.
    let Ok(mut head) = RequestHead::parse(&text, &mut spans) else { return NextAction::Drop };
    head.body = session.reader.source().body(head.body);
    session.is_last = !head.keep_alive && head.body == Body::EMPTY;
    let mut ctx = RequestContext::begin(&session.worker, &session.peer, now);
    ctx.is_counted = false;
    ctx.take_head(&session.peer, &head, session.may_keep);
    let Some(endpoint) = DecisionEndpoint::of(head.target.path, head.target.query) else {
        let unknown = (StatusCode::NOT_FOUND, "there is no such call", "no_route");
        return problem(session, &mut ctx, unknown).await;
    };
    ctx.options.as_forbidden = endpoint.kind.as_forbidden();
    if let Err(denied) = access::check(&ctx.plan, &session.peer, &head, &endpoint) {
        count(&ctx, endpoint.kind, DecisionResult::Error);
        return problem(session, &mut ctx, denied.problem()).await;
    }
    match endpoint.kind {
        EndpointKind::Forwarded { .. } | EndpointKind::Original { .. } | EndpointKind::Envoy(_) => {
            check::answer(session, ctx, &head, endpoint.kind).await
        }
        EndpointKind::Decide => decide_api::answer(session, ctx, &head).await,
        EndpointKind::RateLimit => rate_limits::answer(session, ctx, &head).await,
        EndpointKind::Health => rate_limits::answer_health(session, ctx, &head).await,
    }
}

/// Removes the head from the buffer.
fn take_head(session: &mut Session) -> Result<Bytes, RequestError> {
    let inbound = &mut session.buffers.get_or_insert_default().inbound;
    let mut spans = Vec::new();
    let length = RequestHead::parse(inbound, &mut spans)?.length;
    let text = Bytes::copy_from_slice(inbound.get(..length).unwrap_or_default());
    inbound.advance(length);
    Ok(text)
}

/// Counts a call.
fn count(ctx: &RequestContext, kind: EndpointKind<'_>, result: DecisionResult) {
    if let Some(protocol) = kind.protocol() {
        ctx.plan.metrics.decision_call(protocol, result);
    }
}

/// Answers a call that asks nothing. Its body is not read.
async fn problem(session: &mut Session, ctx: &mut RequestContext, problem: CallProblem) -> NextAction {
    problem_with(session, ctx, problem, "").await
}

/// The same with these header lines.
async fn problem_with(
    session: &mut Session,
    ctx: &mut RequestContext,
    (status, detail, error): CallProblem,
    lines: &str,
) -> NextAction {
    ctx.options.keep &= ctx.body_options.body() == Body::EMPTY || session.peer.is_multiplexed();
    ctx.answered(status, Some(error));
    send(session, ctx, |page| page.problem_with(status, detail, lines)).await
}

/// Reads the whole body of a call. The bytes of it that were received are at the front of the buffer.
async fn body_of(
    session: &mut Session,
    ctx: &mut RequestContext,
    head: &RequestHead<'_>,
) -> Result<Bytes, CallProblem> {
    const TOO_LARGE: CallProblem =
        (StatusCode::PAYLOAD_TOO_LARGE, "a call has at most 1 MiB", "body_too_large");
    const OVERLOADED: CallProblem =
        (StatusCode::SERVICE_UNAVAILABLE, "calls hold too many bytes together", "overloaded");
    ctx.body_options = BodyOptions::default();
    if head.body == Body::EMPTY {
        return Ok(Bytes::new());
    }
    let server = &ctx.plan.server;
    let held = HeldBytes::default();
    held.set_network(server.client.client(session.peer.address).network);
    let Session { worker, reader, writer, buffers, .. } = session;
    let Buffers { inbound, outbound, .. } = &mut **buffers.get_or_insert_default();
    let ahead = std::mem::take(inbound);
    let is_too_large = matches!(head.body, Body::Length(length) if length > MAX_CALL as u64);
    let mut read = None;
    if !is_too_large {
        let mut undecided =
            UndecidedRequest::new(worker, server.max_buffered, &held, ahead.capacity(), reader.source());
        let mut reading = pin!(async {
            read = Some(read_body(reader, head, &ahead, MAX_CALL, &held).await);
        });
        let mut waiting = (writer, outbound);
        // A call has no `max_duration`: one that is not read was evicted.
        _ = poll_fn(|context| undecided.poll_decided(reading.as_mut(), &mut waiting, context)).await;
    }
    let fault = match read {
        Some(Ok((BodyEnd::Whole, ReadPart { begun, received }))) => {
            *inbound = received;
            ctx.received = begun.data.len() as u64;
            return Ok(begun.data);
        }
        Some(Ok((BodyEnd::TooLarge, _))) => TOO_LARGE,
        Some(Err(fault)) => upload_fault(Some(fault)),
        None if is_too_large => TOO_LARGE,
        None => OVERLOADED,
    };
    // No byte can be read after it.
    ctx.options.keep = false;
    Err(fault)
}

impl AccessDenied {
    /// The answer. It says nothing of what would be right.
    fn problem(self) -> CallProblem {
        match self {
            Self::Token => {
                (StatusCode::UNAUTHORIZED, "this listener needs the token of [decisions]", "unauthenticated")
            }
            Self::Foreign => (
                StatusCode::FORBIDDEN,
                "without a token this listener only answers calls to this machine: Host or Origin name another",
                "foreign",
            ),
        }
    }
}
