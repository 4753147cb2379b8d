//! Whether requests reach a route: by a witness, or by the proof that there is none.
//!
//! The proof is about one [`Alternative`] of a route's conditions. Routes with the same host pattern, with all of its
//! methods, and whose other conditions follow from its own, take every request of the alternative whose path they match,
//! if they come first in the order of routes. So the question is one about paths alone, which
//! [automata](super::automaton) answer: is there a path of the route that none of them matches?

use std::collections::HashMap;

use fastrand::Rng;
use http::Method;
use ipnet::IpNet;

use super::automaton::{NormalPaths, PathAutomaton, PathRule, PathSearch};
use super::{Alternative, PathReading, PathSource, WITNESSES, Witness, clients_of};
use crate::route::condition::{Condition, ValuePattern, ValuePatterns};
use crate::route::path::EncodedDots;
use crate::route::pattern::{HostPattern, PathPattern};
use crate::route::{Conditions, RouteIndex, RouteTable};

/// The maximum number of routes that take the requests of another one together.
const MAX_TAKERS: usize = 12;
/// The maximum number of steps of all searches, which take about a tenth of a second.
const MAX_STEPS: usize = 1 << 22;
/// The maximum number of witnesses of all routes, which take about as long.
const MAX_REQUESTS: usize = 1 << 18;
/// The steps that an automaton takes to build.
const BUILD_STEPS: usize = 2_000;
/// The maximum number of networks by which those of a route are divided, and of the parts.
const MAX_NETWORKS: usize = 64;
/// The maximum number of automata that are kept.
const MAX_AUTOMATA: usize = 256;

/// All routes, and what is known about which requests reach them.
pub struct Reach<'c> {
    table: &'c RouteTable,
    routes: Vec<&'c Conditions>,
    reading: PathReading,
    /// The networks that conditions name, or the first of many.
    networks: Vec<IpNet>,
    automata: HashMap<RouteIndex, PathAutomaton>,
    steps_left: usize,
    requests_left: usize,
}

/// Whether requests reach a route.
#[derive(Debug)]
pub enum Reachability {
    /// This one does.
    Reached(Box<Witness>),
    /// None does: these routes take all of them, and without these there is none at all.
    Never(Vec<RouteIndex>),
    /// None does: the `not` of the route excludes all that satisfy its other conditions.
    Excluded,
    /// Neither a request nor a proof was found.
    Unknown,
}

impl<'c> Reach<'c> {
    /// `routes` are those of the table, in file order.
    pub fn new(table: &'c RouteTable, routes: Vec<&'c Conditions>, reading: PathReading) -> Self {
        let networks = routes.iter().flat_map(|route| clients_of(route)).copied();
        let networks = networks.take(MAX_NETWORKS).collect();
        let automata = HashMap::new();
        let (steps_left, requests_left) = (MAX_STEPS, MAX_REQUESTS);
        Self { table, routes, reading, networks, automata, steps_left, requests_left }
    }

    /// How paths are read.
    pub fn reading(&self) -> PathReading {
        self.reading
    }

