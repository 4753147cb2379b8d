//! Heads as header blocks, and as HTTP/1.1 text for the gateway's only parser of heads.
//!
//! A received block is converted to text and checked by the parser of HTTP/1.1. Rules specific to HTTP/2 are checked
//! here (RFC 9113 §8.2, §8.3): pseudo-header fields, lower-case names, connection-specific fields, and the length of
//! the body. A head to be sent is text already and is converted to a block.
//!
//! An extended CONNECT (RFC 8441) is written as the GET of an HTTP/1.1 upgrade, which is what it means. So routes, limits,
//! services and logs see one kind of WebSocket handshake.

use std::borrow::Cow;

use bytes::{BufMut as _, BytesMut};
use http::StatusCode;
use smallvec::SmallVec;

use super::hpack::encoder::{Scheme, put_field, put_status, scheme_field};
use crate::http1::lines::{LineEnd, split_line};
use crate::http1::name::Name;
use crate::http1::syntax::{is_token, parse_length};

/// Bytes counted for each field beside its name and value (RFC 9113 §10.5.1).
const FIELD_OVERHEAD: usize = 32;

/// Digits of a `content-length`.
const MAX_LENGTH_DIGITS: usize = 18;

/// The kind of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The head of a request.
    Request,
    /// The head of a response, interim or final.
    Response,
    /// Trailers.
    Trailers,
}

/// Why a block is not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// It is malformed (RFC 9113 §8.1.1): a stream error.
    Malformed,
    /// Its fields exceed the maximum size.
    TooLarge,
    /// An extended CONNECT (RFC 8441) for another protocol than `websocket`.
    Protocol,
}

/// A received head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedHead {
    /// In HTTP/1.1 syntax; trailers are lines only.
    pub text: BytesMut,
    /// The length of the body, if the head declares it.
    pub content_length: Option<u64>,
    /// A body of unknown length follows: the head declares no length, and the stream goes on.
    pub unknown_length: bool,
    /// The status of a response, else 0.
    pub status: u16,
    /// The request is an extended CONNECT (RFC 8441), written as the GET of an HTTP/1.1 upgrade. What follows it is not a
    /// body.
    pub connect: bool,
}

/// The position of a value in [`HeadBuilder::values`].
type Place = (usize, usize);

/// Builds a head from the fields of a block, in their order.
#[derive(Debug)]
pub struct HeadBuilder {
    kind: BlockKind,
    text: BytesMut,
    /// The values of pseudo-header fields.
    values: SmallVec<[u8; 192]>,
    method: Option<Place>,
    scheme: Option<Place>,
    path: Option<Place>,
    authority: Option<Place>,
    /// That of an extended CONNECT.
    protocol: Option<Place>,
    status: u16,
    /// The first line is written, or the block has none.
    begun: bool,
    /// Cookies may come in several fields (RFC 9113 §8.2.3); HTTP/1.1 allows one.
    cookie: SmallVec<[u8; 64]>,
    content_length: Option<u64>,
    /// The maximum size of the fields.
    max_size: usize,
    /// The size of all fields so far, including those that are left out for an error.
    size: usize,
    error: Option<HeadError>,
}

impl HeadBuilder {
    /// For a block with fields of at most `max_size` bytes: names, values and 32 each (RFC 9113 §6.5.2).
    pub fn new(kind: BlockKind, max_size: usize) -> Self {
        Self {
            kind,
            text: BytesMut::with_capacity(if kind == BlockKind::Trailers { 0 } else { 256 }),
            values: SmallVec::new(),
            method: None,
            scheme: None,
            path: None,
            authority: None,
            protocol: None,
            status: 0,
            begun: kind == BlockKind::Trailers,
            cookie: SmallVec::new(),
            content_length: None,
            max_size,
            size: 0,
            error: None,
        }
    }

