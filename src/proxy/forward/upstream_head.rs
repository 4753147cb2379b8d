//! Heads to be forwarded: hop-by-hop headers are removed, forwarding headers are set, the route's edits are applied.
//!
//! A head is copied once, from the buffer it was read into to the buffer it is sent from.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::BytesMut;
use http::{HeaderValue, Method};

use super::consumer_headers::ConsumerHeaders;
use super::websocket::WebSocketHandshake;
use crate::http1::fields::{Field, Fields, only};
use crate::http1::head_writer::put_field;
use crate::http1::name::{Name, claims_certificate, same_to_cgi, with_hyphens};
use crate::http1::request::{Body, RequestHead, is_authority};
use crate::http1::syntax::{is_named, is_token};
use crate::http2::head_sink::HeadSink;
use crate::net::client_certificate::ClientCertificate;
use crate::plan::loop_mark::LoopMark;
use crate::plan::sticky::Sticky;
use crate::plan::{HeaderEdits, Upstream};
use crate::proxy::record::noted_values::NotedValues;
use crate::proxy::session::passing_fields::{ConnectionOptions, put_edits};
use crate::proxy::worker::tracer::RequestTrace;
use crate::route::client::ClientSource;

/// The data for the backend beside the client's own headers.
#[derive(Debug)]
pub(crate) struct UpstreamRequestHead<'a> {
    /// The path and query for the backend.
    pub(crate) target: Cow<'a, str>,
    /// Provides the Host for the backend: its own, else the client's.
    pub(crate) upstream: &'a Upstream,
    /// The upstream of a mirror, if the head is of a copy. It provides the Host.
    pub(crate) mirror: Option<&'a Upstream>,
    /// The client's Host in its normal form, if the head has it in another one.
    pub(crate) authority: Option<&'a str>,
    /// The peer's address as text.
    pub(crate) peer: &'a [u8],
    /// `http` or `https`: the scheme of the client's connection; that of the client where a service was asked.
    pub(crate) scheme: &'static str,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// The header in which trusted proxies name the client.
    pub(crate) source: &'a ClientSource,
    /// The client's address; `None`: it is not identified.
    pub(crate) client: Option<IpAddr>,
    /// `x-request-id`.
    pub(crate) request_id: &'a [u8],
    /// Shows this process that a request has passed it before.
    pub(crate) loop_mark: &'a LoopMark,
    /// The protocol that the client may switch to.
    pub(crate) upgrade: Option<&'a [u8]>,
    /// The handshake of a WebSocket where a side speaks HTTP/2.
    pub(crate) websocket: Option<&'a WebSocketHandshake>,
    /// The client accepts trailers, and gets those of the response.
    pub(crate) trailers: bool,
    /// Whether to append this proxy to `via`.
    pub(crate) via: bool,
    /// The request's place in a trace; `None`: the client's trace headers are forwarded like any other.
    pub(crate) trace: Option<&'a RequestTrace>,
    /// Whether the route forwards the client's certificate.
    pub(crate) forwards_certificate: bool,
    /// The client's certificate.
    pub(crate) certificate: Option<&'a ClientCertificate>,
    /// `sticky` of the upstream, if a header of the request carries a session of one of its servers.
    pub(crate) session: Option<&'a Sticky>,
    /// The consumer of the request.
    pub(crate) consumer: ConsumerHeaders<'a>,
    /// The route's edits.
    pub(crate) edits: &'a HeaderEdits,
    /// Values of the request for these edits.
    pub(crate) noted: Option<&'a NotedValues>,
}

