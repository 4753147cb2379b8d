//! The client's address behind trusted proxies.
//!
//! Only one source is trusted, the one that the config file names. Most proxies write one header and forward the others
//! as the client sent them, and no request shows which one the proxy wrote. A proxy appends to the right of a list;
//! items further left came from its own peer. So lists are read from the right, past trusted addresses, and the first
//! address that is not trusted is the client.
//!
//! Access by address is checked with that address: `allow` and `deny` ([`AddressRules`]).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::locations::{ClientLocation, Locations};
use super::network_prefixes::masked;
use super::networks::Networks;
use crate::http1::fields::Fields;
use crate::http1::name::Name;

/// The maximum number of items of a list of hops that are read, empty ones included.
const MAX_ITEMS: usize = 64;

/// A client's address, and the network that identifies it in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The address (an IPv4-mapped IPv6 address is its IPv4 address).
    pub address: IpAddr,
    /// The address with all bits below the configured prefix cleared: one client per network prefix.
    pub network: IpAddr,
    /// Whether the address is certainly the client's. If not, a trusted proxy named a client that cannot be read:
    /// `address` is the last trusted hop that can, and is shared by many clients. So it gets no exemptions by address and
    /// no automatic bans, no route with a `deny` admits it, and servers and services are not told of it.
    pub identified: bool,
    /// Where the address is; unknown if the client is not identified.
    pub location: ClientLocation,
}

/// The header of trusted proxies that names the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientSource {
    /// The list in X-Forwarded-For.
    #[default]
    XForwardedFor,
    /// The list in Forwarded (RFC 7239).
    Forwarded,
    /// The one address in this header; of several lines the last counts.
    Header(HeaderName),
    /// None: the peer is the client.
    Peer,
}

/// The trusted proxies, and the network prefix that counts as one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The trusted proxies.
    pub trusted_proxies: Vec<IpNet>,
    /// The header in which they name the client.
    pub source: ClientSource,
    /// Prefix length of an IPv4 client, 0 to 32 (more counts as 32).
    pub ipv4_prefix: u8,
    /// Prefix length of an IPv6 client, 0 to 128 (more counts as 128).
    pub ipv6_prefix: u8,
    /// Where addresses are, if that is asked.
    pub locations: Option<Arc<Locations>>,
}

impl Default for ClientRule {
    /// No proxy is trusted; a client is one IPv4 address or one IPv6 /64, which is the usual size for one subscriber
    /// (RFC 6177).
    fn default() -> Self {
        let source = ClientSource::default();
        Self { trusted_proxies: Vec::new(), source, ipv4_prefix: 32, ipv6_prefix: 64, locations: None }
    }
}

