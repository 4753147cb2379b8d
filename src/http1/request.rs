//! A request head, parsed strictly (RFC 9112): an accepted head has exactly one reading.
//!
//! Constructs that parsers read differently (bare LF, Content-Length beside Transfer-Encoding, several Hosts, …) enable
//! request smuggling: they are refused, not repaired.
//!
//! The head says how the [`Body`] after it is framed.

use http::{Method, StatusCode};

use super::fields::{FieldSpan, Fields};
use super::lines::{LineEnd, split_line};
use super::mentioned::ConnectionField;
use super::name::Name;
use super::syntax::{is_target, is_token, parse_length};

/// Fields in one head.
pub const MAX_FIELDS: usize = 100;
/// Bytes of one field line.
pub(super) const MAX_LINE: usize = 16 << 10;
/// Bytes of a request target.
const MAX_TARGET: usize = 8 << 10;
/// Bytes of a method. The longest that is registered has 17.
const MAX_METHOD: usize = 256;

/// Why a head, or the framing of a body, is refused. The connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// 400: not the grammar of RFC 9112, or ambiguous.
    Malformed(&'static str),
    /// 405: TRACE and CONNECT are not for a reverse proxy.
    Method,
    /// 408: the head was not complete in time.
    HeadTimeout,
    /// 414: the target is longer than 8 KiB.
    Target,
    /// 431: the head is larger than `max_header_bytes`, has over 100 fields, or a line over 16 KiB.
    HeadTooLarge,
    /// 501: a transfer coding other than `chunked`.
    Coding,
    /// 501: an extended CONNECT of HTTP/2 for another protocol than WebSocket (RFC 8441, RFC 9220).
    Protocol,
    /// 501: the method is longer than 256 bytes (RFC 9112 §3).
    MethodTooLong,
    /// 505: neither HTTP/1.0 nor HTTP/1.1.
    Version,
}

impl RequestError {
    /// The status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Target => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Coding | Self::Protocol | Self::MethodTooLong => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        }
    }

    /// The fault, for the client and the access log; never the client's own bytes.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(reason) => reason,
            Self::Method => "this method is not served here",
            Self::HeadTimeout => "the request head did not come in time",
            Self::Target => "the request target is too long",
            Self::HeadTooLarge => "the request head is too large",
            Self::Coding => "this transfer coding is not implemented",
            Self::Protocol => "of the protocols of CONNECT, only websocket is implemented",
            Self::MethodTooLong => "this method is not implemented",
            Self::Version => "this HTTP version is not supported",
        }
    }
}

/// A request head, parsed in place.
#[derive(Clone, Debug)]
pub struct RequestHead<'h> {
    /// An upper-case token; never CONNECT or TRACE.
    pub method: Method,
    /// Its target.
    pub target: RequestTarget<'h>,
    /// Whether it is HTTP/1.1 (else HTTP/1.0).
    pub http_11: bool,
    /// The body after it.
    pub body: Body,
    /// The client asks to switch protocols, and there is no body: the bytes after it may not be HTTP.
    pub upgrade: bool,
    /// Whether the client wants to keep the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The value of `host`; it may be empty.
    pub host: Option<&'h str>,
    /// Its fields.
    pub fields: Fields<'h>,
    /// Bytes of the head, its empty line included.
    pub length: usize,
    /// Whether it equals the head parsed before it: see [`HeadParser`](super::head_parser::HeadParser).
    pub is_repeated: bool,
}

/// A request's target (RFC 9112 §3.2): origin-form, absolute-form of http and https, or `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTarget<'h> {
    /// As sent.
    pub text: &'h str,
    /// Of an absolute-form.
    pub authority: Option<&'h str>,
    /// Begins with `/`, or is `*`.
    pub path: &'h str,
    /// The query after the `?`.
    pub query: Option<&'h str>,
}

