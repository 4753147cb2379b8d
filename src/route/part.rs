//! The parts of a key; also the fault of a key or an exemption.

use std::borrow::Cow;
use std::fmt;

use http::HeaderName;

use super::claim::ClaimPath;
use super::mask::Masking;
use super::network_prefixes::NetworkPrefixes;
use super::part_value::PartValue;
use super::{MatchedRequest, cookie, descriptor, query};
use crate::measure::JsonPointer;
use crate::net::client_certificate::ClientCertificate;

/// One part of a key. `Display` writes it as in the file: `header:x-api-key`.
///
/// A header, cookie or query parameter with an empty value counts as absent: so a client cannot bypass `missing` with
/// an empty value. Equal values count as one; [`Repeated`] decides about several different ones, including an empty
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The client's network.
    Ip,
    /// The client's network by prefixes of its own.
    Network(NetworkPrefixes),
    /// The country of the client's address, as ISO 3166-1 names it: `DE`. Absent where it is unknown.
    Country,
    /// The autonomous system of the client's address: `AS64500`. Absent where it is unknown.
    AutonomousSystem,
    /// The value of a header, byte for byte and whole.
    Header(HeaderName),
    /// The value of the cookie of this name, percent-decoded, without quotes around it. Names are case-sensitive.
    Cookie(String),
    /// The value of the query parameter of this name, percent-decoded, `+` as blank. Names are case-sensitive.
    Query(String),
    /// The host.
    Host,
    /// The path, in the form that the route matched: `/Login/` is `/login`, unless paths are matched strictly.
    Path,
    /// The method.
    Method,
    /// The route's name.
    Route,
    /// The name of the upstream that the request goes to.
    Upstream,
    /// Nothing: all clients share one counter.
    Global,
    /// The subject of the client's certificate, as `CN=a, O=b`. Absent without one, or if it is empty.
    TlsSubject,
    /// A field of the client's certificate. Absent without one, or if it lacks the field.
    ClientCertificate(CertificateField),
    /// The name of the consumer. Absent of an anonymous request.
    Consumer,
    /// The consumer's value in this column of its file. Absent of an anonymous request, or if it is empty.
    ConsumerColumn(String),
    /// The text of this claim of the consumer's token, which was verified. Absent of a request without one, or if it is
    /// empty, or no text, whole number or boolean.
    JwtClaim(ClaimPath),
    /// The value at this place of the request body, a JSON document: a text, a number or a boolean. Absent if there is
    /// none, or it is `null` or empty.
    JsonMember(JsonPointer),
    /// The value of this field of the request body, a form.
    FormField(String),
    /// The value of the entries of this name of a descriptor, about which another proxy asks. It may be empty.
    Descriptor(String),
}

/// A field of a client's certificate, by which limits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CertificateField {
    /// The common name of the subject.
    CommonName,
    /// The subject alternative name: a URI, else a DNS name, an e-mail address or an IP address.
    AlternativeName,
    /// The SHA-256 of the certificate, in hexadecimal digits.
    Fingerprint,
}

impl CertificateField {
    /// All of them, by the word in the file.
    const ALL: [(&'static str, Self); 3] =
        [("cn", Self::CommonName), ("san", Self::AlternativeName), ("fingerprint", Self::Fingerprint)];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, field)| *field == self).map_or("", |(word, _)| word)
    }

    fn of(self, certificate: &ClientCertificate) -> Option<&str> {
        match self {
            Self::CommonName => certificate.common_name.as_deref(),
            Self::AlternativeName => certificate.alternative_name.as_deref(),
            Self::Fingerprint => Some(&certificate.fingerprint),
        }
    }
}

/// The rule for several different values of a header, cookie or query part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Malformed: the request is refused with 400.
    Deny,
    /// Treated as absent: [`Missing`](super::key::Missing) applies.
    Missing,
    /// One key of all values together, in order.
    Join,
}

/// The parts without a name.
const NAMELESS: [(&str, Part); 10] = [
    ("ip", Part::Ip),
    ("country", Part::Country),
    ("asn", Part::AutonomousSystem),
    ("host", Part::Host),
    ("path", Part::Path),
    ("method", Part::Method),
    ("route", Part::Route),
    ("upstream", Part::Upstream),
    ("global", Part::Global),
    ("consumer", Part::Consumer),
];

