//! Forwards an admitted request to its backend, and relays the backend's response.
//!
//! `upstream_head` writes the head that the backend gets, an `Exchange` of `upstream` finds a connection and sends it with
//! the body, and `response_body` relays what comes back while it comes. For example, a backend that responds before it has
//! read the whole upload is relayed at once, and the connection to it is not kept.

mod body_encoder;
pub(super) mod consumer_headers;
pub(super) mod echo;
pub(super) mod exchange_deadline;
mod failure;
pub(super) mod forward_request;
pub(super) mod mirror;
mod relayed_head;
pub(super) mod response_body;
mod switch;
pub(super) mod trailer_rules;
pub(super) mod upstream_head;
pub(super) mod websocket;

use std::future::poll_fn;
use std::hash::BuildHasher as _;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use foldhash::fast::FixedState;
use http::{StatusCode, Version};

use super::answer::next_action::NextAction;
use super::record::request_context::{RequestContext, RequestLimits};
use super::record::settlement::body_format;
use super::session::Session;
use super::session::grpc;
use super::session::request_body::{BodyOptions, Upload};
use super::session::request_reader::{BodyFault, DisconnectWatch, upload_fault};
use super::session::response_writer::ResponseWriter;
use super::worker::WorkerPlan;
use super::worker::buffer_pool::Buffers;
use crate::boxed_cold::boxed_cold;
use crate::clock::Deadline;
use crate::http1::fields::Fields;
use crate::http1::response::{Framing, ResponseHead};
use crate::http1::trailers::Trailers;
use crate::http2::head_sink::{BlockHead, HeadFormat, TextHead};
use crate::limit::adaptive_concurrency::SampleOutcome;
use crate::measure::BodyFormat;
use crate::plan::compression::Representation;
use crate::plan::{Backend, Protocol, UpstreamIndex};
use crate::store::Places;
use crate::upstream::exchange::{Exchange, UpstreamRequest};
use crate::upstream::private::OwnConnections;
use crate::upstream::{Failed, FailedAttempts};
use body_encoder::BodyEncoder;
use exchange_deadline::{ExchangeDeadline, TOO_LONG};
use failure::{fail, refuse_handshake};
use forward_request::ForwardRequest;
use relayed_head::RelayedHead;
use response_body::{BodyFraming, Download, RelayBuffers, RelayError};
use trailer_rules::TrailerRules;

