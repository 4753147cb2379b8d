//! Finds those of thousands of [patterns for values](super::value_pattern) that a value matches.
//!
//! Texts are looked up by hash: whole values, and their begins and ends in each length that a pattern has. Texts inside
//! of values are searched in one pass, whatever their number. A regular expression is tried only for values that contain
//! a text that each of its matches contains; these texts are searched in one pass, too. An expression without such a
//! text, as `~^[a-z]+$`, is tried for every value.
//!
//! The keys come from the file, and a request only looks them up, so no client can make them collide.

use std::hash::{BuildHasher, Hasher};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use foldhash::HashMap as PlainMap;
use foldhash::HashMapExt as _;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::value_pattern::{ValuePattern, ValueRegex};

/// The position of a pattern in the list that an index was made of.
pub(super) type PatternIndex = usize;

/// Patterns by text.
type ByText = std::collections::HashMap<Box<[u8]>, PatternIndex, ValueHash>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ValueIndex {
    /// Whether values are compared in lower case, as all patterns are.
    ignores_case: bool,
    exact: ByText,
    prefixes: Affixes,
    suffixes: Affixes,
    inner: InnerTexts,
    regexes: Regexes,
    /// Whether there are other patterns than whole values and begins.
    has_others: bool,
    present: Option<PatternIndex>,
    absent: Option<PatternIndex>,
}

/// Begins or ends of values.
#[derive(Debug, Default)]
struct Affixes {
    by_text: ByText,
    /// Their lengths: each once.
    lengths: Vec<usize>,
}

/// Texts inside of values.
#[derive(Debug, Default)]
struct InnerTexts {
    all: Vec<(Box<[u8]>, PatternIndex)>,
    /// `None`: there are none.
    search: Option<AhoCorasick>,
}

#[derive(Debug, Default)]
struct Regexes {
    all: Vec<(PatternIndex, ValueRegex)>,
    literals: Option<Literals>,
    /// The indices in `all` of expressions without a required text.
    always: Vec<usize>,
}

/// The texts that expressions require.
#[derive(Debug)]
struct Literals {
    search: AhoCorasick,
    /// For each text the indices of its expressions.
    owners: Vec<Vec<usize>>,
}

impl ValueIndex {
    /// An index of these patterns, each once; in lower case if letters match in any case.
    pub(super) fn new<'p>(patterns: impl IntoIterator<Item = &'p ValuePattern>, ignores_case: bool) -> Self {
        let mut index = Self { ignores_case, ..Self::default() };
        for (at, pattern) in patterns.into_iter().enumerate() {
            match pattern {
                ValuePattern::Exact(text) => _ = index.exact.insert(text.clone(), at),
                ValuePattern::Prefix(text) => index.prefixes.insert(text, at),
                ValuePattern::Suffix(text) => index.suffixes.insert(text, at),
                ValuePattern::Contains(text) => index.inner.all.push((text.clone(), at)),
                ValuePattern::Regex(regex) => index.regexes.all.push((at, regex.clone())),
                ValuePattern::Present => index.present = Some(at),
                ValuePattern::Absent => index.absent = Some(at),
            }
        }
        let Self { suffixes, inner, regexes, .. } = &index;
        index.has_others = !(suffixes.lengths.is_empty() && inner.all.is_empty() && regexes.all.is_empty());
        index.inner.index();
        index.regexes.index();
        index
    }

    /// Calls `visit` with the patterns that match any of these values, which are all that a request has, until it returns
    /// true. Returns whether it did. May call it several times for one pattern. Allocates only for values of more than
    /// 256 bytes whose case does not count, and for a value that contains the texts of many expressions.
    #[inline]
    pub(super) fn find<V: AsRef<[u8]>>(
        &self,
        mut values: impl Iterator<Item = V>,
        mut visit: impl FnMut(PatternIndex) -> bool,
    ) -> bool {
        let mut is_absent = true;
        let is_found = values.any(|value| {
            is_absent = false;
            match self.ignores_case {
                true => self.find_in_lower_case(value.as_ref(), &mut visit),
                false => self.find_in(value.as_ref(), &mut visit),
            }
        });
        let always = if is_absent { self.absent } else { self.present };
        is_found || always.is_some_and(visit)
    }

    /// A function of its own, since its buffer is large.
    #[inline(never)]
    fn find_in_lower_case(&self, value: &[u8], visit: &mut impl FnMut(PatternIndex) -> bool) -> bool {
        self.find_in(&lower_case(value), visit)
    }

    #[inline]
    fn find_in(&self, value: &[u8], visit: &mut impl FnMut(PatternIndex) -> bool) -> bool {
        let found = |texts: &ByText, text: &[u8]| texts.get(text).copied();
        if found(&self.exact, value).is_some_and(&mut *visit) {
            return true;
        }
        let begins = self.prefixes.lengths.iter().filter_map(|&length| value.get(..length));
        let mut begins = begins.filter_map(|text| found(&self.prefixes.by_text, text));
        begins.any(&mut *visit) || self.has_others && self.find_other(value, visit)
    }

    /// As [`Self::find_in`], for patterns that are neither whole values nor begins.
    #[inline(never)]
    fn find_other(&self, value: &[u8], visit: &mut impl FnMut(PatternIndex) -> bool) -> bool {
        let end = |length: usize| value.len().checked_sub(length).and_then(|start| value.get(start..));
        let ends = self.suffixes.lengths.iter().filter_map(|&length| end(length));
        let mut ends = ends.filter_map(|text| self.suffixes.by_text.get(text).copied());
        ends.any(&mut *visit)
            || !self.inner.all.is_empty() && self.inner.find_in(value, visit)
            || !self.regexes.all.is_empty() && self.regexes.find_in(value, visit)
    }
}

