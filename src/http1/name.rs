//! The header fields that a proxy itself handles.

use smallvec::SmallVec;

use super::syntax::is_named;

/// The name with `-` for each `_`; `None` if it has no `_`. CGI and its successors do not distinguish the two: they
/// read `content_length` as the length.
#[inline]
pub fn with_hyphens(name: &[u8]) -> Option<SmallVec<[u8; 32]>> {
    // Names rarely have one.
    name.contains(&b'_').then(|| hyphenated(name))
}

/// Whether CGI and its successors read the two names as one.
#[inline]
pub fn same_to_cgi(one: &[u8], other: &[u8]) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.len() == other.len()
        && (one == other || one.iter().zip(other).all(|(one, other)| folded(*one) == folded(*other)))
}

/// Whether the name begins with `x-consumer`, under which backends get the consumer of a request, or is read so.
#[inline]
pub fn claims_consumer(name: &[u8]) -> bool {
    const CONSUMER: &[u8] = b"x-consumer";
    // Most names begin with another letter.
    matches!(name.first(), Some(b'x' | b'X'))
        && name.get(..CONSUMER.len()).is_some_and(|start| same_to_cgi(start, CONSUMER))
}

/// Whether the name is one under which backends get the certificate of a client (RFC 9440), or is read so.
#[inline]
pub fn claims_certificate(name: &[u8]) -> bool {
    // Few names have these lengths.
    matches!(name.len(), 11 | 17)
        && (same_to_cgi(name, b"client-cert") || same_to_cgi(name, b"client-cert-chain"))
}

#[cold]
fn hyphenated(name: &[u8]) -> SmallVec<[u8; 32]> {
    name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }).collect()
}

/// A field's name, as far as a proxy handles it specially. Determined once when a head is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Any other.
    Other,
    /// `authorization`.
    Authorization,
    /// `cdn-loop` (RFC 8586).
    CdnLoop,
    /// `connection`.
    Connection,
    /// `content-length`.
    ContentLength,
    /// `date`.
    Date,
    /// `expect`.
    Expect,
    /// `forwarded`.
    Forwarded,
    /// `host`.
    Host,
    /// `keep-alive`.
    KeepAlive,
    /// `http2-settings`, `proxy-authenticate`, `proxy-authorization`, `proxy-connection`: for the next hop only.
    NextHop,
    /// `te`.
    Te,
    /// `x-tollgate-mirror`: marks a copy of a request.
    TollgateMirror,
    /// `traceparent`.
    Traceparent,
    /// `tracestate`.
    Tracestate,
    /// `trailer`.
    Trailer,
    /// `transfer-encoding`.
    TransferEncoding,
    /// `upgrade`.
    Upgrade,
    /// `www-authenticate`.
    WwwAuthenticate,
    /// `x-forwarded-for`.
    XForwardedFor,
    /// `x-forwarded-host`.
    XForwardedHost,
    /// `x-forwarded-proto`.
    XForwardedProto,
    /// `x-real-ip`.
    XRealIp,
    /// `x-request-id`.
    XRequestId,
}

impl Name {
    /// The name as one of these. Names are case-insensitive (RFC 9110 §5.1).
    pub fn of(name: &[u8]) -> Self {
        // Length and first letter leave at most one candidate, or two.
        let (candidate, known): (&[u8], Self) = match (name.len(), name.first().map(|byte| byte | 0x20)) {
            (2, Some(b't')) => (b"te", Self::Te),
            (4, Some(b'h')) => (b"host", Self::Host),
            (4, Some(b'd')) => (b"date", Self::Date),
            (6, Some(b'e')) => (b"expect", Self::Expect),
            (7, Some(b'u')) => (b"upgrade", Self::Upgrade),
            (7, Some(b't')) => (b"trailer", Self::Trailer),
            (8, Some(b'c')) => (b"cdn-loop", Self::CdnLoop),
            (9, Some(b'f')) => (b"forwarded", Self::Forwarded),
            (9, Some(b'x')) => (b"x-real-ip", Self::XRealIp),
            (10, Some(b'c')) => (b"connection", Self::Connection),
            (10, Some(b't')) => (b"tracestate", Self::Tracestate),
            (11, Some(b't')) => (b"traceparent", Self::Traceparent),
            (10, Some(b'k')) => (b"keep-alive", Self::KeepAlive),
            (12, Some(b'x')) => (b"x-request-id", Self::XRequestId),
            (13, Some(b'a')) => (b"authorization", Self::Authorization),
            (14, Some(b'c')) => (b"content-length", Self::ContentLength),
            (14, Some(b'h')) => (b"http2-settings", Self::NextHop),
            (15, Some(b'x')) => (b"x-forwarded-for", Self::XForwardedFor),
            (16, Some(b'p')) => (b"proxy-connection", Self::NextHop),
            (16, Some(b'w')) => (b"www-authenticate", Self::WwwAuthenticate),
            (16, Some(b'x')) => (b"x-forwarded-host", Self::XForwardedHost),
            (17, Some(b't')) => (b"transfer-encoding", Self::TransferEncoding),
            (17, Some(b'x')) if matches!(name, [_, _, b't' | b'T', ..]) => {
                (b"x-tollgate-mirror", Self::TollgateMirror)
            }
            (17, Some(b'x')) => (b"x-forwarded-proto", Self::XForwardedProto),
            (18, Some(b'p')) => (b"proxy-authenticate", Self::NextHop),
            (19, Some(b'p')) => (b"proxy-authorization", Self::NextHop),
            _ => return Self::Other,
        };
        if is_named(name, candidate) { known } else { Self::Other }
    }

    /// Whether it applies to one connection only (RFC 9110 §7.6.1). `trailer` is forwarded: it describes the body.
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::NextHop
                | Self::Te
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }
}
