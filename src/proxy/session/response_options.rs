//! What a request decides about the form of its response.

use bytes::{Bytes, BytesMut};

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
    /// The request is an extended CONNECT of HTTP/2: a success says that its WebSocket is open.
    pub(crate) connect: bool,
    /// A status from 300 on is told as 403, and in `x-tollgate-status`: nginx passes no other refusal on.
    pub(crate) as_forbidden: bool,
}

impl ResponseOptions {
    /// The options for the response to bytes that are not a request. The connection closes after the response.
    pub(crate) const fn unread(http2: bool) -> Self {
        Self {
            http_11: true,
            to_head: false,
            keep: false,
            http2,
            grpc: false,
            connect: false,
            as_forbidden: false,
        }
    }
}

/// The body of a response that is written.
#[derive(Debug, Default)]
pub(crate) struct LocalBody {
    /// Its length, wherever it is.
    pub(crate) length: usize,
    /// A large body, which is not written after the head.
    pub(crate) large: Option<Bytes>,
}

/// Writes a body after its head, unless it is large or the request is a HEAD.
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