impl<'h> RequestHead<'h> {
    /// Parses the head that `bytes` begin with and that is known to end within them. The positions of its fields are
    /// written to `spans`, replacing its content.
    ///
    /// # Errors
    ///
    /// A head that violates the grammar of RFC 9112, is ambiguous, or is not for a reverse proxy.
    pub fn parse(bytes: &'h [u8], spans: &'h mut Vec<FieldSpan>) -> Result<Self, RequestError> {
        spans.clear();
        let (line, mut at) = next_line(bytes)?;
        let line = RequestLine::parse(line)?;
        let mut framing = FramingFields::default();
        loop {
            let (field, length) = next_line(&bytes[at..])?;
            let begins = at;
            at += length;
            if field.is_empty() {
                break;
            }
            framing.take(field, begins, spans)?;
        }
        let head = &bytes[..at];
        framing.check_host(&line)?;
        let body = framing.body(&line)?;
        Ok(Self {
            method: Method::from_bytes(line.method).map_err(|_| BAD_METHOD)?,
            target: line.target,
            http_11: line.http_11,
            body,
            upgrade: framing.upgrade && framing.connection.upgrade && line.http_11 && body == Body::EMPTY,
            keep_alive: framing.connection.is_kept(line.http_11),
            host: framing.host.map(std::str::from_utf8).transpose().map_err(|_| BAD_HOST)?,
            fields: Fields::new(head, spans),
            length: at,
            is_repeated: false,
        })
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.http_11 && self.body != Body::EMPTY && self.fields.known(Name::Expect).is_some()
    }
}

impl<'h> RequestTarget<'h> {
    /// Path and query as sent.
    pub fn path_and_query(&self) -> &'h str {
        match (self.authority, self.text.find("//")) {
            (Some(authority), Some(slashes)) => match &self.text[slashes + 2 + authority.len()..] {
                "" => "/",
                rest => rest,
            },
            _ => self.text,
        }
    }

    /// origin-form, absolute-form of http and https, or `*` for OPTIONS.
    fn parse(method: &[u8], target: &'h [u8]) -> Result<Self, RequestError> {
        if !is_target(target) {
            return Err(RequestError::Malformed("the request target has a forbidden character"));
        }
        let no_target = RequestError::Malformed("the request target is neither a path nor an http URL");
        let text = std::str::from_utf8(target).map_err(|_| no_target)?;
        let (authority, rest) = match target {
            [b'/', ..] => (None, text),
            b"*" if method == b"OPTIONS" => (None, text),
            _ => {
                let rest = strip_scheme(text).ok_or(no_target)?;
                let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                (Some(authority), rest)
            }
        };
        let (path, query) = match memchr::memchr(b'?', rest.as_bytes()) {
            Some(mark) => (&rest[..mark], Some(&rest[mark + 1..])),
            None => (rest, None),
        };
        // An absolute-form target may have no path (RFC 9112 §3.2.2).
        Ok(Self { text, authority, path: if path.is_empty() { "/" } else { path }, query })
    }
}

fn strip_scheme(target: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// The fault of the first faulty line among these, which all end in CR LF.
#[cold]
pub(super) fn fault_of_lines(mut lines: &[u8]) -> Option<RequestError> {
    let (line, length) = next_line(lines).ok()?;
    let mut spans = Vec::new();
    let mut framing = FramingFields::default();
    let mut parsed = RequestLine::parse(line).map(drop);
    lines = &lines[length..];
    while let (Ok(()), Ok((field, length))) = (parsed, next_line(lines)) {
        parsed = framing.take(field, 0, &mut spans);
        lines = &lines[length..];
    }
    parsed.err()
}

/// The fault of the first of these lines, if it is none of HTTP/1.
pub(super) fn fault_of_protocol(lines: &[u8]) -> Option<RequestError> {
    let (line, _) = next_line(lines).ok()?;
    let fault = RequestLine::parse(line).err()?;
    matches!(fault, RequestError::Malformed(_) | RequestError::Version).then_some(fault)
}

/// The bytes before the first CR LF, and how many there are with it.
fn next_line(bytes: &[u8]) -> Result<(&[u8], usize), RequestError> {
    split_line(bytes, LineEnd::CrLf).ok_or(BAD_LINE)
}

/// A line that ends in LF alone, or has a CR without LF after it.
pub(super) const BAD_LINE: RequestError = RequestError::Malformed("a line of the head does not end in CR LF");

/// The fault of a line. A CR in it has precedence, since a line is refused as soon as one is received, however long the
/// line may become.
#[cold]
fn line_fault(line: &[u8], fault: RequestError) -> RequestError {
    if memchr::memchr(b'\r', line).is_some() { BAD_LINE } else { fault }
}

/// `method SP request-target SP HTTP-version` (RFC 9112 §3).
struct RequestLine<'h> {
    method: &'h [u8],
    target: RequestTarget<'h>,
    http_11: bool,
}

