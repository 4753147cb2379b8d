//! Copies of requests for the `mirror` of their route.
//!
//! A copy has the head that the backend gets, written for the mirror's upstream, and the body, copied while it passes. It is
//! sent once all of it is there, by a task of its own: the request never waits for its copy. For example, a POST of 10 KB
//! over a slow line is forwarded as it comes, and copied to the mirror in one piece when its last byte has come.
//!
//! Copies have connections and a circuit breaker of their own, and bounds: of bodies, of bytes, of copies under way.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout};

use super::upstream_head::{UpstreamRequestHead, is_idempotent, wanted_upgrade};
use crate::clock::{self, Deadline};
use crate::http1::chunks::{ChunkDecoder, MalformedChunk, encode, encode_end};
use crate::http1::login::binds_connection;
use crate::http1::name::Name;
use crate::http1::request::{Body, RequestHead};
use crate::http1::response::{Framing, ResponseHead};
use crate::http1::trailers::Trailers;
use crate::http2::head_sink::{BlockHead, HeadSink as _, TextHead};
use crate::plan::mirror::{Mirror, MirrorTarget};
use crate::plan::resolve::RoutedRequest;
use crate::plan::{Protocol, UpstreamIndex};
use crate::proxy::record::request_context::RequestContext;
use crate::proxy::session::request_body::BodyObserver;
use crate::proxy::worker::{Worker, WorkerPlan};
use crate::route::RouteIndex;
use crate::shared::buffer_budget::BufferedCopy;
use crate::telemetry::metrics::MirrorResult;
use crate::upstream::exchange::{
    BODY_READ, BodyFailed, ConnectRule, Exchange, RequestBody, ResponseBuffer, UpstreamRequest,
};
use crate::upstream::private::{OwnConnections, PrivateConnections};
use crate::upstream::{Failed, Failure, UpstreamClient};

/// Copies of one worker that may be under way.
const MAX_IN_FLIGHT: usize = 256;
/// Bytes of a usual head.
const HEAD: usize = 1 << 10;
/// Bytes of a response that are read, so that its connection can be kept.
const MAX_ANSWER: u64 = 1 << 20;
/// The minimum time between two log lines of one worker about mirrors that give no answer.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A copy of a request, on its way to the mirror. Exactly one result of it is counted.
#[derive(Debug)]
pub(crate) struct RequestCopy {
    count: CopyCount,
    target: MirrorTarget,
    protocol: Protocol,
    /// The head, as text or as a header block; then the body.
    message: BytesMut,
    head_length: usize,
    method: Method,
    /// How long the mirror may take for the head of its response, and for its body.
    timeout: Duration,
    max_body: usize,
    /// The body has the framing of chunks in HTTP/1.1.
    is_chunked: bool,
    proxy_header: Option<Box<[u8]>>,
    held: Option<BufferedCopy>,
}

/// Counts the result of a copy.
#[derive(Debug)]
struct CopyCount {
    worker: Rc<Worker>,
    plan: Rc<WorkerPlan>,
    route: Option<RouteIndex>,
    /// Counted when this is dropped.
    result: MirrorResult,
}

impl Drop for CopyCount {
    fn drop(&mut self) {
        self.plan.metrics.mirrored(self.route, self.result);
    }
}

impl RequestCopy {
    /// The copy of an admitted request, if the request is to be copied and can be.
    #[cold]
    pub(crate) fn begin(
        ctx: &RequestContext,
        routed: &RoutedRequest<'_, '_>,
        mirror: &Mirror,
    ) -> Option<Box<Self>> {
        if !routed.is_mirrored_by(mirror) {
            return None;
        }
        let (worker, plan) = (Rc::clone(&ctx.worker), Rc::clone(&ctx.plan));
        let mut count = CopyCount { worker, plan, route: ctx.route, result: MirrorResult::Skipped };
        let head = routed.head();
        let is_private = head.fields.all_known(Name::Authorization).any(binds_connection);
        if is_private || wanted_upgrade(head).is_some() || routed.is_copy(&ctx.plan) {
            return None;
        }
        if ctx.worker.mirrors_in_flight.get() >= MAX_IN_FLIGHT {
            count.result = MirrorResult::Busy;
            return None;
        }
        let target = routed.mirror_target(&ctx.plan, mirror)?;
        count.result = MirrorResult::Incomplete;
        Some(Box::new(Self {
            count,
            protocol: ctx.plan.upstream(target.upstream).protocol,
            target,
            message: BytesMut::with_capacity(HEAD),
            head_length: 0,
            method: head.method.clone(),
            timeout: routed.route.timeout,
            max_body: mirror.max_body,
            is_chunked: head.body == Body::Chunked,
            proxy_header: None,
            held: None,
        }))
    }

    /// The upstream that it goes to.
    pub(super) fn upstream(&self) -> UpstreamIndex {
        self.target.upstream
    }

    /// The PROXY protocol header that its connection begins with.
    pub(super) fn announce(&mut self, header: Box<[u8]>) {
        self.proxy_header = Some(header);
    }

