//! The routes to choose from once the path of a request is known: selected by the values of headers, of cookies, of
//! parameters of the query, and by the client's network.
//!
//! A short list is tried one by one. A long list has an index: its routes are grouped by the source of a value in their
//! conditions, each group by the required [patterns](super::value_index), and each such part is indexed again by the
//! other conditions, if it is long. Of several conditions the one whose source has the most patterns comes first.
//! Conditions decided by an index are not checked again. Networks are found by trying each length that the group has.
//!
//! The keys of the index come from the file, and a request only looks them up, so no client can make them collide.
//!
//! Not handled: thousands of routes that differ only by method, by `body` or by `not`, or that require thousands of different
//! header names, are tried one by one.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _, HashSet};
use http::HeaderName;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::condition::{Condition, ValuePattern, ValuePatterns, network_key, network_kind, network_of};
use super::value_index::{ValueIndex, sort_and_dedup};
use super::{RouteRequest, cookie, query};

/// A route's index among all routes, the most specific first.
pub(super) type Rank = usize;

/// Shorter lists, and sources required by fewer routes, have no index: trying a few routes is as fast.
const MIN_TO_INDEX: usize = 8;

/// Routes by rank; see the module.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    all: Vec<RouteCandidate>,
    /// Contains the same routes.
    index: Option<Box<Index>>,
}

