//! Where a head is written: as text for HTTP/1.1, or at once as a header block for HTTP/2.
//!
//! Whoever writes a head names its fields one after the other and need not know which of the two it is. A response of a
//! backend thus takes one step to an HTTP/2 client: its fields are known by their positions and are encoded from there.

use bytes::{BufMut as _, BytesMut};
use http::{Method, StatusCode};

use super::head::{InvalidHead, is_grpc, percent_encoded, put_lines};
use super::hpack::encoder::{self, Scheme};
use crate::http1::fields::{Field, Fields};
use crate::http1::head_writer::{self, HeaderPair};

/// How a head is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadFormat {
    /// As text.
    Http1,
    /// As a header block.
    Http2 {
        /// The response answers a gRPC call.
        grpc: bool,
    },
}

/// Where a head is written: [`TextHead`] or [`BlockHead`].
pub trait HeadSink: Sized {
    /// The status of a response, which comes first, and its reason for HTTP/1.1.
    fn status(&mut self, status: StatusCode, reason: Option<&[u8]>);

    /// The method, the path with the query, and the host of a request, which come first.
    fn request(&mut self, method: &Method, target: &str, host: &[u8]);

    /// A field.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// A field with a number.
    #[inline]
    fn number(&mut self, name: &[u8], value: u64) {
        self.field(name, itoa::Buffer::new().format(value).as_bytes());
    }

    /// The length of the body of a response.
    fn content_length(&mut self, length: u64);

    /// A field made earlier: its line, and the length of its name, which is in lower case and in no table of HPACK.
    fn line(&mut self, line: &[u8], name: usize);

    /// Two fields; `end` is the end of the second one's value, in parts.
    fn pair(&mut self, pair: &HeaderPair, end: &[&[u8]]);

    /// The fields for which `passes` holds. None of them concerns the connection.
    fn passing<'h>(&mut self, fields: Fields<'h>, passes: impl Fn(&Field<'h>) -> bool);

    /// Header lines made earlier. Nearly always there are none.
    fn lines(&mut self, lines: &[u8]);

    /// The header lines that `write` appends.
    fn written(&mut self, write: impl FnOnce(&mut BytesMut));

    /// The header lines that `write` appends, which concern a connection of HTTP/1.1 only.
    fn of_connection(&mut self, write: impl FnOnce(&mut BytesMut));

    /// Ends the head of a response. Returns how it was written.
    fn end(self) -> HeadFormat;

    /// Ends the head of a request.
    fn end_request(self);
}

/// A head as text.
#[derive(Debug)]
pub struct TextHead<'o>(pub &'o mut BytesMut);

impl HeadSink for TextHead<'_> {
    #[inline]
    fn status(&mut self, status: StatusCode, reason: Option<&[u8]>) {
        head_writer::put_status(self.0, status, reason);
    }

    #[inline]
    fn request(&mut self, method: &Method, target: &str, host: &[u8]) {
        self.0.extend_from_slice(method.as_str().as_bytes());
        self.0.extend_from_slice(b" ");
        self.0.extend_from_slice(target.as_bytes());
        self.0.extend_from_slice(b" HTTP/1.1\r\n");
        self.field(b"host", host);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        head_writer::put_field(self.0, name, value);
    }

    #[inline]
    fn line(&mut self, line: &[u8], _name: usize) {
        self.0.extend_from_slice(line);
    }

    #[inline]
    fn content_length(&mut self, length: u64) {
        self.number(b"content-length", length);
    }

    #[inline]
    fn pair(&mut self, pair: &HeaderPair, end: &[&[u8]]) {
        self.0.extend_from_slice(pair.lines().as_bytes());
        end.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn passing<'h>(&mut self, fields: Fields<'h>, passes: impl Fn(&Field<'h>) -> bool) {
        fields.copy_lines(passes, |text| self.0.extend_from_slice(text));
    }

    #[inline]
    fn lines(&mut self, lines: &[u8]) {
        head_writer::put_lines(self.0, lines);
    }

    #[inline]
    fn written(&mut self, write: impl FnOnce(&mut BytesMut)) {
        write(self.0);
    }

    #[inline]
    fn of_connection(&mut self, write: impl FnOnce(&mut BytesMut)) {
        write(self.0);
    }

    #[inline]
    fn end(self) -> HeadFormat {
        self.0.extend_from_slice(b"\r\n");
        HeadFormat::Http1
    }

    #[inline]
    fn end_request(self) {
        self.0.extend_from_slice(b"\r\n");
    }
}

