//! A backend's response head (RFC 9112): parsed leniently if only one reading is possible, refused if there are two.

use std::time::Duration;

use http::StatusCode;

use super::fields::{FieldSpan, Fields};
use super::lines::{LineEnd, LineScanner, split_line};
use super::login::asks_to_bind_connection;
use super::mentioned::ConnectionField;
use super::name::Name;
use super::request::MAX_FIELDS;
use super::syntax::{is_value, items, parse_length};

/// Bytes of a response head.
pub const MAX_HEAD: usize = 64 << 10;

/// The bytes are not an HTTP/1 response, or its end is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is malformed")]
pub struct MalformedResponse;

/// How a response's body ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body, whatever the head declares: the response to HEAD, 204, 304.
    None,
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection; or with the HTTP/2 stream, which may also have trailers.
    UntilClose,
}

/// A response head, without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes of the head, its empty line included.
    pub length: usize,
    /// The status.
    pub status: StatusCode,
    /// The position of the reason phrase in the head.
    pub reason: (usize, usize),
    /// How the body ends.
    pub framing: Framing,
    /// `content-length`, if there is one; in a response to HEAD it describes a body that is not sent.
    pub content_length: Option<u64>,
    /// Whether the connection can serve another request.
    pub kept: bool,
    /// Whether it concerns a login that is bound to the connection (NTLM, Negotiate).
    pub private: bool,
    /// How long the backend announces to keep the connection: `keep-alive: timeout=`.
    pub keep_alive: Option<Duration>,
}

/// Finds the end of a head in bytes that arrive piecemeal. Lines may end in LF alone (RFC 9112 §2.2). After an error
/// every later call fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadEnd(LineScanner);

impl HeadEnd {
    /// The length of the head, empty line included, once it is complete.
    ///
    /// # Errors
    ///
    /// A head over [`MAX_HEAD`].
    #[inline(always)]
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, MalformedResponse> {
        self.0.head_end(bytes, MAX_HEAD, MAX_HEAD, LineEnd::Lf).map_err(|_| MalformedResponse)
    }
}

/// The first line, and its length with its end.
#[inline(always)]
fn next_line(bytes: &[u8]) -> Result<(&[u8], usize), MalformedResponse> {
    split_line(bytes, LineEnd::Lf).ok_or(MalformedResponse)
}

impl ResponseHead {
    /// Parses a whole head, which answers a HEAD request or another. The positions of its fields are written to
    /// `spans`, replacing its content.
    ///
    /// # Errors
    ///
    /// A head that is not a response, or is ambiguous.
    pub fn parse(head: &[u8], to_head: bool, spans: &mut Vec<FieldSpan>) -> Result<Self, MalformedResponse> {
        spans.clear();
        let (line, mut at) = next_line(head)?;
        let line = StatusLine::parse(line)?;
        let (mut private, mut connection) = (false, ConnectionField::default());
        loop {
            let (field, length) = next_line(&head[at..])?;
            if field.is_empty() {
                break;
            }
            if spans.len() == MAX_FIELDS {
                return Err(MalformedResponse);
            }
            let (span, value) = FieldSpan::read(field, at).map_err(|_| MalformedResponse)?;
            match span.name() {
                Name::Connection => connection.take(value),
                // `proxy-authenticate` is among those for the next hop.
                Name::WwwAuthenticate | Name::NextHop => private |= asks_to_bind_connection(value),
                _ => {}
            }
            spans.push(span);
            at += length;
        }
        let fields = Fields::new(head, spans);
        let content_length = content_length(fields)?;
        let framing = framing(fields, content_length, &line, to_head)?;
        Ok(Self {
            length: head.len(),
            status: line.status,
            reason: line.reason,
            framing,
            content_length,
            private,
            kept: framing != Framing::UntilClose && connection.is_kept(line.http_11),
            keep_alive: fields.known(Name::KeepAlive).and_then(announced),
        })
    }

