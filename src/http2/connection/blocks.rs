//! Received header blocks: heads of requests and responses, and trailers (RFC 9113 §6.2, §6.10, §8.1).

use bytes::BytesMut;

use super::super::frame::{ErrorCode, FrameHeader, flag};
use super::super::head::{BlockKind, HeadBuilder, HeadError, ReceivedHead};
use super::receive::depends_on;
use super::streams::{Closed, StreamState};
use super::{ConnectionState, FrameError, Reset, Role};

/// Bytes of a header block beyond the size of its fields: lengths and indices.
const BLOCK_OVERHEAD: usize = 16 << 10;
/// The factor by which the header block of a backend may exceed the maximum size of its fields. It is read and fails its
/// own request only. A larger one ends the connection.
const MAX_EXCESS: usize = 4;
/// A header block whose fields exceed their maximum size by this factor is a bomb: few bytes that decompress to many.
const BOMB: usize = 4;
/// The number of bombs that end a connection.
const MAX_BOMBS: u32 = 3;
/// Maximum number of CONTINUATION frames of one header block (CVE-2024-27316).
const MAX_CONTINUATIONS: u32 = 128;
/// Maximum bytes of a client's trailers, and of a backend's, with 32 more for each field.
const MAX_REQUEST_TRAILERS: usize = 32 << 10;
const MAX_RESPONSE_TRAILERS: usize = 128 << 10;
/// Maximum number of response heads that wait for the task of their stream: interim ones, and a final one.
const MAX_HEADS: usize = 101;
/// Maximum bytes of interim response heads that wait for the task of their stream.
const MAX_INTERIM: usize = 64 << 10;

/// An incomplete header block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    end_stream: bool,
    /// Its stream depends on itself (RFC 7540 §5.3.1).
    on_itself: bool,
    bytes: BytesMut,
    continuations: u32,
}