/// A head as a header block.
#[derive(Debug)]
pub struct BlockHead<'o> {
    out: &'o mut BytesMut,
    /// Its `content-type` is that of gRPC: it has no `content-length`, since the messages have their own lengths.
    grpc: bool,
}

impl<'o> BlockHead<'o> {
    /// Appends a block.
    pub fn new(out: &'o mut BytesMut) -> Self {
        Self { out, grpc: false }
    }
}

impl HeadSink for BlockHead<'_> {
    #[inline]
    fn status(&mut self, status: StatusCode, _reason: Option<&[u8]>) {
        encoder::put_status(status.as_u16(), self.out);
    }

    #[inline]
    fn request(&mut self, method: &Method, target: &str, host: &[u8]) {
        // The scheme is that of the server's connection, which is not known yet. `put_connect` knows this order.
        self.out.put_u8(encoder::scheme_field(Scheme::Http));
        encoder::put_field(b":method", method.as_str().as_bytes(), self.out);
        encoder::put_field(b":path", &percent_encoded(target.as_bytes()), self.out);
        // An empty `host:` is not an authority.
        if !host.is_empty() {
            encoder::put_field(b":authority", host, self.out);
        }
    }

    #[inline]
    fn line(&mut self, line: &[u8], name: usize) {
        let (name, value) = line.split_at_checked(name).unwrap_or_default();
        let value = value.strip_prefix(b": ").and_then(|value| value.strip_suffix(b"\r\n"));
        encoder::put_new_field(name, value.unwrap_or_default(), &[], self.out);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.grpc |= is_grpc(value) && name.eq_ignore_ascii_case(b"content-type");
        encoder::put_field(name, value, self.out);
    }

    #[inline]
    fn content_length(&mut self, length: u64) {
        if !self.grpc {
            self.number(b"content-length", length);
        }
    }

    #[inline]
    fn pair(&mut self, pair: &HeaderPair, end: &[&[u8]]) {
        let [(first, value), (second, start)] = pair.fields();
        encoder::put_new_field(first.as_bytes(), value.as_bytes(), &[], self.out);
        encoder::put_new_field(second.as_bytes(), start.as_bytes(), end, self.out);
    }

    #[inline]
    fn passing<'h>(&mut self, fields: Fields<'h>, passes: impl Fn(&Field<'h>) -> bool) {
        fields.iter().filter(passes).for_each(|field| self.field(field.name, field.value));
    }

    #[inline]
    fn lines(&mut self, lines: &[u8]) {
        if !lines.is_empty() {
            self.grpc |= put_lines(lines, self.out);
        }
    }

    #[inline]
    fn written(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut lines = BytesMut::new();
        write(&mut lines);
        self.lines(&lines);
    }

    #[inline]
    fn of_connection(&mut self, _write: impl FnOnce(&mut BytesMut)) {}

    #[inline]
    fn end(self) -> HeadFormat {
        HeadFormat::Http2 { grpc: self.grpc }
    }

    #[inline]
    fn end_request(self) {
        // All trailers are read, and forwarded if the client accepts them. gRPC servers require this.
        encoder::put_field(b"te", b"trailers", self.out);
    }
}

/// Writes the block of a GET as that of an extended CONNECT for a WebSocket (RFC 8441 §4).
///
/// # Errors
///
/// It is not the block of a GET, as [`BlockHead`] writes it.
pub fn put_connect(block: &[u8], scheme: Scheme, out: &mut BytesMut) -> Result<(), InvalidHead> {
    // Scheme and method are one byte each.
    let [_, INDEXED_GET, fields @ ..] = block else { return Err(InvalidHead) };
    encoder::put_field(b":method", b"CONNECT", out);
    out.put_u8(encoder::scheme_field(scheme));
    encoder::put_new_field(b":protocol", b"websocket", &[], out);
    out.extend_from_slice(fields);
    Ok(())
}

