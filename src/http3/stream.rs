//! One request stream of a client: its message by [`RequestDecoder`], and its response in frames.
//!
//! QUIC opens the client's windows when bytes are read, so a body that nobody reads stays within the window of its stream.
//! What is sent waits here, in [`MAX_OUTBOUND`] bytes, until QUIC takes it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use quinn::{Connection, RecvStream, SendStream, StoppedError, VarInt};

use super::error_code::Http3ErrorCode;
use super::frame::{put_data_header, put_headers};
use super::qpack;
use super::request::{RequestDecoder, RequestFault};
use crate::http2::connection::StreamLost;
use crate::http2::head::{HeadError, InvalidHead, ReceivedHead};

/// Bytes of a response that wait until QUIC takes them.
const MAX_OUTBOUND: usize = 32 << 10;
/// Bytes of a request read at once.
const PART: usize = 16 << 10;

/// One stream. Dropped before both sides have sent all, it is reset.
#[derive(Debug)]
pub struct Http3Stream {
    connection: Connection,
    receiving: RefCell<RequestSide>,
    sending: RefCell<ResponseSide>,
    /// The client has given the request up, or the stream failed.
    lost: Cell<bool>,
}

#[derive(Debug)]
struct RequestSide {
    stream: RecvStream,
    decoder: RequestDecoder,
    /// Bytes of the body that were not read yet.
    body: BytesMut,
    /// All was received.
    ended: bool,
    /// The client was told to send no more.
    stopped: bool,
}

/// What `SendStream::stopped` comes to.
type Stopped = Result<Option<VarInt>, StoppedError>;

struct ResponseSide {
    stream: SendStream,
    outbound: BytesMut,
    /// Nothing follows what is in `outbound`.
    ended: bool,
    /// QUIC was told so, or the stream was reset.
    finished: bool,
    /// Ready once the client wants no more of the response.
    stopped: Option<Pin<Box<dyn Future<Output = Stopped>>>>,
}

impl std::fmt::Debug for ResponseSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseSide")
            .field("outbound", &self.outbound.len())
            .field("ended", &self.ended)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

impl Http3Stream {
    /// A stream that the client has opened. The fields of its heads have at most `max_header_list` bytes.
    pub fn new(
        connection: Connection,
        (sending, receiving): (SendStream, RecvStream),
        max_header_list: usize,
    ) -> Self {
        Self {
            connection,
            receiving: RefCell::new(RequestSide {
                stream: receiving,
                decoder: RequestDecoder::new(max_header_list),
                body: BytesMut::new(),
                ended: false,
                stopped: false,
            }),
            sending: RefCell::new(ResponseSide {
                stream: sending,
                outbound: BytesMut::new(),
                ended: false,
                finished: false,
                stopped: None,
            }),
            lost: Cell::new(false),
        }
    }

