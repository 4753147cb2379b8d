//! The cookie of splits: a client without the cookie that `upstream_key` names stays at the upstream that was drawn.
//!
//! With `upstream_key = "cookie:session"`, the first request of a client has no `session`. An upstream is drawn for it, and
//! its response sets [`SPLIT_COOKIE`], which names the upstream. It decides from then on, also once the application has set
//! `session`, since a client must not change its upstream in the middle of a session. All splits of the file share the
//! cookie: two routes that are split between the same upstreams agree, and its value names an upstream of each other split.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;

use super::UpstreamIndex;
use super::sticky::{CookieAttributes, SignedName, StickyKey, TEXT};
use crate::http1::fields::Fields;
use crate::route::cookie;

/// The name of the cookie.
pub const SPLIT_COOKIE: &str = "tollgate-split";

/// Upstreams that one cookie names; of more, the first are forgotten.
const MAX_NAMES: usize = 16;
/// Between two names of a value: no name contains it.
const SEPARATOR: u8 = b'.';

/// Upstreams by their names in cookies. A plan has one for all its splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitCookie {
    upstreams: Arc<HashMap<SignedName, UpstreamIndex>>,
    names: Arc<[SignedName]>,
}

/// The cookie that a response sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSplitCookie(Box<[u8]>);

impl SplitCookie {
    /// For the upstreams of a plan with these names, in their order.
    pub fn new<'n>(key: &StickyKey, upstreams: impl Iterator<Item = &'n str>) -> Self {
        let names: Arc<[_]> = upstreams.map(|upstream| key.value_of(upstream, "")).collect();
        let upstreams = names.iter().copied().zip((0..).map(UpstreamIndex)).collect();
        Self { upstreams: Arc::new(upstreams), names }
    }

    /// The upstreams that the cookies of a request name, in the order of the value. Unknown names are skipped.
    // The names are looked up, not compared in constant time: a client that finds the time of a lookup out learns nothing
    // about names that it does not have.
    pub fn upstreams(&self, fields: Fields<'_>) -> impl Iterator<Item = UpstreamIndex> {
        cookie::all(fields, SPLIT_COOKIE).flat_map(|value| {
            let names = value.split(|byte| *byte == SEPARATOR);
            let found = |name: &[u8]| {
                let name = name.first_chunk::<TEXT>().filter(|_| name.len() == TEXT)?;
                self.upstreams.get(name).copied()
            };
            names.filter_map(found).collect::<smallvec::SmallVec<[_; 4]>>()
        })
    }

    /// Whether a request has the cookie, whatever its value.
    pub fn is_sent(&self, fields: Fields<'_>) -> bool {
        cookie::all(fields, SPLIT_COOKIE).next().is_some()
    }

    /// The cookie for a client that gets to `chosen`. It still names the upstreams of other splits, for which `is_kept`
    /// holds.
    pub fn renewed(
        &self,
        fields: Fields<'_>,
        chosen: UpstreamIndex,
        is_kept: impl Fn(UpstreamIndex) -> bool,
    ) -> NewSplitCookie {
        let mut named: Vec<_> = Vec::new();
        for upstream in self.upstreams(fields).filter(|upstream| is_kept(*upstream)) {
            if !named.contains(&upstream) {
                named.push(upstream);
            }
        }
        named.drain(..named.len().saturating_sub(MAX_NAMES - 1));
        named.push(chosen);
        let mut value = Vec::with_capacity(named.len() * (TEXT + 1));
        for name in named.iter().filter_map(|UpstreamIndex(index)| self.names.get(*index)) {
            if !value.is_empty() {
                value.push(SEPARATOR);
            }
            value.extend_from_slice(name);
        }
        NewSplitCookie(value.into())
    }
}

impl NewSplitCookie {
    /// Writes the header that sets it. `secure`: the client uses TLS.
    pub fn put(&self, secure: bool, out: &mut BytesMut) {
        for part in [b"set-cookie: ", SPLIT_COOKIE.as_bytes(), b"=", &self.0] {
            out.extend_from_slice(part);
        }
        CookieAttributes::default().put(secure, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::request::RequestHead;

    const NAMES: [&str; 4] = ["blue", "green", "old", "new"];

    fn cookie_of(secret: &[u8]) -> SplitCookie {
        SplitCookie::new(&StickyKey::new(secret), NAMES.into_iter())
    }

    fn with_fields<T>(cookies: &str, read: impl FnOnce(Fields<'_>) -> T) -> T {
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{cookies}\r\n");
        let mut spans = Vec::new();
        read(RequestHead::parse(head.as_bytes(), &mut spans).expect("a head").fields)
    }

    fn named(cookie: &SplitCookie, value: &str) -> Vec<usize> {
        let line = format!("cookie: a=b; {SPLIT_COOKIE}={value}\r\n");
        with_fields(&line, |fields| cookie.upstreams(fields).map(|upstream| upstream.0).collect())
    }

    /// The value of the cookie for a client at `chosen` that sent `value`.
    fn renewed(cookie: &SplitCookie, value: &str, chosen: usize, kept: &[usize]) -> String {
        let line = format!("cookie: {SPLIT_COOKIE}={value}\r\n");
        let is_kept = |upstream: UpstreamIndex| kept.contains(&upstream.0);
        let new = with_fields(&line, |fields| cookie.renewed(fields, UpstreamIndex(chosen), is_kept));
        String::from_utf8(new.0.to_vec()).expect("text")
    }

    #[test]
    fn a_value_names_an_upstream_of_each_split() {
        let cookie = cookie_of(b"secret");
        let green = renewed(&cookie, "", 1, &[2, 3]);
        assert_eq!(named(&cookie, &green), [1]);
        let both = renewed(&cookie, &green, 2, &[0, 1]);
        assert_eq!(named(&cookie, &both), [1, 2]);
        // Another upstream of the second split takes the place of its first one.
        assert_eq!(named(&cookie, &renewed(&cookie, &both, 3, &[0, 1])), [1, 3]);
        assert_eq!(renewed(&cookie, &[both.as_str(); 40].join("."), 3, &[0, 1]).len(), 2 * TEXT + 1);
        let mut header = BytesMut::new();
        NewSplitCookie(green.as_bytes().into()).put(true, &mut header);
        let expected =
            format!("set-cookie: {SPLIT_COOKIE}={green}; Path=/; HttpOnly; SameSite=Lax; Secure\r\n");
        assert_eq!(header, expected);
    }

    #[test]
    fn no_other_value_names_an_upstream() {
        let cookie = cookie_of(b"secret");
        let green = renewed(&cookie, "", 1, &[]);
        for end in 0..green.len() {
            assert!(named(&cookie, &green[..end]).is_empty(), "{end}");
        }
        for other in [&format!("{green}A"), "green", "1", ".", "..", "%", "\"", "\"\"", "=", "%2e%2e"] {
            assert!(named(&cookie, other).is_empty(), "{other}");
        }
        assert!(named(&cookie_of(b"another"), &green).is_empty());
    }
}
