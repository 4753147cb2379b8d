//! One client's connection, from accept to close.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::answer::Form;
use super::buffers::Buffers;
use super::peer::Peer;
use super::presence::Presence;
use super::reader::{Arrival, Reader};
use super::refuse::Page;
use super::worker::Worker;
use super::writer::Writer;
use super::{http2, service, tunnel};
use crate::aside::aside;
use crate::clock::deadline::{Deadline, now};
use crate::gateway::Server;
use crate::http1::request::HeadScanner;
use crate::socket::Stream;
use crate::telemetry::metrics::TurnedAway;
use crate::upstream::pool;

/// Requests on one connection; the last is answered with `connection: close`, and over HTTP/2 followed by GOAWAY.
pub(super) const MAX_REQUESTS: u64 = 10_000;
/// Age after which the next answer closes the connection; over HTTP/2 it is GOAWAY by itself.
pub(super) const MAX_AGE: Duration = Duration::from_secs(3600);
/// How long a closing connection is read, so that the answer is not lost to a reset (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);

/// The bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_header_bytes: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) idle_timeout: Duration,
}

/// What becomes of the connection when a request has been answered.
#[derive(Debug)]
pub(crate) enum After {
    /// The next request is awaited.
    Keep,
    /// It is closed, once the client has had the time to read the answer.
    Close,
    /// It is closed at once: the client has left, takes nothing, or must learn that something is missing.
    Drop,
    /// The client speaks HTTP/2 on it: nothing was taken of what has come.
    Http2,
    /// It is joined to this backend, until neither has moved a byte for so long.
    Tunnel(pool::Connection, Duration),
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) stream: Rc<Stream>,
    pub(crate) peer: Rc<Peer>,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// For waits on backends; armed lazily, so it is kept from request to request.
    pub(crate) backend_deadline: Deadline,
    /// Empty while no request is under way.
    pub(crate) buffers: Option<Box<Buffers>>,
    presence: Rc<Presence>,
    /// Requests taken up so far.
    requests: u64,
    /// When it is old. Known from the start, so that a request only compares.
    retires: Instant,
}

impl Connection {
    fn new(stream: Stream, presence: Rc<Presence>, peer: Rc<Peer>, worker: Rc<Worker>) -> Self {
        let stream = Rc::new(stream);
        let server = &worker.plan().gateway.server;
        Self {
            reader: Reader::new(Rc::clone(&stream), bounds(server)),
            writer: Writer::new(Rc::clone(&stream), server.write_timeout),
            stream,
            peer,
            backend_deadline: Deadline::default(),
            buffers: None,
            presence,
            requests: 0,
            retires: now() + MAX_AGE,
            worker,
        }
    }

    /// Whether the answer to the present request may leave the connection open.
    pub(crate) fn may_keep(&self) -> bool {
        !is_worn_out(self.requests, self.reader.since(), self.retires) && !self.worker.is_draining()
    }

    /// Serves requests until the connection shall be kept no longer.
    async fn run(&mut self) -> After {
        let worker = Rc::clone(&self.worker);
        // Polled once, to be woken: what it waits for is looked up, which costs less than to ask it every time.
        let mut woken = pin!(worker.drain_begins());
        let mut listening = false;
        loop {
            let mut scanner = HeadScanner::default();
            let arrival = poll_fn(|context| {
                if !std::mem::replace(&mut listening, true) {
                    // Woken or not, what follows looks.
                    let _: Poll<()> = woken.as_mut().poll(context);
                }
                self.poll_arrival(context, &mut scanner)
            });
            let after = match arrival.await {
                Arrival::Nothing => {
                    return if self.presence.is_evicted() { After::Drop } else { After::Close };
                }
                Arrival::Head => {
                    self.requests += 1;
                    service::answer(self).await
                }
                Arrival::Http2 => return After::Http2,
                Arrival::Fault(fault) => service::refuse_unread(self, fault).await,
            };
            if !matches!(after, After::Keep) {
                return after;
            }
            self.reader.turn_to_head(worker.shared.clock.instant(worker.last_answer.get()));
        }
    }

