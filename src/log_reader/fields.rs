//! The fields of a line, as any of the formats has them (they borrow the line), and which of them a log has.

use std::collections::HashSet;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::client;
use crate::limit::units::{Micros, Timestamp};

/// A header that a line has, or whose absence it tells.
pub(super) type HeaderField<'l> = (LoggedText<'l>, Option<LoggedText<'l>>);

/// What a line says about a request. `None`: the line does not have the field.
#[derive(Debug, Default)]
pub(super) struct LineFields<'l> {
    /// As logged.
    pub(super) time: Option<Timestamp>,
    /// The time is the end of the request.
    pub(super) is_end: bool,
    pub(super) duration: Option<Micros>,
    pub(super) client: Option<IpAddr>,
    pub(super) method: Option<LoggedText<'l>>,
    pub(super) target: Option<LoggedText<'l>>,
    pub(super) host: Option<LoggedText<'l>>,
    pub(super) status: Option<u16>,
    pub(super) bytes_in: Option<u64>,
    pub(super) bytes_out: Option<u64>,
    pub(super) user_agent: Option<LoggedText<'l>>,
    pub(super) referer: Option<LoggedText<'l>>,
    pub(super) consumer: Option<LoggedText<'l>>,
    /// A list of addresses in place of the client's, as proxies wrote it.
    pub(super) hops: Option<&'l [u8]>,
    pub(super) headers: SmallVec<[HeaderField<'l>; 8]>,
    pub(super) own: Option<OwnFields<'l>>,
}

/// The fields that only tollgate writes.
#[derive(Debug, Default)]
pub(super) struct OwnFields<'l> {
    pub(super) route: LoggedText<'l>,
    pub(super) tier: LoggedText<'l>,
    pub(super) limit: LoggedText<'l>,
    pub(super) decision: LoggedText<'l>,
    pub(super) error: LoggedText<'l>,
    pub(super) remaining: Option<u64>,
    pub(super) cost: Option<u32>,
    pub(super) settled: Option<u64>,
}

impl<'l> LineFields<'l> {
    /// When the request arrived.
    ///
    /// # Errors
    ///
    /// The line has no time.
    pub(super) fn arrival(&self) -> Result<Timestamp, ProblemKind> {
        let time = self.time.ok_or(ProblemKind::NoTime)?;
        let before = self.duration.filter(|_| self.is_end).unwrap_or_default();
        Ok(Timestamp(time.0.saturating_sub(before.0)))
    }

    /// Takes `GET /x HTTP/1.1` apart; the protocol may be missing.
    pub(super) fn set_request_line(&mut self, line: LoggedText<'l>) {
        let raw = line.raw();
        let Some(blank) = memchr::memchr(b' ', raw) else { return };
        let (method, rest) = raw.split_at(blank);
        let rest = rest.get(1..).unwrap_or_default();
        let target = match memchr::memrchr(b' ', rest).map(|blank| rest.split_at(blank)) {
            Some((target, protocol)) if protocol.starts_with(b" HTTP/") => target,
            _ => rest,
        };
        self.method = Some(line.part(method));
        self.target = Some(line.part(target));
    }

    /// Takes the host from a target such as `https://www.example.com:443/x`, without the port that is the default one.
    pub(super) fn split_absolute_target(&mut self) {
        let Some(target) = self.target else { return };
        let schemes = [(b"https://".as_slice(), b":443".as_slice()), (b"http://", b":80")];
        let found =
            schemes.iter().find_map(|(scheme, port)| Some((target.raw().strip_prefix(*scheme)?, *port)));
        let Some((after, port)) = found else { return };
        let length = after.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after.len());
        let (authority, path) = after.split_at(length);
        let host = authority.strip_suffix(port).unwrap_or(authority);
        self.host = target.part(host).known();
        // A target without a path stays as it is: its head is written with one.
        if self.host.is_some() && path.starts_with(b"/") {
            self.target = Some(target.part(path));
        }
    }

    /// Takes the client from an address, or from a list of addresses as proxies write it.
    pub(super) fn set_client(&mut self, text: &'l [u8]) {
        (self.client, self.hops) = if is_list(text) { (None, Some(text)) } else { (client(text), None) };
    }
}

/// Whether a text is a list of addresses in place of one.
pub(super) fn is_list(text: &[u8]) -> bool {
    text.contains(&b',')
}

