//! A client connection that speaks HTTP/3: its streams, its lifetime, and its limits against abuse.

pub(in crate::proxy) mod accept;
mod control;
mod stream;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::time::{Instant, timeout};

use super::stream_guard::{ClientStreams, StreamGuard};
use crate::clock::{Deadline, now};
use crate::http3::Http3ErrorCode;
use crate::http3::stream::Http3Stream;
use crate::plan::ListenerRole;
use crate::proxy::session::peer::ConnectionPeer;
use crate::proxy::worker::Worker;
use crate::proxy::worker::connection_handle::{ConnectionHandle, Lifetime};
use control::ControlStream;

/// How long a connection without open streams may take to close after GOAWAY.
const LINGER: Duration = Duration::from_secs(2);
/// Streams that a client may open in spite of GOAWAY. An honest one opens those that were on their way.
const MAX_REJECTED: u32 = 1_000;
/// The least time between the GOAWAY that announces the end and the one that says where it is (RFC 9114 §5.2).
const GOAWAY_WAIT: Duration = Duration::from_millis(100);

/// Serves a connection after its handshake.
async fn serve(
    connection: Connection,
    handle: Rc<ConnectionHandle>,
    peer: ConnectionPeer,
    worker: Rc<Worker>,
) {
    let plan = worker.plan();
    let server = &plan.server;
    let announced = control::Announced {
        max_header_list: server.max_header_bytes,
        connect_protocol: peer.role == ListenerRole::Traffic,
    };
    let opening = timeout(server.header_timeout, ControlStream::open(&connection, announced));
    let Ok(Ok(control)) = opening.await else {
        return connection.close(Http3ErrorCode::STREAM_CREATION_ERROR.into(), b"");
    };
    let now = now();
    let life = Lifetime::of(server, now, worker.jitter());
    let mut client = Client {
        connection: connection.clone(),
        streams: ClientStreams::new(handle, peer, Rc::clone(&worker), now),
        control,
        requests: 0,
        rejected: 0,
        next_id: 0,
        life,
        stage: Stage::Open,
        max_header_list: server.max_header_bytes,
        header_timeout: server.header_timeout,
        idle_timeout: server.idle_timeout,
        deadline: Deadline::default(),
    };
    drop(plan);
    let mut accepting = pin!(connection.accept_bi());
    let mut accepting_uni = pin!(connection.accept_uni());
    let mut woken = pin!(worker.drain_begins());
    let code = poll_fn(|context| {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "polled to be woken: the drain flag itself is read below"
        )]
        let _: Poll<()> = if worker.is_draining() { Poll::Pending } else { woken.as_mut().poll(context) };
        while let Poll::Ready(stream) = accepting_uni.as_mut().poll(context) {
            let Ok(stream) = stream else { return Poll::Ready(Http3ErrorCode::NO_ERROR) };
            accepting_uni.set(connection.accept_uni());
            client.serve_control(stream);
        }
        while let Poll::Ready(stream) = accepting.as_mut().poll(context) {
            let Ok(stream) = stream else { return Poll::Ready(Http3ErrorCode::NO_ERROR) };
            accepting.set(connection.accept_bi());
            client.serve_stream(stream);
        }
        client.poll(context)
    })
    .await;
    connection.close(code.into(), b"");
    // The worker may end with this connection, whose end is sent by a task of QUIC.
    for _ in 0..2 {
        tokio::task::yield_now().await;
    }
}

/// One client connection.
struct Client {
    connection: Connection,
    streams: Rc<ClientStreams>,
    control: ControlStream,
    /// Requests received so far.
    requests: u64,
    /// Streams that were rejected after GOAWAY.
    rejected: u32,
    /// The id of the stream after the last that was opened.
    next_id: u64,
    life: Lifetime,
    stage: Stage,
    max_header_list: usize,
    header_timeout: Duration,
    idle_timeout: Duration,
    deadline: Deadline,
}

