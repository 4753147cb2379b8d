//! Local responses: refusals, errors, redirects and preflights that tollgate answers itself.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode};

use super::cors::is_cors;
use super::local_response::{LocalResponse, PROBLEM_JSON};
use crate::auth::forward::ServiceAnswer;
use crate::http1::head_writer::{put_field, put_lines, put_number, put_status};
use crate::http2::head_sink::TextHead;
use crate::limit::units::Cost;
use crate::plan::action::ErrorPages;
use crate::plan::admission::{BindingLimit, Refusal, RefusalCause};
use crate::plan::template::{BodyTemplate, HeaderTemplate, TemplateValues};
use crate::plan::{RatelimitHeaders, Reject};
use crate::proxy::record::ratelimit_fields::{is_ratelimit, put_ratelimit};
use crate::proxy::session::grpc;
use crate::proxy::session::response_options::{LocalBody, ResponseOptions, put_body, put_connection};
use crate::proxy::worker::refusal_template::{RefusalTemplates, UsualRefusal};

/// The methods for `allow`; a backend that accepts more may say so itself.
const METHODS: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const PLAIN_TEXT: &[u8] = b"text/plain; charset=utf-8";
/// The problem type of draft-ietf-httpapi-ratelimit-headers §5.
/// The type of a refusal because the service has less capacity than usual, of the RateLimit draft.
const TEMPORARY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The start of the default refusal's body.
const TOO_MANY: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":""#;
/// Capacity reserved for a local body, so that one allocation suffices.
const BODY_ROOM: usize = 512;

/// Fields of a response that concern its connection, or that the gateway writes.
const CONNECTION_FIELDS: [&str; 11] = [
    "alt-svc",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Writes a local response. The body is made in `scrap` first, since its length precedes it.
#[derive(Debug)]
pub(crate) struct LocalResponseWriter<'b> {
    pub(crate) scrap: &'b mut BytesMut,
    pub(crate) outbound: &'b mut BytesMut,
    /// The value of `date`.
    pub(crate) date: &'b [u8],
    /// The value of `x-request-id`; empty: there is none.
    pub(crate) request_id: &'b [u8],
    /// The CORS headers that scripts of another site need to read the response, as header lines.
    pub(crate) cors: &'b [u8],
    /// The cookies of the service that has admitted the request, as header lines.
    pub(crate) cookies: &'b [u8],
    /// The headers of every response.
    pub(crate) headers: &'b [(HeaderName, HeaderTemplate)],
    pub(crate) options: ResponseOptions,
    /// The bodies of errors.
    pub(crate) errors: &'b ErrorPages,
    /// Values of the request for templates.
    pub(crate) values: TemplateValues<'b>,
}

/// A refusal by a limit, and how it is written.
#[derive(Debug)]
pub(crate) struct OverLimit<'a, 'p> {
    pub(crate) refusal: &'a Refusal<'p>,
    /// The limit that the rate-limit headers describe.
    pub(crate) tightest: Option<&'a BindingLimit<'p>>,
    /// The configured form of the refusal, if not the default.
    pub(crate) reject: Option<&'a Reject>,
    /// The rate-limit headers to write.
    pub(crate) which: RatelimitHeaders,
    /// The standard ones, if they list every policy.
    pub(crate) listed: Option<&'a str>,
    /// The texts of the plan's usual refusals.
    pub(crate) templates: &'a RefusalTemplates,
    /// A proxy asks, which would take a success for an admission.
    pub(crate) is_asked: bool,
}

impl<'b> LocalResponseWriter<'b> {
    /// A short problem document (RFC 9457) without internals. `detail` is the gateway's own text, never the client's or
    /// the backend's. Returns its body.
    pub(crate) fn problem(self, status: StatusCode, detail: &str) -> LocalBody {
        self.problem_with(status, detail, "")
    }

    /// The same for a request without a valid credential. `challenges` are `www-authenticate` header lines; a 401 has
    /// them (RFC 9110 §15.5.2), and a 403 to a token (RFC 6750 §3.1).
    pub(crate) fn unauthenticated(self, status: StatusCode, detail: &str, challenges: &str) -> LocalBody {
        self.problem_with(status, detail, if status == StatusCode::BAD_REQUEST { "" } else { challenges })
    }

