//! The opening handshake of a WebSocket (RFC 6455 §4) where one side speaks HTTP/2, which needs no `sec-websocket-key` and no
//! `sec-websocket-accept` (RFC 8441 §5).
//!
//! For example, a browser asks over HTTP/2, and the backend speaks HTTP/1.1: the backend gets a key that the gateway has
//! drawn, and its 101 has to prove that it has read it. The other way round the gateway proves that to the client.
//!
//! Proxies that do neither, as Envoy does, rely on the fields of HTTP/1.1 also in HTTP/2: one before the gateway sends the
//! key of its client and expects the answer to it, and one behind it passes the key on. So each backend gets a key, and a
//! client that sends one gets the answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{Method, StatusCode};
use sha1_smol::Sha1;

use crate::http1::fields::{Fields, only};
use crate::http1::request::RequestHead;
use crate::http2::head_sink::HeadSink;
use crate::plan::Protocol;
use crate::upstream::exchange::ConnectRule;

/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version of RFC 6455.
const VERSION: &[u8] = b"13";
/// The bytes of a key.
const KEY: usize = 16;

/// The handshake of a WebSocket where one side speaks HTTP/2.
#[derive(Debug)]
pub(crate) struct WebSocketHandshake {
    /// The `sec-websocket-key` that the backend gets.
    key: String,
    /// The client has sent that key.
    has_key: bool,
    /// The client asks over HTTP/2: a success tells it that the WebSocket is open.
    pub(crate) of_http2: bool,
    /// The client names a version.
    has_version: bool,
}

/// Why a handshake of HTTP/1.1 cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebSocketFault {
    /// Its key is not one.
    Key,
    /// Its version is not 13.
    Version,
}

impl WebSocketFault {
    /// Status, detail, and the access log's `error`.
    pub(crate) fn problem(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Key => (
                StatusCode::BAD_REQUEST,
                "the sec-websocket-key is not 16 bytes in base64",
                "malformed_handshake",
            ),
            Self::Version => {
                (StatusCode::UPGRADE_REQUIRED, "the sec-websocket-version is not 13", "malformed_handshake")
            }
        }
    }

    /// The header lines of the response.
    pub(crate) fn lines(self) -> &'static str {
        match self {
            Self::Key => "",
            // RFC 6455 §4.4, RFC 9110 §15.5.22.
            Self::Version => "sec-websocket-version: 13\r\nupgrade: websocket\r\nconnection: upgrade\r\n",
        }
    }
}

impl WebSocketHandshake {
    /// The handshake of a request that asks for an upgrade to `protocol`, if it is one for a WebSocket and a side speaks
    /// HTTP/2.
    #[cold]
    pub(crate) fn of(
        head: &RequestHead<'_>,
        protocol: &[u8],
        of_http2: bool,
        backend: Protocol,
    ) -> Option<Result<Self, WebSocketFault>> {
        let is_handshake = protocol.eq_ignore_ascii_case(b"websocket") && head.method == Method::GET;
        if !is_handshake || !of_http2 && backend == Protocol::Http1 {
            return None;
        }
        let version = || only(head.fields.all(&SEC_WEBSOCKET_VERSION).iter());
        let has_version = head.fields.first(&SEC_WEBSOCKET_VERSION).is_some();
        if !of_http2 && version() != Some(VERSION) {
            return Some(Err(WebSocketFault::Version));
        }
        let sent = only(head.fields.all(&SEC_WEBSOCKET_KEY).iter()).and_then(as_key);
        let key = match sent {
            Some(key) => key.to_owned(),
            None if of_http2 => STANDARD.encode(fastrand::u128(..).to_ne_bytes()),
            None => return Some(Err(WebSocketFault::Key)),
        };
        Some(Ok(Self { key, has_key: sent.is_some(), of_http2, has_version }))
    }

    /// How the request is sent to a server of HTTP/2.
    pub(crate) fn rule(&self) -> ConnectRule {
        if self.of_http2 { ConnectRule::Always } else { ConnectRule::IfAnnounced }
    }

    /// Writes the fields of the handshake that the gateway sets.
    #[cold]
    pub(crate) fn put_request(&self, sink: &mut impl HeadSink) {
        sink.field(b"sec-websocket-key", self.key.as_bytes());
        if !self.has_version {
            sink.field(b"sec-websocket-version", VERSION);
        }
    }

    /// The `sec-websocket-accept` for a client that has sent a key.
    pub(crate) fn accept(&self) -> Option<String> {
        self.has_key.then(|| accept_of(&self.key))
    }

