//! Received frames, and their effect on the connection and its streams (RFC 9113 §5, §6).

use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};

use super::super::frame::{
    ErrorCode, FrameHeader, HEADER_LENGTH, MAX_PAYLOAD, flag, kind, put_goaway, put_ping, put_window_update,
};
use super::streams::{Closed, StreamState};
use super::{
    ConnectionEnd, ConnectionState, FrameError, Http2Codec, MAX_OUTBOUND, MAX_REPLIES, PING_ALIVE,
    PING_GOAWAY, PREFACE, READ, Reset, Role,
};
use crate::clock::now;

/// The part of a DATA frame that is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    stream: u32,
    /// Bytes of the body.
    data: usize,
    /// Bytes of padding after it.
    padding: usize,
    end_stream: bool,
}

impl Http2Codec {
    /// Reads received bytes. Returns whether there were any.
    pub(super) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        state: &mut ConnectionState,
        budget: &mut usize,
    ) -> bool {
        if state.is_paused() {
            return false;
        }
        // Bytes read before the switch to HTTP/2 are in the buffer already.
        let before = if state.inbound.preface > 0 { state.inbound.bytes.len() } else { 0 };
        let read = match self.socket.poll_read(context, &mut state.inbound.bytes, READ) {
            Poll::Ready(Ok(read)) if read > 0 => read,
            Poll::Pending if before > 0 => 0,
            Poll::Pending => {
                if state.inbound.bytes.is_empty() {
                    // A waiting connection holds no buffer.
                    state.inbound.bytes = BytesMut::new();
                }
                return false;
            }
            Poll::Ready(ended) => {
                if let Err(error) = ended {
                    self.traffic.note_end(&error);
                }
                state.lose();
                return true;
            }
        };
        *budget = budget.saturating_sub(read);
        self.traffic.add_received(read);
        state.receive(&self.ponged);
        let is_open = match state.role {
            Role::Server => state.has_open_block(),
            Role::Client => state.awaits_rest(),
        };
        self.traffic.note_block(is_open);
        true
    }
}

impl ConnectionState {
    /// Processes all frames received completely.
    fn receive(&mut self, ponged: &std::cell::Cell<bool>) {
        let mut inbound = std::mem::take(&mut self.inbound.bytes);
        while self.end.is_none() {
            match self.take_frame(&mut inbound, ponged) {
                Ok(true) => {}
                Ok(false) => break,
                Err(FrameError::Connection(code, what)) => self.fail(code, what),
                Err(FrameError::Stream(id, code)) => self.reset_for_fault(id, code),
            }
        }
        self.inbound.bytes = inbound;
    }

    /// Processes the next frame, or the received part of a DATA frame. Returns whether more may follow.
    fn take_frame(
        &mut self,
        inbound: &mut BytesMut,
        ponged: &std::cell::Cell<bool>,
    ) -> Result<bool, FrameError> {
        if self.inbound.preface > 0 {
            return self.skip_preface(inbound);
        }
        if self.inbound.payload.is_some() {
            return self.take_payload(inbound);
        }
        let Some(header) = FrameHeader::read(inbound) else { return Ok(false) };
        self.check_order(&header)?;
        if header.kind == kind::DATA {
            return self.begin_data(header, inbound);
        }
        let end = HEADER_LENGTH + header.length;
        let Some(payload) = inbound.get(HEADER_LENGTH..end) else { return Ok(false) };
        self.abuse.overhead.count(&header);
        self.may_ping |= header.kind == kind::HEADERS;
        let handled = match header.kind {
            kind::HEADERS => self.receive_headers(header, payload),
            kind::CONTINUATION => self.receive_continuation(header, payload),
            kind::PRIORITY => self.receive_priority(header, payload),
            kind::RST_STREAM => self.receive_reset(header, payload),
            kind::SETTINGS => self.receive_settings_frame(header, payload),
            kind::PUSH_PROMISE => Err(FrameError::protocol("PUSH_PROMISE")),
            kind::PING => self.receive_ping(header, payload, ponged),
            kind::GOAWAY => self.receive_goaway(header, payload),
            kind::WINDOW_UPDATE => self.receive_window_update(header, payload),
            // RFC 9113 §5.5.
            _ => Ok(()),
        };
        inbound.advance(end);
        handled.map(|()| true)
    }

    fn skip_preface(&mut self, inbound: &mut BytesMut) -> Result<bool, FrameError> {
        let start = PREFACE.len() - self.inbound.preface;
        let here = self.inbound.preface.min(inbound.len());
        if inbound[..here] != PREFACE[start..start + here] {
            return Err(FrameError::protocol("no preface"));
        }
        inbound.advance(here);
        self.inbound.preface -= here;
        Ok(self.inbound.preface == 0)
    }

