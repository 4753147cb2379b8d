//! A response that the gateway makes itself, with the headers that every response needs.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::StatusCode;

use crate::http1::head_writer::{put_field, put_number, put_status};
use crate::proxy::session::response_options::{LocalBody, ResponseOptions, put_body, put_connection};

/// The media type of a problem document (RFC 9457 §3).
pub(crate) const PROBLEM_JSON: &[u8] = b"application/problem+json";
/// The first lines of the default 429 response.
const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n";
/// Capacity reserved for a local response head, so that one allocation suffices.
const HEAD_ROOM: usize = 512;

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
