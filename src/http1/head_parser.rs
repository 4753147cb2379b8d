//! Parses request heads one after the other, and remembers the last one.
//!
//! Monitors, retries and most of all floods send the same bytes again and again. A head that equals the one before it
//! is not parsed again: for `GET / HTTP/1.1` with three fields, the comparison takes a tenth of the instructions.
//!
//! The head before may be of another client, with its credential. So the comparison takes as long whichever bytes
//! differ, and its time tells a client no more than whether it knew the whole head.

use http::Method;

use super::fields::{FieldSpan, Fields};
use super::request::{Body, RequestError, RequestHead, RequestTarget};

/// A longer head is not remembered. Heads of tools have some hundred bytes; a longer one costs memory of each buffer.
const MAX_REMEMBERED: usize = 1 << 10;

/// Parses request heads; see the module.
#[derive(Debug, Default)]
pub struct HeadParser {
    /// The positions of the fields in the head parsed last.
    spans: Vec<FieldSpan>,
    /// The bytes of the head that is remembered; empty: there is none.
    bytes: Vec<u8>,
    /// Its target, an origin-form, and then its host.
    text: String,
    /// Its other values.
    values: RememberedValues,
    /// The head parsed last.
    last: HeadStart,
}

/// The length of a head, and its first bytes. A head is copied only if the one before it began as it does and was as long:
/// others are seldom equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HeadStart {
    length: usize,
    bytes: [u64; 4],
}

/// The values of a head, beside its target and fields.
#[derive(Debug)]
struct RememberedValues {
    method: Method,
    /// The length of the target.
    target: usize,
    has_host: bool,
    /// The position of the `?` in the target.
    query_mark: Option<usize>,
    http_11: bool,
    body: Body,
    upgrade: bool,
    keep_alive: bool,
}

impl HeadParser {
    /// Parses the head that `bytes` begin with and that is known to end within them, as [`RequestHead::parse`] does.
    ///
    /// # Errors
    ///
    /// As [`RequestHead::parse`].
    #[inline]
    pub fn parse<'h>(&'h mut self, bytes: &'h [u8]) -> Result<RequestHead<'h>, RequestError> {
        if self.is_repeated(bytes) {
            return Ok(self.repeat(bytes));
        }
        self.parse_anew(bytes)
    }

    /// Whether `bytes` begin with the head that is remembered. It ends with the first empty line, so that it is the whole
    /// head of these bytes too.
    #[inline]
    fn is_repeated(&self, bytes: &[u8]) -> bool {
        let start = bytes.get(..self.bytes.len()).unwrap_or_default();
        !start.is_empty() && equal_in_constant_time(start, &self.bytes)
    }

    #[inline]
    fn repeat<'h>(&'h self, bytes: &'h [u8]) -> RequestHead<'h> {
        let RememberedValues { method, target, has_host, query_mark, http_11, body, upgrade, keep_alive } =
            &self.values;
        let (text, host) = self.text.split_at_checked(*target).unwrap_or_default();
        let (path, query) = match query_mark.and_then(|mark| text.split_at_checked(mark)) {
            Some((path, query)) => (path, query.get(1..)),
            None => (text, None),
        };
        RequestHead {
            method: method.clone(),
            target: RequestTarget { text, authority: None, path, query },
            http_11: *http_11,
            body: *body,
            upgrade: *upgrade,
            keep_alive: *keep_alive,
            host: has_host.then_some(host),
            fields: Fields::new(bytes.get(..self.bytes.len()).unwrap_or_default(), &self.spans),
            length: self.bytes.len(),
            is_repeated: true,
        }
    }

    fn parse_anew<'h>(&'h mut self, bytes: &'h [u8]) -> Result<RequestHead<'h>, RequestError> {
        let Self { spans, bytes: remembered, text, values, last } = self;
        remembered.clear();
        let head = RequestHead::parse(bytes, spans)?;
        let is_usual = head.length <= MAX_REMEMBERED && head.target.authority.is_none();
        let whole = bytes.get(..head.length).unwrap_or_default();
        let start = HeadStart::of(whole);
        if start == std::mem::replace(last, start) && is_usual {
            remembered.extend_from_slice(whole);
            text.clear();
            text.push_str(head.target.text);
            text.push_str(head.host.unwrap_or_default());
            *values = RememberedValues {
                method: head.method.clone(),
                target: head.target.text.len(),
                has_host: head.host.is_some(),
                query_mark: head.target.query.map(|_| head.target.path.len()),
                http_11: head.http_11,
                body: head.body,
                upgrade: head.upgrade,
                keep_alive: head.keep_alive,
            };
        }
        Ok(head)
    }
}

