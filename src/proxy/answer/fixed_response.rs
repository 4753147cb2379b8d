//! The answers of routes without a backend: `respond` and `redirect = { to = "…" }`.

use bytes::BytesMut;

use super::drain::drain;
use super::next_action::NextAction;
use super::respond::send;
use super::response_fields::{FieldRewrites, put_fields, put_own_request_id};
use crate::http1::fields::Fields;
use crate::http1::head_writer::put_field;
use crate::http2::head_sink::TextHead;
use crate::plan::action::{FixedResponse, RedirectTo};
use crate::plan::admission::BindingLimit;
use crate::plan::template::TemplateValues;
use crate::plan::{HeaderEdits, Route};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::Session;

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
    /// The same with this JSON as its body.
    Usage(&'p FixedResponse, Vec<u8>),
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
        FixedForm::Usage(response, json) => {
            put_field(&mut fields, b"content-type", b"application/json");
            put_field(&mut fields, b"cache-control", b"no-store");
            put_edited(ctx, response, (edits, limit), &mut fields);
            put_fields(
                ctx,
                route,
                tightest.as_ref(),
                Fields::NONE,
                FieldRewrites::default(),
                &mut TextHead(&mut fields),
            );
            put_own_request_id(ctx, route, &mut fields);
            ctx.answered(response.status, None);
            return send(session, ctx, |page| page.with_body(response.status, &fields, json)).await;
        }
        FixedForm::Redirect(redirect, location) => {
            if !edits.touches(b"location") {
                put_field(&mut fields, b"location", location.as_bytes());
            }
            (redirect.status, None)
        }
        FixedForm::Respond(response) => {
            if let Some(content) = &response.content
                && !edits.touches(b"content-type")
            {
                put_field(&mut fields, b"content-type", content.content_type.as_bytes());
            }
            put_edited(ctx, response, (edits, limit), &mut fields);
            (response.status, response.content.as_ref().map(|content| &content.body))
        }
    };
    put_fields(
        ctx,
        route,
        tightest.as_ref(),
        Fields::NONE,
        FieldRewrites::default(),
        &mut TextHead(&mut fields),
    );
    put_own_request_id(ctx, route, &mut fields);
    ctx.answered(status, None);
    send(session, ctx, |page| page.fixed(status, &fields, body, limit)).await
}

/// Writes the response's own headers, but for those that the route edits.
fn put_edited(
    ctx: &RequestContext,
    response: &FixedResponse,
    (edits, limit): (&HeaderEdits, &str),
    fields: &mut BytesMut,
) {
    let values = TemplateValues { limit, ..ctx.template_values() };
    let headers = response.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value));
    headers
        .filter(|(name, _)| !edits.touches(name))
        .for_each(|(name, value)| value.put(name, &values, fields));
}
