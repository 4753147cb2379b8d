//! Finds the first of thousands of regular expressions by trying few of them.
//!
//! An expression is tried only for paths that contain the longest text that each of its matches contains. All such texts
//! are searched in one pass. An expression without such a text, as `~^/[a-z]+$`, is tried for every path.

use aho_corasick::AhoCorasick;
use foldhash::{HashMap, HashMapExt as _};
use smallvec::SmallVec;

use super::candidates::Rank;
use super::path::{Path, PathMatching};
use super::pattern::PathRegex;

/// Fewer expressions have no index: trying them is as fast.
const MIN_TO_INDEX: usize = 8;

/// Routes with regular expressions, by rank.
#[derive(Debug, Default)]
pub(super) struct RegexIndex {
    all: Vec<(Rank, PathRegex)>,
    literals: Option<Literals>,
}

/// The texts that paths are searched for.
#[derive(Debug)]
struct Literals {
    search: AhoCorasick,
    /// For each text the indices of its expressions.
    owners: Vec<Vec<usize>>,
    /// The indices of expressions without a text.
    always: Vec<usize>,
}

impl RegexIndex {
    /// Adds a route. Ranks must be in ascending order, and before [`Self::index`].
    pub(super) fn push(&mut self, rank: Rank, regex: &PathRegex) {
        self.all.push((rank, regex.clone()));
    }

    /// Indexes the list, if it is long.
    pub(super) fn index(&mut self, matching: PathMatching) {
        if self.all.len() < MIN_TO_INDEX {
            return;
        }
        let (mut always, mut by_text) = (Vec::new(), HashMap::<&[u8], Vec<usize>>::new());
        for (index, (_, regex)) in self.all.iter().enumerate() {
            match regex.literal() {
                [] => always.push(index),
                text => by_text.entry(text).or_default().push(index),
            }
        }
        let (texts, owners): (Vec<_>, Vec<_>) = by_text.into_iter().unzip();
        let mut builder = AhoCorasick::builder();
        builder.ascii_case_insensitive(matching == PathMatching::Lenient);
        // It fails only for more texts than memory holds: then each expression is tried.
        self.literals = builder.build(texts).ok().map(|search| Literals { search, owners, always });
    }

    /// The lowest rank below `bound` of the routes with an expression that matches and that `accepts` accepts.
    #[inline]
    pub(super) fn min_rank(
        &self,
        path: &Path<'_>,
        merge_slashes: bool,
        bound: Rank,
        accepts: &impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        // Most tables have no expression, and a better route needs none.
        match self.all.first() {
            Some((first, _)) if *first < bound => self.search(path, merge_slashes, bound, accepts),
            _ => None,
        }
    }

    fn search(
        &self,
        path: &Path<'_>,
        merge_slashes: bool,
        bound: Rank,
        accepts: &impl Fn(Rank) -> bool,
    ) -> Option<Rank> {
        let (spelled, bare) = (path.form(merge_slashes), path.bare(merge_slashes));
        let bare = bare.as_deref();
        let fits = |(rank, regex): &(Rank, PathRegex)| {
            (*rank < bound && regex.matches(spelled, bare) && accepts(*rank)).then_some(*rank)
        };
        let Some(literals) = &self.literals else { return self.all.iter().find_map(fits) };
        let mut candidates = SmallVec::<[usize; 32]>::from_slice(&literals.always);
        for text in [Some(spelled), bare].into_iter().flatten() {
            literals.each_in(text, |owners| candidates.extend_from_slice(owners));
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().find_map(|index| fits(&self.all[index]))
    }
}

impl Literals {
    /// Calls `visit` once for each text that stands in `path`, with its expressions.
    fn each_in(&self, path: &str, mut visit: impl FnMut(&[usize])) {
        let mut found = SmallVec::<[usize; 16]>::new();
        let mut max_len = 64;
        for text in self.search.find_overlapping_iter(path) {
            found.push(text.pattern().as_usize());
            // A client may repeat a text.
            if found.len() == max_len {
                found.sort_unstable();
                found.dedup();
                max_len = max_len.max(2 * found.len());
            }
        }
        found.sort_unstable();
        found.dedup();
        found.into_iter().for_each(|text| visit(&self.owners[text]));
    }
}
