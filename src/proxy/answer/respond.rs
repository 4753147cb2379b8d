//! Sends the responses that the gateway makes itself.

use bytes::BytesMut;
use http::StatusCode;

use super::local_response_writer::LocalResponseWriter;
use super::next_action::NextAction;
use crate::http1::head_writer::{put_field, put_status};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::session::response_options::LocalBody;
use crate::proxy::session::response_writer::ResponseWriter;
use crate::proxy::worker::buffer_pool::Buffers;

/// Bytes of responses that are held back at most.
const MAX_HELD: usize = 16 << 10;

/// Sends a local response. `write` writes it and returns its body.
///
/// If the client has pipelined a further request, the response is held back, to be sent in one piece with the response to
/// that one. It is sent before the gateway waits for anything.
pub(crate) async fn send(
    session: &mut Session,
    ctx: &mut RequestContext,
    write: impl FnOnce(LocalResponseWriter<'_>) -> LocalBody,
) -> NextAction {
    let date = ctx.worker.date(ctx.started);
    let Session { writer, buffers, .. } = session;
    let Buffers { inbound, message: scrap, outbound, .. } = &mut **buffers.get_or_insert_default();
    let (request_id, options, head_begins) = (ctx.own_request_id(), ctx.options, outbound.len());
    let (errors, values) = (&ctx.plan.errors, ctx.template_values());
    let headers = &ctx.plan.server.response_headers;
    let (cors, cookies, date) = (&ctx.lines.cors, &ctx.lines.cookies, &date);
    let body = write(LocalResponseWriter {
        scrap,
        outbound,
        date,
        request_id,
        cors,
        cookies,
        headers,
        options,
        errors,
        values,
    });
    if options.as_forbidden {
        turn_to_forbidden(outbound, head_begins, ctx.response.status);
    }
    if options.connect && ctx.response.status.is_success() {
        replace_status(outbound, head_begins, StatusCode::NOT_IMPLEMENTED, |_| {});
        ctx.answered(StatusCode::NOT_IMPLEMENTED, Some("no_websocket"));
    }
    ctx.note_response_head(outbound.get(head_begins..).unwrap_or_default());
    let is_followed = inbound.ends_with(b"\r\n\r\n") && matches!(writer, ResponseWriter::Http1(_));
    if is_followed && options.keep && body.large.is_none() && outbound.len() < MAX_HELD {
        ctx.response.bytes_out = body.length as u64;
        return NextAction::Keep;
    }
    match writer.send(outbound, &body, !options.keep).await {
        Ok(()) => {
            ctx.response.bytes_out = body.length as u64;
            if options.keep { NextAction::Keep } else { NextAction::Close }
        }
        Err(_) => {
            let reason = if writer.is_stalled() { "write_timeout" } else { "client_gone" };
            ctx.response.error = ctx.response.error.or(Some(reason));
            NextAction::Drop
        }
    }
}

/// Replaces the status of a refusal by 403, and tells it in a field.
#[cold]
fn turn_to_forbidden(outbound: &mut BytesMut, head_begins: usize, status: StatusCode) {
    if status.is_success() {
        return;
    }
    replace_status(outbound, head_begins, StatusCode::FORBIDDEN, |out| {
        put_field(out, b"x-tollgate-status", status.as_str().as_bytes());
    });
}

/// Replaces the status of a response that is written. `put` writes fields after it.
#[cold]
fn replace_status(
    outbound: &mut BytesMut,
    head_begins: usize,
    status: StatusCode,
    put: impl FnOnce(&mut BytesMut),
) {
    let written = outbound.split_off(head_begins);
    let line = memchr::memchr(b'\n', &written).map_or(0, |end| end + 1);
    put_status(outbound, status, None);
    put(outbound);
    outbound.extend_from_slice(written.get(line..).unwrap_or_default());
}

/// Sends a problem document. `error` is the access log's error name, `detail` is for the client.
pub(crate) async fn send_problem(
    session: &mut Session,
    ctx: &mut RequestContext,
    (status, detail, error): (StatusCode, &str, &'static str),
) -> NextAction {
    ctx.answered(status, Some(error));
    send(session, ctx, |page| page.problem(status, detail)).await
}