    /// The next field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.size = self.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if self.error.is_some() {
            return;
        }
        if self.size > self.max_size {
            return self.error = Some(HeadError::TooLarge);
        }
        let valid =
            if name.first() == Some(&b':') { self.pseudo(name, value) } else { self.regular(name, value) };
        if valid.is_none() {
            self.error = Some(HeadError::Malformed);
        }
    }

    /// The length of the body that the fields so far declare.
    #[cfg(feature = "http3")]
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// It is a CONNECT, extended or not.
    #[cfg(feature = "http3")]
    pub(crate) fn is_connect(&self) -> bool {
        self.method.is_some_and(|method| self.value(method) == b"CONNECT")
    }
    /// The size of all fields so far: names, values and 32 each.
    pub fn size(&self) -> usize {
        self.size
    }

    /// `None`: the field is malformed.
    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let slot = match (self.kind, name) {
            _ if self.begun => return None,
            (BlockKind::Request, b":method") => &mut self.method,
            (BlockKind::Request, b":scheme") => &mut self.scheme,
            (BlockKind::Request, b":path") => &mut self.path,
            (BlockKind::Request, b":authority") => &mut self.authority,
            (BlockKind::Request, b":protocol") => &mut self.protocol,
            (BlockKind::Response, b":status") if self.status == 0 => {
                // A status of a class that does not exist has no meaning (RFC 9110 §15).
                self.status = read_status(value).filter(|status| *status < 600)?;
                return Some(());
            }
            _ => return None,
        };
        let start = self.values.len();
        self.values.extend_from_slice(value);
        slot.replace((start, self.values.len())).is_none().then_some(())
    }

    /// `None`: the field is malformed.
    fn regular(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        if !self.begun {
            self.begin()?;
        }
        let lower = |&byte: &u8| is_token(byte) && !byte.is_ascii_uppercase();
        // Other characters that are invalid in a value are found by the parser.
        if name.is_empty() || !name.iter().all(lower) || memchr::memchr3(0, b'\r', b'\n', value).is_some() {
            return None;
        }
        match Name::of(name) {
            Name::Te if value.eq_ignore_ascii_case(b"trailers") => {}
            Name::Te | Name::Connection | Name::KeepAlive | Name::TransferEncoding | Name::Upgrade => {
                return None;
            }
            Name::NextHop if name == b"proxy-connection" => return None,
            Name::Host if self.authority.is_some_and(|slot| self.value(slot).eq_ignore_ascii_case(value)) => {
                return Some(());
            }
            // An extended CONNECT has no body (RFC 9110 §9.3.6).
            Name::ContentLength if self.protocol.is_some() => return None,
            Name::ContentLength if self.kind != BlockKind::Trailers => {
                let length = parse_length(value).filter(|_| value.len() <= MAX_LENGTH_DIGITS)?;
                if self.content_length.replace(length).is_some_and(|other| other != length) {
                    return None;
                }
            }
            Name::Other if name == b"cookie" && self.kind == BlockKind::Request => {
                self.add_cookie(value.trim_ascii());
                return Some(());
            }
            _ => {}
        }
        put_line(&mut self.text, name, value);
        Some(())
    }

    fn add_cookie(&mut self, crumb: &[u8]) {
        if !self.cookie.is_empty() && !crumb.is_empty() {
            self.cookie.extend_from_slice(b"; ");
        }
        self.cookie.extend_from_slice(crumb);
    }

    fn value(&self, (start, end): Place) -> &[u8] {
        self.values.get(start..end).unwrap_or_default()
    }

    /// Writes the first line. `None`: pseudo-header fields are missing or malformed.
    fn begin(&mut self) -> Option<()> {
        self.begun = true;
        if self.kind == BlockKind::Response {
            let status = StatusCode::from_u16(self.status).ok()?;
            let reason = status.canonical_reason().unwrap_or_default();
            put(
                &mut self.text,
                &[b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason.as_bytes(), b"\r\n"],
            );
            return Some(());
        }
        let mut text = std::mem::take(&mut self.text);
        let method = self.value(self.method?);
        let authority = self.authority.map(|slot| self.value(slot));
        if method.is_empty()
            || !method.iter().all(|&byte| is_token(byte))
            || !authority.is_none_or(could_be_authority)
        {
            return None;
        }
        let target = match (method, self.scheme, self.path) {
            (b"CONNECT", None, None) if self.protocol.is_none() => authority?,
            (b"CONNECT", Some(scheme), Some(path)) if self.protocol.is_some() && authority.is_some() => {
                self.target(scheme, path)?
            }
            (b"CONNECT", ..) => return None,
            (_, Some(scheme), Some(path)) if self.protocol.is_none() => self.target(scheme, path)?,
            _ => return None,
        };
        // Whatever reads the head sees what HTTP/1.1 has for it: the GET of an upgrade.
        let method = if self.protocol.is_some() { &b"GET"[..] } else { method };
        put(&mut text, &[method, b" ", target, b" HTTP/1.1\r\n"]);
        if let Some(authority) = authority {
            put_line(&mut text, b"host", authority);
        }
        if self.protocol.is_some() {
            put(&mut text, &[b"connection: upgrade\r\nupgrade: websocket\r\n"]);
        }
        self.text = text;
        Some(())
    }

    /// The target of a request with this scheme and path.
    fn target(&self, scheme: Place, path: Place) -> Option<&[u8]> {
        let (scheme, path) = (self.value(scheme), self.value(path));
        (is_scheme(scheme) && could_be_path(path)).then_some(path)
    }

    /// The fault of an extended CONNECT.
    #[cold]
    fn connect_fault(&self, protocol: Place, ended: bool) -> Option<HeadError> {
        let is_websocket = self.value(protocol).eq_ignore_ascii_case(b"websocket");
        match () {
            // Nothing can follow in the protocol.
            () if ended => Some(HeadError::Malformed),
            () if is_websocket => None,
            () => Some(HeadError::Protocol),
        }
    }

    /// The head, after all its fields. `ended`: no body follows.
    ///
    /// # Errors
    ///
    /// The block is not a valid head.
    pub fn finish(mut self, ended: bool) -> Result<ReceivedHead, HeadError> {
        if !self.begun && self.error.is_none() && self.begin().is_none() {
            self.error = Some(HeadError::Malformed);
        }
        if let Some(protocol) = self.protocol
            && self.error.is_none()
        {
            self.error = self.connect_fault(protocol, ended);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.cookie.is_empty() {
            put_line(&mut self.text, b"cookie", &self.cookie);
        }
        if self.kind != BlockKind::Trailers {
            put(&mut self.text, &[b"\r\n"]);
        }
        let Self { text, content_length, status, protocol, .. } = self;
        let connect = protocol.is_some();
        let unknown_length = !ended && content_length.is_none() && !connect;
        Ok(ReceivedHead { text, content_length, unknown_length, status, connect })
    }
}

