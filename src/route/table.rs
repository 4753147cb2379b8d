//! All routes, compiled for lookup.

use std::collections::BTreeSet;
use std::iter;

// Only what the file names is ever put in, so that no client can make the keys collide.
use foldhash::{HashMap, HashMapExt as _};

use super::pattern::HostPattern;
use super::trie::{Rank, Trie};
use super::{Conditions, Match, Request, RouteIndex};

/// All routes, compiled for lookup.
///
/// Hosts are looked up from the most to the least specific (exact, then wildcards from the longest suffix on, then
/// any); for each, a [trie](super::trie) gives the best route by path, methods, headers and file order. A route whose
/// other conditions fail is passed over, so the search goes on among wider hosts and paths.
///
/// Not handled: thousands of routes of one host *and* one path that differ only by method or header are tried one by
/// one.
#[derive(Debug)]
pub struct RouteTable {
    /// From most to least specific, hosts aside.
    ranked: Vec<Ranked>,
    /// The place in `ranked` of each route in file order.
    ranks: Vec<Rank>,
    exact: HashMap<Box<str>, Tries>,
    /// By suffix, with its leading dot.
    wildcards: HashMap<Box<str>, Tries>,
    /// Bytes of the longest suffix: what bounds the work that a hostile host of many labels makes.
    longest_wildcard: usize,
    any: Tries,
}

/// A route, and its conditions in normal form.
#[derive(Debug)]
struct Ranked {
    index: RouteIndex,
    conditions: Conditions,
}

/// The routes of one host.
#[derive(Debug, Default)]
struct Tries {
    /// Those that match paths with duplicate slashes merged.
    merged: Trie,
    /// Those that match paths as sent.
    kept: Trie,
}

impl RouteTable {
    /// Compiles the routes; their order breaks ties.
    pub fn new(routes: Vec<Conditions>) -> Self {
        let mut table = Self {
            ranked: routes.into_iter().enumerate().map(Ranked::new).collect(),
            ranks: Vec::new(),
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            longest_wildcard: 0,
            any: Tries::default(),
        };
        table.ranked.sort_by(|one, other| one.conditions.specificity(&other.conditions)); // stable: file order
        table.ranks = vec![0; table.ranked.len()];
        for rank in 0..table.ranked.len() {
            table.ranks[table.ranked[rank].index.0] = rank;
            table.insert(rank);
        }
        table
    }

    /// The most specific route of those whose conditions all hold: host (exact, wildcard, any; of wildcards the
    /// longer suffix), then path (exact, parameter, longest prefix; equals segment by segment from the left, literal
    /// before parameter), then methods given, then more headers, then file order.
    ///
    /// Paths are compared by kind first: `/{x}/b` beats `/a/*` for `/a/b`. Methods are compared as written: a route
    /// for GET does not match HEAD. Does not allocate; bounded as told at [`RouteTable`] and [its trie](super::trie).
    pub fn find(&self, request: &Request<'_>) -> Option<RouteIndex> {
        let wider = self.wildcards_of(request.host).chain(iter::once(&self.any));
        let mut hosts = self.exact.get(request.host).into_iter().chain(wider);
        let rank = hosts.find_map(|tries| self.least(tries, request))?;
        Some(self.ranked[rank].index)
    }

    /// For every route in file order: why it did or did not match.
    pub fn explain(&self, request: &Request<'_>) -> Vec<Match> {
        let chosen = self.find(request);
        let verdict = |(index, &rank): (usize, &Rank)| {
            let route = &self.ranked[rank].conditions;
            match (route.mismatch(request), chosen) {
                (Some(mismatch), _) => mismatch,
                (None, Some(chosen)) if chosen.0 != index => {
                    let winner = &self.ranked[self.ranks[chosen.0]].conditions;
                    Match::LessSpecific(chosen, winner.wins_by(route, request.host))
                }
                (None, _) => Match::Chosen,
            }
        };
        self.ranks.iter().enumerate().map(verdict).collect()
    }

