//! One client connection, from accept to close. The TLS handshake before the first request is bounded in time;
//! connections in their handshake are evicted first.
//!
//! A connection is a task. It waits for a head, lends its session to a `request_handler`, and acts on what that says of
//! the connection. For example, after an upgrade it becomes a `tunnel`, and after a refused upload it `linger`s, so that the
//! client reads the refusal before the connection ends.

pub(super) mod accept;
pub(super) mod admin_commands;
pub(super) mod connection_guard;
mod connection_limits;
pub(super) mod http2;
#[cfg(feature = "http3")]
pub(super) mod http3;
pub(super) mod linger;
pub mod proxy_protocol;
pub(super) mod request_handler;
mod stream_guard;
pub(super) mod tunnel;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::{StatusCode, Version};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::local_response_writer::LocalResponseWriter;
use super::answer::next_action::{NextAction, PendingTunnel};
use super::decide;
use super::session::Session;
use super::session::peer::{ConnectionEnds, ConnectionPeer};
use super::session::request_reader::{ReadEvent, Source};
use super::session::response_options::{LocalBody, ResponseOptions};
use super::worker::Worker;
use super::worker::connection_handle::{ConnectionHandle, Lifetime};
use crate::boxed_cold::boxed_cold;
use crate::clock::now;
use crate::http1::scanner::HeadScanner;
use crate::limit::units::Timestamp;
use crate::net::{Socket, Stream};
use crate::plan::ListenerRole;
use crate::plan::template::TemplateValues;
use crate::telemetry::metrics::ConnectionRejectReason;
use linger::{SILENCE, linger, linger_for};
use tunnel::EarlyBytes;

/// One client connection.
#[derive(Debug)]
struct Connection {
    stream: Rc<Stream>,
    handle: Rc<ConnectionHandle>,
    worker: Rc<Worker>,
    /// Requests received so far.
    requests: u64,
    life: Lifetime,
}

impl Connection {
    /// The connection, and the session of its requests.
    fn new(
        stream: Stream,
        handle: Rc<ConnectionHandle>,
        peer: Rc<ConnectionPeer>,
        worker: Rc<Worker>,
    ) -> (Self, Box<Session>) {
        let stream = Rc::new(stream);
        let now = now();
        let life = Lifetime::of(&worker.plan().server, now, worker.jitter());
        let session = Session::new(Source::Http1(Rc::clone(&stream)), peer, Rc::clone(&worker), now);
        (Self { stream, handle, worker, requests: 0, life }, Box::new(session))
    }

    /// Whether the connection may stay open after the response to a request that came at `now`.
    fn may_keep(&self, now: Timestamp) -> bool {
        let now = self.worker.shared.clock.instant(now);
        !self.life.is_over(self.requests, now) && !self.worker.is_draining()
    }

    /// Serves requests until the connection is to be closed.
    async fn run(&mut self, mut session: Box<Session>) -> (Box<Session>, NextAction) {
        let worker = Rc::clone(&self.worker);
        // Registers the waker once; afterwards the drain flag is read directly, since polling the future each time is
        // slower.
        let mut woken = pin!(worker.drain_begins());
        let mut listening = false;
        loop {
            let mut scanner = HeadScanner::default();
            let arrival = poll_fn(|context| {
                if !std::mem::replace(&mut listening, true) {
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "polled to be woken: the drain flag itself is read below"
                    )]
                    let _: Poll<()> = woken.as_mut().poll(context);
                }
                self.poll_arrival(&mut session, context, &mut scanner)
            });
            let after = match arrival.await {
                ReadEvent::Head => {
                    self.requests += 1;
                    // The one reading of the clock for all that happens before the response.
                    let now = worker.shared.clock.now();
                    session.may_keep = self.may_keep(now);
                    let after;
                    (session, after) = request_handler::answer(session, now).await;
                    after
                }
                ReadEvent::Nothing if self.handle.is_evicted() => NextAction::Drop,
                ReadEvent::Nothing => NextAction::Close,
                // No bytes can follow the end, so there is nothing to read. TLS needs a close_notify.
                ReadEvent::End if self.is_plain() => NextAction::Drop,
                ReadEvent::End => NextAction::Close,
                ReadEvent::Http2 => NextAction::Http2,
                ReadEvent::InvalidPreface => boxed_cold(|| refuse_preface(&mut session)).await,
                ReadEvent::Fault(fault) => boxed_cold(|| decide::refuse_unread(&mut session, fault)).await,
            };
            match after {
                NextAction::Keep => {}
                NextAction::Close if self.is_finished(&session) => return (session, NextAction::Drop),
                after => return (session, after),
            }
            session.reader.turn_to_head(worker.shared.clock.instant(worker.last_answer.get()));
        }
    }

    /// Waits for the next head. Until its first byte, the connection holds no buffers and may be closed.
    fn poll_arrival(
        &mut self,
        session: &mut Session,
        context: &mut Context<'_>,
        scanner: &mut HeadScanner,
    ) -> Poll<ReadEvent> {
        let Session { reader, writer, worker, buffers, .. } = session;
        let filled = buffers.get_or_insert_with(|| worker.spare.take());
        let arrival = reader.poll_head(context, &self.stream, &mut filled.inbound, scanner);
        // Responses are held back only before a whole head, which may turn out to be empty lines alone.
        if !filled.outbound.is_empty()
            && !matches!(arrival, Poll::Ready(ReadEvent::Head | ReadEvent::Fault(_)))
        {
            match writer.poll_held(context, &mut filled.outbound) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(ReadEvent::End),
                Poll::Pending => return Poll::Pending,
            }
        }
        if arrival.is_pending() && filled.inbound.is_empty() {
            let over = worker.is_draining() && (self.requests > 0 || worker.is_late());
            if self.handle.is_evicted() || over {
                return Poll::Ready(ReadEvent::Nothing);
            }
            self.handle.mark_idle(reader.since(), context);
            worker.spare.put(buffers.take());
        } else {
            self.handle.mark_active();
        }
        arrival
    }

    /// Whether the socket can be closed at once: the client sends no more, so that no reset destroys the response on
    /// its way. Bytes that the client is known to have sent have to be read first. TLS sends a close_notify in either
    /// direction.
    fn is_finished(&self, Session { is_last, buffers, .. }: &Session) -> bool {
        let is_unread = buffers.as_ref().is_some_and(|buffers| !buffers.inbound.is_empty());
        *is_last && self.is_plain() && !is_unread && !self.stream.has_input()
    }

    /// Whether the socket's bytes are plain HTTP, without TLS.
    fn is_plain(&self) -> bool {
        matches!(*self.stream, Stream::Plain(_))
    }
}