    /// Whether it is an interim response (RFC 9110 §15.2).
    pub fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// `HTTP-version SP status-code [SP reason-phrase]` (RFC 9112 §4).
struct StatusLine {
    http_11: bool,
    status: StatusCode,
    reason: (usize, usize),
}

impl StatusLine {
    fn parse(line: &[u8]) -> Result<Self, MalformedResponse> {
        let (version, rest) = line.split_at_checked(9).ok_or(MalformedResponse)?;
        let http_11 = match version {
            b"HTTP/1.1 " => true,
            b"HTTP/1.0 " => false,
            _ => return Err(MalformedResponse),
        };
        let (digits, rest) = rest.split_at_checked(3).ok_or(MalformedResponse)?;
        let status = StatusCode::from_bytes(digits).map_err(|_| MalformedResponse)?;
        let reason = match rest {
            [] => (line.len(), line.len()),
            [b' ', reason @ ..] if is_value(reason) => (13, line.len()),
            _ => return Err(MalformedResponse),
        };
        Ok(Self { http_11, status, reason })
    }
}

/// One number, which may be repeated.
fn content_length(fields: Fields<'_>) -> Result<Option<u64>, MalformedResponse> {
    let mut said = None;
    for number in fields.all_known(Name::ContentLength).flat_map(items) {
        let length = parse_length(number).ok_or(MalformedResponse)?;
        if said.replace(length).is_some_and(|before| before != length) {
            return Err(MalformedResponse);
        }
    }
    Ok(said)
}

fn framing(
    fields: Fields<'_>,
    content_length: Option<u64>,
    line: &StatusLine,
    to_head: bool,
) -> Result<Framing, MalformedResponse> {
    let mut codings = fields.all_known(Name::TransferEncoding);
    let coding = match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(coding), None) if line.http_11 && content_length.is_none() => Some(coding),
        // Repeated, beside a length, or in HTTP/1.0, which has no codings: the framing is contradictory.
        _ => return Err(MalformedResponse),
    };
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"chunked")) {
        return Err(MalformedResponse);
    }
    let bodiless = line.status.is_informational()
        || matches!(line.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    Ok(match (coding, content_length) {
        _ if to_head || bodiless => Framing::None,
        (Some(_), _) => Framing::Chunked,
        (None, Some(length)) => Framing::Length(length),
        (None, None) => Framing::UntilClose,
    })
}

/// `timeout=5, max=100`: 5 s.
fn announced(value: &[u8]) -> Option<Duration> {
    let seconds = items(value).find_map(|item| {
        let (name, seconds) = item.split_at_checked(8)?;
        name.eq_ignore_ascii_case(b"timeout=").then_some(seconds)
    })?;
    parse_length(super::syntax::trim_blanks(seconds)).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<ResponseHead, MalformedResponse> {
        let length = HeadEnd::default().advance(text.as_bytes())?.ok_or(MalformedResponse)?;
        ResponseHead::parse(&text.as_bytes()[..length], false, &mut Vec::new())
    }

    #[test]
    fn a_body_ends_in_one_way() {
        let framing =
            |fields: &str| parse(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).map(|head| head.framing);
        assert_eq!(framing(""), Ok(Framing::UntilClose));
        assert_eq!(framing("content-length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("content-length: 5, 5\r\nContent-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("transfer-encoding: Chunked\n"), Ok(Framing::Chunked));
        for bad in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: -5\r\n",
            "content-length: 5\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "x : y\r\n",
            "x: y\r\n folded\r\n",
        ] {
            assert_eq!(framing(bad), Err(MalformedResponse), "{bad:?}");
        }
        for bodiless in ["204 No Content", "304 Not Modified", "101 Switching Protocols"] {
            let head = parse(&format!("HTTP/1.1 {bodiless}\r\ncontent-length: 5\r\n\r\n"));
            assert_eq!(head.map(|head| head.framing), Ok(Framing::None), "{bodiless}");
        }
    }

    #[test]
    fn the_connection_is_kept_where_both_ends_know_it() {
        let kept = |text: &str| parse(text).map(|head| head.kept);
        assert_eq!(kept("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), Ok(true));
        assert_eq!(kept("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x, Close\r\n\r\n"), Ok(false));
        assert_eq!(kept("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"), Ok(false));
        assert_eq!(kept("HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n"), Ok(true));
        assert_eq!(kept("HTTP/1.1 200 OK\r\n\r\n"), Ok(false), "the body ends with the connection");
        let announced = parse("HTTP/1.1 200\r\ncontent-length: 0\r\nkeep-alive: max=9, Timeout=5\r\n\r\n");
        assert_eq!(announced.map(|head| head.keep_alive), Ok(Some(Duration::from_secs(5))));
    }

    #[test]
    fn what_is_no_status_line_is_no_response() {
        for bad in
            ["HTTP/2 200 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 099 x", "HTTP/1.1  200", "hello", "HTTP/1.1 20"]
        {
            assert_eq!(parse(&format!("{bad}\r\n\r\n")), Err(MalformedResponse), "{bad}");
        }
        assert!(parse(&format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(65 << 10))).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_cuts_change_nothing(bytes in "(HTTP/1.[01] [0-9]{2,4}( OK)?|[a-z:]{0,9})(\r?\n([a-z-]{0,17}:? ?[a-z0-9]{0,9})){0,5}\r?\n\r?\n[ -~]{0,9}", cut in 1..9_usize) {
            let bytes = bytes.as_bytes();
            let whole = HeadEnd::default().advance(bytes);
            let (mut piecemeal, mut end, mut received) = (Ok(None), HeadEnd::default(), 0);
            while received < bytes.len() && piecemeal == Ok(None) {
                received = (received + cut).min(bytes.len());
                piecemeal = end.advance(&bytes[..received]);
            }
            prop_assert_eq!(whole, piecemeal);
            if let Ok(Some(length)) = whole {
                let head = ResponseHead::parse(&bytes[..length], false, &mut Vec::new());
                prop_assert!(head.is_ok_and(|head| head.length == length) || head.is_err());
            }
        }
    }
}
