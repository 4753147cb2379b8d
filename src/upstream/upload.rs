//! A request's body on its way to a backend.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::clock::deadline::now;

/// The client's body as the backend's connection reads it: streamed, counted and bounded.
#[derive(Debug)]
pub struct Upload {
    source: Option<(Incoming, Rc<UploadState>)>,
}

/// How far a request's body has come, as its exchange and its answer need to know.
#[derive(Debug)]
pub struct UploadState {
    /// Bytes allowed; `None`: no bound.
    limit: Option<u64>,
    bytes: Cell<u64>,
    begun: Cell<bool>,
    broken: Cell<Option<Broken>>,
    /// When the backend last took a part of it.
    progress: Cell<Option<Instant>>,
    done: Cell<bool>,
}

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It grew beyond its limit.
    #[error("the request body is too large")]
    TooLarge,
    /// The client broke it off; its connection knows why.
    #[error("the client broke the request body off")]
    Client,
}

impl UploadState {
    /// A body of at most `limit` bytes, none of which has come.
    pub fn new(limit: Option<u64>) -> Rc<Self> {
        Rc::new(Self {
            limit,
            bytes: Cell::new(0),
            begun: Cell::new(false),
            broken: Cell::new(None),
            progress: Cell::new(None),
            done: Cell::new(false),
        })
    }

    /// Bytes that came so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Why it broke off, if it did.
    pub fn broken(&self) -> Option<Broken> {
        self.broken.get()
    }

    /// Whether nothing of it was asked for yet.
    pub fn is_untouched(&self) -> bool {
        !self.begun.get()
    }

    /// Whether it has been read to its end (or there is none).
    pub fn is_done(&self) -> bool {
        self.done.get()
    }

    /// When the backend last took a part of it, if it did.
    pub(super) fn progress(&self) -> Option<Instant> {
        self.progress.get()
    }

    /// Counts a part; an error if it is one too many.
    pub fn count(&self, bytes: usize) -> Result<(), Broken> {
        self.bytes.set(self.bytes.get() + bytes as u64);
        match self.limit {
            Some(limit) if self.bytes.get() > limit => Err(self.break_off(Broken::TooLarge)),
            _ => Ok(()),
        }
    }

    fn break_off(&self, broken: Broken) -> Broken {
        self.broken.set(Some(broken));
        broken
    }
}

impl Upload {
    /// No body.
    pub const fn empty() -> Self {
        Self { source: None }
    }

    /// A client's body.
    pub fn new(incoming: Incoming, state: Rc<UploadState>) -> Self {
        if incoming.is_end_stream() {
            state.done.set(true);
            return Self::empty();
        }
        Self { source: Some((incoming, state)) }
    }

    /// Whether there is no body.
    pub const fn is_empty(&self) -> bool {
        self.source.is_none()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some((incoming, state)) = &mut self.get_mut().source else { return Poll::Ready(None) };
        state.begun.set(true);
        let frame = ready!(Pin::new(incoming).poll_frame(context));
        state.progress.set(Some(now()));
        Poll::Ready(match frame {
            None => {
                state.done.set(true);
                None
            }
            Some(Err(_)) => Some(Err(state.break_off(Broken::Client))),
            Some(Ok(frame)) => Some(state.count(frame.data_ref().map_or(0, Bytes::len)).map(|()| frame)),
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            None => true,
            Some((incoming, state)) => {
                let end = incoming.is_end_stream();
                if end {
                    state.done.set(true);
                }
                end
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.source.as_ref().map_or_else(|| SizeHint::with_exact(0), |(incoming, _)| incoming.size_hint())
    }
}
