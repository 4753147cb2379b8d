//! What a request decides about the form of its response.

use std::num::NonZero;

use bytes::{Bytes, BytesMut};
use http::Version;

/// The properties of a request that the form of its response depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseOptions {
    /// The client speaks HTTP/1.1 (else HTTP/1.0).
    pub(crate) http_11: bool,
    /// The request is a HEAD: the response has no body.
    pub(crate) to_head: bool,
    /// The connection stays open after the response.
    pub(crate) keep: bool,
    /// The version of HTTP of the client's connection; `HTTP_11` stands for both of HTTP/1.
    pub(crate) version: Version,
    /// The request is a gRPC call: the response carries a gRPC status.
    pub(crate) grpc: bool,
    /// The request is an extended CONNECT: a success says that its WebSocket is open.
    pub(crate) connect: bool,
    /// The UDP port at which the client's listener serves HTTP/3.
    pub(crate) http3_port: Option<NonZero<u16>>,
    /// A status from 300 on is told as 403, and in `x-tollgate-status`: nginx passes no other refusal on.
    pub(crate) as_forbidden: bool,
}

impl ResponseOptions {
    /// The options for the response to bytes that are not a request. The connection closes after the response.
    pub(crate) const fn unread(version: Version) -> Self {
        Self {
            http_11: true,
            to_head: false,
            keep: false,
            version,
            grpc: false,
            connect: false,
            http3_port: None,
            as_forbidden: false,
        }
    }

    /// Whether the response goes to a stream of its own, where `connection` headers are forbidden.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.version >= Version::HTTP_2
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
        _ if options.is_multiplexed() => {}
        ResponseOptions { keep: false, .. } => out.extend_from_slice(b"connection: close\r\n"),
        ResponseOptions { http_11: false, .. } => out.extend_from_slice(b"connection: keep-alive\r\n"),
        ResponseOptions { .. } => {}
    }
}
