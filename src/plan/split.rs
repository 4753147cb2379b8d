//! `upstream = { blue = 95, green = 5 }`: requests of a route split between upstreams by weight.

use super::UpstreamIndex;
use super::split_cookie::{NewSplitCookie, SplitCookie};
use crate::limit::units::Fingerprint;
use crate::route::MatchedRequest;
use crate::route::key::{Key, KeyResult, KeySecret};

/// Keys the hash that selects an upstream: public, so that all gateways of a fleet select the same.
const SPLIT: KeySecret = KeySecret::Process(*b"tollgate's split");

/// The upstreams of a route, and their shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSplit {
    /// In the order of the file; at least two. One at least has a weight above 0.
    pub shares: Vec<(UpstreamIndex, u32)>,
    /// Requests with the same key go to the same upstream; `None`: each request is drawn.
    pub key: Option<Key>,
    /// Keeps clients at the upstream that was drawn for a request without a cookie of the key; `None`: the key has no
    /// cookie.
    pub cookie: Option<SplitCookie>,
}

/// What has chosen the upstream of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The cookie of splits.
    SplitCookie,
    /// The key.
    Key,
    /// The random number: the split has no key, or the request lacks a part of it.
    Draw,
}

impl UpstreamSplit {
    /// The upstream of a request, and what has chosen it. `draw` is a random number.
    ///
    /// The cookie of splits comes first, also if the request has a key: the client began without the key.
    pub fn choose(&self, matched: MatchedRequest<'_>, draw: u64) -> (UpstreamIndex, ChosenBy) {
        let fields = matched.request.headers;
        let named =
            self.cookie.as_ref().and_then(|cookie| cookie.upstreams(fields).find(|it| self.serves(*it)));
        if let Some(upstream) = named {
            return (upstream, ChosenBy::SplitCookie);
        }
        let hash = self.key.as_ref().and_then(|key| match key.claim(&SPLIT, matched) {
            KeyResult::Key(Fingerprint(bits)) => u64::try_from(bits >> 64).ok(),
            KeyResult::Skip | KeyResult::Deny | KeyResult::Repeated | KeyResult::Unreadable(_) => None,
        });
        let by = if hash.is_some() { ChosenBy::Key } else { ChosenBy::Draw };
        (self.at(hash.unwrap_or(draw)), by)
    }

    /// The cookie that keeps a client at `chosen`, if its response has to set one: the upstream was drawn, or the request
    /// has a cookie of splits that names none of these upstreams, but may name one again after a reload.
    pub fn new_cookie(&self, matched: MatchedRequest<'_>, chosen: UpstreamIndex) -> Option<NewSplitCookie> {
        let cookie = self.cookie.as_ref()?;
        let fields = matched.request.headers;
        let is_of_split = |upstream| self.shares.iter().any(|(index, _)| *index == upstream);
        let is_set = match self.choose(matched, 0).1 {
            ChosenBy::SplitCookie => false,
            ChosenBy::Key => cookie.is_sent(fields),
            ChosenBy::Draw => true,
        };
        is_set.then(|| cookie.renewed(fields, chosen, |upstream| !is_of_split(upstream)))
    }

    /// Whether clients may stay at this upstream.
    fn serves(&self, upstream: UpstreamIndex) -> bool {
        self.shares.iter().any(|(index, weight)| *index == upstream && *weight > 0)
    }

    /// The upstream at this point of all 2^64: the first ones belong to the first upstream. So if the last one's share
    /// grows, keys move only to it, and none moves between the others.
    fn at(&self, point: u64) -> UpstreamIndex {
        let total: u64 = self.shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let scaled = u64::try_from((u128::from(point) * u128::from(total)) >> 64).unwrap_or(0);
        let mut sum = 0;
        let covers = |(_, weight): &&(UpstreamIndex, u32)| {
            sum += u64::from(*weight);
            scaled < sum
        };
        let first = || self.shares.first().map_or(UpstreamIndex(0), |(upstream, _)| *upstream);
        self.shares.iter().find(covers).map_or_else(first, |(upstream, _)| *upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(weights: &[u32]) -> UpstreamSplit {
        let shares = weights.iter().enumerate().map(|(index, weight)| (UpstreamIndex(index), *weight));
        UpstreamSplit { shares: shares.collect(), key: None, cookie: None }
    }

    /// Points spread evenly over all.
    fn points() -> impl Iterator<Item = u64> {
        (0..10_000_u64).map(|number| number * (u64::MAX / 10_000))
    }

    #[test]
    fn each_gets_its_share() {
        for (weights, shares) in [
            (&[95, 5][..], &[9_500, 500][..]),
            (&[1, 1, 2], &[2_500, 2_500, 5_000]),
            (&[0, 7], &[0, 10_000]),
            (&[7, 0], &[10_000, 0]),
        ] {
            let split = split(weights);
            let mut counts = vec![0_i32; weights.len()];
            points().for_each(|point| counts[split.at(point).0] += 1);
            for (count, share) in counts.iter().zip(shares) {
                assert!((count - share).abs() <= 1, "{weights:?}: {counts:?}");
            }
        }
        assert_eq!((split(&[1, 1]).at(0).0, split(&[1, 1]).at(u64::MAX).0), (0, 1));
    }

    #[test]
    fn a_larger_share_of_the_last_one_keeps_what_it_has() {
        let (before, after) = (split(&[95, 5]), split(&[50, 50]));
        assert!(points().filter(|point| before.at(*point).0 == 1).all(|point| after.at(point).0 == 1));
    }
}
