//! All routes, compiled for lookup.

use std::collections::BTreeSet;
use std::iter;

// Only names in the config file are ever inserted, so that no client can make the keys collide.
use foldhash::{HashMap, HashMapExt as _};
use http::Method;

use super::candidates::{Candidates, Rank};
use super::condition::Condition;
use super::path::Path;
use super::path::PathMatching;
use super::pattern::{HostPattern, PathMatcher};
use super::regex_index::RegexIndex;
use super::trie::Trie;
use super::{Conditions, Criterion, Match, RouteIndex, RouteRequest};
use crate::measure::JsonPointer;

/// All routes, compiled for lookup.
///
/// Hosts are looked up from the most to the least specific (exact, then wildcards from the longest suffix on, then
/// any). For each, a [trie](super::trie) and an [index of regular expressions](super::regex_index) find the best route by
/// path, methods, conditions on values and file order. A route that
/// fails on other conditions is skipped, so the search continues with wider hosts and paths. The tries hold patterns as
/// [`PathMatching`] compares them. Of routes that differ only in the spelling of their paths, the one spelled as the
/// request is found in a second step, which costs other routes nothing. Routes of one host and one path are found by
/// [values of the request](super::candidates).
#[derive(Debug)]
pub struct RouteTable {
    /// From most to least specific, without hosts.
    ranked: Vec<Ranked>,
    /// The index in `ranked` of each route in file order.
    ranks: Vec<Rank>,
    exact: HashMap<Box<str>, Tries>,
    /// By suffix, with its leading dot.
    wildcards: HashMap<Box<str>, Tries>,
    /// Bytes of the longest suffix: it bounds the work for a hostile host of many labels.
    longest_wildcard: usize,
    any: Tries,
    /// Routes that differ only in the spelling of their paths.
    spellings: Vec<Candidates>,
    /// Whether a route names HEAD.
    names_head: bool,
    /// Whether a route has a condition on the client's address, on the listener or on the body.
    reads_connection: bool,
    /// What the conditions read of bodies.
    body_pointers: Vec<JsonPointer>,
}

/// A route, with its conditions in normal form.
#[derive(Debug)]
struct Ranked {
    index: RouteIndex,
    /// Its path as compared.
    conditions: Conditions,
    /// Its path as spelled.
    spelled: PathMatcher,
    /// Its indices in `spellings`, if any.
    spellings: Vec<usize>,
}

/// The routes of one host.
#[derive(Debug, Default)]
struct Tries {
    /// Routes that match paths with duplicate slashes merged.
    merged: Trie,
    /// Routes that match paths as sent.
    kept: Trie,
    /// The same, for regular expressions.
    merged_regexes: RegexIndex,
    kept_regexes: RegexIndex,
}

impl RouteTable {
    /// Compiles the routes; their order breaks ties.
    pub fn new(routes: Vec<Conditions>, matching: PathMatching) -> Self {
        let routes = routes.into_iter().enumerate();
        let mut table = Self {
            ranked: routes.map(|(index, route)| Ranked::new(RouteIndex(index), route, matching)).collect(),
            ranks: Vec::new(),
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            longest_wildcard: 0,
            any: Tries::default(),
            spellings: Vec::new(),
            names_head: false,
            reads_connection: false,
            body_pointers: Vec::new(),
        };
        let values = table.ranked.iter().flat_map(|route| &route.conditions.values);
        table.body_pointers = values.filter_map(Condition::body_pointer).cloned().collect();
        let mut values = table.ranked.iter().flat_map(|route| &route.conditions.values);
        table.reads_connection = values.any(Condition::reads_connection);
        table.names_head = table.ranked.iter().any(|route| route.conditions.methods.contains(&Method::HEAD));
        table.ranked.sort_by(|one, other| one.conditions.specificity(&other.conditions)); // stable: file order
        table.ranks = vec![0; table.ranked.len()];
        for rank in 0..table.ranked.len() {
            table.ranks[table.ranked[rank].index.0] = rank;
            table.insert(rank);
        }
        let tries = table.exact.values_mut().chain(table.wildcards.values_mut());
        tries.chain(iter::once(&mut table.any)).for_each(|tries| tries.index(matching));
        table.join_spellings();
        table
    }

    /// The most specific route of those with all conditions satisfied: by host (exact, wildcard, any; of wildcards the
    /// longer suffix), then path (exact, parameter, regular expression in file order, longest prefix; equals segment by
    /// segment from the left, literal before parameter), then methods given, then more conditions on values,
    /// then the one with a path spelled as the request's, then file order.
    ///
    /// Paths are compared by kind first: `/{x}/b` beats `/a/*` for `/a/b`. Methods are compared as written, except that
    /// GET includes HEAD: [`Self::as_matched`]. Allocates only to decode a query, or to leave
    /// out what does not count in a path for regular expressions; bounded as described at [`RouteTable`] and [its trie](super::trie).
    pub fn find(&self, request: &RouteRequest<'_>) -> Option<RouteIndex> {
        match request.method == Method::HEAD {
            true => self.search(&self.as_matched(*request)),
            false => self.search(request),
        }
    }

