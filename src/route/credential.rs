//! Credentials: where a request carries one, and the request without it.

use std::borrow::Cow;
use std::fmt;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

use super::part::{KeyFault, Part};
use super::{RouteRequest, cookie, query};
use crate::http1::fields::Field;
use crate::http1::name::{Name, same_to_cgi};

/// The place of a credential in a request. `Display` writes it as in the file: `header:x-api-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The whole value of a header.
    Header(HeaderName),
    /// `authorization` with the scheme `Bearer` (RFC 6750 §2.1).
    Bearer,
    /// `authorization` with the scheme `Basic` (RFC 7617): the text after it.
    Basic,
    /// The whole request: a service decides about it.
    Request,
    /// The query parameter of this name, decoded.
    Query(String),
    /// The cookie of this name, decoded.
    Cookie(String),
}

/// The credential that a request carries in one place.
#[derive(Debug, PartialEq, Eq)]
pub enum Credential<'r> {
    /// None, or an empty one.
    Missing,
    /// One, perhaps several times.
    Single(Cow<'r, [u8]>),
    /// Several that differ: a backend may read another one than the gateway.
    Repeated,
}

impl CredentialSource {
    /// Parses `"header:NAME"`, `"bearer"`, `"query:NAME"` or `"cookie:NAME"`.
    ///
    /// # Errors
    ///
    /// Any other form, and a name that no header, cookie or query parameter can have.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        let help = "write `header:NAME`, `bearer`, `query:NAME` or `cookie:NAME`";
        if text == "bearer" {
            return Ok(Self::Bearer);
        }
        match text.split_once(':') {
            Some(("header" | "query" | "cookie", _)) => match Part::parse(text)? {
                // A whole `authorization` would include the scheme.
                Part::Header(name) if name == AUTHORIZATION => KeyFault::new(
                    "`header:authorization` is not a place of an API key: its value begins with a scheme",
                    "write `bearer`: the client sends `authorization: Bearer KEY`",
                ),
                Part::Header(name) if name == COOKIE => {
                    KeyFault::new("`header:cookie` holds all cookies", "write `cookie:NAME`")
                }
                Part::Header(name) if Name::of(name.as_str().as_bytes()) != Name::Other => KeyFault::new(
                    format!("`{text}` is not a place of an API key: proxies read or write this header"),
                    "name a header of your own, such as `header:x-api-key`",
                ),
                Part::Header(name) => Ok(Self::Header(name)),
                Part::Query(name) => Ok(Self::Query(name)),
                Part::Cookie(name) => Ok(Self::Cookie(name)),
                _ => KeyFault::new(format!("`{text}` is not a place of a credential"), help),
            },
            _ => KeyFault::new(format!("`{text}` is not a place of a credential"), help),
        }
    }

    /// The credential of a request. Allocates only to decode an escaped cookie or query parameter.
    pub fn find<'r>(&'r self, request: &RouteRequest<'r>) -> Credential<'r> {
        match self {
            Self::Header(name) => Credential::of(request.headers.all(name).iter().map(Cow::Borrowed)),
            Self::Bearer => Credential::of_scheme(b"bearer", request),
            Self::Basic => Credential::of_scheme(b"basic", request),
            Self::Request => Credential::Missing,
            Self::Query(name) => {
                request.query.map_or(Credential::Missing, |query| Credential::of(query::all(query, name)))
            }
            Self::Cookie(name) => Credential::of(cookie::all(request.headers, name)),
        }
    }

    /// Whether this header carries nothing but the credential, so that a request without it lacks the header. A name
    /// with `_` for `-` is the same name: CGI and its successors do not tell the two apart.
    #[inline]
    pub fn is_field(&self, field: &Field<'_>) -> bool {
        match self {
            Self::Header(name) => same_to_cgi(name.as_str().as_bytes(), field.name),
            Self::Bearer => field.known == Name::Authorization && of_scheme(b"bearer", field.value).is_some(),
            Self::Basic => field.known == Name::Authorization && of_scheme(b"basic", field.value).is_some(),
            Self::Query(_) | Self::Cookie(_) | Self::Request => false,
        }
    }

    /// Whether a backend may read this header as the credential, but the gateway does not.
    pub fn is_twin(&self, field: &Field<'_>) -> bool {
        match self {
            Self::Header(name) => {
                let name = name.as_str().as_bytes();
                same_to_cgi(name, field.name) && !name.eq_ignore_ascii_case(field.name)
            }
            Self::Bearer | Self::Basic | Self::Query(_) | Self::Cookie(_) | Self::Request => false,
        }
    }
}

impl<'r> Credential<'r> {
    /// That of `authorization` with this scheme.
    fn of_scheme(scheme: &[u8], request: &RouteRequest<'r>) -> Self {
        let mut values = request.headers.all(&AUTHORIZATION).iter();
        let Some(first) = values.next() else { return Self::Missing };
        if values.any(|other| other != first) {
            return Self::Repeated;
        }
        let credential = of_scheme(scheme, first);
        credential.map_or(Self::Missing, |credential| Self::of(std::iter::once(Cow::Borrowed(credential))))
    }