    /// The head of the request.
    ///
    /// # Errors
    ///
    /// There is none: the client has broken the stream off, or sent something else.
    pub fn poll_head(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Result<ReceivedHead, HeadError>, StreamLost>> {
        let receiving = &mut *self.receiving.borrow_mut();
        while !receiving.decoder.has_head() {
            ready!(self.poll_receive(receiving, context))?;
        }
        // The end comes with the head as a rule, and tells that there is no body.
        if !receiving.ended
            && receiving.body.is_empty()
            && let Poll::Ready(Err(lost)) = self.poll_receive(receiving, context)
        {
            return Poll::Ready(Err(lost));
        }
        let ended = receiving.ended && receiving.body.is_empty();
        Poll::Ready(receiving.decoder.take_head(ended).ok_or(StreamLost))
    }

    /// Receives some bytes, or the end.
    fn poll_receive(
        &self,
        receiving: &mut RequestSide,
        context: &Context<'_>,
    ) -> Poll<Result<(), StreamLost>> {
        if self.lost.get() || receiving.ended || receiving.stopped {
            return Poll::Ready(Err(StreamLost));
        }
        let RequestSide { stream, decoder, body, ended, .. } = receiving;
        let mut context = Context::from_waker(context.waker());
        let read = match ready!(pin!(stream.read_chunk(PART, true)).poll(&mut context)) {
            Ok(Some(chunk)) => decoder.decode(&chunk.bytes, body),
            Ok(None) => {
                *ended = true;
                decoder.end()
            }
            Err(_) => {
                self.lost.set(true);
                return Poll::Ready(Err(StreamLost));
            }
        };
        Poll::Ready(read.map_err(|fault| {
            self.lost.set(true);
            match fault {
                RequestFault::Connection(code) => self.connection.close(code.into(), b""),
                RequestFault::Stream(code) => {
                    receiving.stop(code);
                    self.sending.borrow_mut().reset(code);
                }
            }
            StreamLost
        }))
    }

    /// Appends received bytes of the body. Ready with 0 at its end.
    ///
    /// # Errors
    ///
    /// The client broke the body off, and all earlier bytes were read.
    pub fn poll_read(&self, context: &Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, StreamLost>> {
        let receiving = &mut *self.receiving.borrow_mut();
        loop {
            let received = receiving.body.len();
            if received > 0 {
                match into.is_empty() {
                    true => std::mem::swap(into, &mut receiving.body),
                    false => into.extend_from_slice(&receiving.body),
                }
                receiving.body.clear();
                return Poll::Ready(Ok(received));
            }
            if receiving.ended {
                return Poll::Ready(if self.lost.get() { Err(StreamLost) } else { Ok(0) });
            }
            ready!(self.poll_receive(receiving, context))?;
        }
    }

    /// The capacity of the buffer with received bytes of the body that are not read. What QUIC holds is within the window
    /// of the stream.
    pub fn poll_unread(&self, _context: &Context<'_>) -> usize {
        self.receiving.borrow().body.capacity()
    }

    /// Whether the client has sent all, and all of it was read.
    pub fn is_read_to_end(&self) -> bool {
        let receiving = self.receiving.borrow();
        receiving.ended && receiving.body.is_empty()
    }

    /// The lines of the trailers, once the body was received and read completely.
    pub fn trailers(&self) -> Option<BytesMut> {
        let receiving = self.receiving.borrow();
        if self.lost.get() || !receiving.body.is_empty() {
            return None;
        }
        receiving.decoder.trailers().cloned()
    }

    /// Tells the client to send no more of the request, whose response is complete (RFC 9114 §4.1).
    pub fn stop_receiving(&self) {
        self.receiving.borrow_mut().stop(Http3ErrorCode::NO_ERROR);
    }

    /// Ready once the client has given the request up, or the connection is lost.
    pub fn poll_reset(&self, context: &Context<'_>) -> Poll<()> {
        if self.lost.get() {
            return Poll::Ready(());
        }
        {
            // A reset is found by reading ahead, a part at most. quinn would also tell of one before unread bytes, but it then
            // holds the task for as long as the connection lives, if no further byte comes.
            let receiving = &mut *self.receiving.borrow_mut();
            while !receiving.ended && !receiving.stopped && receiving.body.len() < PART {
                match self.poll_receive(receiving, context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(StreamLost)) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
        }
        let mut context = Context::from_waker(context.waker());
        if self.sending.borrow_mut().poll_stopped(&mut context).is_ready() {
            self.lost.set(true);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Sends a response head, given as HTTP/1.1. `ended`: nothing follows. Returns whether it answers a gRPC call.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used, or the head is invalid.
    pub fn send_response(&self, head: &[u8], ended: bool) -> Result<bool, StreamLost> {
        self.put(ended, |out| {
            let mut result = Err(InvalidHead);
            put_headers(|section| result = qpack::put_response(head, section), out);
            result
        })
    }

    /// Ends the stream with trailers, as lines; there may be none.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn send_end(&self, trailers: &[u8]) -> Result<(), StreamLost> {
        self.put(true, |out| {
            let mut result = Ok(());
            if !trailers.is_empty() {
                put_headers(|section| result = qpack::put_trailers(trailers, section), out);
            }
            result
        })
    }

    /// Appends to what is sent, and has QUIC take as much as it does now.
    fn put<T>(
        &self,
        ended: bool,
        put: impl FnOnce(&mut BytesMut) -> Result<T, InvalidHead>,
    ) -> Result<T, StreamLost> {
        let sending = &mut *self.sending.borrow_mut();
        if self.lost.get() || sending.ended || sending.finished {
            return Err(StreamLost);
        }
        let before = sending.outbound.len();
        let result = put(&mut sending.outbound).map_err(|InvalidHead| StreamLost);
        match result.is_err() {
            true => sending.outbound.truncate(before),
            false => sending.ended = ended,
        }
        // The request's task is woken by `poll_flush` when QUIC takes more.
        if let Poll::Ready(Err(StreamLost)) = sending.poll_flush(&mut Context::from_waker(Waker::noop())) {
            self.lost.set(true);
            return Err(StreamLost);
        }
        result
    }

    /// The number of bytes, of `wanted`, that there is room for. Pending while there is none.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn poll_room(&self, context: &Context<'_>, wanted: usize) -> Poll<Result<usize, StreamLost>> {
        let sending = &mut *self.sending.borrow_mut();
        if self.lost.get() || sending.ended || sending.finished {
            return Poll::Ready(Err(StreamLost));
        }
        match sending.poll_flush(&mut Context::from_waker(context.waker())) {
            Poll::Ready(Err(lost)) => {
                self.lost.set(true);
                return Poll::Ready(Err(lost));
            }
            Poll::Pending if sending.outbound.len() >= MAX_OUTBOUND => return Poll::Pending,
            Poll::Pending | Poll::Ready(Ok(())) => {}
        }
        Poll::Ready(Ok(wanted.min(MAX_OUTBOUND - sending.outbound.len().min(MAX_OUTBOUND - 1))))
    }

    /// Sends as much of `data` as there is room for; returns the number of bytes. `last`: the stream ends after it.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn send_data(&self, data: &[u8], last: bool) -> Result<usize, StreamLost> {
        let room = MAX_OUTBOUND.saturating_sub(self.sending.borrow().outbound.len());
        let part = data.get(..room).unwrap_or(data);
        let is_last = last && part.len() == data.len();
        self.put(is_last, |out| {
            if !part.is_empty() {
                put_data_header(part.len(), out);
                out.extend_from_slice(part);
            }
            Ok(part.len())
        })
    }

    /// Ready once QUIC has taken all that was sent.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn poll_flush(&self, context: &Context<'_>) -> Poll<Result<(), StreamLost>> {
        let flushed = self.sending.borrow_mut().poll_flush(&mut Context::from_waker(context.waker()));
        if let Poll::Ready(Err(StreamLost)) = flushed {
            self.lost.set(true);
        }
        flushed
    }

    /// The bytes that QUIC has not taken yet.
    pub fn unsent(&self) -> usize {
        self.sending.borrow().outbound.len()
    }

    /// Ready once the client has acknowledged the whole response, or wants no more of it.
    pub fn acknowledged(&self) -> impl Future<Output = ()> + 'static {
        let acknowledged = self.sending.borrow().stream.stopped();
        async {
            if acknowledged.await.is_err() {
                // The connection is lost, and with it who would acknowledge.
            }
        }
    }