    /// What the route of a request depends on in its body. Empty: no route depends on it.
    pub fn body_pointers(&self) -> &[JsonPointer] {
        &self.body_pointers
    }

    /// Whether the route of a request depends on its client's address, its listener or its body; otherwise it depends on its
    /// head alone.
    pub fn reads_connection(&self) -> bool {
        self.reads_connection
    }

    /// The request with the method that routes compare: GET in place of HEAD, unless a route that fits names HEAD.
    /// Otherwise a route for GET would leave HEAD, which backends answer alike, to a wider route without its protection.
    pub fn as_matched<'r>(&self, request: RouteRequest<'r>) -> RouteRequest<'r> {
        let is_head = request.method == Method::HEAD;
        match is_head && !(self.names_head && self.is_named(&request)) {
            true => RouteRequest { method: &Method::GET, ..request },
            false => request,
        }
    }

    /// Whether a route that fits names the method.
    fn is_named(&self, request: &RouteRequest<'_>) -> bool {
        let names = |conditions: &Conditions| conditions.methods.contains(request.method);
        self.hosts_for(request.host).any(|tries| self.min_rank(tries, request, names).is_some())
    }

    /// The conditions of a route, its path in the form that those of requests are compared with.
    pub fn compared(&self, route: RouteIndex) -> &Conditions {
        &self.ranked[self.ranks[route.0]].conditions
    }

    /// Whether of all requests that match both by one pattern of hosts, `other` certainly gets none while `one` is there.
    pub fn precedes(&self, one: RouteIndex, other: RouteIndex) -> bool {
        let (one, other) = (self.ranks[one.0], self.ranks[other.0]);
        one < other && self.ranked[other].spellings.is_empty()
    }

    fn search(&self, request: &RouteRequest<'_>) -> Option<RouteIndex> {
        let takes = |conditions: &Conditions| conditions.takes(request.method);
        let rank = self.hosts_for(request.host).find_map(|tries| self.min_rank(tries, request, takes))?;
        Some(self.ranked[self.spelled_as(rank, request)].index)
    }

    /// The routes of all hosts that match, the most specific host first.
    fn hosts_for<'t>(&'t self, host: &'t str) -> impl Iterator<Item = &'t Tries> {
        let wider = self.wildcards_of(host).chain(iter::once(&self.any));
        self.exact.get(host).into_iter().chain(wider)
    }

    /// For every route in file order: why it did or did not match.
    pub fn explain(&self, request: &RouteRequest<'_>) -> Vec<Match> {
        let request = &self.as_matched(*request);
        let chosen = self.search(request);
        let verdict = |(index, &rank): (usize, &Rank)| {
            let route = &self.ranked[rank].conditions;
            match (route.mismatch(request), chosen) {
                (Some(mismatch), _) => mismatch,
                (None, Some(chosen)) if chosen.0 != index => {
                    let (winner, loser) = (&self.ranked[self.ranks[chosen.0]], &self.ranked[rank]);
                    Match::LessSpecific(chosen, winner.wins_by(loser, request))
                }
                (None, _) => Match::Chosen,
            }
        };
        self.ranks.iter().enumerate().map(verdict).collect()
    }

    /// Routes that no request can reach, each with the first route that takes all of their requests.
    ///
    /// Only a route shadowed by *one* other is found, not one shadowed by several together. That other route has the
    /// same path, spelled alike, the same conditions on values and at least the same hosts and methods, and is earlier in the file:
    /// a wider condition of any other kind makes it less specific, so that it loses. Candidates are bucketed, so that
    /// 10,000 routes take milliseconds.
    pub fn unreachable(&self) -> Vec<(RouteIndex, RouteIndex)> {
        let mut earlier: HashMap<SharedProperties<'_>, Vec<usize>> = HashMap::new();
        let mut unreachable = Vec::new();
        for (index, &rank) in self.ranks.iter().enumerate() {
            let route = &self.ranked[rank].conditions;
            let Some(home) = self.ranked[rank].homes().next() else { continue };
            let candidates = earlier.get(&home).into_iter().flatten();
            let mut takers =
                candidates.filter(|&&other| self.ranked[self.ranks[other]].conditions.includes(route));
            match takers.next() {
                Some(&taker) => unreachable.push((RouteIndex(index), RouteIndex(taker))),
                // A route that takes an unreachable route's requests has been shadowing before: only reachable ones
                // need a bucket.
                None => {
                    self.ranked[rank]
                        .homes()
                        .for_each(|bucket| earlier.entry(bucket).or_default().push(index));
                }
            }
        }
        unreachable
    }

    /// Routes with letters in their path that take requests from a route with a parameter there, because case does not
    /// count: `/users/me` takes `/users/ME` from `/users/{id}`. Each with the first such route.
    ///
    /// A pair is found by a path that the first matches unless case counts: the second is the route that has the path
    /// if case counts.
    pub fn taken_spellings(routes: Vec<Conditions>) -> Vec<(RouteIndex, RouteIndex)> {
        let strict = Self::new(routes, PathMatching::Strict);
        let mut shadowed: Vec<_> = (0..strict.ranked.len())
            .filter_map(|rank| Some((strict.ranked[rank].index, strict.loser(rank)?)))
            .collect();
        shadowed.sort_unstable();
        shadowed
    }

    fn loser(&self, taker: Rank) -> Option<RouteIndex> {
        let route = &self.ranked[taker].conditions;
        let shares_methods = |other: &Conditions| {
            let named = |method| route.methods.contains(method);
            route.methods.is_empty() || other.methods.is_empty() || other.methods.iter().any(named)
        };
        let accepts = |rank: Rank| rank > taker && shares_methods(&self.ranked[rank].conditions);
        let hosts = self.hosts_of(route);
        route.path.pattern()?.other_spellings().find_map(|(index, path)| {
            let best_of = |tries: &&Tries| {
                let first = |candidates: &Candidates, bound| {
                    candidates.ranks().take_while(|&rank| rank < bound).find(|&rank| accepts(rank))
                };
                let min_rank = |trie: &Trie| trie.min_rank(&path, Rank::MAX, first);
                min_rank(&tries.merged).into_iter().chain(min_rank(&tries.kept)).min()
            };
            let mut losers = hosts.iter().filter_map(best_of).map(|rank| &self.ranked[rank]);
            let has_parameter = |loser: &&Ranked| {
                loser.conditions.path.pattern().is_some_and(|pattern| pattern.has_parameter_at(index))
            };
            losers.find(has_parameter).map(|loser| loser.index)
        })
    }

    /// The routes of the route's hosts, and of all that are wider.
    fn hosts_of<'t>(&'t self, route: &'t Conditions) -> Vec<&'t Tries> {
        let mut found = Vec::new();
        for host in &route.hosts {
            let (exact, name) = match host {
                HostPattern::Exact(name) => (self.exact.get(name), &**name),
                HostPattern::Below(suffix) => (self.wildcards.get(suffix), &**suffix),
            };
            found.extend(exact.into_iter().chain(self.wildcards_of(name)));
        }
        found.push(&self.any);
        found
    }

    /// Finds the routes that differ only in the spelling of their paths.
    fn join_spellings(&mut self) {
        let mut alike: HashMap<(SharedProperties<'_>, usize), Vec<Rank>> = HashMap::new();
        for (rank, route) in self.ranked.iter().enumerate() {
            let values = route.conditions.count_of_values();
            for bucket in SharedProperties::all_of(&route.conditions) {
                // Routes with conditions on other values or slashes may match one request, too.
                let bucket = SharedProperties { values: BTreeSet::new(), merge_slashes: true, ..bucket };
                alike.entry((bucket, values)).or_default().push(rank);
            }
        }
        // One pattern has two spellings where slashes are merged for one route only.
        let spelling = |rank: Rank| (&self.ranked[rank].spelled, self.ranked[rank].conditions.merge_slashes);
        let differ = |ranks: &Vec<Rank>| ranks.windows(2).any(|pair| spelling(pair[0]) != spelling(pair[1]));
        let alike: Vec<_> = alike.into_values().filter(differ).collect();
        for (index, ranks) in alike.iter().enumerate() {
            let mut candidates = Candidates::default();
            for &rank in ranks {
                candidates.push(rank, &self.ranked[rank].conditions.values);
                self.ranked[rank].spellings.push(index);
            }
            candidates.index();
            self.spellings.push(candidates);
        }
    }

    /// The route of this rank, or the first of those that equal it except for their spelling and are spelled as the
    /// request.
    fn spelled_as(&self, rank: Rank, request: &RouteRequest<'_>) -> Rank {
        let route = &self.ranked[rank];
        if route.spellings.is_empty() || route.is_spelled_as(request) {
            return rank;
        }
        let equals = |rival: Rank| {
            let rival = &self.ranked[rival];
            rival.is_spelled_as(request)
                && rival.conditions.mismatch(request).is_none()
                && rival.conditions.closest_host(request.host) == route.conditions.closest_host(request.host)
        };
        let first = |index: &usize| self.spellings[*index].first(Rank::MAX, request, &equals);
        route.spellings.iter().filter_map(first).min().unwrap_or(rank)
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

    /// The routes of the wildcards that match `host`, the longest suffix first.
    fn wildcards_of<'t>(&'t self, host: &'t str) -> impl Iterator<Item = &'t Tries> {
        let first = host.len().saturating_sub(self.longest_wildcard).max(1); // something stands in front of the dot
        let tail = host.as_bytes().get(first..).unwrap_or_default();
        let dots = memchr::memchr_iter(b'.', tail).map(move |at| first + at);
        dots.filter_map(|dot| self.wildcards.get(&host[dot..]))
    }

    /// The first route of these that fits and whose methods `takes` accepts.
    fn min_rank(
        &self,
        tries: &Tries,
        request: &RouteRequest<'_>,
        takes: impl Fn(&Conditions) -> bool,
    ) -> Option<Rank> {
        let accepts = |rank: Rank| takes(&self.ranked[rank].conditions);
        let first = |candidates: &Candidates, bound| candidates.first(bound, request, &accepts);
        let merged = tries.merged.min_rank(request.path.folded(true), Rank::MAX, first);
        let kept = tries.kept.min_rank(request.path.folded(false), merged.unwrap_or(Rank::MAX), first);
        let best = kept.or(merged);
        let accepts = |rank: Rank| accepts(rank) && self.ranked[rank].conditions.has_values_of(request);
        tries.min_regex_rank(request.path, best.unwrap_or(Rank::MAX), &accepts).or(best)
    }
}

impl Ranked {
    fn new(index: RouteIndex, mut conditions: Conditions, matching: PathMatching) -> Self {
        if conditions.merge_slashes {
            conditions.path = conditions.path.merged();
        }
        let spelled = conditions.path.clone();
        if matching == PathMatching::Lenient {
            conditions.path = spelled.folded(conditions.merge_slashes);
        }
        let values = std::mem::take(&mut conditions.values);
        conditions.values = values.into_iter().map(|condition| condition.folded(matching)).collect();
        Self { index, conditions, spelled, spellings: Vec::new() }
    }

    /// The buckets of a route that takes all its requests.
    fn homes(&self) -> impl Iterator<Item = SharedProperties<'_>> {
        SharedProperties::all_of(&self.conditions)
            .map(|bucket| SharedProperties { shape: self.spelled.shape(), ..bucket })
    }

    fn is_spelled_as(&self, request: &RouteRequest<'_>) -> bool {
        self.spelled.is_spelled_as(request.path, self.conditions.merge_slashes)
    }

    /// The criterion by which this route, which wins, takes precedence over `other`, which matches too.
    fn wins_by(&self, other: &Self, request: &RouteRequest<'_>) -> Criterion {
        match self.conditions.wins_by(&other.conditions, request.host) {
            Criterion::Order if self.is_spelled_as(request) && !other.is_spelled_as(request) => {
                Criterion::Spelling
            }
            criterion => criterion,
        }
    }
}