    /// Whether this frame is allowed now.
    fn check_order(&mut self, header: &FrameHeader) -> Result<(), FrameError> {
        if header.length > MAX_PAYLOAD {
            return Err(FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, "too large a frame"));
        }
        if !self.inbound.greeted && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(FrameError::protocol("SETTINGS did not come first"));
        }
        match &self.inbound.block {
            Some(block) if header.kind != kind::CONTINUATION || header.stream != block.stream => {
                Err(FrameError::protocol("a header block was not ended"))
            }
            None if header.kind == kind::CONTINUATION => Err(FrameError::protocol("CONTINUATION of nothing")),
            _ => Ok(()),
        }
    }

    /// Whether a header block is open, or a frame of one was not received completely.
    fn has_open_block(&self) -> bool {
        let begun =
            || FrameHeader::read(&self.inbound.bytes).is_some_and(|header| header.kind == kind::HEADERS);
        self.inbound.block.is_some() || self.inbound.payload.is_none() && self.inbound.preface == 0 && begun()
    }

    /// Begins a DATA frame. Its payload is passed on as it is received.
    fn begin_data(&mut self, header: FrameHeader, inbound: &mut BytesMut) -> Result<bool, FrameError> {
        let mut padding = 0;
        let mut consumed = HEADER_LENGTH;
        if header.has(flag::PADDED) && header.length > 0 {
            let Some(&length) = inbound.get(HEADER_LENGTH) else { return Ok(false) };
            padding = usize::from(length);
            consumed += 1;
        }
        let length = (header.length + HEADER_LENGTH).checked_sub(consumed + padding);
        let data = length.filter(|_| !header.has(flag::PADDED) || header.length > 0);
        let data = data.ok_or(FrameError::protocol("DATA with too much padding"))?;
        inbound.advance(consumed);
        self.may_ping = true;
        // Padding is not content.
        self.abuse.overhead.count(&FrameHeader { length: data, ..header });
        if header.stream == 0 || self.is_idle(header.stream) {
            return Err(FrameError::protocol("DATA of no stream"));
        }
        let end_stream = header.has(flag::END_STREAM);
        self.inbound.payload = Some(Payload { stream: header.stream, data, padding, end_stream });
        self.receiving.window.receive(header.length).map_err(|_| {
            FrameError::Connection(ErrorCode::FLOW_CONTROL_ERROR, "more DATA than the window has")
        })?;
        // Bytes that are no body are released at once.
        self.release_connection(header.length - data);
        self.admit_data(header, data)?;
        Ok(true)
    }

    /// Whether the stream accepts a frame with `data` bytes of a body.
    fn admit_data(&mut self, header: FrameHeader, data: usize) -> Result<(), FrameError> {
        let id = header.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return match self.streams.closed(id) {
                Some(Closed::ByUs) => Ok(()),
                Some(Closed::ByPeer) => {
                    Err(FrameError::Connection(ErrorCode::STREAM_CLOSED, "DATA of a stream that is over"))
                }
                // One of very many that ended or were refused.
                None => Ok(()),
            };
        };
        if stream.reset.is_some() {
            return match stream.reset {
                Some(Reset::Remote(_)) => Err(FrameError::Stream(id, ErrorCode::STREAM_CLOSED)),
                _ => Ok(()),
            };
        }
        if stream.receive_ended {
            return Err(FrameError::Stream(id, ErrorCode::STREAM_CLOSED));
        }
        if !stream.begun {
            return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        if stream.receive_window.receive(header.length).is_err() {
            return Err(FrameError::Stream(id, ErrorCode::FLOW_CONTROL_ERROR));
        }
        if header.length > data
            && let Some(increment) = stream.receive_window.release(header.length - data)
        {
            put_window_update(id, increment, &mut self.outbound.bytes);
        }
        if let Some(expected) = &mut stream.expected {
            *expected =
                expected.checked_sub(data as u64).ok_or(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR))?;
            if header.has(flag::END_STREAM) && *expected > 0 {
                return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR));
            }
        }
        Ok(())
    }

    /// Processes the received part of a DATA frame's payload.
    fn take_payload(&mut self, inbound: &mut BytesMut) -> Result<bool, FrameError> {
        let Some(mut payload) = self.inbound.payload else { return Ok(true) };
        let here = payload.data.min(inbound.len());
        payload.data -= here;
        let over = payload.data == 0;
        let ends = over && payload.end_stream;
        let open = self.streams.get_mut(payload.stream).filter(|stream| stream.reset.is_none());
        match open {
            Some(stream) => {
                stream.receive(&inbound[..here]);
                self.receiving.held += here;
            }
            None => self.release_connection(here),
        }
        inbound.advance(here);
        if ends {
            self.end_receiving(payload.stream);
            payload.end_stream = false;
        }
        if let Some(stream) = self.streams.get(payload.stream).filter(|_| here > 0 || ends) {
            stream.wake_reader();
        }
        if over {
            let here = payload.padding.min(inbound.len());
            payload.padding -= here;
            inbound.advance(here);
        }
        let done = over && payload.padding == 0;
        self.inbound.payload = (!done).then_some(payload);
        Ok(done)
    }

    /// The peer has sent all of a stream.
    pub(super) fn end_receiving(&mut self, id: u32) {
        let closed = self.streams.change(id, |stream| {
            stream.receive_ended |= stream.reset.is_none();
            stream.wake_reader();
        });
        if closed.is_some() {
            self.wake_to_open();
        }
    }

    fn receive_priority(&self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let id = header.stream;
        let code = match <[u8; 5]>::try_from(payload) {
            _ if id == 0 => return Err(FrameError::protocol("PRIORITY of no stream")),
            Err(_) => ErrorCode::FRAME_SIZE_ERROR,
            Ok(priority) if depends_on(priority) == id => ErrorCode::PROTOCOL_ERROR,
            Ok(_) => return Ok(()),
        };
        // A stream that was never opened is not reset.
        let idle = self.is_idle(id);
        Err(if idle {
            FrameError::Connection(code, "a wrong PRIORITY")
        } else {
            FrameError::Stream(id, code)
        })
    }

    fn receive_reset(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let code = read_u32(payload, "RST_STREAM of a wrong size")?;
        if header.stream == 0 || self.is_idle(header.stream) {
            return Err(FrameError::protocol("RST_STREAM of no stream"));
        }
        if self.forget_request(header.stream) {
            self.abuse.unserved_resets += 1;
        }
        self.streams.change(header.stream, |stream| {
            if stream.reset.is_none() {
                stream.reset = Some(Reset::Remote(ErrorCode(code)));
            }
            stream.wake_reader();
            stream.wake_writer();
        });
        self.wake_to_open();
        Ok(())
    }

    fn receive_settings_frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        if header.stream != 0 {
            return Err(FrameError::protocol("SETTINGS of a stream"));
        }
        if !header.has(flag::ACK) {
            self.receive_settings(payload)?;
            self.inbound.greeted = true;
        } else if !payload.is_empty() {
            return Err(FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, "SETTINGS of a wrong size"));
        } else if self.round_trip.is_none() {
            self.round_trip = Some(now().saturating_duration_since(self.opened));
            self.shrink_windows();
        }
        Ok(())
    }

    fn receive_ping(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        ponged: &std::cell::Cell<bool>,
    ) -> Result<(), FrameError> {
        if header.stream != 0 {
            return Err(FrameError::protocol("PING of a stream"));
        }
        let payload = <[u8; 8]>::try_from(payload)
            .map_err(|_| FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, "PING of a wrong size"))?;
        match payload {
            _ if !header.has(flag::ACK) => self.reply(|out| put_ping(true, payload, out)),
            PING_ALIVE => ponged.set(true),
            // The peer has read the GOAWAY: streams opened from now on are not served.
            PING_GOAWAY if self.goaway.sent.is_some() => {
                self.put_goaway(self.streams.newest_of_peer(), ErrorCode::NO_ERROR);
            }
            _ => {}
        }
        Ok(())
    }

    fn receive_goaway(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        if header.stream != 0 {
            return Err(FrameError::protocol("GOAWAY of a stream"));
        }
        let last = payload.first_chunk::<4>().filter(|_| payload.len() >= 8);
        let &[a, b, c, d] =
            last.ok_or(FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, "GOAWAY of a wrong size"))?;
        let last = u32::from_be_bytes([a & 0x7f, b, c, d]);
        self.goaway.received = Some(self.goaway.received.map_or(last, |before| before.min(last)));
        if self.role == Role::Client {
            self.streams.lose_above(last, Reset::GoneAway);
            self.wake_to_open();
        }
        Ok(())
    }

    fn receive_window_update(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let increment = i64::from(read_u32(payload, "WINDOW_UPDATE of a wrong size")? & super::MAX_31_BITS);
        let id = header.stream;
        if id == 0 {
            if increment == 0 {
                return Err(FrameError::protocol("WINDOW_UPDATE of nothing"));
            }
            let overflow = FrameError::Connection(ErrorCode::FLOW_CONTROL_ERROR, "too large a window");
            self.sending.window.change(increment).map_err(|_| overflow)?;
            self.sending.max_window = self.sending.max_window.max(self.sending.window.available());
            self.share_room();
            // A stream that has used its half may send more.
            let waits = |stream: &&mut StreamState| stream.wants_room && !stream.queued;
            self.streams.iter_mut().filter(waits).for_each(StreamState::wake_writer);
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(FrameError::protocol("WINDOW_UPDATE of no stream"));
        }
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_open()) else { return Ok(()) };
        if increment == 0 {
            return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        let overflow = FrameError::Stream(id, ErrorCode::FLOW_CONTROL_ERROR);
        stream.send_window.change(increment).map_err(|_| overflow)?;
        stream.unread = stream.unread.saturating_sub(usize::try_from(increment).unwrap_or(usize::MAX));
        if stream.wants_room {
            stream.wake_writer();
        }
        Ok(())
    }

    pub(super) fn is_idle(&self, id: u32) -> bool {
        self.streams.is_idle(id, self.role == Role::Client)
    }

    /// Whether a header block is open, or the beginning of a frame was received and not its rest. The payload of DATA is
    /// passed on as it is received.
    pub(super) fn awaits_rest(&self) -> bool {
        self.inbound.block.is_some() || self.inbound.payload.is_none() && !self.inbound.bytes.is_empty()
    }

    /// No control frames or response heads are read from a peer that does not read the replies.
    pub(super) fn is_paused(&self) -> bool {
        self.outbound.replies > MAX_REPLIES || self.role == Role::Server && self.has_much_outbound()
    }

    /// Whether more bytes wait for the socket than allowed for bodies and replies to control frames.
    pub(super) fn has_much_outbound(&self) -> bool {
        self.outbound.bytes.len() > MAX_OUTBOUND + MAX_REPLIES
    }

    /// Replies to a control frame.
    pub(super) fn reply(&mut self, put: impl FnOnce(&mut BytesMut)) {
        let before = self.outbound.bytes.len();
        put(&mut self.outbound.bytes);
        self.outbound.replies += self.outbound.bytes.len() - before;
    }

    /// Opens the connection's window by `bytes`.
    pub(super) fn release_connection(&mut self, bytes: usize) {
        if let Some(increment) = self.receiving.window.release(bytes) {
            put_window_update(0, increment, &mut self.outbound.bytes);
        }
    }

    /// Appends GOAWAY.
    pub(super) fn put_goaway(&mut self, last: u32, code: ErrorCode) {
        // It never rises (RFC 9113 §6.8): streams above an earlier one were refused.
        let last = self.goaway.sent.map_or(last, |before| before.min(last));
        self.goaway.sent = Some(last);
        put_goaway(last, code, &mut self.outbound.bytes);
    }

    /// A stream has ended or the peer accepts more: wakes the tasks that wait to open a stream, and the last upload, which
    /// may have the whole window now.
    pub(super) fn wake_to_open(&mut self) {
        self.open_waiters.drain(..).for_each(std::task::Waker::wake);
        if self.role == Role::Client && self.streams.active() == 1 {
            self.streams
                .iter_mut()
                .filter(|stream| stream.wants_room)
                .for_each(|stream| stream.wake_writer());
        }
    }

    /// Whether another stream may be opened now; an error: never.
    pub(super) fn may_open(&self) -> Result<bool, ConnectionEnd> {
        match self.end {
            Some(end) => Err(end),
            None if self.goaway.received.is_some() || self.streams.is_exhausted() => {
                Err(ConnectionEnd::Aborted)
            }
            None if self.has_much_outbound() => Ok(false),
            None => Ok(!self.streams.is_full() && self.streams.active() < self.peer.max_streams),
        }
    }
}

/// The stream that a priority names (RFC 7540 §5.3.1).
pub(super) fn depends_on([a, b, c, d, _]: [u8; 5]) -> u32 {
    u32::from_be_bytes([a & 0x7f, b, c, d])
}

fn read_u32(payload: &[u8], wrong: &'static str) -> Result<u32, FrameError> {
    let bytes = <[u8; 4]>::try_from(payload);
    bytes.map(u32::from_be_bytes).map_err(|_| FrameError::Connection(ErrorCode::FRAME_SIZE_ERROR, wrong))
}