    /// Resets the stream in both directions, also where QUIC has taken the whole response and the client has not.
    pub fn reset(&self, code: Http3ErrorCode) {
        self.lost.set(true);
        let sending = &mut *self.sending.borrow_mut();
        sending.finished = false;
        sending.reset(code);
        self.receiving.borrow_mut().stop(code);
    }

    /// The time between a packet and its acknowledgement.
    pub fn round_trip(&self) -> Duration {
        self.connection.rtt()
    }
}

impl RequestSide {
    fn stop(&mut self, code: Http3ErrorCode) {
        if !self.ended
            && !std::mem::replace(&mut self.stopped, true)
            && self.stream.stop(code.into()).is_err()
        {
            // The client has sent all, or has reset the stream.
        }
    }
}

impl ResponseSide {
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamLost>> {
        while !self.outbound.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.outbound);
            let written = ready!(written).map_err(|_| StreamLost)?;
            self.outbound.advance(written);
        }
        if self.ended && !std::mem::replace(&mut self.finished, true) {
            self.stream.finish().map_err(|_| StreamLost)?;
        }
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, code: Http3ErrorCode) {
        self.outbound = BytesMut::new();
        if !std::mem::replace(&mut self.finished, true) && self.stream.reset(code.into()).is_err() {
            // The client has stopped it already, or has acknowledged all.
        }
    }

    /// Ready once the client wants no more of the response, or the connection is lost.
    fn poll_stopped(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self { stream, stopped, .. } = self;
        let stopped = stopped.get_or_insert_with(|| Box::pin(stream.stopped()));
        match ready!(stopped.as_mut().poll(context)) {
            // The client has acknowledged the whole response.
            Ok(None) => {
                *stopped = Box::pin(std::future::pending());
                Poll::Pending
            }
            Ok(Some(_)) | Err(_) => Poll::Ready(()),
        }
    }
}

impl Drop for Http3Stream {
    fn drop(&mut self) {
        // Without a reset, QUIC would end the stream as if the response were complete.
        self.sending.get_mut().reset(Http3ErrorCode::INTERNAL_ERROR);
        self.receiving.get_mut().stop(Http3ErrorCode::NO_ERROR);
    }
}
