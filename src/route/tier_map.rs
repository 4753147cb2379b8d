//! Maps of the file from networks or values of a request to tiers.

use std::net::IpAddr;

use foldhash::HashMap;
use ipnet::IpNet;

use super::MatchedRequest;
use super::part::Part;
use super::part_value::PartValue;

/// Tiers by network and by value. Of networks, the longest prefix wins. A look-up takes a probe for each length of a prefix
/// that occurs, at most 129, however many networks there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TierMap {
    tiers: Vec<Box<str>>,
    by_name: HashMap<Box<str>, u32>,
    values: HashMap<Box<str>, u32>,
    /// By length, and bits up to it; IPv4 addresses as IPv6 addresses that hold them.
    networks: HashMap<(u8, u128), u32>,
    /// The lengths of prefixes that occur, the longest first.
    lengths: Vec<u8>,
}

/// The bits in front of an IPv4 address in an IPv6 address that holds it.
const V4_PREFIX: u8 = 96;

/// The place of a tier in [`TierMap`].
type TierNumber = u32;

impl TierMap {
    /// Adds a row.
    ///
    /// # Errors
    ///
    /// The same value, or the same network, has another tier: this one.
    pub fn insert(&mut self, value: &str, tier: &str) -> Result<(), &str> {
        let number = match self.by_name.get(tier) {
            Some(number) => *number,
            None => {
                let number = TierNumber::try_from(self.tiers.len()).unwrap_or(TierNumber::MAX);
                self.tiers.push(tier.into());
                self.by_name.insert(tier.into(), number);
                number
            }
        };
        let of_network = network(value).map(|network| {
            let prefix = prefix(network);
            if let Err(at) = self.lengths.binary_search_by(|length| prefix.0.cmp(length)) {
                self.lengths.insert(at, prefix.0);
            }
            *self.networks.entry(prefix).or_insert(number)
        });
        let known = *self.values.entry(value.into()).or_insert(number);
        let other = [Some(known), of_network].into_iter().flatten().find(|known| *known != number);
        match other {
            None => Ok(()),
            Some(other) => Err(self.name(other)),
        }
    }

    /// The tier of the longest network with this address.
    pub fn of_address(&self, address: IpAddr) -> Option<&str> {
        let address = address.to_canonical();
        let bits = bits(address);
        // A network of IPv6 has no address of IPv4.
        let mut lengths = self.lengths.iter().take_while(|length| address.is_ipv6() || **length >= V4_PREFIX);
        let number = lengths.find_map(|length| self.networks.get(&(*length, masked(bits, *length))));
        number.map(|number| self.name(*number))
    }

    /// The tier of this value.
    pub fn of_value(&self, value: &str) -> Option<&str> {
        self.values.get(value).map(|number| self.name(*number))
    }

    /// The tier of a request by this part of it. An absent part, several values that differ, and a client that is not
    /// identified have none.
    pub fn of_request(&self, part: &Part, matched: MatchedRequest<'_>) -> Option<&str> {
        let text = |bytes: &[u8]| self.of_value(std::str::from_utf8(bytes).ok()?);
        match part {
            Part::Ip => {
                let client = matched.request.client;
                client.identified.then(|| self.of_address(client.address)).flatten()
            }
            part => match part.find(matched, false) {
                PartValue::Bytes(value) | PartValue::Value(value) => text(&value),
                PartValue::Missing
                | PartValue::Repeated
                | PartValue::Unreadable(_)
                | PartValue::Nothing
                | PartValue::Address(_)
                | PartValue::Values(_)
                | PartValue::Several(_) => None,
            },
        }
    }

    /// The tier of a key with this value of the part.
    pub fn of_written(&self, part: &Part, value: &str) -> Option<&str> {
        match part {
            Part::Ip => self.of_address(value.parse().ok()?),
            _ => self.of_value(value),
        }
    }

    /// The names of its tiers, in the order in which they came.
    pub fn tiers(&self) -> impl Iterator<Item = &str> {
        self.tiers.iter().map(|tier| &**tier)
    }

    /// The number of its values and networks.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn name(&self, number: TierNumber) -> &str {
        self.tiers.get(number as usize).map_or("", |tier| tier)
    }
}

/// An address, or a network, of which bits below the prefix are ignored.
pub fn network(text: &str) -> Option<IpNet> {
    let address = text.parse::<IpAddr>().ok().map(IpNet::from);
    address.or_else(|| text.parse().ok())
}

/// The length and the bits of a network.
fn prefix(network: IpNet) -> (u8, u128) {
    let bits = bits(network.addr());
    let length = match network {
        IpNet::V4(network) => V4_PREFIX + network.prefix_len(),
        IpNet::V6(network) => network.prefix_len(),
    };
    (length, masked(bits, length))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    // A shift by all bits is one of `checked_shr` only.
    let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
    bits & !host
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_network_wins() {
        let mut map = TierMap::default();
        for (value, tier) in [
            ("10.0.0.0/8", "a"),
            ("10.1.0.0/16", "b"),
            ("10.1.2.3", "c"),
            ("0.0.0.0/0", "any"),
            ("2001:db8::/32", "six"),
            ("::/0", "all"),
            ("partner", "p"),
        ] {
            map.insert(value, tier).unwrap();
        }
        for (address, tier) in [
            ("10.2.0.1", "a"),
            ("10.1.0.1", "b"),
            ("10.1.2.3", "c"),
            ("::ffff:10.1.2.3", "c"),
            ("192.0.2.1", "any"),
            ("2001:db8::1", "six"),
            ("2001:db9::1", "all"),
        ] {
            assert_eq!(map.of_address(address.parse().unwrap()), Some(tier), "{address}");
        }
        assert_eq!(
            (map.of_value("partner"), map.of_value("Partner"), map.of_value("10.1.2.3")),
            (Some("p"), None, Some("c"))
        );
        assert_eq!(map.insert("10.1.2.3/32", "d"), Err("c"));
        assert_eq!(map.insert("10.1.9.9/16", "b"), Ok(()));
        assert_eq!(map.tiers().collect::<Vec<_>>(), ["a", "b", "c", "any", "six", "all", "p", "d"]);
    }

    proptest! {
        /// The same as a walk over all networks.
        #[test]
        fn a_look_up_finds_what_a_walk_finds(
            networks in proptest::collection::vec((any::<bool>(), any::<u32>(), 0u8..=32), 0..20),
            addresses in proptest::collection::vec((any::<bool>(), any::<u32>()), 0..20),
        ) {
            // Few bits, so that networks and addresses meet.
            let address = |is_v4: bool, bits: u32| -> IpAddr {
                let bits = bits & 0xe000_0003;
                if is_v4 { IpAddr::V4(bits.into()) } else { IpAddr::V6((u128::from(bits) << 96).into()) }
            };
            let mut map = TierMap::default();
            let mut kept: Vec<(IpNet, String)> = Vec::new();
            for (number, (is_v4, bits, length)) in networks.into_iter().enumerate() {
                let network = IpNet::new(address(is_v4, bits), length).unwrap().trunc();
                let tier = number.to_string();
                if kept.iter().all(|(other, _)| *other != network) {
                    map.insert(&network.to_string(), &tier).unwrap();
                    kept.push((network, tier));
                }
            }
            for (is_v4, bits) in addresses {
                let address = address(is_v4, bits);
                let walked = kept.iter().filter(|(network, _)| network.contains(&address));
                let longest = walked.max_by_key(|(network, _)| network.prefix_len()).map(|(_, tier)| &**tier);
                prop_assert_eq!(map.of_address(address), longest);
            }
        }
    }
}
