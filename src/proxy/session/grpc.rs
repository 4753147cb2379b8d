//! gRPC calls (the protocol "gRPC over HTTP/2"): refusals are sent as a gRPC status.

use bytes::BytesMut;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};

use crate::http1::head_writer::{put_field, put_number, put_status};
use crate::http1::request::RequestHead;
use crate::http2::head::is_grpc;

/// Whether a request is a gRPC call.
pub(crate) fn is_call(head: &RequestHead<'_>) -> bool {
    head.method == Method::POST && head.fields.first(&CONTENT_TYPE).is_some_and(is_grpc)
}

/// The gRPC status for an HTTP status of a local response ("HTTP to gRPC Status Code Mapping"). Two differ: a refusal
/// by a limit is RESOURCE_EXHAUSTED, a timeout is DEADLINE_EXCEEDED.
fn code_of(status: StatusCode) -> u64 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::REQUEST_TIMEOUT => 4,
        StatusCode::BAD_REQUEST => 13,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 12,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => 14,
        _ => 2,
    }
}

/// Begins a response without messages, with its trailers in the head (Trailers-Only). `message` writes the gateway's
/// own text: printable ASCII without `%`.
pub(crate) fn put_trailers_only(status: StatusCode, message: impl FnOnce(&mut BytesMut), out: &mut BytesMut) {
    put_status(out, StatusCode::OK, None);
    put_field(out, b"content-type", b"application/grpc");
    put_status_of(status, message, out);
    put_field(out, b"content-length", b"0");
}

/// The status of a call, as lines of a head or of trailers. `message` as in [`put_trailers_only`].
pub(crate) fn put_status_of(status: StatusCode, message: impl FnOnce(&mut BytesMut), out: &mut BytesMut) {
    put_number(out, b"grpc-status", code_of(status));
    out.extend_from_slice(b"grpc-message: ");
    message(out);
    out.extend_from_slice(b"\r\n");
}

/// Tells clients with a retry policy how long to wait, or not to try again (gRFC A6).
pub(crate) fn put_pushback(retry_after: Option<u64>, out: &mut BytesMut) {
    match retry_after {
        Some(seconds) => put_number(out, b"grpc-retry-pushback-ms", seconds.saturating_mul(1000)),
        None => put_field(out, b"grpc-retry-pushback-ms", b"-1"),
    }
}