    /// Writes its head: `onward` is what the backend gets.
    #[cold]
    #[inline(never)]
    pub(super) fn write_head(
        &mut self,
        plan: &WorkerPlan,
        onward: UpstreamRequestHead<'_>,
        head: &RequestHead<'_>,
    ) {
        let target = std::mem::take(&mut self.target.target).into();
        let mirror = Some(&**plan.upstream(self.target.upstream));
        let onward = UpstreamRequestHead { target, mirror, ..onward };
        match self.protocol {
            Protocol::Http1 => {
                let mut sink = TextHead(&mut self.message);
                onward.write(head, &mut sink);
                sink.end_request();
            }
            Protocol::Http2 => {
                let mut sink = BlockHead::new(&mut self.message);
                onward.write(head, &mut sink);
                sink.end_request();
            }
        }
        self.head_length = self.message.len();
    }

    /// Sends the copy of a request without a body; else, what copies the body. `backend`: the protocol in which the body is
    /// forwarded.
    #[cold]
    pub(super) fn start(mut self: Box<Self>, body: Body, backend: Protocol) -> Option<BodyCopy> {
        let length = match body {
            Body::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Body::Chunked => 0,
        };
        if length > self.max_body {
            self.count.result = MirrorResult::TooLong;
            return None;
        }
        let budget = &self.count.worker.shared.buffer_budget;
        self.held = budget.copy(self.head_length + length, self.count.plan.server.max_buffered);
        if self.held.is_none() {
            self.count.result = MirrorResult::OverBudget;
            return None;
        }
        if body == Body::EMPTY {
            self.send(Vec::new());
            return None;
        }
        let decoder = (body == Body::Chunked && backend == Protocol::Http1).then(ChunkDecoder::of_response);
        Some(BodyCopy { copy: Some(self), data: BytesMut::with_capacity(length), decoder })
    }

    /// Sends it: all of it is there.
    fn send(mut self: Box<Self>, trailers: Vec<u8>) {
        let Some(client) = self.count.plan.mirror_client(self.target.upstream).cloned() else { return };
        let Some(flight) = CopyInFlight::begin(&self.count.worker) else {
            self.count.result = MirrorResult::Busy;
            return;
        };
        drop(tokio::task::spawn_local(async move {
            self.deliver(&client, trailers).await;
            drop(flight);
        }));
    }

    /// Sends it, and drops the response.
    async fn deliver(&mut self, client: &UpstreamClient, trailers: Vec<u8>) {
        let (mut answer, mut timer) = (ResponseBuffer::default(), Deadline::default());
        let kept = PrivateConnections::default();
        let announced = self.proxy_header.take().map(|header| (header, &kept));
        let request = UpstreamRequest {
            message: &mut self.message,
            head_length: self.head_length,
            body: &mut CopiedBody { trailers },
            answer: &mut answer,
            idempotent: is_idempotent(&self.method),
            to_head: self.method == Method::HEAD,
            connect: ConnectRule::Never,
            affinity: self.target.affinity,
            private: false,
            own: OwnConnections::new(&kept, announced.as_ref(), false),
        };
        let sent = client.send(request, clock::now(), self.timeout, &mut timer).await;
        client.take_failed_attempts();
        match sent {
            Ok((_, head)) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                self.count.result = MirrorResult::Failed;
            }
            Ok((mut exchange, head)) => {
                self.count.result = match head.status.is_server_error() {
                    true => MirrorResult::ServerError,
                    false => MirrorResult::Sent,
                };
                if timeout(self.timeout, discard(&mut exchange, &head)).await == Ok(Ok(())) {
                    exchange.finish(&head, client.upstream.idle_timeout);
                }
            }
            Err(failed) => self.count.fail(&client.upstream.name, &failed),
        }
    }
}

impl CopyCount {
    /// The mirror gave no answer.
    #[cold]
    fn fail(&mut self, upstream: &str, failed: &Failed) {
        if failed.failure == Failure::BreakerOpen {
            self.result = MirrorResult::BreakerOpen;
            return;
        }
        self.result = MirrorResult::Failed;
        let (now, reported) = (clock::now(), &self.worker.mirror_reported);
        let is_due = |last: Instant| now.saturating_duration_since(last) >= TELL_EVERY;
        if reported.get().is_none_or(is_due) {
            reported.set(Some(now));
            let route = self.route.map_or("", |route| &*self.plan.route(route).name);
            let server = failed.authority.as_deref().map_or_else(String::new, |at| format!(" ({at})"));
            tracing::warn!(
                "mirror: a copy of a request of route \"{route}\" got no answer from upstream \"{upstream}\"{server}: {}; \
                 clients notice nothing (told once a minute)",
                failed.failure.as_str()
            );
        }
    }
}

/// A copy under way, counted until this is dropped.
struct CopyInFlight(Rc<Worker>);

impl CopyInFlight {
    fn begin(worker: &Rc<Worker>) -> Option<Self> {
        let before = worker.mirrors_in_flight.get();
        (before < MAX_IN_FLIGHT).then(|| {
            worker.mirrors_in_flight.set(before + 1);
            Self(Rc::clone(worker))
        })
    }
}