/// A whole number.
pub(super) fn number(text: LoggedText<'_>) -> Option<u64> {
    let digits = text.raw();
    let sum = digits.iter().try_fold(0_u64, |sum, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(value)
    });
    sum.filter(|_| !digits.is_empty())
}

/// A status; servers write 0 for a request without a response.
pub(super) fn status(text: LoggedText<'_>) -> Option<u16> {
    number(text).and_then(|status| u16::try_from(status).ok()).filter(|status| (100..1_000).contains(status))
}

/// Names of headers that are kept: clients choose the names where a server logs all headers.
const MAX_HEADERS: usize = 1_000;
/// Bytes of a name that is kept.
const MAX_NAME: usize = 256;

/// The fields that at least one line had so far.
#[derive(Clone, Debug, Default)]
pub struct KnownFields {
    /// The host.
    pub host: bool,
    /// The client's address.
    pub client: bool,
    /// The status of the response.
    pub status: bool,
    /// The duration.
    pub duration: bool,
    /// The size of the request body.
    pub bytes_in: bool,
    /// The size of the response body.
    pub bytes_out: bool,
    /// The consumer or user.
    pub consumer: bool,
    /// Decisions of tollgate.
    pub own: bool,
    has_user_agent: bool,
    has_referer: bool,
    headers: HashSet<Vec<u8>, foldhash::fast::RandomState>,
    scratch: Vec<u8>,
}

impl KnownFields {
    /// Whether the log has this header of requests, or tells its absence. The name is in lower case.
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.contains(name.as_bytes())
    }

    /// The names of these headers in lower case, in alphabetical order.
    pub fn headers(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.headers.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn note(&mut self, fields: &LineFields<'_>) {
        self.host |= fields.host.is_some();
        self.client |= fields.client.is_some();
        self.status |= fields.status.is_some();
        self.duration |= fields.duration.is_some();
        self.bytes_in |= fields.bytes_in.is_some();
        self.bytes_out |= fields.bytes_out.is_some();
        self.consumer |= fields.consumer.is_some();
        self.own |= fields.own.is_some();
        if fields.user_agent.is_some() && !std::mem::replace(&mut self.has_user_agent, true) {
            self.note_header(b"user-agent");
        }
        if fields.referer.is_some() && !std::mem::replace(&mut self.has_referer, true) {
            self.note_header(b"referer");
        }
        for (name, _) in &fields.headers {
            self.note_header(name.raw());
        }
    }

    fn note_header(&mut self, name: &[u8]) {
        if name.len() > MAX_NAME {
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        self.scratch.make_ascii_lowercase();
        if self.headers.len() < MAX_HEADERS && !self.headers.contains(&self.scratch) {
            self.headers.insert(self.scratch.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_are_taken_apart() {
        for (line, method, target) in [
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("GET /a b HTTP/2.0", Some("GET"), Some("/a b")),
            ("GET /old", Some("GET"), Some("/old")),
            ("-", None, None),
        ] {
            let mut fields = LineFields::default();
            fields.set_request_line(LoggedText::plain(line.as_bytes()));
            assert_eq!(fields.method.map(LoggedText::raw), method.map(str::as_bytes), "{line}");
            assert_eq!(fields.target.map(LoggedText::raw), target.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn the_host_of_an_absolute_target_has_no_default_port() {
        for (target, host, path) in [
            ("https://www.example.com:443/a?b", Some("www.example.com"), "/a?b"),
            ("http://www.example.com:80/", Some("www.example.com"), "/"),
            ("http://[2001:db8::1]:443/", Some("[2001:db8::1]:443"), "/"),
            ("https://www.example.com?x", Some("www.example.com"), "https://www.example.com?x"),
            ("https:///x", None, "https:///x"),
            ("/a", None, "/a"),
            ("*", None, "*"),
        ] {
            let mut fields =
                LineFields { target: Some(LoggedText::plain(target.as_bytes())), ..LineFields::default() };
            fields.split_absolute_target();
            assert_eq!(fields.host.map(LoggedText::raw), host.map(str::as_bytes), "{target}");
            assert_eq!(fields.target.map(LoggedText::raw), Some(path.as_bytes()), "{target}");
        }
    }

    #[test]
    fn numbers_have_digits_only() {
        assert_eq!(number(LoggedText::plain(b"18446744073709551615")), Some(u64::MAX));
        for text in ["", "-1", "18446744073709551616", "1.5"] {
            assert_eq!(number(LoggedText::plain(text.as_bytes())), None, "{text}");
        }
        assert_eq!(status(LoggedText::plain(b"0")), None);
    }
}