    /// Routes that no request can reach, each with the first route that takes all of theirs.
    ///
    /// Only a route shadowed by *one* other is found, not one shadowed by several together. That other has the same
    /// path, the same headers and at least the same hosts and methods, and stands earlier: a wider condition of any
    /// other kind makes it less specific, so that it loses. Candidates are bucketed, so that 10,000 routes take
    /// milliseconds.
    pub fn unreachable(&self) -> Vec<(RouteIndex, RouteIndex)> {
        let mut earlier: HashMap<Bucket<'_>, Vec<usize>> = HashMap::new();
        let mut unreachable = Vec::new();
        for (index, &rank) in self.ranks.iter().enumerate() {
            let route = &self.ranked[rank].conditions;
            let Some(home) = Bucket::all_of(route).next() else { continue };
            let candidates = earlier.get(&home).into_iter().flatten();
            let mut takers =
                candidates.filter(|&&other| self.ranked[self.ranks[other]].conditions.includes(route));
            match takers.next() {
                Some(&taker) => unreachable.push((RouteIndex(index), RouteIndex(taker))),
                // A taker of what an unreachable route takes has taken it before: only reachable ones need a bucket.
                None => {
                    Bucket::all_of(route).for_each(|bucket| earlier.entry(bucket).or_default().push(index))
                }
            }
        }
        unreachable
    }

    fn insert(&mut self, rank: Rank) {
        let conditions = &self.ranked[rank].conditions;
        if conditions.hosts.is_empty() {
            self.any.insert(conditions, rank);
        }
        for host in &conditions.hosts {
            let tries = match host {
                HostPattern::Exact(name) => self.exact.entry(name.clone()).or_default(),
                HostPattern::Below(suffix) => {
                    self.longest_wildcard = self.longest_wildcard.max(suffix.len());
                    self.wildcards.entry(suffix.clone()).or_default()
                }
            };
            tries.insert(conditions, rank);
        }
    }

    /// The routes of the wildcards that hold for `host`, the longest suffix first.
    fn wildcards_of<'t>(&'t self, host: &'t str) -> impl Iterator<Item = &'t Tries> {
        let first = host.len().saturating_sub(self.longest_wildcard).max(1); // something stands in front of the dot
        let tail = host.as_bytes().get(first..).unwrap_or_default();
        let dots = memchr::memchr_iter(b'.', tail).map(move |at| first + at);
        dots.filter_map(|dot| self.wildcards.get(&host[dot..]))
    }

    fn least(&self, tries: &Tries, request: &Request<'_>) -> Option<Rank> {
        let accepts = |rank: Rank| self.ranked[rank].conditions.mismatch_but_for_place(request).is_none();
        let merged = tries.merged.least(request.path.form(true), Rank::MAX, accepts);
        let kept = tries.kept.least(request.path.form(false), merged.unwrap_or(Rank::MAX), accepts);
        kept.or(merged)
    }
}

impl Ranked {
    fn new((index, mut conditions): (usize, Conditions)) -> Self {
        if conditions.merge_slashes {
            conditions.path = conditions.path.merged();
        }
        Self { index: RouteIndex(index), conditions }
    }
}

impl Tries {
    fn insert(&mut self, conditions: &Conditions, rank: Rank) {
        let trie = if conditions.merge_slashes { &mut self.merged } else { &mut self.kept };
        trie.insert(&conditions.path, rank);
    }
}

/// What a route and one that takes all its requests have in common.
#[derive(PartialEq, Eq, Hash)]
struct Bucket<'c> {
    /// `None`: any host.
    host: Option<&'c HostPattern>,
    shape: String,
    merge_slashes: bool,
    methods_given: bool,
    headers: BTreeSet<(&'c str, &'c [u8])>,
}

impl<'c> Bucket<'c> {
    /// One for each of the route's hosts. A route that takes all of another's requests has each of its hosts.
    fn all_of(route: &'c Conditions) -> impl Iterator<Item = Self> {
        let any = route.hosts.is_empty().then_some(None);
        any.into_iter().chain(route.hosts.iter().map(Some)).map(|host| Self {
            host,
            shape: route.path.shape(),
            merge_slashes: route.merge_slashes,
            methods_given: !route.methods.is_empty(),
            headers: route.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect(),
        })
    }
}
