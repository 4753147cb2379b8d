//! Load balancing: selects the next server.

use std::hash::Hasher as _;
use std::time::Duration;

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use super::server_registry::ServerStates;
use super::server_state::ServerState;
use crate::plan::{Balance, Endpoint};

/// The whole share of a server.
pub(super) const WHOLE: u32 = 1_000;
/// The least share of a server that is back.
const LEAST: u32 = WHOLE / 10;

/// `slow_start` at a moment: a server that is back gets a tenth of its share at first, and all of it after `span`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowStart {
    pub(super) now: Instant,
    pub(super) span: Duration,
}

impl SlowStart {
    /// The share of the server's weight that counts now, up to [`WHOLE`].
    pub(super) fn share(self, server: &ServerState) -> u32 {
        let Some(back_for) = server.back_for(self.now).filter(|back_for| *back_for < self.span) else {
            return WHOLE;
        };
        let part = back_for.as_micros() * u128::from(WHOLE) / self.span.as_micros().max(1);
        u32::try_from(part).unwrap_or(WHOLE).clamp(LEAST, WHOLE)
    }
}

/// A worker's algorithm for choosing among the servers of one upstream.
#[derive(Debug)]
pub(super) enum Balancer {
    RoundRobin(RoundRobin),
    LeastRequests(WeightedRandom),
    Random(WeightedRandom),
    Hash(Rendezvous),
}

impl Balancer {
    /// A balancer for these servers.
    pub(super) fn new(balance: &Balance, servers: &[Endpoint]) -> Self {
        let weights = servers.iter().map(|server| server.weight);
        match balance {
            Balance::RoundRobin => Self::RoundRobin(RoundRobin::new(weights)),
            Balance::LeastRequests => Self::LeastRequests(WeightedRandom::new(weights, fastrand::Rng::new())),
            Balance::Random => Self::Random(WeightedRandom::new(weights, fastrand::Rng::new())),
            Balance::Hash(_) => Self::Hash(Rendezvous::new(servers)),
        }
    }

    /// The index of the next server among those that are `allowed`, if there is one. `key` is the request's hash, used
    /// only by hashing. `share` is the share of a server's weight that counts, up to [`WHOLE`].
    pub(super) fn next(
        &mut self,
        key: u64,
        server_states: &ServerStates,
        allowed: impl Fn(usize) -> bool,
        share: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        match self {
            Self::RoundRobin(round) => round.next(allowed, share),
            Self::LeastRequests(draw) => draw.lighter_of_two(
                |index| server_states.get(index).map_or(0, |peer| peer.in_flight()),
                allowed,
                share,
            ),
            Self::Random(draw) => draw.next(allowed, share),
            Self::Hash(rendezvous) => rendezvous.choose(key, allowed, share),
        }
    }
}

/// Smooth weighted round robin: each server gets its share, spread out evenly (weights 5, 1, 1 give A A B A C A A).
///
/// In every round each server gains its weight as credit. The server with the most credit is selected and pays the sum
/// of all weights. A server that is not allowed neither gains nor pays, so that its return causes no burst.
#[derive(Debug)]
pub(super) struct RoundRobin {
    weights: Vec<i64>,
    credits: Vec<i64>,
}

impl RoundRobin {
    /// A round robin over servers with these weights.
    fn new(weights: impl Iterator<Item = u32>) -> Self {
        let weights: Vec<i64> = weights.map(i64::from).collect();
        Self { credits: vec![0; weights.len()], weights }
    }

    fn next(&mut self, allowed: impl Fn(usize) -> bool, share: impl Fn(usize) -> u32) -> Option<usize> {
        let (mut total, mut best): (i64, Option<(usize, i64)>) = (0, None);
        for (index, (credit, weight)) in self.credits.iter_mut().zip(&self.weights).enumerate() {
            if !allowed(index) {
                continue;
            }
            let weight = weight * i64::from(share(index));
            *credit += weight;
            total += weight;
            // Of equals the first, so that the round begins with the first server.
            if best.is_none_or(|(_, max)| *credit > max) {
                best = Some((index, *credit));
            }
        }
        let (index, _) = best?;
        self.credits[index] -= total;
        Some(index)
    }
}

