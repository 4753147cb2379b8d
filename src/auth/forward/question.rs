//! A question: the request that is forwarded, as a service is asked about it.

use std::borrow::Cow;

use http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use smallvec::SmallVec;

use bytes::Bytes;

use super::ForwardSettings;
use crate::http1::fields::Fields;
use crate::http1::name::{claims_certificate, claims_consumer, same_to_cgi, with_hyphens};
use crate::http1::syntax::has_item;
use crate::limit::units::Timestamp;
use crate::net::client_certificate::ClientCertificate;
use crate::route::client::ClientAddress;
use crate::route::cookie;
use crate::route::credential::{CredentialSource, url_without_credentials};
use crate::route::guarded_headers::GuardedHeaders;

/// Fields of a request that concern its connection, its body or a copy of the response that the client has, and those that
/// the gateway writes.
const OWN_FIELDS: [&str; 21] = [
    "accept-ranges",
    "connection",
    "expect",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "x-real-ip",
];
/// Fields that only a trusted proxy sets: the backend does not get those of another client.
const OF_TRUSTED: [&str; 2] = ["x-request-id", "x-tollgate-mirror"];
/// Begins of the names of further ones.
const OWN_PREFIXES: [&str; 3] = ["content-", "x-forwarded-", "x-original-"];

/// A request that the service is asked about, as its backend gets it before the route rewrites the path.
#[derive(Clone, Debug)]
pub struct ForwardQuestion<'r> {
    /// Its method.
    pub method: &'r Method,
    /// Its Host: lower case, without final dot, with the port unless that is the scheme's default.
    pub authority: Cow<'r, str>,
    /// Its normalised path, as its route forwards it.
    pub path: &'r str,
    /// Its query, without credentials that the backend does not get.
    pub query: Option<Cow<'r, str>>,
    /// Its fields.
    pub fields: Fields<'r>,
    /// Its client.
    pub client: ClientAddress,
    /// Whether the client uses TLS.
    pub secure: bool,
    /// When it came.
    pub now: Timestamp,
    /// The fields that services answer with.
    pub guarded: &'r GuardedHeaders,
    /// The places of credentials that no backend gets in a `referer`.
    pub hidden: SmallVec<[&'r CredentialSource; 2]>,
    /// The field in which trusted proxies name the client.
    pub source: Option<&'r HeaderName>,
    /// Whether a trusted proxy has sent the request.
    pub trusted: bool,
    /// Whether the route forwards the client's certificate.
    pub forwards_certificate: bool,
    /// The client's certificate.
    pub certificate: Option<&'r ClientCertificate>,
}

/// A text of parts that is equal only if all parts are: each follows its length.
#[derive(Default)]
struct KeyText(Vec<u8>);

impl KeyText {
    fn put(&mut self, part: &[u8]) {
        self.0.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.0.extend_from_slice(part);
    }
}