impl Default for RememberedValues {
    fn default() -> Self {
        Self {
            method: Method::GET,
            target: 0,
            has_host: false,
            query_mark: None,
            http_11: true,
            body: Body::EMPTY,
            upgrade: false,
            keep_alive: true,
        }
    }
}

impl HeadStart {
    #[inline]
    fn of(head: &[u8]) -> Self {
        let first = head.first_chunk::<32>().map(words).unwrap_or_default();
        Self { length: head.len(), bytes: first }
    }
}

#[inline]
fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
}

/// Whether two slices of one length are equal. All bytes are compared, 32 at a time.
fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let (chunks, rest) = one.as_chunks::<32>();
    let (other_chunks, other_rest) = other.as_chunks::<32>();
    let differing = |sum: u8, (one, other): (&u8, &u8)| sum | (one ^ other);
    let mut sums = [0; 4];
    for (one, other) in chunks.iter().zip(other_chunks) {
        for ((sum, one), other) in sums.iter_mut().zip(words(one)).zip(words(other)) {
            *sum |= one ^ other;
        }
    }
    let rest = rest.iter().zip(other_rest).fold(0, differing);
    sums.iter().fold(u64::from(rest), |sum, one| sum | one) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All values of a head, as text.
    fn described(parsed: Result<RequestHead<'_>, RequestError>) -> String {
        let fields = |head: &RequestHead<'_>| {
            let fields = head.fields.iter();
            fields
                .map(|field| format!("{:?} {:?} {:?}", field.known, field.name, field.value))
                .collect::<Vec<_>>()
        };
        match parsed {
            Ok(head) => format!(
                "{:?} {:?} {:?} {} {:?} {} {} {} {:?}",
                head.method,
                head.target,
                head.host,
                head.http_11,
                head.body,
                head.upgrade,
                head.keep_alive,
                head.length,
                fields(&head)
            ),
            Err(fault) => format!("{fault:?}"),
        }
    }

    #[test]
    fn a_head_that_differs_in_any_one_byte_is_another() {
        let head =
            b"POST /a/b?c=d HTTP/1.1\r\nhost: example.org\r\ncontent-length: 17\r\nx-key: abcdefgh\r\n\r\n";
        let mut parser = HeadParser::default();
        for at in 0..head.len() {
            for _ in 0..3 {
                assert!(parser.parse(head).is_ok());
            }
            assert!(parser.is_repeated(head), "it is remembered");
            let mut other = head.to_vec();
            other[at] ^= 1;
            assert!(!parser.is_repeated(&other), "{at}");
            assert_eq!(
                described(parser.parse(&other)),
                described(RequestHead::parse(&other, &mut Vec::new())),
                "{at}"
            );
        }
    }

    #[test]
    fn bytes_after_the_head_are_not_its() {
        let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut parser = HeadParser::default();
        let pipelined = [&head[..], b"GET /other HTTP/1.1\r\n"].concat();
        for bytes in [&head[..], &pipelined, &head[..], &pipelined] {
            assert_eq!(parser.parse(bytes).map(|head| head.length), Ok(head.len()));
        }
        assert!(parser.is_repeated(&pipelined));
    }

    proptest! {
        /// Whatever came before it, a head has the values that it has alone.
        #[test]
        fn a_remembered_head_is_as_parsed_anew(
            heads in prop::collection::vec(prop::sample::select(vec![
                "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
                "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
                "GET /? HTTP/1.1\r\nhost: a\r\n\r\n",
                "GET /b HTTP/1.1\r\nhost: a\r\n\r\n",
                "PUT /?a?b HTTP/1.1\r\nHost:a\r\nConnection: close\r\n\r\n",
                "FOO /%C3%A9 HTTP/1.1\r\nHost:a\r\nTransfer-Encoding: chunked\r\n\r\n",
                "GET /ws HTTP/1.1\r\nHost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
                "GET http://a/b?c HTTP/1.1\r\nhost: a\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
                "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
                "GET /x HTTP/1.0\r\n\r\n",
                "GET /x HTTP/1.0\r\nhost:\r\n\r\n",
            ]), 1..30),
            long in 0..3_usize,
        ) {
            let mut parser = HeadParser::default();
            for (index, head) in heads.iter().enumerate() {
                let padding = format!("\r\nx: {}\r\n\r\n", "y".repeat(if index % 3 < long { 1100 } else { 1 }));
                let head = head.replacen("\r\n\r\n", &padding, 1);
                let expected = described(RequestHead::parse(head.as_bytes(), &mut Vec::new()));
                for _ in 0..=index % 3 {
                    prop_assert_eq!(described(parser.parse(head.as_bytes())), expected.clone());
                }
            }
        }
    }
}