    /// Whether a 101 with these fields proves that the backend has read the key.
    pub(crate) fn is_proven(&self, fields: Fields<'_>) -> bool {
        let accept = only(fields.all(&SEC_WEBSOCKET_ACCEPT).iter());
        accept.is_some_and(|accept| accept == accept_of(&self.key).as_bytes())
    }
}

/// The `sec-websocket-accept` for a key (RFC 6455 §4.2.2).
fn accept_of(key: &str) -> String {
    let mut hash = Sha1::from(key);
    hash.update(GUID);
    STANDARD.encode(hash.digest().bytes())
}

/// A key in base64, with as many bytes as it must have (RFC 6455 §4.1).
fn as_key(text: &[u8]) -> Option<&str> {
    let bytes = STANDARD.decode(text).ok()?;
    std::str::from_utf8(text).ok().filter(|_| bytes.len() == KEY)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    const GOOD: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    fn handshake(
        method: &str,
        lines: &str,
        of_http2: bool,
        backend: Protocol,
    ) -> Option<Result<WebSocketHandshake, WebSocketFault>> {
        let (text, mut spans) = (format!("{method} / HTTP/1.1\r\nhost: a\r\n{lines}\r\n"), Vec::new());
        let head = RequestHead::parse(text.as_bytes(), &mut spans).expect("a good head");
        WebSocketHandshake::of(&head, b"WebSocket", of_http2, backend)
    }

    /// RFC 6455 §1.3.
    #[test]
    fn the_key_of_the_rfc_has_its_answer() {
        let good = handshake("GET", GOOD, false, Protocol::Http2).and_then(Result::ok).expect("a handshake");
        assert_eq!(good.accept().as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(good.rule(), ConnectRule::IfAnnounced);
        // A proxy passes on the key of its own client.
        let passed = handshake("GET", GOOD, true, Protocol::Http1).and_then(Result::ok).expect("a handshake");
        assert_eq!((passed.accept(), passed.rule()), (good.accept(), ConnectRule::Always));
        let bad = GOOD.replace("b25jZQ==", "b25j");
        let drawn = handshake("GET", &bad, true, Protocol::Http2).and_then(Result::ok).expect("a handshake");
        assert_eq!(drawn.accept(), None);
    }

    #[test]
    fn each_key_that_is_drawn_is_another_one_and_has_to_be_answered() {
        let drawn = || handshake("GET", "", true, Protocol::Http1).and_then(Result::ok).expect("a handshake");
        let (one, other) = (drawn(), drawn());
        assert_ne!(one.key, other.key);
        assert_eq!(as_key(one.key.as_bytes()), Some(&*one.key));
        assert_eq!((one.accept(), one.rule()), (None, ConnectRule::Always));
        let proves = |accepts: &[String]| {
            let lines: String =
                accepts.iter().map(|accept| format!("sec-websocket-accept: {accept}\r\n")).collect();
            let (text, mut spans) = (format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n"), Vec::new());
            let head = RequestHead::parse(text.as_bytes(), &mut spans).expect("a good head");
            one.is_proven(head.fields)
        };
        let right = accept_of(&one.key);
        assert!(proves(from_ref(&right)));
        assert!(
            !proves(&[]) && !proves(&[accept_of(&other.key)]) && !proves(&[right.clone(), right.clone()])
        );
        assert!(!proves(&[right.to_lowercase()]) && !proves(from_ref(&one.key)));
    }

    #[test]
    fn a_key_or_version_that_is_none_is_a_fault_where_the_gateway_answers_it() {
        for (from, to, fault) in [
            ("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", WebSocketFault::Key),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", WebSocketFault::Key),
            ("dGhlIHNhbXBsZSBub25jZQ==", "YQ==", WebSocketFault::Key),
            ("dGhlIHNhbXBsZSBub25jZQ==", "", WebSocketFault::Key),
            (
                "dGhlIHNhbXBsZSBub25jZQ==\r\n",
                "dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
                WebSocketFault::Key,
            ),
            ("version: 13", "version: 8", WebSocketFault::Version),
            ("version: 13", "version: 13, 8", WebSocketFault::Version),
            ("sec-websocket-version: 13\r\n", "", WebSocketFault::Version),
        ] {
            let lines = GOOD.replacen(from, to, 1);
            let of = |backend| handshake("GET", &lines, false, backend);
            assert_eq!(of(Protocol::Http2).and_then(Result::err), Some(fault), "{lines}");
            assert!(of(Protocol::Http1).is_none(), "a backend of HTTP/1.1 judges it: {lines}");
        }
        assert!(handshake("POST", GOOD, false, Protocol::Http2).is_none(), "another method");
    }
}