/// Whether a `content-type` is that of gRPC calls (the protocol "gRPC over HTTP/2"). `application/grpc-web` is for browsers,
/// which read an HTTP status and see from its length that a response is whole.
pub fn is_grpc(content_type: &[u8]) -> bool {
    content_type.split_at_checked(b"application/grpc".len()).is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(b"application/grpc") && matches!(rest, [] | [b'+' | b';' | b' ', ..])
    })
}

fn read_status(value: &[u8]) -> Option<u16> {
    StatusCode::from_bytes(value).ok().map(|status| status.as_u16())
}

/// RFC 3986 §3.1.
fn is_scheme(scheme: &[u8]) -> bool {
    let good = |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(good)
}

/// Whether a path could be one (RFC 9113 §8.3.1): the parser judges the rest.
fn could_be_path(path: &[u8]) -> bool {
    let bad = |&byte: &u8| byte <= b' ' || byte == 0x7f || byte == b'#';
    matches!(path.first(), Some(b'/' | b'*' | b'?')) && !path.iter().any(bad)
}

/// Whether an authority could be one: the parser judges the rest.
fn could_be_authority(authority: &[u8]) -> bool {
    let bad = |&byte: &u8| byte <= b' ' || byte == 0x7f || matches!(byte, b'/' | b'?' | b'#' | b'\\');
    !authority.is_empty() && !authority.iter().any(bad)
}

/// A head to be sent is not valid HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHead;

/// The fields of a head, up to the empty line, or of trailers: each line's name, and its value without the blanks
/// around it. A line that is not a field is an error, so that later fields are not lost.
fn fields(lines: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), InvalidHead>> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        if rest.is_empty() || rest == b"\r\n" {
            return None;
        }
        let field = first_line(rest).and_then(|(line, after)| {
            let colon = memchr::memchr(b':', line).filter(|colon| *colon > 0).ok_or(InvalidHead)?;
            rest = after;
            Ok((&line[..colon], line[colon + 1..].trim_ascii()))
        });
        // Nothing is read after an error.
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

/// Writes header lines of the gateway as fields, without those that concern the connection. Returns whether they answer
/// a gRPC call.
pub(super) fn put_lines(lines: &[u8], out: &mut BytesMut) -> bool {
    let mut grpc = false;
    for (name, value) in fields(lines).filter_map(Result::ok) {
        if !Name::of(name).is_hop_by_hop() {
            grpc |= is_grpc(value) && name.eq_ignore_ascii_case(b"content-type");
            put_field(name, value, out);
        }
    }
    grpc
}

/// Writes a response head, given as HTTP/1.1, as a block. Connection-specific fields are left out. Returns whether it
/// answers a gRPC call: then `content-length` is left out, since the messages have their own lengths.
///
/// # Errors
///
/// It has no status line, or a line that is not a field.
pub fn put_response(head: &[u8], out: &mut BytesMut) -> Result<bool, InvalidHead> {
    write_response(head, out, put_status, put_field)
}