/// The phase of the connection's life.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Open,
    /// GOAWAY was sent then, for no stream that is open or on its way.
    Leaving(Instant),
    /// GOAWAY was sent then: streams from this id on are rejected.
    Left(Instant, u64),
}

/// The next action for a connection.
#[derive(Clone, Copy, Debug)]
enum ConnAction {
    /// Send GOAWAY; open streams may finish.
    Leave,
    /// Send the GOAWAY after which streams are rejected.
    Reject,
    /// Close.
    Close,
}

impl Client {
    /// Serves a request.
    fn serve_stream(&mut self, (sending, receiving): (SendStream, RecvStream)) {
        let id = u64::from(receiving.id());
        self.next_id = self.next_id.max(id + 4);
        let stream = Http3Stream::new(self.connection.clone(), (sending, receiving), self.max_header_list);
        if matches!(self.stage, Stage::Left(_, from) if id >= from) {
            self.rejected += 1;
            return stream.reset(Http3ErrorCode::REQUEST_REJECTED);
        }
        self.requests += 1;
        self.control.peer().borrow_mut().request_received();
        let guard = StreamGuard::take(&self.streams);
        drop(tokio::task::spawn_local(stream::serve(stream, guard, self.header_timeout)));
    }

    /// Reads one of the client's control streams.
    fn serve_control(&self, stream: RecvStream) {
        drop(tokio::task::spawn_local(control::read(stream, self.control.peer(), self.connection.clone())));
    }

    /// Ready once the connection can be closed, with the reason.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Http3ErrorCode> {
        self.streams.wake_when_idle(context);
        if self.streams.is_flood() || self.rejected > MAX_REJECTED {
            return Poll::Ready(Http3ErrorCode::EXCESSIVE_LOAD);
        }
        loop {
            if self.control.poll_flush(context).is_err() {
                return Poll::Ready(Http3ErrorCode::CLOSED_CRITICAL_STREAM);
            }
            self.streams.mark_idle_if_empty(context);
            let action = match self.due_action() {
                Some(action) => action,
                None => {
                    let (at, action) = self.next_action();
                    ready!(self.deadline.poll(context, at));
                    action
                }
            };
            let now = now();
            match action {
                ConnAction::Leave => {
                    self.control.go_away(VarInt::MAX.into_inner() & !3);
                    self.stage = Stage::Leaving(now);
                }
                ConnAction::Reject => {
                    self.control.go_away(self.next_id);
                    self.stage = Stage::Left(now, self.next_id);
                }
                ConnAction::Close => return Poll::Ready(Http3ErrorCode::NO_ERROR),
            }
        }
    }

    /// An action due at once.
    fn due_action(&self) -> Option<ConnAction> {
        let is_worn_out = self.requests >= self.life.requests;
        let leaves = is_worn_out || self.streams.worker.is_draining() || self.streams.is_evicted();
        (leaves && matches!(self.stage, Stage::Open)).then_some(ConnAction::Leave)
    }

    /// The next timed action.
    fn next_action(&self) -> (Instant, ConnAction) {
        let idle_since = self.streams.idle_since();
        match self.stage {
            Stage::Open => {
                let age = (self.life.until, ConnAction::Leave);
                match idle_since.map(|since| since + self.idle_timeout) {
                    Some(idle) if idle < age.0 => (idle, ConnAction::Leave),
                    _ => age,
                }
            }
            Stage::Leaving(since) => {
                (since + (self.connection.rtt() * 2).clamp(GOAWAY_WAIT, LINGER), ConnAction::Reject)
            }
            Stage::Left(since, _) => {
                let quiet = idle_since.map(|idle| idle.max(since));
                let evicted = self.streams.is_evicted();
                // A client that still has streams is told of their end by them.
                let wait = if evicted { Duration::ZERO } else { GOAWAY_WAIT };
                quiet.map_or((since + Duration::from_secs(3_600), ConnAction::Reject), |quiet| {
                    (quiet + wait, ConnAction::Close)
                })
            }
        }
    }
}
