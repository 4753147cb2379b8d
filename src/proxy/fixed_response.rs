//! The answers of routes without a backend: `respond`, `redirect = { to = "…" }`, and `builtin:echo`, which responds
//! with the request as a backend would see it, for trials without a backend.

use bytes::BytesMut;
use http::StatusCode;

use super::drain::{Drained, drain, read_whole};
use super::forward_request::{ForwardRequest, put_fields, put_own_request_id};
use super::local_response::{put_body, put_connection};
use super::request_context::RequestContext;
use super::request_reader::{BodyFault, upload_fault};
use super::respond::{send, send_problem};
use super::session::{NextAction, Session};
use super::upstream_head::{put_field, put_number, put_status, touches};
use crate::http1::fields::Fields;
use crate::plan::Route;
use crate::plan::action::{FixedResponse, RedirectTo};
use crate::plan::admission::BindingLimit;
use crate::plan::template::TemplateValues;

/// An admitted request that the gateway answers.
pub(crate) struct FixedAnswer<'p> {
    pub(crate) route: &'p Route,
    pub(crate) tightest: Option<BindingLimit<'p>>,
    pub(crate) form: FixedForm<'p>,
}

/// The form of the answer.
pub(crate) enum FixedForm<'p> {
    /// A redirect to this location.
    Redirect(&'p RedirectTo, String),
    /// The route's own response.
    Respond(&'p FixedResponse),
}

/// Answers the request. Its body is read and dropped.
pub(crate) async fn answer(
    session: &mut Session,
    ctx: &mut RequestContext,
    fixed: &FixedAnswer<'_>,
) -> NextAction {
    drain(session, ctx).await;
    let FixedAnswer { route, tightest, form } = fixed;
    let limit = tightest.as_ref().map_or("", |tightest| &tightest.limit.name);
    let mut fields = BytesMut::new();
    let edits = &route.response_headers;
    let (status, body) = match form {
        FixedForm::Redirect(redirect, location) => {
            if !touches(edits, b"location") {
                put_field(&mut fields, b"location", location.as_bytes());
            }
            (redirect.status, None)
        }
        FixedForm::Respond(response) => {
            if let Some(content) = &response.content
                && !touches(edits, b"content-type")
            {
                put_field(&mut fields, b"content-type", content.content_type.as_bytes());
            }
            let values = TemplateValues { limit, ..ctx.template_values() };
            let headers = response.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value));
            headers
                .filter(|(name, _)| !touches(edits, name))
                .for_each(|(name, value)| value.put(name, &values, &mut fields));
            (response.status, response.content.as_ref().map(|content| &content.body))
        }
    };
    put_fields(ctx, route, tightest.as_ref(), Fields::NONE, &mut fields);
    put_own_request_id(ctx, route, &mut fields);
    ctx.answered(status, None);
    send(session, ctx, |page| page.fixed(status, &fields, body, limit)).await
}

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
    let mut settlement = ctx.settlement.take();
    let mut fields = BytesMut::new();
    put_fields(ctx, forward_request.route, forward_request.tightest.as_ref(), Fields::NONE, &mut fields);
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
    ctx.settlement = settlement;
    after
}

/// A head as text, one header a line. Bytes that are not text are escaped.
fn as_text(head: &[u8]) -> String {
    let lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty()).map(|line| format!("{}\n", line.escape_ascii())).collect()
}
