//! The routes to choose from once the path of a request is known: selected by the values of headers, of parameters of
//! the query, and by the client's network.
//!
//! A short list is tried one by one. A long list has an index: its routes are grouped by the source of a value in their
//! conditions, each group by the required value, and each such part is indexed again by the other conditions, if it is
//! long. Of several conditions the one whose source has the most values comes first. Conditions decided by an index are
//! not checked again. Prefixes of values, and networks, are found by trying each length that the group has.
//!
//! The keys of the index come from the file, and a request only looks them up, so no client can make them collide.
//!
//! Not handled: thousands of routes that differ only by method, or that require thousands of different header names,
//! are tried one by one.

use foldhash::{HashMap, HashMapExt as _, HashSet};
use http::HeaderName;
use smallvec::SmallVec;

use super::condition::{Condition, ValuePattern, network_key, network_kind, network_of};
use super::{RouteRequest, query};

/// A route's index among all routes, the most specific first.
pub(super) type Rank = usize;

/// Shorter lists, and sources required by fewer routes, have no index: trying a few routes is as fast.
const MIN_TO_INDEX: usize = 8;

/// Routes by rank; see the module.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Contains the same routes.
    index: Option<Box<Index>>,
}

/// A route, with its conditions on values.
#[derive(Clone, Debug)]
struct Candidate {
    rank: Rank,
    /// All must hold. In an index: those that it does not decide.
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Index {
    groups: Vec<Group>,
    /// Routes in no group, by rank.
    rest: Vec<Candidate>,
}

/// Routes with conditions on one source.
#[derive(Debug)]
struct Group {
    source: Source,
    /// The index in `lists` by value, prefix of a value, or [network](network_key).
    by_key: HashMap<Box<[u8]>, usize>,
    lists: Vec<Candidates>,
    /// The lengths of prefixes, or the [kinds](network_kind) of networks: each once.
    lengths: Vec<usize>,
}

/// The source of the values that a group is found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    Header(SourceName, Comparison),
    Query(Box<str>, Comparison),
    Client,
}

/// The name of a header, in the order of its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SourceName(HeaderName);

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Comparison {
    Exact,
    Prefix,
}

impl Candidates {
    /// Adds a route with these conditions. Ranks must be in ascending order, and before [`Self::index`].
    pub(super) fn push(&mut self, rank: Rank, conditions: &[Condition]) {
        self.all.push(Candidate { rank, conditions: conditions.to_vec() });
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
        let mut values: HashMap<Source, HashSet<Box<[u8]>>> = HashMap::new();
        for condition in self.all.iter().flat_map(|candidate| &candidate.conditions) {
            values.entry(Source::of(condition)).or_default().extend(keys(condition));
        }
        let leading = |candidate: &Candidate| {
            let sources = candidate.conditions.iter().map(Source::of).enumerate();
            let count = |source: &Source| values.get(source).map_or(0, HashSet::len);
            sources.max_by_key(|(_, source)| (count(source), source.clone()))
        };
        let mut members: HashMap<Source, Vec<(&Candidate, usize)>> = HashMap::new();
        for candidate in &self.all {
            if let Some((index, source)) = leading(candidate) {
                members.entry(source).or_default().push((candidate, index));
            }
        }
        members.retain(|_, members| members.len() >= MIN_TO_INDEX);
        let is_rest = |candidate: &&Candidate| {
            leading(candidate).is_none_or(|(_, source)| !members.contains_key(&source))
        };
        let rest = self.all.iter().filter(is_rest).cloned().collect();
        let groups: Vec<_> = members.iter().map(|(source, members)| Group::new(source, members)).collect();
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
            // A list that several values lead to is tried once.
            let mut tried = SmallVec::<[usize; 8]>::new();
            group.each_list(request, |list| {
                if !tried.contains(&list) {
                    tried.push(list);
                    best = group.lists[list].first(best, request, accepts).unwrap_or(best);
                }
            });
        }
        first_of(&self.rest, best, request, accepts).or((best < bound).then_some(best))
    }
}

