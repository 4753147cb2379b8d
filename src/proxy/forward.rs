//! An admitted request on its way to its backend, and the backend's answer on its way back.

use std::borrow::Cow;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::{Method, StatusCode};

use super::answer::{Form, put_connection};
use super::buffers::Buffers;
use super::case::Case;
use super::connection::After;
use super::cors::is_cors;
use super::download::{self, Cut, Download};
use super::echo;
use super::grpc;
use super::headers::{
    Onward, only, put_answer_fields, put_field, put_lines, put_number, put_status, touches, wanted_upgrade,
};
use super::peer::Peer;
use super::reader::{BodyFault, Watch};
use super::refuse::{is_ratelimit, put_ratelimit};
use super::service::send;
use super::session::Session;
use super::turn::Turn;
use super::upload::{Terms, Upload};
use super::worker::Plan;
use super::writer::ResponseWriter;
use crate::clock::deadline::Deadline;
use crate::gateway::admission::Tightest;
use crate::gateway::{Backend, Protocol, RatelimitHeaders, RequestIds, Route, Upstream, UpstreamIndex};
use crate::http1::fields::Fields;
use crate::http1::login::binds_connection;
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::http1::response::{Framing, ResponseHead};
use crate::http1::syntax::{has_item, is_named};
use crate::http1::trailers::Trailers;
use crate::limit::units::Timestamp;
use crate::upstream::exchange::{self, Answer, Exchange, Request};
use crate::upstream::{Failed, Failure};

/// Where an admitted request goes, and what its answer depends on. Outlives the request's head.
pub(crate) struct Delivery<'p> {
    route: &'p Route,
    tightest: Option<Tightest<'p>>,
    /// Sending it twice does what sending it once does (RFC 9110 §9.2.2).
    idempotent: bool,
    /// The protocol that the client may be told to switch to.
    upgrade: Option<Box<[u8]>>,
    /// It takes trailers.
    trailers: bool,
    /// What a hash chooses the server by.
    affinity: u64,
    /// It carries a login that holds for the backend's connection.
    private: bool,
    /// When it was admitted, and had waited for its turn.
    since: Timestamp,
}

impl<'p> Delivery<'p> {
    pub(crate) fn new(
        case: &Case<'p, '_>,
        head: &RequestHead<'_>,
        tightest: Option<Tightest<'p>>,
        since: Timestamp,
    ) -> Self {
        let takes_trailers = |value| has_item(value, b"trailers");
        Self {
            route: case.route,
            tightest,
            idempotent: is_idempotent(&head.method),
            upgrade: wanted_upgrade(head).map(Box::from),
            // HTTP/1.0 has no chunks, and so no trailers.
            trailers: head.http_11 && head.fields.all_known(Name::Te).any(takes_trailers),
            affinity: case.affinity,
            private: head.fields.all_known(Name::Authorization).any(binds_connection),
            since,
        }
    }

    /// Writes the head that the backend is to see.
    pub(crate) fn write_head(
        &self,
        turn: &mut Turn,
        head: &RequestHead<'_>,
        target: Cow<'_, str>,
        peer: &Peer,
        out: &mut BytesMut,
    ) {
        let plan = Rc::clone(&turn.plan);
        let server = &plan.gateway.server;
        let trusted = server.client.trusts(peer.address);
        if turn.trace.is_some() {
            turn.trace_way(self.route.upstream, &target, self.since);
        }
        let onward = Onward {
            target,
            upstream: plan.gateway.upstream(self.route.upstream),
            peer: peer.text.as_bytes(),
            scheme: peer.scheme,
            trusted,
            source: &server.client.source,
            client: turn.client,
            request_id: &turn.request_id,
            loop_mark: &turn.worker.shared.loop_mark,
            upgrade: self.upgrade.as_deref(),
            trailers: self.trailers,
            via: server.via,
            trace: turn.trace.as_ref(),
            edits: &self.route.request_headers,
        };
        onward.write(head, out);
    }

