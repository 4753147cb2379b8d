//! Heads on their way through: hop-by-hop fields stay behind, forwarding fields are set, the route's edits are made.
//!
//! A head is copied once, from where it was read to where it is sent from.

use std::borrow::Cow;

use bytes::{BufMut as _, BytesMut};
use http::{HeaderName, StatusCode};
use smallvec::SmallVec;

use super::trace::Traced;
use crate::gateway::HeaderEdits;
use crate::http1::body::Body;
use crate::http1::fields::{Field, Fields};
use crate::http1::name::Name;
use crate::http1::request::RequestHead;
use crate::http1::syntax::has_item;

/// Appends `name: value`.
pub(crate) fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// Appends lines that are made already. Nearly always there are none.
#[inline]
pub(crate) fn put_lines(out: &mut BytesMut, lines: &[u8]) {
    if !lines.is_empty() {
        out.extend_from_slice(lines);
    }
}

/// Appends a field whose value is a number.
#[inline]
pub(crate) fn put_number(out: &mut BytesMut, name: &[u8], value: u64) {
    put_field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a status line. Without a reason of the backend's own, the usual one.
pub(crate) fn put_status(out: &mut BytesMut, http_11: bool, status: StatusCode, reason: Option<&[u8]>) {
    let reason = reason.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().as_bytes());
    out.reserve(15 + reason.len());
    out.put_slice(if http_11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(reason);
    out.put_slice(b"\r\n");
}

/// What the backend is to learn beside what the client sent.
#[derive(Debug)]
pub(crate) struct Onward<'a> {
    /// Path and query that the backend sees.
    pub(crate) target: Cow<'a, str>,
    /// The Host that it sees; `None`: the client's.
    pub(crate) host: Option<&'a [u8]>,
    /// The peer's address as text.
    pub(crate) peer: &'a [u8],
    /// `http` or `https`: how the client reached us.
    pub(crate) scheme: &'static str,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
    /// `x-request-id`.
    pub(crate) request_id: &'a [u8],
    /// The protocol that the client may switch to.
    pub(crate) upgrade: Option<&'a [u8]>,
    /// Whether to append this proxy to `via`.
    pub(crate) via: bool,
    /// The request's place in a trace; `None`: what the client says of one passes as any other field.
    pub(crate) trace: Option<&'a Traced>,
    /// The route's edits.
    pub(crate) edits: &'a HeaderEdits,
}

