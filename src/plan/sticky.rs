//! `sticky` of an upstream: a cookie, or a header that carries a session, keeps a client at the server of its first
//! response. Also what all cookies have that the gateway sets: values that only a gateway with the key can make, and
//! attributes.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;
use http::HeaderName;

use super::Endpoint;
use crate::http1::fields::Fields;
use crate::http1::syntax::is_named;
use crate::labels::labels;
use crate::route::cookie;

/// Bytes of a value before it is written in base64: as many as no client can guess.
const VALUE: usize = 16;
/// Characters of a value.
pub(super) const TEXT: usize = 22;
/// Between a session of a server and the name of the server, in a header.
const SEPARATOR: u8 = b'.';
const CONTEXT: &str = "tollgate 2026-11-24 values of sticky cookies";

/// A server or an upstream as a cookie names it: a keyed hash of its name, so that only a gateway with the key can make
/// one, and the name cannot be read.
pub(super) type SignedName = [u8; TEXT];

labels! {
    /// Which requests that another site begins carry a cookie (`SameSite` of RFC 6265bis).
    pub enum SameSite {
        /// Those that open a page of this site.
        Lax = "lax",
        /// None.
        Strict = "strict",
        /// All. Browsers want such a cookie to be `Secure`.
        None = "none",
    }
}

/// The attributes of a cookie (RFC 6265 §4.1.2). Each one has `HttpOnly`, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieAttributes {
    /// The begin of the paths whose requests carry it: begins with `/`, without `;` and control characters.
    pub path: Box<str>,
    /// Which requests of other sites carry it.
    pub same_site: SameSite,
    /// How long clients keep it, in seconds, at least 1; `None`: for their session.
    pub max_age: Option<u64>,
    /// Whether requests without TLS do not carry it; `None`: if it was set over TLS.
    pub secure: Option<bool>,
}

impl Default for CookieAttributes {
    fn default() -> Self {
        Self { path: "/".into(), same_site: SameSite::Lax, max_age: None, secure: None }
    }
}

impl CookieAttributes {
    /// Writes them after the value, and ends the header. `secure`: the client uses TLS.
    pub(super) fn put(&self, secure: bool, out: &mut BytesMut) {
        let same_site: &[u8] = match self.same_site {
            SameSite::Lax => b"Lax",
            SameSite::Strict => b"Strict",
            SameSite::None => b"None",
        };
        for part in [b"; Path=", self.path.as_bytes(), b"; HttpOnly; SameSite=", same_site] {
            out.extend_from_slice(part);
        }
        if let Some(seconds) = self.max_age {
            out.extend_from_slice(format!("; Max-Age={seconds}").as_bytes());
        }
        if self.secure.unwrap_or(secure) {
            out.extend_from_slice(b"; Secure");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The key of the values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StickyKey([u8; 32]);

impl fmt::Debug for StickyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StickyKey(…)")
    }
}

impl StickyKey {
    /// The key that belongs to a secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// The value that names a server of an upstream, or an upstream as a whole, which has an empty `server`.
    pub(super) fn value_of(&self, upstream: &str, server: &str) -> SignedName {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // No name contains a zero byte, so no two pairs are written the same.
        hasher.update(upstream.as_bytes()).update(&[0]).update(server.as_bytes());
        let mut digest = [0; VALUE];
        hasher.finalize_xof().fill(&mut digest);
        let mut text = [b'A'; TEXT];
        // The length is exactly that of 16 bytes in base64.
        let written = URL_SAFE_NO_PAD.encode_slice(digest, &mut text);
        debug_assert_eq!(written, Ok(TEXT));
        text
    }
}

/// By what a request names its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StickyBy {
    /// A cookie that the gateway sets.
    Cookie {
        /// A token (RFC 6265 §4.1.1).
        name: Box<str>,
        /// Its attributes.
        attributes: CookieAttributes,
    },
    /// A header in which servers name sessions, and clients repeat them, such as `mcp-session-id`: the gateway appends
    /// the server's name for the client, and removes it for the server.
    Header(HeaderName),
}

/// `sticky` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    by: StickyBy,
    /// Of each server, in the order of the upstream.
    values: Vec<SignedName>,
    /// The servers by their values.
    servers: HashMap<SignedName, usize>,
}

impl Sticky {
    /// For the servers of an upstream with this name.
    pub fn new(by: StickyBy, key: &StickyKey, upstream: &str, servers: &[Endpoint]) -> Self {
        let values: Vec<_> = servers.iter().map(|server| key.value_of(upstream, &server.authority)).collect();
        let servers = values.iter().copied().zip(0..).collect();
        Self { by, values, servers }
    }

