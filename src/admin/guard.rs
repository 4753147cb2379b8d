//! Access control: no requests of foreign web pages in a browser, and none without the token; the client of a request,
//! and what it may do.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
use subtle::ConstantTimeEq as _;

use super::response::{AdminResponse, problem};
use crate::net::own_hosts::is_own_host;
use crate::plan::admin::{Admin, AdminRight, AdminRights, Token};

/// The requirements for requests to the admin listener.
#[derive(Debug)]
pub(super) struct Guard {
    listen: SocketAddr,
}

impl Guard {
    pub(super) fn new(listen: SocketAddr) -> Self {
        Self { listen }
    }

    /// Its address: `::ffff:127.0.0.1` is `127.0.0.1`.
    fn address(&self) -> IpAddr {
        self.listen.ip().to_canonical()
    }

    pub(super) fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Whether the request was meant for this machine. A browser on the machine can be made to send requests to
    /// loopback (by a foreign page, or by a name that an attacker resolves to 127.0.0.1), but then `Origin` or `Host`
    /// show it. For other addresses only the token decides: the names that lead there are unknown.
    pub(super) fn is_local(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if !self.address().is_loopback() {
            return true;
        }
        let hosts = headers.get_all(HOST).iter().all(|host| {
            Authority::try_from(host.as_bytes()).is_ok_and(|host| is_own_host(host.host(), self.address()))
        });
        let origins = headers.get_all(ORIGIN).iter().all(|origin| {
            Uri::try_from(origin.as_bytes())
                .is_ok_and(|origin| origin.host().is_some_and(|host| is_own_host(host, self.address())))
        });
        hosts && origins && uri.host().is_none_or(|host| is_own_host(host, self.address()))
    }

    /// The client of the request, with the rights of its token. `None`: it has no valid token, and one is required.
    pub(super) fn caller(
        &self,
        admin: Option<&Admin>,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Option<Caller> {
        // The plan of a running listener always has an `[admin]`.
        let admin = admin?;
        if !admin.needs_token() {
            return Some(Caller { peer, token: None, rights: AdminRights::ALL });
        }
        let sent = headers.get(AUTHORIZATION)?.as_bytes();
        let (scheme, sent) = sent.split_at_checked("bearer ".len())?;
        let sent = blake3::hash(sent.trim_ascii());
        // All tokens are compared, each in constant time and by its hash: the response time reveals neither how much of a
        // guess was right, nor how long a token is.
        let is_sent =
            |token: &Token| bool::from(blake3::hash(token.0.as_bytes()).as_bytes().ct_eq(sent.as_bytes()));
        let is_main = admin.token.as_ref().is_some_and(is_sent);
        let named = admin.tokens.iter().fold(None, |found, token| {
            let is_sent = is_sent(&token.token);
            if is_sent { Some(token) } else { found }
        });
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return None;
        }
        match named {
            Some(token) => {
                Some(Caller { peer, token: Some(token.name.clone()), rights: token.rights.clone() })
            }
            None => is_main.then_some(Caller { peer, token: None, rights: AdminRights::ALL }),
        }
    }
}

/// The client of a request to the admin listener. Its text is for the log.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Its address.
    pub(super) peer: SocketAddr,
    /// The name of its token in `[admin.tokens]`; `None`: it has the token of `[admin]`, or needs none.
    pub(super) token: Option<Box<str>>,
    pub(super) rights: AdminRights,
}

impl Caller {
    /// The response to a request without the right that it needs.
    pub(super) fn refusal(&self, right: AdminRight<'_>) -> Option<AdminResponse> {
        if self.rights.allow(right) {
            return None;
        }
        let name = self.token.as_deref().unwrap_or_default().escape_debug();
        Some(problem(StatusCode::FORBIDDEN, &format!("token `{name}` does not have the right `{right}`")))
    }
}

impl Display for Caller {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)?;
        self.token.as_ref().map_or(Ok(()), |name| write!(f, " (token `{}`)", name.escape_debug()))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::plan::admin::AdminToken;

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn is_local(listen: &str, fields: &[(HeaderName, &str)]) -> bool {
        Guard::new(listen.parse().unwrap()).is_local(&Uri::from_static("/"), &headers(fields))
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
        assert!(is_local("[::ffff:10.0.0.1]:9900", &[(HOST, "example.com")]));
        let mapped = "[::ffff:127.0.0.1]:9900";
        assert!(
            !is_local(mapped, &[(HOST, "example.com")]) && !is_local(mapped, &[(ORIGIN, "http://a.test")])
        );
        for host in ["localhost", "127.0.0.1:9900", mapped, "[::1]"] {
            assert!(is_local(mapped, &[(HOST, host)]) && is_local("127.0.0.1:1", &[(HOST, host)]), "{host}");
        }
    }

    #[test]
    fn on_loopback_a_foreign_origin_is_seen() {
        for (origin, own) in [
            ("http://localhost:3000", true),
            ("http://[::1]:3000", true),
            ("https://127.0.0.1:9900", true),
            ("https://example.com", false),
            ("null", false),
            ("http://127.0.0.1@example.com", false),
        ] {
            let fields = [(HOST, "localhost"), (ORIGIN, origin)];
            assert_eq!(is_local("[::1]:9900", &fields), own, "{origin}");
        }
        let absolute = Uri::from_static("http://example.com/metrics");
        let guard = Guard::new("127.0.0.1:1".parse().unwrap());
        assert!(!guard.is_local(&absolute, &headers(&[(HOST, "localhost")])));
    }

    fn admin(main: Option<&str>, tokens: &[(&str, &str)]) -> Admin {
        let named = |(name, secret): &(&str, &str)| AdminToken {
            name: (*name).into(),
            token: Token((*secret).to_owned()),
            rights: AdminRights { read: true, ..AdminRights::default() },
        };
        Admin {
            listen: "127.0.0.1:9900".parse().unwrap(),
            token: main.map(|secret| Token(secret.to_owned())),
            tokens: tokens.iter().map(named).collect(),
            tls: None,
        }
    }

    fn caller(admin: &Admin, fields: &[(HeaderName, &str)]) -> Option<Caller> {
        let guard = Guard::new(admin.listen);
        guard.caller(Some(admin), &headers(fields), "127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        let admin = admin(Some("secret"), &[]);
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
            assert_eq!(caller(&admin, &[(AUTHORIZATION, value)]).is_some(), admitted, "{value}");
        }
        assert!(caller(&admin, &[]).is_none());
    }

    #[test]
    fn each_token_has_its_own_rights_and_without_any_all_have_all() {
        let both = admin(Some("secret"), &[("a", "one"), ("b", "two")]);
        for (value, name, operates) in [
            ("Bearer one", Some("a"), false),
            ("Bearer two", Some("b"), false),
            ("Bearer secret", None, true),
        ] {
            let caller = caller(&both, &[(AUTHORIZATION, value)]).unwrap();
            assert_eq!((caller.token.as_deref(), caller.rights.operate), (name, operates), "{value}");
        }
        let named = admin(None, &[("a", "one")]);
        assert!(caller(&named, &[]).is_none(), "with named tokens only, a request without one is refused");
        assert!(caller(&named, &[(AUTHORIZATION, "Bearer ")]).is_none());
        assert!(caller(&admin(None, &[]), &[]).unwrap().rights.operate);
        let guard = Guard::new(named.listen);
        assert!(
            guard.caller(None, &HeaderMap::new(), named.listen).is_none(),
            "without `[admin]` none is admitted"
        );
    }
}