impl ForwardQuestion<'_> {
    /// The path and query.
    pub fn uri(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        }
    }

    /// The whole URL.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority, self.uri())
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Whether a browser asks for a page.
    pub fn asks_for_page(&self) -> bool {
        let is_html = |item: &[u8]| {
            let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let kind = parts.next().unwrap_or_default();
            // A weight of zero refuses it (RFC 9110 §12.4.2).
            let refuses = |part: &[u8]| {
                let weight = part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q="));
                weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
            };
            kind.eq_ignore_ascii_case(b"text/html") && !parts.any(refuses)
        };
        let mut lists = self.fields.all(&ACCEPT).iter();
        *self.method == Method::GET && lists.any(|list| list.split(|byte| *byte == b',').any(is_html))
    }

    /// Whether it has something that the service could refuse as a wrong credential.
    pub fn has_credential(&self, settings: &ForwardSettings) -> bool {
        let by_field = |name: &[u8]| {
            name.eq_ignore_ascii_case(AUTHORIZATION.as_str().as_bytes())
                || settings.cache_by.iter().any(|by| same_to_cgi(by.as_str().as_bytes(), name))
        };
        let by_cookie = || match &settings.credential_cookies {
            Some(names) => names.iter().any(|name| cookie::all(self.fields, name).next().is_some()),
            None => self.fields.first(&COOKIE).is_some(),
        };
        self.fields.iter().any(|field| by_field(field.name)) || by_cookie()
    }

    /// A text of its client and of the credential that it certainly has, in `authorization` or in a cookie that the file
    /// names; `None`: it has none.
    pub fn named_credential(&self, settings: &ForwardSettings) -> Option<Vec<u8>> {
        let mut key = KeyText::default();
        for value in self.fields.all(&AUTHORIZATION).iter() {
            key.put(b"authorization");
            key.put(value);
        }
        for name in settings.credential_cookies.iter().flatten() {
            for value in cookie::all(self.fields, name) {
                key.put(b"cookie");
                key.put(name.as_bytes());
                key.put(&value);
            }
        }
        if key.0.is_empty() {
            return None;
        }
        key.put(self.client.network.to_string().as_bytes());
        Some(key.0)
    }

    /// A text that is equal only for questions with the same answer.
    pub fn cache_key(&self, settings: &ForwardSettings) -> Vec<u8> {
        let mut key = KeyText::default();
        key.put(self.method.as_str().as_bytes());
        key.put(self.authority.as_bytes());
        key.put(self.path.as_bytes());
        key.put(if self.query.is_some() { b"?" } else { b"" });
        key.put(self.query.as_deref().unwrap_or_default().as_bytes());
        key.put(self.scheme().as_bytes());
        key.put(self.client.address.to_string().as_bytes());
        key.put(if self.client.identified { b"" } else { b"unidentified" });
        key.put(self.forwarded_certificate().unwrap_or_default().as_bytes());
        let counts = |name: &[u8]| {
            name.eq_ignore_ascii_case(AUTHORIZATION.as_str().as_bytes())
                || name.eq_ignore_ascii_case(COOKIE.as_str().as_bytes())
                || (claims_certificate(name) && self.passes(name))
                || settings.cache_by.iter().any(|by| same_to_cgi(by.as_str().as_bytes(), name))
        };
        for field in self.fields.iter().filter(|field| counts(field.name)) {
            key.put(&field.name.to_ascii_lowercase());
            key.put(field.value);
        }
        key.0
    }

    /// The request to the service.
    pub(super) fn request(&self, settings: &ForwardSettings) -> Result<Request<Full<Bytes>>, http::Error> {
        let target = &settings.target;
        let mut request = Request::get(target.path.as_str()).body(Full::default())?;
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::from_str(&target.authority)?);
        for field in self.fields.iter().filter(|field| self.passes(field.name)) {
            let value = self.shown(field.name, field.value);
            fields.append(HeaderName::from_bytes(field.name)?, HeaderValue::from_bytes(&value)?);
        }
        let (uri, url) = (self.uri(), self.url());
        for (name, value) in [
            ("x-forwarded-method", self.method.as_str()),
            ("x-forwarded-proto", self.scheme()),
            ("x-forwarded-host", &self.authority),
            ("x-forwarded-uri", &uri),
            ("x-original-method", self.method.as_str()),
            ("x-original-uri", &uri),
            ("x-original-url", &url),
        ] {
            fields.insert(name, HeaderValue::from_str(value)?);
        }
        // No address is named for a client that is not identified: it would be the proxy's.
        if self.client.identified {
            let client = HeaderValue::from_str(&self.client.address.to_string())?;
            fields.insert("x-forwarded-for", client.clone());
            fields.insert("x-real-ip", client);
        }
        if let Some(certificate) = self.forwarded_certificate() {
            fields.insert("client-cert", HeaderValue::from_str(certificate)?);
        }
        Ok(request)
    }

    /// The value of `client-cert` for the backend and the service.
    fn forwarded_certificate(&self) -> Option<&str> {
        let certificate = self.certificate.filter(|_| self.forwards_certificate);
        certificate.map(|certificate| &*certificate.field_value)
    }

    /// Whether the service gets a field of the request.
    fn passes(&self, name: &[u8]) -> bool {
        let lower = name.to_ascii_lowercase();
        let hyphens = with_hyphens(&lower);
        let hyphens = hyphens.as_deref().unwrap_or(&lower);
        let is_named = || {
            let mut lists = self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"connection"));
            lists.any(|list| has_item(list.value, name))
        };
        !(OWN_FIELDS.iter().any(|own| own.as_bytes() == hyphens)
            || OWN_PREFIXES.iter().any(|prefix| hyphens.starts_with(prefix.as_bytes()))
            || self.guarded.has(name)
            || self.source.is_some_and(|source| {
                let source = source.as_str().as_bytes();
                source == hyphens && !(self.trusted && source == lower)
            })
            || (OF_TRUSTED.iter().any(|one| one.as_bytes() == hyphens)
                && !(self.trusted && lower == hyphens))
            || (claims_certificate(name) && (!self.trusted || self.forwards_certificate))
            || claims_consumer(name)
            || is_named())
    }

    /// The value of a field of the request as the service gets it.
    fn shown<'v>(&self, name: &[u8], value: &'v [u8]) -> Cow<'v, [u8]> {
        let rest = match name.eq_ignore_ascii_case(b"referer") {
            true => url_without_credentials(value, self.hidden.iter().copied()),
            false => None,
        };
        rest.map_or(Cow::Borrowed(value), Cow::Owned)
    }
}
