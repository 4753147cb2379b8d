//! The routes to choose from once the path of a request is known: selected by the values of headers.
//!
//! A short list is tried one by one. A long list has an index: its routes are grouped by the name of a header in their
//! conditions, each group by the required value, and each such part is indexed again by the other headers, if it is
//! long. Of several headers the one with the most values comes first. Conditions decided by an index are not checked
//! again.
//!
//! The keys of the index come from the file, and a request only looks them up, so no client can make them collide.
//!
//! Not handled: thousands of routes that differ only by method, or that require thousands of different header names,
//! are tried one by one.

use foldhash::{HashMap, HashMapExt as _, HashSet};
use http::{HeaderName, HeaderValue};

use super::carries;
use crate::http1::fields::Fields;

/// A route's index among all routes, the most specific first.
pub(super) type Rank = usize;

/// Shorter lists, and headers required by fewer routes, have no index: trying a few routes is as fast.
const MIN_TO_INDEX: usize = 8;

/// Routes by rank; see the module.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Contains the same routes.
    index: Option<Box<Index>>,
}

/// A route, with its header conditions.
#[derive(Clone, Debug)]
struct Candidate {
    rank: Rank,
    /// All must hold. In an index: those that it does not decide.
    headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Debug)]
struct Index {
    groups: Vec<Group>,
    /// Routes in no group, by rank.
    rest: Vec<Candidate>,
}

/// Routes that require one header.
#[derive(Debug)]
struct Group {
    name: HeaderName,
    by_value: HashMap<Box<[u8]>, Candidates>,
}

impl Candidates {
    /// Adds a route with these header conditions. Ranks must be in ascending order, and before [`Self::index`].
    pub(super) fn push(&mut self, rank: Rank, headers: &[(HeaderName, HeaderValue)]) {
        self.all.push(Candidate { rank, headers: headers.to_vec() });
    }

    /// All ranks in ascending order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.all.iter().map(|candidate| candidate.rank)
    }

    /// The lowest rank below `bound` of the routes with all required headers in `fields` and that `accepts` accepts.
    /// `accepts` is called at most once for each rank. No allocation.
    pub(super) fn first(
        &self,
        bound: Rank,
        fields: Fields<'_>,
        accepts: &impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        match &self.index {
            None => first_of(&self.all, bound, fields, accepts),
            Some(index) => index.first(bound, fields, accepts),
        }
    }

    /// Indexes the list, if it is long.
    pub(super) fn index(&mut self) {
        if self.all.len() < MIN_TO_INDEX {
            return;
        }
        let mut values: HashMap<&HeaderName, HashSet<&HeaderValue>> = HashMap::new();
        for (name, value) in self.all.iter().flat_map(|candidate| &candidate.headers) {
            values.entry(name).or_default().insert(value);
        }
        let leading = |candidate: &Candidate| {
            let indices = 0..candidate.headers.len();
            indices.max_by_key(|&index| {
                let (name, _) = &candidate.headers[index];
                (values.get(name).map_or(0, HashSet::len), name.as_str())
            })
        };
        let mut members: HashMap<&HeaderName, Vec<(&Candidate, usize)>> = HashMap::new();
        for candidate in &self.all {
            if let Some(index) = leading(candidate) {
                members.entry(&candidate.headers[index].0).or_default().push((candidate, index));
            }
        }
        members.retain(|_, members| members.len() >= MIN_TO_INDEX);
        let is_rest = |candidate: &&Candidate| {
            leading(candidate).is_none_or(|index| !members.contains_key(&candidate.headers[index].0))
        };
        let rest = self.all.iter().filter(is_rest).cloned().collect();
        let groups: Vec<_> = members.iter().map(|(&name, members)| Group::new(name, members)).collect();
        if !groups.is_empty() {
            self.index = Some(Box::new(Index { groups, rest }));
        }
    }
}

impl Index {
    fn first(&self, bound: Rank, fields: Fields<'_>, accepts: &impl Fn(Rank) -> bool) -> Option<Rank> {
        let mut best = bound;
        for group in &self.groups {
            let values = fields.all(&group.name).iter();
            for (index, value) in values.clone().enumerate() {
                let Some(candidates) = group.by_value.get(value) else { continue };
                // A repeated value finds no more routes.
                if !values.clone().take(index).any(|earlier| earlier == value) {
                    best = candidates.first(best, fields, accepts).unwrap_or(best);
                }
            }
        }
        first_of(&self.rest, best, fields, accepts).or((best < bound).then_some(best))
    }
}