impl ClientRule {
    /// Whether `peer` is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trusted_proxies.iter().any(|network| covers(network, peer))
    }

    /// The client with this `address`.
    pub fn client(&self, address: IpAddr) -> ClientAddress {
        let address = address.to_canonical();
        let length = if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix };
        let location = self.locations.as_ref().map(|locations| locations.of(address)).unwrap_or_default();
        ClientAddress { address, network: masked(address, length), identified: true, location }
    }

    /// The client with this address, unless others share it.
    fn client_if(&self, identified: bool, address: IpAddr) -> ClientAddress {
        let client = self.client(address);
        match identified {
            true => client,
            false => ClientAddress { identified, location: ClientLocation::default(), ..client },
        }
    }

    /// The client behind `peer`: the peer itself unless it is trusted; else the one that the source names. Without the
    /// source, as in a health check, the peer is the client. At most 64 items of a list are read, empty ones included;
    /// malformed items, `unknown` and obfuscated names (`_id`) end the walk at the last valid hop. Does not allocate.
    pub fn identify(&self, peer: IpAddr, headers: Fields<'_>) -> ClientAddress {
        if !self.trusts(peer) {
            return self.client(peer);
        }
        let lines = |name| headers.all_known(name).rev();
        let (address, identified) = match &self.source {
            ClientSource::Peer => (peer, true),
            ClientSource::XForwardedFor => {
                let items = lines(Name::XForwardedFor).flat_map(|line| line.rsplit(|&byte| byte == b','));
                self.walk(peer, items.map(hop))
            }
            ClientSource::Forwarded => {
                let items = lines(Name::Forwarded).flat_map(|line| Items::new(line, b','));
                self.walk(peer, items.map(forwarded_for))
            }
            ClientSource::Header(name) => {
                // The trusted proxy adds its line after those of the client.
                match headers.all(name).iter().next_back().map(hop) {
                    None => (peer, true),
                    Some(Hop::Address(address)) => (address, true),
                    Some(Hop::Empty | Hop::Garbage) => (peer, false),
                }
            }
        };
        self.client_if(identified, address)
    }

    /// The client of a request that another proxy asks about: of `x-forwarded-for`, the rightmost address outside the
    /// trusted proxies. `None`: no address is named.
    pub fn forwarded_client(&self, headers: Fields<'_>) -> Option<ClientAddress> {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let lines = headers.all_known(Name::XForwardedFor).rev();
        let items = lines.flat_map(|line| line.rsplit(|&byte| byte == b','));
        let (address, identified) = self.walk(nobody, items.map(hop));
        (address != nobody).then(|| self.client_if(identified, address))
    }

    /// The header that a trusted `peer` sends instead of the source: it writes another one than the config file names.
    pub fn overlooked(&self, peer: IpAddr, headers: Fields<'_>) -> Option<&'static str> {
        let sent = |name| headers.known(name).is_some();
        let other = match &self.source {
            ClientSource::XForwardedFor => [None, Some(Name::Forwarded)],
            ClientSource::Forwarded => [Some(Name::XForwardedFor), None],
            ClientSource::Header(_) => [Some(Name::XForwardedFor), Some(Name::Forwarded)],
            ClientSource::Peer => return None,
        };
        let other = other.into_iter().flatten().find(|&name| sent(name))?;
        let is_source_sent = match &self.source {
            ClientSource::XForwardedFor => sent(Name::XForwardedFor),
            ClientSource::Forwarded => sent(Name::Forwarded),
            ClientSource::Header(name) => headers.first(name).is_some(),
            ClientSource::Peer => true,
        };
        let words = if other == Name::Forwarded { "forwarded" } else { "x-forwarded-for" };
        (!is_source_sent && self.trusts(peer)).then_some(words)
    }

    /// The first address that is not trusted, or else the last before the list ends or becomes malformed; and whether
    /// that is the client. It is not if the item before it was malformed, or not read.
    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Hop>) -> (IpAddr, bool) {
        let mut address = peer;
        for (count, hop) in hops.enumerate() {
            match hop {
                _ if count == MAX_ITEMS => return (address, false),
                Hop::Empty => continue,
                Hop::Garbage => return (address, false),
                Hop::Address(next) => address = next,
            }
            if !self.trusts(address) {
                break;
            }
        }
        (address, true)
    }
}

impl fmt::Display for ClientSource {
    /// As written in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::XForwardedFor => f.write_str("x-forwarded-for"),
            Self::Forwarded => f.write_str("forwarded"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Peer => f.write_str("peer"),
        }
    }
}

/// Whether `network` contains `address` (canonical: not IPv4-mapped). A network written in IPv4-mapped form contains
/// IPv4 addresses; one as wide as `::/0` does not.
pub(super) fn covers(network: &IpNet, address: IpAddr) -> bool {
    match (network, address) {
        (IpNet::V6(network), IpAddr::V4(v4)) => {
            network.prefix_len() >= 96 && network.contains(&v4.to_ipv6_mapped())
        }
        _ => network.contains(&address),
    }
}

/// One item of a list of hops.
enum Hop {
    /// Lists may contain empty items (RFC 9110 §5.6.1).
    Empty,
    Garbage,
    Address(IpAddr),
}

/// An item of `X-Forwarded-For`: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn hop(item: &[u8]) -> Hop {
    let item = item.trim_ascii();
    if item.is_empty() {
        return Hop::Empty;
    }
    std::str::from_utf8(item).ok().and_then(node).map_or(Hop::Garbage, Hop::Address)
}

