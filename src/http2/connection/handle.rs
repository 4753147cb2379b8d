//! The handle of one stream, used by the task of its request.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};

use super::super::frame::{ErrorCode, put_headers, put_window_update};
use super::super::head::{InvalidHead, ReceivedHead, put_request, put_response, put_trailers};
use super::super::head_sink::put_connect;
use super::super::hpack::encoder::{Scheme, put_table_size, scheme_field};
use super::streams::StreamState;
use super::waiting::is_scarce;
use super::{ConnectionState, Http2Codec, Reset, Role};

/// A peer with this round trip or a longer one needs a larger window for the same rate.
const FAR: Duration = Duration::from_millis(2);
/// What the windows of all streams of a connection hold together, beyond which they stay as they began: a few streams have
/// large windows, and many that nobody reads hold little. Many streams need no large ones for the same rate in all.
const SHARED_WINDOW: u32 = 1 << 20;

/// The window that one of this many streams may have.
fn shared_window(streams: usize) -> u32 {
    SHARED_WINDOW / u32::try_from(streams.max(1)).unwrap_or(u32::MAX)
}

/// The peer has reset the stream, its connection is lost, or its window stays closed for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct StreamLost;

/// One stream. Dropped before both sides have sent all, it is reset.
#[derive(Debug)]
pub struct StreamHandle {
    connection: Rc<Http2Codec>,
    pub(super) id: u32,
}

impl StreamHandle {
    pub(super) fn new(connection: Rc<Http2Codec>, id: u32) -> Self {
        Self { connection, id }
    }

    /// Its connection.
    pub fn connection(&self) -> &Http2Codec {
        &self.connection
    }

    fn with<T>(&self, missing: T, act: impl FnOnce(&mut ConnectionState, u32) -> T) -> T {
        let mut state = self.connection.state.borrow_mut();
        if state.streams.get(self.id).is_none() {
            return missing;
        }
        act(&mut state, self.id)
    }

    /// Acts on a stream that can still be sent on, and has the connection send the result.
    fn send<T>(&self, act: impl FnOnce(&mut ConnectionState, u32) -> T) -> Result<T, StreamLost> {
        let acted = self.with(Err(StreamLost), |state, id| match state.streams.get(id) {
            Some(stream) if stream.reset.is_none() && !stream.send_ended => Ok(act(state, id)),
            _ => Err(StreamLost),
        });
        if acted.is_ok() {
            self.connection.wake();
        }
        acted
    }

    /// Appends received bytes of the body. Ready with 0 at its end. Bytes read are to be released: see
    /// [`Self::release`].
    ///
    /// # Errors
    ///
    /// The peer broke the body off, and all earlier bytes were read.
    pub fn poll_read(&self, context: &Context<'_>, into: &mut BytesMut) -> Poll<Result<usize, StreamLost>> {
        self.with(Poll::Ready(Err(StreamLost)), |state, id| {
            let Some(stream) = state.streams.get_mut(id) else { return Poll::Ready(Err(StreamLost)) };
            let received = stream.received.len();
            if received > 0 {
                stream.unreleased += received;
                if into.is_empty() {
                    std::mem::swap(into, &mut stream.received);
                } else {
                    into.extend_from_slice(&stream.received);
                }
                stream.empty_received();
                state.receiving.held -= received;
                return Poll::Ready(Ok(received));
            }
            match stream {
                StreamState { receive_ended: true, .. } => Poll::Ready(Ok(0)),
                StreamState { reset: Some(_), .. } => Poll::Ready(Err(StreamLost)),
                _ => {
                    stream.wait_to_read(context);
                    Poll::Pending
                }
            }
        })
    }

