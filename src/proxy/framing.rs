//! Strict HTTP/1.1 request framing (RFC 9112): where a message ends, decided once, before hyper sees a byte.
//!
//! hyper accepts what other parsers read differently (bare LF, Content-Length beside Transfer-Encoding, several Hosts):
//! the raw material of request smuggling. Whatever passes here has exactly one reading.

mod chunks;

use http::{StatusCode, Uri};

pub(crate) use chunks::ChunkScanner;

/// Fields in one head.
pub(crate) const MAX_FIELDS: usize = 100;
/// Bytes of one field line.
const MAX_LINE: usize = 16 << 10;
/// Bytes of a request target.
const MAX_TARGET: usize = 8 << 10;
/// Why a head, or the framing of a body, is refused. The connection is closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 400: not the grammar of RFC 9112, or ambiguous.
    Malformed(&'static str),
    /// 405: TRACE and CONNECT are not for a reverse proxy.
    Method,
    /// 408: the head did not come in time.
    HeadTimeout,
    /// 414: the target is longer than 8 KiB.
    Target,
    /// 431: the head is larger than `max_header_bytes`, has over 100 fields, or a line over 16 KiB.
    HeadTooLarge,
    /// 501: a transfer coding other than `chunked`.
    Coding,
    /// 505: neither HTTP/1.0 nor HTTP/1.1.
    Version,
}

impl Fault {
    /// The status that says so.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Target => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Coding => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        }
    }

    /// What was wrong, for the client and the access log; never the client's own bytes.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(reason) => reason,
            Self::Method => "this method is not served here",
            Self::HeadTimeout => "the request head did not come in time",
            Self::Target => "the request target is too long",
            Self::HeadTooLarge => "the request head is too large",
            Self::Coding => "this transfer coding is not implemented",
            Self::Version => "this HTTP version is not supported",
        }
    }
}

/// How long the message's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes; may be 0.
    Length(u64),
    /// Chunked.
    Chunked,
}

/// What framing needs to know of a good head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// What follows it.
    pub(crate) body: Body,
    /// The client asks to switch protocols, and no body follows: what comes next may not be HTTP.
    pub(crate) upgrade: bool,
}

/// Finds the end of a head in bytes that arrive piecemeal; each byte is looked at once.
#[derive(Debug, Default)]
pub(crate) struct HeadScanner {
    /// Where the line being read begins.
    line: usize,
    /// How far the search for its end has come.
    searched: usize,
}

impl HeadScanner {
    /// The length of the head including its empty line, once it is all there. `bytes` begins at the request line and only ever grows.
    pub(crate) fn advance(&mut self, bytes: &[u8], max_head: usize) -> Result<Option<usize>, Fault> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.searched..]) {
            let newline = self.searched + found;
            let line = match bytes[self.line..newline] {
                [ref line @ .., b'\r'] => line,
                _ => return Err(Fault::Malformed("a line of the head does not end in CR LF")),
            };
            if newline >= max_head {
                return Err(self.too_large());
            }
            if line.is_empty() {
                return Ok(Some(newline + 1));
            }
            self.line = newline + 1;
            self.searched = newline + 1;
        }
        self.searched = bytes.len();
        let line_so_far = bytes.len() - self.line;
        if line_so_far > MAX_LINE || bytes.len() > max_head { Err(self.too_large()) } else { Ok(None) }
    }

    /// Whether the request line or a field overflowed.
    const fn too_large(&self) -> Fault {
        if self.line == 0 { Fault::Target } else { Fault::HeadTooLarge }
    }
}

/// Checks a whole head (request line, fields, empty line; every line known to end in CR LF).
pub(crate) fn check_head(head: &[u8]) -> Result<Head, Fault> {
    let mut lines = Lines(head);
    let request_line = RequestLine::parse(lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    for line in lines {
        fields.take(line)?;
    }
    fields.conclude(&request_line)
}

/// The lines of a head without their CR LF, up to the empty line.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let newline = memchr::memchr(b'\n', self.0)?;
        let (line, rest) = self.0.split_at(newline + 1);
        self.0 = rest;
        let line = &line[..newline.saturating_sub(1)];
        (!line.is_empty()).then_some(line)
    }
}

