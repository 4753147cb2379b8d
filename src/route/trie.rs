//! A trie over path segments: finds the best of thousands of patterns by examining few of them.
//!
//! The trie does not know requests. A route is its *rank*, its index among all routes from most to least specific, so
//! "the most specific matching route" is "the lowest accepted rank". The walk may try branches in any order, and skips
//! every branch with a best rank no lower than the one found. Routes that end at one node are its
//! [candidates](super::candidates).
//!
//! Bound: a segment leads to at most two children (its literal, and a parameter), and there is one path to each node,
//! so a walk visits no node twice. Whatever the request's path, one walk costs at most the number of nodes, and
//! typically one or two for each of its segments; a path deeper than the patterns costs nothing more.

use foldhash::{HashMap, HashMapExt as _};

use super::candidates::{Candidates, Rank};
use super::condition::Condition;
use super::pattern::{PathPattern, Segment};

/// See the module.
#[derive(Debug)]
pub(super) struct Trie {
    /// The first is the root.
    nodes: Vec<TrieNode>,
}

/// The node for the segments so far.
#[derive(Debug)]
struct TrieNode {
    /// The least rank here and below.
    best: Rank,
    /// The child of the only literal, if there is one: comparing is faster than hashing.
    only_literal: Option<(Box<str>, usize)>,
    /// The children of several literals.
    literals: HashMap<Box<str>, usize>,
    parameter: Option<usize>,
    /// Patterns that end here.
    here: Candidates,
    /// Patterns that go on with `/*`.
    below: Candidates,
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: vec![TrieNode::new()] }
    }
}

impl Trie {
    /// Adds the pattern of a route with these conditions. Ranks must be in ascending order, and before
    /// [`Self::index`].
    pub(super) fn insert(&mut self, pattern: &PathPattern, rank: Rank, conditions: &[Condition]) {
        let mut at = 0;
        self.nodes[at].best = self.nodes[at].best.min(rank);
        for segment in pattern.segments() {
            at = self.child(at, segment);
            self.nodes[at].best = self.nodes[at].best.min(rank);
        }
        let node = &mut self.nodes[at];
        if pattern.is_prefix() { &mut node.below } else { &mut node.here }.push(rank, conditions);
    }

    /// Indexes long lists of candidates.
    pub(super) fn index(&mut self) {
        self.nodes.iter_mut().flat_map(|node| [&mut node.here, &mut node.below]).for_each(Candidates::index);
    }

    /// The lowest rank below `bound` of those with a pattern that matches `path` and that `first` accepts: of
    /// candidates the lowest that is below a rank. It is called at most once for each list of candidates. No
    /// allocation.
    pub(super) fn min_rank(
        &self,
        path: &str,
        bound: Rank,
        first: impl FnMut(&Candidates, Rank) -> Option<Rank>,
    ) -> Option<Rank> {
        let below_root = path.strip_prefix('/')?;
        let mut walk = Walk { nodes: &self.nodes, first, best: bound };
        walk.visit(0, Some(below_root));
        (walk.best < bound).then_some(walk.best)
    }

    /// Whether any pattern matches `path`. No allocation.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.min_rank(path, Rank::MAX, |candidates, bound| {
            candidates.ranks().next().filter(|&rank| rank < bound)
        })
        .is_some()
    }

    /// The child of the node at `at` for this segment, created if it does not exist.
    fn child(&mut self, at: usize, segment: &Segment) -> usize {
        let new = self.nodes.len();
        let node = &mut self.nodes[at];
        let child = match segment {
            Segment::Literal(literal) => match node.only_literal.take() {
                None if node.literals.is_empty() => node.only_literal.insert((literal.clone(), new)).1,
                Some(only) if only.0 == *literal => node.only_literal.insert(only).1,
                only => {
                    node.literals.extend(only);
                    *node.literals.entry(literal.clone()).or_insert(new)
                }
            },
            Segment::Parameter(_) => *node.parameter.get_or_insert(new),
        };
        if child == new {
            self.nodes.push(TrieNode::new());
        }
        child
    }
}

impl TrieNode {
    fn new() -> Self {
        let (here, below) = (Candidates::default(), Candidates::default());
        Self { best: Rank::MAX, only_literal: None, literals: HashMap::new(), parameter: None, here, below }
    }

    fn literal(&self, segment: &str) -> Option<usize> {
        match &self.only_literal {
            Some((only, child)) => (**only == *segment).then_some(*child),
            None => self.literals.get(segment).copied(),
        }
    }
}

/// One lookup.
struct Walk<'t, F> {
    nodes: &'t [TrieNode],
    first: F,
    /// The lowest rank accepted so far.
    best: Rank,
}

impl<F: FnMut(&Candidates, Rank) -> Option<Rank>> Walk<'_, F> {
    /// `rest` is the text after the slash that follows the segments so far; `None` at the path's end. Recursion is as
    /// deep as the deepest pattern: at most [`PathPattern::MAX_SEGMENTS`](super::pattern::PathPattern::MAX_SEGMENTS).
    fn visit(&mut self, at: usize, rest: Option<&str>) {
        let node = &self.nodes[at];
        if node.best >= self.best {
            return;
        }
        match rest {
            None => self.offer(&node.here),
            Some(rest) => self.descend(node, rest),
        }
        self.offer(&node.below);
    }

    fn descend(&mut self, node: &TrieNode, rest: &str) {
        let (segment, rest) = match memchr::memchr(b'/', rest.as_bytes()) {
            Some(slash) => (&rest[..slash], Some(&rest[slash + 1..])),
            None => (rest, None),
        };
        if let Some(child) = node.literal(segment) {
            self.visit(child, rest);
        }
        if let Some(child) = node.parameter
            && !segment.is_empty()
        {
            self.visit(child, rest);
        }
    }

    fn offer(&mut self, candidates: &Candidates) {
        self.best = (self.first)(candidates, self.best).unwrap_or(self.best);
    }
}