/// Random choice, by weight.
#[derive(Debug)]
pub(super) struct WeightedRandom {
    weights: Vec<u32>,
    generator: fastrand::Rng,
}

impl WeightedRandom {
    fn new(weights: impl Iterator<Item = u32>, generator: fastrand::Rng) -> Self {
        Self { weights: weights.collect(), generator }
    }

    fn next(&mut self, allowed: impl Fn(usize) -> bool, share: impl Fn(usize) -> u32) -> Option<usize> {
        let weights = || {
            let allowed = self.weights.iter().enumerate().filter(|(index, _)| allowed(*index));
            allowed.map(|(index, weight)| (index, u64::from(*weight) * u64::from(share(index))))
        };
        let total: u64 = weights().map(|(_, weight)| weight).sum();
        if total == 0 {
            return None;
        }
        let drawn = self.generator.u64(..total);
        // Another worker may have changed the allowed servers meanwhile: then the last one is selected.
        let (mut sum, mut last) = (0, None);
        for (index, weight) in weights() {
            sum += weight;
            last = Some(index);
            if drawn < sum {
                break;
            }
        }
        last
    }

    /// Draws two servers and selects the one with fewer requests in flight for its weight. That is nearly as even as
    /// comparing all, and the server with the fewest does not attract all requests at once. Of equals, the first drawn.
    fn lighter_of_two(
        &mut self,
        in_flight: impl Fn(usize) -> u32,
        allowed: impl Fn(usize) -> bool,
        share: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let first = self.next(&allowed, &share)?;
        let Some(second) = self.next(|index| index != first && allowed(index), &share) else {
            return Some(first);
        };
        // Fractions are compared by cross-multiplication.
        let load = |index: usize, other: usize| {
            u128::from(in_flight(index)) * u128::from(self.weights[other]) * u128::from(share(other))
        };
        Some(if load(second, first) < load(first, second) { second } else { first })
    }
}

/// Rendezvous hashing by weight: each server has a score for each key, a hash of the two, and the highest score is
/// selected. When a server goes, only its keys move, each to its second best server; when it returns, they move back.
///
/// The hash is the same in every process and every release, and a server is identified by its `host:port`. So all
/// gateways of a fleet send a key to the same server, in whatever order their files list the servers.
#[derive(Debug)]
pub(super) struct Rendezvous {
    /// The hash of each server, and its weight.
    servers: Vec<(u64, f64)>,
}

impl Rendezvous {
    fn new(servers: &[Endpoint]) -> Self {
        let server = |server: &Endpoint| {
            let mut hasher = SipHasher13::new();
            hasher.write(server.authority.as_bytes());
            (hasher.finish(), f64::from(server.weight))
        };
        Self { servers: servers.iter().map(server).collect() }
    }

    fn choose(
        &self,
        key: u64,
        allowed: impl Fn(usize) -> bool,
        share: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let allowed = self.servers.iter().enumerate().filter(|(index, _)| allowed(*index));
        let scores = allowed.map(|(index, &(server, weight))| {
            (index, score(key ^ server, weight * f64::from(share(index)) / f64::from(WHOLE)))
        });
        scores.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index)
    }
}

