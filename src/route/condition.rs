//! Conditions of a route on values of the request: `headers`, `query`, `clients`.

use std::fmt;
use std::net::IpAddr;

use http::HeaderName;
use ipnet::{IpNet, Ipv4Net};

use super::{RouteRequest, query};

/// A value as a route requires it: `blue`, or `blue*` for every value that begins so; `*` is any value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValuePattern {
    /// Exactly this.
    Exact(Box<[u8]>),
    /// The value begins with this.
    Prefix(Box<[u8]>),
}

/// A condition on a value of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// On one of the header's values.
    Header(HeaderName, ValuePattern),
    /// On one of the decoded values of the query's parameter.
    Query(Box<str>, ValuePattern),
    /// The client's address is in one of these networks, which are disjoint.
    Clients(Box<[IpNet]>),
}

impl ValuePattern {
    /// Parses a value as written in the file.
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.as_bytes().into()),
            None => Self::Exact(text.as_bytes().into()),
        }
    }

    /// Whether a value matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => **exact == *value,
            Self::Prefix(prefix) => value.starts_with(prefix),
        }
    }

    /// The value, or its beginning.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Exact(bytes) | Self::Prefix(bytes) => bytes,
        }
    }
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if matches!(self, Self::Prefix(_)) { "*" } else { "" };
        write!(f, "{}{star}", String::from_utf8_lossy(self.bytes()))
    }
}

/// In a normal form: equal conditions have equal texts, and different ones different texts.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name, value) => write!(f, "header {name}: {value}"),
            Self::Query(name, value) => write!(f, "query {name}={value}"),
            Self::Clients(networks) => {
                f.write_str("clients")?;
                networks.iter().try_for_each(|network| write!(f, " {network}"))
            }
        }
    }
}

impl Condition {
    /// The condition that the client's address is in one of these networks.
    pub fn clients(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let canonical: Vec<_> = networks.into_iter().map(without_mapping).collect();
        Self::Clients(IpNet::aggregate(&canonical).into())
    }

    /// Whether the request satisfies the condition. A client that is not identified is in no network, since its address
    /// is that of a proxy, which many clients share.
    pub(super) fn holds(&self, request: &RouteRequest<'_>) -> bool {
        match self {
            Self::Header(name, value) => request.headers.all(name).iter().any(|sent| value.matches(sent)),
            Self::Query(name, value) => {
                let sent = request.query.unwrap_or_default();
                query::all(sent, name).any(|sent| value.matches(&sent))
            }
            Self::Clients(networks) => {
                let client = request.client;
                client.identified && networks.iter().any(|network| network.contains(&client.address))
            }
        }
    }
}

/// A network in IPv4-mapped form as the network of IPv4 that it is.
fn without_mapping(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let prefix = v6.prefix_len().checked_sub(96);
    let mapped = v6.network().to_ipv4_mapped().zip(prefix);
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}

/// The bytes by which an index finds a network: its [kind](network_kind), then its first address.
pub(super) fn network_key(network: IpNet) -> [u8; 17] {
    let mut key = [0; 17];
    key[0] = network_kind(network);
    match network.network() {
        IpAddr::V4(v4) => key[1..5].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key[1..].copy_from_slice(&v6.octets()),
    }
    key
}

/// The family and prefix of a network as one byte: 0 to 32 for IPv4, 64 to 192 for IPv6.
pub(super) fn network_kind(network: IpNet) -> u8 {
    match network {
        IpNet::V4(v4) => v4.prefix_len(),
        IpNet::V6(v6) => IPV6 + v6.prefix_len(),
    }
}

/// The network of this kind that contains the address; `None` if the address is of the other family.
pub(super) fn network_of(address: IpAddr, kind: u8) -> Option<IpNet> {
    let prefix = if address.is_ipv4() { kind } else { kind.checked_sub(IPV6)? };
    Some(IpNet::new(address, prefix).ok()?.trunc())
}

const IPV6: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_found_by_their_keys() {
        let networks =
            ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.7/32", "::/0", "2001:db8::/32", "2001:db8::7/128"];
        for network in networks {
            let network: IpNet = network.parse().unwrap();
            let found = network_of(network.broadcast(), network_kind(network)).unwrap();
            assert_eq!(network_key(found), network_key(network));
        }
        let v4: IpNet = "10.0.0.0/8".parse().unwrap();
        assert_eq!(network_of("2001:db8::1".parse().unwrap(), network_kind(v4)), None);
        let v6: IpNet = "2001:db8::/32".parse().unwrap();
        assert_eq!(network_of("10.1.2.3".parse().unwrap(), network_kind(v6)), None);
    }

    #[test]
    fn networks_that_touch_are_one() {
        let networks =
            ["::ffff:10.0.0.0/105", "10.128.0.0/9", "10.1.0.0/16"].map(|text| text.parse().unwrap());
        assert_eq!(Condition::clients(networks), Condition::Clients(["10.0.0.0/8".parse().unwrap()].into()));
    }
}
