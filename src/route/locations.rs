//! Where the addresses of clients are: countries and autonomous systems by network.
//!
//! The networks come from a file that MaxMind and others publish. They are kept as ranges of addresses in ascending order,
//! neighbours with one value as one range, and an address is found by binary search.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;

use ipnet::IpNet;

/// A country: two upper-case letters of ISO 3166-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

/// An autonomous system by its number, which RFC 6793 gives 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AutonomousSystem(pub NonZeroU32);

/// Where an address is, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLocation {
    /// The country.
    pub country: Option<Country>,
    /// The autonomous system that announces the address.
    pub system: Option<AutonomousSystem>,
}

/// The countries and autonomous systems of all addresses.
#[derive(Debug, Default)]
pub struct Locations {
    /// One per file, in their order: the first that knows an address counts.
    countries: Vec<RangeTable<Country>>,
    systems: Vec<RangeTable<AutonomousSystem>>,
    /// A hash of the files that they come from.
    files: [u8; 32],
}

/// Networks with their values, as a file has them.
pub type NetworkValues<V> = Vec<(IpNet, V)>;

/// Disjoint ranges of addresses with values. A range begins where it stands, and ends where the next one begins.
#[derive(Debug)]
struct RangeTable<V> {
    v4: Box<[(u32, Option<V>)]>,
    v6: Box<[(u128, Option<V>)]>,
}

impl Country {
    /// Two upper-case letters.
    pub fn new(code: &str) -> Option<Self> {
        let code: [u8; 2] = code.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// Its code.
    pub fn as_str(&self) -> &str {
        // It has letters of ASCII alone.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AutonomousSystem {
    /// The system with this number: `64500`, or `AS64500`.
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("AS").unwrap_or(text).parse().ok().map(Self)
    }
}

impl fmt::Display for AutonomousSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{}", self.0)
    }
}

impl Locations {
    /// The networks of each file, in any order, and a hash of the files. Of networks that contain one another, the inner
    /// one counts.
    pub fn new(
        countries: Vec<NetworkValues<Country>>,
        systems: Vec<NetworkValues<AutonomousSystem>>,
        files: [u8; 32],
    ) -> Self {
        let countries = countries.into_iter().map(RangeTable::new).collect();
        Self { countries, systems: systems.into_iter().map(RangeTable::new).collect(), files }
    }

    /// Where the address is. An IPv4-mapped IPv6 address is its IPv4 address.
    pub fn of(&self, address: IpAddr) -> ClientLocation {
        let address = address.to_canonical();
        ClientLocation {
            country: self.countries.iter().find_map(|table| table.find(address)),
            system: self.systems.iter().find_map(|table| table.find(address)),
        }
    }

    /// Whether some address is in this country.
    pub fn has_country(&self, country: Country) -> bool {
        self.countries.iter().any(|table| table.values().any(|value| value == country))
    }

    /// Whether the country of some address is known.
    pub fn has_countries(&self) -> bool {
        !self.countries.is_empty()
    }

    /// Whether the autonomous system of some address is known.
    pub fn has_systems(&self) -> bool {
        !self.systems.is_empty()
    }
}

impl PartialEq for Locations {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl Eq for Locations {}

impl<V> Default for RangeTable<V> {
    fn default() -> Self {
        Self { v4: Box::default(), v6: Box::default() }
    }
}

impl<V: Copy + Eq> RangeTable<V> {
    fn new(networks: Vec<(IpNet, V)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, value) in networks {
            match network {
                IpNet::V4(network) => {
                    v4.push(((network.network().to_bits(), network.broadcast().to_bits()), value));
                }
                IpNet::V6(network) => {
                    v6.push(((network.network().to_bits(), network.broadcast().to_bits()), value));
                }
            }
        }
        let v4 = ranges(v4, |end| end.checked_add(1));
        Self { v4, v6: ranges(v6, |end| end.checked_add(1)) }
    }

    fn find(&self, address: IpAddr) -> Option<V> {
        match address {
            IpAddr::V4(address) => find(&self.v4, address.to_bits()),
            IpAddr::V6(address) => find(&self.v6, address.to_bits()),
        }
    }

    fn values(&self) -> impl Iterator<Item = V> {
        let v4 = self.v4.iter().filter_map(|(_, value)| *value);
        v4.chain(self.v6.iter().filter_map(|(_, value)| *value))
    }
}