    /// The same with 503, and with the seconds after which a request may succeed.
    pub(crate) fn unavailable(mut self, detail: &str, retry_after: Option<u64>) -> LocalBody {
        self.values.retry_after = retry_after;
        self.problem(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The same with these header lines.
    pub(crate) fn problem_with(self, status: StatusCode, detail: &str, lines: &str) -> LocalBody {
        if self.options.grpc {
            grpc::put_trailers_only(status, |out| put_all(out, &[detail]), self.outbound);
            put_lines(self.outbound, lines.as_bytes());
            return self.end_head();
        }
        let retry_after = self.values.retry_after.unwrap_or(1);
        let page = self.errors.get(status);
        let (content_type, body) = match page {
            Some(page) => (page.content_type.as_bytes(), page.body.text(&self.values, self.scrap)),
            None => (PROBLEM_JSON, problem_json(status, detail, self.scrap)),
        };
        let large = page.and_then(|page| page.body.large());
        let own = LocalResponse { status, content_type, body, large, no_store: true };
        own.write(self.options, self.date, self.outbound, |out| {
            put_request_id(self.request_id, out);
            put_lines(out, self.cors);
            put_lines(out, self.cookies);
            put_headers(self.headers, |_| false, out);
            put_lines(out, lines.as_bytes());
            if status == StatusCode::METHOD_NOT_ALLOWED && !lines.starts_with("allow:") {
                // RFC 9110 §15.5.6 requires the methods.
                put_field(out, b"allow", METHODS);
            }
            if status == StatusCode::SERVICE_UNAVAILABLE {
                put_number(out, b"retry-after", retry_after);
            }
        })
    }

    /// The answer of a route, with these header lines. `limit` is a value of its body.
    pub(crate) fn fixed(
        self,
        status: StatusCode,
        fields: &[u8],
        body: Option<&BodyTemplate>,
        limit: &'b str,
    ) -> LocalBody {
        let values = TemplateValues { limit, ..self.values };
        let large = body.and_then(BodyTemplate::large);
        let body = body.map_or(&[][..], |body| body.text(&values, self.scrap));
        put_fixed(status, fields, (body, large), self.options, self.outbound)
    }

    /// The same with these bytes as its body.
    pub(crate) fn with_body(self, status: StatusCode, fields: &[u8], body: &[u8]) -> LocalBody {
        put_fixed(status, fields, (body, None), self.options, self.outbound)
    }

    /// The answer of a service, without its fields that concern the connection.
    pub(crate) fn relayed(self, answer: &'b ServiceAnswer) -> LocalBody {
        let out = self.outbound;
        put_status(out, answer.status, None);
        let is_set = |name: &HeaderName| self.headers.iter().any(|(own, _)| own == name);
        let passes = |name: &HeaderName| !CONNECTION_FIELDS.contains(&name.as_str()) && !is_set(name);
        let fields = answer.fields.iter().filter(|(name, _)| passes(name));
        fields.for_each(|(name, value)| put_field(out, name.as_str().as_bytes(), value.as_bytes()));
        put_field(out, b"date", self.date);
        out.extend_from_slice(self.cors);
        put_headers(self.headers, |_| false, out);
        // RFC 9110 §8.6 and §15.4.5: these never have content.
        if !matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            put_number(out, b"content-length", answer.body.len() as u64);
        }
        put_connection(self.options, out);
        out.extend_from_slice(b"\r\n");
        put_body(self.options, &answer.body, None, out)
    }

    /// The response to a preflight. It has no body.
    pub(crate) fn preflight(self) -> LocalBody {
        put_status(self.outbound, StatusCode::NO_CONTENT, None);
        self.end_head()
    }

    /// The answer to a challenge of http-01 (RFC 8555 §8.3).
    pub(crate) fn key_authorization(self, text: &str) -> LocalBody {
        let (status, content_type) = (StatusCode::OK, &b"application/octet-stream"[..]);
        let own = LocalResponse { status, content_type, body: text.as_bytes(), large: None, no_store: true };
        own.write(self.options, self.date, self.outbound, |out| put_headers(self.headers, |_| false, out))
    }

    /// The response to `OPTIONS *`. It has no body.
    pub(crate) fn options(self) -> LocalBody {
        put_status(self.outbound, StatusCode::OK, None);
        put_field(self.outbound, b"allow", METHODS);
        put_number(self.outbound, b"content-length", 0);
        self.end_head()
    }

    /// Ends the head of a response without a body.
    fn end_head(self) -> LocalBody {
        put_headers(self.headers, |_| false, self.outbound);
        self.end_head_without_headers()
    }

    fn end_head_without_headers(self) -> LocalBody {
        put_request_id(self.request_id, self.outbound);
        put_lines(self.outbound, self.cors);
        put_lines(self.outbound, self.cookies);
        put_field(self.outbound, b"date", self.date);
        put_connection(self.options, self.outbound);
        self.outbound.extend_from_slice(b"\r\n");
        LocalBody::default()
    }

    /// Redirects the client to `location`. The response has no body.
    pub(crate) fn redirect(self, location: &str) -> LocalBody {
        put_status(self.outbound, StatusCode::PERMANENT_REDIRECT, None);
        put_field(self.outbound, b"location", location.as_bytes());
        put_number(self.outbound, b"content-length", 0);
        self.end_head()
    }

    /// The response to a request that a limit refuses. Returns its body.
    pub(crate) fn over_limit(self, over: &'b OverLimit<'_, '_>) -> LocalBody {
        let Some(usual) = self.as_usual(over) else { return self.put_over_limit(over) };
        if let Some(length) = over.templates.put(&usual, self.outbound) {
            return LocalBody { length, large: None };
        }
        let begins = self.outbound.len();
        let outbound = &mut *self.outbound;
        let body = LocalResponseWriter { outbound, ..self }.put_over_limit(over);
        over.templates.keep(&usual, outbound.get(begins..).unwrap_or_default(), body.length);
        body
    }

    /// The refusal as one that differs in few values from other refusals of its policy. Floods get no other.
    #[inline]
    fn as_usual<'a>(&self, over: &OverLimit<'a, '_>) -> Option<UsualRefusal<'a>>
    where
        'b: 'a,
    {
        let OverLimit { refusal, tightest: Some(tightest), reject: None, listed: None, .. } = over else {
            return None;
        };
        let ResponseOptions { http_11: true, to_head: false, keep: true, grpc: false, .. } = self.options
        else {
            return None;
        };
        let policy = tightest.policy;
        let is_used_up = match refusal.why {
            RefusalCause::Over { cost, left } => !(1..u64::from(cost.units())).contains(&left),
            _ => false,
        };
        let is_plain = self.cors.is_empty() && self.cookies.is_empty();
        let is_usual = is_used_up
            && is_plain
            && std::ptr::eq(tightest.limit, refusal.limit)
            && matches!(refusal.violated[..], [name] if name == &*policy.name)
            && policy.algorithm.as_concurrency().is_none()
            && self.errors.get(StatusCode::TOO_MANY_REQUESTS).is_none();
        let (date, request_id) = (self.date, self.request_id);
        let (seconds, remaining) = (refusal.retry_after()?, tightest.decision.remaining);
        is_usual.then_some(UsualRefusal { policy, seconds, remaining, date, request_id })
    }

    fn put_over_limit(mut self, over: &'b OverLimit<'_, '_>) -> LocalBody {
        if over.sets(b"x-request-id") {
            self.request_id = &[];
        }
        self.values.limit = &over.refusal.limit.name;
        self.values.retry_after = over.refusal.retry_after();
        if self.options.grpc {
            let seconds = over.refusal.retry_after();
            let mut buffer = itoa::Buffer::new();
            let text = seconds.map(|seconds| buffer.format(seconds));
            grpc::put_trailers_only(
                over.grpc_status(),
                |out| put_detail(out, over.refusal, text),
                self.outbound,
            );
            grpc::put_pushback(seconds, self.outbound);
            put_headers(self.headers, |name| over.sets(name), self.outbound);
            over.put_fields(!self.cors.is_empty(), &self.values, self.outbound);
            return self.end_head_without_headers();
        }
        let status = over.status();
        let own_type = over.reject.and_then(|reject| reject.content_type.as_ref());
        let own_body = over.reject.and_then(|reject| reject.body.as_ref());
        let page = self.errors.get(status);
        let large = own_body.or(page.map(|page| &page.body)).and_then(BodyTemplate::large);
        let (content_type, body) = match (own_body, page) {
            (Some(body), _) => {
                (own_type.map_or(PLAIN_TEXT, HeaderValue::as_bytes), body.text(&self.values, self.scrap))
            }
            (None, Some(page)) => (page.content_type.as_bytes(), page.body.text(&self.values, self.scrap)),
            (None, None) => {
                self.scrap.clear();
                put_over_limit(self.scrap, status, over.refusal);
                (own_type.map_or(PROBLEM_JSON, HeaderValue::as_bytes), &self.scrap[..])
            }
        };
        let no_store = !over.sets(b"cache-control");
        let own = LocalResponse { status, content_type, body, large, no_store };
        own.write(self.options, self.date, self.outbound, |out| {
            put_request_id(self.request_id, out);
            put_lines(out, self.cors);
            put_lines(out, self.cookies);
            put_headers(self.headers, |name| over.sets(name), out);
            over.put_fields(!self.cors.is_empty(), &self.values, out);
        })
    }
}

impl OverLimit<'_, '_> {
    /// The response's status.
    pub(crate) fn status(&self) -> StatusCode {
        match self.reject {
            None => self.refusal.status(),
            Some(reject) if self.is_asked => reject.failure_status(),
            Some(reject) => reject.status,
        }
    }