impl Group {
    /// Of routes by rank, each with the index of its condition on `name`.
    fn new(name: &HeaderName, members: &[(&Candidate, usize)]) -> Self {
        let mut by_value: HashMap<Box<[u8]>, Candidates> = HashMap::new();
        for &(candidate, index) in members {
            let mut candidate = candidate.clone();
            let (_, value) = candidate.headers.remove(index);
            by_value.entry(value.as_bytes().into()).or_default().all.push(candidate);
        }
        by_value.values_mut().for_each(Candidates::index);
        Self { name: name.clone(), by_value }
    }
}

fn first_of(
    candidates: &[Candidate],
    bound: Rank,
    fields: Fields<'_>,
    accepts: &impl Fn(Rank) -> bool,
) -> Option<Rank> {
    let fits = |candidate: &&Candidate| {
        accepts(candidate.rank) && candidate.headers.iter().all(|(name, value)| carries(fields, name, value))
    };
    candidates.iter().take_while(|candidate| candidate.rank < bound).find(fits).map(|found| found.rank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http1::fields::FieldSpan;

    const NAMES: &[&str] = &["x", "x-tenant", "y"];

    /// The conditions of one route: often several values of one header.
    fn asked() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
        let condition =
            (prop::sample::select(NAMES), prop::sample::select(vec!["a", "A", "b", "ab", "0", "1"]));
        let parsed = condition
            .prop_map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        prop::collection::vec(parsed, 0..4)
    }

    /// The fields of a request as sent: names in any case, any of them often.
    fn sent() -> impl Strategy<Value = Vec<(String, String)>> {
        let name = prop::sample::select(NAMES).prop_flat_map(|name| {
            let upper = prop::collection::vec(any::<bool>(), name.len());
            upper.prop_map(|upper| {
                let letters = name.chars().zip(upper);
                letters
                    .map(|(letter, upper)| if upper { letter.to_ascii_uppercase() } else { letter })
                    .collect()
            })
        });
        prop::collection::vec((name, "a|A|b|ab|0|1||c"), 0..8)
    }

    /// The text of these fields, and where each stands in it.
    fn head(sent: &[(String, String)]) -> (Vec<u8>, Vec<FieldSpan>) {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for (name, value) in sent {
            let at = text.len();
            let span = FieldSpan::new(at, name.as_bytes(), at + name.len(), value.as_bytes());
            spans.push(span.expect("a short field"));
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(value.as_bytes());
        }
        (text, spans)
    }

    fn condition(name: &'static str, value: usize) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from(value))
    }

    #[test]
    fn of_thousands_of_routes_one_is_tried() {
        let by_tenant: fn(usize) -> Vec<_> = |number| vec![condition("x-tenant", number)];
        let by_both =
            |number| vec![condition("x-plan", 7), condition("x", number / 70), condition("y", number % 70)];
        for asked in [by_tenant, by_both] {
            let mut candidates = Candidates::default();
            (0..4_900).for_each(|rank| candidates.push(rank, &asked(rank)));
            candidates.index();
            let sent: Vec<_> = asked(4_321)
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect();
            let (text, spans) = head(&sent);
            let tried = std::cell::Cell::new(0);
            let accepts = |_| {
                tried.set(tried.get() + 1);
                true
            };
            assert_eq!(candidates.first(Rank::MAX, Fields::new(&text, &spans), &accepts), Some(4_321));
            assert_eq!(tried.get(), 1);
        }
    }

    proptest! {
        /// The index equals trying every route in turn, and no route is tried twice.
        #[test]
        fn the_index_equals_trying_every_route(
            routes in prop::collection::vec((asked(), any::<bool>()), 0..60),
            requests in prop::collection::vec((sent(), 0..70_usize), 1..6),
        ) {
            let mut candidates = Candidates::default();
            routes.iter().enumerate().for_each(|(rank, (headers, _))| candidates.push(rank, headers));
            candidates.index();
            prop_assert!(candidates.ranks().eq(0..routes.len()));
            for (sent, bound) in requests {
                let (text, spans) = head(&sent);
                let fields = Fields::new(&text, &spans);
                let asked = std::cell::RefCell::new(Vec::new());
                let accepts = |rank: Rank| {
                    asked.borrow_mut().push(rank);
                    routes[rank].1
                };
                let found = candidates.first(bound, fields, &accepts);
                let mut asked = asked.into_inner();
                asked.sort_unstable();
                prop_assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", asked);
                let fits = |rank: &Rank| {
                    let (headers, is_accepted) = &routes[*rank];
                    *is_accepted && headers.iter().all(|(name, value)| carries(fields, name, value))
                };
                let expected = (0..routes.len()).take_while(|&rank| rank < bound).find(fits);
                prop_assert_eq!(found, expected, "{:?} for {:?}", &sent, &routes);
            }
        }
    }
}