fn find<A: Ord, V: Copy>(ranges: &[(A, Option<V>)], address: A) -> Option<V> {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    ranges.get(after.checked_sub(1)?).and_then(|(_, value)| *value)
}

/// The ranges of networks, each with its first and last address, of which two are disjoint, or one contains the other. `next` is the address after another.
fn ranges<A: Copy + Ord, V: Copy + Eq>(
    mut networks: Vec<((A, A), V)>,
    next: impl Fn(A) -> Option<A>,
) -> Box<[(A, Option<V>)]> {
    // An outer network comes before those that it contains.
    networks.sort_by(|((start, end), _), ((other, other_end), _)| start.cmp(other).then(other_end.cmp(end)));
    let mut ranges: Vec<(A, Option<V>)> = Vec::new();
    let mut begin = |start: A, value: Option<V>| {
        if ranges.last().is_some_and(|(last, _)| *last == start) {
            ranges.pop();
        }
        if ranges.last().and_then(|(_, last)| *last) != value {
            ranges.push((start, value));
        }
    };
    // Those that have begun and not ended, the innermost last.
    let mut open: Vec<(A, V)> = Vec::new();
    let end_before = |open: &mut Vec<(A, V)>, start: Option<A>, begin: &mut dyn FnMut(A, Option<V>)| {
        while let Some((end, _)) =
            open.last().copied().filter(|(end, _)| start.is_none_or(|start| *end < start))
        {
            open.pop();
            if let Some(after) = next(end) {
                begin(after, open.last().map(|(_, value)| *value));
            }
        }
    };
    for ((start, end), value) in networks {
        end_before(&mut open, Some(start), &mut begin);
        begin(start, Some(value));
        open.push((end, value));
    }
    end_before(&mut open, None, &mut begin);
    ranges.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn country(code: &str) -> Country {
        Country::new(code).expect("a code")
    }

    #[test]
    fn codes_are_two_upper_case_letters() {
        for wrong in ["", "D", "de", "DEU", "D1", "Ä", "D "] {
            assert_eq!(Country::new(wrong), None, "{wrong}");
        }
        assert_eq!(country("DE").to_string(), "DE");
        let system = AutonomousSystem::parse("AS64500").expect("a number");
        assert_eq!(
            (system, system.to_string()),
            (AutonomousSystem::parse("64500").unwrap(), "AS64500".to_owned())
        );
        for wrong in ["", "AS", "AS0", "AS4294967296", "ASx", "as1"] {
            assert_eq!(AutonomousSystem::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn neighbours_with_one_value_are_one_range() {
        let networks = ["10.0.0.0/9", "10.128.0.0/9", "0.0.0.0/8", "255.0.0.0/8"];
        let networks = networks.map(|network| (network.parse().unwrap(), country("DE")));
        let table = RangeTable::new(networks.to_vec());
        assert_eq!(table.v4.len(), 5, "{table:?}");
    }

    proptest! {
        /// The same as a walk over all networks: of those with the address the longest counts.
        #[test]
        fn a_search_finds_what_a_walk_finds(
            networks in proptest::collection::vec((any::<bool>(), any::<u32>(), 0u8..=32, 0usize..3), 0..30),
            addresses in proptest::collection::vec((any::<bool>(), any::<u32>()), 0..30),
        ) {
            // Few bits, so that networks and addresses meet; the ends of the space, too.
            let address = |is_v4: bool, bits: u32| -> IpAddr {
                let bits = if bits.is_multiple_of(5) { u32::MAX } else { bits & 0xe000_0003 };
                if is_v4 { IpAddr::V4(bits.into()) } else { IpAddr::V6((u128::from(bits) << 96).into()) }
            };
            let mut kept: Vec<(IpNet, Country)> = Vec::new();
            for (is_v4, bits, length, code) in networks {
                let network = IpNet::new(address(is_v4, bits), length).unwrap().trunc();
                if kept.iter().all(|(other, _)| *other != network) {
                    kept.push((network, country(["DE", "AT", "CH"][code])));
                }
            }
            let locations = Locations::new(vec![kept.clone()], Vec::new(), [0; 32]);
            for (is_v4, bits) in addresses {
                let address = address(is_v4, bits);
                let walked = kept.iter().filter(|(network, _)| network.contains(&address));
                let longest = walked.max_by_key(|(network, _)| network.prefix_len()).map(|(_, country)| *country);
                prop_assert_eq!(locations.of(address).country, longest);
            }
        }
    }
}
