//! Header fields on their way through: hop-by-hop fields stay behind, forwarding fields are set, edits are made.

use std::net::IpAddr;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};

use crate::gateway::HeaderEdits;

/// Fields that concern one connection only (RFC 9110 §7.6.1). `trailer` travels on: it describes the body.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Drops hop-by-hop fields and those that `connection` names, except what frames or addresses the message.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if let Some(nominations) = headers.get(header::CONNECTION) {
        // `keep-alive`, `close` and `upgrade` name no other field, and nearly always stand alone.
        if !matches!(nominations.as_bytes(), b"keep-alive" | b"close" | b"upgrade" | b"Upgrade") {
            strip_nominated(headers);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn strip_nominated(headers: &mut HeaderMap) {
    let nominated: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in nominated {
        headers.remove(name);
    }
}

/// Who sent the request, for the forwarding fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    /// The peer's address as text.
    pub(crate) peer: &'a HeaderValue,
    /// Whether the peer is a trusted proxy.
    pub(crate) trusted: bool,
}

/// Sets `x-forwarded-*`: anew for a stranger, continued for a trusted proxy.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, sender: Sender<'_>) {
    let host = headers.get(header::HOST).cloned();
    if sender.trusted {
        append_forwarded_for(headers, sender.peer);
    } else {
        headers.remove(header::FORWARDED);
        headers.remove(X_REAL_IP);
        headers.remove(X_FORWARDED_PROTO);
        headers.remove(X_FORWARDED_HOST);
        headers.insert(X_FORWARDED_FOR, sender.peer.clone());
    }
    set_if_absent(headers, X_FORWARDED_PROTO, || HeaderValue::from_static("http"));
    if let Some(host) = host {
        set_if_absent(headers, X_FORWARDED_HOST, || host);
    }
}

fn set_if_absent(headers: &mut HeaderMap, name: HeaderName, value: impl FnOnce() -> HeaderValue) {
    if let Entry::Vacant(vacant) = headers.entry(name) {
        vacant.insert(value());
    }
}

/// One line: what came, in order, and the peer behind it.
fn append_forwarded_for(headers: &mut HeaderMap, peer: &HeaderValue) {
    let mut list = Vec::new();
    for value in headers.get_all(X_FORWARDED_FOR) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(peer.as_bytes());
    // Joined from values that were good on their own.
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

/// Appends this proxy to `via` (RFC 9110 §7.6.3).
pub(crate) fn append_via(headers: &mut HeaderMap) {
    headers.append(header::VIA, HeaderValue::from_static("1.1 tollgate"));
}

/// The edits of a route: first removed, then set.
pub(crate) fn edit(headers: &mut HeaderMap, edits: &HeaderEdits) {
    for name in &edits.remove {
        headers.remove(name);
    }
    for (name, value) in &edits.set {
        headers.insert(name, value.clone());
    }
}

/// An address as a field value.
pub(crate) fn address_value(address: IpAddr) -> HeaderValue {
    // Digits, letters, dots and colons are always a good value.
    HeaderValue::from_str(&address.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn nominated_fields_are_dropped_but_never_framing_or_host() {
        let mut headers = HeaderMap::new();
        for (name, value) in map(&[("host", "a"), ("content-length", "3"), ("x-foo", "1"), ("x-bar", "2")]) {
            headers.append(name.unwrap(), value);
        }
        headers.append("connection", HeaderValue::from_static("close, X-Foo,host"));
        headers.append("connection", HeaderValue::from_static("content-length , keep-alive"));
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("host", "a"), ("content-length", "3"), ("x-bar", "2")]));
    }

    #[test]
    fn a_stranger_is_not_believed_and_a_trusted_proxy_is_continued() {
        let peer = address_value("192.0.2.1".parse().unwrap());
        let sent = [
            ("host", "h"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
        ];
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Sender { peer: &peer, trusted: false });
        let anew = [
            ("host", "h"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "h"),
        ];
        assert_eq!(headers, map(&anew));
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Sender { peer: &peer, trusted: true });
        assert_eq!(headers["x-forwarded-for"], "6.6.6.6, 192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
    }
}