    /// A switch to a protocol that the client did not ask for is no answer.
    fn is_answer<U: exchange::Upload>(&self, exchange: &Exchange<'_, U>, head: &ResponseHead) -> bool {
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return true;
        }
        let protocol = only(exchange.fields(head).all_known(Name::Upgrade));
        let is_asked = |asked: &[u8]| protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(asked));
        self.upgrade.as_deref().is_some_and(is_asked)
    }

    /// What the backend sent is no answer, though its head is one.
    fn no_answer<U: exchange::Upload>(&self, turn: &Turn, exchange: &Exchange<'_, U>) -> Failed {
        turn.plan.metrics.failed_attempts(self.route.upstream, 1);
        let authority = Some(Arc::clone(exchange.authority()));
        Failed { failure: Failure::Protocol, authority, attempts: exchange.attempts() }
    }

    /// Bytes that a request's body may have; `None`: no bound.
    pub(super) fn max_body_bytes(&self) -> Option<u64> {
        self.route.max_body_bytes
    }

    /// How long the backend may be silent.
    pub(crate) fn silence(&self) -> Duration {
        self.route.read_timeout
    }

    fn upstream<'t>(&self, turn: &'t Turn) -> &'t Upstream {
        turn.plan.gateway.upstream(self.route.upstream)
    }
}

/// RFC 9110 §9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

/// Sends the request on, whose head stands in the message, and passes the answer back.
pub(crate) async fn forward(
    session: &mut Session,
    turn: &mut Turn,
    delivery: &Delivery<'_>,
    mut terms: Terms,
    form: Form,
) -> After {
    let plan = Rc::clone(&turn.plan);
    if plan.gateway.upstream(delivery.route.upstream).backend == Backend::Echo {
        return echo::answer(session, turn, delivery, terms, form).await;
    }
    let Session { peer, reader, writer, backend_deadline, private: own, buffers, .. } = &mut *session;
    let Buffers { inbound, message, answer, outbound, .. } = &mut **buffers.get_or_insert_default();
    let client_http2 = peer.http2;
    let backend_http2 = plan.gateway.upstream(delivery.route.upstream).protocol == Protocol::Http2;
    if backend_http2 {
        terms.turn_to_http2(client_http2);
    }
    answer.bytes.clear();
    let mut watch = Watch::new(reader);
    let mut upload = Upload::new(terms, delivery.route.max_body_bytes, reader, inbound);
    let &Delivery { route, idempotent, affinity, private, since: asked, .. } = delivery;
    if form.http_11 {
        upload.pass_hints(&route.response_headers);
    }
    let (body, to_head) = (&mut upload, form.to_head);
    let request = Request { message, body, answer, idempotent, to_head, affinity, private, own };
    let now = turn.worker.shared.clock.instant(asked);
    let sent = {
        let servers = &plan.servers[route.upstream.0];
        let mut sending = pin!(servers.send(request, now, route.timeout, backend_deadline));
        poll_fn(|context| match sending.as_mut().poll(context) {
            Poll::Ready(sent) => Poll::Ready(Some(sent)),
            Poll::Pending => watch.poll(context).map(|()| None),
        })
        .await
    };
    count_attempts(&plan, route.upstream);
    let failed = match sent {
        None => {
            turn.received = upload.bytes();
            turn.error = Some("client_gone");
            return After::Drop;
        }
        Some(Ok((exchange, head))) if delivery.is_answer(&exchange, &head) => {
            let took = turn.worker.shared.clock.now().since(asked);
            plan.metrics.upstream(route.upstream, took);
            plan.metrics.response(route.upstream, exchange.place(), head.status);
            turn.note_server(route.upstream, exchange.authority(), Some(took));
            if turn.trace.is_some() {
                let (server, attempts) = (exchange.authority(), exchange.attempts());
                turn.trace_answer(route.upstream, Some(server), attempts, Some(head.status));
            }
            let (watch, deadline) = (client_http2.then_some(watch), backend_deadline);
            let http2 = client_http2 && backend_http2;
            let passage = Passage { delivery, form, http2, turn, outbound, writer, watch, deadline };
            match passage.run(exchange, head).await {
                Ok(after) => return after,
                Err(failed) => failed,
            }
        }
        Some(Ok((exchange, _))) => delivery.no_answer(turn, &exchange),
        Some(Err(failed)) => failed,
    };
    turn.received = upload.bytes();
    if let Some(error) = lost_client(upload.fault(), client_http2) {
        if upload.fault() == Some(BodyFault::Stalled) {
            writer.give_up();
        }
        turn.error = Some(error);
        return After::Drop;
    }
    upload.end_interim(outbound);
    let (done, fault) = (upload.is_done(), upload.fault());
    fail(session, turn, delivery, &failed, fault, Form { keep: form.keep && done, ..form }).await
}