impl Group {
    /// Of routes by rank, each with the index of its condition on `source`.
    fn new(source: &Source, members: &[(&Candidate, usize)]) -> Self {
        let mut group =
            Self { source: source.clone(), by_key: HashMap::new(), lists: Vec::new(), lengths: Vec::new() };
        for &(candidate, index) in members {
            let mut candidate = candidate.clone();
            let condition = candidate.conditions.remove(index);
            for key in keys(&condition) {
                let lists = &mut group.lists;
                let list = *group.by_key.entry(key).or_insert_with(|| {
                    lists.push(Candidates::default());
                    lists.len() - 1
                });
                lists[list].all.push(candidate.clone());
            }
            group.lengths.extend(lengths(&condition));
        }
        group.lengths.sort_unstable();
        group.lengths.dedup();
        group.lists.iter_mut().for_each(Candidates::index);
        group
    }

    /// Calls `visit` for each list that a value of the request leads to.
    fn each_list(&self, request: &RouteRequest<'_>, mut visit: impl FnMut(usize)) {
        let mut look = |key: &[u8]| {
            if let Some(&list) = self.by_key.get(key) {
                visit(list);
            }
        };
        let mut each_of = |comparison, value: &[u8]| match comparison {
            Comparison::Exact => look(value),
            Comparison::Prefix => {
                self.lengths.iter().filter_map(|&length| value.get(..length)).for_each(&mut look);
            }
        };
        match &self.source {
            Source::Header(SourceName(name), comparison) => {
                request.headers.all(name).iter().for_each(|value| each_of(*comparison, value));
            }
            Source::Query(name, comparison) => {
                let values = query::all(request.query.unwrap_or_default(), name);
                values.for_each(|value| each_of(*comparison, &value));
            }
            Source::Client if request.client.identified => {
                let kinds = self.lengths.iter().filter_map(|&kind| u8::try_from(kind).ok());
                let networks = kinds.filter_map(|kind| network_of(request.client.address, kind));
                networks.for_each(|network| look(&network_key(network)));
            }
            Source::Client => {}
        }
    }
}

impl Source {
    fn of(condition: &Condition) -> Self {
        let comparison = |value: &ValuePattern| match value {
            ValuePattern::Exact(_) => Comparison::Exact,
            ValuePattern::Prefix(_) => Comparison::Prefix,
        };
        match condition {
            Condition::Header(name, value) => Self::Header(SourceName(name.clone()), comparison(value)),
            Condition::Query(name, value) => Self::Query(name.clone(), comparison(value)),
            Condition::Clients(_) => Self::Client,
        }
    }
}

impl PartialOrd for SourceName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SourceName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_str().cmp(other.0.as_str())
    }
}

/// The keys by which an index finds a route with this condition.
fn keys(condition: &Condition) -> Vec<Box<[u8]>> {
    match condition {
        Condition::Header(_, value) | Condition::Query(_, value) => vec![value.bytes().into()],
        Condition::Clients(networks) => networks.iter().map(|one| network_key(*one).into()).collect(),
    }
}

/// The lengths of prefixes, or the kinds of networks, of a condition.
fn lengths(condition: &Condition) -> Vec<usize> {
    match condition {
        Condition::Header(_, value) | Condition::Query(_, value) => vec![value.bytes().len()],
        Condition::Clients(networks) => networks.iter().map(|one| network_kind(*one).into()).collect(),
    }
}

fn first_of(
    candidates: &[Candidate],
    bound: Rank,
    request: &RouteRequest<'_>,
    accepts: &impl Fn(Rank) -> bool,
) -> Option<Rank> {
    let fits = |candidate: &&Candidate| {
        accepts(candidate.rank) && candidate.conditions.iter().all(|condition| condition.holds(request))
    };
    candidates.iter().take_while(|candidate| candidate.rank < bound).find(fits).map(|found| found.rank)
}

#[cfg(test)]
mod tests;