/// The field `:method` with the value `GET` (RFC 7541 appendix A).
const INDEXED_GET: u8 = 0x82;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::head::{put_request, put_response};
    use super::super::hpack::decoder::Decoder;
    use super::*;
    use crate::http1::response::ResponseHead;

    /// The head of a backend's response, written with fields of the gateway. Returns whether it is one of gRPC.
    fn write(mut sink: impl HeadSink, text: &[u8], length: Option<u64>) -> HeadFormat {
        let mut spans = Vec::new();
        let head = ResponseHead::parse(text, false, &mut spans).expect("a good head");
        sink.status(head.status, text.get(head.reason.0..head.reason.1));
        sink.passing(Fields::new(&text[..head.length], &spans), |field| {
            !field.known.is_hop_by_hop() && !field.name.eq_ignore_ascii_case(b"content-length")
        });
        sink.lines(b"set-cookie: a=b\r\nX-Edited:  c d \r\n");
        sink.written(|out| head_writer::put_number(out, b"x-number", 7));
        let pair = HeaderPair::new(["ratelimit-policy", "ratelimit"], ["\"l\";q=20", "\"l\";r="]);
        sink.pair(&pair, &[b"12", b";t=", b"3"]);
        sink.field(b"Date", b"today");
        length.into_iter().for_each(|length| sink.content_length(length));
        sink.end()
    }

    proptest! {
        /// A head that is encoded at once is the block of its text.
        #[test]
        fn both_formats_are_the_same_head(
            status in 200..600_u16,
            fields in prop::collection::vec((
                prop::sample::select(vec![
                    "Content-Type", "server", "x-a", "CONNECTION", "te", "etag", "x-very-long-name-that-is-in-no-table",
                ]),
                prop::sample::select(vec!["", "a", "application/grpc", "text/html", "close", " b  c ", "keep-alive"]),
                1..40_usize,
            ), 0..8),
            length in prop::option::of(0..u64::MAX),
        ) {
            let lines: String =
                fields.iter().map(|(name, value, times)| format!("{name}: {}\r\n", value.repeat(*times))).collect();
            let text = format!("HTTP/1.1 {status} \r\n{lines}\r\n");
            let (mut http1, mut http2, mut block) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
            prop_assert_eq!(write(TextHead(&mut http1), text.as_bytes(), length), HeadFormat::Http1);
            let format = write(BlockHead::new(&mut http2), text.as_bytes(), length);
            let grpc = put_response(&http1, &mut block).expect("a head");
            prop_assert_eq!(format, HeadFormat::Http2 { grpc });
            prop_assert_eq!(http2, block);
        }

        /// The same for requests, whose length may stand elsewhere.
        #[test]
        fn both_formats_are_the_same_request(
            method in prop::sample::select(vec![Method::GET, Method::POST, Method::HEAD, Method::DELETE]),
            target in prop::sample::select(vec!["/", "/index.html", "/a?b=c", "/\"<x>\\^`{|}\u{e9}", "*"]),
            host in prop::sample::select(vec!["", "a", "example.org:8080"]),
            value in "[ -~]{0,200}",
            length in prop::option::of(0..u64::MAX),
        ) {
            fn write(mut sink: impl HeadSink, (method, target, host): (&Method, &str, &str), value: &str, length: Option<u64>) {
                sink.request(method, target, host.as_bytes());
                sink.field(b"User-Agent", value.trim().as_bytes());
                sink.line(b"cdn-loop: tollgate-1\r\n", 8);
                length.into_iter().for_each(|length| sink.number(b"content-length", length));
                sink.of_connection(|out| head_writer::put_field(out, b"connection", b"te"));
                sink.written(|out| head_writer::put_field(out, b"x-edited", value.trim().as_bytes()));
                sink.end_request();
            }
            let (mut text, mut block, mut expected) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
            write(TextHead(&mut text), (&method, target, host), &value, length);
            write(BlockHead::new(&mut block), (&method, target, host), &value, length);
            put_request(&text, Scheme::Http, &mut expected).expect("a head");
            prop_assert_eq!(fields(&block), fields(&expected));
        }
    }

    #[test]
    fn the_block_of_a_get_becomes_an_extended_connect() {
        let block = |method: &Method| {
            let mut block = BytesMut::new();
            let mut sink = BlockHead::new(&mut block);
            sink.request(method, "/chat?a", b"h:1");
            sink.field(b"sec-websocket-version", b"13");
            sink.end_request();
            block
        };
        let mut connect = BytesMut::new();
        put_connect(&block(&Method::GET), Scheme::Https, &mut connect).expect("a GET");
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = Decoder::new(0)
            .decode(&connect, |name, value| fields.push(format!("{}={}", text(name), text(value))));
        read.expect("a block");
        assert_eq!(
            fields,
            [
                ":method=CONNECT",
                ":scheme=https",
                ":protocol=websocket",
                ":path=/chat?a",
                ":authority=h:1",
                "sec-websocket-version=13",
                "te=trailers"
            ]
        );
        for other in [Method::POST, Method::PUT, Method::HEAD] {
            assert_eq!(put_connect(&block(&other), Scheme::Http, &mut connect), Err(InvalidHead), "{other}");
        }
    }

    /// The fields of a block in the order of their names. Those of one name keep their order.
    fn fields(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        let read = Decoder::new(0).decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())));
        read.expect("a block");
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        fields
    }
}
