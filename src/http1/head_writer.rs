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

/// Two fields that always come together, of which the end of the second one's value is not known yet. Their names are in
/// lower case and are in no table of HPACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPair {
    names: [&'static str; 2],
    /// Both lines, up to the end that is not known.
    lines: Box<str>,
    /// The length of the first value.
    first: usize,
}

impl HeaderPair {
    /// The fields of these names: the first one with this value, and the second one with this start of its value.
    pub fn new(names: [&'static str; 2], [value, start]: [&str; 2]) -> Self {
        let lines = format!("{}: {value}\r\n{}: {start}", names[0], names[1]);
        Self { names, lines: lines.into(), first: value.len() }
    }

    /// The lines, without the end of the second one.
    pub fn lines(&self) -> &str {
        &self.lines
    }

    /// The names, with the value of the first and the start of the value of the second.
    pub fn fields(&self) -> [(&'static str, &str); 2] {
        let [name, second] = self.names;
        let value = name.len() + ": ".len();
        let start = value + self.first + "\r\n".len() + second.len() + ": ".len();
        let value = self.lines.get(value..value + self.first).unwrap_or_default();
        [(name, value), (second, self.lines.get(start..).unwrap_or_default())]
    }
}
