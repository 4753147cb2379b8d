//! The headers of an admitted response: those that pass, the route's edits, and the gateway's own.

use std::num::NonZero;

use bytes::BytesMut;
use http::header::{ETAG, VARY};

use super::cors::is_cors;
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::syntax::is_named;
use crate::http2::head_sink::{HeadSink, TextHead};
use crate::plan::admission::BindingLimit;
use crate::plan::compression::{Representation, varies_by_encoding};
use crate::plan::sticky::Sticky;
use crate::plan::template::TemplateValues;
use crate::plan::{RatelimitHeaders, RequestIds, Route};
use crate::proxy::record::ratelimit_fields::{is_ratelimit, put_ratelimit};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::passing_fields::{ConnectionOptions, put_answer_fields};

/// What follows the port in `alt-svc`: how long a client may use HTTP/3 without being told again, in seconds (RFC 7838 §3.1).
/// A gateway that has stopped to serve it costs clients a failed attempt for as long.
const ALTERNATIVE_END: &[u8] = b"\"; ma=3600\r\n";

/// The server of a response, of an upstream that is `sticky` by a header.
#[derive(Clone, Copy)]
pub(crate) struct ServerSession<'p> {
    pub(crate) sticky: &'p Sticky,
    /// Its index.
    pub(crate) server: usize,
}

/// Which fields of a backend's response the gateway writes itself, beside those of all responses.
#[derive(Clone, Copy, Default)]
pub(crate) struct FieldRewrites<'p> {
    /// The upstream is `sticky` by a header.
    pub(crate) session: Option<ServerSession<'p>>,
    /// The route has `compress`.
    pub(crate) representation: Option<Representation>,
}

/// Writes the headers of an admitted response: the route's edits, and the rate-limit headers.
pub(crate) fn put_fields(
    ctx: &RequestContext,
    route: &Route,
    tightest: Option<&BindingLimit<'_>>,
    fields: Fields<'_>,
    FieldRewrites { session, representation }: FieldRewrites<'_>,
    sink: &mut impl HeadSink,
) {
    let which = ctx.plan.server.ratelimit_headers;
    let limit = tightest.map_or("", |tightest| &tightest.limit.name);
    let tightest = tightest.filter(|_| which != RatelimitHeaders::Off);
    let listed = ctx.lines.ratelimit.as_deref();
    let limited = tightest.is_some() || listed.is_some();
    let cors = route.cors.is_some();
    let all_ids = ctx.plan.server.request_id == RequestIds::All;
    let alt_svc = ctx.options.http3_port;
    let replaced = |name: &[u8]| {
        (limited && is_ratelimit(which, name))
            || (cors && is_cors(name))
            || (all_ids && is_named(name, b"x-request-id"))
            || (alt_svc.is_some() && is_named(name, b"alt-svc"))
            || session.is_some_and(|session| session.sticky.is_session(name))
            || representation.is_some_and(|representation| representation.replaces(name))
    };
    let values = || TemplateValues { limit, ..ctx.template_values() };
    let weakens_tag = representation.is_some_and(|representation| representation.weakens_tag);
    put_answer_fields(fields, &route.response_headers, replaced, values, weakens_tag, sink);
    if let Some(session) = session {
        put_session(session, route, fields, sink);
    }
    if let Some(representation) = representation {
        put_representation(representation, route, fields, &values(), sink);
    }
    if all_ids {
        put_request_id(ctx, route, sink);
    }
    if let Some(port) = alt_svc {
        put_alternative(port, route, sink);
    }
    sink.lines(&ctx.lines.cors);
    if !route.response_headers.touches(b"set-cookie") {
        sink.lines(&ctx.lines.cookies);
    }
    if limited {
        put_ratelimit(sink, which, tightest, listed, None);
    }
    if fields.known(Name::Date).is_none() {
        sink.field(b"date", &ctx.worker.date(ctx.started));
    }
}

/// Writes the session of a response with the name of its server; the route's edits override it.
#[cold]
fn put_session(
    ServerSession { sticky, server }: ServerSession<'_>,
    route: &Route,
    fields: Fields<'_>,
    sink: &mut impl HeadSink,
) {
    let Some(name) = sticky.session_header() else { return };
    let bytes = name.as_str().as_bytes();
    if route.response_headers.touches(bytes) || ConnectionOptions::of(fields).name(bytes) {
        return;
    }
    for value in fields.all(name).iter() {
        sink.written(|out| sticky.put_session(server, value, out));
    }
}

/// Writes the fields that tell how the body is coded, and that it depends on what the client accepts.
fn put_representation(
    Representation { encoding, weakens_tag }: Representation,
    route: &Route,
    fields: Fields<'_>,
    values: &TemplateValues<'_>,
    sink: &mut impl HeadSink,
) {
    if let Some(encoding) = encoding {
        sink.field(b"content-encoding", encoding.name().as_bytes());
    }
    if weakens_tag && !route.response_headers.touches(b"etag") {
        for tag in fields.all(&ETAG).iter() {
            match tag.starts_with(b"W/") {
                true => sink.field(b"etag", tag),
                false => sink.field(b"etag", &[b"W/", tag].concat()),
            }
        }
    }
    let edits = &route.response_headers;
    let varies = match edits.touches(b"vary") {
        true => {
            let mut scratch = BytesMut::new();
            let mut set = edits.set.iter().filter(|(name, _)| *name == VARY);
            set.any(|(_, value)| varies_by_encoding(value.value(values, &mut scratch)))
        }
        false => fields.all(&VARY).iter().any(varies_by_encoding),
    };
    if !varies {
        sink.field(b"vary", b"accept-encoding");
    }
}

/// Tells the client that HTTP/3 is served at the same host (RFC 9114 §3.1.1); the route's edits override it.
#[cold]
fn put_alternative(port: NonZero<u16>, route: &Route, sink: &mut impl HeadSink) {
    if !route.response_headers.touches(b"alt-svc") {
        sink.written(|out| {
            out.extend_from_slice(b"alt-svc: h3=\":");
            out.extend_from_slice(itoa::Buffer::new().format(port.get()).as_bytes());
            out.extend_from_slice(ALTERNATIVE_END);
        });
    }
}

/// Writes `x-request-id`; the route's edits override it.
fn put_request_id(ctx: &RequestContext, route: &Route, sink: &mut impl HeadSink) {
    if !route.response_headers.touches(b"x-request-id") {
        sink.field(b"x-request-id", &ctx.request_id);
    }
}

/// The same in a response of the gateway itself, where only those have it.
pub(crate) fn put_own_request_id(ctx: &RequestContext, route: &Route, out: &mut BytesMut) {
    if ctx.plan.server.request_id == RequestIds::Own {
        put_request_id(ctx, route, &mut TextHead(out));
    }
}
