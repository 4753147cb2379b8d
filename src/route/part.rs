//! What a key is made of, and what that is in a request.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use http::HeaderName;

use super::key::KeyFault;
use super::{Request, cookie, query};
use crate::http1::fields::Values;

/// One part of a key. `Display` writes it as in the file: `header:x-api-key`.
///
/// A header, cookie or query parameter with an empty value counts as absent: so a client cannot get around
/// `missing` by sending nothing under the right name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The client's network.
    Ip,
    /// All values of a field, in order, byte for byte and whole. Absent if there is none, or all are empty.
    Header(HeaderName),
    /// The value of the first cookie of this name, without quotes around it. Names are case-sensitive.
    Cookie(String),
    /// The value of the first query parameter of this name, percent-decoded, `+` as blank. Names are case-sensitive.
    Query(String),
    /// The host.
    Host,
    /// The path, in the form that the route matched.
    Path,
    /// The method.
    Method,
    /// The route's name.
    Route,
    /// Nothing: everybody shares one counter.
    Global,
    /// The subject of the client's certificate, as `CN=a, O=b`. Absent without one, or if it is empty.
    TlsSubject,
}

/// What a part is in a request.
pub(super) enum Found<'r> {
    Missing,
    /// A part that is the same for everybody.
    Nothing,
    Address(IpAddr),
    Bytes(Cow<'r, [u8]>),
    /// At least one, and not all empty.
    Values(Values<'r, 'r>),
}

impl Part {
    /// Parses `"ip"`, `"header:NAME"`, … as written in the file.
    ///
    /// # Errors
    /// Any other word, and a name that no header, cookie or query parameter can have.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        const ALL: &str = "write `ip`, `header:NAME`, `cookie:NAME`, `query:NAME`, `host`, `path`, `method`, `route`, `global` or `tls:subject`";
        match text.split_once(':') {
            None => match text {
                "ip" => Ok(Self::Ip),
                "host" => Ok(Self::Host),
                "path" => Ok(Self::Path),
                "method" => Ok(Self::Method),
                "route" => Ok(Self::Route),
                "global" => Ok(Self::Global),
                "header" | "cookie" | "query" => {
                    KeyFault::new(format!("the key `{text}` lacks a name"), format!("write `{text}:NAME`"))
                }
                _ => KeyFault::new(format!("`{text}` is not a key"), ALL),
            },
            Some((kind @ ("header" | "cookie" | "query"), name)) => Self::named(kind, name),
            Some((kind @ ("ip" | "host" | "path" | "method" | "route" | "global"), _)) => {
                KeyFault::new(format!("the key `{kind}` takes no name"), format!("write `{kind}`"))
            }
            Some(("tls", "subject")) => Ok(Self::TlsSubject),
            Some(("jwt", _)) => {
                KeyFault::new(format!("the key `{text}` is not available in this version"), ALL)
            }
            Some(_) => KeyFault::new(format!("`{text}` is not a key"), ALL),
        }
    }

    /// Whether a request may lack it.
    pub fn may_be_missing(&self) -> bool {
        self.invented_by_client() || *self == Self::TlsSubject
    }

    /// Whether a client can invent the value at will (header, cookie, query), so that it alone protects nothing.
    pub fn invented_by_client(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_))
    }

    fn named(kind: &str, name: &str) -> Result<Self, KeyFault> {
        // Cookies' names are tokens (RFC 6265 §4.1.1), as fields' are (RFC 9110 §5.1); parameters' are any text.
        let token = HeaderName::try_from(name).ok();
        match (kind, token) {
            ("header", Some(token)) => Ok(Self::Header(token)),
            ("cookie", Some(_)) => Ok(Self::Cookie(name.into())),
            ("query", _) if !name.is_empty() => Ok(Self::Query(name.into())),
            _ => KeyFault::new(
                format!("the key `{kind}:{name}` lacks a valid name"),
                format!("write `{kind}:NAME`, as in `{kind}:api-key`"),
            ),
        }
    }

    /// What this part is in a request.
    pub(super) fn find<'r>(
        &'r self,
        request: &Request<'r>,
        route: &'r str,
        merge_slashes: bool,
    ) -> Found<'r> {
        let text = |text: &'r str| Found::Bytes(Cow::Borrowed(text.as_bytes()));
        match self {
            Self::Ip => Found::Address(request.client.network),
            Self::Header(name) => {
                let values = request.headers.all(name);
                if values.iter().all(<[u8]>::is_empty) { Found::Missing } else { Found::Values(values) }
            }
            Self::Cookie(name) => Found::or_missing(cookie::first(request.headers, name).map(Cow::Borrowed)),
            Self::Query(name) => Found::or_missing(request.query.and_then(|query| query::first(query, name))),
            Self::Host => text(request.host),
            Self::Path => text(request.path.form(merge_slashes)),
            Self::Method => text(request.method.as_str()),
            Self::Route => text(route),
            Self::Global => Found::Nothing,
            Self::TlsSubject => {
                Found::or_missing(request.tls_subject.map(|subject| Cow::Borrowed(subject.as_bytes())))
            }
        }
    }

    /// Which kind of part this is, in a fingerprint.
    pub(super) fn tag(&self) -> u8 {
        match self {
            Self::Ip => 0,
            Self::Header(_) => 1,
            Self::Cookie(_) => 2,
            Self::Query(_) => 3,
            Self::Host => 4,
            Self::Path => 5,
            Self::Method => 6,
            Self::Route => 7,
            Self::Global => 8,
            Self::TlsSubject => 9,
        }
    }

    /// As in `per client address`.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Ip => "client address".into(),
            Self::Header(name) => format!("header `{name}`"),
            Self::Cookie(name) => format!("cookie `{name}`"),
            Self::Query(name) => format!("query parameter `{name}`"),
            Self::Host => "host".into(),
            Self::Path => "path".into(),
            Self::Method => "method".into(),
            Self::Route => "route".into(),
            Self::Global => "everybody".into(),
            Self::TlsSubject => "subject of the client certificate".into(),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Route => f.write_str("route"),
            Self::Global => f.write_str("global"),
            Self::TlsSubject => f.write_str("tls:subject"),
        }
    }
}

