//! One request's turn on its connection: what is known of it, and the ways in which it is answered.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::body::{AnswerBody, Finish, client_gone_status};
use super::case::Objection;
use super::connection::Connection;
use super::headers::X_REQUEST_ID;
use super::worker::Plan;
use super::{refuse, tally};
use crate::gateway::admission::{Refusal, Tightest};
use crate::gateway::{RatelimitHeaders, Route};

/// An unread body up to this size is read before a refusal, so that the connection can stay open.
const DRAIN_BYTES: u64 = 64 << 10;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// One request's turn.
pub(crate) struct Turn {
    pub(crate) connection: Rc<Connection>,
    /// The plan that was in force when it began.
    pub(crate) plan: Rc<Plan>,
    pub(crate) finish: Finish,
}

impl Turn {
    pub(crate) fn begin(connection: Rc<Connection>, parts: &Parts) -> Self {
        let plan = connection.worker.plan();
        let started = connection.worker.shared.clock.now();
        let record = connection.worker.shared.access_log.enabled().then(|| {
            let client = plan.gateway.server.client.client(connection.peer);
            Box::new(tally::new_record(started, parts, client))
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
    pub(crate) fn unread(mut self) -> Self {
        if let (Some(record), Ok(none)) = (&mut self.finish.record, Method::from_bytes(b"-")) {
            record.method = none;
            record.path = Box::from("-");
        }
        self
    }

    /// `x-request-id`: what a trusted proxy sent, or a new one.
    pub(crate) fn request_id(&self, headers: &HeaderMap, trusted: bool) -> HeaderValue {
        match headers.get(X_REQUEST_ID) {
            Some(sent) if trusted => sent.clone(),
            _ => self.connection.worker.next_request_id(),
        }
    }

    /// Answers by ourselves, for another reason than a limit.
    pub(crate) async fn object(
        self,
        objection: &Objection,
        parts: &Parts,
        mut body: Incoming,
    ) -> Response<AnswerBody> {
        let kept = drain(parts, &mut body).await;
        let response = refuse::problem(objection.status, &objection.detail);
        if kept { self.reply(response, Some(objection.error)) } else { self.close(response, objection.error) }
    }

    /// Answers for a limit that refuses. `tightest` is what the answer's fields tell of.
    pub(crate) async fn over_limit(
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
            refuse::set_ratelimit(response.headers_mut(), which, tightest, refusal.retry_after());
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
