//! What a backend is told of the consumer, and what it is not told: the credential, and the client's own claims, also
//! those of services and about the request that these were asked about.

use http::header::{AUTHORIZATION, COOKIE};

use crate::http1::fields::{Field, Fields};
use crate::http1::name::{claims_consumer, same_to_cgi};
use crate::plan::Plan;
use crate::plan::auth::{Auth, RouteAuth};
use crate::route::consumers::Consumer;
use crate::route::credential::{CredentialSource, url_without_credentials, without_cookies};
use crate::route::guarded_headers::{GuardedHeaders, length_bit};
use crate::route::identity::GrantedField;

/// The headers `x-consumer` and `x-consumer-tier`, and the credentials to be removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConsumerHeaders<'a> {
    auths: &'a [Auth],
    consumer: Option<Consumer<'a>>,
    auth: Option<&'a RouteAuth>,
    /// The backend does not get the credential.
    hides: bool,
    /// A service is asked about requests of the route.
    asks: bool,
    /// `referer` may hold a credential that the backend does not get.
    cuts_referer: bool,
    /// Further fields for the backend, from the service that has let the request through.
    granted: &'a [GrantedField],
    /// The fields that services answer with, on any route.
    guarded: Option<&'a GuardedHeaders>,
    /// The lengths of the names of headers that may not pass, as [bits](length_bit): most headers have another one.
    lengths: u64,
}

/// The name of the consumer.
const CONSUMER: &[u8] = b"x-consumer";
/// The tier of the consumer.
const CONSUMER_TIER: &[u8] = b"x-consumer-tier";
/// The URL of the page that a request comes from.
const REFERER: &[u8] = b"referer";
/// Fields under which a service is told of the request. An application that reads them, too, must not be told of another
/// one by the client.
const TOLD: [&[u8]; 5] =
    [b"x-forwarded-method", b"x-forwarded-uri", b"x-original-method", b"x-original-uri", b"x-original-url"];

impl<'a> ConsumerHeaders<'a> {
    #[inline]
    pub(crate) fn new(
        plan: &'a Plan,
        auth: Option<&'a RouteAuth>,
        consumer: Option<Consumer<'a>>,
        granted: &'a [GrantedField],
    ) -> Self {
        // Most plans have no auth.
        if plan.auths.is_empty() {
            return Self::default();
        }
        Self { granted, ..Self::of(&plan.auths, Some(plan.guarded()), auth, consumer) }
    }

    fn of(
        auths: &'a [Auth],
        guarded: Option<&'a GuardedHeaders>,
        auth: Option<&'a RouteAuth>,
        consumer: Option<Consumer<'a>>,
    ) -> Self {
        let hides = auth.is_some_and(|auth| !auth.forwards_credentials);
        let mut headers = Self { auths, consumer, auth, hides, guarded, ..Self::default() };
        let asks = headers.sources().any(|source| *source == CredentialSource::Request);
        let cuts = headers.hidden().any(|source| matches!(source, CredentialSource::Query(_)));
        (headers.asks, headers.cuts_referer) = (asks, cuts);
        headers.lengths = headers.sources().fold(0, |lengths, source| match source {
            CredentialSource::Header(name) => lengths | length_bit(name.as_str()),
            CredentialSource::Bearer | CredentialSource::Basic => {
                lengths | length_bit(AUTHORIZATION.as_str())
            }
            CredentialSource::Cookie(_) => lengths | length_bit(COOKIE.as_str()),
            CredentialSource::Request => {
                TOLD.iter().fold(lengths, |lengths, name| lengths | length_bit(name))
            }
            CredentialSource::Query(_) => lengths,
        });
        headers.lengths |= guarded.map_or(0, GuardedHeaders::lengths);
        if headers.cuts_referer {
            headers.lengths |= length_bit(REFERER);
        }
        headers
    }

    /// Whether a service is asked about requests of the route.
    pub(crate) fn asks_service(&self) -> bool {
        self.asks
    }

    /// Whether a header of the client is forwarded unchanged. Where there is an `[auth]`, no client claims a consumer,
    /// on any route.
    #[inline]
    pub(crate) fn passes(&self, field: &Field<'_>) -> bool {
        // Most plans have no auth.
        self.auths.is_empty() || self.passes_auth(field)
    }

    #[inline(never)]
    fn passes_auth(&self, field: &Field<'_>) -> bool {
        // A header that only the backend would read as the credential is never forwarded.
        let hides = |source: &CredentialSource| {
            if self.hides { source.is_field(field) } else { source.is_twin(field) }
        };
        if self.lengths & length_bit(field.name) == 0 {
            return !claims_consumer(field.name);
        }
        !(claims_consumer(field.name)
            || self.sources().any(hides)
            || self.is_guarded(field.name)
            || self.asks && TOLD.iter().any(|told| same_to_cgi(told, field.name))
            || is_cookie(field) && self.rewrites_cookies()
            || is_referer(field) && self.cuts_referer)
    }

    /// Passes to `put` the name and the value of each header of the gateway, and those of the client that are written anew
    /// without the credential. Of the latter, the client may have `nominated` some for its own connection.
    pub(crate) fn put(
        &self,
        fields: Fields<'_>,
        nominated: impl Fn(&[u8]) -> bool,
        mut put: impl FnMut(&[u8], &[u8]),
    ) {
        let is_passed = |name: &[u8]| !nominated(name) && !self.is_guarded(name);
        if self.rewrites_cookies() && is_passed(b"cookie") {
            for field in fields.iter().filter(is_cookie) {
                match without_cookies(field.value, self.sources()) {
                    Some(rest) if rest.is_empty() => {}
                    Some(rest) => put(b"cookie", &rest),
                    None => put(b"cookie", field.value),
                }
            }
        }
        if self.cuts_referer && is_passed(REFERER) {
            for field in fields.iter().filter(is_referer) {
                let rest = url_without_credentials(field.value, self.hidden());
                put(REFERER, rest.as_deref().unwrap_or(field.value));
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

    /// The places of credentials that no `referer` shows to the backend.
    fn hidden(&self) -> impl Iterator<Item = &'a CredentialSource> + Clone {
        Plan::hidden_sources(self.auths, self.auth)
    }

    /// Whether a service answers with this field: those of the client never pass.
    fn is_guarded(&self, name: &[u8]) -> bool {
        self.guarded.is_some_and(|guarded| guarded.has(name))
    }

    /// The places of the route's credentials.
    fn sources(&self) -> impl Iterator<Item = &'a CredentialSource> + Clone {
        let (all, named) = (self.auths, self.auth.map_or(&[][..], |auth| &auth.auths));
        named.iter().filter_map(|auth| all.get(auth.0)).map(|auth| &auth.source)
    }
}

fn is_cookie(field: &Field<'_>) -> bool {
    field.name.eq_ignore_ascii_case(COOKIE.as_str().as_bytes())
}

fn is_referer(field: &Field<'_>) -> bool {
    field.name.eq_ignore_ascii_case(REFERER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::auth::method::{ApiKeys, AuthMethod};
    use crate::http1::request::RequestHead;
    use crate::plan::Mode;
    use crate::plan::auth::AuthIndex;
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
            mode: Mode::Enforce,
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
            mode: Mode::Enforce,
            requirements: Box::default(),
        };
        let written = ConsumerHeaders::of(
            &auths,
            None,
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
        written.put(head.fields, |_| false, |name, value| lines.push(line(name, value)));
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
