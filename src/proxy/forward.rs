//! An admitted request on its way to its backend, and the backend's answer on its way back.

use std::rc::Rc;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::{Body as _, Incoming};

use super::body::{AnswerBody, Download};
use super::headers::{self, Sender, X_REQUEST_ID};
use super::refuse;
use super::turn::{Turn, drain};
use super::wire::BodyFault;
use crate::gateway::admission::Tightest;
use crate::gateway::{Backend, RatelimitHeaders, Route, Upstream};
use crate::route::path::without_prefix;
use crate::upstream::upload::{Broken, Upload, UploadState};
use crate::upstream::{Exchange, Failed, Failure, echo};

/// What backends are spoken to in, and clients answered in unless they speak HTTP/1.0: hyper sees to that.
const BACKEND_VERSION: Version = Version::HTTP_11;

/// Where an admitted request goes.
pub(crate) struct Delivery<'a> {
    pub(crate) route: &'a Route,
    pub(crate) tightest: Option<&'a Tightest<'a>>,
    /// The target that the backend sees; `None`: as the client sent it.
    pub(crate) uri: Option<Uri>,
}

/// Sends the request on and passes the answer back.
pub(crate) async fn forward(
    mut turn: Turn,
    delivery: Delivery<'_>,
    mut parts: Parts,
    mut body: Incoming,
) -> Response<AnswerBody> {
    let plan = Rc::clone(&turn.plan);
    let upstream = plan.gateway.upstream(delivery.route.upstream);
    let upgrade = wanted_upgrade(&parts, &body);
    if upstream.backend == Backend::Echo {
        let kept = drain(&parts, &mut body).await;
        prepare(&mut turn, &delivery, upstream, &mut parts, &body, upgrade.as_ref());
        return answer_echo(turn, &delivery, &parts, kept);
    }
    prepare(&mut turn, &delivery, upstream, &mut parts, &body, upgrade.as_ref());
    let upload = UploadState::new(delivery.route.max_body_bytes);
    turn.finish.upload = Some(Rc::clone(&upload));
    let request = Request::from_parts(parts, Upload::new(body, Rc::clone(&upload)));
    let servers = &plan.servers[delivery.route.upstream.0];
    let clock = &turn.connection.worker.shared.clock;
    let asked = clock.now();
    let sent = {
        // Only this connection's requests wait here, and they are served one at a time.
        let mut deadline = turn.connection.backend_deadline.take();
        let sent = servers.send(request, &upload, delivery.route.timeout, &mut deadline).await;
        turn.connection.backend_deadline.replace(deadline);
        sent
    };
    match sent {
        Ok(exchange) => {
            let took = clock.now().since(asked);
            plan.metrics.upstream(delivery.route.upstream, took);
            if let Some(record) = &mut turn.finish.record {
                record.upstream_duration = Some(took);
                record.upstream = exchange.lease.authority().map(|authority| label(upstream, authority));
            }
            pass_back(turn, &delivery, exchange, &upload, upgrade.as_ref())
        }
        Err(failed) => fail(turn, upstream, &failed, &upload),
    }
}

fn label(upstream: &Upstream, authority: &str) -> Box<str> {
    format!("{}/{authority}", upstream.name).into()
}

/// The target that the backend sees, if it is not the one that the client sent: the normalised path less the route's
/// prefix, in origin-form.
pub(crate) fn forwarded_uri(sent: &Uri, path: &str, query: Option<&str>, route: &Route) -> Option<Uri> {
    let path = route.strip_prefix.as_deref().map_or(path, |prefix| without_prefix(path, prefix));
    if sent.authority().is_none() && sent.path() == path {
        return None;
    }
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    // Path and query were both parts of a good target.
    PathAndQuery::from_maybe_shared(Bytes::from(text)).ok().map(Uri::from)
}

/// The protocol that the client asks to switch to. `h2c` is not passed on: behind such a tunnel requests would go unseen.
fn wanted_upgrade(parts: &Parts, body: &Incoming) -> Option<HeaderValue> {
    let named = parts
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .any(|value| value.as_bytes().split(|&byte| byte == b',').any(is_upgrade));
    let protocol = parts.headers.get(header::UPGRADE)?;
    let http2 = protocol.as_bytes().to_ascii_lowercase().starts_with(b"h2");
    (named && body.is_end_stream() && !http2).then(|| protocol.clone())
}

fn is_upgrade(item: &[u8]) -> bool {
    item.trim_ascii().eq_ignore_ascii_case(b"upgrade")
}