impl UpstreamRequestHead<'_> {
    /// Writes the head for the backend (RFC 9110 §7.6).
    #[inline(always)]
    pub(crate) fn write(&self, head: &RequestHead<'_>, sink: &mut impl HeadSink) {
        // The target's authority wins where there is one (RFC 9112 §3.2.2).
        let sent = self.authority.or(head.target.authority).map(str::as_bytes);
        let sent = sent.or_else(|| head.fields.known(Name::Host));
        let receiver = self.mirror.unwrap_or(self.upstream);
        let own = receiver.host.as_ref().map(HeaderValue::as_bytes);
        let host = own.or(sent).unwrap_or_else(|| fallback_host(receiver));
        sink.request(&head.method, &self.target, host);
        let nominations = ConnectionOptions::of(head.fields);
        let keeps = |field: &Field<'_>| self.passes(field) && !nominations.name(field.name);
        sink.passing(head.fields, keeps);
        self.consumer.put(
            head.fields,
            |name| nominations.name(name),
            |name, value| self.put_own(sink, name, value),
        );
        if let Some(certificate) = self.certificate.filter(|_| self.forwards_certificate) {
            self.put_own(sink, b"client-cert", certificate.field_value.as_bytes());
        }
        if let Some(sticky) = self.session {
            self.put_session(sticky, head.fields, &nominations, sink);
        }
        match head.body {
            Body::Chunked => sink.of_connection(|out| put_field(out, b"transfer-encoding", b"chunked")),
            Body::Length(length) if head.fields.known(Name::ContentLength).is_some() => {
                sink.number(b"content-length", length);
            }
            Body::Length(_) => {}
        }
        self.put_own(sink, b"x-request-id", self.request_id);
        if let Some(trace) = self.trace {
            self.put_own(sink, b"traceparent", &trace.onward());
        }
        // Neither the client's `connection` nor the route's edits remove it: a loop would stay undetected.
        self.loop_mark.put(head.fields, sink);
        self.put_forwarded(head.fields, sent, &nominations, sink);
        sink.of_connection(|out| self.put_connection_options(out));
        if let Some(handshake) = self.websocket {
            handshake.put_request(sink);
        }
        if self.mirror.is_some() {
            self.put_own(sink, b"x-tollgate-mirror", b"1");
        }
        if self.via {
            // RFC 9110 §7.6.3.
            self.put_own(sink, b"via", b"1.1 tollgate");
        }
        // Most routes set nothing.
        if !self.edits.set.is_empty() {
            let values = || NotedValues::values(self.noted, self.request_id, self.client);
            sink.written(|out| put_edits(out, self.edits, values));
        }
    }

    /// The headers for the backend connection only, named in `connection` as they must be (RFC 9110 §7.6.1, §10.1.4).
    fn put_connection_options(&self, out: &mut BytesMut) {
        match (self.upgrade, self.trailers) {
            (None, false) => {}
            (None, true) => out.extend_from_slice(b"connection: te\r\nte: trailers\r\n"),
            (Some(protocol), _) => {
                put_field(out, b"connection", b"upgrade");
                put_field(out, b"upgrade", protocol);
            }
        }
    }

    /// Whether a header is forwarded unchanged. Headers that are written anew are not.
    fn passes(&self, field: &Field<'_>) -> bool {
        match field.known {
            // It is set anew.
            Name::Other if self.websocket.is_some() && is_named(field.name, b"sec-websocket-key") => {
                return false;
            }
            Name::Other if self.session.is_some_and(|sticky| sticky.is_session(field.name)) => return false,
            Name::Other if self.is_twin(field.name) || self.is_false_source(field.name) => return false,
            Name::Other | Name::Authorization if !self.consumer.passes(field) => return false,
            Name::Other if claims_certificate(field.name) && !self.continues_certificate() => return false,
            Name::Other | Name::Date | Name::Trailer => {}
            Name::Host | Name::CdnLoop | Name::ContentLength | Name::Expect | Name::XRequestId => {
                return false;
            }
            Name::XForwardedFor | Name::XRealIp => return false,
            // A proxy that does not write it forwards it as the client sent it.
            Name::Forwarded if !(self.trusted && *self.source == ClientSource::Forwarded) => return false,
            // Claims of an untrusted peer about the client it forwards for.
            Name::XForwardedHost | Name::XForwardedProto if !self.continues_claims() => return false,
            // Only a gateway that is trusted says that a request is a copy.
            Name::TollgateMirror if self.mirror.is_some() || !self.trusted => return false,
            Name::Traceparent if self.trace.is_some() => return false,
            // Headers of a trace that is not continued.
            Name::Tracestate if self.trace.is_some_and(|trace| !trace.continued) => return false,
            known if known.is_hop_by_hop() => return false,
            _ => {}
        }
        !self.edits.touches(field.name)
    }

    /// Whether many backends read the name as that of a header that has a meaning here, or that the route edits: CGI
    /// and its successors read `x_forwarded_for` as `x-forwarded-for`, `content_length` as the length.
    fn is_twin(&self, name: &[u8]) -> bool {
        let is_session =
            |twin: &[u8]| self.upstream.sticky.as_ref().is_some_and(|sticky| sticky.is_session(twin));
        with_hyphens(name).is_some_and(|twin| {
            Name::of(&twin) != Name::Other || self.edits.touches(&twin) || is_session(&twin)
        })
    }

    /// Whether a proxy is believed what host and scheme the client named. What a service was asked about is not open to
    /// another reading.
    fn continues_claims(&self) -> bool {
        self.trusted && !self.consumer.asks_service()
    }

    /// Whether a proxy is believed whose certificate the client has shown: the one before a gateway that tells of none itself.
    fn continues_certificate(&self) -> bool {
        self.trusted && !self.forwards_certificate
    }

    /// Whether this is the header in which trusted proxies name the client, sent by a peer that is not trusted, or under a
    /// name that a backend may read so.
    fn is_false_source(&self, name: &[u8]) -> bool {
        match self.source {
            ClientSource::Header(source) => {
                same_to_cgi(source.as_str().as_bytes(), name)
                    && !(self.trusted && source.as_str().as_bytes().eq_ignore_ascii_case(name))
            }
            _ => false,
        }
    }

    /// The session as its server named it.
    #[cold]
    fn put_session(
        &self,
        sticky: &Sticky,
        fields: Fields<'_>,
        nominations: &ConnectionOptions<'_>,
        sink: &mut impl HeadSink,
    ) {
        let Some(name) = sticky.session_header() else { return };
        let bytes = name.as_str().as_bytes();
        if !nominations.name(bytes) {
            for value in fields.all(name).iter() {
                self.put_own(sink, bytes, sticky.session_for_server(value));
            }
        }
    }

    /// Sets `x-forwarded-*`: anew for an untrusted peer, continued for a trusted proxy. An `x-real-ip` of a trusted
    /// proxy is replaced.
    fn put_forwarded(
        &self,
        fields: Fields<'_>,
        host: Option<&[u8]>,
        nominations: &ConnectionOptions<'_>,
        sink: &mut impl HeadSink,
    ) {
        let kept = |name: &[u8]| self.trusted && !nominations.name(name);
        let continued = |name: &[u8]| self.continues_claims() && !nominations.name(name);
        let (list, proto, for_host) = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host");
        if !self.trusted {
            self.put_own(sink, list, self.peer);
        } else if !self.edits.touches(list) {
            let continues = kept(list) && *self.source == ClientSource::XForwardedFor;
            sink.written(|out| self.put_path(continues.then_some(fields), out));
        }
        let real_ip = b"x-real-ip";
        if kept(real_ip) && fields.known(Name::XRealIp).is_some() && !self.edits.touches(real_ip) {
            sink.written(|out| {
                out.extend_from_slice(b"x-real-ip: ");
                if !self.put_client(b"\r\n", out) {
                    out.extend_from_slice(self.peer);
                    out.extend_from_slice(b"\r\n");
                }
            });
        }
        if !(continued(proto) && fields.known(Name::XForwardedProto).is_some()) {
            self.put_own(sink, proto, self.scheme.as_bytes());
        }
        match host {
            Some(host) if !(continued(for_host) && fields.known(Name::XForwardedHost).is_some()) => {
                self.put_own(sink, for_host, host);
            }
            _ => {}
        }
    }

    /// Writes `x-forwarded-for` of a trusted proxy's request: in one line the values in `continued`, in order, or else the
    /// client; then the peer.
    fn put_path(&self, continued: Option<Fields<'_>>, out: &mut BytesMut) {
        out.extend_from_slice(b"x-forwarded-for: ");
        match continued {
            Some(fields) => {
                for value in fields.all_known(Name::XForwardedFor) {
                    out.extend_from_slice(value);
                    out.extend_from_slice(b", ");
                }
            }
            // The trusted part of the path: the client, unless it is the peer itself.
            None => {
                self.put_client(b", ", out);
            }
        }
        out.extend_from_slice(self.peer);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the client's address, or `unknown` (RFC 7239 §6.2), and `end`; nothing if the peer is the client.
    fn put_client(&self, end: &[u8], out: &mut BytesMut) -> bool {
        let Some(client) = self.client else {
            out.extend_from_slice(b"unknown");
            out.extend_from_slice(end);
            return true;
        };
        let before = out.len();
        let is_other = write!(out, "{client}").is_ok() && out.get(before..) != Some(self.peer);
        if is_other {
            out.extend_from_slice(end);
        } else {
            out.truncate(before);
        }
        is_other
    }

    /// Writes a field of the gateway, unless the route's edits override it.
    fn put_own(&self, sink: &mut impl HeadSink, name: &[u8], value: &[u8]) {
        if !self.edits.touches(name) {
            sink.field(name, value);
        }
    }
}