impl Onward<'_> {
    /// Writes the head that the backend is to see (RFC 9110 §7.6).
    pub(crate) fn write(&self, head: &RequestHead<'_>, out: &mut BytesMut) {
        self.put_request_line(head, out);
        // The target's authority wins where there is one (RFC 9112 §3.2.2).
        let sent = head.target.authority.map(str::as_bytes).or_else(|| head.fields.known(Name::Host));
        // An HTTP/1.0 client may send none, but HTTP/1.1 wants one.
        self.put_own(out, b"host", self.host.or(sent).unwrap_or(b"localhost"));
        let nominations = Nominations::of(head.fields);
        let keeps = |field: &Field<'_>| self.passes(field) && !nominations.name(field.name);
        head.fields.copy_lines(keeps, |text| out.extend_from_slice(text));
        match head.body {
            Body::Chunked => put_field(out, b"transfer-encoding", b"chunked"),
            Body::Length(length) if head.fields.known(Name::ContentLength).is_some() => {
                put_number(out, b"content-length", length);
            }
            Body::Length(_) => {}
        }
        self.put_own(out, b"x-request-id", self.request_id);
        if let Some(trace) = self.trace {
            self.put_own(out, b"traceparent", &trace.onward());
        }
        self.put_forwarded(head.fields, sent, &nominations, out);
        if let Some(protocol) = self.upgrade {
            put_field(out, b"connection", b"upgrade");
            put_field(out, b"upgrade", protocol);
        }
        if self.via {
            // RFC 9110 §7.6.3.
            self.put_own(out, b"via", b"1.1 tollgate");
        }
        put_edits(out, self.edits);
        out.extend_from_slice(b"\r\n");
    }

    fn put_request_line(&self, head: &RequestHead<'_>, out: &mut BytesMut) {
        out.extend_from_slice(head.method.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
    }

    /// Whether a field goes on as it came. Those that are written anew do not.
    fn passes(&self, field: &Field<'_>) -> bool {
        match field.known {
            Name::Other if self.is_twin(field.name) => return false,
            Name::Other | Name::Date | Name::Trailer => {}
            Name::Host | Name::ContentLength | Name::Expect | Name::XRequestId | Name::XForwardedFor => {
                return false;
            }
            // What a stranger says of whom it speaks for.
            Name::Forwarded | Name::XRealIp | Name::XForwardedHost | Name::XForwardedProto
                if !self.trusted =>
            {
                return false;
            }
            Name::Traceparent if self.trace.is_some() => return false,
            // What belongs to a trace that is not followed.
            Name::Tracestate if self.trace.is_some_and(|trace| !trace.continued) => return false,
            known if known.is_hop_by_hop() => return false,
            _ => {}
        }
        !touches(self.edits, field.name)
    }

    /// Whether many a backend takes it for a field that has a meaning here, or that the route edits: CGI and its heirs read
    /// `x_forwarded_for` as `x-forwarded-for`, `content_length` as the length.
    fn is_twin(&self, name: &[u8]) -> bool {
        if !name.contains(&b'_') {
            return false;
        }
        let hyphenated: SmallVec<[u8; 32]> =
            name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }).collect();
        Name::of(&hyphenated) != Name::Other || touches(self.edits, &hyphenated)
    }

    /// Sets `x-forwarded-*`: anew for a stranger, continued for a trusted proxy.
    fn put_forwarded(
        &self,
        fields: Fields<'_>,
        host: Option<&[u8]>,
        nominations: &Nominations<'_>,
        out: &mut BytesMut,
    ) {
        let kept = |name: &[u8]| self.trusted && !nominations.name(name);
        let (list, proto, for_host) = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host");
        if !touches(self.edits, list) {
            out.extend_from_slice(b"x-forwarded-for: ");
            if kept(list) {
                // One line: what came, in order, and the peer behind it.
                for value in fields.all_known(Name::XForwardedFor) {
                    out.extend_from_slice(value);
                    out.extend_from_slice(b", ");
                }
            }
            out.extend_from_slice(self.peer);
            out.extend_from_slice(b"\r\n");
        }
        if !(kept(proto) && fields.known(Name::XForwardedProto).is_some()) {
            self.put_own(out, proto, self.scheme.as_bytes());
        }
        match host {
            Some(host) if !(kept(for_host) && fields.known(Name::XForwardedHost).is_some()) => {
                self.put_own(out, for_host, host);
            }
            _ => {}
        }
    }

    /// A field of ours, unless the route's edits have the last word on it.
    fn put_own(&self, out: &mut BytesMut, name: &[u8], value: &[u8]) {
        if !touches(self.edits, name) {
            put_field(out, name, value);
        }
    }
}

/// The protocol that the client asks to switch to. `h2c` is not passed on: behind such a tunnel requests would go unseen.
pub(crate) fn wanted_upgrade<'h>(head: &RequestHead<'h>) -> Option<&'h [u8]> {
    let protocol = head.fields.known(Name::Upgrade).filter(|_| head.upgrade)?;
    let http2 = protocol.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"h2"));
    (!http2).then_some(protocol)
}

/// Writes the fields of an answer that the client may see: not those of the backend's hop, those that the route edits,
/// and those that `replaced` names.
pub(crate) fn put_answer_fields(
    fields: Fields<'_>,
    edits: &HeaderEdits,
    replaced: impl Fn(&[u8]) -> bool,
    out: &mut BytesMut,
) {
    put_passing_fields(fields, edits, replaced, out);
    put_edits(out, edits);
}

/// Of those, the backend's.
pub(crate) fn put_passing_fields(
    fields: Fields<'_>,
    edits: &HeaderEdits,
    replaced: impl Fn(&[u8]) -> bool,
    out: &mut BytesMut,
) {
    let nominations = Nominations::of(fields);
    let passes = |field: &Field<'_>| {
        let framing = field.known == Name::ContentLength || field.known.is_hop_by_hop();
        !framing && !nominations.name(field.name) && !touches(edits, field.name) && !replaced(field.name)
    };
    fields.copy_lines(passes, |text| out.extend_from_slice(text));
}

