//! Exemptions from a limit.

use std::fmt;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::RouteRequest;
use super::client::covers;
use super::key_fault::KeyFault;
use super::pattern::PathPattern;

/// An exemption from a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// Clients in this network (by address, not by prefix) that are identified.
    Ip(IpNet),
    /// Requests with this header and this value, byte for byte, among its values.
    Header(HeaderName, HeaderValue),
    /// Requests to this path.
    Path(PathPattern),
}

impl Exemption {
    /// Parses `"ip:10.0.0.0/8"`, `"ip:10.0.0.1"`, `"header:x-internal=1"`, `"path:/health"` as written in the file.
    /// Bits of a network below its prefix are ignored.
    ///
    /// # Errors
    ///
    /// Any other form; a value that the named header or pattern cannot have.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        match text.split_once(':') {
            Some(("ip", network)) => parse_network(network),
            Some(("header", pair)) => parse_header(pair),
            Some(("path", pattern)) => match PathPattern::parse(pattern) {
                Ok(pattern) => Ok(Self::Path(pattern)),
                Err(fault) => Err(KeyFault { message: fault.message, help: fault.help }),
            },
            _ => KeyFault::new(
                // The text after `=` may be a secret.
                format!("`{}` is not an exemption", text.split_inclusive('=').next().unwrap_or_default()),
                "write `ip:10.0.0.0/8`, `header:x-internal=1` or `path:/health`",
            ),
        }
    }

    /// Whether the request is exempt. `merge_slashes` is the matched route's: its form of the path counts, since that
    /// form is forwarded.
    pub fn holds(&self, request: &RouteRequest<'_>, merge_slashes: bool) -> bool {
        match self {
            Self::Ip(network) => request.client.identified && covers(network, request.client.address),
            Self::Header(name, value) => {
                request.headers.all(name).iter().any(|sent| sent == value.as_bytes())
            }
            Self::Path(pattern) => pattern.matches(request.path.form(merge_slashes)),
        }
    }
}

impl fmt::Display for Exemption {
    /// As written in the file, except a header's value: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(network) if network.prefix_len() == network.max_prefix_len() => {
                write!(f, "ip:{}", network.addr())
            }
            Self::Ip(network) => write!(f, "ip:{network}"),
            Self::Header(name, _) => write!(f, "header:{name}=…"),
            Self::Path(pattern) => write!(f, "path:{pattern}"),
        }
    }
}

fn parse_network(text: &str) -> Result<Exemption, KeyFault> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Exemption::Ip(address.to_canonical().into()));
    }
    match text.parse::<IpNet>() {
        Ok(network) => Ok(Exemption::Ip(network.trunc())),
        Err(_) => KeyFault::new(
            format!("`{text}` is neither an address nor a network"),
            "write an address (`ip:192.0.2.1`, `ip:2001:db8::1`) or a network (`ip:10.0.0.0/8`)",
        ),
    }
}

fn parse_header(pair: &str) -> Result<Exemption, KeyFault> {
    let Some((name, value)) = pair.split_once('=').filter(|(_, value)| !value.is_empty()) else {
        return KeyFault::new(
            format!("`header:{pair}` has no value"),
            format!("write the value that exempts: `header:{}=secret`", pair.trim_end_matches('=')),
        );
    };
    let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
    match parsed {
        Some((name, value)) if value.as_bytes().trim_ascii() == value.as_bytes() => {
            Ok(Exemption::Header(name, value))
        }
        _ => KeyFault::new(
            // The value may be a secret.
            format!("no request can carry the header `{name}` with this value"),
            "write a field's name and value without blanks around them, as in `header:x-internal=1`",
        ),
    }
}
