//! Reads answers as the gateway's own codec does, in whatever segments they come, and notes all that it says.

use bytes::{Bytes, BytesMut};

use crate::http1::chunks::ChunkDecoder;
use crate::http1::response::{Framing, HeadEnd, ResponseHead};
use crate::http1::trailers::Trailers;

/// An answer as the codec reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The statuses of the interim answers before it.
    pub(crate) interim: Vec<u16>,
    /// Its head, if it has come.
    pub(crate) head: Option<Head>,
    pub(crate) body: BytesMut,
    /// Lines with their CR LF.
    pub(crate) trailers: Bytes,
    /// It is refused. Nothing is read behind that.
    pub(crate) refused: bool,
    /// It is whole.
    pub(crate) complete: bool,
    /// Where it ends, if it is whole; else 0.
    pub(crate) length: usize,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) reason: Bytes,
    pub(crate) framing: Framing,
    pub(crate) kept: bool,
    pub(crate) fields: Vec<(Bytes, Bytes)>,
}

/// A decoder of the bodies of answers.
pub(crate) fn decoder() -> ChunkDecoder {
    ChunkDecoder::of_response()
}

enum State {
    Head(HeadEnd),
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    Over,
}

struct Reader {
    to_head: bool,
    state: State,
    inbound: Vec<u8>,
    answer: Answer,
    /// Bytes taken of the stream so far.
    taken: usize,
}

/// Reads the answer to a request of this method, which comes in these segments; then the connection is closed.
pub(crate) fn read(method: &str, segments: &[&[u8]]) -> Answer {
    let mut reader = Reader {
        to_head: method == "HEAD",
        state: State::Head(HeadEnd::default()),
        inbound: Vec::new(),
        answer: Answer::default(),
        taken: 0,
    };
    for segment in segments {
        reader.inbound.extend_from_slice(segment);
        while reader.step() {}
    }
    if matches!(reader.state, State::UntilClose) {
        reader.complete();
    }
    reader.answer
}

impl Reader {
    fn advance(&mut self, bytes: usize) {
        self.inbound.drain(..bytes);
        self.taken += bytes;
    }

    fn refuse(&mut self) -> bool {
        self.answer.refused = true;
        self.state = State::Over;
        false
    }

    fn complete(&mut self) -> bool {
        self.answer.complete = true;
        self.answer.length = self.taken;
        self.state = State::Over;
        false
    }

    /// Whether there may be more to read.
    fn step(&mut self) -> bool {
        match &mut self.state {
            State::Over => false,
            State::Head(end) => match end.advance(&self.inbound) {
                Ok(None) => false,
                Ok(Some(length)) => self.take_head(length),
                Err(_) => self.refuse(),
            },
            State::Length(0) => self.complete(),
            State::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.inbound.len());
                *left -= here as u64;
                self.take(here);
                here > 0
            }
            State::UntilClose => {
                self.take(self.inbound.len());
                false
            }
            State::Chunked(_) => self.take_chunks(),
        }
    }

    fn take(&mut self, bytes: usize) {
        self.answer.body.extend_from_slice(&self.inbound[..bytes]);
        self.advance(bytes);
    }

    fn take_head(&mut self, length: usize) -> bool {
        let bytes = self.inbound[..length].to_vec();
        let mut spans = Vec::new();
        let Ok(head) = ResponseHead::parse(&bytes, self.to_head, &mut spans) else { return self.refuse() };
        self.advance(length);
        if head.is_interim() {
            self.answer.interim.push(head.status.as_u16());
            self.state = State::Head(HeadEnd::default());
            return true;
        }
        let fields = crate::http1::fields::Fields::new(&bytes, &spans);
        let fields = fields
            .iter()
            .map(|field| (Bytes::copy_from_slice(field.name), Bytes::copy_from_slice(field.value)));
        self.answer.head = Some(Head {
            status: head.status.as_u16(),
            reason: Bytes::copy_from_slice(&bytes[head.reason.0..head.reason.1]),
            framing: head.framing,
            kept: head.kept,
            fields: fields.collect(),
        });
        self.state = match head.framing {
            Framing::None => State::Length(0),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(decoder()),
            Framing::UntilClose => State::UntilClose,
        };
        true
    }

    fn take_chunks(&mut self) -> bool {
        let State::Chunked(decoder) = &mut self.state else { return false };
        let Ok((taken, data)) = decoder.decode(&self.inbound) else { return self.refuse() };
        self.answer.body.extend_from_slice(data);
        let trailers = decoder.is_done().then(|| decoder.trailers(&Trailers::All));
        self.advance(taken);
        match trailers {
            Some(trailers) => {
                self.answer.trailers = trailers.into();
                self.complete()
            }
            None => taken > 0,
        }
    }
}
