//! Frames (RFC 9114 §7.2).

use bytes::BytesMut;

use super::varint;

/// The payload of a request or response body.
pub const DATA: u64 = 0x0;
/// A field section.
pub const HEADERS: u64 = 0x1;
/// A push is not wanted any more.
pub const CANCEL_PUSH: u64 = 0x3;
/// The settings of a side.
pub const SETTINGS: u64 = 0x4;
/// A promised request.
pub const PUSH_PROMISE: u64 = 0x5;
/// The connection ends.
pub const GOAWAY: u64 = 0x7;
/// Pushes that are allowed.
pub const MAX_PUSH_ID: u64 = 0xd;

/// The type of the control stream (§6.2.1).
pub const CONTROL_STREAM: u64 = 0x0;
/// SETTINGS_MAX_FIELD_SECTION_SIZE (§7.2.4.1).
pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220 §3).
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Whether a frame type belongs to HTTP/2 and has no meaning here (§7.2.8).
pub fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Appends the header of a DATA frame with this many bytes.
pub fn put_data_header(length: usize, out: &mut BytesMut) {
    varint::put(DATA, out);
    varint::put(length as u64, out);
}

/// Appends a HEADERS frame, whose field section is what `put` appends.
pub fn put_headers(put: impl FnOnce(&mut BytesMut), out: &mut BytesMut) {
    let mut section = BytesMut::with_capacity(512);
    put(&mut section);
    varint::put(HEADERS, out);
    varint::put(section.len() as u64, out);
    out.extend_from_slice(&section);
}

/// Appends the begin of the gateway's control stream: its type, and the settings.
pub fn put_control_preface(max_field_section_size: usize, connect_protocol: bool, out: &mut BytesMut) {
    let mut settings = BytesMut::new();
    varint::put(MAX_FIELD_SECTION_SIZE, &mut settings);
    varint::put(max_field_section_size as u64, &mut settings);
    if connect_protocol {
        varint::put(ENABLE_CONNECT_PROTOCOL, &mut settings);
        varint::put(1, &mut settings);
    }
    varint::put(CONTROL_STREAM, out);
    varint::put(SETTINGS, out);
    varint::put(settings.len() as u64, out);
    out.extend_from_slice(&settings);
}

/// Appends GOAWAY: requests on streams from this id on will not be served (§5.2).
pub fn put_goaway(id: u64, out: &mut BytesMut) {
    let mut payload = BytesMut::new();
    varint::put(id, &mut payload);
    varint::put(GOAWAY, out);
    varint::put(payload.len() as u64, out);
    out.extend_from_slice(&payload);
}

/// Reads the headers of frames, however their bytes arrive.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The begin of a header.
    header: [u8; MAX_HEADER],
    held: usize,
}

/// The bytes of two integers.
const MAX_HEADER: usize = 16;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3FrameHeader {
    /// Its type.
    pub kind: u64,
    /// The bytes of its payload.
    pub length: u64,
}

impl FrameReader {
    /// Whether no part of a header was read.
    pub fn is_between_frames(&self) -> bool {
        self.held == 0
    }

    /// Takes bytes of a header from `input`. Returns the header once it is complete.
    pub fn read(&mut self, input: &mut &[u8]) -> Option<Http3FrameHeader> {
        while let Some((first, rest)) = input.split_first() {
            let held = self.held;
            *self.header.get_mut(held)? = *first;
            *input = rest;
            self.held = held + 1;
            let header = self.header.get(..self.held).unwrap_or_default();
            if let Some((kind, length)) = varint::read(header)
                && let Some((payload, _)) = varint::read(header.get(length..).unwrap_or_default())
            {
                self.held = 0;
                return Some(Http3FrameHeader { kind, length: payload });
            }
        }
        None
    }
}