/// `method SP request-target SP HTTP-version` (RFC 9112 §3).
struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    http_11: bool,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, Fault> {
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Fault::Malformed("the request line is not `METHOD TARGET VERSION`"));
        };
        check_method(method)?;
        let http_11 = parse_version(version)?;
        if target.len() > MAX_TARGET {
            return Err(Fault::Target);
        }
        check_target(method, target)?;
        Ok(Self { method, target, http_11 })
    }

    /// The authority of an absolute-form target.
    fn authority(&self) -> Option<&'a [u8]> {
        let rest = strip_scheme(self.target)?;
        let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        Some(&rest[..end])
    }
}

/// Whether it is HTTP/1.1 (else HTTP/1.0).
fn parse_version(version: &[u8]) -> Result<bool, Fault> {
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Fault::Version)
        }
        _ => Err(Fault::Malformed("the request line does not end in an HTTP version")),
    }
}

/// A token without lower-case letters: no registered method has any, and a backend may fold case where we do not.
fn check_method(method: &[u8]) -> Result<(), Fault> {
    let good = !method.is_empty() && method.iter().all(|&byte| is_token(byte) && !byte.is_ascii_lowercase());
    match method {
        _ if !good => Err(Fault::Malformed("the method is not an upper-case token")),
        b"PRI" => Err(Fault::Malformed("HTTP/2 is not spoken on this listener")),
        b"CONNECT" | b"TRACE" => Err(Fault::Method),
        _ => Ok(()),
    }
}