    fn of(mut values: impl Iterator<Item = Cow<'r, [u8]>>) -> Self {
        match values.next() {
            None => Self::Missing,
            Some(first) => match values.any(|other| other != first) {
                true => Self::Repeated,
                false if first.is_empty() => Self::Missing,
                false => Self::Single(first),
            },
        }
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Bearer => f.write_str("bearer"),
            Self::Basic => f.write_str("basic"),
            Self::Request => f.write_str("request"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

/// The query without the credentials of these places; `None` if it has none of them.
pub fn without_credentials<'s>(
    query: &str,
    sources: impl Iterator<Item = &'s CredentialSource> + Clone,
) -> Option<String> {
    let names = sources.filter_map(|source| match source {
        CredentialSource::Query(name) => Some(name.as_bytes()),
        _ => None,
    });
    names.clone().next()?;
    query::without(query, |name| names.clone().any(|hidden| hidden == name))
}

/// A URL, such as that of `referer`, without the credentials of these places; `None` if it has none of them.
pub fn url_without_credentials<'s>(
    url: &[u8],
    sources: impl Iterator<Item = &'s CredentialSource> + Clone,
) -> Option<Vec<u8>> {
    let (before, query) = url.split_at(memchr::memchr(b'?', url)?);
    let query = query.get(1..)?;
    let (query, fragment) = query.split_at(memchr::memchr(b'#', query).unwrap_or(query.len()));
    let rest = match std::str::from_utf8(query) {
        Ok(query) => without_credentials(query, sources)?,
        // No browser sends such a query, and a backend may find a credential in it.
        Err(_) => String::new(),
    };
    let mark: &[u8] = if rest.is_empty() { b"" } else { b"?" };
    Some([before, mark, rest.as_bytes(), fragment].concat())
}

/// The value of a `cookie` header without the credentials of these places; `None` if it has none of them.
pub fn without_cookies<'s>(
    value: &[u8],
    sources: impl Iterator<Item = &'s CredentialSource> + Clone,
) -> Option<Vec<u8>> {
    let names = sources.filter_map(|source| match source {
        CredentialSource::Cookie(name) => Some(name.as_bytes()),
        _ => None,
    });
    names.clone().next()?;
    cookie::without(value, |name| names.clone().any(|hidden| hidden == name))
}

/// What stands after the scheme of `authorization`, perhaps empty; `None` for another scheme.
fn of_scheme<'v>(expected: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
    let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let (scheme, credential) = value.split_at(end);
    scheme.eq_ignore_ascii_case(expected).then(|| credential.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_credential_or_it_is_not() {
        let field = |name: &'static str, value: &'static str| Field {
            known: Name::of(name.as_bytes()),
            name: name.as_bytes(),
            value: value.as_bytes(),
        };
        let (bearer, basic) = (field("authorization", "Bearer a"), field("authorization", "Basic a"));
        let others = [field("proxy-authorization", "Bearer a"), field("proxy-authorization", "Basic a")];
        assert!(CredentialSource::Bearer.is_field(&bearer) && !CredentialSource::Bearer.is_field(&basic));
        assert!(CredentialSource::Basic.is_field(&basic) && !CredentialSource::Basic.is_field(&bearer));
        for other in others {
            assert!(!CredentialSource::Bearer.is_field(&other) && !CredentialSource::Basic.is_field(&other));
        }
    }

    #[test]
    fn a_bearer_token_follows_its_scheme() {
        let token = |value: &'static str| of_scheme(b"bearer", value.as_bytes());
        assert_eq!(token("Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(token("bEARER   abc "), Some(&b"abc"[..]));
        assert_eq!((token("Bearer"), token("Bearer ")), (Some(&b""[..]), Some(&b""[..])));
        assert_eq!((token("Basic abc"), token("Bearerabc"), token("")), (None, None, None));
    }

    #[test]
    fn several_values_are_one_credential_only_if_they_are_equal() {
        let of = |values: &[&'static str]| {
            Credential::of(
                values.iter().map(|value| Cow::Borrowed(value.as_bytes())).collect::<Vec<_>>().into_iter(),
            )
        };
        let single = |value: &'static str| Credential::Single(Cow::Borrowed(value.as_bytes()));
        assert_eq!((of(&[]), of(&[""])), (Credential::Missing, Credential::Missing));
        assert_eq!((of(&["a"]), of(&["a", "a"])), (single("a"), single("a")));
        assert_eq!((of(&["a", "b"]), of(&["a", ""])), (Credential::Repeated, Credential::Repeated));
    }

    #[test]
    fn a_source_is_written_as_it_is_parsed() {
        for text in ["header:x-api-key", "bearer", "query:api_key", "cookie:session"] {
            assert_eq!(CredentialSource::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "header:",
            "ip",
            "bearer:x",
            "header:authorization",
            "header:cookie",
            "header:host",
            "query:",
        ] {
            assert!(CredentialSource::parse(text).is_err(), "{text}");
        }
    }
}