/// Forwards the request with the head in the message buffer, and relays the response.
#[expect(clippy::too_many_lines, reason = "a future in another one makes that of each request larger")]
pub(crate) async fn forward(
    session: &mut Session,
    ctx: &mut RequestContext,
    forward_request: &ForwardRequest<'_>,
) -> NextAction {
    let plan = Rc::clone(&ctx.plan);
    if ctx.options.grpc {
        ctx.body_options.turn_to_messages(forward_request.silence());
    }
    let mut copied = forward_request.start_copy(session, ctx);
    if plan.upstream(forward_request.upstream).backend == Backend::Echo {
        return echo::echo(session, ctx, forward_request).await;
    }
    if let Some(fault) = forward_request.handshake_fault() {
        return boxed_cold(|| refuse_handshake(session, ctx, fault)).await;
    }
    let Session { peer, reader, writer, private: own, buffers, .. } = &mut *session;
    let Buffers { inbound, message, answer, outbound, backend_deadline, watch_deadline, .. } =
        &mut **buffers.get_or_insert_default();
    let protocol = plan.upstream(forward_request.upstream).protocol;
    let (client_multiplexed, backend_http2) = (peer.is_multiplexed(), protocol == Protocol::Http2);
    let body_options = take_body_options(ctx, (client_multiplexed, backend_http2));
    answer.bytes.clear();
    let (holds_place, source) = (begin_measurement(ctx, forward_request), reader.source().clone());
    let announced = forward_request.announce(ctx, peer, &source);
    let own = OwnConnections::new(own, announced.as_ref(), !client_multiplexed);
    let mut upload = Upload::new(body_options, forward_request.route.max_body_bytes, reader, inbound);
    let trailer_rules = TrailerRules { plan: &plan, route: forward_request.route };
    upload.filter_trailers(&trailer_rules);
    copied.iter_mut().for_each(|copied| upload.show_to(copied));
    let &ForwardRequest { route, upstream, idempotent, affinity, private, since, .. } = forward_request;
    if ctx.options.http_11 {
        upload.pass_hints(&route.response_headers);
    }
    let (head_length, body, to_head) = (message.len(), &mut upload, ctx.options.to_head);
    let request = UpstreamRequest {
        message,
        head_length,
        body,
        answer,
        idempotent,
        to_head,
        affinity,
        private,
        connect: forward_request.connect_rule(),
        own,
    };
    let clock = &ctx.worker.shared.clock;
    let (now, mut end) = (clock.instant(since), ExchangeDeadline::new(route, || clock.instant(ctx.started)));
    let mut watch = DisconnectWatch::new(source, holds_place, now, watch_deadline);
    let sent = {
        let client = &plan.upstream_clients[upstream.0];
        let mut sending = pin!(client.send(request, now, route.timeout, backend_deadline));
        poll_fn(|context| end.poll_before(context, |context| watch.poll_beside(sending.as_mut(), context)))
            .await
    };
    count_attempts(&plan, upstream);
    let failed = match sent {
        None => {
            ctx.received = upload.bytes();
            return NextAction::Drop;
        }
        Some(Ok((exchange, head))) if forward_request.is_answer(&exchange, &head) => {
            ctx.note_answer(upstream, &exchange, head.status, since);
            let (watch, deadline) = ((client_multiplexed || holds_place).then_some(watch), backend_deadline);
            let frames = client_multiplexed && backend_http2;
            let relay =
                ResponseRelay { forward_request, frames, ctx, outbound, writer, watch, deadline, end };
            match relay.run(exchange, head).await {
                Ok(after) => return after,
                Err(failed) => failed,
            }
        }
        Some(Ok((exchange, _))) => forward_request.no_answer(ctx, &exchange),
        Some(Err(failed)) => failed,
    };
    ctx.received = upload.bytes();
    if let Some(error) = lost_client(upload.fault(), client_multiplexed, writer) {
        ctx.response.error = Some(error);
        return NextAction::Drop;
    }
    upload.end_interim(outbound);
    ctx.options.keep &= upload.is_done();
    let fault = upload.fault();
    boxed_cold(|| fail(session, ctx, forward_request, &failed, fault)).await
}

/// How the body is read and framed for the backend.
#[inline]
fn take_body_options(ctx: &mut RequestContext, (client_http2, backend_http2): (bool, bool)) -> BodyOptions {
    let mut body_options = std::mem::take(&mut ctx.body_options);
    if backend_http2 {
        body_options.turn_to_http2(client_http2);
    }
    body_options
}

/// Tells adaptive limits that the request is passed on. Returns whether it holds a place.
fn begin_measurement(ctx: &mut RequestContext, forward_request: &ForwardRequest<'_>) -> bool {
    let Some(places) = &mut ctx.limits.places else { return false };
    places.send(|| FixedState::default().hash_one(&*forward_request.route.name));
    true
}

/// Tells adaptive limits how the request went on.
fn end_measurement(places: &mut Option<Box<Places>>, outcome: Option<SampleOutcome>) {
    if let Some(places) = places {
        places.end_measurement(outcome);
    }
}

/// Counts the attempts that were not answered, and those that were followed by a retry.
fn count_attempts(plan: &WorkerPlan, upstream: UpstreamIndex) {
    let client = &plan.upstream_clients[upstream.0];
    let FailedAttempts { count, over_budget } = client.take_failed_attempts();
    plan.metrics.failed_attempts(upstream, count);
    plan.metrics.over_budget(upstream, over_budget);
    for (server, reason) in client.take_retries() {
        plan.metrics.retry(upstream, server, reason);
    }
}

