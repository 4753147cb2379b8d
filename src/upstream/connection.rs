//! One connection to a backend, and one exchange on it.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Failure;
use super::pool::EndpointPool;
use super::upload::{Upload, UploadState};
use crate::clock::deadline::{Deadline, now};

/// Bytes of a response head, and of what is buffered of a body.
const BUFFER: usize = 64 << 10;
/// A backend that announces when it will close is left alone so long before that.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection on which no request is under way.
#[derive(Debug)]
pub struct Connection {
    pool: Rc<EndpointPool>,
    sender: SendRequest<Upload>,
    stream: Rc<TcpStream>,
    /// Bytes received on it so far.
    received: Rc<Cell<u64>>,
    /// How long it may stay unused.
    idle_timeout: Duration,
    /// Whether the request under way asks for an upgrade: only then is the socket handed back.
    upgrading: Rc<Cell<bool>>,
    upgraded: oneshot::Receiver<(BackendStream, Bytes)>,
}

/// A connection whose response is being read. Dropped before the end of the body, the connection is closed.
#[derive(Debug)]
pub struct Lease {
    connection: Option<Connection>,
    /// `None`: the response says that the connection will not be kept.
    kept_for: Option<Duration>,
}

/// An exchange that brought no response.
#[derive(Debug)]
pub(super) struct Lost {
    /// Why.
    pub(super) failure: Failure,
    /// The request, if no byte of it was written.
    pub(super) unsent: Option<Box<Request<Upload>>>,
    /// Whether no byte of an answer came.
    pub(super) unanswered: bool,
}

impl Lost {
    const fn for_good(failure: Failure) -> Self {
        Self { failure, unsent: None, unanswered: false }
    }
}

impl Connection {
    /// Speaks HTTP/1.1 on a fresh socket.
    pub(super) async fn open(
        stream: TcpStream,
        pool: Rc<EndpointPool>,
        idle_timeout: Duration,
    ) -> Result<Self, Failure> {
        let (stream, received) = (Rc::new(stream), Rc::new(Cell::new(0)));
        let backend = BackendStream { stream: Rc::clone(&stream), received: Rc::clone(&received) };
        let (sender, mut driver) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(backend))
            .await
            .map_err(|_| Failure::Connect)?;
        let (hand_back, upgraded) = oneshot::channel();
        let upgrading = Rc::new(Cell::new(false));
        let wanted = Rc::clone(&upgrading);
        tokio::task::spawn_local(async move {
            let ended = poll_fn(|context| driver.poll_without_shutdown(context)).await;
            if ended.is_ok() && wanted.get() {
                let parts = driver.into_parts();
                // Nobody waits if the request was given up.
                let _ = hand_back.send((parts.io.into_inner(), parts.read_buf));
            }
        });
        Ok(Self { pool, sender, stream, received, idle_timeout, upgrading, upgraded })
    }

    /// Whether a request can be sent at once.
    pub(super) fn is_usable(&self) -> bool {
        self.sender.is_ready()
    }

    /// Asks the kernel whether the backend has closed or sent something unasked. Costs a system call.
    pub(super) fn is_silent(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let peeked = socket2::SockRef::from(&*self.stream).peek(&mut byte);
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request and waits for the response head.
    pub(super) async fn exchange(
        mut self,
        request: Request<Upload>,
        state: &UploadState,
        timeout: Duration,
        deadline: &mut Deadline,
    ) -> Result<(Response<Incoming>, Lease), Lost> {
        self.upgrading.set(request.headers().contains_key(header::UPGRADE));
        let mut sending = pin!(self.sender.try_send_request(request));
        let (started, received) = (now(), self.received.get());
        let sent = poll_fn(|context| {
            if let Poll::Ready(sent) = sending.as_mut().poll(context) {
                return Poll::Ready(Some(sent));
            }
            ready!(deadline.poll(context, state.progress().unwrap_or(started) + timeout));
            Poll::Ready(None)
        })
        .await;
        match sent {
            None => Err(Lost::for_good(Failure::Timeout)),
            Some(Ok(response)) if is_ambiguous(&response) => Err(Lost::for_good(Failure::Protocol)),
            Some(Ok(response)) => {
                let kept_for = keep_alive(&response, self.idle_timeout);
                Ok((response, Lease { connection: Some(self), kept_for }))
            }
            Some(Err(mut failed)) => {
                let unsent = failed.take_message().map(Box::new);
                let unanswered = self.received.get() == received;
                Err(Lost { failure: failure_of(failed.error(), state), unsent, unanswered })
            }
        }
    }
}

impl Lease {
    /// The response has been read to its end: the connection may serve another request, if the request was sent whole, too.
    pub fn finish(&mut self, upload: &UploadState) {
        if let (Some(connection), Some(span)) = (self.connection.take(), self.kept_for)
            && upload.is_done()
            && !connection.upgrading.get()
        {
            let pool = Rc::clone(&connection.pool);
            pool.put(connection, now() + span);
        }
    }

    /// The socket after a 101, and what the backend has already sent on it.
    pub async fn upgraded(mut self) -> Option<(BackendStream, Bytes)> {
        self.connection.take()?.upgraded.await.ok()
    }

    /// `host:port` of the backend.
    pub fn authority(&self) -> Option<&std::sync::Arc<str>> {
        self.connection.as_ref().map(|connection| connection.pool.authority())
    }
}

/// Both ways of saying how long a body is: one of them lies (RFC 9112 §6.3).
fn is_ambiguous<T>(response: &Response<T>) -> bool {
    let headers = response.headers();
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

/// How long the connection may stay unused: `idle_timeout`, or what the backend announced less a margin.
fn keep_alive<T>(response: &Response<T>, idle_timeout: Duration) -> Option<Duration> {
    let announced = response.headers().get("keep-alive").and_then(|value| {
        let text = value.to_str().ok()?;
        let seconds = text.split(',').find_map(|item| item.trim().strip_prefix("timeout="))?;
        seconds.trim().parse().ok().map(Duration::from_secs)
    });
    match announced {
        None => Some(idle_timeout),
        Some(span) => span.checked_sub(KEEP_ALIVE_MARGIN).map(|span| span.min(idle_timeout)),
    }
}

fn failure_of(error: &hyper::Error, state: &UploadState) -> Failure {
    if state.broken().is_some() {
        Failure::Upload
    } else if error.is_parse() {
        Failure::Protocol
    } else {
        Failure::Reset
    }
}

/// A socket that the pool can look at while hyper reads and writes it.
#[derive(Debug)]
pub struct BackendStream {
    stream: Rc<TcpStream>,
    /// Bytes received so far.
    received: Rc<Cell<u64>>,
}

impl AsyncRead for BackendStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.remaining();
            match self.stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(read) => {
                    self.received.set(self.received.get() + read as u64);
                    if 0 < read && read < room {
                        self.is_drained();
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl BackendStream {
    /// A short read took all there was: the next poll waits for more instead of asking the kernel in vain. (epoll is
    /// edge-triggered, so what comes from now on is announced anew.)
    fn is_drained(&self) {
        let nothing = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        let _ = self.stream.try_io(Interest::READABLE, nothing);
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        send: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match send(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write))
    }
}