/// Makes the client's head the backend's.
fn prepare(
    turn: &mut Turn,
    delivery: &Delivery<'_>,
    upstream: &Upstream,
    parts: &mut Parts,
    body: &Incoming,
    upgrade: Option<&HeaderValue>,
) {
    let server = &turn.plan.gateway.server;
    let trusted = server.client.trusts(turn.connection.peer);
    let headers = &mut parts.headers;
    if let Some(authority) = parts.uri.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok())
    {
        headers.insert(header::HOST, authority);
    }
    headers::strip_hop_by_hop(headers);
    headers.remove(header::EXPECT);
    frame(headers, body);
    let id = turn.request_id(headers, trusted);
    if let Some(record) = &mut turn.finish.record {
        record.request_id = Box::from(id.to_str().unwrap_or_default());
    }
    headers.insert(X_REQUEST_ID, id);
    headers::set_forwarded(headers, Sender { peer: &turn.connection.peer_value, trusted });
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    if let Some(host) = &upstream.host {
        headers.insert(header::HOST, host.clone());
    }
    if !headers.contains_key(header::HOST) {
        // An HTTP/1.0 client may send none, but HTTP/1.1 wants one.
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    }
    if server.via {
        headers::append_via(headers);
    }
    headers::edit(headers, &delivery.route.request_headers);
    if let Some(uri) = &delivery.uri {
        parts.uri = uri.clone();
    }
    parts.version = BACKEND_VERSION;
}

/// Says how the body is framed: hyper's client sends no body with GET, HEAD or CONNECT unless told so.
fn frame(headers: &mut HeaderMap, body: &Incoming) {
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

fn answer_echo(turn: Turn, delivery: &Delivery<'_>, parts: &Parts, kept: bool) -> Response<AnswerBody> {
    let mut response = Response::new(echo::echo(parts));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    finish_head(&turn, delivery, response.headers_mut());
    if !kept {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    turn.reply(response, None)
}

/// The last touches to a backend's head: the route's edits, and the fields of the tightest limit.
fn finish_head(turn: &Turn, delivery: &Delivery<'_>, headers: &mut HeaderMap) {
    headers::edit(headers, &delivery.route.response_headers);
    let which = turn.plan.gateway.server.ratelimit_headers;
    if let (Some(tightest), true) = (delivery.tightest, which != RatelimitHeaders::Off) {
        refuse::set_ratelimit(headers, which, tightest, None);
    }
}

/// Passes the backend's answer to the client.
fn pass_back(
    turn: Turn,
    delivery: &Delivery<'_>,
    exchange: Exchange,
    upload: &Rc<UploadState>,
    upgrade: Option<&HeaderValue>,
) -> Response<AnswerBody> {
    let (mut head, body) = exchange.response.into_parts();
    head.version = BACKEND_VERSION;
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let accepted = head.headers.get(header::UPGRADE).cloned();
        let (Some(_), Some(accepted)) = (upgrade, accepted) else {
            let response = refuse::problem(StatusCode::BAD_GATEWAY, "the upstream sent an invalid response");
            return turn.reply(response, Some("protocol"));
        };
        headers::strip_hop_by_hop(&mut head.headers);
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(header::UPGRADE, accepted);
        finish_head(&turn, delivery, &mut head.headers);
        turn.connection.tunnel.replace(Some(exchange.lease));
        turn.connection.wire.grant_upgrade();
        return turn.seal(Response::from_parts(head, Bytes::new()), AnswerBody::whole);
    }
    headers::strip_hop_by_hop(&mut head.headers);
    finish_head(&turn, delivery, &mut head.headers);
    if !upload.is_done() {
        // An early answer: what is left of the request's body would have to be read before the next request.
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let download = Download::new(body, exchange.lease, Rc::clone(upload), delivery.route.read_timeout);
    turn.seal(Response::from_parts(head, download), AnswerBody::download)
}

/// The answer where the backend gave none.
fn fail(mut turn: Turn, upstream: &Upstream, failed: &Failed, upload: &UploadState) -> Response<AnswerBody> {
    if let Some(record) = &mut turn.finish.record {
        record.upstream = Some(label(upstream, &failed.authority));
    }
    let (status, detail, error) = match failed.failure {
        Failure::Connect => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached", "connect"),
        Failure::ConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream cannot be reached in time", "connect_timeout")
        }
        Failure::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time", "timeout"),
        Failure::Reset => (StatusCode::BAD_GATEWAY, "the upstream broke off", "reset"),
        Failure::Protocol => (StatusCode::BAD_GATEWAY, "the upstream sent an invalid response", "protocol"),
        Failure::Upload => upload_fault(upload, turn.connection.wire.body_fault()),
    };
    let response = refuse::problem(status, detail);
    if upload.is_done() { turn.reply(response, Some(error)) } else { turn.close(response, error) }
}

/// What was wrong with the request's body.
fn upload_fault(
    upload: &UploadState,
    on_the_wire: Option<BodyFault>,
) -> (StatusCode, &'static str, &'static str) {
    match (upload.broken(), on_the_wire) {
        (Some(Broken::TooLarge), _) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large", "body_too_large")
        }
        (_, Some(BodyFault::Timeout)) => {
            (StatusCode::REQUEST_TIMEOUT, "the request body did not come in time", "body_timeout")
        }
        (_, Some(BodyFault::Gone)) => (StatusCode::BAD_REQUEST, "the request body broke off", "client_gone"),
        (_, Some(BodyFault::Malformed) | None) => {
            (StatusCode::BAD_REQUEST, "the request body is malformed", "malformed_body")
        }
    }
}