impl Drop for CopyInFlight {
    fn drop(&mut self) {
        self.0.mirrors_in_flight.set(self.0.mirrors_in_flight.get() - 1);
    }
}

/// Copies a body while it is forwarded, and sends the copy of the request at its end.
#[derive(Debug)]
pub(super) struct BodyCopy {
    /// `None`: it was sent, or given up.
    copy: Option<Box<RequestCopy>>,
    /// The body so far, without framing.
    data: BytesMut,
    /// Reads the body where it is forwarded as chunks.
    decoder: Option<ChunkDecoder>,
}

impl BodyObserver for BodyCopy {
    fn observe(&mut self, part: &[u8], data: u64, end: Option<&[u8]>) {
        let Some(copy) = &mut self.copy else { return };
        let is_too_long = usize::try_from(data).is_ok_and(|data| data > copy.max_body);
        // Of a body with a known length the budget knows already.
        let max = copy.count.plan.server.max_buffered;
        let fits = !copy.is_chunked || copy.held.as_mut().is_some_and(|held| held.grow(part.len(), max));
        if is_too_long || !fits {
            copy.count.result = if is_too_long { MirrorResult::TooLong } else { MirrorResult::OverBudget };
            self.copy = None;
            self.data = BytesMut::new();
            return;
        }
        // The gateway's own framing is never malformed.
        let is_read = match &mut self.decoder {
            None => {
                self.data.extend_from_slice(part);
                Ok(())
            }
            Some(decoder) => unchunk(decoder, part, &mut self.data),
        };
        if let (Some(end), Ok(()), Some(copy)) = (end, is_read, self.copy.take_if(|_| end.is_some())) {
            let trailers = match &self.decoder {
                Some(decoder) => decoder.trailers(&Trailers::All),
                None => end.to_vec(),
            };
            copy.send_with(&self.data, trailers);
            self.data = BytesMut::new();
        }
    }
}

impl RequestCopy {
    /// Sends it with this body.
    fn send_with(mut self: Box<Self>, data: &[u8], trailers: Vec<u8>) {
        match (self.is_chunked, self.protocol) {
            (true, Protocol::Http1) => {
                encode(data, &mut self.message);
                encode_end(&trailers, &mut self.message);
                self.send(Vec::new());
            }
            _ => {
                self.message.extend_from_slice(data);
                self.send(trailers);
            }
        }
    }
}

fn unchunk(decoder: &mut ChunkDecoder, mut part: &[u8], data: &mut BytesMut) -> Result<(), MalformedChunk> {
    while !part.is_empty() && !decoder.is_done() {
        let (consumed, decoded) = decoder.decode(part)?;
        data.extend_from_slice(decoded);
        part = part.get(consumed..).unwrap_or_default();
    }
    Ok(())
}

/// A body that stands in the message already.
struct CopiedBody {
    trailers: Vec<u8>,
}

impl RequestBody for CopiedBody {
    fn poll_part(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Poll<Result<(), BodyFailed>> {
        Poll::Ready(Ok(()))
    }

    fn take_ready(&mut self, _: &mut BytesMut) -> Result<(), BodyFailed> {
        Ok(())
    }

    fn is_done(&self) -> bool {
        true
    }

    /// It is never taken out of the message, so that the request can be sent again.
    fn is_untouched(&self) -> bool {
        true
    }

    fn trailers(&self) -> &[u8] {
        &self.trailers
    }
}

/// The response is longer than what is read of it, or broke off.
#[derive(Debug, PartialEq, Eq)]
struct Unread;

/// Reads and drops the body of a response.
async fn discard(exchange: &mut Exchange<'_, CopiedBody>, head: &ResponseHead) -> Result<(), Unread> {
    exchange.answer().bytes.advance(head.length);
    let mut decoder = ChunkDecoder::of_response();
    let (mut dropped, mut is_last) = (0_u64, false);
    loop {
        let bytes = &mut exchange.answer().bytes;
        let received = bytes.len() as u64;
        let has_ended = match head.framing {
            Framing::None => true,
            Framing::Length(length) => {
                let left = length.saturating_sub(dropped);
                // Bytes after the end stay, so that the connection is not kept.
                bytes.advance(usize::try_from(left.min(received)).unwrap_or(bytes.len()));
                left <= received
            }
            Framing::Chunked => {
                while !bytes.is_empty() && !decoder.is_done() {
                    let (consumed, _) = decoder.decode(bytes).map_err(|MalformedChunk| Unread)?;
                    bytes.advance(consumed);
                }
                decoder.is_done()
            }
            Framing::UntilClose => {
                bytes.clear();
                is_last
            }
        };
        dropped += received;
        if has_ended {
            return Ok(());
        }
        if is_last || dropped > MAX_ANSWER {
            return Err(Unread);
        }
        let read = poll_fn(|context| {
            exchange.send_on(context);
            exchange.poll_body(context, BODY_READ)
        });
        is_last = read.await.map_err(|_| Unread)? == 0 || exchange.trailers().is_some();
    }
}