    /// The status of a gRPC call, whose success has another form.
    fn grpc_status(&self) -> StatusCode {
        self.reject.map_or_else(|| self.refusal.status(), Reject::failure_status)
    }

    /// Whether the config file sets a header of this name.
    fn sets(&self, name: &[u8]) -> bool {
        let mut fields = self.reject.iter().flat_map(|reject| &reject.headers);
        fields.any(|(own, _)| own.as_str().as_bytes() == name)
    }

    /// `cors`: the route sets CORS headers itself, so that the refusal does not.
    fn put_fields(&self, cors: bool, values: &TemplateValues<'_>, out: &mut BytesMut) {
        let seconds = self.refusal.retry_after();
        if let (Some(seconds), false) = (seconds, self.sets(b"retry-after")) {
            put_number(out, b"retry-after", seconds);
        }
        for (name, value) in self.reject.iter().flat_map(|reject| &reject.headers) {
            let ours = self.tightest.is_some() && is_ratelimit(self.which, name.as_str().as_bytes());
            if !(ours || cors && is_cors(name.as_str().as_bytes())) {
                value.put(name.as_str().as_bytes(), values, out);
            }
        }
        if let (Some(tightest), true) = (self.tightest, self.which != RatelimitHeaders::Off) {
            put_ratelimit(&mut TextHead(out), self.which, Some(tightest), self.listed, seconds);
        }
    }
}

/// Writes a response with these header lines.
fn put_fixed(
    status: StatusCode,
    fields: &[u8],
    (body, large): (&[u8], Option<&Bytes>),
    options: ResponseOptions,
    out: &mut BytesMut,
) -> LocalBody {
    put_status(out, status, None);
    out.extend_from_slice(fields);
    // RFC 9110 §8.6 and §15.4.5: these never have content.
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        put_number(out, b"content-length", body.len() as u64);
    }
    put_connection(options, out);
    out.extend_from_slice(b"\r\n");
    put_body(options, body, large, out)
}

