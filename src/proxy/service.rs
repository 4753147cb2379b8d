//! The story of one request: route or 404 → keys and cost → clock → store → forward, wait then forward, or refuse.

use std::borrow::Cow;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::body::{AnswerBody, Finish, client_gone_status};
use super::connection::Connection;
use super::forward::{self, Delivery};
use super::headers::X_REQUEST_ID;
use super::refuse;
use super::wire::Wire;
use super::worker::Plan;
use crate::gateway::admission::{Assessment, Refusal, Ruling, Sentence, Standing, Tightest, Use};
use crate::gateway::{Mode, RatelimitHeaders, Route};
use crate::limit::Verdict;
use crate::limit::units::Micros;
use crate::route::client::Client;
use crate::route::path::Path;
use crate::route::{self, RouteIndex};
use crate::store::Outcome;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::DecisionLabel;

/// An unread body up to this size is read before a refusal, so that the connection can stay open.
const DRAIN_BYTES: u64 = 64 << 10;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Answers one request.
pub(crate) async fn answer(
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let place = connection.take_up();
    let (parts, body) = request.into_parts();
    let turn = Turn::begin(connection, &parts);
    let response = match turn.connection.wire.fault_of(place) {
        Some(fault) => turn.unread().close(refuse::problem(fault.status(), fault.reason()), fault.reason()),
        None => turn.judge(parts, body).await,
    };
    Ok(response)
}

/// One request's turn on its connection.
pub(crate) struct Turn {
    pub(crate) connection: Rc<Connection>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) finish: Finish,
}

impl Turn {
    fn begin(connection: Rc<Connection>, parts: &Parts) -> Self {
        let plan = connection.worker.plan();
        let started = connection.worker.shared.clock.now();
        let record = connection.worker.shared.access_log.enabled().then(|| {
            let client = plan.gateway.server.client.client(connection.peer);
            Box::new(new_record(started, parts, client))
        });
        let finish = Finish {
            worker: Rc::clone(&connection.worker),
            plan: Rc::clone(&plan),
            wire: Rc::clone(&connection.wire),
            route: None,
            started,
            status: client_gone_status(),
            upload: None,
            sent: 0,
            unfinished: false,
            error: None,
            record,
        };
        Self { connection, plan, finish }
    }

    /// What was refused unread has neither method nor target: the record says so.
    fn unread(mut self) -> Self {
        if let (Some(record), Ok(none)) = (&mut self.finish.record, Method::from_bytes(b"-")) {
            record.method = none;
            record.path = Box::from("-");
        }
        self
    }

    /// Finds the route, asks the limits, and acts on what they say.
    async fn judge(mut self, parts: Parts, body: Incoming) -> Response<AnswerBody> {
        let plan = Rc::clone(&self.plan);
        let gateway = &*plan.gateway;
        let target = match Target::of(&parts) {
            Ok(target) => target,
            Err(reason) => {
                return self.refuse(StatusCode::BAD_REQUEST, reason, "malformed_host", &parts, body).await;
            }
        };
        if target.path == "*" {
            // OPTIONS about the server as a whole (RFC 9110 §9.3.7): routes are about paths.
            return self.no_route(&parts, body).await;
        }
        let path = match Path::parse(target.path) {
            Ok(path) => path,
            Err(fault) => {
                let detail = fault.to_string();
                return self.refuse(StatusCode::BAD_REQUEST, &detail, "malformed_path", &parts, body).await;
            }
        };
        let client = gateway.server.client.identify(self.connection.peer, &parts.headers);
        if let Some(record) = &mut self.finish.record {
            record.client = client.address;
            record.host = Box::from(&*target.host);
        }
        let request = route::Request {
            method: &parts.method,
            host: &target.host,
            path: &path,
            query: target.query,
            headers: &parts.headers,
            client,
        };
        let Some(index) = gateway.table.find(&request) else {
            return self.no_route(&parts, body).await;
        };
        let route = gateway.route(index);
        self.on_route(index, route);
        if let Some((status, detail, error)) = unacceptable(&parts, &body, route) {
            return self.refuse(status, detail, error, &parts, body).await;
        }
        let assessment = Assessment::new(gateway, route, &request, &self.connection.worker.shared.secret);
        let outcome = match assessment.missing() {
            Some(refusal) => {
                self.count(index, &assessment, &Outcome::default());
                return self.over_limit(&refusal, None, route, &parts, body).await;
            }
            None if assessment.charges.is_empty() => Outcome::default(),
            None => {
                self.connection.worker.shared.store.decide(&assessment.charges, self.finish.started).await
            }
        };
        self.count(index, &assessment, &outcome);
        let Ruling { sentence, tightest } = assessment.rule(&outcome);
        self.note(tightest.as_ref());
        match sentence {
            Sentence::Refuse(refusal) => {
                self.over_limit(&refusal, tightest.as_ref(), route, &parts, body).await
            }
            Sentence::Admit(delay) if !wait(delay, &self.connection.wire).await => {
                let mut nobody_reads_this = Response::new(Bytes::new());
                *nobody_reads_this.status_mut() = client_gone_status();
                self.close(nobody_reads_this, "client_gone")
            }
            Sentence::Admit(_) => {
                let path = path.form(route.conditions.merge_slashes);
                let uri = forward::forwarded_uri(&parts.uri, path, target.query, route);
                let delivery = Delivery { route, tightest: tightest.as_ref(), uri };
                forward::forward(self, delivery, parts, body).await
            }
        }
    }

