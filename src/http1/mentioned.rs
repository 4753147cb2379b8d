//! What a message's own lists say: `connection` (RFC 9110 §7.6.1) names options of its connection and fields of this
//! hop, `trailer` (§6.6.2) names fields after the body.

use std::cmp::Ordering;

use super::syntax::{has_item, items};

/// The options that the parsers themselves handle, of all `connection` fields of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionField {
    pub(super) upgrade: bool,
    close: bool,
    keep_alive: bool,
}

impl ConnectionField {
    /// Adds the options of one field.
    #[inline(always)]
    pub(super) fn take(&mut self, value: &[u8]) {
        match value {
            // Nearly always a single option, in the usual spelling.
            b"keep-alive" => self.keep_alive = true,
            b"close" => self.close = true,
            _ => {
                self.upgrade |= has_item(value, b"upgrade");
                self.keep_alive |= has_item(value, b"keep-alive");
                self.close |= has_item(value, b"close");
            }
        }
    }

    /// Whether the connection persists after the message (RFC 9112 §9.3).
    pub(super) fn is_kept(self, http_11: bool) -> bool {
        !self.close && (http_11 || self.keep_alive)
    }
}

/// The field names of a message that are mentioned in a list.
///
/// The names are sorted, and each item of a list is looked up once: a list may have thousands of items, and comparing
/// each with each name would cost milliseconds.
#[derive(Debug)]
pub struct MentionedNames<'h> {
    names: Vec<(&'h [u8], bool)>,
}

impl<'h> MentionedNames<'h> {
    /// Of these names, none is mentioned yet.
    pub fn of(names: impl Iterator<Item = &'h [u8]>) -> Self {
        let mut names: Vec<_> = names.map(|name| (name, false)).collect();
        names.sort_unstable_by(|(one, _), (other, _)| compare(one, other));
        names.dedup_by(|(one, _), (other, _)| compare(one, other).is_eq());
        Self { names }
    }

    /// All items of a comma-separated list are mentioned.
    pub fn mark(&mut self, list: &[u8]) {
        for item in items(list) {
            if let Some(index) = self.index_of(item) {
                self.names[index].1 = true;
            }
        }
    }

    /// Whether this name, in any case, is mentioned.
    pub fn has(&self, name: &[u8]) -> bool {
        self.index_of(name).is_some_and(|index| self.names[index].1)
    }

    fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.names.binary_search_by(|(known, _)| compare(known, name)).ok()
    }
}

/// The order of names: by length, then by their letters in lower case.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    #[cfg(test)]
    tests::COMPARISONS.with(|count| count.set(count.get() + 1));
    let lower = |name| <[u8]>::iter(name).map(u8::to_ascii_lowercase);
    one.len().cmp(&other.len()).then_with(|| lower(one).cmp(lower(other)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::cell::Cell;

    use super::super::syntax::has_item;
    use super::*;

    thread_local! {
        pub(super) static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// Each item with each name would be 800,000 comparisons.
    #[test]
    fn a_long_list_is_compared_with_few_names_an_item() {
        let names: Vec<String> = (0..100).map(|number| format!("x-{number:02}")).collect();
        let mut mentioned = MentionedNames::of(names.iter().map(String::as_bytes));
        COMPARISONS.with(|count| count.set(0));
        mentioned.mark("x-42,".repeat(8_000).as_bytes());
        let max = 8_001 * (usize::BITS - names.len().leading_zeros() + 1) as usize;
        assert!(COMPARISONS.with(Cell::get) <= max, "{}", COMPARISONS.with(Cell::get));
        assert!(mentioned.has(b"X-42") && !mentioned.has(b"x-41"));
    }

    proptest! {
        #[test]
        fn a_name_is_mentioned_if_it_is_an_item(
            names in prop::collection::vec("[aAbB]{1,2}", 0..9),
            lists in prop::collection::vec("[aAbB ,]{0,9}", 0..3),
        ) {
            let mut mentioned = MentionedNames::of(names.iter().map(String::as_bytes));
            lists.iter().for_each(|list| mentioned.mark(list.as_bytes()));
            for name in &names {
                let expected = lists.iter().any(|list| has_item(list.as_bytes(), name.as_bytes()));
                prop_assert_eq!(mentioned.has(name.as_bytes()), expected, "{}", name);
            }
        }
    }
}