    /// Opens the window by bytes that were read and passed on.
    pub fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let announced = self.with(false, |state, id| {
            let before = state.outbound.bytes.len();
            state.release_connection(bytes);
            if let Some(stream) = state.streams.get_mut(id) {
                stream.unreleased = stream.unreleased.saturating_sub(bytes);
            }
            let share = shared_window(state.streams.active());
            if let Some(stream) = state.streams.get_mut(id).filter(|stream| stream.is_receiving()) {
                let max = match state.round_trip >= Some(FAR) {
                    true => state.receiving.stream_windows.1,
                    false => state.receiving.stream_windows.1 / 2,
                };
                let max = max.min(share);
                let wanted = max.saturating_sub(stream.receive_window.size());
                let more = wanted.min(state.receiving.max_grown - state.receiving.grown);
                if more > 0 && !is_scarce() {
                    stream.receive_window.grow(more);
                    stream.grown += more;
                    state.receiving.grown += more;
                }
                if let Some(increment) = stream.receive_window.release(bytes) {
                    put_window_update(id, increment, &mut state.outbound.bytes);
                }
            }
            state.outbound.bytes.len() > before
        });
        if announced {
            self.connection.wake();
        }
    }

    /// The capacity of the buffer with received bytes of the body that are not read. The present task is woken when more
    /// are received.
    pub fn poll_unread(&self, context: &Context<'_>) -> usize {
        self.with(0, |state, id| {
            state.streams.get_mut(id).map_or(0, |stream| {
                stream.wait_to_read(context);
                stream.received.capacity()
            })
        })
    }

    /// Whether the peer may send no byte of the body: the window of the stream or of the connection is closed.
    pub fn is_window_closed(&self) -> bool {
        self.with(false, |state, id| {
            let is_closed = |stream: &StreamState| stream.receive_window.is_closed();
            state.receiving.window.is_closed() || state.streams.get(id).is_some_and(is_closed)
        })
    }

    /// Drops received bytes of the body, and opens the window by as much. Returns whether no more will come, and how
    /// many bytes were dropped.
    pub fn discard(&self, context: &Context<'_>) -> (bool, usize) {
        let discarded = self.with((true, 0), |state, id| {
            let Some(stream) = state.streams.get_mut(id) else { return (true, 0) };
            let received = stream.received.len();
            stream.received = BytesMut::new();
            stream.unreleased += received;
            stream.wait_to_read(context);
            state.receiving.held -= received;
            (!stream.is_receiving(), received)
        });
        self.release(discarded.1);
        discarded
    }

    /// Whether the peer has sent all, and all of it was read.
    pub fn is_read_to_end(&self) -> bool {
        self.with(false, |state, id| {
            state.streams.get(id).is_some_and(|stream| stream.receive_ended && stream.received.is_empty())
        })
    }

    /// The lines of the trailers, once the body was received and read completely.
    pub fn trailers(&self) -> Option<BytesMut> {
        self.with(None, |state, id| {
            let stream = state.streams.get(id)?;
            (stream.receive_ended && stream.received.is_empty()).then(|| stream.trailers.clone())
        })
    }

    /// The next head of a response, and whether nothing follows it.
    ///
    /// # Errors
    ///
    /// There is none: how the stream ended.
    pub fn poll_head(&self, context: &Context<'_>) -> Poll<Result<(ReceivedHead, bool), Reset>> {
        self.with(Poll::Ready(Err(Reset::Lost)), |state, id| {
            let Some(stream) = state.streams.get_mut(id) else { return Poll::Ready(Err(Reset::Lost)) };
            match stream.reset {
                _ if !stream.heads.is_empty() => Poll::Ready(Ok(stream.heads.remove(0))),
                Some(reset) => Poll::Ready(Err(reset)),
                None => {
                    stream.wait_to_read(context);
                    Poll::Pending
                }
            }
        })
    }

    /// Ready once the peer has reset the stream, or the connection is lost.
    pub fn poll_reset(&self, context: &Context<'_>) -> Poll<()> {
        self.with(Poll::Ready(()), |state, id| {
            let Some(stream) = state.streams.get_mut(id) else { return Poll::Ready(()) };
            if stream.reset.is_some() {
                return Poll::Ready(());
            }
            stream.wait_to_read(context);
            Poll::Pending
        })
    }

    /// Sends a response head, given as HTTP/1.1. `ended`: nothing follows. Returns whether it answers a gRPC call.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used, or the head is invalid.
    pub fn send_response(&self, head: &[u8], ended: bool) -> Result<bool, StreamLost> {
        self.send(|state, id| state.put_head(id, ended, |out| put_response(head, out)))?
            .map_err(|InvalidHead| StreamLost)
    }

    /// Sends a response head, given as a header block. `ended`: nothing follows.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn send_block(&self, block: &[u8], ended: bool) -> Result<(), StreamLost> {
        let put = |out: &mut BytesMut| {
            out.extend_from_slice(block);
            Ok(())
        };
        self.send(|state, id| state.put_head(id, ended, put))?.map_err(|InvalidHead| StreamLost)
    }

    /// The number of bytes, of `wanted`, that the peer's windows and the connection have room for. The room stays free
    /// for other streams until [`Self::send_data`] uses it. Pending while there is none.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn poll_room(&self, context: &Context<'_>, wanted: usize) -> Poll<Result<usize, StreamLost>> {
        self.with(Poll::Ready(Err(StreamLost)), |state, id| match state.streams.get(id) {
            Some(stream) if stream.reset.is_none() && !stream.send_ended => {
                match state.poll_room(id, context) {
                    0 => Poll::Pending,
                    room => Poll::Ready(Ok(room.min(wanted))),
                }
            }
            _ => Poll::Ready(Err(StreamLost)),
        })
    }

    /// Sends as much of `data` as there is room for; returns the number of bytes. `last`: the stream ends after it.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn send_data(&self, data: &[u8], last: bool) -> Result<usize, StreamLost> {
        self.send(|state, id| state.put_data(id, data, last))
    }

    /// Ends the stream with trailers, as lines; there may be none.
    ///
    /// # Errors
    ///
    /// The stream can no longer be used.
    pub fn send_end(&self, trailers: &[u8]) -> Result<(), StreamLost> {
        let ended = self.send(|state, id| {
            if trailers.is_empty() {
                state.put_data(id, &[], true);
                return Ok(());
            }
            state.put_head(id, true, |out| put_trailers(trailers, out))
        });
        ended?.map_err(|InvalidHead| StreamLost)
    }

    /// Resets the stream.
    pub fn reset(&self, code: ErrorCode) {
        self.with((), |state, id| {
            if state.streams.get(id).is_some_and(StreamState::is_open) {
                state.reset_stream(id, code, Reset::Fault);
            }
        });
        self.connection.wake();
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        let mut state = self.connection.state.borrow_mut();
        let state = &mut *state;
        let Some(stream) = state.streams.get(self.id) else { return };
        let open = stream.is_open();
        // A complete response may precede the end of its request.
        let code = if stream.send_ended && state.role == Role::Server {
            ErrorCode::NO_ERROR
        } else {
            ErrorCode::CANCEL
        };
        if open {
            state.reset_stream(self.id, code, Reset::Fault);
        }
        state.remove_stream(self.id);
        state.wake_to_open();
        // Its end may be that of the connection.
        self.connection.wake();
    }
}

