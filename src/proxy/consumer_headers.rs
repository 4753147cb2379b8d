//! What a backend is told of the consumer, and what it is not told: the credential, and the client's own claims.

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

use crate::http1::fields::{Field, Fields};
use crate::http1::name::{claims_consumer, same_to_cgi};
use crate::plan::Plan;
use crate::plan::auth::{Auth, RouteAuth};
use crate::route::consumers::Consumer;
use crate::route::credential::{CredentialSource, without_cookies};
use crate::route::identity::GrantedField;

/// The headers `x-consumer` and `x-consumer-tier`, and the credentials to be removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConsumerHeaders<'a> {
    auths: &'a [Auth],
    consumer: Option<Consumer<'a>>,
    auth: Option<&'a RouteAuth>,
    /// The backend does not get the credential.
    hides: bool,
    /// Further fields for the backend, from the service that has let the request through.
    granted: &'a [GrantedField],
    /// The lengths of the names of headers with credentials, as bits: most headers have another one.
    lengths: u64,
}

/// The name of the consumer.
const CONSUMER: &[u8] = b"x-consumer";
/// The tier of the consumer.
const CONSUMER_TIER: &[u8] = b"x-consumer-tier";

impl<'a> ConsumerHeaders<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        auth: Option<&'a RouteAuth>,
        consumer: Option<Consumer<'a>>,
        granted: &'a [GrantedField],
    ) -> Self {
        Self { granted, ..Self::of(&plan.auths, auth, consumer) }
    }

    fn of(auths: &'a [Auth], auth: Option<&'a RouteAuth>, consumer: Option<Consumer<'a>>) -> Self {
        let hides = auth.is_some_and(|auth| !auth.forwards_credentials);
        let mut headers = Self { auths, consumer, auth, hides, granted: &[], lengths: 0 };
        headers.lengths = headers.sources().fold(0, |lengths, source| match source {
            CredentialSource::Header(name) => lengths | bit(name.as_str()),
            CredentialSource::Bearer | CredentialSource::Basic => lengths | bit(AUTHORIZATION.as_str()),
            CredentialSource::Cookie(_) => lengths | bit(COOKIE.as_str()),
            CredentialSource::Query(_) | CredentialSource::Request => lengths,
        });
        headers.lengths |= headers.answered().fold(0, |lengths, name| lengths | bit(name.as_str()));
        headers
    }

    /// Whether a header of the client is forwarded unchanged. Where there is an `[auth]`, no client claims a consumer,
    /// on any route.
    #[inline]
    pub(super) fn passes(&self, field: &Field<'_>) -> bool {
        // Most plans have no auth.
        self.auths.is_empty() || self.passes_auth(field)
    }

    #[inline(never)]
    fn passes_auth(&self, field: &Field<'_>) -> bool {
        // A header that only the backend would read as the credential is never forwarded.
        let hides = |source: &CredentialSource| {
            if self.hides { source.is_field(field) } else { source.is_twin(field) }
        };
        if self.lengths & bit(field.name) == 0 {
            return !claims_consumer(field.name);
        }
        !(claims_consumer(field.name)
            || self.sources().any(hides)
            || self.answered().any(|name| same_to_cgi(name.as_str().as_bytes(), field.name))
            || is_cookie(field) && self.rewrites_cookies())
    }

    /// Passes to `put` the name and the value of each header of the gateway, and cookies without the credential.
    pub(super) fn put(&self, fields: Fields<'_>, mut put: impl FnMut(&[u8], &[u8])) {
        if self.rewrites_cookies() {
            for field in fields.iter().filter(is_cookie) {
                match without_cookies(field.value, self.sources()) {
                    Some(rest) if rest.is_empty() => {}
                    Some(rest) => put(b"cookie", &rest),
                    None => put(b"cookie", field.value),
                }
            }
        }
        for GrantedField { name, value } in self.granted {
            put(name.as_bytes(), value);
        }
        if let Some(consumer) = self.consumer {
            put(CONSUMER, consumer.encoded_name().as_bytes());
            if let Some(tier) = consumer.encoded_tier() {
                put(CONSUMER_TIER, tier.as_bytes());
            }
        }
    }

    /// Whether the credential may be a cookie that the backend does not get. Then all `cookie` headers are written anew,
    /// so that their order stays.
    fn rewrites_cookies(&self) -> bool {
        self.hides && self.sources().any(|source| matches!(source, CredentialSource::Cookie(_)))
    }

    /// The names of fields that a service of the route answers with: those of the client never pass.
    fn answered(&self) -> impl Iterator<Item = &'a HeaderName> {
        let (all, named) = (self.auths, self.auth.map_or(&[][..], |auth| &auth.auths));
        let forwards = named.iter().filter_map(|auth| all.get(auth.0)?.forward());
        forwards.flat_map(|forward| &forward.settings().headers)
    }

    /// The places of the route's credentials.
    fn sources(&self) -> impl Iterator<Item = &'a CredentialSource> + Clone {
        let (all, named) = (self.auths, self.auth.map_or(&[][..], |auth| &auth.auths));
        named.iter().filter_map(|auth| all.get(auth.0)).map(|auth| &auth.source)
    }
}

