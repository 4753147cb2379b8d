//! `builtin:echo` responds with the request as a backend would see it, for trials without a backend.

use bytes::BytesMut;
use http::StatusCode;

use super::forward_request::ForwardRequest;
use crate::http1::fields::Fields;
use crate::http1::head_writer::{put_field, put_number, put_status};
use crate::http2::head_sink::TextHead;
use crate::proxy::answer::drain::{Drained, read_whole};
use crate::proxy::answer::next_action::NextAction;
use crate::proxy::answer::respond::{send, send_problem};
use crate::proxy::answer::response_fields::{FieldRewrites, put_fields, put_own_request_id};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;
use crate::proxy::session::request_reader::{BodyFault, upload_fault};
use crate::proxy::session::response_options::{put_body, put_connection};

/// Responds to the request; its head for the backend is in the message buffer.
pub(crate) async fn echo(
    session: &mut Session,
    ctx: &mut RequestContext,
    forward_request: &ForwardRequest<'_>,
) -> NextAction {
    // Like a backend that reads the whole request before it responds.
    let drained = read_whole(session, ctx, u64::MAX, forward_request.max_body_bytes()).await;
    ctx.options.keep &= drained == Drained::Whole;
    if let Drained::Broken(fault @ (BodyFault::Malformed | BodyFault::TooLarge)) = drained {
        return send_problem(session, ctx, upload_fault(Some(fault))).await;
    }
    ctx.answered(StatusCode::OK, None);
    let mut settlement = ctx.limits.settlement.take();
    let mut fields = BytesMut::new();
    put_fields(
        ctx,
        forward_request.route,
        forward_request.tightest.as_ref(),
        Fields::NONE,
        FieldRewrites::default(),
        &mut TextHead(&mut fields),
    );
    put_own_request_id(ctx, forward_request.route, &mut fields);
    let after = send(session, ctx, |page| {
        let text = as_text(page.scrap);
        if let Some(settlement) = &mut settlement {
            settlement.head(StatusCode::OK, Fields::NONE);
            settlement.body(if page.options.to_head { b"" } else { text.as_bytes() });
            settlement.finish(b"");
        }
        let out = page.outbound;
        put_status(out, StatusCode::OK, None);
        put_field(out, b"content-type", b"text/plain; charset=utf-8");
        out.extend_from_slice(&fields);
        put_number(out, b"content-length", text.len() as u64);
        put_connection(page.options, out);
        out.extend_from_slice(b"\r\n");
        put_body(page.options, text.as_bytes(), None, out)
    })
    .await;
    ctx.limits.settlement = settlement;
    after
}

/// A head as text, one header a line. Bytes that are not text are escaped.
fn as_text(head: &[u8]) -> String {
    let lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty()).map(|line| format!("{}\n", line.escape_ascii())).collect()
}