/// Writes a problem document. Returns it.
fn problem_json<'s>(status: StatusCode, detail: &str, scrap: &'s mut BytesMut) -> &'s [u8] {
    scrap.clear();
    let title = title_of(status);
    put_all(scrap, &[r#"{"type":"about:blank","title":""#, title, r#"","status":"#, status.as_str()]);
    put_all(scrap, &[r#","detail":""#, detail, r#"","error":""#, title, r#""}"#]);
    scrap
}

fn put_request_id(id: &[u8], out: &mut BytesMut) {
    if !id.is_empty() {
        put_field(out, b"x-request-id", id);
    }
}

/// Writes the headers of every response, but for those that the response has otherwise.
fn put_headers(headers: &[(HeaderName, HeaderTemplate)], has: impl Fn(&[u8]) -> bool, out: &mut BytesMut) {
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        if !has(name) {
            value.put(name, &TemplateValues::default(), out);
        }
    }
}

fn put_all(out: &mut BytesMut, texts: &[&str]) {
    texts.iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
}

/// Limit and policy names are letters, digits and `_.-:/`, so nothing here needs escaping.
fn put_over_limit(out: &mut BytesMut, status: StatusCode, refusal: &Refusal<'_>) {
    let title = title_of(status);
    let mut buffer = itoa::Buffer::new();
    let seconds = refusal.retry_after().map(|seconds| buffer.format(seconds));
    out.reserve(BODY_ROOM);
    if status == StatusCode::TOO_MANY_REQUESTS {
        put_all(out, &[TOO_MANY]);
    } else {
        let kind = if refusal.why == RefusalCause::Overloaded { TEMPORARY } else { QUOTA_EXCEEDED };
        put_all(out, &[r#"{"type":""#, kind, r#"","title":""#, title, r#"","status":"#]);
        put_all(out, &[status.as_str(), r#","detail":""#]);
    }
    put_detail(out, refusal, seconds);
    put_all(out, &[r#"","error":""#, title, r#"","violated-policies":["#]);
    for (index, policy) in refusal.violated.iter().enumerate() {
        put_all(out, &[if index > 0 { ",\"" } else { "\"" }, policy, "\""]);
    }
    put_all(out, &["]"]);
    if let Some(seconds) = seconds {
        put_all(out, &[r#","retry_after":"#, seconds]);
    }
    put_all(out, &["}"]);
}

/// The reason for the refusal, as text.
#[inline]
fn put_detail(out: &mut BytesMut, refusal: &Refusal<'_>, seconds: Option<&str>) {
    let limit = &*refusal.limit.name;
    if let RefusalCause::Banned { rest, .. } = refusal.why {
        return put_ban(out, rest.seconds_rounded_up().max(1));
    }
    match seconds {
        Some(seconds) if refusal.why == RefusalCause::Overloaded => {
            put_all(out, &["the service is overloaded (limit `", limit, "`); retry after ", seconds, " s"]);
        }
        Some(seconds) if refusal.why == RefusalCause::OverShare => {
            put_all(out, &["more than its share of limit `", limit, "`; retry after ", seconds, " s"]);
        }
        _ if refusal.why == RefusalCause::Missing => {
            put_all(out, &["missing the key required by limit `", limit, "`"]);
        }
        Some(seconds) => match refusal.why {
            RefusalCause::Over { cost, left } if (1..u64::from(cost.units())).contains(&left) => {
                put_short(out, limit, (cost, left), seconds);
            }
            _ => put_all(out, &["limit `", limit, "` is used up; retry after ", seconds, " s"]),
        },
        None if refusal.why == RefusalCause::InFlight => {
            put_all(out, &["limit `", limit, "` allows no more requests at the same time"]);
        }
        None => put_all(out, &["the request costs more than limit `", limit, "` ever holds"]),
    }
}

/// The reason for the refusal of a request that costs more than is left.
#[cold]
fn put_short(out: &mut BytesMut, limit: &str, (cost, left): (Cost, u64), seconds: &str) {
    let (mut of_cost, mut of_left) = (itoa::Buffer::new(), itoa::Buffer::new());
    put_all(out, &["limit `", limit, "`: costs ", of_cost.format(cost.units()), ", "]);
    put_all(out, &[of_left.format(left), " left; retry after ", seconds, " s"]);
}

/// The remaining time of a ban, in the largest unit of which it is more than one, rounded up.
#[cold]
fn put_ban(out: &mut BytesMut, seconds: u64) {
    const UNITS: [(u64, &str); 4] = [(86_400, " days"), (3_600, " hours"), (60, " minutes"), (1, " seconds")];
    let unit = UNITS.into_iter().find(|(span, _)| seconds > *span);
    let (count, unit) = unit.map_or((1, " second"), |(span, unit)| (seconds.div_ceil(span), unit));
    let mut buffer = itoa::Buffer::new();
    put_all(out, &["client banned for another ", buffer.format(count), unit]);
}

fn title_of(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Refused")
}
