//! Which numbers an old state was written under.

use std::collections::BTreeMap;

use parking_lot::{RwLock, RwLockReadGuard};

use crate::limit::Algorithm;
use crate::store::NumbersId;

/// Algorithms by [`NumbersId`]: at least the last 32,768 registered, at most 65,536.
#[derive(Debug, Default)]
pub(super) struct Registry {
    generations: RwLock<Generations>,
}

/// A read lock on the registry. Set locks may be held while it is taken, never the other way round.
pub(super) struct Known<'a>(RwLockReadGuard<'a, Generations>);

/// What [`Registry::register`] found under the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    /// Nothing, or the same algorithm.
    Unique,
    /// Another algorithm hashes to the same id: states under it may be of either, so none can be trusted.
    Ambiguous,
}

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Of(Algorithm),
    Ambiguous,
}

/// Two half-full maps instead of an ordered one: when the newer is full it becomes the older, and the older is forgotten.
#[derive(Debug, Default)]
struct Generations {
    newer: BTreeMap<NumbersId, Entry>,
    older: BTreeMap<NumbersId, Entry>,
}

impl Registry {
    /// One generation; two of them are remembered.
    const GENERATION: usize = 32_768;

    /// Remembers `algorithm` under `numbers`. Registering again keeps it from being forgotten.
    pub(super) fn register(&self, numbers: NumbersId, algorithm: &Algorithm) -> Registered {
        let entry = Entry::Of(*algorithm);
        let mut generations = self.generations.write();
        let unique = generations.find(numbers).is_none_or(|before| *before == entry);
        if generations.newer.len() >= Self::GENERATION && !generations.newer.contains_key(&numbers) {
            generations.older = std::mem::take(&mut generations.newer);
        }
        generations.newer.insert(numbers, if unique { entry } else { Entry::Ambiguous });
        if unique { Registered::Unique } else { Registered::Ambiguous }
    }

    /// Opens the registry for look-ups. Not to be taken twice at once by one thread.
    pub(super) fn known(&self) -> Known<'_> {
        Known(self.generations.read())
    }
}

impl Known<'_> {
    /// The algorithm behind `numbers`; `None` if it is forgotten, was never registered, or is ambiguous.
    pub(super) fn get(&self, numbers: NumbersId) -> Option<&Algorithm> {
        match self.0.find(numbers)? {
            Entry::Of(algorithm) => Some(algorithm),
            Entry::Ambiguous => None,
        }
    }
}

impl Generations {
    fn find(&self, numbers: NumbersId) -> Option<&Entry> {
        self.newer.get(&numbers).or_else(|| self.older.get(&numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::{Micros, Rate};

    fn algorithm(count: u32) -> Algorithm {
        Algorithm::sliding_window(Rate::new(count, Micros::SECOND).unwrap())
    }

    #[test]
    fn forgets_the_oldest_and_keeps_what_is_registered_again() {
        let registry = Registry::default();
        let kept = NumbersId(u32::MAX);
        for id in 0..200_000 {
            registry.register(NumbersId(id), &algorithm(1));
            if id % 1_000 == 0 {
                registry.register(kept, &algorithm(2));
            }
        }
        let known = registry.known();
        assert_eq!(known.get(kept), Some(&algorithm(2)));
        assert_eq!(known.get(NumbersId(199_999 - 30_000)), Some(&algorithm(1)));
        assert_eq!(known.get(NumbersId(0)), None);
        assert!(known.0.newer.len() + known.0.older.len() <= 65_536);
    }

    #[test]
    fn trusts_neither_of_two_algorithms_under_one_id() {
        let registry = Registry::default();
        let id = NumbersId(7);
        assert_eq!(registry.register(id, &algorithm(1)), Registered::Unique);
        assert_eq!(registry.register(id, &algorithm(1)), Registered::Unique);
        assert_eq!(registry.register(id, &algorithm(2)), Registered::Ambiguous);
        assert_eq!(registry.register(id, &algorithm(2)), Registered::Ambiguous);
        assert_eq!(registry.known().get(id), None);
    }
}