/// origin-form, absolute-form of http and https, or `*` for OPTIONS (RFC 9112 §3.2).
fn check_target(method: &[u8], target: &[u8]) -> Result<(), Fault> {
    if !target.iter().all(|&byte| matches!(byte, 0x21..=0x7e) && byte != b'#') {
        return Err(Fault::Malformed("the request target has a forbidden character"));
    }
    // hyper would refuse some of these, unlogged: what it cannot take is refused here, by the same parser.
    if target.iter().any(|byte| matches!(byte, b'"' | b'<' | b'>' | b'`')) && Uri::try_from(target).is_err() {
        return Err(Fault::Malformed("the request target has a character that must be percent-encoded"));
    }
    match target {
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ if strip_scheme(target).is_some() => Ok(()),
        _ => Err(Fault::Malformed("the request target is neither a path nor an http URL")),
    }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    [b"http://".as_slice(), b"https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// What the fields say about framing, gathered line by line.
#[derive(Default)]
struct Fields<'a> {
    count: usize,
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
    transfer_encoding: Option<&'a [u8]>,
    upgrade: bool,
    connection_upgrade: bool,
}

impl<'a> Fields<'a> {
    fn take(&mut self, line: &'a [u8]) -> Result<(), Fault> {
        self.count += 1;
        if self.count > MAX_FIELDS || line.len() > MAX_LINE {
            return Err(Fault::HeadTooLarge);
        }
        let (name, value) = split_field(line)?;
        // The first letter decides for most fields that nothing more need be compared.
        match name[0] | 0x20 {
            b'h' if name.eq_ignore_ascii_case(b"host") => self.host(value),
            b'c' if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            b'c' if name.eq_ignore_ascii_case(b"connection") => {
                self.connection_upgrade |= has_item(value, b"upgrade");
                Ok(())
            }
            b't' if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            b'u' if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &'a [u8]) -> Result<(), Fault> {
        if self.host.replace(value).is_some() {
            return Err(Fault::Malformed("there is more than one Host"));
        }
        if !value.is_empty() && !is_authority(value) {
            return Err(Fault::Malformed("the Host is not `host[:port]`"));
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        let length = parse_length(value).ok_or(Fault::Malformed("the Content-Length is not a number"))?;
        if self.content_length.replace(length).is_some() {
            return Err(Fault::Malformed("there is more than one Content-Length"));
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &'a [u8]) -> Result<(), Fault> {
        if self.transfer_encoding.replace(value).is_some() {
            return Err(Fault::Malformed("there is more than one Transfer-Encoding"));
        }
        Ok(())
    }

    fn conclude(self, line: &RequestLine<'_>) -> Result<Head, Fault> {
        self.check_host(line)?;
        let body = match (self.transfer_encoding, self.content_length) {
            (Some(_), Some(_)) => {
                return Err(Fault::Malformed("both Transfer-Encoding and Content-Length are given"));
            }
            (Some(_), None) if !line.http_11 => {
                return Err(Fault::Malformed("HTTP/1.0 has no Transfer-Encoding"));
            }
            (Some(coding), None) => check_coding(coding)?,
            (None, length) => Body::Length(length.unwrap_or(0)),
        };
        let upgrade = self.upgrade && self.connection_upgrade && line.http_11 && body == Body::Length(0);
        Ok(Head { body, upgrade })
    }

    fn check_host(&self, line: &RequestLine<'_>) -> Result<(), Fault> {
        if line.http_11 && self.host.is_none() {
            return Err(Fault::Malformed("there is no Host"));
        }
        let Some(authority) = line.authority() else {
            // `Host:` may be empty only where the target has no authority (RFC 9110 §7.2): useless to route by.
            return match self.host {
                Some([]) if line.method != b"OPTIONS" => Err(Fault::Malformed("the Host is empty")),
                _ => Ok(()),
            };
        };
        if !is_authority(authority) {
            return Err(Fault::Malformed("the target's authority is not `host[:port]`"));
        }
        match self.host {
            Some(host) if !without_port_80(host).eq_ignore_ascii_case(without_port_80(authority)) => {
                Err(Fault::Malformed("the Host differs from the target's authority"))
            }
            _ => Ok(()),
        }
    }
}

/// `a` and `a:80` mean the same, and both are sent.
fn without_port_80(authority: &[u8]) -> &[u8] {
    authority.strip_suffix(b":80").unwrap_or(authority)
}

/// `chunked` alone is ours; other known codings before it are 501; anything else is no coding at all.
fn check_coding(value: &[u8]) -> Result<Body, Fault> {
    const KNOWN: [&[u8]; 6] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress", b"br"];
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Body::Chunked);
    }
    let mut codings = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let chunked_last = codings.next_back().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    let known = codings.all(|coding| KNOWN.iter().any(|known| known.eq_ignore_ascii_case(coding)));
    if chunked_last && known {
        Err(Fault::Coding)
    } else {
        Err(Fault::Malformed("the Transfer-Encoding is unknown"))
    }
}

/// Splits and checks `field-name ":" OWS field-value OWS` (RFC 9112 §5).
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let colon = memchr::memchr(b':', line).ok_or(Fault::Malformed("a field has no colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
        return Err(Fault::Malformed("a field name is not a token"));
    }
    // obs-text (0x80 and above) is opaque but legal; HTAB is the only control allowed.
    if value.iter().any(|&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
        return Err(Fault::Malformed("a field value has a control character"));
    }
    Ok((name, trim_blanks(value)))
}

fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a comma-separated list has this item.
fn has_item(list: &[u8], item: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|part| trim_blanks(part).eq_ignore_ascii_case(item))
}

/// 1*DIGIT below 2^63; no sign, no blank, no list.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let length = value.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then_some(u64::from(byte.wrapping_sub(b'0')))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    (length < 1 << 63).then_some(length)
}

/// `uri-host [":" port]` without userinfo: a registered name, an IPv4 address, or an IP literal in brackets.
fn is_authority(text: &[u8]) -> bool {
    let (host, port) = match text {
        [] => return false,
        [b'[', rest @ ..] => match rest.iter().position(|&byte| byte == b']') {
            Some(end) if is_ip_literal(&rest[..end]) => (&text[..1], &rest[end + 1..]),
            _ => return false,
        },
        _ => text.split_at(text.iter().position(|&byte| byte == b':').unwrap_or(text.len())),
    };
    let port_is_good = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let host_is_good = text[0] == b'[' || host.iter().all(|&byte| is_host_character(byte));
    !host.is_empty() && host_is_good && port_is_good
}

fn is_ip_literal(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// unreserved and sub-delims of RFC 3986, less what no host name has; percent-encoded names are refused too.
const fn is_host_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// tchar of RFC 9110 §5.6.2.
const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
