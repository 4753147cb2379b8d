//! `sticky` of an upstream: a cookie keeps a client at the server of its first response. Also what all cookies have that
//! the gateway sets: values that only a gateway with the key can make, and attributes.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;

use super::Endpoint;
use crate::http1::fields::Fields;
use crate::labels::labels;
use crate::route::cookie;

/// Bytes of a value before it is written in base64: as many as no client can guess.
const VALUE: usize = 16;
/// Characters of a value.
pub(super) const TEXT: usize = 22;
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

/// `sticky` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// The cookie's name.
    cookie: Box<str>,
    /// Of each server, in the order of the upstream.
    values: Vec<SignedName>,
    /// The servers by their values.
    servers: HashMap<SignedName, usize>,
    attributes: CookieAttributes,
}

impl Sticky {
    /// For the servers of an upstream with this name. `cookie` is a token (RFC 6265 §4.1.1).
    pub fn new(
        cookie: &str,
        attributes: CookieAttributes,
        key: &StickyKey,
        upstream: &str,
        servers: &[Endpoint],
    ) -> Self {
        let values: Vec<_> = servers.iter().map(|server| key.value_of(upstream, &server.authority)).collect();
        let servers = values.iter().copied().zip(0..).collect();
        Self { cookie: cookie.into(), values, servers, attributes }
    }

    /// The index of the server that a request's cookie names. `None`: it names none of them.
    // The values are looked up, not compared in constant time: a client that finds the time of a lookup out learns nothing
    // about values that it does not have.
    pub fn server(&self, fields: Fields<'_>) -> Option<usize> {
        let mut values = cookie::all(fields, &self.cookie);
        values.find_map(|value| {
            self.servers.get(value.as_ref().first_chunk::<TEXT>().filter(|_| value.len() == TEXT)?).copied()
        })
    }

    /// Writes the header that makes the client name this server. `secure`: the client uses TLS.
    pub fn put_cookie(&self, server: usize, secure: bool, out: &mut BytesMut) {
        let Some(value) = self.values.get(server) else { return };
        for part in [b"set-cookie: ", self.cookie.as_bytes(), b"=", value] {
            out.extend_from_slice(part);
        }
        self.attributes.put(secure, out);
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
        Sticky::new("route", CookieAttributes::default(), &StickyKey::new(secret), "shop", &servers())
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
        let (attributes, key) = (CookieAttributes::default(), StickyKey::new(b"secret"));
        let admin = Sticky::new("route", attributes, &key, "admin", &servers());
        assert_eq!(named(&admin, &format!("cookie: route={}\r\n", value(&one, 0))), None);
        let bytes = URL_SAFE_NO_PAD.decode(value(&one, 0)).expect("base64");
        assert!(!bytes.windows(4).any(|window| window == b"10.0" || window == [10, 0, 0, 1]));
    }
}
