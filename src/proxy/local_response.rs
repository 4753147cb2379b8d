//! The form in which a client is answered, and the fields that every answer needs.

use bytes::{BufMut as _, BytesMut};
use http::StatusCode;

use super::upstream_head::{put_field, put_number, put_status};

/// The media type of a problem document (RFC 9457 §3).
pub(crate) const PROBLEM_JSON: &[u8] = b"application/problem+json";
/// The first lines of a usual refusal.
const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n";
/// Room for a head of ours, so that it is made at once.
const HEAD_ROOM: usize = 512;

/// What the form of an answer depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseOptions {
    /// The client speaks HTTP/1.1 (else HTTP/1.0).
    pub(crate) http_11: bool,
    /// It sent HEAD: the answer has no body.
    pub(crate) to_head: bool,
    /// The connection stays open after the answer.
    pub(crate) keep: bool,
    /// It goes to a stream of HTTP/2, where nothing is said of the connection.
    pub(crate) http2: bool,
    /// It is a gRPC call, which reads a status of its own.
    pub(crate) grpc: bool,
}

impl ResponseOptions {
    /// The answer to what cannot be read as a request: the connection closes behind it.
    pub(crate) const fn unread(http2: bool) -> Self {
        Self { http_11: true, to_head: false, keep: false, http2, grpc: false }
    }
}

/// An answer of our own.
#[derive(Debug)]
pub(crate) struct LocalResponse<'a> {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'a [u8],
    pub(crate) body: &'a [u8],
    /// Whether a cache may keep it.
    pub(crate) no_store: bool,
}

impl LocalResponse<'_> {
    /// Writes the answer, with the `fields` that belong to this one.
    pub(crate) fn write(
        &self,
        form: ResponseOptions,
        date: &[u8],
        out: &mut BytesMut,
        fields: impl FnOnce(&mut BytesMut),
    ) {
        out.reserve(HEAD_ROOM + self.body.len());
        if self.is_usual_refusal() {
            // What a flood is answered with, in one piece.
            out.put_slice(REFUSAL);
        } else {
            put_status(out, self.status, None);
            put_field(out, b"content-type", self.content_type);
            if self.no_store {
                out.put_slice(b"cache-control: no-store\r\n");
            }
        }
        fields(out);
        put_number(out, b"content-length", self.body.len() as u64);
        put_field(out, b"date", date);
        put_connection(form, out);
        out.extend_from_slice(b"\r\n");
        if !form.to_head {
            out.extend_from_slice(self.body);
        }
    }

    // Compared, not matched: a pattern would be looked at byte by byte.
    fn is_usual_refusal(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS && self.no_store && self.content_type == PROBLEM_JSON
    }
}

/// Says whether the connection stays open, where the client would not expect it (RFC 9112 §9.3).
pub(crate) fn put_connection(form: ResponseOptions, out: &mut BytesMut) {
    match form {
        ResponseOptions { http2: true, .. } => {}
        ResponseOptions { keep: false, .. } => out.extend_from_slice(b"connection: close\r\n"),
        ResponseOptions { http_11: false, .. } => out.extend_from_slice(b"connection: keep-alive\r\n"),
        ResponseOptions { .. } => {}
    }
}