/// Why a client with a broken-off body cannot be sent a response: it has reset its stream, or accepts nothing.
/// Nothing more is written to the latter.
fn lost_client(
    fault: Option<BodyFault>,
    multiplexed: bool,
    writer: &mut ResponseWriter,
) -> Option<&'static str> {
    match fault {
        Some(BodyFault::Gone) if multiplexed => Some("client_gone"),
        Some(BodyFault::Stalled) => {
            writer.give_up();
            Some("write_timeout")
        }
        _ => None,
    }
}

/// A response being relayed from a backend to the client.
struct ResponseRelay<'c, 'p> {
    forward_request: &'c ForwardRequest<'p>,
    /// The bodies of both sides are in frames: the backend speaks HTTP/2, and the client it or HTTP/3.
    frames: bool,
    ctx: &'c mut RequestContext,
    outbound: &'c mut BytesMut,
    writer: &'c mut ResponseWriter,
    /// An HTTP/2 stream reports a reset by the client at once; a socket reports a closed connection only on a write, and is
    /// watched where the request holds a place.
    watch: Option<DisconnectWatch<'c>>,
    deadline: &'c mut Deadline,
    end: ExchangeDeadline,
}

impl ResponseRelay<'_, '_> {
    /// # Errors
    ///
    /// The response is not valid, and nothing of it was sent.
    async fn run(
        mut self,
        mut exchange: Exchange<'_, Upload<'_>>,
        head: ResponseHead,
    ) -> Result<NextAction, Failed> {
        if head.status == StatusCode::SWITCHING_PROTOCOLS || exchange.opens_websocket(&head) {
            return Ok(boxed_cold(|| self.switch(exchange, &head)).await);
        }
        let may_keep = self.ctx.options.keep;
        // An early response: the rest of the request body would have to be read before the next request.
        self.ctx.options.keep &= exchange.body().is_done() && !self.ctx.worker.is_draining();
        let (representation, encoder) = self.represent(exchange.answer().fields(&head), &head);
        let framing = if encoder.is_some() { self.frame_compressed() } else { self.frame(&head) };
        let trailers = self.trailers(exchange.answer().fields(&head));
        exchange.body().end_interim(self.outbound);
        let head_begins = self.outbound.len();
        let format = self.put_head(&mut exchange, &head, (framing, representation));
        self.ctx.note_response_head(self.outbound.get(head_begins..).unwrap_or_default());
        if let Some(settlement) = &mut self.ctx.limits.settlement {
            settlement.head(head.status, exchange.answer().fields(&head));
        }
        let mut awaits_body = self.measure(exchange.answer().fields(&head), &head);
        exchange.answer().bytes.advance(head.length);
        self.ctx.answered(head.status, None);
        let mut download = self.download(head.framing, (format, framing), trailers, encoder);
        let Self {
            ctx: RequestContext { options, limits, .. }, outbound, writer, watch, deadline, end, ..
        } = &mut self;
        let RequestLimits { settlement, places, .. } = limits;
        let mut relay = RelayBuffers { exchange: &mut exchange, outbound, deadline, settlement };
        let passed = poll_fn(|context| {
            if let Some(cut) = interruption(end, watch, context) {
                return Poll::Ready(Err(cut));
            }
            let passed = download.poll_pass(context, &mut relay, writer);
            if awaits_body && download.sent() > 0 {
                awaits_body = false;
                end_measurement(places, Some(SampleOutcome::Answered));
            }
            match relay.exchange.body().fault().filter(|_| options.grpc && passed.is_pending()) {
                Some(fault) => Poll::Ready(Err(RelayError::Messages(fault))),
                None => passed,
            }
        });
        let passed = passed.await;
        self.ctx.response.bytes_out = download.sent();
        self.count_compressed(&download);
        self.ctx.received = exchange.body().bytes();
        Ok(match passed {
            Ok(()) => {
                exchange.finish(&head, self.forward_request.upstream_of(self.ctx).idle_timeout);
                if self.ctx.options.keep { NextAction::Keep } else { NextAction::Close }
            }
            Err(RelayError::Unsent) => {
                self.outbound.truncate(head_begins);
                // Another response replaces this one, and its body ends in another way.
                self.ctx.options.keep = may_keep;
                return Err(self.forward_request.no_answer(self.ctx, &exchange));
            }
            Err(cut) => {
                let is_call = framing == BodyFraming::Frames && self.ctx.options.grpc;
                let unbounded = framing == BodyFraming::Plain && head.content_length.is_none();
                match problem_of(cut).filter(|_| is_call) {
                    Some(problem) => self.end_call(problem),
                    None => self.cut(cut, unbounded, download.delivered()),
                }
            }
        })
    }