const BAD_HOST: RequestError = RequestError::Malformed("the Host is not `host[:port]`");
const BAD_METHOD: RequestError = RequestError::Malformed("the method is not an upper-case token");

impl<'h> RequestLine<'h> {
    // This function and `Framing::take` are inlined into `RequestHead::parse`, which saves 60 instructions a request.
    #[inline(always)]
    fn parse(line: &'h [u8]) -> Result<Self, RequestError> {
        Self::read(line).map_err(|fault| line_fault(line, fault))
    }

    #[inline(always)]
    fn read(line: &'h [u8]) -> Result<Self, RequestError> {
        let bad = RequestError::Malformed("the request line is not `METHOD TARGET VERSION`");
        let (rest, version) = line.split_last_chunk::<8>().ok_or(bad)?;
        let rest = rest.strip_suffix(b" ").ok_or(bad)?;
        let blank = memchr::memchr(b' ', rest).ok_or(bad)?;
        let (method, target) = (&rest[..blank], &rest[blank + 1..]);
        check_method(method)?;
        let http_11 = parse_version(version)?;
        if target.len() > MAX_TARGET {
            return Err(RequestError::Target);
        }
        Ok(Self { method, target: RequestTarget::parse(method, target)?, http_11 })
    }
}

/// Whether it is HTTP/1.1 (else HTTP/1.0).
fn parse_version(version: &[u8; 8]) -> Result<bool, RequestError> {
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(RequestError::Version)
        }
        _ => Err(RequestError::Malformed("the request line does not end in an HTTP version")),
    }
}

/// The fault of a request line that exceeds the maximum length, by the part received.
pub(super) fn fault_of_long_line(line: &[u8]) -> RequestError {
    let method = line.split(|&byte| byte == b' ').next().unwrap_or(line);
    check_method(method).err().unwrap_or(RequestError::Target)
}

/// A token without lower-case letters: no registered method has any, and a backend may fold case where the gateway does
/// not.
fn check_method(method: &[u8]) -> Result<(), RequestError> {
    let seen = method.get(..MAX_METHOD).unwrap_or(method);
    let good = !seen.is_empty() && seen.iter().all(|&byte| is_token(byte) && !byte.is_ascii_lowercase());
    match method {
        _ if !good => Err(BAD_METHOD),
        _ if method.len() > MAX_METHOD => Err(RequestError::MethodTooLong),
        b"PRI" => Err(RequestError::Malformed("HTTP/2 is not spoken on this listener")),
        b"CONNECT" | b"TRACE" => Err(RequestError::Method),
        _ => Ok(()),
    }
}

/// The framing fields, collected line by line.
#[derive(Default)]
struct FramingFields<'h> {
    host: Option<&'h [u8]>,
    content_length: Option<u64>,
    transfer_encoding: Option<&'h [u8]>,
    upgrade: bool,
    connection: ConnectionField,
}