impl Affixes {
    fn insert(&mut self, text: &[u8], pattern: PatternIndex) {
        self.by_text.insert(text.into(), pattern);
        if let Err(at) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(at, text.len());
        }
    }
}

impl InnerTexts {
    fn index(&mut self) {
        if !self.all.is_empty() {
            // It fails only for more texts than memory holds: then each text is searched for.
            self.search = search_for(self.all.iter().map(|(text, _)| &**text), false);
        }
    }

    fn find_in(&self, value: &[u8], visit: &mut impl FnMut(PatternIndex) -> bool) -> bool {
        let Some(search) = &self.search else {
            let is_inside = |text: &[u8]| memchr::memmem::find(value, text).is_some();
            return self.all.iter().any(|(text, pattern)| is_inside(text) && visit(*pattern));
        };
        let found = search.find_overlapping_iter(value);
        let mut found = found.filter_map(|text| self.all.get(text.pattern().as_usize()));
        found.any(|(_, pattern)| visit(*pattern))
    }
}

impl Regexes {
    fn index(&mut self) {
        let mut by_text = PlainMap::<Vec<u8>, Vec<usize>>::new();
        for (index, (_, regex)) in self.all.iter().enumerate() {
            match regex.required_texts() {
                Some(texts) => {
                    texts.into_iter().for_each(|text| by_text.entry(text).or_default().push(index))
                }
                None => self.always.push(index),
            }
        }
        if by_text.is_empty() {
            return;
        }
        let (texts, owners): (Vec<_>, Vec<_>) = by_text.into_iter().unzip();
        match search_for(texts.iter().map(Vec::as_slice), true) {
            Some(search) => self.literals = Some(Literals { search, owners }),
            // It fails only for more texts than memory holds: then each expression is tried.
            None => self.always = (0..self.all.len()).collect(),
        }
    }

    fn find_in(&self, value: &[u8], visit: &mut impl FnMut(PatternIndex) -> bool) -> bool {
        let mut tried = SmallVec::<[usize; 16]>::new();
        if let Some(literals) = &self.literals {
            let found = literals.search.find_overlapping_iter(value);
            let mut max_len = 64;
            for text in found {
                tried.extend_from_slice(
                    literals.owners.get(text.pattern().as_usize()).map_or(&[], Vec::as_slice),
                );
                // A client may repeat a text.
                if tried.len() >= max_len {
                    sort_and_dedup(&mut tried);
                    max_len = max_len.max(2 * tried.len());
                }
            }
            sort_and_dedup(&mut tried);
        }
        let regexes = self.always.iter().chain(&tried).filter_map(|&index| self.all.get(index));
        regexes.filter(|(_, regex)| regex.is_match(value)).any(|(pattern, _)| visit(*pattern))
    }
}

/// The maximum bytes of texts for which a table is tried, which is searched in a third of the time.
const MAX_TEXT_OF_TABLE: usize = 1 << 17;
/// The maximum bytes of a table.
const MAX_TABLE: usize = 32 << 20;

/// A search for all of these texts in one pass. `None`: they are more than memory holds.
fn search_for<'t>(texts: impl Iterator<Item = &'t [u8]> + Clone, ignores_case: bool) -> Option<AhoCorasick> {
    let build = |kind| {
        let mut builder = AhoCorasick::builder();
        builder.ascii_case_insensitive(ignores_case).kind(Some(kind)).build(texts.clone()).ok()
    };
    let is_small = texts.clone().map(<[u8]>::len).sum::<usize>() <= MAX_TEXT_OF_TABLE;
    let table = is_small.then(|| build(AhoCorasickKind::DFA)).flatten();
    table.filter(|table| table.memory_usage() <= MAX_TABLE).or_else(|| build(AhoCorasickKind::ContiguousNFA))
}

/// A value in lower case.
pub(super) fn lower_case(value: &[u8]) -> SmallVec<[u8; 256]> {
    value.iter().map(u8::to_ascii_lowercase).collect()
}

/// Each index once, in order.
pub(super) fn sort_and_dedup<A: smallvec::Array<Item = usize>>(indices: &mut SmallVec<A>) {
    if indices.len() > 1 {
        indices.sort_unstable();
        indices.dedup();
    }
}

/// foldhash of the bytes alone. A slice also has its length hashed, as a word of its own, which takes as long again as
/// to hash a short value; only keys of several parts need that.
#[derive(Clone, Debug, Default)]
struct ValueHash(RandomState);

/// See [`ValueHash`].
struct ValueHasher(<RandomState as BuildHasher>::Hasher);

impl BuildHasher for ValueHash {
    type Hasher = ValueHasher;

    #[inline]
    fn build_hasher(&self) -> ValueHasher {
        ValueHasher(self.0.build_hasher())
    }
}

impl Hasher for ValueHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    #[inline]
    fn write_usize(&mut self, _length: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
