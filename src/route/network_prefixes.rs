//! The part of an address that tells clients apart: prefix lengths of its two families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefixes of a key such as `ip/24`: the family without one has the gateway's own. As text through `Display`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkPrefixes {
    /// `ip/24`: of IPv4, 1 to 32.
    Ipv4(u8),
    /// `ip/48`: of IPv6, 33 to 128.
    Ipv6(u8),
    /// `ip/24,48`: of IPv4, 1 to 32, and of IPv6, 1 to 128.
    Both(u8, u8),
}

impl NetworkPrefixes {
    /// Parses what follows `ip/`: `24`, `48` or `24,48`. `None`: it is another text.
    pub fn parse(text: &str) -> Option<Self> {
        let length = |text: &str, most: u8| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
            text.parse().ok().filter(|length| is_number && *length <= most)
        };
        match text.split_once(',') {
            Some((ipv4, ipv6)) => {
                length(ipv4, 32).zip(length(ipv6, 128)).map(|(ipv4, ipv6)| Self::Both(ipv4, ipv6))
            }
            None => {
                length(text, 128).map(|only| if only <= 32 { Self::Ipv4(only) } else { Self::Ipv6(only) })
            }
        }
    }

    /// The network of a client with this address. `default` is its network by the gateway's own prefixes.
    pub fn network(self, address: IpAddr, default: IpAddr) -> IpAddr {
        match (self, address) {
            (Self::Ipv4(length) | Self::Both(length, _), IpAddr::V4(_))
            | (Self::Ipv6(length) | Self::Both(_, length), IpAddr::V6(_)) => masked(address, length),
            _ => default,
        }
    }
}

impl fmt::Display for NetworkPrefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(length) | Self::Ipv6(length) => write!(f, "{length}"),
            Self::Both(ipv4, ipv6) => write!(f, "{ipv4},{ipv6}"),
        }
    }
}

/// The address with all bits after the first `length` cleared. A length beyond the address's own clears none.
pub(super) fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let host_bits = 32_u32.saturating_sub(length.into());
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let host_bits = 128_u32.saturating_sub(length.into());
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read_and_written() {
        for text in ["1", "24", "32", "33", "48", "128", "24,48", "32,128", "1,1"] {
            assert_eq!(NetworkPrefixes::parse(text).expect(text).to_string(), text);
        }
        for text in [
            "", "0", "129", "024", "+24", " 24", "24, 48", "24,", ",48", "33,48", "24,129", "0,48",
            "24,48,64", "x",
        ] {
            assert!(NetworkPrefixes::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_other_family_keeps_the_gateways_prefix() {
        let (v4, v6) = ("203.0.113.77".parse().unwrap(), "2001:db8:aaaa:bbbb::1".parse().unwrap());
        let network = |text: &str, address| {
            let prefixes = NetworkPrefixes::parse(text).unwrap();
            prefixes.network(address, "192.0.2.1".parse().unwrap()).to_string()
        };
        assert_eq!((network("24", v4), network("24", v6)), ("203.0.113.0".into(), "192.0.2.1".into()));
        assert_eq!((network("48", v4), network("48", v6)), ("192.0.2.1".into(), "2001:db8:aaaa::".into()));
        assert_eq!(
            (network("8,56", v4), network("8,56", v6)),
            ("203.0.0.0".into(), "2001:db8:aaaa:bb00::".into())
        );
    }

    proptest! {
        #[test]
        fn masks_equal_those_of_ipnet(address: IpAddr, length in 0_u8..=128) {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let network = IpNet::new(address, length.min(most)).expect("a prefix").network();
            prop_assert_eq!(masked(address, length), network);
        }
    }
}
