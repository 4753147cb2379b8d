//! Access control: no requests of foreign web pages in a browser, and none without the token.

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};
use subtle::ConstantTimeEq as _;

use crate::plan::Token;

/// The requirements for requests to the admin listener.
#[derive(Debug)]
pub(super) struct Guard {
    listen: SocketAddr,
    token: Option<Token>,
}

impl Guard {
    pub(super) fn new(listen: SocketAddr, token: Option<Token>) -> Self {
        Self { listen, token }
    }

    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Whether the request was meant for this machine. A browser on the machine can be made to send requests to
    /// loopback (by a foreign page, or by a name that an attacker resolves to 127.0.0.1), but then `Origin` or `Host`
    /// show it. For other addresses only the token decides: the names that lead there are unknown.
    pub(super) fn is_local(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if !self.listen.ip().is_loopback() {
            return true;
        }
        let hosts = headers
            .get_all(HOST)
            .iter()
            .all(|host| Authority::try_from(host.as_bytes()).is_ok_and(|host| self.is_own(host.host())));
        let origins = headers.get_all(ORIGIN).iter().all(|origin| {
            Uri::try_from(origin.as_bytes())
                .is_ok_and(|origin| origin.host().is_some_and(|host| self.is_own(host)))
        });
        hosts && origins && uri.host().is_none_or(|host| self.is_own(host))
    }

    /// Whether the request has the token, if one is required.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
        let Some((scheme, sent)) = sent.split_at_checked("bearer ".len()) else { return false };
        // In constant time, so that the response time does not reveal how much of a guess was right.
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(sent.trim_ascii().ct_eq(token.0.as_bytes()))
    }

    /// `host` may be in brackets; the port does not matter.
    fn is_own(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let address = bare.parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback() || address == self.listen.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn is_local(listen: &str, fields: &[(HeaderName, &str)]) -> bool {
        Guard::new(listen.parse().unwrap(), None).is_local(&Uri::from_static("/"), &headers(fields))
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_its_own() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:9900", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(is_local("127.0.0.1:9900", &[(HOST, host)]), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "", "[::2]"]
        {
            assert!(!is_local("127.0.0.1:9900", &[(HOST, host)]), "{host}");
        }
        assert!(is_local("10.0.0.1:9900", &[(HOST, "example.com")]), "elsewhere the token decides");
    }

    #[test]
    fn on_loopback_a_foreign_origin_is_seen() {
        for (origin, own) in [
            ("http://localhost:3000", true),
            ("http://[::1]:3000", true),
            ("https://example.com", false),
            ("null", false),
            ("http://127.0.0.1@example.com", false),
        ] {
            let fields = [(HOST, "localhost"), (ORIGIN, origin)];
            assert_eq!(is_local("[::1]:9900", &fields), own, "{origin}");
        }
        let absolute = Uri::from_static("http://example.com/metrics");
        let guard = Guard::new("127.0.0.1:1".parse().unwrap(), None);
        assert!(!guard.is_local(&absolute, &headers(&[(HOST, "localhost")])));
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        let guard = Guard::new("0.0.0.0:9900".parse().unwrap(), Some(Token("secret".to_owned())));
        for (value, admitted) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrett", false),
            ("Bearer ", false),
            ("Basic secret", false),
            ("secret", false),
            ("", false),
        ] {
            assert_eq!(guard.admits(&headers(&[(AUTHORIZATION, value)])), admitted, "{value}");
        }
        assert!(!guard.admits(&HeaderMap::new()));
    }
}
