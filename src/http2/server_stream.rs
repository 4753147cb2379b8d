//! One stream of a client's connection: its request's body as it comes, and its answer as it goes.

use std::cell::RefCell;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::data::{DataReader, DataWriter, Lost, Patience};

/// One stream of a client's connection. The parts of its request's task share it.
#[derive(Debug)]
pub struct ServerStream {
    request: RefCell<DataReader>,
    answer: RefCell<Answer>,
    patience: Patience,
}

/// How far the answer is.
#[derive(Debug)]
enum Answer {
    Awaited(SendResponse<Bytes>),
    /// Its head went out. A gRPC call can still be told that something went wrong.
    Begun {
        body: DataWriter,
        grpc: bool,
    },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It went out whole, or the client was told that it did not.
    Told,
    /// The client took its request back before the answer began, or there was none for it.
    Unanswered,
}

impl ServerStream {
    /// The stream of a request whose head has come.
    pub fn new(body: RecvStream, respond: SendResponse<Bytes>, patience: Patience) -> Self {
        let request = RefCell::new(DataReader::new(body));
        Self { request, answer: RefCell::new(Answer::Awaited(respond)), patience }
    }

    /// Takes what has come of the request's body: see [`DataReader::poll_pull`]. Whether no more will come.
    pub fn pull(&self, context: &mut Context<'_>) -> bool {
        self.request.borrow_mut().poll_pull(context).is_ready()
    }

    /// Appends what has come of the request's body. Ready with 0 at its end.
    ///
    /// # Errors
    /// The client has taken its request back.
    pub fn poll_read(&self, context: &mut Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, Lost>> {
        self.request.borrow_mut().poll_read(context, into)
    }

    /// The trailers behind the request's body, once it has come whole and was taken.
    pub fn trailers(&self) -> Option<HeaderMap> {
        self.request.borrow().trailers().cloned()
    }

    /// Opens the client's window by `bytes`.
    pub fn release(&self, bytes: usize) {
        self.request.borrow_mut().release(bytes);
    }

    /// Drops what has come of the request's body, and lets the client send as much more. Whether no more will come, and how much was
    /// dropped.
    pub fn discard(&self, context: &mut Context<'_>) -> (bool, usize) {
        let mut request = self.request.borrow_mut();
        let over = request.poll_pull(context).is_ready();
        (over, request.discard())
    }

    /// Ready once the client has taken its request back. What comes of the request's body meanwhile is taken: frames with few bytes
    /// hold much memory.
    pub fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.pull(context);
        self.poll_reset(context)
    }

    /// Ready once the client has reset the stream, or the connection is lost.
    pub fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self.answer.borrow_mut() {
            Answer::Awaited(respond) => respond.poll_reset(context).map(drop),
            Answer::Begun { body, .. } => body.poll_reset(context),
        }
    }

    /// Sends a head that only precedes the answer.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn send_interim(&self, head: Response<()>) -> Result<(), Lost> {
        match &mut *self.answer.borrow_mut() {
            Answer::Awaited(respond) => respond.send_informational(head).map_err(|_| Lost),
            Answer::Begun { .. } => Ok(()),
        }
    }

    /// Begins the answer. `ended`: nothing follows its head.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn send_head(&self, mut head: Response<()>, ended: bool) -> Result<(), Lost> {
        let mut answer = self.answer.borrow_mut();
        let Answer::Awaited(respond) = &mut *answer else { return Err(Lost) };
        let content_type = head.headers().get(CONTENT_TYPE);
        let grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if grpc {
            // It is made of messages, which have their own lengths.
            head.headers_mut().remove(CONTENT_LENGTH);
        }
        let stream = respond.send_response(head, ended).map_err(|_| Lost)?;
        *answer = Answer::Begun { body: DataWriter::new(stream, ended, Some(self.patience.clone())), grpc };
        Ok(())
    }

    /// Room for more of the answer's body: see [`DataWriter::poll_room`].
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn poll_room(&self, context: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, Lost>> {
        match &mut *self.answer.borrow_mut() {
            Answer::Begun { body, .. } => body.poll_room(context, wanted),
            Answer::Awaited(_) => Poll::Ready(Ok(wanted)),
        }
    }

    /// Takes a piece of the answer's body: see [`DataWriter::push`].
    pub fn push(&self, piece: Bytes, last: bool) {
        if let Answer::Begun { body, .. } = &mut *self.answer.borrow_mut() {
            body.push(piece, last);
        }
    }

    /// Ready once the client's window has taken the last piece.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.pull(context);
        match &mut *self.answer.borrow_mut() {
            Answer::Begun { body, .. } => body.poll_send(context),
            Answer::Awaited(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends the answer's body.
    ///
    /// # Errors
    /// The stream is of no use any more.
    pub fn end(&self, trailers: HeaderMap) -> Result<(), Lost> {
        match &mut *self.answer.borrow_mut() {
            Answer::Begun { body, .. } => body.end(trailers),
            Answer::Awaited(_) => Err(Lost),
        }
    }

    /// Whether the client took nothing for too long.
    pub fn is_stalled(&self) -> bool {
        match &*self.answer.borrow() {
            Answer::Begun { body, .. } => body.is_stalled(),
            Answer::Awaited(_) => self.patience.traffic.is_stalled(),
        }
    }

    /// Tells the client of an answer that is not whole, and how it ended.
    pub fn finish(&self) -> Ending {
        match &mut *self.answer.borrow_mut() {
            Answer::Awaited(respond) => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                Ending::Unanswered
            }
            Answer::Begun { body, grpc } => {
                if !body.is_ended() && (!*grpc || body.end(unavailable()).is_err()) {
                    body.reset(Reason::INTERNAL_ERROR);
                }
                Ending::Told
            }
        }
    }
}

/// What a gRPC call is told when its answer breaks off.
fn unavailable() -> HeaderMap {
    let fields = [("grpc-status", "14"), ("grpc-message", "the upstream broke off")];
    let field = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    fields.into_iter().map(field).collect()
}