/// An element of `Forwarded`: its single `for=`. An element without, or with two, is malformed.
fn forwarded_for(element: &[u8]) -> Hop {
    if element.trim_ascii().is_empty() {
        return Hop::Empty;
    }
    let mut nodes = Items::new(element, b';').filter_map(|pair| {
        let (name, value) = pair.split_at_checked(pair.iter().position(|&byte| byte == b'=')?)?;
        name.trim_ascii().eq_ignore_ascii_case(b"for").then_some(&value[1..])
    });
    match (nodes.next(), nodes.next()) {
        (Some(value), None) => match hop(unquoted(value.trim_ascii())) {
            Hop::Address(address) => Hop::Address(address),
            Hop::Empty | Hop::Garbage => Hop::Garbage,
        },
        _ => Hop::Garbage,
    }
}

/// The text between the quotes. Escapes stay, and make an address malformed: no address needs one.
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// An address with or without port (RFC 7239 §6). A zone id is not an address, since it has no meaning on this machine.
fn node(text: &str) -> Option<IpAddr> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let port_ok = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return address.parse::<Ipv6Addr>().ok().filter(|_| port_ok).map(|v6| IpAddr::V6(v6).to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = text.split_once(':')?;
    address.parse::<Ipv4Addr>().ok().filter(|_| is_port(port)).map(IpAddr::V4)
}

/// A port number, or an obfuscated port (`_` and a name).
fn is_port(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(known),
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

/// The items of a list from the right, split at a delimiter outside quoted strings (RFC 9110 §5.6.4).
///
/// From the right, since items that trusted proxies appended must be readable whatever precedes them: read from the
/// left, one unclosed quote of a client would swallow them.
struct Items<'v> {
    rest: Option<&'v [u8]>,
    delimiter: u8,
}

impl<'v> Items<'v> {
    fn new(list: &'v [u8], delimiter: u8) -> Self {
        Self { rest: Some(list), delimiter }
    }
}

impl<'v> Iterator for Items<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let list = self.rest.take()?;
        let mut quoted = false;
        for at in (0..list.len()).rev() {
            match list[at] {
                b'"' if !(quoted && is_escaped(list, at)) => quoted = !quoted,
                byte if byte == self.delimiter && !quoted => {
                    self.rest = Some(&list[..at]);
                    return Some(&list[at + 1..]);
                }
                _ => {}
            }
        }
        Some(list)
    }
}

/// Whether an odd number of backslashes stands before `at`.
fn is_escaped(list: &[u8], at: usize) -> bool {
    list[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The networks that may send requests. The default denies none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Only clients in these networks; `None`: all.
    pub allow: Option<Arc<Networks>>,
    /// No client in these networks.
    pub deny: Option<Arc<Networks>>,
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRefusal {
    /// `deny` names its network, or the client is not identified.
    Denied,
    /// `allow` does not name its network, or the client is not identified.
    NotAllowed,
}

impl AddressRefusal {
    /// For the access log.
    pub fn error(self) -> &'static str {
        match self {
            Self::Denied => "address_denied",
            Self::NotAllowed => "address_not_allowed",
        }
    }

    /// For operators. Clients are not told which rule refuses them.
    pub fn words(self) -> &'static str {
        match self {
            Self::Denied => "`deny` names the client's network, or the client is not identified",
            Self::NotAllowed => "`allow` does not name the client's network, or the client is not identified",
        }
    }
}

impl AddressRules {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.allow.is_none() && self.deny.is_none()
    }

    /// Checks a client. `deny` wins. A client that is not identified is in no network of `allow`, and may be in one of
    /// `deny`: its address is that of a proxy, which many clients share.
    ///
    /// # Errors
    ///
    /// The rule that refuses it.
    #[inline]
    pub fn check(&self, client: ClientAddress) -> Result<(), AddressRefusal> {
        if self.deny.as_ref().is_some_and(|deny| !client.identified || deny.contain(client.address)) {
            return Err(AddressRefusal::Denied);
        }
        match &self.allow {
            Some(allow) if !(client.identified && allow.contain(client.address)) => {
                Err(AddressRefusal::NotAllowed)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_nothing_else() {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        for (text, expected) in [
            ("192.0.2.1:80", address("192.0.2.1")),
            ("192.0.2.1:_hidden", address("192.0.2.1")),
            ("[2001:db8::1]:443", address("2001:db8::1")),
            ("192.0.2.1:65536", None),
            ("192.0.2.1:80x", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:_", None),
            ("192.0.2.1:_a b", None),
            ("[2001:db8::1]:x", None),
            ("[2001:db8::1]443", None),
        ] {
            assert_eq!(node(text), expected, "{text}");
        }
    }
}