    /// The conditions of a route.
    pub fn conditions(&self, route: RouteIndex) -> &'c Conditions {
        self.routes[route.0]
    }

    /// The route of a request.
    pub fn find(&self, witness: &Witness) -> Option<RouteIndex> {
        witness.ask(self.reading, |request| self.table.find(request)).flatten()
    }

    /// Whether requests reach the route in this alternative of its conditions; with `within`, those whose path, as it
    /// is spelled, has this pattern.
    pub fn reachability(
        &mut self,
        route: RouteIndex,
        alternative: Alternative<'_>,
        within: Option<&PathPattern>,
    ) -> Reachability {
        let whole = self.reachability_of(route, alternative, within);
        let (Reachability::Unknown, Some(network)) = (&whole, alternative.network) else { return whole };
        // Others may have parts of the network each.
        let Some(parts) = parts_of(network, &self.networks).filter(|parts| parts.len() > 1) else {
            return whole;
        };
        let mut takers = Vec::new();
        for part in parts {
            match self.reachability_of(route, Alternative { network: Some(part), ..alternative }, within) {
                Reachability::Never(found) => takers.extend(found),
                other => return other,
            }
        }
        takers.sort_unstable();
        takers.dedup();
        Reachability::Never(takers)
    }

    fn reachability_of(
        &mut self,
        route: RouteIndex,
        alternative: Alternative<'_>,
        within: Option<&PathPattern>,
    ) -> Reachability {
        let mut takers = Vec::new();
        if exclude_all(&self.conditions(route).values, alternative) {
            return Reachability::Excluded;
        }
        if self.steps_left == 0 {
            return Reachability::Unknown;
        }
        for witness in self.witnesses(route, alternative, within) {
            if self.requests_left == 0 {
                return Reachability::Unknown;
            }
            self.requests_left -= 1;
            match self.find(&witness) {
                Some(found) if found == route && self.is_within(&witness, route, within) => {
                    return Reachability::Reached(Box::new(witness));
                }
                Some(found) if found != route && !takers.contains(&found) => takers.push(found),
                _ => {}
            }
        }
        takers.retain(|taker| self.takes(*taker, route, alternative));
        takers.truncate(MAX_TAKERS);
        self.prove(route, alternative, within, takers)
    }

    /// Witnesses of a route, which differ where its conditions allow it.
    pub fn witnesses<'w>(
        &self,
        route: RouteIndex,
        alternative: Alternative<'w>,
        within: Option<&'w PathPattern>,
    ) -> impl Iterator<Item = Witness> + use<'c, 'w>
    where
        'c: 'w,
    {
        let (conditions, reading): (&'w Conditions, _) = (self.conditions(route), self.reading);
        let mut random = Rng::with_seed(u64::try_from(route.0).unwrap_or_default());
        let source: Option<PathSource<'w>> = match within {
            Some(pattern) => Some(PathSource::Pattern(pattern)),
            None => PathSource::new(conditions),
        };
        (0..WITNESSES).filter_map(move |attempt| {
            let path = source.as_ref()?.path(reading, attempt, &mut random)?;
            Witness::new((conditions, alternative), path, attempt, &mut random)
        })
    }

    /// The rule of paths without which some path would match a route that none does.
    pub fn broken_rule(&mut self, route: RouteIndex) -> Option<PathRule> {
        PathRule::ALL
            .into_iter()
            .find(|rule| matches!(self.search(route, &[], None, Some(*rule)), PathSearch::Found(_)))
    }

    fn prove(
        &mut self,
        route: RouteIndex,
        alternative: Alternative<'_>,
        within: Option<&PathPattern>,
        mut takers: Vec<RouteIndex>,
    ) -> Reachability {
        loop {
            let path = match self.search(route, &takers, within, None) {
                PathSearch::Nothing => {
                    let takers = self.fewest(route, within, takers);
                    let has_paths = || !self.excluded_paths(route).is_empty();
                    // Without `not`, the route's path may match.
                    let is_excluded = takers.is_empty() && within.is_none() && has_paths();
                    return if is_excluded { Reachability::Excluded } else { Reachability::Never(takers) };
                }
                PathSearch::Found(path) => path,
                PathSearch::Unknown => return Reachability::Unknown,
            };
            // Others may list the usual methods.
            let seldom = Method::from_bytes(b"PROPFIND").unwrap_or_default();
            let mut further = Vec::new();
            for method in [seldom, Method::GET, Method::POST] {
                let mut random = Rng::with_seed(0);
                let of_route = (self.conditions(route), alternative);
                let Some(mut witness) = Witness::new(of_route, path.clone(), 0, &mut random) else {
                    return Reachability::Unknown;
                };
                if alternative.method.is_none() {
                    witness.method = method;
                }
                match self.find(&witness) {
                    Some(found) if found == route && self.is_within(&witness, route, within) => {
                        return Reachability::Reached(Box::new(witness));
                    }
                    Some(found) => further.push(found),
                    None => {}
                }
            }
            let is_new =
                |taker: &RouteIndex| !takers.contains(taker) && self.takes(*taker, route, alternative);
            match further.into_iter().find(is_new) {
                Some(taker) if takers.len() < MAX_TAKERS => takers.push(taker),
                _ => return Reachability::Unknown,
            }
        }
    }

    /// Those of the takers that suffice.
    fn fewest(
        &mut self,
        route: RouteIndex,
        within: Option<&PathPattern>,
        mut takers: Vec<RouteIndex>,
    ) -> Vec<RouteIndex> {
        for index in (0..takers.len()).rev() {
            let mut others = takers.clone();
            others.remove(index);
            if self.search(route, &others, within, None) == PathSearch::Nothing {
                takers = others;
            }
        }
        takers.sort_unstable();
        takers
    }

    /// Searches a path of the route that none of the takers matches.
    fn search(
        &mut self,
        route: RouteIndex,
        takers: &[RouteIndex],
        within: Option<&PathPattern>,
        without: Option<PathRule>,
    ) -> PathSearch {
        let paths = NormalPaths {
            merge_slashes: self.conditions(route).merge_slashes,
            refuses_encoded_dots: self.reading.encoded_dots == EncodedDots::Reject,
            without,
        };
        let (own, others) = (self.take_automaton(route), self.take_automata(takers));
        let excluded = self.excluded_paths(route);
        let pattern = within.map(PathAutomaton::of_spelled);
        let (Some(own), Some(mut others)) = (own, others) else { return PathSearch::Unknown };
        let mut wanted = vec![own];
        match pattern {
            Some(None) => return PathSearch::Unknown,
            Some(Some(pattern)) => wanted.push(pattern),
            None => {}
        }
        others.extend(excluded);
        let found = paths.search(&mut wanted, &mut others, &mut self.steps_left);
        if self.automata.len() > MAX_AUTOMATA {
            self.automata.clear();
        }
        self.automata.extend([route].into_iter().zip(wanted));
        self.automata.extend(takers.iter().copied().zip(others));
        found
    }

    /// The paths that `not` of the route excludes.
    fn excluded_paths(&self, route: RouteIndex) -> Vec<PathAutomaton> {
        let conditions = self.table.compared(route);
        let path_of = |condition: &Condition| match condition {
            Condition::Not(inner) => match &**inner {
                Condition::Path(path, merge_slashes) if *merge_slashes == conditions.merge_slashes => {
                    PathAutomaton::of_route(path, self.reading.matching)
                }
                _ => None,
            },
            _ => None,
        };
        conditions.values.iter().filter_map(path_of).collect()
    }

    fn take_automata(&mut self, routes: &[RouteIndex]) -> Option<Vec<PathAutomaton>> {
        routes.iter().map(|route| self.take_automaton(*route)).collect()
    }

    /// The automaton of a route's path, to be put back. `None`: it is too large.
    fn take_automaton(&mut self, route: RouteIndex) -> Option<PathAutomaton> {
        if let Some(known) = self.automata.remove(&route) {
            return Some(known);
        }
        self.steps_left = self.steps_left.saturating_sub(BUILD_STEPS);
        PathAutomaton::of_route(&self.table.compared(route).path, self.reading.matching)
    }

    /// Whether a request that reaches the route has a path of this pattern.
    fn is_within(&self, witness: &Witness, route: RouteIndex, within: Option<&PathPattern>) -> bool {
        let merge_slashes = self.conditions(route).merge_slashes;
        let has = |pattern: &PathPattern| {
            witness.ask(self.reading, |request| pattern.matches(request.path.form(merge_slashes)))
        };
        within.is_none_or(|pattern| has(pattern) == Some(true))
    }

    /// Whether `taker` certainly takes all requests of the route, in this alternative, whose path it matches.
    fn takes(&self, taker: RouteIndex, route: RouteIndex, alternative: Alternative<'_>) -> bool {
        let (own, other) = (self.conditions(route), self.conditions(taker));
        let has_host = match alternative.host {
            Some(host) => other.hosts.contains(host),
            None => other.hosts.is_empty(),
        };
        let has_method = other.methods.is_empty()
            || alternative.method.is_some_and(|method| other.methods.contains(method));
        let follows = |condition: &Condition| is_implied(condition, &own.values, alternative);
        taker != route
            && self.table.precedes(taker, route)
            && has_host
            && has_method
            && own.merge_slashes == other.merge_slashes
            && other.values.iter().all(follows)
    }
}

