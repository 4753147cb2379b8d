//! Writes heads: status lines and header lines.

use bytes::{BufMut as _, BytesMut};
use http::StatusCode;

/// Appends `name: value`.
pub fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// Appends lines made earlier. Nearly always there are none.
#[inline]
pub fn put_lines(out: &mut BytesMut, lines: &[u8]) {
    if !lines.is_empty() {
        out.extend_from_slice(lines);
    }
}

/// Appends a numeric field.
#[inline]
pub fn put_number(out: &mut BytesMut, name: &[u8], value: u64) {
    put_field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a status line, with the usual reason if the backend gave none. The version is HTTP/1.1 whatever the client's
/// (RFC 9110 §2.5): features that an HTTP/1.0 client does not understand are not sent to it.
pub fn put_status(out: &mut BytesMut, status: StatusCode, reason: Option<&[u8]>) {
    let reason = reason.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().as_bytes());
    out.reserve(15 + reason.len());
    out.put_slice(b"HTTP/1.1 ");
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(reason);
    out.put_slice(b"\r\n");
}