impl Tries {
    fn insert(&mut self, conditions: &Conditions, rank: Rank) {
        let (trie, regexes) = match conditions.merge_slashes {
            true => (&mut self.merged, &mut self.merged_regexes),
            false => (&mut self.kept, &mut self.kept_regexes),
        };
        match &conditions.path {
            PathMatcher::Pattern(pattern) => trie.insert(pattern, rank, &conditions.values),
            PathMatcher::Regex(regex) => regexes.push(rank, regex),
        }
    }

    fn index(&mut self, matching: PathMatching) {
        self.merged.index();
        self.kept.index();
        self.merged_regexes.index(matching);
        self.kept_regexes.index(matching);
    }

    #[inline]
    fn min_regex_rank(&self, path: &Path<'_>, bound: Rank, accepts: &impl Fn(Rank) -> bool) -> Option<Rank> {
        let merged = self.merged_regexes.min_rank(path, true, bound, accepts);
        self.kept_regexes.min_rank(path, false, merged.unwrap_or(bound), accepts).or(merged)
    }
}

/// The properties that a route and one that takes all its requests have in common.
#[derive(PartialEq, Eq, Hash)]
struct SharedProperties<'c> {
    /// `None`: any host.
    host: Option<&'c HostPattern>,
    shape: String,
    merge_slashes: bool,
    methods_given: bool,
    /// In their normal form.
    values: BTreeSet<String>,
}

impl<'c> SharedProperties<'c> {
    /// One for each of the route's hosts. A route that takes all of another's requests has each of its hosts.
    fn all_of(route: &'c Conditions) -> impl Iterator<Item = Self> {
        let any = route.hosts.is_empty().then_some(None);
        any.into_iter().chain(route.hosts.iter().map(Some)).map(|host| Self {
            host,
            shape: route.path.shape(),
            merge_slashes: route.merge_slashes,
            methods_given: !route.methods.is_empty(),
            values: route.values.iter().map(ToString::to_string).collect(),
        })
    }
}