    fn on_route(&mut self, index: RouteIndex, route: &Route) {
        self.finish.route = Some(index);
        if let Some(record) = &mut self.finish.record {
            record.route = Some(route.name.clone());
        }
    }

    /// Counts what each limit of the route said.
    fn count(&self, index: RouteIndex, assessment: &Assessment<'_>, outcome: &Outcome) {
        let admitted = assessment.missing().is_none()
            && assessment
                .uses
                .iter()
                .filter(|used| used.limit.mode == Mode::Enforce)
                .all(|used| !denies(used, outcome));
        for (place, used) in assessment.uses.iter().enumerate() {
            if let Some(label) = label(used, outcome, admitted) {
                self.plan.metrics.decision(index, place, label);
            }
        }
    }

    /// Notes the tightest limit for the access log.
    fn note(&mut self, tightest: Option<&Tightest<'_>>) {
        if let (Some(record), Some(tightest)) = (&mut self.finish.record, tightest) {
            record.limit = Some(tightest.limit.name.clone());
            record.remaining = Some(tightest.decision.remaining);
            record.cost = Some(tightest.cost.units());
            record.decision = Some(match tightest.decision.verdict {
                Verdict::Allow => "allowed",
                Verdict::Delay(_) => "delayed",
                Verdict::Deny(_) => "limited",
            });
        }
    }

    async fn no_route(self, parts: &Parts, body: Incoming) -> Response<AnswerBody> {
        self.refuse(StatusCode::NOT_FOUND, "no route matches", "no_route", parts, body).await
    }

    /// Answers by ourselves, for another reason than a limit.
    async fn refuse(
        self,
        status: StatusCode,
        detail: &str,
        error: &'static str,
        parts: &Parts,
        mut body: Incoming,
    ) -> Response<AnswerBody> {
        let kept = drain(parts, &mut body).await;
        let response = refuse::problem(status, detail);
        if kept { self.reply(response, Some(error)) } else { self.close(response, error) }
    }

    async fn over_limit(
        mut self,
        refusal: &Refusal<'_>,
        tightest: Option<&Tightest<'_>>,
        route: &Route,
        parts: &Parts,
        mut body: Incoming,
    ) -> Response<AnswerBody> {
        if let (Some(record), None) = (&mut self.finish.record, tightest) {
            record.limit = Some(refusal.limit.name.clone());
            record.decision = Some("limited");
        }
        let kept = drain(parts, &mut body).await;
        let reject = route.reject.as_deref().or(refusal.limit.reject.as_deref());
        let mut response = refuse::over_limit(refusal, reject);
        let which = self.plan.gateway.server.ratelimit_headers;
        if let (Some(tightest), true) = (tightest, which != RatelimitHeaders::Off) {
            let retry_after = refusal.wait.map(|wait| wait.seconds_rounded_up().max(1));
            refuse::set_ratelimit(response.headers_mut(), which, tightest, retry_after);
        }
        if !kept {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.reply(response, None)
    }

    /// Answers with a body of our own.
    pub(crate) fn reply(
        mut self,
        response: Response<Bytes>,
        error: Option<&'static str>,
    ) -> Response<AnswerBody> {
        self.finish.error = error;
        self.seal(response, AnswerBody::whole)
    }

    /// The same, and closes the connection after it.
    pub(crate) fn close(self, mut response: Response<Bytes>, error: &'static str) -> Response<AnswerBody> {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        self.reply(response, Some(error))
    }

    /// Puts the record of the exchange into the body, so that it is made when the body has gone.
    pub(crate) fn seal<B>(
        mut self,
        mut response: Response<B>,
        body: impl FnOnce(B, Finish) -> AnswerBody,
    ) -> Response<AnswerBody> {
        self.finish.status = response.status();
        if self.connection.is_worn_out() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(|source| body(source, self.finish))
    }
}

/// Where a request is addressed to.
struct Target<'a> {
    /// Lower case, without port and final dot.
    host: Cow<'a, str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn of(parts: &'a Parts) -> Result<Self, &'static str> {
        let named = match parts.uri.authority() {
            Some(authority) => authority.as_str(),
            None => match parts.headers.get(header::HOST) {
                Some(host) => host.to_str().map_err(|_| "the Host is not `host[:port]`")?,
                None => "",
            },
        };
        let path = match parts.uri.path() {
            // An absolute-form target may have no path (RFC 9112 §3.2.2).
            "" => "/",
            path => path,
        };
        Ok(Self { host: plain_host(named), path, query: parts.uri.query() })
    }
}

