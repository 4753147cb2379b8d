//! Whose allowance a request spends: keys, what happens when they are missing, and who is exempt.

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::Request;
use super::pattern::PathPattern;
use crate::limit::units::Fingerprint;

/// The secret that keys fingerprints, so that clients cannot make keys collide.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key: its parts in order. One part, or several for a composite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// At least one.
    pub parts: Vec<Part>,
    /// What happens when a header, cookie or query part is absent.
    pub missing: Missing,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The client's network.
    Ip,
    /// All values of a field, as sent.
    Header(HeaderName),
    /// A cookie's value.
    Cookie(String),
    /// A query parameter's value, percent-decoded.
    Query(String),
    /// The host.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
    /// The route's name.
    Route,
    /// Nothing: everybody shares one counter.
    Global,
}

/// What happens when a header, cookie or query part of the key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The client's network stands in.
    #[default]
    Ip,
    /// All such requests share one counter.
    Shared,
    /// The limit does not apply.
    Skip,
    /// Refused with 429.
    Deny,
}

/// Who is exempt from a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// Clients in this network (by address, not by prefix).
    Ip(IpNet),
    /// Requests that carry this field with this value.
    Header(HeaderName, HeaderValue),
    /// Requests to this path.
    Path(PathPattern),
}

/// What is wrong with a key or an exemption, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyFault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
}

/// Whose counter a request spends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This one's.
    Key(Fingerprint),
    /// None: a part is missing, and the limit is skipped then.
    Skip,
    /// A part is missing, and the request is refused then.
    Deny,
}

impl Part {
    /// Parses `"ip"`, `"header:NAME"`, … as written in the file.
    pub fn parse(_text: &str) -> Result<Self, KeyFault> {
        Ok(Self::Global)
    }

    /// Whether a client can invent the value at will (header, cookie, query), so that it alone protects nothing.
    pub fn invented_by_client(&self) -> bool {
        false
    }
}

impl Exemption {
    /// Parses `"ip:10.0.0.0/8"`, `"header:x-internal=1"`, `"path:/health"` as written in the file.
    pub fn parse(_text: &str) -> Result<Self, KeyFault> {
        Err(KeyFault { message: String::new(), help: String::new() })
    }

    /// Whether the request is exempt.
    pub fn holds(&self, _request: &Request<'_>) -> bool {
        false
    }
}

impl Key {
    /// The fingerprint of (`identity`, parts): parts are length-prefixed, so `("a:b","c")` and `("a","b:c")` differ.
    /// `identity` names limit, algorithm and policy. `route` is the matched route's name and `merge_slashes` its form of the path.
    pub fn claim(
        &self,
        _secret: &Secret,
        _identity: u64,
        _request: &Request<'_>,
        _route: &str,
        _merge_slashes: bool,
    ) -> Claim {
        Claim::Skip
    }

    /// The parts with the request's values, for people: `("header:x-api-key", Some("k-12…"))`. Values of header, cookie and
    /// query parts are shortened unless `reveal`.
    pub fn describe(
        &self,
        _request: &Request<'_>,
        _route: &str,
        _merge_slashes: bool,
        _reveal: bool,
    ) -> Vec<(String, Option<String>)> {
        Vec::new()
    }
}