    /// The index of the server that a request names. `None`: it names none of them.
    pub fn server(&self, fields: Fields<'_>) -> Option<usize> {
        match &self.by {
            StickyBy::Cookie { name, .. } => {
                cookie::all(fields, name).find_map(|value| self.server_of(value.as_ref()))
            }
            StickyBy::Header(name) => fields.all(name).iter().find_map(|value| Some(self.session(value)?.1)),
        }
    }

    /// The index of the server with this name.
    // The names are looked up, not compared in constant time: a client that finds the time of a lookup out learns nothing
    // about names that it does not have.
    fn server_of(&self, name: &[u8]) -> Option<usize> {
        self.servers.get(name.first_chunk::<TEXT>().filter(|_| name.len() == TEXT)?).copied()
    }

    /// The session as its server wrote it, and the index of that server. `None`: the value names no server.
    fn session<'v>(&self, value: &'v [u8]) -> Option<(&'v [u8], usize)> {
        let (session, named) = value.split_at_checked(value.len().checked_sub(TEXT + 1)?)?;
        let server = self.server_of(named.strip_prefix(&[SEPARATOR])?)?;
        Some((session, server))
    }

    /// Writes the header that makes the client name this server. `secure`: the client uses TLS.
    pub fn put_cookie(&self, server: usize, secure: bool, out: &mut BytesMut) {
        let StickyBy::Cookie { name, attributes } = &self.by else { return };
        let Some(value) = self.values.get(server) else { return };
        for part in [b"set-cookie: ", name.as_bytes(), b"=", value] {
            out.extend_from_slice(part);
        }
        attributes.put(secure, out);
    }

    /// The header that carries sessions.
    pub fn session_header(&self) -> Option<&HeaderName> {
        match &self.by {
            StickyBy::Header(name) => Some(name),
            StickyBy::Cookie { .. } => None,
        }
    }

    /// Whether a field with this name carries a session.
    #[inline]
    pub fn is_session(&self, name: &[u8]) -> bool {
        self.session_header().is_some_and(|header| is_named(name, header.as_str().as_bytes()))
    }

    /// The session of a request, as its server wrote it. A value that names no server is returned unchanged.
    pub fn session_for_server<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        self.session(value).map_or(value, |(session, _)| session)
    }

    /// Writes the header with a session of this server, as the client is to repeat it.
    pub fn put_session(&self, server: usize, session: &[u8], out: &mut BytesMut) {
        let (Some(header), Some(value)) = (self.session_header(), self.values.get(server)) else { return };
        for part in [header.as_str().as_bytes(), b": ", session, &[SEPARATOR], value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::request::RequestHead;

    fn servers() -> Vec<Endpoint> {
        let server = |port| Endpoint {
            host: "10.0.0.1".to_owned(),
            port,
            unix_socket: None,
            authority: format!("10.0.0.1:{port}").into(),
            weight: 1,
            tls: None,
        };
        (9000..9003).map(server).collect()
    }

    fn sticky(secret: &[u8]) -> Sticky {
        Sticky::new(by_cookie(), &StickyKey::new(secret), "shop", &servers())
    }

    fn by_cookie() -> StickyBy {
        StickyBy::Cookie { name: "route".into(), attributes: CookieAttributes::default() }
    }

    /// The value of the cookie for a server.
    fn value(sticky: &Sticky, server: usize) -> String {
        String::from_utf8(sticky.values[server].to_vec()).expect("text")
    }

    fn named(sticky: &Sticky, cookies: &str) -> Option<usize> {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{cookies}\r\n");
        let mut spans = Vec::new();
        sticky.server(RequestHead::parse(head.as_bytes(), &mut spans).expect("a head").fields)
    }

    #[test]
    fn a_cookie_names_its_server() {
        let sticky = sticky(b"secret");
        for server in 0..3 {
            let value = value(&sticky, server);
            for cookies in [
                format!("cookie: route={value}\r\n"),
                format!("cookie: a=b; route={value}; c=d\r\n"),
                format!("cookie: a=b\r\ncookie: c=d;route=\"{value}\"\r\n"),
                format!("cookie: route=stale; route={value}\r\n"),
            ] {
                assert_eq!(named(&sticky, &cookies), Some(server), "{cookies}");
            }
            for cookies in
                [format!("cookie: Route={value}\r\n"), format!("cookie: xroute={value}\r\n"), String::new()]
            {
                assert_eq!(named(&sticky, &cookies), None, "{cookies}");
            }
            let mut header = BytesMut::new();
            sticky.put_cookie(server, false, &mut header);
            assert_eq!(header, format!("set-cookie: route={value}; Path=/; HttpOnly; SameSite=Lax\r\n"));
            header.clear();
            sticky.put_cookie(server, true, &mut header);
            assert_eq!(
                header,
                format!("set-cookie: route={value}; Path=/; HttpOnly; SameSite=Lax; Secure\r\n")
            );
        }
    }

    #[test]
    fn attributes_are_those_of_the_file() {
        let written = |attributes: &CookieAttributes, tls: bool| {
            let mut out = BytesMut::new();
            attributes.put(tls, &mut out);
            String::from_utf8(out.to_vec()).expect("text")
        };
        let all = CookieAttributes {
            path: "/shop".into(),
            same_site: SameSite::None,
            max_age: Some(3_600),
            secure: Some(true),
        };
        let expected = "; Path=/shop; HttpOnly; SameSite=None; Max-Age=3600; Secure\r\n";
        assert_eq!([false, true].map(|tls| written(&all, tls)), [expected; 2]);
        let never =
            CookieAttributes { same_site: SameSite::Strict, secure: Some(false), ..Default::default() };
        assert_eq!(written(&never, true), "; Path=/; HttpOnly; SameSite=Strict\r\n");
    }

    #[test]
    fn no_other_value_names_a_server() {
        let sticky = sticky(b"secret");
        let value = value(&sticky, 1);
        for end in 0..value.len() {
            assert_eq!(named(&sticky, &format!("cookie: route={}\r\n", &value[..end])), None);
            for bit in 0..6 {
                let mut bytes = value.clone().into_bytes();
                bytes[end] ^= 1 << bit;
                let changed = String::from_utf8_lossy(&bytes);
                if bytes[end].is_ascii_graphic() && !b"\";,%".contains(&bytes[end]) {
                    assert_eq!(named(&sticky, &format!("cookie: route={changed}\r\n")), None, "{changed}");
                }
            }
        }
        assert_eq!(named(&sticky, &format!("cookie: route={value}A\r\n")), None);
    }

    #[test]
    fn values_depend_on_the_secret_and_the_upstream_and_hold_no_address() {
        let (one, same, other) = (sticky(b"secret"), sticky(b"secret"), sticky(b"another"));
        assert_eq!(one, same);
        assert_eq!(named(&other, &format!("cookie: route={}\r\n", value(&one, 0))), None);
        let admin = Sticky::new(by_cookie(), &StickyKey::new(b"secret"), "admin", &servers());
        assert_eq!(named(&admin, &format!("cookie: route={}\r\n", value(&one, 0))), None);
        let bytes = URL_SAFE_NO_PAD.decode(value(&one, 0)).expect("base64");
        assert!(!bytes.windows(4).any(|window| window == b"10.0" || window == [10, 0, 0, 1]));
    }
    /// `mcp-session-id` with `text`.
    fn in_header(text: &str) -> String {
        format!("MCP-Session-Id: {text}\r\n")
    }

    #[test]
    fn a_session_names_its_server_and_gets_there_as_it_came() {
        let by = StickyBy::Header(HeaderName::from_static("mcp-session-id"));
        let sticky = Sticky::new(by, &StickyKey::new(b"secret"), "shop", &servers());
        for session in ["", "7", "a.b", "1f0c.AAAAAAAAAAAAAAAAAAAAAA"] {
            for server in 0..3 {
                let mut out = BytesMut::new();
                sticky.put_session(server, session.as_bytes(), &mut out);
                let written = String::from_utf8(out.to_vec()).expect("text");
                let value =
                    written.strip_prefix("mcp-session-id: ").and_then(|rest| rest.strip_suffix("\r\n"));
                let value = value.expect("a header");
                assert_eq!(named(&sticky, &in_header(value)), Some(server), "{value}");
                assert_eq!(sticky.session_for_server(value.as_bytes()), session.as_bytes());
                // A server that is asked for its own session does not get a longer one each time.
                let doubled = format!("{value}.{}", self::value(&sticky, server));
                assert_eq!(sticky.session_for_server(doubled.as_bytes()), value.as_bytes());
                for end in 0..value.len() {
                    let cut = &value[..end];
                    assert_eq!(named(&sticky, &in_header(cut)), None, "{cut}");
                    assert_eq!(sticky.session_for_server(cut.as_bytes()), cut.as_bytes());
                }
                assert_eq!(named(&sticky, &in_header(&value.replace('.', "-"))), None);
            }
        }
        assert_eq!(named(&sticky, &format!("cookie: route={}\r\n", value(&sticky, 1))), None);
        let mut none = BytesMut::new();
        sticky.put_cookie(1, true, &mut none);
        sticky.put_session(3, b"7", &mut none);
        assert!(
            none.is_empty() && sticky.is_session(b"Mcp-Session-ID") && !sticky.is_session(b"mcp_session_id")
        );
    }
}