/// Counts the attempts that were not answered, and those that another followed.
fn count_attempts(plan: &Plan, upstream: UpstreamIndex) {
    let servers = &plan.servers[upstream.0];
    plan.metrics.failed_attempts(upstream, servers.take_failed_attempts());
    for (server, failure) in servers.take_retries() {
        plan.metrics.retry(upstream, server, failure);
    }
}

/// Why a client whose body broke off cannot be told so: it has reset its stream, or takes nothing.
fn lost_client(fault: Option<BodyFault>, http2: bool) -> Option<&'static str> {
    match fault {
        Some(BodyFault::Gone) if http2 => Some("client_gone"),
        Some(BodyFault::Stalled) => Some("write_timeout"),
        _ => None,
    }
}

/// An answer on its way from a backend to the client.
struct Passage<'c, 'p> {
    delivery: &'c Delivery<'p>,
    form: Form,
    /// Both the client and the backend speak HTTP/2.
    http2: bool,
    turn: &'c mut Turn,
    outbound: &'c mut BytesMut,
    writer: &'c mut ResponseWriter,
    /// A stream of HTTP/2 tells at once that the client takes it back; of a socket, only writing does.
    watch: Option<Watch>,
    deadline: &'c mut Deadline,
}

impl Passage<'_, '_> {
    /// # Errors
    /// The answer is none, and nothing of it went out.
    async fn run(
        mut self,
        mut exchange: Exchange<'_, Upload<'_>>,
        head: ResponseHead,
    ) -> Result<After, Failed> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(self.switch(exchange, &head).await);
        }
        // An early answer: what is left of the request's body would have to be read before the next request.
        self.form.keep &= exchange.body().is_done() && !self.turn.worker.is_draining();
        let framing = self.frame(&head);
        let trailers = self.trailers(exchange.answer().fields(&head));
        exchange.body().end_interim(self.outbound);
        let head_begins = self.outbound.len();
        self.put_head(exchange.answer(), &head, framing);
        exchange.answer().bytes.advance(head.length);
        self.turn.answered(head.status, None);
        let mut download = Download::new(head.framing, framing, trailers, self.delivery.route.read_timeout);
        let Self { form: Form { grpc, .. }, outbound, writer, watch, deadline, .. } = &mut self;
        let passed = poll_fn(|context| {
            if watch.as_mut().is_some_and(|watch| watch.poll(context).is_ready()) {
                return Poll::Ready(Err(Cut::Client));
            }
            let passed = download.poll_pass(context, &mut exchange, outbound, writer, deadline);
            match exchange.body().fault().filter(|_| *grpc && passed.is_pending()) {
                Some(fault) => Poll::Ready(Err(Cut::Messages(fault))),
                None => passed,
            }
        });
        let passed = passed.await;
        self.turn.sent = download.sent();
        self.turn.received = exchange.body().bytes();
        Ok(match passed {
            Ok(()) => {
                exchange.finish(&head, self.delivery.upstream(self.turn).idle_timeout);
                if self.form.keep { After::Keep } else { After::Close }
            }
            Err(Cut::Unsent) => {
                self.outbound.truncate(head_begins);
                return Err(self.delivery.no_answer(self.turn, &exchange));
            }
            Err(Cut::Messages(fault)) if framing == download::Form::Frames => self.end_call(fault),
            Err(cut) => {
                let unbounded = framing == download::Form::Plain && head.content_length.is_none();
                self.cut(cut, unbounded)
            }
        })
    }

    /// Ends a call in the middle of its answer, in the way that gRPC has for that.
    fn end_call(self, fault: BodyFault) -> After {
        let (status, detail, error) = upload_fault(Some(fault));
        self.turn.error = Some(error);
        let mut trailers = BytesMut::new();
        grpc::put_status_of(status, |out| out.extend_from_slice(detail.as_bytes()), &mut trailers);
        if let ResponseWriter::Http2(stream) = self.writer
            && stream.end(&trailers).is_ok()
        {
            return After::Close;
        }
        After::Drop
    }

    /// How the body is framed for the client.
    fn frame(&mut self, head: &ResponseHead) -> download::Form {
        match head.framing {
            Framing::None | Framing::Length(_) => download::Form::Plain,
            _ if self.form.http2 => download::Form::Frames,
            Framing::Chunked | Framing::UntilClose if self.form.http_11 => download::Form::Chunked,
            Framing::Chunked | Framing::UntilClose => {
                // HTTP/1.0 has no chunks: the end of the connection ends the body.
                self.form.keep = false;
                download::Form::Plain
            }
        }
    }

    /// Which trailers may travel on, if the client takes any.
    fn trailers(&self, fields: Fields<'_>) -> Trailers {
        match self.delivery.trailers {
            false => Trailers::NONE,
            true if self.http2 => Trailers::All,
            true => Trailers::declared(fields),
        }
    }

    /// Writes the backend's head as the client is to see it.
    fn put_head(&mut self, answer: &Answer, head: &ResponseHead, framing: download::Form) {
        let out = &mut *self.outbound;
        put_status(out, head.status, answer.bytes.get(head.reason.0..head.reason.1));
        put_fields(self.turn, self.delivery, answer.fields(head), out);
        match (framing, head.content_length) {
            (download::Form::Chunked, _) => put_field(out, b"transfer-encoding", b"chunked"),
            // RFC 9110 §8.6 forbids it with 204.
            (download::Form::Plain, Some(length)) if head.status != StatusCode::NO_CONTENT => {
                put_number(out, b"content-length", length);
            }
            (download::Form::Plain | download::Form::Frames, _) => {}
        }
        put_connection(self.form, out);
        out.extend_from_slice(b"\r\n");
    }

    /// The backend agrees to switch protocols: what follows is not HTTP.
    async fn switch(self, mut exchange: Exchange<'_, Upload<'_>>, head: &ResponseHead) -> After {
        let out = &mut *self.outbound;
        exchange.body().end_interim(out);
        let fields = exchange.answer().fields(head);
        let protocol = fields.known(Name::Upgrade).unwrap_or_default();
        put_status(out, head.status, None);
        put_fields(self.turn, self.delivery, fields, out);
        put_field(out, b"connection", b"upgrade");
        put_field(out, b"upgrade", protocol);
        out.extend_from_slice(b"\r\n");
        exchange.answer().bytes.advance(head.length);
        self.turn.answered(head.status, None);
        match self.writer.send(self.outbound, 0).await {
            Ok(()) => After::Tunnel(exchange.into_connection(), self.delivery.route.tunnel_timeout),
            Err(_) => self.cut(Cut::Client, false),
        }
    }

    /// The head is out, the body will not come: only the connection can tell.
    /// `unbounded`: as the end of the connection ends the body, too, only a reset says that it is not whole.
    fn cut(self, cut: Cut, unbounded: bool) -> After {
        let client = if self.writer.is_stalled() { "write_timeout" } else { "client_gone" };
        self.turn.error = Some(match cut {
            Cut::Backend | Cut::Unsent => "response_cut",
            Cut::Client => client,
            Cut::Messages(fault) => upload_fault(Some(fault)).2,
        });
        if unbounded {
            self.writer.reset();
        }
        if cut != Cut::Client && !unbounded { After::Close } else { After::Drop }
    }
}

