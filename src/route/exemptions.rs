//! All exemptions of one limit.
//!
//! A short list is tried one by one. A long list has an index: headers by name and value, networks as a
//! [set](super::networks), paths as a [trie](super::trie). The keys of the index come from the file, and a request only
//! looks them up, so no client can make them collide.
//!
//! Not handled: thousands of different header names are looked up name by name.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _};
use http::HeaderName;

use super::RouteRequest;
use super::exemption::Exemption;
use super::networks::Networks;
use super::trie::Trie;
use super::value_hash::ValueHash;

/// Shorter lists have no index: trying a few exemptions is as fast.
const MIN_TO_INDEX: usize = 8;

/// The exemptions of one limit.
#[derive(Clone, Debug, Default)]
pub struct Exemptions {
    /// In file order.
    all: Vec<Exemption>,
    /// Holds the same exemptions.
    index: Option<Arc<Index>>,
}

/// Values of one header.
type ValueSet = HashSet<Box<[u8]>, ValueHash>;

#[derive(Debug, Default)]
struct Index {
    headers: Vec<(HeaderName, ValueSet)>,
    networks: Networks,
    /// All of one rank: the first match ends the walk.
    paths: Trie,
}

impl Exemptions {
    /// A set of these exemptions, in file order.
    pub fn new(all: Vec<Exemption>) -> Self {
        let index = (all.len() >= MIN_TO_INDEX).then(|| Arc::new(Index::new(&all)));
        Self { all, index }
    }

    /// In file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Exemption> {
        self.all.iter()
    }

    /// Whether the request is exempt, by [`Exemption::holds`] of any. No allocation.
    pub fn hold(&self, request: &RouteRequest<'_>, merge_slashes: bool) -> bool {
        match &self.index {
            None => self.all.iter().any(|exemption| exemption.holds(request, merge_slashes)),
            Some(index) => index.holds(request, merge_slashes),
        }
    }

    /// The first one that applies, for display: all are tried one by one.
    pub fn first(&self, request: &RouteRequest<'_>, merge_slashes: bool) -> Option<&Exemption> {
        self.all.iter().find(|exemption| exemption.holds(request, merge_slashes))
    }
}

impl Index {
    fn new(all: &[Exemption]) -> Self {
        let mut headers: HashMap<&HeaderName, ValueSet> = HashMap::new();
        let mut networks = Vec::new();
        let mut paths = Trie::default();
        for exemption in all {
            match exemption {
                Exemption::Ip(network) => networks.push(*network),
                Exemption::Header(name, value) => {
                    headers.entry(name).or_default().insert(value.as_bytes().into());
                }
                Exemption::Path(pattern) => paths.insert(pattern, 0, &[]),
            }
        }
        let headers = headers.into_iter().map(|(name, values)| (name.clone(), values)).collect();
        Self { headers, networks: networks.into_iter().collect(), paths }
    }

    fn holds(&self, request: &RouteRequest<'_>, merge_slashes: bool) -> bool {
        let client = request.client;
        let carried = |(name, values): &(HeaderName, ValueSet)| {
            request.headers.all(name).iter().any(|sent| values.contains(sent))
        };
        self.headers.iter().any(carried)
            || client.identified && self.networks.contain(client.address)
            || self.paths.matches(request.path.form(merge_slashes))
    }
}