/// The fields that `connection` names: they concern one connection only (RFC 9110 §7.6.1).
#[derive(Debug)]
struct Nominations<'h> {
    /// `None`: there are none, as nearly always.
    fields: Option<Fields<'h>>,
}

impl<'h> Nominations<'h> {
    fn of(fields: Fields<'h>) -> Self {
        // `keep-alive`, `close` and `upgrade` name no other field, and nearly always stand alone.
        let usual = |value: &[u8]| matches!(value, b"keep-alive" | b"close" | b"upgrade" | b"Upgrade");
        let usual = fields.all_known(Name::Connection).all(usual);
        Self { fields: (!usual).then_some(fields) }
    }

    fn name(&self, name: &[u8]) -> bool {
        self.fields
            .is_some_and(|fields| fields.all_known(Name::Connection).any(|value| has_item(value, name)))
    }
}

/// Whether the route removes or sets this field.
#[inline]
fn touches(edits: &HeaderEdits, name: &[u8]) -> bool {
    // Most routes edit nothing.
    !(edits.remove.is_empty() && edits.set.is_empty()) && is_edited(edits, name)
}

#[inline(never)]
fn is_edited(edits: &HeaderEdits, name: &[u8]) -> bool {
    let is = |edited: &HeaderName| edited.as_str().as_bytes().eq_ignore_ascii_case(name);
    edits.remove.iter().any(is) || edits.set.iter().any(|(edited, _)| is(edited))
}

fn put_edits(out: &mut BytesMut, edits: &HeaderEdits) {
    for (name, value) in &edits.set {
        put_field(out, name.as_str().as_bytes(), value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head that a backend sees of this one, sent by 192.0.2.1.
    fn onward(head: &str, trusted: bool) -> String {
        let mut spans = Vec::new();
        let head = RequestHead::parse(head.as_bytes(), &mut spans).expect("a good head");
        let onward = Onward {
            target: head.target.text.into(),
            host: None,
            peer: b"192.0.2.1",
            scheme: "http",
            trusted,
            request_id: b"7",
            upgrade: None,
            via: false,
            trace: None,
            edits: &HeaderEdits::default(),
        };
        let mut out = BytesMut::new();
        onward.write(&head, &mut out);
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn nominated_fields_are_dropped_but_never_framing_or_host() {
        let sent = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\nx-foo: 1\r\nx-bar: 2\r\nconnection: close, X-Foo,host\r\n\
                    connection: content-length , keep-alive\r\n\r\n";
        assert_eq!(
            onward(sent, false),
            "POST / HTTP/1.1\r\nhost: a\r\nx-bar: 2\r\ncontent-length: 3\r\nx-request-id: 7\r\nx-forwarded-for: 192.0.2.1\r\n\
             x-forwarded-proto: http\r\nx-forwarded-host: a\r\n\r\n"
        );
    }

    #[test]
    fn a_stranger_is_not_believed_and_a_trusted_proxy_is_continued() {
        let sent = "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 6.6.6.6\r\nx-forwarded-proto: https\r\nforwarded: for=6.6.6.6\r\n\
                    X-Real-IP: 6.6.6.6\r\n\r\n";
        assert_eq!(
            onward(sent, false),
            "GET / HTTP/1.1\r\nhost: h\r\nx-request-id: 7\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\n\
             x-forwarded-host: h\r\n\r\n"
        );
        assert_eq!(
            onward(sent, true),
            "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-proto: https\r\nforwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\
             x-request-id: 7\r\nx-forwarded-for: 6.6.6.6, 192.0.2.1\r\nx-forwarded-host: h\r\n\r\n"
        );
        let nominated =
            "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 6.6.6.6\r\nconnection: x-forwarded-for\r\n\r\n";
        assert!(onward(nominated, true).contains("x-forwarded-for: 192.0.2.1\r\n"));
    }
}
