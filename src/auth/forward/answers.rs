//! Answers that are remembered: whom a service admitted, by a hash of the question. Bounded by their bytes, and those
//! unused for longest leave.
//!
//! Equal identities are one in memory, whatever they were asked about: a user with 1,000 answers takes 1,000 entries and
//! one identity.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use crate::limit::units::Timestamp;
use crate::route::identity::Identity;

/// A power of two, so that a part is chosen by bits of the hash.
const PARTS: usize = 16;
/// The maximum number of bytes of all answers.
pub const MAX_BYTES: usize = 16 << 20;
/// The bytes of an answer with its places in tables and lists, which grow by doubling.
const ANSWER: usize = 192;
/// The same of an identity, without its texts, and of one of its fields.
const IDENTITY: usize = 320;
const FIELD: usize = 64;

/// The answers of all services of a file.
pub struct AnswerCache {
    parts: [Mutex<LruCache<u128, Answer>>; PARTS],
    identities: Mutex<HashMap<u128, SharedIdentity>>,
    bytes: AtomicUsize,
    /// The part that loses an answer next.
    next: AtomicUsize,
}

/// One answer.
struct Answer {
    identity: Arc<Identity>,
    /// The hash of the identity.
    content: u128,
    expires: Timestamp,
}

/// An identity, with the number of answers that have it.
struct SharedIdentity {
    identity: Arc<Identity>,
    answers: usize,
}

impl Default for AnswerCache {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(LruCache::unbounded())),
            identities: Mutex::default(),
            bytes: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }
}

impl AnswerCache {
    /// The identity that the question with this hash was answered with, unless that has expired at `now`.
    pub fn find(&self, question: u128, now: Timestamp) -> Option<Arc<Identity>> {
        let mut part = self.part(question).lock();
        let answer = part.get(&question)?;
        if answer.expires > now {
            return Some(Arc::clone(&answer.identity));
        }
        let expired = part.pop(&question);
        drop(part);
        self.forget(expired?);
        None
    }

    /// Remembers an answer. `content` is a hash of the identity; both hashes are keyed.
    pub fn keep(&self, question: u128, content: u128, identity: &Arc<Identity>, expires: Timestamp) {
        let Some(identity) = self.share(content, identity) else { return };
        self.bytes.fetch_add(ANSWER, Ordering::Relaxed);
        let last = self.part(question).lock().put(question, Answer { identity, content, expires });
        if let Some(last) = last {
            self.forget(last);
        }
        while self.bytes() > MAX_BYTES {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % PARTS;
            let oldest = self.parts[next].lock().pop_lru();
            if let Some((_, oldest)) = oldest {
                self.forget(oldest);
            }
        }
    }

    /// The bytes of all answers.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The one identity that equals this one. `None`: another one has its hash.
    fn share(&self, content: u128, identity: &Arc<Identity>) -> Option<Arc<Identity>> {
        match self.identities.lock().entry(content) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                if known.identity != *identity {
                    return None;
                }
                known.answers += 1;
                Some(Arc::clone(&known.identity))
            }
            Entry::Vacant(place) => {
                self.bytes.fetch_add(bytes_of(identity), Ordering::Relaxed);
                Some(Arc::clone(
                    &place.insert(SharedIdentity { identity: Arc::clone(identity), answers: 1 }).identity,
                ))
            }
        }
    }

    fn forget(&self, answer: Answer) {
        self.bytes.fetch_sub(ANSWER, Ordering::Relaxed);
        let mut identities = self.identities.lock();
        let Entry::Occupied(mut known) = identities.entry(answer.content) else { return };
        known.get_mut().answers -= 1;
        if known.get().answers == 0 {
            known.remove();
            self.bytes.fetch_sub(bytes_of(&answer.identity), Ordering::Relaxed);
        }
    }

    fn part(&self, question: u128) -> &Mutex<LruCache<u128, Answer>> {
        let low = question as usize;
        &self.parts[low % PARTS]
    }
}

fn bytes_of(identity: &Identity) -> usize {
    let fields: usize =
        identity.fields.iter().map(|field| FIELD + field.name.len() + field.value.len()).sum();
    IDENTITY + identity.name.len() + identity.tier.as_ref().map_or(0, |tier| tier.len()) + fields
}

impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerCache({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::identity::GrantedField;

    fn identity(name: &str, size: usize) -> Arc<Identity> {
        let fields = Box::new([GrantedField { name: "x-groups".into(), value: vec![b'g'; size].into() }]);
        Arc::new(Identity { name: name.into(), fields, ..Identity::anonymous() })
    }

    fn count(answers: &AnswerCache) -> usize {
        answers.parts.iter().map(|part| part.lock().len()).sum()
    }

    #[test]
    fn an_answer_is_remembered_until_it_expires() {
        let answers = AnswerCache::default();
        answers.keep(1, 7, &identity("ann", 9), Timestamp(100));
        answers.keep(2, 8, &identity("bob", 9), Timestamp(50));
        let name = |question, now| answers.find(question, Timestamp(now)).map(|known| known.name.to_string());
        assert_eq!((name(1, 99), name(2, 49), name(3, 0)), (Some("ann".into()), Some("bob".into()), None));
        assert_eq!((name(2, 50), name(2, 0), count(&answers)), (None, None, 1), "an expired one leaves");
        answers.keep(4, 7, &identity("eve", 9), Timestamp(100));
        assert_eq!(name(4, 0), None, "of two identities with one hash only the first is remembered");
        assert_eq!(name(1, 100), None);
        assert_eq!((answers.bytes(), answers.identities.lock().len()), (0, 0));
    }

    #[test]
    fn equal_identities_are_one_in_memory() {
        let answers = AnswerCache::default();
        for question in 0..1_000 {
            answers.keep(question, 7, &identity("ann", 8_000), Timestamp(100));
        }
        assert_eq!((count(&answers), answers.identities.lock().len()), (1_000, 1));
        assert!(answers.bytes() < 1_000 * ANSWER + 9_000, "{}", answers.bytes());
        let all: Vec<_> = (0..1_000).filter_map(|question| answers.find(question, Timestamp(0))).collect();
        assert!(all.windows(2).all(|two| Arc::ptr_eq(&two[0], &two[1])));
        for question in 0..1_000 {
            answers.keep(
                question,
                u128::from(question % 2 == 0),
                &identity(["ann", "bob"][usize::from(question % 2 == 0)], 9),
                Timestamp(100),
            );
        }
        assert_eq!((count(&answers), answers.identities.lock().len()), (1_000, 2), "the first is gone");
    }

    #[test]
    fn the_bytes_are_bounded_and_those_in_use_stay() {
        for size in [0, 100, 8_000] {
            let answers = AnswerCache::default();
            for number in 0..(8 * MAX_BYTES / (ANSWER + IDENTITY + size)) as u128 {
                answers.keep(number, number, &identity("x", size), Timestamp(100));
                assert!(answers.bytes() <= MAX_BYTES);
                if number % 64 == 0 {
                    assert!(answers.find(0, Timestamp(0)).is_some(), "after {number}");
                }
            }
            assert!(answers.bytes() > MAX_BYTES - 9_000);
            assert_eq!(count(&answers), answers.identities.lock().len());
        }
    }
}
