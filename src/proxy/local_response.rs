//! The form of a response to a client, and the headers that every response needs.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;

use super::upstream_head::{put_field, put_number, put_status};

/// The media type of a problem document (RFC 9457 §3).
pub(crate) const PROBLEM_JSON: &[u8] = b"application/problem+json";
/// The first lines of the default 429 response.
const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n";
/// Capacity reserved for a local response head, so that one allocation suffices.
const HEAD_ROOM: usize = 512;

/// The properties of a request that the form of its response depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseOptions {
    /// The client speaks HTTP/1.1 (else HTTP/1.0).
    pub(crate) http_11: bool,
    /// The request is a HEAD: the response has no body.
    pub(crate) to_head: bool,
    /// The connection stays open after the response.
    pub(crate) keep: bool,
    /// The response goes to an HTTP/2 stream, where `connection` headers are forbidden.
    pub(crate) http2: bool,
    /// The request is a gRPC call: the response carries a gRPC status.
    pub(crate) grpc: bool,
}

impl ResponseOptions {
    /// The options for the response to bytes that are not a request. The connection closes after the response.
    pub(crate) const fn unread(http2: bool) -> Self {
        Self { http_11: true, to_head: false, keep: false, http2, grpc: false }
    }
}

/// The body of a response that is written.
#[derive(Debug, Default)]
pub(crate) struct LocalBody {
    /// Its length, wherever it is.
    pub(crate) length: usize,
    /// A large body, which is not written behind the head.
    pub(crate) large: Option<Bytes>,
}

/// A response that the gateway makes itself.
#[derive(Debug)]
pub(crate) struct LocalResponse<'a> {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'a [u8],
    pub(crate) body: &'a [u8],
    /// The same, if it is large: then it is not written.
    pub(crate) large: Option<&'a Bytes>,
    /// Whether to forbid caches to store the response.
    pub(crate) no_store: bool,
}

impl LocalResponse<'_> {
    /// Writes the response with its own `fields`. Returns its body.
    pub(crate) fn write(
        &self,
        options: ResponseOptions,
        date: &[u8],
        out: &mut BytesMut,
        fields: impl FnOnce(&mut BytesMut),
    ) -> LocalBody {
        let length = self.body.len();
        out.reserve(HEAD_ROOM + if self.large.is_some() { 0 } else { length });
        if self.is_usual_refusal() {
            // The response sent most during a flood, written in one piece.
            out.put_slice(REFUSAL);
        } else {
            put_status(out, self.status, None);
            put_field(out, b"content-type", self.content_type);
            if self.no_store {
                out.put_slice(b"cache-control: no-store\r\n");
            }
        }
        fields(out);
        put_number(out, b"content-length", length as u64);
        put_field(out, b"date", date);
        put_connection(options, out);
        out.extend_from_slice(b"\r\n");
        put_body(options, self.body, self.large, out)
    }

    // Compared, not matched: a pattern would be compared byte by byte.
    fn is_usual_refusal(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS && self.no_store && self.content_type == PROBLEM_JSON
    }
}

/// Writes a body behind its head, unless it is large or the request is a HEAD.
pub(crate) fn put_body(
    options: ResponseOptions,
    body: &[u8],
    large: Option<&Bytes>,
    out: &mut BytesMut,
) -> LocalBody {
    if options.to_head {
        return LocalBody::default();
    }
    if large.is_none() {
        out.extend_from_slice(body);
    }
    LocalBody { length: body.len(), large: large.cloned() }
}

/// Writes whether the connection stays open, where the client would not expect it (RFC 9112 §9.3).
pub(crate) fn put_connection(options: ResponseOptions, out: &mut BytesMut) {
    match options {
        ResponseOptions { http2: true, .. } => {}
        ResponseOptions { keep: false, .. } => out.extend_from_slice(b"connection: close\r\n"),
        ResponseOptions { http_11: false, .. } => out.extend_from_slice(b"connection: keep-alive\r\n"),
        ResponseOptions { .. } => {}
    }
}