impl Connection {
    /// Serves the connection, of which nothing was consumed, as one of HTTP/2.
    async fn go_on_as_http2(self, session: Box<Session>) {
        let Self { stream, handle, worker, life, .. } = self;
        let (peer, received) = session.into_received();
        http2::serve(stream, received, handle, &peer, life, worker).await;
    }

    /// Ends the connection after its last request: as a tunnel, or so that data on its way to the client arrives.
    async fn end(&mut self, session: &mut Session, after: NextAction) {
        if let NextAction::Tunnel(tunnel) = after {
            let PendingTunnel { backend, silence, end, places, settlement } = *tunnel;
            let early = EarlyBytes::take(session.buffers.get_or_insert_default());
            self.worker.spare.put(session.buffers.take());
            session.writer.lift_timeout();
            let ended = tunnel::run(&*self.stream, backend, early, (silence, end)).await;
            drop(places);
            if let Some(mut settlement) = settlement {
                settlement.finish_tunnel(ended.sent);
            }
        }
        self.worker.spare.put(session.buffers.take());
        linger(&self.stream, &self.handle, &self.worker).await;
    }
}

/// Answers bytes that are not the preface of HTTP/2, which ALPN has agreed on.
async fn refuse_preface(session: &mut Session) -> NextAction {
    let mut refusal = BytesMut::from(http2::INVALID_PREFACE);
    let sent = session.writer.send(&mut refusal, &LocalBody::default(), true).await;
    if sent.is_ok() { NextAction::Close } else { NextAction::Drop }
}

/// Serves a connection until either side closes it, and then drops `guard`.
pub(crate) fn serve<G: 'static>(
    stream: Stream,
    handle: Rc<ConnectionHandle>,
    ends: ConnectionEnds,
    guard: G,
    worker: Rc<Worker>,
) -> impl Future<Output = ()> {
    // Before the future begins: it would keep room for these values until its end.
    let peer = {
        let plan = worker.plan();
        Rc::new(ConnectionPeer::new(ends, &stream, plan.server.listen.get(handle.listener())))
    };
    let (mut connection, session) = Connection::new(stream, handle, peer, worker);
    // A block uses what it captures in place. An `async fn` has room for each argument twice, also while it is idle.
    async move {
        let (mut session, after) = connection.run(session).await;
        match after {
            NextAction::Keep | NextAction::Drop => {}
            NextAction::Http2 => return boxed_cold(|| connection.go_on_as_http2(session)).await,
            after => boxed_cold(|| connection.end(&mut session, after)).await,
        }
        let Connection { handle, worker, .. } = connection;
        worker.spare.put(session.buffers.take());
        if session.writer.is_stalled() {
            worker.plan().metrics.connection_rejected(handle.listener(), ConnectionRejectReason::Stalled);
        }
        drop(guard);
    }
}