    fn download(
        &self,
        received: Framing,
        sent: (HeadFormat, BodyFraming),
        trailers: Trailers,
        encoder: Option<Box<BodyEncoder>>,
    ) -> Download {
        let mut download = Download::new(received, sent, trailers, self.forward_request.route.read_timeout);
        if !self.ctx.options.keep {
            download.mark_last();
        }
        if let Some(encoder) = encoder {
            download.compress(encoder);
        }
        if self.ctx.limits.settlement.as_ref().is_some_and(|settlement| settlement.reads_trailers()) {
            download.keep_trailers();
        }
        download
    }

    fn count_compressed(&self, download: &Download) {
        if let Some((bytes_in, bytes_out)) = download.compressed() {
            self.ctx.plan.metrics.compressed(self.ctx.route, bytes_in, bytes_out);
        }
    }

    /// Tells adaptive limits of the response, unless its first bytes have to be awaited, as those of calls and event streams:
    /// then true.
    fn measure(&mut self, fields: Fields<'_>, head: &ResponseHead) -> bool {
        let options = &self.ctx.options;
        let Some(places) = &mut self.ctx.limits.places else { return false };
        let outcome = match head.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Some(SampleOutcome::Overloaded)
            }
            status if status.is_server_error() => None,
            _ => Some(SampleOutcome::Answered),
        };
        let is_stream = || options.grpc || body_format(fields) == BodyFormat::Events;
        if outcome == Some(SampleOutcome::Answered) && head.framing != Framing::None && is_stream() {
            return true;
        }
        places.end_measurement(outcome);
        false
    }

    /// Ends a call in the middle of its response with a gRPC status.
    fn end_call(self, (status, detail, error): (StatusCode, &str, &'static str)) -> NextAction {
        self.ctx.response.error = Some(error);
        let mut trailers = BytesMut::new();
        grpc::put_status_of(status, |out| out.extend_from_slice(detail.as_bytes()), &mut trailers);
        if let ResponseWriter::Stream(stream) = self.writer
            && stream.end(&trailers).is_ok()
        {
            return NextAction::Close;
        }
        NextAction::Drop
    }

    /// How the body is framed for the client.
    fn frame(&mut self, head: &ResponseHead) -> BodyFraming {
        match head.framing {
            Framing::None | Framing::Length(_) => BodyFraming::Plain,
            _ if self.ctx.options.is_multiplexed() => BodyFraming::Frames,
            Framing::Chunked | Framing::UntilClose if self.ctx.options.http_11 => BodyFraming::Chunked,
            Framing::Chunked | Framing::UntilClose => {
                // HTTP/1.0 has no chunks: the end of the connection ends the body.
                self.ctx.options.keep = false;
                BodyFraming::Plain
            }
        }
    }

    /// How the response goes to the client on a route with `compress`, and the encoder of its body, if that is compressed.
    fn represent(
        &self,
        fields: Fields<'_>,
        head: &ResponseHead,
    ) -> (Option<Representation>, Option<Box<BodyEncoder>>) {
        let Some(representation) = self.forward_request.represent(self.ctx, head, fields) else {
            return (None, None);
        };
        let Some(encoding) = representation.encoding.filter(|_| head.framing != Framing::None) else {
            return (Some(representation), None);
        };
        match BodyEncoder::new(encoding, head.content_length, body_format(fields) == BodyFormat::Events) {
            None => (Some(Representation::UNCHANGED), None),
            encoder => (Some(representation), encoder),
        }
    }

    fn frame_compressed(&self) -> BodyFraming {
        if self.ctx.options.is_multiplexed() { BodyFraming::Frames } else { BodyFraming::Chunked }
    }

    /// The trailers that may be forwarded, if the client accepts any.
    fn trailers(&self, fields: Fields<'_>) -> Trailers {
        match self.forward_request.trailers {
            false => Trailers::NONE,
            true if self.frames => Trailers::All,
            true => Trailers::declared(fields),
        }
    }

    /// Writes the backend's head for the client. Returns how.
    fn put_head(
        &mut self,
        exchange: &mut Exchange<'_, Upload<'_>>,
        head: &ResponseHead,
        (framing, representation): (BodyFraming, Option<Representation>),
    ) -> HeadFormat {
        let Self { ctx, forward_request, outbound, .. } = self;
        let (server, answer) = (exchange.index(), exchange.answer());
        let reason = answer.bytes.get(head.reason.0..head.reason.1);
        let fields = answer.fields(head);
        let response =
            RelayedHead { ctx, forward_request, server, head, reason, fields, framing, representation };
        // The log reads the headers that it names from text.
        match ctx.options.version == Version::HTTP_2 && !ctx.notes_response_head() {
            true => response.write(BlockHead::new(outbound)),
            false => response.write(TextHead(outbound)),
        }
    }

    /// The head is sent, but the body cannot be completed: only closing the connection can signal that. `unbounded`:
    /// the end of the connection ends the body too, so that only a reset shows that it is truncated. `delivered`: bytes of
    /// the backend's body that the client has got.
    fn cut(self, cut: RelayError, unbounded: bool, delivered: u64) -> NextAction {
        self.ctx.response.error = match cut {
            RelayError::Backend | RelayError::Unsent => Some("response_cut"),
            RelayError::Client if self.writer.is_stalled() => Some("write_timeout"),
            // It has all that it wants: nothing failed.
            RelayError::Client if self.ctx.has_terminal_event(delivered) => None,
            RelayError::Client => Some("client_gone"),
            RelayError::Messages(_) | RelayError::Overrun => problem_of(cut).map(|(_, _, error)| error),
        };
        if unbounded {
            self.writer.reset();
        }
        if cut != RelayError::Client && !unbounded { NextAction::Close } else { NextAction::Drop }
    }
}

/// Why nothing more is relayed, although the backend might go on.
fn interruption(
    end: &mut ExchangeDeadline,
    watch: &mut Option<DisconnectWatch<'_>>,
    context: &mut Context<'_>,
) -> Option<RelayError> {
    if end.poll(context).is_ready() {
        return Some(RelayError::Overrun);
    }
    let is_gone = watch.as_mut().is_some_and(|watch| watch.poll(context).is_ready());
    is_gone.then_some(RelayError::Client)
}

/// What ends a call that has a response already: status, detail and the access log's `error`.
fn problem_of(cut: RelayError) -> Option<(StatusCode, &'static str, &'static str)> {
    match cut {
        RelayError::Messages(fault) => Some(upload_fault(Some(fault))),
        RelayError::Overrun => Some(TOO_LONG),
        RelayError::Backend | RelayError::Unsent | RelayError::Client => None,
    }
}