/// A host as routes compare it: lower case, without port and final dot.
fn plain_host(authority: &str) -> Cow<'_, str> {
    let end = match authority.rfind(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let host = &authority[..end];
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// What is wrong with a request that has a route: status, detail, and the reason for the log.
fn unacceptable(
    parts: &Parts,
    body: &Incoming,
    route: &Route,
) -> Option<(StatusCode, &'static str, &'static str)> {
    let expectation = parts.headers.get(header::EXPECT);
    if expectation.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Some((StatusCode::EXPECTATION_FAILED, "this expectation cannot be met", "expectation"));
    }
    let most = route.max_body_bytes?;
    (body.size_hint().lower() > most).then_some((
        StatusCode::PAYLOAD_TOO_LARGE,
        "the request body is too large",
        "body_too_large",
    ))
}

/// Waits for the request's turn. False if the client left meanwhile: its slot passes unused.
async fn wait(delay: Micros, wire: &Wire) -> bool {
    if delay == Micros(0) {
        return true;
    }
    tokio::select! {
        biased;
        () = wire.client_gone() => false,
        () = tokio::time::sleep(Duration::from_micros(delay.0)) => true,
    }
}

fn denies(used: &Use<'_>, outcome: &Outcome) -> bool {
    used.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Deny(_)))
}

/// How a limit's word is counted; not at all if it neither charged nor refused.
fn label(used: &Use<'_>, outcome: &Outcome, admitted: bool) -> Option<DecisionLabel> {
    let shadow = used.limit.mode == Mode::Shadow;
    let refused = if shadow { DecisionLabel::ShadowLimited } else { DecisionLabel::Limited };
    let delayed =
        || used.decisions(outcome).iter().any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
    match used.standing {
        Standing::Exempt => Some(DecisionLabel::Exempt),
        Standing::Missing => Some(refused),
        Standing::Charged(..) if denies(used, outcome) => Some(refused),
        Standing::Charged(..) if !admitted || outcome.decisions.is_empty() => None,
        Standing::Charged(..) if !shadow && delayed() => Some(DecisionLabel::Delayed),
        Standing::Charged(..) => Some(DecisionLabel::Allowed),
        Standing::Free | Standing::Skipped => None,
    }
}

/// Reads what is left of a small body, so that the connection can serve the next request. False if it cannot.
///
/// A client that waits for `100 Continue` is not asked for its body only to throw it away.
pub(crate) async fn drain(parts: &Parts, body: &mut Incoming) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if parts.headers.contains_key(header::EXPECT) || body.size_hint().lower() > DRAIN_BYTES {
        return false;
    }
    let reading = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            read += frame.data_ref().map_or(0, Bytes::len) as u64;
            if read > DRAIN_BYTES {
                return false;
            }
        }
        true
    };
    timeout(DRAIN_TIME, reading).await.unwrap_or(false)
}

fn new_record(started: crate::limit::units::Timestamp, parts: &Parts, client: Client) -> Record {
    let field = |name| parts.headers.get(name).map(|value: &HeaderValue| Box::from(value.as_bytes()));
    Record {
        time: started,
        method: parts.method.clone(),
        version: parts.version,
        host: Box::default(),
        path: sent_target(&parts.uri),
        route: None,
        status: StatusCode::OK,
        bytes_in: 0,
        bytes_out: 0,
        duration: Micros(0),
        upstream: None,
        upstream_duration: None,
        client: client.address,
        request_id: Box::default(),
        limit: None,
        decision: None,
        remaining: None,
        cost: None,
        error: None,
        referer: field(header::REFERER),
        user_agent: field(header::USER_AGENT),
    }
}

fn sent_target(uri: &Uri) -> Box<str> {
    uri.path_and_query().map_or_else(|| Box::from(uri.path()), |path| Box::from(path.as_str()))
}

/// `x-request-id`: what a trusted proxy sent, or a new one.
pub(crate) fn request_id(turn: &Turn, headers: &HeaderMap, trusted: bool) -> HeaderValue {
    match headers.get(X_REQUEST_ID) {
        Some(sent) if trusted => sent.clone(),
        _ => turn.connection.worker.next_request_id(),
    }
}

/// HTTP/1.0 clients are answered in their version by hyper; this is what backends are spoken to in.
pub(crate) const BACKEND_VERSION: Version = Version::HTTP_11;
