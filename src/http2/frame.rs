//! Frames on the wire (RFC 9113 §4, §6).

use bytes::{BufMut as _, BytesMut};

/// Bytes before a frame's payload (RFC 9113 §4.1).
pub const HEADER_LENGTH: usize = 9;
/// Maximum bytes of payload in a frame of either side, since the gateway announces no larger size (RFC 9113 §4.2).
pub const MAX_PAYLOAD: usize = 16 << 10;
/// The largest identifier of a stream, and the largest window (RFC 9113 §5.1.1, §6.9.1).
pub const MAX_31_BITS: u32 = (1 << 31) - 1;

/// Frame types (RFC 9113 §6).
pub mod kind {
    #![expect(missing_docs, reason = "the names are those of the RFC")]

    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags. What a bit means depends on the frame's type.
pub mod flag {
    #![expect(missing_docs, reason = "the names are those of the RFC")]

    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2).
pub mod setting {
    #![expect(missing_docs, reason = "the names are those of the RFC")]

    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 8441 §3.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Why a stream or a connection ends (RFC 9113 §7). A peer may send any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

#[expect(missing_docs, reason = "the names are those of the RFC")]
impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// What stands before a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload, below 2^24.
    pub length: usize,
    /// One of [`kind`], or an unknown type.
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the front of `bytes`. `None`: fewer than [`HEADER_LENGTH`] bytes are there.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[high, middle, low, kind, flags, a, b, c, d, ..] = bytes else { return None };
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        // The first bit is reserved and ignored.
        let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        Some(Self { length, kind, flags, stream })
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Appends the header. A payload of `length` bytes, at most [`MAX_PAYLOAD`], is to follow.
    #[inline]
    pub fn put(&self, out: &mut BytesMut) {
        let [.., high, middle, low] = self.length.to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        out.extend_from_slice(&[high, middle, low, self.kind, self.flags, a, b, c, d]);
    }
}

fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut BytesMut) {
    out.reserve(HEADER_LENGTH + payload.len());
    FrameHeader { length: payload.len(), kind, flags, stream }.put(out);
    out.put_slice(payload);
}

/// Appends SETTINGS.
pub fn put_settings(settings: &[(u16, u32)], out: &mut BytesMut) {
    FrameHeader { length: settings.len() * 6, kind: kind::SETTINGS, flags: 0, stream: 0 }.put(out);
    for &(identifier, value) in settings {
        out.put_u16(identifier);
        out.put_u32(value);
    }
}

/// Appends the acknowledgement of SETTINGS.
pub fn put_settings_ack(out: &mut BytesMut) {
    put(kind::SETTINGS, flag::ACK, 0, &[], out);
}

/// Appends PING, or with `ack` the answer to one.
pub fn put_ping(ack: bool, payload: [u8; 8], out: &mut BytesMut) {
    put(kind::PING, if ack { flag::ACK } else { 0 }, 0, &payload, out);
}

/// Appends GOAWAY. Streams above `last` are not served.
pub fn put_goaway(last: u32, code: ErrorCode, out: &mut BytesMut) {
    let [a, b, c, d] = last.to_be_bytes();
    let [e, f, g, h] = code.0.to_be_bytes();
    put(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h], out);
}

/// Appends RST_STREAM.
pub fn put_reset(stream: u32, code: ErrorCode, out: &mut BytesMut) {
    put(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

/// Appends WINDOW_UPDATE of a stream, or of the connection (0).
pub fn put_window_update(stream: u32, increment: u32, out: &mut BytesMut) {
    put(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

/// Appends DATA: at most [`MAX_PAYLOAD`] bytes.
#[inline]
pub fn put_data(stream: u32, payload: &[u8], end_stream: bool, out: &mut BytesMut) {
    put(kind::DATA, if end_stream { flag::END_STREAM } else { 0 }, stream, payload, out);
}

/// Appends HEADERS with the header block that `write` appends, and CONTINUATION frames where it is longer than one
/// frame.
pub fn put_headers(stream: u32, end_stream: bool, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    let end = if end_stream { flag::END_STREAM } else { 0 };
    let mut header = FrameHeader { length: 0, kind: kind::HEADERS, flags: end | flag::END_HEADERS, stream };
    header.put(out);
    write(out);
    header.length = out.len() - start - HEADER_LENGTH;
    if header.length > MAX_PAYLOAD {
        return split_block(start, header, out);
    }
    let [.., high, middle, low] = header.length.to_be_bytes();
    out[start..start + 3].copy_from_slice(&[high, middle, low]);
}

#[cold]
fn split_block(start: usize, mut header: FrameHeader, out: &mut BytesMut) {
    let block = out.split_off(start).split_off(HEADER_LENGTH);
    let mut parts = block.chunks(MAX_PAYLOAD).peekable();
    header.flags &= !flag::END_HEADERS;
    while let Some(part) = parts.next() {
        let last = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
        put(header.kind, header.flags | last, header.stream, part, out);
        (header.kind, header.flags) = (kind::CONTINUATION, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = FrameHeader { length: 0x4000, kind: kind::DATA, flags: 9, stream: MAX_31_BITS };
        let mut out = BytesMut::new();
        header.put(&mut out);
        assert_eq!(FrameHeader::read(&out), Some(header));
        out[5] |= 0x80;
        assert_eq!(FrameHeader::read(&out), Some(header), "the reserved bit is ignored");
        assert_eq!(FrameHeader::read(&out[..8]), None);
    }

    /// Header blocks of any length arrive whole, in frames that a peer must take.
    #[test]
    fn a_long_block_goes_on_in_continuation_frames() {
        for length in [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD] {
            let mut out = BytesMut::from(&b"before"[..]);
            let block: Vec<u8> = (0..length).map(|index| u8::try_from(index % 251).unwrap_or(0)).collect();
            put_headers(5, true, &mut out, |out| out.extend_from_slice(&block));
            let (mut rest, mut joined, mut first) = (&out[6..], Vec::new(), true);
            while let Some(header) = FrameHeader::read(rest) {
                assert_eq!((header.stream, header.has(flag::END_STREAM)), (5, first));
                assert_eq!(header.kind, if first { kind::HEADERS } else { kind::CONTINUATION });
                assert!(header.length <= MAX_PAYLOAD);
                let end = HEADER_LENGTH + header.length;
                joined.extend_from_slice(&rest[HEADER_LENGTH..end]);
                rest = &rest[end..];
                assert_eq!(header.has(flag::END_HEADERS), rest.is_empty());
                first = false;
            }
            assert_eq!(joined, block);
        }
    }
}