/// The parts of a network that each are in one of `others` or have no address in common with any. `None`: too many.
fn parts_of(network: IpNet, others: &[IpNet]) -> Option<Vec<IpNet>> {
    let (mut parts, mut open) = (Vec::new(), vec![network]);
    while let Some(part) = open.pop() {
        let is_divided = others.iter().any(|other| *other != part && part.contains(other));
        match part.subnets(part.prefix_len() + 1) {
            Ok(halves) if is_divided => open.extend(halves),
            _ => parts.push(part),
        }
        if parts.len() + open.len() > MAX_NETWORKS {
            return None;
        }
    }
    Some(parts)
}

/// Whether each value that `narrow` matches is certainly matched by `wide`.
fn covers(wide: &ValuePattern, narrow: &ValuePattern) -> bool {
    use ValuePattern::{Absent, Contains, Exact, Prefix, Present, Suffix};
    match (wide, narrow) {
        (Present, Absent) => false,
        (Present, _) => true,
        (Prefix(wide), Exact(narrow) | Prefix(narrow)) => narrow.starts_with(wide),
        (Suffix(wide), Exact(narrow) | Suffix(narrow)) => narrow.ends_with(wide),
        (Contains(wide), Exact(narrow) | Prefix(narrow) | Suffix(narrow) | Contains(narrow)) => {
            memchr::memmem::find(narrow, wide).is_some()
        }
        _ => wide == narrow,
    }
}