impl Http2Codec {
    /// A stream for a request, once the peer accepts another. The head is given as HTTP/1.1. `ended`: nothing follows.
    ///
    /// # Errors
    ///
    /// The connection accepts no more requests, or the head is invalid.
    pub fn open(
        self: &Rc<Self>,
        head: &[u8],
        scheme: Scheme,
        ended: bool,
    ) -> Result<StreamHandle, OpenError> {
        let to_head = head.starts_with(b"HEAD ");
        self.open_with(|stream| stream.to_head = to_head, ended, |out| put_request(head, scheme, out))
    }

    /// The same with the head given as a header block of
    /// [`BlockHead`](crate::http2::head_sink::BlockHead). `to_head`: the method is HEAD.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_block(
        self: &Rc<Self>,
        block: &[u8],
        scheme: Scheme,
        (to_head, ended): (bool, bool),
    ) -> Result<StreamHandle, OpenError> {
        self.open_with(
            |stream| stream.to_head = to_head,
            ended,
            |out| {
                // The scheme comes first.
                let (_, fields) = block.split_first().ok_or(InvalidHead)?;
                out.put_u8(scheme_field(scheme));
                out.extend_from_slice(fields);
                Ok(())
            },
        )
    }

    /// A stream for a WebSocket: an extended CONNECT (RFC 8441) instead of the GET with this header block.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_connect(self: &Rc<Self>, block: &[u8], scheme: Scheme) -> Result<StreamHandle, OpenError> {
        self.open_with(|stream| stream.is_connect = true, false, |out| put_connect(block, scheme, out))
    }

    fn open_with(
        self: &Rc<Self>,
        prepare: impl FnOnce(&mut StreamState),
        ended: bool,
        put: impl FnOnce(&mut BytesMut) -> Result<(), InvalidHead>,
    ) -> Result<StreamHandle, OpenError> {
        let mut state = self.state.borrow_mut();
        if state.may_open() != Ok(true) {
            return Err(OpenError::Closed);
        }
        let id = state.streams.next_id();
        let mut stream = StreamState::new(id, state.initial_receive_window(), state.peer.initial_window);
        prepare(&mut stream);
        state.streams.add(stream);
        if state.put_head(id, ended, put).is_err() {
            state.streams.remove(id);
            return Err(OpenError::Unfit);
        }
        drop(state);
        let stream = StreamHandle::new(Rc::clone(self), id);
        self.wake();
        Ok(stream)
    }

    /// Ready once the peer accepts another request.
    ///
    /// # Errors
    ///
    /// The connection accepts no more requests.
    pub fn poll_open(&self, context: &Context<'_>) -> Poll<Result<(), OpenError>> {
        let mut state = self.state.borrow_mut();
        match state.may_open() {
            Ok(true) => Poll::Ready(Ok(())),
            Err(_) => Poll::Ready(Err(OpenError::Closed)),
            Ok(false) => {
                state.wait_to_open(context);
                Poll::Pending
            }
        }
    }

    /// Ready with whether the peer serves extended CONNECT, once it has announced its settings.
    ///
    /// # Errors
    ///
    /// The connection accepts no more requests.
    pub fn poll_connect_protocol(&self, context: &Context<'_>) -> Poll<Result<bool, OpenError>> {
        let mut state = self.state.borrow_mut();
        if state.may_open().is_err() {
            return Poll::Ready(Err(OpenError::Closed));
        }
        if state.inbound.greeted {
            return Poll::Ready(Ok(state.peer.connect_protocol));
        }
        state.wait_to_open(context);
        Poll::Pending
    }

    /// The number of concurrent requests that the peer accepts; `None` until it has announced it.
    pub fn max_requests(&self) -> Option<usize> {
        let state = self.state.borrow();
        state.inbound.greeted.then_some(state.peer.max_streams)
    }

    /// The number of requests that the peer's GOAWAY says it has processed, or may have.
    pub fn requests_served(&self) -> usize {
        let last = self.state.borrow().goaway.received;
        last.map_or(usize::MAX, |last| usize::try_from(last.div_ceil(2)).unwrap_or(usize::MAX))
    }

    /// Whether the peer accepts hardly any more bytes of bodies at present.
    pub fn is_choked(&self) -> bool {
        let state = self.state.borrow();
        state.sending.window.available() <= state.sending.max_window / 16
    }

    /// Whether the connection accepts another request, now or later.
    pub fn is_usable(&self) -> bool {
        self.state.borrow().may_open().is_ok()
    }
}