/// Writes the fields of an answer that was admitted: the route's edits, and what the tightest limit says.
pub(super) fn put_fields(turn: &Turn, delivery: &Delivery<'_>, fields: Fields<'_>, out: &mut BytesMut) {
    let which = turn.plan.gateway.server.ratelimit_headers;
    let tightest = delivery.tightest.as_ref().filter(|_| which != RatelimitHeaders::Off);
    let cors = delivery.route.cors.is_some();
    let all_ids = turn.plan.gateway.server.request_id == RequestIds::All;
    let replaced = |name: &[u8]| {
        (tightest.is_some() && is_ratelimit(which, name))
            || (cors && is_cors(name))
            || (all_ids && is_named(name, b"x-request-id"))
    };
    put_answer_fields(fields, &delivery.route.response_headers, replaced, out);
    if all_ids {
        put_request_id(turn, delivery, out);
    }
    put_lines(out, &turn.cors);
    if let Some(tightest) = tightest {
        put_ratelimit(out, which, tightest, None);
    }
    if fields.known(Name::Date).is_none() {
        put_field(out, b"date", &turn.worker.date(turn.started));
    }
}

/// Writes `x-request-id`, on which the route's edits have the last word.
pub(super) fn put_request_id(turn: &Turn, delivery: &Delivery<'_>, out: &mut BytesMut) {
    if !touches(&delivery.route.response_headers, b"x-request-id") {
        put_field(out, b"x-request-id", &turn.request_id);
    }
}

