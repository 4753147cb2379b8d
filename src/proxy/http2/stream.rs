//! One stream: a request that is served as if it had a connection of its own, and its answer.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use super::super::connection;
use super::seat::Seat;
use crate::http1::chunks::ChunkDecoder;
use crate::http1::fields::{Fields, Span};
use crate::http1::response::{Framing, HeadEnd, ResponseHead};
use crate::http2::body::{Cut, Incoming, Outgoing, Patience, Rest};
use crate::http2::head::{read_response, write_request};
use crate::socket::{Pipe, Stream};

/// Taken from the pipe at once.
const READ: usize = 32 << 10;

/// Serves one request.
pub(super) async fn serve(request: Request<RecvStream>, respond: SendResponse<Bytes>, seat: Seat) {
    let (head, body) = request.into_parts();
    let worker = Rc::clone(&seat.streams().worker);
    let (ended, chunked) = (body.is_end_stream(), !head.headers.contains_key(CONTENT_LENGTH));
    let mut buffers = worker.spare.take();
    write_request(&head, ended, &mut buffers.inbound);
    let (ours, theirs) = Pipe::new();
    let (presence, peer) = (Rc::clone(&seat.streams().presence), Rc::clone(&seat.streams().peer));
    let timeout = worker.plan().gateway.server.write_timeout;
    let patience = Patience { timeout, traffic: Rc::clone(&seat.streams().traffic) };
    let mut serving =
        pin!(connection::serve_one(Stream::Pipe(theirs), buffers, presence, peer, Rc::clone(&worker)));
    let mut passage = Passage {
        pipe: Some(ours),
        upload: (!ended).then(|| Incoming::new(body, chunked)),
        answer: Answer::Awaited(respond, HeadEnd::default()),
        come: BytesMut::new(),
        to_head: head.method == Method::HEAD,
        patience,
    };
    let mut served = false;
    poll_fn(|context| {
        passage.poll_up(context);
        served = served || serving.as_mut().poll(context).is_ready();
        let passed = passage.poll_down(context, &seat);
        if served && passed.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The way between a stream and its pipe.
struct Passage {
    /// `None` once the client has left, or has its answer.
    pipe: Option<Pipe>,
    /// `None` once it has come whole, or is of no use any more.
    upload: Option<Incoming>,
    answer: Answer,
    /// Of the answer, what has come and was not taken.
    come: BytesMut,
    to_head: bool,
    /// How long the client may take nothing.
    patience: Patience,
}

/// How far the answer is.
enum Answer {
    Awaited(SendResponse<Bytes>, HeadEnd),
    /// Its head went out. A gRPC call can still be told that something went wrong.
    Begun {
        body: Outgoing,
        grpc: bool,
    },
    Over,
}

impl Passage {
    /// Passes on what comes of the request's body.
    fn poll_up(&mut self, context: &mut Context<'_>) {
        let (Some(pipe), Some(upload)) = (&self.pipe, &mut self.upload) else { return };
        match upload.poll_pass(context, pipe) {
            Poll::Pending => {}
            Poll::Ready(Ok(()) | Err(Cut::Pipe)) => self.upload = None,
            // Whoever serves the request finds the pipe broken.
            Poll::Ready(Err(Cut::Peer)) => (self.upload, self.pipe) = (None, None),
        }
    }

    /// Passes on what comes of the answer. Ready once there is nothing more to say, or nobody to hear it.
    fn poll_down(&mut self, context: &mut Context<'_>, seat: &Seat) -> Poll<()> {
        loop {
            let Some(pipe) = &self.pipe else {
                if matches!(self.answer, Answer::Awaited(..)) {
                    seat.taken_back();
                }
                self.answer = Answer::Over;
                return Poll::Ready(());
            };
            let passed = match &mut self.answer {
                Answer::Awaited(..) => ready!(self.poll_head(context)),
                Answer::Begun { body, .. } => {
                    ready!(body.poll_pass(context, pipe, &mut self.come)).map(|()| None)
                }
                Answer::Over => return Poll::Ready(()),
            };
            match passed {
                Ok(Some(answer)) => self.answer = answer,
                Ok(None) => self.answer = Answer::Over,
                Err(Cut::Peer) => self.hang_up(),
                Err(Cut::Pipe) => self.break_off(),
            }
        }
    }

    /// Waits for the answer's head, and sends it on.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Answer>, Cut>> {
        let (Answer::Awaited(respond, end), Some(pipe)) = (&mut self.answer, &self.pipe) else {
            return Poll::Ready(Ok(None));
        };
        loop {
            while let Some(length) = end.advance(&self.come).map_err(|_| Cut::Pipe)? {
                let mut spans = Vec::new();
                let (head, response) = parse(&self.come[..length], self.to_head, &mut spans)?;
                self.come.advance(length);
                if head.is_interim() {
                    *end = HeadEnd::default();
                    respond.send_informational(response).map_err(|_| Cut::Peer)?;
                    continue;
                }
                return Poll::Ready(begin(respond, &head, response, self.patience.clone()));
            }
            match pipe.poll_read(context, &mut self.come, READ) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Cut::Pipe)),
                Poll::Pending => return respond.poll_reset(context).map(|_| Err(Cut::Peer)),
            }
        }
    }

    /// The client has left, or takes nothing.
    fn hang_up(&mut self) {
        let pipe = self.pipe.take();
        if let (Some(pipe), Answer::Begun { body, .. }) = (pipe, &self.answer)
            && body.is_stalled()
        {
            pipe.stall();
        }
    }

    /// The answer broke off within.
    fn break_off(&mut self) {
        match std::mem::replace(&mut self.answer, Answer::Over) {
            Answer::Awaited(mut respond, _) => respond.send_reset(Reason::INTERNAL_ERROR),
            Answer::Begun { mut body, grpc: true } => body.end_with(unavailable()),
            Answer::Begun { mut body, grpc: false } => body.reset(Reason::INTERNAL_ERROR),
            Answer::Over => {}
        }
    }
}

fn parse(bytes: &[u8], to_head: bool, spans: &mut Vec<Span>) -> Result<(ResponseHead, Response<()>), Cut> {
    let head = ResponseHead::parse(bytes, to_head, spans).map_err(|_| Cut::Pipe)?;
    let response = read_response(&head, Fields::new(bytes, spans)).map_err(|_| Cut::Pipe)?;
    Ok((head, response))
}

/// Sends the head. `None`: nothing follows it.
fn begin(
    respond: &mut SendResponse<Bytes>,
    head: &ResponseHead,
    mut response: Response<()>,
    patience: Patience,
) -> Result<Option<Answer>, Cut> {
    let rest = match head.framing {
        Framing::None | Framing::Length(0) => Rest::Nothing,
        Framing::Length(length) => Rest::Length(length),
        Framing::Chunked => Rest::Chunked(ChunkDecoder::of_response()),
        // Whoever speaks HTTP/1.1 to us within frames all bodies.
        Framing::UntilClose => return Err(Cut::Pipe),
    };
    let ended = matches!(rest, Rest::Nothing);
    let content_type = response.headers().get(CONTENT_TYPE);
    let grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        // It is made of messages, which have their own lengths.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    let stream = respond.send_response(response, ended).map_err(|_| Cut::Peer)?;
    let body = Outgoing::new(stream, rest, Some(patience));
    Ok((!ended).then_some(Answer::Begun { body, grpc }))
}

/// What a gRPC call is told when its answer breaks off.
fn unavailable() -> HeaderMap {
    let fields = [("grpc-status", "14"), ("grpc-message", "the upstream broke off")];
    let field = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    fields.into_iter().map(field).collect()
}