/// A route, with its conditions on values.
#[derive(Clone, Debug)]
struct RouteCandidate {
    rank: Rank,
    /// All must hold. In an index: those that it does not decide.
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Index {
    groups: Vec<SourceGroup>,
    /// Routes in no group, by rank.
    rest: Vec<RouteCandidate>,
}

/// Routes with conditions on one source.
#[derive(Debug)]
struct SourceGroup {
    finder: Finder,
    /// For each key of the finder the indices in `lists` that it leads to. Empty: each leads to the list of its index.
    owners: Vec<SmallVec<[usize; 2]>>,
    /// The routes of each condition.
    lists: Vec<Candidates>,
}

/// Finds the keys that a request has.
#[derive(Debug)]
enum Finder {
    Header(HeaderName, ValueIndex),
    Query(Arc<str>, ValueIndex),
    Cookie(Arc<str>, ValueIndex),
    Client(NetworkIndex),
}

/// Finds networks that contain an address.
#[derive(Debug)]
struct NetworkIndex {
    by_key: HashMap<[u8; 17], usize>,
    /// The [kinds](network_kind) of networks: each once.
    kinds: Vec<u8>,
}

/// The source of the values that a group is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ValueSource<'c> {
    /// The name, and whether the case of values counts.
    Header(&'c str, bool),
    Query(&'c str),
    Cookie(&'c str),
    Client,
}

/// What a condition requires of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Requirement<'c> {
    Values(&'c ValuePatterns),
    Networks(&'c [IpNet]),
}

/// A part of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RequiredKey<'c> {
    Value(&'c ValuePattern),
    Network(IpNet),
}

impl Candidates {
    /// Adds a route with these conditions. Ranks must be in ascending order, and before [`Self::index`].
    pub(super) fn push(&mut self, rank: Rank, conditions: &[Condition]) {
        self.all.push(RouteCandidate { rank, conditions: conditions.to_vec() });
    }

    /// All ranks in ascending order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.all.iter().map(|candidate| candidate.rank)
    }

    /// The lowest rank below `bound` of the routes with all conditions satisfied and that `accepts` accepts. `accepts`
    /// is called at most once for each rank. Allocates only to decode a query.
    pub(super) fn first(
        &self,
        bound: Rank,
        request: &RouteRequest<'_>,
        accepts: &impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        match &self.index {
            None => first_of(&self.all, bound, request, accepts),
            Some(index) => index.first(bound, request, accepts),
        }
    }

    /// Indexes the list, if it is long.
    pub(super) fn index(&mut self) {
        if self.all.len() < MIN_TO_INDEX {
            return;
        }
        let mut keys: HashMap<ValueSource<'_>, HashSet<RequiredKey<'_>>> = HashMap::new();
        for condition in self.all.iter().flat_map(|candidate| &candidate.conditions) {
            if let Some((source, requirement)) = ValueSource::of(condition) {
                keys.entry(source).or_default().extend(requirement.keys());
            }
        }
        let mut members: HashMap<ValueSource<'_>, Vec<(&RouteCandidate, usize)>> = HashMap::new();
        let mut leading = Vec::with_capacity(self.all.len());
        for candidate in &self.all {
            let conditions = candidate.conditions.iter().enumerate();
            let sources =
                conditions.filter_map(|(index, condition)| Some((index, ValueSource::of(condition)?.0)));
            let count = |source: &ValueSource<'_>| keys.get(source).map_or(0, HashSet::len);
            let lead = sources.max_by_key(|(_, source)| (count(source), *source));
            if let Some((index, source)) = lead {
                members.entry(source).or_default().push((candidate, index));
            }
            leading.push(lead.map(|(_, source)| source));
        }
        members.retain(|_, members| members.len() >= MIN_TO_INDEX);
        let is_rest =
            |source: &Option<ValueSource<'_>>| source.is_none_or(|source| !members.contains_key(&source));
        let rest = self.all.iter().zip(&leading).filter(|(_, source)| is_rest(source));
        let rest = rest.map(|(candidate, _)| candidate.clone()).collect();
        let groups: Vec<_> = members.values().filter_map(|members| SourceGroup::new(members)).collect();
        if !groups.is_empty() {
            self.index = Some(Box::new(Index { groups, rest }));
        }
    }
}

impl Index {
    fn first(
        &self,
        bound: Rank,
        request: &RouteRequest<'_>,
        accepts: &impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        let mut best = bound;
        for group in &self.groups {
            for list in group.lists_for(request) {
                best = group.lists[list].first(best, request, accepts).unwrap_or(best);
            }
        }
        first_of(&self.rest, best, request, accepts).or((best < bound).then_some(best))
    }
}

impl SourceGroup {
    /// Of routes by rank, each with the index of its condition on the group's source. `None`: there are none.
    fn new(members: &[(&RouteCandidate, usize)]) -> Option<Self> {
        let (mut lists, mut by_requirement) = (Vec::<Candidates>::new(), HashMap::new());
        let (mut owners, mut by_key) = (Vec::<SmallVec<[usize; 2]>>::new(), HashMap::new());
        let mut keys = Vec::new();
        for &(candidate, index) in members {
            let Some((_, requirement)) = candidate.conditions.get(index).and_then(ValueSource::of) else {
                continue;
            };
            let list = *by_requirement.entry(requirement).or_insert_with(|| {
                lists.push(Candidates::default());
                for key in requirement.keys() {
                    let number = *by_key.entry(key).or_insert_with(|| {
                        keys.push(key);
                        owners.push(SmallVec::new());
                        owners.len() - 1
                    });
                    owners[number].push(lists.len() - 1);
                }
                lists.len() - 1
            });
            let mut candidate = candidate.clone();
            candidate.conditions.remove(index);
            lists[list].all.push(candidate);
        }
        lists.iter_mut().for_each(Candidates::index);
        // As where each route requires one value: a step less.
        if owners.iter().enumerate().all(|(key, lists)| lists.as_slice() == [key]) {
            owners = Vec::new();
        }
        let (first, index) = members.first()?;
        let finder = Finder::new(first.conditions.get(*index)?, &keys)?;
        Some(Self { finder, owners, lists })
    }

    /// The lists that values of the request lead to, each once.
    #[inline]
    fn lists_for(&self, request: &RouteRequest<'_>) -> SmallVec<[usize; 8]> {
        let (mut found, mut max_len) = (SmallVec::<[usize; 8]>::new(), 64);
        self.finder.each_key(request, |key| {
            match self.owners.get(key) {
                Some(lists) => lists.iter().for_each(|&list| found.push(list)),
                None => found.push(key),
            }
            // A client may repeat a value.
            if found.len() >= max_len {
                sort_and_dedup(&mut found);
                max_len = max_len.max(2 * found.len());
            }
        });
        sort_and_dedup(&mut found);
        found
    }
}

impl Finder {
    /// Of keys of this condition's source. `None`: it has none.
    fn new(condition: &Condition, keys: &[RequiredKey<'_>]) -> Option<Self> {
        let values = |patterns: &ValuePatterns| {
            let values = keys.iter().filter_map(|key| match key {
                RequiredKey::Value(pattern) => Some(*pattern),
                RequiredKey::Network(_) => None,
            });
            ValueIndex::new(values, patterns.ignores_case())
        };
        match condition {
            Condition::Header(name, patterns) => Some(Self::Header(name.clone(), values(patterns))),
            Condition::Query(name, patterns) => Some(Self::Query(Arc::clone(name), values(patterns))),
            Condition::Cookie(name, patterns) => Some(Self::Cookie(Arc::clone(name), values(patterns))),
            Condition::Clients(_) => Some(Self::Client(NetworkIndex::new(keys))),
            Condition::Body(..)
            | Condition::Countries(_)
            | Condition::Listeners(_)
            | Condition::Not(_)
            | Condition::Methods(_)
            | Condition::Hosts(_)
            | Condition::Path(..) => None,
        }
    }

    /// Calls `visit` with each key that the request has.
    #[inline]
    fn each_key(&self, request: &RouteRequest<'_>, mut visit: impl FnMut(usize)) {
        let mut look = |key| {
            visit(key);
            false
        };
        match self {
            Self::Header(name, index) => _ = index.find(request.headers.all(name).iter(), look),
            Self::Query(name, index) => {
                _ = index.find(query::all(request.query.unwrap_or_default(), name), look)
            }
            Self::Cookie(name, index) => _ = index.find(cookie::all(request.headers, name), look),
            Self::Client(index) if request.client.identified => {
                let networks =
                    index.kinds.iter().filter_map(|&kind| network_of(request.client.address, kind));
                let keys = networks.filter_map(|network| index.by_key.get(&network_key(network)));
                keys.for_each(|key| _ = look(*key));
            }
            Self::Client(_) => {}
        }
    }
}

impl NetworkIndex {
    fn new(keys: &[RequiredKey<'_>]) -> Self {
        let (mut by_key, mut kinds) = (HashMap::new(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            if let RequiredKey::Network(network) = key {
                by_key.insert(network_key(*network), number);
                kinds.push(network_kind(*network));
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        Self { by_key, kinds }
    }
}

impl<'c> ValueSource<'c> {
    /// The source of a condition, and what is required of it. `None`: no index finds it.
    fn of(condition: &'c Condition) -> Option<(Self, Requirement<'c>)> {
        Some(match condition {
            Condition::Header(name, values) => {
                (Self::Header(name.as_str(), values.ignores_case()), Requirement::Values(values))
            }
            Condition::Query(name, values) => (Self::Query(name), Requirement::Values(values)),
            Condition::Cookie(name, values) => (Self::Cookie(name), Requirement::Values(values)),
            Condition::Clients(networks) => (Self::Client, Requirement::Networks(networks)),
            Condition::Body(..)
            | Condition::Countries(_)
            | Condition::Listeners(_)
            | Condition::Not(_)
            | Condition::Methods(_)
            | Condition::Hosts(_)
            | Condition::Path(..) => {
                return None;
            }
        })
    }
}

impl<'c> Requirement<'c> {
    fn keys(self) -> impl Iterator<Item = RequiredKey<'c>> {
        let (values, networks) = match self {
            Self::Values(values) => (Some(values), None),
            Self::Networks(networks) => (None, Some(networks)),
        };
        let values = values.into_iter().flat_map(ValuePatterns::iter).map(RequiredKey::Value);
        values.chain(networks.into_iter().flatten().map(|network| RequiredKey::Network(*network)))
    }
}

fn first_of(
    candidates: &[RouteCandidate],
    bound: Rank,
    request: &RouteRequest<'_>,
    accepts: &impl Fn(Rank) -> bool,
) -> Option<Rank> {
    let fits = |candidate: &&RouteCandidate| {
        accepts(candidate.rank) && candidate.conditions.iter().all(|condition| condition.holds(request))
    };
    candidates.iter().take_while(|candidate| candidate.rank < bound).find(fits).map(|found| found.rank)
}

#[cfg(test)]
mod tests;