/// As [`put_response`], with the status and each field written by these.
#[inline]
pub(crate) fn write_response(
    head: &[u8],
    out: &mut BytesMut,
    put_status: impl FnOnce(u16, &mut BytesMut),
    put_field: impl Fn(&[u8], &[u8], &mut BytesMut),
) -> Result<bool, InvalidHead> {
    let (line, lines) = first_line(head)?;
    put_status(line.get(9..12).and_then(read_status).ok_or(InvalidHead)?, out);
    let (mut length, mut grpc) = (None, false);
    for field in fields(lines) {
        let (name, value) = field?;
        match Name::of(name) {
            Name::ContentLength => length = Some(value),
            known if known.is_hop_by_hop() => {}
            _ => {
                grpc |= is_grpc(value) && name.eq_ignore_ascii_case(b"content-type");
                put_field(name, value, out);
            }
        }
    }
    if let Some(length) = length.filter(|_| !grpc) {
        put_field(b"content-length", length, out);
    }
    Ok(grpc)
}

/// Writes a request head, given as HTTP/1.1, as a block. Connection-specific fields are left out. Characters of a
/// target that the grammar of a path lacks (`"`, `<`, `>`, …) are percent-encoded.
///
/// # Errors
///
/// It has no request line, or a line that is not a field.
pub fn put_request(head: &[u8], scheme: Scheme, out: &mut BytesMut) -> Result<(), InvalidHead> {
    let (line, lines) = first_line(head)?;
    let line = line.strip_suffix(b" HTTP/1.1").ok_or(InvalidHead)?;
    let blank = memchr::memchr(b' ', line).ok_or(InvalidHead)?;
    put_field(b":method", &line[..blank], out);
    out.put_u8(scheme_field(scheme));
    put_field(b":path", &percent_encoded(&line[blank + 1..]), out);
    let host = fields(lines).filter_map(Result::ok).find(|(name, _)| Name::of(name) == Name::Host);
    // An empty `host:` is not an authority.
    if let Some((_, host)) = host.filter(|(_, host)| !host.is_empty()) {
        put_field(b":authority", host, out);
    }
    let (mut length, mut chunked) = (None, false);
    // An error that the search for the host skipped shows here.
    for field in fields(lines) {
        let (name, value) = field?;
        match Name::of(name) {
            Name::Host => {}
            Name::ContentLength => length = Some(value),
            Name::TransferEncoding => chunked = true,
            known if known.is_hop_by_hop() => {}
            _ => put_field(name, value, out),
        }
    }
    if let Some(length) = length.filter(|_| !chunked) {
        put_field(b"content-length", length, out);
    }
    // All trailers are read, and forwarded if the client accepts them. gRPC servers require this.
    put_field(b"te", b"trailers", out);
    Ok(())
}

/// Writes trailers as a block.
///
/// # Errors
/// A line is not a field.
pub fn put_trailers(lines: &[u8], out: &mut BytesMut) -> Result<(), InvalidHead> {
    write_trailers(lines, |name, value| put_field(name, value, out))
}

/// As [`put_trailers`], with each field written by this.
#[inline]
pub(crate) fn write_trailers(lines: &[u8], mut put: impl FnMut(&[u8], &[u8])) -> Result<(), InvalidHead> {
    fields(lines).try_for_each(|field| field.map(|(name, value)| put(name, value)))
}

fn first_line(head: &[u8]) -> Result<(&[u8], &[u8]), InvalidHead> {
    let (line, length) = split_line(head, LineEnd::CrLf).ok_or(InvalidHead)?;
    Ok((line, &head[length..]))
}

/// A target with characters percent-encoded that a path or query lacks (RFC 3986 §3.3): clients send them, and HTTP/1.1
/// servers accept them.
pub(super) fn percent_encoded(target: &[u8]) -> Cow<'_, [u8]> {
    let is_foreign =
        |byte: &u8| matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..);
    if !target.iter().any(is_foreign) {
        return Cow::Borrowed(target);
    }
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for byte in target {
        if is_foreign(byte) {
            encoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            encoded.push(*byte);
        }
    }
    Cow::Owned(encoded)
}

fn put_line(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    put(out, &[name, b": ", value, b"\r\n"]);
}

fn put(out: &mut BytesMut, parts: &[&[u8]]) {
    out.reserve(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.put_slice(part));
}

#[cfg(test)]
mod tests;