/// Answers a connection over the maximum with 503, without reading a request, and closes it.
pub(crate) async fn reject_connection(
    socket: Socket,
    handle: Rc<ConnectionHandle>,
    ends: ConnectionEnds,
    worker: Rc<Worker>,
) {
    let stream = Stream::Plain(socket);
    let peer = Rc::new(ConnectionPeer::new(ends, &stream, None));
    let (Connection { stream, worker, .. }, mut session) = Connection::new(stream, handle, peer, worker);
    let (mut scrap, mut outbound) = (BytesMut::new(), BytesMut::new());
    let date = worker.date(worker.shared.clock.now());
    let options = ResponseOptions::unread(Version::HTTP_11);
    // There is no request, so no line of the access log has a request id.
    let (request_id, cors, cookies, plan) = (&[], &[], &[], worker.plan());
    let page = LocalResponseWriter {
        scrap: &mut scrap,
        outbound: &mut outbound,
        date: &date,
        request_id,
        cors,
        cookies,
        headers: &plan.server.response_headers,
        options,
        errors: &plan.errors,
        values: TemplateValues::default(),
    };
    let body = page.problem(StatusCode::SERVICE_UNAVAILABLE, "there are too many connections");
    if let Ok(Ok(())) = timeout(SILENCE, session.writer.send(&mut outbound, &body, true)).await {
        // The connection counts as open, but is not in the list of those that can be evicted.
        linger_for(&stream, SILENCE).await;
    }
}

/// Performs the TLS handshake with a client, then serves the connection in a task of its own: the memory of this one is
/// given back before the first request.
pub(crate) async fn serve_tls<G: 'static>(
    socket: Socket,
    handle: Rc<ConnectionHandle>,
    ends: ConnectionEnds,
    guard: G,
    worker: Rc<Worker>,
) {
    match tls_handshake(socket, &handle, &worker).await {
        Ok(Some(stream)) => drop(tokio::task::spawn_local(serve(stream, handle, ends, guard, worker))),
        // The authority has what it asked for.
        Ok(None) => {}
        Err(_) if handle.is_evicted() => {}
        // Any client can cause this at any rate, so it is not logged for operators.
        Err(error) => {
            worker.plan().metrics.connection_rejected(handle.listener(), ConnectionRejectReason::Handshake);
            tracing::debug!(peer = %ends.client.ip(), %error, "no TLS");
        }
    }
}

/// Fails after `header_timeout`, or when the connection is evicted. `None`: the handshake was the answer to a challenge.
async fn tls_handshake(
    socket: Socket,
    handle: &ConnectionHandle,
    worker: &Worker,
) -> io::Result<Option<Stream>> {
    let socket = socket.into_attached()?;
    let plan = worker.plan();
    let server = &plan.server;
    let tls = match server.role_of(handle.listener()) {
        ListenerRole::Traffic => server.tls.as_ref(),
        ListenerRole::Decisions => plan.decisions.as_ref().and_then(|decisions| decisions.tls.as_ref()),
    };
    let Some(tls) = tls else { return Err(io::ErrorKind::Unsupported.into()) };
    if worker.shared.acme.challenges.has_tls() && server.role_of(handle.listener()) == ListenerRole::Traffic {
        let shaking = handle.idle_during(tls_challenge(socket, tls.config.clone(), worker));
        return timeout(server.header_timeout, boxed_cold(|| shaking))
            .await?
            .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()));
    }
    let shaking = handle.idle_during(Stream::accept(socket, tls.config.clone()));
    timeout(server.header_timeout, shaking)
        .await?
        .unwrap_or_else(|| Err(io::ErrorKind::ConnectionAborted.into()))
        .map(Some)
}

/// The handshake while challenges are under way: of one, nothing follows it (RFC 8737 §3).
async fn tls_challenge(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    worker: &Worker,
) -> io::Result<Option<Stream>> {
    let mut is_challenge = false;
    let stream = Stream::accept_by(socket, |hello| {
        let challenge = worker.shared.acme.challenges.for_handshake(hello);
        is_challenge = challenge.is_some();
        challenge.unwrap_or(config)
    });
    let stream = stream.await?;
    if !is_challenge {
        return Ok(Some(stream));
    }
    stream.close_sending()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use self::connection_guard::ConnectionGuard;
    use super::*;
    use crate::net::Pipe;
    use crate::proxy::fixtures;

    /// An idle connection costs its task more than anything else. Beside this future a task has 104 bytes, and it is made in
    /// steps of 128: see `docs/bounds.md`.
    #[tokio::test]
    async fn the_task_of_a_connection_takes_half_a_kibibyte() {
        let worker = fixtures::worker(fixtures::plan(crate::plan::Server::plain(), None));
        let handle = ConnectionHandle::new(0);
        let guard = ConnectionGuard::new(0, Rc::clone(&worker), None);
        let ends = ConnectionEnds::of(([192, 0, 2, 1], 1).into());
        let serving = serve(Stream::Pipe(Pipe::new().0), handle, ends, guard, worker);
        assert!(size_of_val(&serving) <= 512 - 104, "{} bytes", size_of_val(&serving));
    }
}