/// The Host for a request without one, as an HTTP/1.0 client may send: the upstream's name, or its first server if the
/// name is not a valid host.
#[cold]
fn fallback_host(upstream: &Upstream) -> &[u8] {
    let name = upstream.name.as_bytes();
    let server = upstream.endpoints().first().map_or("", |endpoint| endpoint.host_field());
    if is_authority(name) { name } else { server.as_bytes() }
}

/// The protocol that the client asks to switch to, if it names exactly one: from a list, the backend could choose one
/// that was not checked. HTTP and TLS are not forwarded: requests in such a tunnel would bypass the limits.
pub(crate) fn wanted_upgrade<'h>(head: &RequestHead<'h>) -> Option<&'h [u8]> {
    if !head.upgrade {
        return None;
    }
    let protocol = only(head.fields.all_known(Name::Upgrade))?;
    let mut parts = protocol.split(|&byte| byte == b'/');
    let is_part = |part: &[u8]| !part.is_empty() && part.iter().all(|&byte| is_token(byte));
    let is_protocol = parts.clone().all(is_part) && parts.clone().count() <= 2;
    let name = parts.next()?;
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    (is_protocol && !begins(b"h2") && !begins(b"http") && !begins(b"tls")).then_some(protocol)
}

/// RFC 9110 §9.2.2.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::head_sink::TextHead;
    use crate::proxy::fixtures::upstream;
    use http::HeaderName;

    /// The head for the backend of this one, sent by 192.0.2.1.
    fn onward(head: &str, trusted: bool) -> String {
        onward_from(head, trusted, &ClientSource::XForwardedFor)
    }

    /// The same, of the client 198.51.100.1 if the peer is trusted.
    fn onward_from(head: &str, trusted: bool, source: &ClientSource) -> String {
        let mut spans = Vec::new();
        let head = RequestHead::parse(head.as_bytes(), &mut spans).expect("a good head");
        let onward = UpstreamRequestHead {
            target: head.target.text.into(),
            upstream: &upstream(([127, 0, 0, 1], 1).into()),
            mirror: None,
            authority: None,
            peer: b"192.0.2.1",
            scheme: "http",
            trusted,
            source,
            client: Some(if trusted { [198, 51, 100, 1] } else { [192, 0, 2, 1] }.into()),
            request_id: b"7",
            loop_mark: &LoopMark::new(0xab),
            upgrade: None,
            websocket: None,
            trailers: false,
            via: false,
            trace: None,
            forwards_certificate: false,
            certificate: None,
            session: None,
            consumer: ConsumerHeaders::default(),
            edits: &HeaderEdits::default(),
            noted: None,
        };
        let mut out = BytesMut::new();
        let mut sink = TextHead(&mut out);
        onward.write(&head, &mut sink);
        sink.end_request();
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn nominated_fields_are_dropped_but_never_framing_or_host() {
        let sent = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nx-foo: 1\r\nx-bar: 2\r\nconnection: close, X-Foo,host\r\n\
                    connection: content-length , keep-alive\r\n\r\n";
        assert_eq!(
            onward(sent, false),
            "POST / HTTP/1.1\r\nhost: a\r\nx-bar: 2\r\ncontent-length: 3\r\nx-request-id: 7\r\n\
             cdn-loop: tollgate-00000000000000ab\r\nx-forwarded-for: 192.0.2.1\r\n\
             x-forwarded-proto: http\r\nx-forwarded-host: a\r\n\r\n"
        );
    }

    #[test]
    fn a_stranger_is_not_believed_and_a_trusted_proxy_is_continued() {
        let sent = "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 6.6.6.6\r\nx-forwarded-proto: https\r\nforwarded: for=6.6.6.6\r\n\
                    X-Real-IP: 6.6.6.6\r\n\r\n";
        assert_eq!(
            onward(sent, false),
            "GET / HTTP/1.1\r\nhost: h\r\nx-request-id: 7\r\n\
             cdn-loop: tollgate-00000000000000ab\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\n\
             x-forwarded-host: h\r\n\r\n"
        );
        assert_eq!(
            onward(sent, true),
            "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-proto: https\r\nx-request-id: 7\r\n\
             cdn-loop: tollgate-00000000000000ab\r\n\
             x-forwarded-for: 6.6.6.6, 192.0.2.1\r\nx-real-ip: 198.51.100.1\r\nx-forwarded-host: h\r\n\r\n"
        );
        assert_eq!(
            onward_from(sent, true, &ClientSource::Forwarded),
            "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-proto: https\r\nforwarded: for=6.6.6.6\r\nx-request-id: 7\r\n\
             cdn-loop: tollgate-00000000000000ab\r\n\
             x-forwarded-for: 198.51.100.1, 192.0.2.1\r\nx-real-ip: 198.51.100.1\r\nx-forwarded-host: h\r\n\r\n"
        );
        let nominated =
            "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 6.6.6.6\r\nconnection: x-forwarded-for\r\n\r\n";
        assert!(onward(nominated, true).contains("x-forwarded-for: 198.51.100.1, 192.0.2.1\r\n"));
    }

    #[test]
    fn the_header_that_names_the_client_passes_from_trusted_proxies_only() {
        let source = ClientSource::Header(HeaderName::from_static("cf-connecting-ip"));
        let sent = "GET / HTTP/1.1\r\nhost: h\r\nCF-Connecting-IP: 198.51.100.1\r\ntrue-client-ip: 6.6.6.6\r\n\
                    x-forwarded-for: 6.6.6.6\r\n\r\n";
        let trusted = onward_from(sent, true, &source);
        assert!(
            trusted.contains("CF-Connecting-IP: 198.51.100.1\r\ntrue-client-ip: 6.6.6.6\r\n"),
            "{trusted}"
        );
        assert!(trusted.contains("x-forwarded-for: 198.51.100.1, 192.0.2.1\r\n"), "{trusted}");
        assert!(!trusted.contains("x-real-ip"), "it did not come: {trusted}");
        let stranger = onward_from(sent, false, &source);
        assert!(!stranger.contains("CF-Connecting-IP") && stranger.contains("true-client-ip"), "{stranger}");
        assert!(stranger.contains("x-forwarded-for: 192.0.2.1\r\n"), "{stranger}");
    }
}