impl<'r> Found<'r> {
    fn or_missing(value: Option<Cow<'r, [u8]>>) -> Self {
        value.filter(|value| !value.is_empty()).map_or(Self::Missing, Self::Bytes)
    }

    /// For people: shortened unless `whole`, controls and bytes that are not UTF-8 escaped.
    pub(super) fn words(&self, whole: bool) -> Option<String> {
        let text = match self {
            Self::Missing | Self::Nothing => return None,
            Self::Address(address) => return Some(address.to_string()),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Values(values) => {
                let texts: Vec<_> = values.iter().map(String::from_utf8_lossy).collect();
                texts.join(", ")
            }
        };
        let shown = match text.chars().count() {
            _ if whole => text.escape_debug().to_string(),
            ..12 => "…".into(),
            12.. => format!("{}…", text.chars().take(4).flat_map(char::escape_debug).collect::<String>()),
        };
        Some(shown)
    }

    /// The same behind what stands in `out`, of a long value no more than so many characters and `…`.
    pub(super) fn write(&self, whole: bool, most: usize, out: &mut String) {
        match self {
            Self::Missing | Self::Nothing => {}
            // Writing to a `String` cannot fail.
            Self::Address(address) => _ = write!(out, "{address}"),
            Self::Bytes(bytes) => write_cut(&String::from_utf8_lossy(bytes), whole, most, out),
            Self::Values(values) => {
                let texts: Vec<_> = values.iter().map(String::from_utf8_lossy).collect();
                match texts.as_slice() {
                    [text] => write_cut(text, whole, most, out),
                    texts => write_cut(&texts.join(", "), whole, most, out),
                }
            }
        }
    }
}

fn write_cut(text: &str, whole: bool, most: usize, out: &mut String) {
    let is_long = || text.chars().nth(11).is_some();
    // What is missing is no value, so there is a character to cut.
    let most = if whole { most } else { 4 * usize::from(is_long()) };
    let cut = text.char_indices().nth(most).and_then(|(end, _)| text.get(..end));
    // Writing to a `String` cannot fail.
    let _ = write!(out, "{}", cut.unwrap_or(text).escape_debug());
    if cut.is_some() {
        out.push('…');
    }
}
