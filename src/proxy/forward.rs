//! An admitted request on its way to its backend, and the backend's answer on its way back.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Buf as _, BytesMut};
use http::StatusCode;

use super::answer::put_connection;
use super::body_fault::upload_fault;
use super::buffers::Buffers;
use super::delivery::{Delivery, put_fields};
use super::download::{self, Cut, Download};
use super::echo;
use super::grpc;
use super::headers::{put_field, put_number, put_status};
use super::next_action::NextAction;
use super::reader::{BodyFault, Watch};
use super::respond::send_problem;
use super::session::Session;
use super::turn::Turn;
use super::upload::Upload;
use super::worker::Plan;
use super::writer::ResponseWriter;
use crate::clock::deadline::Deadline;
use crate::gateway::{Backend, Protocol, UpstreamIndex};
use crate::http1::fields::Fields;
use crate::http1::name::Name;
use crate::http1::response::{Framing, ResponseHead};
use crate::http1::trailers::Trailers;
use crate::upstream::exchange::{Answer, Exchange, Request};
use crate::upstream::{Failed, Failure};

/// Sends the request on, whose head stands in the message, and passes the answer back.
pub(crate) async fn forward(session: &mut Session, turn: &mut Turn, delivery: &Delivery<'_>) -> NextAction {
    let plan = Rc::clone(&turn.plan);
    if turn.form.grpc {
        turn.terms.turn_to_messages(delivery.silence());
    }
    if plan.gateway.upstream(delivery.route.upstream).backend == Backend::Echo {
        return echo::answer(session, turn, delivery).await;
    }
    let Session { peer, reader, writer, backend_deadline, private: own, buffers, .. } = &mut *session;
    let Buffers { inbound, message, answer, outbound, .. } = &mut **buffers.get_or_insert_default();
    let client_http2 = peer.http2;
    let backend_http2 = plan.gateway.upstream(delivery.route.upstream).protocol == Protocol::Http2;
    let mut terms = std::mem::take(&mut turn.terms);
    if backend_http2 {
        terms.turn_to_http2(client_http2);
    }
    answer.bytes.clear();
    let mut watch = Watch::new(reader);
    let mut upload = Upload::new(terms, delivery.route.max_body_bytes, reader, inbound);
    let &Delivery { route, idempotent, affinity, private, since: asked, .. } = delivery;
    if turn.form.http_11 {
        upload.pass_hints(&route.response_headers);
    }
    let (body, to_head) = (&mut upload, turn.form.to_head);
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
            return NextAction::Drop;
        }
        Some(Ok((exchange, head))) if delivery.is_answer(&exchange, &head) => {
            turn.note_answer(route.upstream, &exchange, head.status, asked);
            let (watch, deadline) = (client_http2.then_some(watch), backend_deadline);
            let http2 = client_http2 && backend_http2;
            let passage = Passage { delivery, http2, turn, outbound, writer, watch, deadline };
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
        return NextAction::Drop;
    }
    upload.end_interim(outbound);
    turn.form.keep &= upload.is_done();
    let fault = upload.fault();
    fail(session, turn, delivery, &failed, fault).await
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
    ) -> Result<NextAction, Failed> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(self.switch(exchange, &head).await);
        }
        let may_keep = self.turn.form.keep;
        // An early answer: what is left of the request's body would have to be read before the next request.
        self.turn.form.keep &= exchange.body().is_done() && !self.turn.worker.is_draining();
        let framing = self.frame(&head);
        let trailers = self.trailers(exchange.answer().fields(&head));
        exchange.body().end_interim(self.outbound);
        let head_begins = self.outbound.len();
        self.put_head(exchange.answer(), &head, framing);
        exchange.answer().bytes.advance(head.length);
        self.turn.answered(head.status, None);
        let mut download = Download::new(head.framing, framing, trailers, self.delivery.route.read_timeout);
        let Self { turn: Turn { form, .. }, outbound, writer, watch, deadline, .. } = &mut self;
        let passed = poll_fn(|context| {
            if watch.as_mut().is_some_and(|watch| watch.poll(context).is_ready()) {
                return Poll::Ready(Err(Cut::Client));
            }
            let passed = download.poll_pass(context, &mut exchange, outbound, writer, deadline);
            match exchange.body().fault().filter(|_| form.grpc && passed.is_pending()) {
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
                if self.turn.form.keep { NextAction::Keep } else { NextAction::Close }
            }
            Err(Cut::Unsent) => {
                self.outbound.truncate(head_begins);
                // Another answer takes its place, whose body ends otherwise.
                self.turn.form.keep = may_keep;
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
    fn end_call(self, fault: BodyFault) -> NextAction {
        let (status, detail, error) = upload_fault(Some(fault));
        self.turn.error = Some(error);
        let mut trailers = BytesMut::new();
        grpc::put_status_of(status, |out| out.extend_from_slice(detail.as_bytes()), &mut trailers);
        if let ResponseWriter::Http2(stream) = self.writer
            && stream.end(&trailers).is_ok()
        {
            return NextAction::Close;
        }
        NextAction::Drop
    }

    /// How the body is framed for the client.
    fn frame(&mut self, head: &ResponseHead) -> download::Form {
        match head.framing {
            Framing::None | Framing::Length(_) => download::Form::Plain,
            _ if self.turn.form.http2 => download::Form::Frames,
            Framing::Chunked | Framing::UntilClose if self.turn.form.http_11 => download::Form::Chunked,
            Framing::Chunked | Framing::UntilClose => {
                // HTTP/1.0 has no chunks: the end of the connection ends the body.
                self.turn.form.keep = false;
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
        put_connection(self.turn.form, out);
        out.extend_from_slice(b"\r\n");
    }

    /// The backend agrees to switch protocols: what follows is not HTTP.
    async fn switch(self, mut exchange: Exchange<'_, Upload<'_>>, head: &ResponseHead) -> NextAction {
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
            Ok(()) => NextAction::Tunnel(exchange.into_connection(), self.delivery.route.tunnel_timeout),
            Err(_) => self.cut(Cut::Client, false),
        }
    }

    /// The head is out, the body will not come: only the connection can tell.
    /// `unbounded`: as the end of the connection ends the body, too, only a reset says that it is not whole.
    fn cut(self, cut: Cut, unbounded: bool) -> NextAction {
        let client = if self.writer.is_stalled() { "write_timeout" } else { "client_gone" };
        self.turn.error = Some(match cut {
            Cut::Backend | Cut::Unsent => "response_cut",
            Cut::Client => client,
            Cut::Messages(fault) => upload_fault(Some(fault)).2,
        });
        if unbounded {
            self.writer.reset();
        }
        if cut != Cut::Client && !unbounded { NextAction::Close } else { NextAction::Drop }
    }
}

/// The answer where the backend gave none.
async fn fail(
    session: &mut Session,
    turn: &mut Turn,
    delivery: &Delivery<'_>,
    failed: &Failed,
    body: Option<BodyFault>,
) -> NextAction {
    turn.note_failure(delivery.route.upstream, failed);
    let word = failed.failure.as_str();
    let problem = match failed.failure {
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
    send_problem(session, turn, problem).await
}