impl ConnectionState {
    pub(super) fn receive_headers(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let (mut fragment, mut padding) = (payload, 0);
        if header.has(flag::PADDED) {
            let (length, rest) =
                fragment.split_first().ok_or(FrameError::protocol("HEADERS without padding"))?;
            (fragment, padding) = (rest, usize::from(*length));
        }
        let mut on_itself = false;
        if header.has(flag::PRIORITY) {
            let (priority, rest) =
                fragment.split_first_chunk::<5>().ok_or(FrameError::protocol("HEADERS without priority"))?;
            on_itself = depends_on(*priority) == header.stream;
            fragment = rest;
        }
        let length =
            fragment.len().checked_sub(padding).ok_or(FrameError::protocol("HEADERS with padding only"))?;
        let fragment = &fragment[..length];
        if header.stream == 0 {
            return Err(FrameError::protocol("HEADERS of no stream"));
        }
        let end_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            self.receive_block(header.stream, fragment, end_stream)?;
        } else {
            let bytes = BytesMut::from(fragment);
            self.inbound.block =
                Some(Block { stream: header.stream, end_stream, on_itself, bytes, continuations: 0 });
            return Ok(());
        }
        if on_itself { Err(FrameError::Stream(header.stream, ErrorCode::PROTOCOL_ERROR)) } else { Ok(()) }
    }

    pub(super) fn receive_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), FrameError> {
        let excess = if self.role == Role::Client { MAX_EXCESS } else { 1 };
        let max = self.inbound.max_header_list.saturating_mul(excess).saturating_add(BLOCK_OVERHEAD);
        let Some(block) = &mut self.inbound.block else { return Ok(()) };
        block.continuations += 1;
        if block.bytes.len() + payload.len() > max || block.continuations > MAX_CONTINUATIONS {
            let calm = ErrorCode::ENHANCE_YOUR_CALM;
            return Err(FrameError::Connection(calm, "too large a header block"));
        }
        block.bytes.extend_from_slice(payload);
        if header.has(flag::END_HEADERS)
            && let Some(block) = self.inbound.block.take()
        {
            self.receive_block(block.stream, &block.bytes, block.end_stream)?;
            if block.on_itself {
                return Err(FrameError::Stream(block.stream, ErrorCode::PROTOCOL_ERROR));
            }
        }
        Ok(())
    }

    /// Processes a complete header block. It is decoded in any case, since it changes the dynamic table.
    fn receive_block(&mut self, id: u32, block: &[u8], end_stream: bool) -> Result<(), FrameError> {
        let of_client = self.role == Role::Client;
        let known = self.streams.get(id);
        let trailers = known.is_some_and(|stream| stream.begun);
        let kind = match (trailers, of_client) {
            (true, _) => BlockKind::Trailers,
            (false, true) => BlockKind::Response,
            (false, false) => BlockKind::Request,
        };
        let max = match (trailers, of_client) {
            (false, _) => self.inbound.max_header_list,
            (true, true) => MAX_RESPONSE_TRAILERS,
            (true, false) => MAX_REQUEST_TRAILERS,
        };
        let mut head = HeadBuilder::new(kind, max);
        self.inbound.decoder.decode(block, |name, value| head.field(name, value)).map_err(|_| {
            FrameError::Connection(ErrorCode::COMPRESSION_ERROR, "a header block is malformed")
        })?;
        if head.size() > BOMB * max {
            self.abuse.bombs += 1;
            if self.abuse.bombs >= MAX_BOMBS {
                let calm = ErrorCode::ENHANCE_YOUR_CALM;
                return Err(FrameError::Connection(calm, "header blocks that decompress to too much"));
            }
        }
        let head = head.finish(end_stream);
        if known.is_none() && (of_client || id <= self.streams.newest_of_peer() || id.is_multiple_of(2)) {
            return self.receive_late_block(id);
        }
        match kind {
            BlockKind::Trailers => self.receive_trailers(id, head, end_stream),
            BlockKind::Response => self.receive_response(id, head, end_stream),
            BlockKind::Request => self.receive_request(id, head, end_stream),
        }
    }

    /// HEADERS of a stream that does not exist.
    fn receive_late_block(&self, id: u32) -> Result<(), FrameError> {
        match self.streams.closed(id) {
            Some(Closed::ByUs) => Ok(()),
            Some(Closed::ByPeer) => {
                Err(FrameError::Connection(ErrorCode::STREAM_CLOSED, "HEADERS of a stream that is over"))
            }
            // A stream of this side existed, and was removed since.
            None if self.role == Role::Client && !self.is_idle(id) => Ok(()),
            None => Err(FrameError::protocol("HEADERS of a stream that cannot be")),
        }
    }

    fn receive_request(
        &mut self,
        id: u32,
        head: Result<ReceivedHead, HeadError>,
        ended: bool,
    ) -> Result<(), FrameError> {
        self.streams.set_newest(id);
        if self.streams.is_full() || self.goaway.sent.is_some_and(|last| id > last) {
            self.reset_stream(id, ErrorCode::REFUSED_STREAM, Reset::Fault);
            return Ok(());
        }
        let malformed = FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR);
        let length = match &head {
            Err(HeadError::Malformed) => return Err(malformed),
            Err(HeadError::TooLarge | HeadError::Protocol) => None,
            Ok(head) => head.content_length,
        };
        if ended && length.is_some_and(|length| length > 0) {
            return Err(malformed);
        }
        let mut stream = StreamState::new(id, self.initial_receive_window(), self.peer.initial_window);
        (stream.begun, stream.receive_ended, stream.expected) = (true, ended, length);
        stream.is_connect = head.as_ref().is_ok_and(|head| head.connect);
        self.streams.add(stream);
        self.requests.push_back((id, head));
        Ok(())
    }

    fn receive_response(
        &mut self,
        id: u32,
        head: Result<ReceivedHead, HeadError>,
        ended: bool,
    ) -> Result<(), FrameError> {
        let fault = FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.reset.is_some() {
            return Ok(());
        }
        if stream.receive_ended {
            return Err(FrameError::Stream(id, ErrorCode::STREAM_CLOSED));
        }
        let head = head.map_err(|_| fault)?;
        let interim = (100..200).contains(&head.status);
        let waiting: usize = stream.heads.iter().map(|(head, _)| head.text.len()).sum();
        if interim && (ended || stream.heads.len() + 1 >= MAX_HEADS || waiting > MAX_INTERIM) {
            return Err(fault);
        }
        stream.begun = !interim;
        let bodiless = stream.to_head || matches!(head.status, 100..200 | 204 | 304);
        // Only this status opens a WebSocket, whose bytes have no declared length (RFC 9110 §9.3.6).
        let opens_websocket = stream.is_connect && head.status == 200;
        stream.is_connect &= interim || opens_websocket;
        stream.expected = match opens_websocket {
            true => None,
            // Such a response has no DATA with bytes, whatever length it declares.
            false if bodiless => Some(0),
            false => head.content_length,
        };
        if ended && stream.expected.is_some_and(|length| length > 0) {
            return Err(fault);
        }
        stream.heads.push((head, ended));
        stream.wake_reader();
        if ended {
            self.end_receiving(id);
        }
        Ok(())
    }

    fn receive_trailers(
        &mut self,
        id: u32,
        head: Result<ReceivedHead, HeadError>,
        ended: bool,
    ) -> Result<(), FrameError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.reset.is_some() {
            return match stream.reset {
                Some(Reset::Remote(_)) => Err(FrameError::Stream(id, ErrorCode::STREAM_CLOSED)),
                _ => Ok(()),
            };
        }
        if stream.receive_ended {
            return Err(FrameError::Connection(
                ErrorCode::STREAM_CLOSED,
                "HEADERS after the end of a stream",
            ));
        }
        if stream.is_connect {
            // RFC 9113 §8.5.
            return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        let whole = ended && stream.expected.is_none_or(|left| left == 0);
        let Ok(head) = head else { return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR)) };
        if !whole {
            return Err(FrameError::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        stream.trailers = head.text;
        self.end_receiving(id);
        Ok(())
    }
}