/// The answer where the backend gave none.
async fn fail(
    session: &mut Session,
    turn: &mut Turn,
    delivery: &Delivery<'_>,
    failed: &Failed,
    body: Option<BodyFault>,
    form: Form,
) -> After {
    turn.trace_answer(delivery.route.upstream, failed.authority.as_ref(), failed.attempts, None);
    if let Some(authority) = &failed.authority {
        turn.note_server(delivery.route.upstream, authority, None);
    }
    turn.plan.metrics.upstream_failed(delivery.route.upstream, failed.failure);
    let word = failed.failure.as_str();
    let (status, detail, error) = match failed.failure {
        Failure::NoneHealthy => {
            (StatusCode::SERVICE_UNAVAILABLE, "no server of the upstream is healthy", word)
        }
        Failure::Full => (StatusCode::SERVICE_UNAVAILABLE, "the upstream has no connection to spare", word),
        Failure::Connect => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached", word),
        Failure::ConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream cannot be reached in time", word)
        }
        Failure::Tls => (StatusCode::BAD_GATEWAY, "the upstream cannot be reached securely", word),
        Failure::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time", word),
        Failure::Reset => (StatusCode::BAD_GATEWAY, "the upstream broke off", word),
        Failure::Protocol => (StatusCode::BAD_GATEWAY, "the upstream sent an invalid response", word),
        Failure::Upload => upload_fault(body),
    };
    turn.answered(status, Some(error));
    send(session, turn, form, |page| page.problem(status, detail)).await
}

/// What was wrong with the request's body: status, detail and the access log's `error`.
pub(super) fn upload_fault(fault: Option<BodyFault>) -> (StatusCode, &'static str, &'static str) {
    match fault {
        Some(BodyFault::TooLarge) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large", "body_too_large")
        }
        Some(BodyFault::Timeout) => {
            (StatusCode::REQUEST_TIMEOUT, "the request body did not come in time", "body_timeout")
        }
        Some(BodyFault::Gone) => (StatusCode::BAD_REQUEST, "the request body broke off", "client_gone"),
        Some(BodyFault::Stalled) => {
            (StatusCode::REQUEST_TIMEOUT, "the client takes nothing", "write_timeout")
        }
        Some(BodyFault::Malformed) | None => {
            (StatusCode::BAD_REQUEST, "the request body is malformed", "malformed_body")
        }
    }
}