impl<'h> FramingFields<'h> {
    /// Processes the field at position `at` in the head.
    #[inline(always)]
    fn take(&mut self, line: &'h [u8], at: usize, spans: &mut Vec<FieldSpan>) -> Result<(), RequestError> {
        if spans.len() == MAX_FIELDS || line.len() > MAX_LINE {
            return Err(line_fault(line, RequestError::HeadTooLarge));
        }
        let (span, value) = FieldSpan::read(line, at).map_err(RequestError::Malformed)?;
        spans.push(span);
        match span.name() {
            Name::Host => self.host(value),
            Name::ContentLength => self.content_length(value),
            Name::TransferEncoding => self.transfer_encoding(value),
            Name::Connection => {
                self.connection.take(value);
                Ok(())
            }
            Name::Upgrade => {
                self.upgrade = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &'h [u8]) -> Result<(), RequestError> {
        if self.host.replace(value).is_some() {
            return Err(RequestError::Malformed("there is more than one Host"));
        }
        if !value.is_empty() && !is_authority(value) {
            return Err(BAD_HOST);
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), RequestError> {
        let length =
            parse_length(value).ok_or(RequestError::Malformed("the Content-Length is not a number"))?;
        if self.content_length.replace(length).is_some() {
            return Err(RequestError::Malformed("there is more than one Content-Length"));
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &'h [u8]) -> Result<(), RequestError> {
        if self.transfer_encoding.replace(value).is_some() {
            return Err(RequestError::Malformed("there is more than one Transfer-Encoding"));
        }
        Ok(())
    }

    fn body(&self, line: &RequestLine<'_>) -> Result<Body, RequestError> {
        match (self.transfer_encoding, self.content_length) {
            (Some(_), Some(_)) => {
                Err(RequestError::Malformed("both Transfer-Encoding and Content-Length are given"))
            }
            (Some(_), None) if !line.http_11 => {
                Err(RequestError::Malformed("HTTP/1.0 has no Transfer-Encoding"))
            }
            (Some(coding), None) => check_coding(coding),
            (None, length) => Ok(Body::Length(length.unwrap_or(0))),
        }
    }

    fn check_host(&self, line: &RequestLine<'_>) -> Result<(), RequestError> {
        if line.http_11 && self.host.is_none() {
            return Err(RequestError::Malformed("there is no Host"));
        }
        let Some(authority) = line.target.authority.map(str::as_bytes) else {
            // `Host:` may be empty only where the target has no authority (RFC 9110 §7.2), as `*` has none.
            return match self.host {
                Some([]) if line.target.path != "*" => Err(RequestError::Malformed("the Host is empty")),
                _ => Ok(()),
            };
        };
        if !is_authority(authority) {
            return Err(RequestError::Malformed("the target's authority is not `host[:port]`"));
        }
        match self.host {
            Some(host) if !without_port_80(host).eq_ignore_ascii_case(without_port_80(authority)) => {
                Err(RequestError::Malformed("the Host differs from the target's authority"))
            }
            _ => Ok(()),
        }
    }
}

/// `a` and `a:80` are equivalent, and clients send both.
fn without_port_80(authority: &[u8]) -> &[u8] {
    authority.strip_suffix(b":80").unwrap_or(authority)
}

/// Only `chunked` is supported; other known codings before it are 501; any other value is malformed.
fn check_coding(value: &[u8]) -> Result<Body, RequestError> {
    const KNOWN: [&[u8]; 6] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"br"];
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Body::Chunked);
    }
    let mut codings = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let chunked_last = codings.next_back().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    let known = codings.all(|coding| KNOWN.iter().any(|known| known.eq_ignore_ascii_case(coding)));
    if chunked_last && known {
        Err(RequestError::Coding)
    } else {
        Err(RequestError::Malformed("the Transfer-Encoding is unknown"))
    }
}

/// `uri-host [":" port]` without userinfo: a registered name, an IPv4 address, or an IP literal in brackets. A name has no
/// empty label, except that it may end with a dot: for `a.test..` a server that drops one dot serves `a.test`, whose
/// route would not have decided.
pub fn is_authority(text: &[u8]) -> bool {
    let port = match text {
        [b'[', rest @ ..] => match rest.iter().position(|&byte| byte == b']') {
            Some(end) if is_ip_literal(&rest[..end]) => &rest[end + 1..],
            _ => return false,
        },
        _ => match name_length(text) {
            Some(length) => &text[length..],
            None => return false,
        },
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The length of the registered name or IPv4 address that the text begins with. `None` if a label is empty.
fn name_length(text: &[u8]) -> Option<usize> {
    let mut label_is_empty = true;
    for (index, &byte) in text.iter().enumerate() {
        if byte == b'.' {
            if label_is_empty {
                return None;
            }
            label_is_empty = true;
        } else if IS_HOST[byte as usize] {
            label_is_empty = false;
        } else {
            return (index > 0).then_some(index);
        }
    }
    (!text.is_empty()).then_some(text.len())
}

fn is_ip_literal(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// What labels of a name consist of: unreserved and sub-delims of RFC 3986, without those that no host name has, and
/// without the dot. Percent-encoded names are refused too.
const IS_HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;

/// The body after a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// This many bytes; may be 0.
    Length(u64),
    /// Any length: chunked, or until the stream of HTTP/2 ends.
    Chunked,
}

impl Body {
    /// Nothing.
    pub const EMPTY: Self = Self::Length(0);
}