/// Whether a request with a value that `narrow` matches, or without one, certainly has one that `wide` does.
fn cover(wide: &ValuePatterns, narrow: &ValuePatterns) -> bool {
    wide.ignores_case() == narrow.ignores_case()
        && narrow.iter().all(|narrow| wide.iter().any(|wide| covers(wide, narrow)))
}

/// The patterns of a condition on the same source of values as `other`.
fn same_source<'c>(condition: &'c Condition, other: &Condition) -> Option<&'c ValuePatterns> {
    match (condition, other) {
        (Condition::Header(name, patterns), Condition::Header(other, _)) if name == other => Some(patterns),
        (Condition::Body(pointer, patterns), Condition::Body(other, _)) if pointer == other => Some(patterns),
        (Condition::Query(name, patterns), Condition::Query(other, _))
        | (Condition::Cookie(name, patterns), Condition::Cookie(other, _))
            if name == other =>
        {
            Some(patterns)
        }
        _ => None,
    }
}

/// Whether each request that satisfies `own` in this alternative certainly satisfies `condition`.
fn is_implied(condition: &Condition, own: &[Condition], alternative: Alternative<'_>) -> bool {
    match condition {
        _ if own.contains(condition) => true,
        Condition::Header(_, wide)
        | Condition::Query(_, wide)
        | Condition::Cookie(_, wide)
        | Condition::Body(_, wide) => {
            own.iter().filter_map(|own| same_source(own, condition)).any(|narrow| cover(wide, narrow))
        }
        Condition::Clients(networks) => {
            alternative.network.is_some_and(|own| networks.iter().any(|network| network.contains(&own)))
        }
        Condition::Methods(methods) => alternative.method.is_some_and(|own| methods.contains(own)),
        Condition::Hosts(hosts) => match alternative.host {
            Some(HostPattern::Exact(name)) => hosts.iter().any(|host| host.matches(name)),
            Some(own) => hosts.contains(own),
            None => false,
        },
        Condition::Listeners(names) => own.iter().any(|own| match own {
            Condition::Listeners(own) => own.iter().all(|name| names.contains(name)),
            _ => false,
        }),
        Condition::Countries(countries) => own.iter().any(|own| match own {
            Condition::Countries(own) => own.iter().all(|country| countries.contains(country)),
            _ => false,
        }),
        Condition::Not(inner) => is_excluded(inner, own, alternative),
        Condition::Path(..) => false,
    }
}

/// Whether no request that satisfies `own` in this alternative satisfies `condition`.
fn is_excluded(condition: &Condition, own: &[Condition], alternative: Alternative<'_>) -> bool {
    match condition {
        Condition::Header(_, patterns)
        | Condition::Query(_, patterns)
        | Condition::Cookie(_, patterns)
        | Condition::Body(_, patterns) => {
            let is_absent = |pattern: &ValuePattern| *pattern == ValuePattern::Absent;
            let excludes = |own: &Condition| match own {
                Condition::Not(own) => same_source(own, condition).is_some_and(|wide| cover(wide, patterns)),
                own => same_source(own, condition).is_some_and(|own| {
                    own.iter().all(is_absent) && !patterns.iter().any(is_absent)
                        || !own.iter().any(is_absent) && patterns.iter().all(is_absent)
                }),
            };
            own.iter().any(excludes)
        }
        Condition::Clients(networks) => alternative.network.is_some_and(|own| {
            networks.iter().all(|network| !network.contains(&own) && !own.contains(network))
        }),
        Condition::Methods(methods) => alternative.method.is_some_and(|own| !methods.contains(own)),
        Condition::Hosts(hosts) => {
            matches!(alternative.host, Some(HostPattern::Exact(name)) if !hosts.iter().any(|host| host.matches(name)))
        }
        Condition::Listeners(names) => own.iter().any(|own| match own {
            Condition::Listeners(own) => !own.iter().any(|name| names.contains(name)),
            _ => false,
        }),
        Condition::Countries(countries) => own.iter().any(|own| match own {
            Condition::Countries(own) => !own.iter().any(|country| countries.contains(country)),
            _ => false,
        }),
        Condition::Not(_) | Condition::Path(..) => false,
    }
}

/// Whether `not` excludes all requests that satisfy the other conditions in this alternative.
fn exclude_all(own: &[Condition], alternative: Alternative<'_>) -> bool {
    own.iter().any(|condition| match condition {
        Condition::Not(inner) => is_implied(inner, own, alternative),
        _ => false,
    })
}
