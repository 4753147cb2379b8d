//! A set of networks: whether one of a million contains an address is found by binary search.
//!
//! Two networks are disjoint, or one contains the other. Contained ones are left out, so the rest are disjoint ranges
//! of addresses, and only the last range that begins at or before an address may contain it. The range of all starts is
//! divided into equal parts, about as many as there are ranges, and the search is limited to the starts of one part:
//! few, if the networks are spread evenly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A set of networks; see the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// The number of networks, contained ones included.
    len: usize,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// Disjoint ranges of addresses in ascending order, ends included.
#[derive(Debug, PartialEq, Eq)]
struct Ranges<A> {
    ranges: Box<[(A, A)]>,
    /// The number of ranges that begin before each part, and the total: far below 2^32, and small, since a look-up
    /// mostly waits for memory.
    heads: Box<[u32]>,
    /// Bits of an address within its part.
    shift: u32,
}

impl Networks {
    /// Whether one of the networks contains `address`, as [`covers`](super::client::covers) decides.
    pub fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4.contain(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.contain(v6.to_bits()),
        }
    }
}

impl Networks {
    /// Whether some address is in the set and in `network`.
    pub fn overlap(&self, network: IpNet) -> bool {
        match network {
            IpNet::V4(v4) => self.v4.overlap(v4.network().to_bits(), v4.broadcast().to_bits()),
            IpNet::V6(v6) => self.v6.overlap(v6.network().to_bits(), v6.broadcast().to_bits()),
        }
    }

    /// The networks in ascending order, without those that others contain. Networks in IPv4-mapped form are those of
    /// IPv4.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.v4.ranges.iter().filter_map(|&(start, end)| {
            let prefix = u8::try_from((start ^ end).leading_zeros()).ok()?;
            Some(IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(start), prefix).ok()?))
        });
        let v6 = self.v6.ranges.iter().filter_map(|&(start, end)| {
            let prefix = u8::try_from((start ^ end).leading_zeros()).ok()?;
            let is_mapped = prefix >= 96 && Ipv6Addr::from_bits(start).to_ipv4_mapped().is_some();
            let network = Ipv6Net::new(Ipv6Addr::from_bits(start), prefix).ok()?;
            (!is_mapped).then_some(IpNet::V6(network))
        });
        v4.chain(v6)
    }

    /// The number of networks that the set was made of.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the set contains no address.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let (mut v4, mut v6, mut len) = (Vec::new(), Vec::new(), 0);
        for network in networks {
            len += 1;
            match network {
                IpNet::V4(network) => v4.push((network.network().to_bits(), network.broadcast().to_bits())),
                IpNet::V6(network) => {
                    let (start, end) = (network.network(), network.broadcast());
                    // A network in IPv4-mapped form contains IPv4 addresses.
                    if let Some((start, end)) = start.to_ipv4_mapped().zip(end.to_ipv4_mapped()) {
                        v4.push((start.to_bits(), end.to_bits()));
                    }
                    v6.push((start.to_bits(), end.to_bits()));
                }
            }
        }
        Self { len, v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }
}

impl<A: Copy + Ord + Into<u128>> Ranges<A> {
    /// Of ranges that are disjoint or contain one another.
    fn new(mut ranges: Vec<(A, A)>) -> Self {
        ranges.sort_unstable();
        let mut disjoint: Vec<(A, A)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match disjoint.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => disjoint.push((start, end)),
            }
        }
        let offset = |start: A| start.into() - disjoint.first().map_or(0, |&(first, _)| first.into());
        let span = disjoint.last().map_or(0, |&(last, _)| offset(last));
        let shift = (u128::BITS - span.leading_zeros()).saturating_sub(disjoint.len().max(1).ilog2());
        let mut heads: Vec<u32> = Vec::new();
        for (at, &(start, _)) in (0..).zip(&disjoint) {
            // Each part up to that of this range begins after the ranges before.
            let parts = usize::try_from(offset(start) >> shift).map_or(usize::MAX, |part| part + 1);
            heads.resize(parts.max(heads.len()), at);
        }
        let len = u32::try_from(disjoint.len()).unwrap_or(u32::MAX);
        heads.resize(heads.len().max(1), len);
        heads.push(len);
        Self { heads: heads.into(), shift, ranges: disjoint.into() }
    }

    fn contain(&self, address: A) -> bool {
        let first = self.ranges.first();
        let Some(offset) = first.and_then(|&(first, _)| address.into().checked_sub(first.into())) else {
            return false;
        };
        let last = self.heads.len() - 2; // one part at least, and the end
        let part = usize::try_from(offset >> self.shift).map_or(last, |part| part.min(last));
        let (from, to) = (self.heads[part] as usize, self.heads[part + 1] as usize);
        let after = from + self.ranges[from..to].partition_point(|&(start, _)| start <= address);
        after.checked_sub(1).is_some_and(|at| address <= self.ranges[at].1)
    }
}

impl<A: Copy + Ord> Ranges<A> {
    /// Whether a range has an address from `start` to `end`, both included.
    fn overlap(&self, start: A, end: A) -> bool {
        // Of the ranges that begin by `end`, the last one ends last.
        let after = self.ranges.partition_point(|&(first, _)| first <= end);
        after.checked_sub(1).is_some_and(|at| start <= self.ranges[at].1)
    }
}

impl<A> Default for Ranges<A> {
    fn default() -> Self {
        Self { ranges: Box::default(), heads: Box::default(), shift: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::client::covers;

    /// Close to one another, so that networks contain one another and addresses.
    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = (0..4_u32, 0..4_u32).prop_map(|(high, low)| Ipv4Addr::from_bits(high << 30 | low));
        let v6 = (0..4_u128, 0..4_u128).prop_map(|(high, low)| Ipv6Addr::from_bits(high << 126 | low));
        prop_oneof![
            v4.clone().prop_map(IpAddr::V4),
            v4.prop_map(|v4| IpAddr::V6(v4.to_ipv6_mapped())),
            v6.prop_map(IpAddr::V6),
        ]
    }

    fn network() -> impl Strategy<Value = IpNet> {
        let prefix = prop::sample::select(vec![0, 1, 2, 8, 30, 31, 32, 94, 95, 96, 97, 98, 126, 127, 128]);
        (address(), prefix).prop_map(|(address, prefix)| {
            let max = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, prefix.min(max)).expect("a prefix that fits")
        })
    }

    proptest! {
        #[test]
        fn the_set_equals_trying_every_network(
            networks in prop::collection::vec(network(), 0..12),
            addresses in prop::collection::vec(address(), 1..20),
        ) {
            let set: Networks = networks.iter().copied().collect();
            for address in addresses {
                let expected = networks.iter().any(|network| covers(network, address));
                prop_assert_eq!(set.contain(address), expected, "{} in {:?}", address, &networks);
                prop_assert_eq!(set.overlap(address.into()), set.contain(address));
            }
        }
    }
}
