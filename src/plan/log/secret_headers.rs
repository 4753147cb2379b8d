//! Headers that are never logged, since their values are credentials.

use http::HeaderName;

use crate::route::credential::CredentialSource;
use crate::route::key::Part;

/// Headers whose values are credentials by convention, in lower case with hyphens.
const BUILT_IN: &[&str] = &[
    "access-token",
    "api-key",
    "api-token",
    "apikey",
    "auth-token",
    "authentication",
    "authorization",
    "cf-access-client-secret",
    "cf-access-jwt-assertion",
    "cookie",
    "cookie2",
    "csrf-token",
    "dpop",
    "id-token",
    "ocp-apim-subscription-key",
    "private-token",
    "proxy-authorization",
    "refresh-token",
    "sec-websocket-protocol",
    "set-cookie",
    "set-cookie2",
    "token",
    "x-access-token",
    "x-amz-security-token",
    "x-amzn-oidc-accesstoken",
    "x-amzn-oidc-data",
    "x-api-key",
    "x-api-token",
    "x-apikey",
    "x-auth",
    "x-auth-key",
    "x-auth-request-access-token",
    "x-auth-token",
    "x-authorization",
    "x-client-secret",
    "x-csrf-token",
    "x-csrftoken",
    "x-forwarded-access-token",
    "x-forwarded-authorization",
    "x-forwarded-id-token",
    "x-functions-key",
    "x-gitlab-token",
    "x-goog-api-key",
    "x-goog-iap-jwt-assertion",
    "x-id-token",
    "x-jwt",
    "x-jwt-assertion",
    "x-original-authorization",
    "x-password",
    "x-rapidapi-key",
    "x-refresh-token",
    "x-secret",
    "x-session-token",
    "x-token",
    "x-vault-token",
    "x-xsrf-token",
];

/// Headers that are never logged: a built-in list, and those that the file adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretHeaders {
    /// `[log] secret_headers`, and the headers that hold the credentials of `[auth]`; with hyphens.
    own: Box<[Box<str>]>,
    /// The query parameters that hold credentials of `[auth]`.
    queries: Box<[Box<str>]>,
}

impl SecretHeaders {
    /// The built-in list, these names, and those of these sources of credentials.
    pub fn new<'a>(
        names: impl IntoIterator<Item = &'a HeaderName>,
        sources: impl IntoIterator<Item = &'a CredentialSource>,
    ) -> Self {
        let mut own: Vec<_> = names.into_iter().map(|name| with_hyphens(name.as_str())).collect();
        let mut queries = Vec::new();
        for source in sources {
            match source {
                CredentialSource::Header(name) => own.push(with_hyphens(name.as_str())),
                CredentialSource::Query(name) => queries.push(name.as_str().into()),
                // `authorization` and `cookie` are built in.
                CredentialSource::Bearer
                | CredentialSource::Basic
                | CredentialSource::Request
                | CredentialSource::Cookie(_) => {}
            }
        }
        Self { own: own.into(), queries: queries.into() }
    }

    /// Whether the header is never logged. Many backends read `x_api_key` as `x-api-key`.
    pub fn has(&self, name: &HeaderName) -> bool {
        let name = with_hyphens(name.as_str());
        BUILT_IN.contains(&&*name) || self.own.contains(&name)
    }

    /// Whether a part of a key holds a credential. It is masked in the log, even if the limit has `reveal`.
    pub fn has_part(&self, part: &Part) -> bool {
        match part {
            Part::Header(name) => self.has(name),
            Part::Cookie(_) => true,
            Part::Query(name) => self.queries.iter().any(|query| **query == **name),
            Part::Descriptor(name) => HeaderName::try_from(name).is_ok_and(|name| self.has(&name)),
            _ => false,
        }
    }
}

fn with_hyphens(name: &str) -> Box<str> {
    name.replace('_', "-").into()
}