impl Part {
    /// Parses `"ip"`, `"header:NAME"`, … as written in the file.
    ///
    /// # Errors
    ///
    /// Any other word, and a name that no header, cookie or query parameter can have.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        const ALL: &str = "write `ip`, `ip/24`, `country`, `asn`, `header:NAME`, `cookie:NAME`, `query:NAME`, `host`, `path`, `method`, `route`, `upstream`, `global`, `consumer`, `consumer:COLUMN`, `jwt:CLAIM`, `json:/POINTER`, `form:NAME`, `descriptor:NAME`, `tls:subject` or `client-cert:cn`";
        let nameless = |word: &str| NAMELESS.iter().find(|(known, _)| *known == word);
        if let Some((_, part)) = nameless(text) {
            return Ok(part.clone());
        }
        match text.split_once(':') {
            None => match text {
                "header" | "cookie" | "query" => {
                    KeyFault::new(format!("the key `{text}` lacks a name"), format!("write `{text}:NAME`"))
                }
                _ => match text.strip_prefix("ip/") {
                    Some(prefixes) => Self::network(prefixes),
                    None => KeyFault::new(format!("`{text}` is not a key"), ALL),
                },
            },
            Some((kind @ ("header" | "cookie" | "query"), name)) => Self::named(kind, name),
            // A consumer has columns.
            Some((kind, _)) if kind != "consumer" && nameless(kind).is_some() => {
                KeyFault::new(format!("the key `{kind}` takes no name"), format!("write `{kind}`"))
            }
            Some(("tls", "subject")) => Ok(Self::TlsSubject),
            Some(("client-cert", word)) => {
                match CertificateField::ALL.iter().find(|(known, _)| *known == word) {
                    Some((_, field)) => Ok(Self::ClientCertificate(*field)),
                    None => KeyFault::new(
                        format!("`{text}` is no field of a certificate"),
                        "write `client-cert:cn`, `client-cert:san` or `client-cert:fingerprint`",
                    ),
                }
            }
            Some(("consumer", column)) if !column.is_empty() => Ok(Self::ConsumerColumn(column.into())),
            Some(("consumer", _)) => {
                KeyFault::new("the key `consumer:` lacks a column", "write `consumer`, or `consumer:COLUMN`")
            }
            Some(("jwt", claim)) if !claim.is_empty() => match ClaimPath::parse(claim) {
                Ok(claim) => Ok(Self::JwtClaim(claim)),
                Err(fault) => KeyFault::new(
                    format!("`{text}`: {fault}"),
                    "write, for example, `jwt:/realm_access/plan`",
                ),
            },
            Some(("jwt", _)) => {
                KeyFault::new("the key `jwt:` lacks a claim", "write `jwt:CLAIM`, as in `jwt:sub`")
            }
            Some(("json", pointer)) => match JsonPointer::parse(pointer) {
                Ok(_) if pointer.is_empty() => KeyFault::new(
                    "the key `json:` lacks a place",
                    "write `json:/POINTER`, as in `json:/username`",
                ),
                Ok(pointer) => Ok(Self::JsonMember(pointer)),
                Err(fault) => {
                    KeyFault::new(format!("`{text}`: {fault}"), "write, for example, `json:/user/name`")
                }
            },
            Some(("form", name)) if !name.is_empty() => Ok(Self::FormField(name.into())),
            Some(("form", _)) => {
                KeyFault::new("the key `form:` lacks a field", "write `form:NAME`, as in `form:username`")
            }
            Some(("descriptor", name)) if !name.is_empty() => Ok(Self::Descriptor(name.into())),
            Some(("descriptor", _)) => KeyFault::new(
                "the key `descriptor:` lacks the name of an entry",
                "write `descriptor:NAME`, as in `descriptor:remote_address`",
            ),
            Some(_) => KeyFault::new(format!("`{text}` is not a key"), ALL),
        }
    }

    /// Whether a request may lack it.
    pub fn may_be_missing(&self) -> bool {
        self.invented_by_client()
            || self.is_of_consumer()
            || self.is_of_certificate()
            || self.is_of_location()
    }

    /// Whether its value is that of the client's certificate.
    pub fn is_of_certificate(&self) -> bool {
        matches!(self, Self::TlsSubject | Self::ClientCertificate(_))
    }

    /// Whether it tells where the client's address is.
    pub fn is_of_location(&self) -> bool {
        matches!(self, Self::Country | Self::AutonomousSystem)
    }

    /// Whether it is the client's network.
    pub fn is_address(&self) -> bool {
        matches!(self, Self::Ip | Self::Network(_))
    }

    /// Whether two values of it may be one text in different spellings.
    pub fn has_spellings(&self) -> bool {
        match self {
            Self::Ip | Self::Network(_) | Self::Country | Self::AutonomousSystem | Self::Host => false,
            Self::Route | Self::Upstream | Self::Global => false,
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Path | Self::Method => true,
            Self::TlsSubject | Self::ClientCertificate(_) | Self::Consumer | Self::ConsumerColumn(_) => true,
            Self::JwtClaim(_) | Self::JsonMember(_) | Self::FormField(_) | Self::Descriptor(_) => true,
        }
    }

    /// Whether a client can invent the value at will (header, cookie, query, body), so that the part alone limits no
    /// client.
    pub fn invented_by_client(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_)) || self.is_of_body()
    }

    /// Whether its value stands in the body of the request.
    pub fn is_of_body(&self) -> bool {
        matches!(self, Self::JsonMember(_) | Self::FormField(_))
    }

    /// The member of JSON bodies that it is, if it is one.
    pub fn json_pointer(&self) -> Option<&JsonPointer> {
        match self {
            Self::JsonMember(pointer) => Some(pointer),
            _ => None,
        }
    }

    /// Whether it tells clients apart.
    pub fn is_of_client(&self) -> bool {
        !matches!(self, Self::Host | Self::Path | Self::Method | Self::Route | Self::Upstream | Self::Global)
    }

    /// Whether its value is that of a consumer, which is known on routes with `auth` only.
    pub fn is_of_consumer(&self) -> bool {
        matches!(self, Self::Consumer | Self::ConsumerColumn(_) | Self::JwtClaim(_))
    }

    /// The name of the descriptor's entries that it is, if it is of a descriptor.
    pub fn descriptor(&self) -> Option<&str> {
        if let Self::Descriptor(name) = self { Some(name) } else { None }
    }

    /// Whether a descriptor has it: the others are of requests.
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Descriptor(_) | Self::Global | Self::Route)
    }

    /// How its values are shown: masked only if they may be secret.
    pub(super) fn masking<'a>(&self, masking: Masking<'a>) -> Masking<'a> {
        let may_be_secret = match self {
            Self::Descriptor(name) => !descriptor::is_shown(name),
            part => part.invented_by_client(),
        };
        if may_be_secret { masking } else { Masking::Off }
    }

    /// Whether its values begin with the scheme of credentials.
    pub(super) fn is_authorization(&self) -> bool {
        matches!(self, Self::Header(name) if *name == http::header::AUTHORIZATION)
    }

    /// The default rule for several values of it. Backends differ in which header or parameter they read, while
    /// browsers send several cookies of one name for different paths.
    pub fn repeated(&self) -> Repeated {
        match self {
            Self::Cookie(_) => Repeated::Missing,
            _ => Repeated::Deny,
        }
    }

    fn network(prefixes: &str) -> Result<Self, KeyFault> {
        match NetworkPrefixes::parse(prefixes) {
            Some(prefixes) => Ok(Self::Network(prefixes)),
            None => KeyFault::new(
                format!("the key `ip/{prefixes}` has no valid prefix length"),
                "write `ip/24` (IPv4: 1 to 32), `ip/48` (IPv6: 33 to 128) or `ip/24,48` (IPv4: 1 to 32, then IPv6: 1 to 128)",
            ),
        }
    }

    fn named(kind: &str, name: &str) -> Result<Self, KeyFault> {
        // Cookie names are tokens (RFC 6265 §4.1.1), like header names (RFC 9110 §5.1); parameter names are any text.
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

    /// The value of this part in a request; with `join`, several values are one key.
    pub(super) fn find<'r>(
        &'r self,
        MatchedRequest { request, route, merge_slashes }: MatchedRequest<'r>,
        join: bool,
    ) -> PartValue<'r> {
        let text = |text: &'r str| PartValue::Bytes(Cow::Borrowed(text.as_bytes()));
        match self {
            Self::Ip => PartValue::Address(request.client.network),
            Self::Network(prefixes) => {
                PartValue::Address(prefixes.network(request.client.address, request.client.network))
            }
            Self::Country => {
                let country = request.client.location.country.as_ref();
                country.map_or(PartValue::Missing, |country| text(country.as_str()))
            }
            Self::AutonomousSystem => {
                let system = request.client.location.system;
                PartValue::or_missing(system.map(|system| system.to_string().into_bytes().into()))
            }
            Self::Header(name) => PartValue::of_header(request.headers.all(name), join),
            Self::Cookie(name) => PartValue::of_values(cookie::all(request.headers, name), join),
            Self::Query(name) => request
                .query
                .map_or(PartValue::Missing, |query| PartValue::of_values(query::all(query, name), join)),
            Self::Host => text(request.host),
            Self::Path => text(request.path.folded(merge_slashes)),
            Self::Method => text(request.method.as_str()),
            Self::Route => text(route),
            Self::Upstream => request.upstream.map_or(PartValue::Nothing, text),
            Self::Global => PartValue::Nothing,
            Self::Consumer => request.consumer.map_or(PartValue::Missing, |consumer| text(consumer.name())),
            Self::ConsumerColumn(column) => {
                request.consumer.and_then(|consumer| consumer.column(column)).map_or(PartValue::Missing, text)
            }
            Self::JwtClaim(claim) => request
                .consumer
                .and_then(|consumer| consumer.claim(claim.as_str()))
                .map_or(PartValue::Missing, text),
            Self::JsonMember(pointer) => PartValue::of_body(request.content.member(pointer)),
            Self::FormField(name) => PartValue::of_body(request.content.field(name)),
            Self::Descriptor(name) => PartValue::of_entries(request.content.entries(name)),
            Self::ClientCertificate(field) => request
                .certificate
                .and_then(|certificate| field.of(certificate))
                .map_or(PartValue::Missing, text),
            Self::TlsSubject => PartValue::or_missing(
                request.certificate.map(|certificate| Cow::Borrowed(certificate.subject.as_bytes())),
            ),
        }
    }

    /// The kind of the part, in a fingerprint.
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
            Self::Consumer => 10,
            Self::ConsumerColumn(_) => 11,
            Self::JwtClaim(_) => 12,
            Self::JsonMember(_) => 13,
            Self::FormField(_) => 14,
            Self::Network(_) => 15,
            Self::Descriptor(_) => 16,
            Self::Upstream => 17,
            Self::ClientCertificate(CertificateField::CommonName) => 18,
            Self::ClientCertificate(CertificateField::AlternativeName) => 19,
            Self::ClientCertificate(CertificateField::Fingerprint) => 20,
            Self::Country => 21,
            Self::AutonomousSystem => 22,
        }
    }

    /// As in `per client address`.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Ip => "client address".into(),
            Self::Network(prefixes) => format!("client network (`/{prefixes}`)"),
            Self::Country => "country".into(),
            Self::AutonomousSystem => "autonomous system".into(),
            Self::Header(name) => format!("header `{name}`"),
            Self::Cookie(name) => format!("cookie `{name}`"),
            Self::Query(name) => format!("query parameter `{name}`"),
            Self::Host => "host".into(),
            Self::Path => "path".into(),
            Self::Method => "method".into(),
            Self::Route => "route".into(),
            Self::Upstream => "upstream".into(),
            Self::Global => "everybody".into(),
            Self::TlsSubject => "subject of the client certificate".into(),
            Self::ClientCertificate(field) => format!("`{}` of the client certificate", field.word()),
            Self::Consumer => "consumer".into(),
            Self::ConsumerColumn(column) => format!("`{column}` of the consumer"),
            Self::JwtClaim(claim) => format!("claim `{claim}` of the token"),
            Self::JsonMember(pointer) => format!("`{pointer}` of the JSON body"),
            Self::FormField(name) => format!("form field `{name}`"),
            Self::Descriptor(name) => format!("`{name}` of the descriptor"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Network(prefixes) => write!(f, "ip/{prefixes}"),
            Self::Country => f.write_str("country"),
            Self::AutonomousSystem => f.write_str("asn"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Route => f.write_str("route"),
            Self::Upstream => f.write_str("upstream"),
            Self::Global => f.write_str("global"),
            Self::TlsSubject => f.write_str("tls:subject"),
            Self::ClientCertificate(field) => write!(f, "client-cert:{}", field.word()),
            Self::Consumer => f.write_str("consumer"),
            Self::ConsumerColumn(column) => write!(f, "consumer:{column}"),
            Self::JwtClaim(claim) => write!(f, "jwt:{claim}"),
            Self::JsonMember(pointer) => write!(f, "json:{pointer}"),
            Self::FormField(name) => write!(f, "form:{name}"),
            Self::Descriptor(name) => write!(f, "descriptor:{name}"),
        }
    }
}

/// The fault of a key or an exemption, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyFault {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl KeyFault {
    pub(super) fn new<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Self> {
        Err(Self { message: message.into(), help: help.into() })
    }
}