/// The initial capacity of the buffer of frames: some responses, or one with a small body. Growing it from nothing
/// takes six steps.
const FIRST_BUFFER: usize = 2 << 10;

/// Why a stream was not opened. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The connection accepts no more requests.
    Closed,
    /// The request head is invalid.
    Unfit,
}

impl ConnectionState {
    /// Wakes the present task when a stream has ended or the peer has sent SETTINGS.
    fn wait_to_open(&mut self, context: &Context<'_>) {
        if !self.open_waiters.iter().any(|waker| waker.will_wake(context.waker())) {
            self.open_waiters.push(context.waker().clone());
        }
    }

    fn put_head<T>(
        &mut self,
        id: u32,
        ended: bool,
        put: impl FnOnce(&mut BytesMut) -> Result<T, InvalidHead>,
    ) -> Result<T, InvalidHead> {
        if self.outbound.bytes.capacity() == 0 {
            self.outbound.bytes.reserve(FIRST_BUFFER);
        }
        let start = self.outbound.bytes.len();
        let mut result = Err(InvalidHead);
        let table_update = std::mem::take(&mut self.outbound.table_update);
        put_headers(id, ended, &mut self.outbound.bytes, |out| {
            if table_update {
                // The encoder uses no dynamic table, whatever size the peer allows (RFC 7541 §4.2).
                put_table_size(0, out);
            }
            result = put(out);
        });
        if result.is_err() {
            self.outbound.bytes.truncate(start);
            self.outbound.table_update = table_update;
        } else if ended {
            self.end_sending(id);
        }
        result
    }
}