/// A uniform number in (0, 1) to the power of 1 ÷ weight is the highest in proportion to the server's weight; this is
/// its logarithm.
fn score(hash: u64, weight: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let even = ((mixed(hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    even.ln() / weight
}

/// Spreads each bit of a number over all bits, like the last step of `SplitMix64`.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::server_registry::tests::server_states;
    use super::*;

    fn servers(weights: &[u32]) -> Vec<Endpoint> {
        let server = |(index, weight): (usize, &u32)| Endpoint {
            host: "10.0.0.1".to_owned(),
            port: 1,
            authority: format!("10.0.0.{index}:9000").into(),
            weight: *weight,
            unix_socket: None,
            tls: None,
        };
        weights.iter().enumerate().map(server).collect()
    }

    fn whole(_: usize) -> u32 {
        WHOLE
    }

    fn shares(count: usize, turns: u32, mut next: impl FnMut() -> Option<usize>) -> Vec<u32> {
        let mut shares = vec![0; count];
        (0..turns).filter_map(|_| next()).for_each(|index| shares[index] += 1);
        shares
    }

    fn near(shares: &[u32], wanted: &[u32]) -> bool {
        shares.iter().zip(wanted).all(|(share, wanted)| share.abs_diff(*wanted) <= wanted / 10)
    }

    #[test]
    fn each_server_gets_its_share_spread_out() {
        let mut round = RoundRobin::new([5, 1, 1].into_iter());
        let indices: Vec<usize> = (0..14).filter_map(|_| round.next(|_| true, whole)).collect();
        assert_eq!(indices, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn a_server_that_was_away_does_not_come_back_to_a_crowd() {
        let mut round = RoundRobin::new([1, 1, 1].into_iter());
        assert_eq!(shares(3, 300, || round.next(|index| index != 1, whole)), [150, 0, 150]);
        assert_eq!(shares(3, 300, || round.next(|_| true, whole)), [100, 100, 100]);
    }

    #[test]
    fn lots_fall_by_weight() {
        let mut draw = WeightedRandom::new([1, 2, 7].into_iter(), fastrand::Rng::with_seed(1));
        assert!(near(&shares(3, 10_000, || draw.next(|_| true, whole)), &[1_000, 2_000, 7_000]));
        assert!(near(&shares(3, 10_000, || draw.next(|index| index < 2, whole)), &[3_333, 6_667, 0]));
    }

    #[test]
    fn of_two_the_one_with_fewer_requests_for_its_weight() {
        let mut draw = WeightedRandom::new([1, 2].into_iter(), fastrand::Rng::with_seed(1));
        for (in_flight, lighter) in [([0, 1], 0), ([1, 1], 1), ([2, 3], 1), ([2, 5], 0), ([0, 0], 2)] {
            let shares = shares(2, 3_000, || draw.lighter_of_two(|index| in_flight[index], |_| true, whole));
            match lighter {
                2 => assert!(near(&shares, &[1_000, 2_000]), "equals are drawn by weight: {shares:?}"),
                lighter => assert_eq!(shares[lighter], 3_000, "{in_flight:?}"),
            }
        }
        assert_eq!(draw.lighter_of_two(|_| 9, |index| index == 1, whole), Some(1));
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let rendezvous = Rendezvous::new(&servers(&[1, 2, 7]));
        let mut key = 0;
        let next = || {
            key += 1;
            rendezvous.choose(key, |_| true, whole)
        };
        assert!(near(&shares(3, 20_000, next), &[2_000, 4_000, 14_000]));
    }

    /// A changed hash would make a half-upgraded fleet send a key to two servers.
    #[test]
    fn the_hash_stays_what_it_is() {
        let rendezvous = Rendezvous::new(&servers(&[1; 8]));
        let indices: Vec<_> =
            (0..8).filter_map(|key| rendezvous.choose(mixed(key), |_| true, whole)).collect();
        assert_eq!(indices, [2, 6, 7, 5, 7, 5, 2, 0]);
    }

    proptest! {
        #[test]
        fn no_disallowed_server_is_chosen(
            weights in proptest::collection::vec(1_u32..1_000, 1..9),
            allowed: [bool; 9],
            key: u64,
            turns in 1_usize..20,
        ) {
            let servers = servers(&weights);
            let server_states = server_states(weights.len());
            let key_balance = Balance::Hash(crate::route::key::Key::new(vec![crate::route::key::Part::Ip]));
            for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::Random, key_balance] {
                let mut balancer = Balancer::new(&balance, &servers);
                let some = allowed.iter().take(weights.len()).any(|allowed| *allowed);
                for _ in 0..turns {
                    let next = balancer.next(key, &server_states, |index| allowed[index], whole);
                    prop_assert_eq!(next.is_some(), some);
                    prop_assert!(next.is_none_or(|index| index < weights.len() && allowed[index]));
                }
            }
        }

        #[test]
        fn only_the_keys_of_the_server_that_goes_move(
            weights in proptest::collection::vec(1_u32..1_000, 2..9),
            gone in 0_usize..9,
            key: u64,
        ) {
            let gone = gone % weights.len();
            let rendezvous = Rendezvous::new(&servers(&weights));
            let before = rendezvous.choose(key, |_| true, whole);
            let after = rendezvous.choose(key, |index| index != gone, whole);
            prop_assert!(before == Some(gone) || before == after);
        }
    }
}