    /// Waits for the next head. While nothing of it has come, the connection holds no buffers and may be closed.
    fn poll_arrival(&mut self, context: &mut Context<'_>, scanner: &mut HeadScanner) -> Poll<Arrival> {
        let buffers = self.buffers.get_or_insert_with(|| self.worker.spare.take());
        let arrival = self.reader.poll_head(context, &mut buffers.inbound, scanner);
        if arrival.is_pending() && buffers.inbound.is_empty() {
            let over = self.worker.is_draining() && (self.requests > 0 || self.worker.is_late());
            if self.presence.is_evicted() || over {
                return Poll::Ready(Arrival::Nothing);
            }
            self.presence.rest(self.reader.since(), context);
            self.worker.spare.put(self.buffers.take());
        } else {
            self.presence.rouse();
        }
        arrival
    }

    /// Closes our side and reads on for a while: closing a socket with unread bytes would reset it, and the client might
    /// never see the answer that is under way to it.
    async fn linger(&mut self) {
        if self.writer.close().is_ok() {
            let mut scrap = BytesMut::new();
            // However it ends, the connection is closed now.
            let _ = timeout(LINGER, self.reader.discard(&mut scrap)).await;
        }
    }
}

/// Serves one request, whose head stands at the front of `buffers`: the stream is a pipe that nothing else comes through.
pub(crate) async fn serve_one(
    stream: Stream,
    buffers: Box<Buffers>,
    presence: Rc<Presence>,
    peer: Rc<Peer>,
    worker: Rc<Worker>,
) {
    let mut connection = Connection::new(stream, presence, peer, worker);
    connection.buffers = Some(buffers);
    // Nobody who speaks HTTP/2 is asked to switch, so there is no tunnel.
    service::answer(&mut connection).await;
    connection.worker.spare.put(connection.buffers.take());
    // All was said that will be; where that is too little, the message's own framing tells.
    let _ = connection.writer.close();
}

/// Serves a connection until either side closes it.
pub(crate) async fn serve(stream: Stream, presence: Rc<Presence>, peer: IpAddr, worker: Rc<Worker>) {
    let peer = Rc::new(Peer::new(peer, &stream));
    let mut connection = Connection::new(stream, presence, peer, worker);
    match connection.run().await {
        After::Keep | After::Drop => {}
        After::Http2 => {
            let Connection { worker, stream, peer, presence, buffers, .. } = connection;
            let come = buffers.map(|buffers| buffers.inbound).unwrap_or_default();
            return aside(|| http2::serve(stream, come, presence, &peer, worker)).await;
        }
        After::Close => aside(|| connection.linger()).await,
        After::Tunnel(backend, silence) => {
            let Connection { stream, buffers, .. } = &mut connection;
            let buffers = buffers.take().unwrap_or_default();
            aside(|| tunnel::run(stream, backend, buffers, silence)).await;
        }
    }
    if connection.writer.is_stalled() {
        let listener = connection.presence.listener();
        connection.worker.plan().metrics.turned_away(listener, TurnedAway::Stalled);
    }
}

/// Whether a connection has served so many requests, or is so old, that the client is to open another.
fn is_worn_out(requests: u64, now: Instant, retires: Instant) -> bool {
    requests >= MAX_REQUESTS || now > retires
}

fn bounds(server: &Server) -> Bounds {
    Bounds {
        max_header_bytes: server.max_header_bytes,
        header_timeout: server.header_timeout,
        body_timeout: server.body_timeout,
        idle_timeout: server.idle_timeout,
    }
}

/// Answers a connection over the bound with 503, unread, and closes it.
pub(crate) async fn turn_away(stream: TcpStream, presence: Rc<Presence>, peer: IpAddr, worker: Rc<Worker>) {
    let stream = Stream::Plain(stream);
    let peer = Rc::new(Peer::new(peer, &stream));
    let mut connection = Connection::new(stream, presence, peer, worker);
    let (mut scrap, mut outbound) = (BytesMut::new(), BytesMut::new());
    let date = connection.worker.date(connection.worker.shared.clock.now());
    let form = Form { http_11: true, to_head: false, keep: false, grpc: false };
    let page = Page { scrap: &mut scrap, outbound: &mut outbound, date: &date, cors: &[], form };
    page.problem(StatusCode::SERVICE_UNAVAILABLE, "there are too many connections");
    if let Ok(Ok(())) = timeout(LINGER, connection.writer.flush(&mut outbound)).await {
        connection.linger().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_serves_ten_thousand_requests_and_for_an_hour() {
        let opened = now();
        let hour = opened + Duration::from_secs(3600);
        let retires = opened + MAX_AGE;
        assert!(!is_worn_out(9_999, hour, retires));
        assert!(is_worn_out(10_000, opened, retires));
        assert!(is_worn_out(1, hour + Duration::from_micros(1), retires));
    }
}