/// The bit of a name's length. All long names share one.
fn bit(name: impl AsRef<[u8]>) -> u64 {
    1 << name.as_ref().len().min(63)
}

fn is_cookie(field: &Field<'_>) -> bool {
    field.name.eq_ignore_ascii_case(COOKIE.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::http1::request::RequestHead;
    use crate::plan::auth::{ApiKeys, AuthIndex, AuthMethod};
    use crate::route::consumers::{Consumers, KeyForm};

    fn auth(source: &str) -> Auth {
        let columns = ["name", "tier"].map(str::to_owned).to_vec();
        let mut consumers = Consumers::new(columns, 0, Some(1), false, [7; 16]);
        consumers.push(KeyForm::Plain(b"K"), ["Bl\u{fc}te", "pro"].into_iter()).unwrap();
        Auth {
            name: "keys".into(),
            source: CredentialSource::parse(source).unwrap(),
            method: AuthMethod::ApiKeys(ApiKeys {
                consumers: Arc::new(consumers.finish(1)),
                version: [0; 32],
            }),
            challenge: "".into(),
            challenge_invalid: "".into(),
            failures: None,
        }
    }

    /// The headers that a backend gets, as lines in order.
    fn sent(sources: &[&str], forwards_credentials: bool, headers: &[(String, String)]) -> Vec<String> {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{lines}\r\n");
        let mut spans = Vec::new();
        let head = RequestHead::parse(text.as_bytes(), &mut spans).expect("a good head");
        let auths: Vec<_> = sources.iter().map(|source| auth(source)).collect();
        let route = RouteAuth {
            auths: (0..auths.len()).map(AuthIndex).collect(),
            optional: true,
            forwards_credentials,
        };
        let written = ConsumerHeaders::of(
            &auths,
            Some(&route),
            auths[0].api_keys().and_then(|keys| keys.consumers.find(b"K")),
        );
        let mut lines = Vec::new();
        let line = |name: &[u8], value: &[u8]| {
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        for field in head.fields.iter().skip(1).filter(|field| written.passes(field)) {
            lines.push(line(field.name, field.value));
        }
        written.put(head.fields, |name, value| lines.push(line(name, value)));
        lines
    }

    fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const OWN: [&str; 2] = ["x-consumer: Bl%C3%BCte", "x-consumer-tier: pro"];

    #[test]
    fn cookies_keep_their_order_over_all_headers() {
        let headers = owned(&[("cookie", "a=1; k=K"), ("x-a", "1"), ("Cookie", "a=2")]);
        let expected = ["x-a: 1", "cookie: a=1", "cookie: a=2", OWN[0], OWN[1]];
        assert_eq!(sent(&["cookie:k"], false, &headers), expected);
        let expected = ["cookie: a=1; k=K", "x-a: 1", "Cookie: a=2", OWN[0], OWN[1]];
        assert_eq!(sent(&["cookie:k"], true, &headers), expected);
    }

    #[test]
    fn a_backend_that_gets_the_credential_gets_no_second_one_under_a_similar_name() {
        let headers =
            owned(&[("x-api-key", "K"), ("X_Api-Key", "other"), ("x_api_key", "other"), ("x-api", "1")]);
        assert_eq!(sent(&["header:x-api-key"], true, &headers), ["x-api-key: K", "x-api: 1", OWN[0], OWN[1]]);
        assert_eq!(sent(&["header:x-api-key"], false, &headers), ["x-api: 1", OWN[0], OWN[1]]);
    }

    /// As a backend behind CGI reads it.
    fn cgi(name: &str) -> String {
        name.to_ascii_lowercase().replace('-', "_")
    }

    proptest! {
        #[test]
        fn a_second_look_finds_no_credential_and_all_else_is_there_in_order(
            headers in prop::collection::vec(
                (
                    prop::sample::select(vec![
                        "x-api-key", "X-API-KEY", "x_api_key", "x-api_key", "x-api-keys", "cookie", "Cookie",
                        "authorization", "AUTHORIZATION", "x-consumer", "X_Consumer_Id", "accept", "x-a",
                    ]),
                    prop::sample::select(vec![
                        "K", "", "Bearer K", "bearer", "Basic K", "k=K", "a=1; k=K;b=2", "k =K; a=1", "kk=1;", "a=k; k", "%6b=1",
                    ]),
                ),
                0..8,
            ),
            sources in prop::sample::subsequence(vec!["header:x-api-key", "bearer", "cookie:k", "query:k"], 1..4),
        ) {
            let headers = owned(&headers);
            let lines = sent(&sources, false, &headers);
            let (own, rest) = (&lines[lines.len() - 2..], &lines[..lines.len() - 2]);
            prop_assert_eq!(own, OWN);
            let rest: Vec<(String, String)> = rest.iter().map(|line| {
                let (name, value) = line.split_once(": ").expect("a line");
                (name.to_owned(), value.to_owned())
            }).collect();
            let has = |source: &str| sources.contains(&source);
            let is_secret = |name: &str, value: &str| match &*cgi(name) {
                "x_api_key" => has("header:x-api-key"),
                "authorization" => has("bearer") && value.split(' ').next().unwrap_or("").eq_ignore_ascii_case("bearer"),
                name => name.starts_with("x_consumer"),
            };
            let pairs = |value: &str| -> Vec<String> {
                let all = value.split(';').map(|pair| pair.trim().to_owned());
                let kept = all.filter(|pair| !has("cookie:k") || pair.split('=').next().unwrap_or("").trim() != "k");
                kept.filter(|pair| !pair.is_empty()).collect()
            };
            let split = |headers: &[(String, String)]| {
                let (cookies, others): (Vec<_>, Vec<_>) =
                    headers.iter().cloned().partition(|(name, _)| cgi(name) == "cookie");
                let cookies: Vec<String> = cookies.iter().flat_map(|(_, value)| pairs(value)).collect();
                let others: Vec<_> =
                    others.into_iter().filter(|(name, value)| !is_secret(name, value)).collect();
                (cookies, others)
            };
            let secrets = rest.iter().filter(|(name, value)| is_secret(name, value)).count();
            prop_assert_eq!(secrets, 0, "{:?}", &rest);
            let cookies: String =
                rest.iter().filter(|(name, _)| cgi(name) == "cookie").map(|(_, value)| format!("{value};")).collect();
            if has("cookie:k") {
                let second = cookies.split(';').any(|pair| pair.split('=').next().unwrap_or("").trim() == "k");
                prop_assert!(!second, "{}", cookies);
            }
            prop_assert_eq!(split(&rest), split(&headers));
        }
    }
}
