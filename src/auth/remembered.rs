//! Credentials that were verified, by a keyed hash of each: bounded, and those unused for longest leave.
//!
//! The table is split into parts with a lock each, which is held for a look-up only.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::limit::units::Timestamp;

/// A power of two, so that a part is chosen by bits of the hash.
const PARTS: usize = 16;
/// The maximum number of credentials in all parts. One takes some 300 bytes.
pub const MAX_REMEMBERED: usize = 64 << 10;

/// Verified credentials, with what each is good for, and the moment `M` at which it expires: a wall time for tokens.
pub struct Remembered<T, M = Timestamp> {
    secret: [u8; 16],
    parts: [Mutex<LruCache<u128, RememberedCredentials<T, M>>>; PARTS],
}

struct RememberedCredentials<T, M> {
    value: Arc<T>,
    expires: M,
}

impl<T, M: Copy + PartialOrd> Remembered<T, M> {
    /// An empty table, whose hash is keyed by `secret`.
    pub fn new(secret: [u8; 16]) -> Self {
        let most = std::num::NonZeroUsize::new(MAX_REMEMBERED / PARTS).unwrap_or(std::num::NonZeroUsize::MIN);
        // Grown as needed: most tables stay small.
        let part = || Mutex::new(LruCache::unbounded());
        let parts: [_; PARTS] = std::array::from_fn(|_| part());
        parts.iter().for_each(|part| part.lock().resize(most));
        Self { secret, parts }
    }

    /// The value of a credential that was kept in the same generation, and has not expired at `now`.
    pub fn find(&self, credential: &[u8], generation: u64, now: M) -> Option<Arc<T>> {
        let hash = self.hash(credential, generation);
        let mut part = self.part(hash).lock();
        let known = part.get(&hash)?;
        if known.expires > now {
            return Some(Arc::clone(&known.value));
        }
        part.pop(&hash);
        None
    }

    /// Remembers the value of a verified credential. Those of other generations are not found any more.
    pub fn keep(&self, credential: &[u8], generation: u64, value: Arc<T>, expires: M) {
        let hash = self.hash(credential, generation);
        self.part(hash).lock().put(hash, RememberedCredentials { value, expires });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keyed hash of a credential.
    pub fn hash(&self, credential: &[u8], generation: u64) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(generation);
        hasher.write(credential);
        hasher.finish128().as_u128()
    }

    fn part(&self, hash: u128) -> &Mutex<LruCache<u128, RememberedCredentials<T, M>>> {
        let low = hash as usize;
        &self.parts[low % PARTS]
    }
}

impl Remembered<()> {
    /// Whether a credential was not noted before, or that has expired at `now`. Then it is noted.
    pub fn is_new(&self, credential: &[u8], now: Timestamp, expires: Timestamp) -> bool {
        let hash = self.hash(credential, 0);
        let mut part = self.part(hash).lock();
        if part.get(&hash).is_some_and(|known| known.expires > now) {
            return false;
        }
        part.put(hash, RememberedCredentials { value: Arc::new(()), expires });
        true
    }
}

impl<T, M: Copy + PartialOrd> fmt::Debug for Remembered<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remembered({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_remembered_until_it_expires() {
        let table = Remembered::new([7; 16]);
        table.keep(b"a", 0, Arc::new("ann"), Timestamp(100));
        table.keep(b"b", 0, Arc::new("bob"), Timestamp(50));
        let name =
            |credential: &[u8], now| table.find(credential, 0, Timestamp(now)).map(|known| known.to_string());
        assert_eq!((name(b"a", 99), name(b"b", 49)), (Some("ann".into()), Some("bob".into())));
        assert_eq!((name(b"a", 99), name(b"b", 50), name(b"c", 0)), (Some("ann".into()), None, None));
        assert_eq!(table.len(), 1, "an expired one leaves");
        assert_eq!(table.find(b"a", 1, Timestamp(0)), None, "another generation");
    }

    #[test]
    fn a_credential_is_noted_once_in_its_time() {
        let table = Remembered::new([7; 16]);
        let is_new = |credential: &[u8], now| table.is_new(credential, Timestamp(now), Timestamp(now + 10));
        assert_eq!([is_new(b"a", 0), is_new(b"a", 9), is_new(b"b", 9)], [true, false, true]);
        assert_eq!([is_new(b"a", 10), is_new(b"a", 19)], [true, false]);
    }

    #[test]
    fn the_table_is_bounded_and_those_in_use_stay() {
        let table = Remembered::new([7; 16]);
        for number in 0..2 * MAX_REMEMBERED {
            table.keep(format!("token-{number}").as_bytes(), 0, Arc::new("x"), Timestamp(100));
            assert!(number > 0 || table.len() == 1);
            if number % 64 == 0 {
                assert!(table.find(b"token-0", 0, Timestamp(0)).is_some(), "after {number}");
            }
        }
        assert_eq!(table.len(), MAX_REMEMBERED);
    }
}
