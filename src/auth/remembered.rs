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
use crate::route::identity::Identity;

/// A power of two, so that a part is chosen by bits of the hash.
const PARTS: usize = 16;
/// The maximum number of credentials in all parts. One takes some 300 bytes.
pub const MAX_REMEMBERED: usize = 64 << 10;

/// Verified credentials.
pub struct Remembered {
    secret: [u8; 16],
    parts: [Mutex<LruCache<u128, Arc<Identity>>>; PARTS],
}

impl Remembered {
    /// An empty table, whose hash is keyed by `secret`.
    pub fn new(secret: [u8; 16]) -> Self {
        let most = std::num::NonZeroUsize::new(MAX_REMEMBERED / PARTS).unwrap_or(std::num::NonZeroUsize::MIN);
        // Grown as needed: most tables stay small.
        let part = || Mutex::new(LruCache::unbounded());
        let parts: [_; PARTS] = std::array::from_fn(|_| part());
        parts.iter().for_each(|part| part.lock().resize(most));
        Self { secret, parts }
    }

    /// The identity of a credential that was kept in the same generation, and has not expired at `now`.
    pub fn find(&self, credential: &[u8], generation: u64, now: Timestamp) -> Option<Arc<Identity>> {
        let hash = self.hash(credential, generation);
        let mut part = self.part(hash).lock();
        let identity = part.get(&hash)?;
        if identity.expires > now {
            return Some(Arc::clone(identity));
        }
        part.pop(&hash);
        None
    }

    /// Remembers the identity of a verified credential. Those of other generations are not found any more.
    pub fn keep(&self, credential: &[u8], generation: u64, identity: Arc<Identity>) {
        let hash = self.hash(credential, generation);
        self.part(hash).lock().put(hash, identity);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn hash(&self, credential: &[u8], generation: u64) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(generation);
        hasher.write(credential);
        hasher.finish128().as_u128()
    }

    fn part(&self, hash: u128) -> &Mutex<LruCache<u128, Arc<Identity>>> {
        let low = hash as usize;
        &self.parts[low % PARTS]
    }
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remembered({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, expires: u64) -> Arc<Identity> {
        Arc::new(Identity {
            name: name.into(),
            tier: None,
            claims: Box::default(),
            expires: Timestamp(expires),
        })
    }

    #[test]
    fn a_credential_is_remembered_until_it_expires() {
        let table = Remembered::new([7; 16]);
        table.keep(b"a", 0, identity("ann", 100));
        table.keep(b"b", 0, identity("bob", 50));
        let name = |credential: &[u8], now| {
            table.find(credential, 0, Timestamp(now)).map(|known| known.name.to_string())
        };
        assert_eq!((name(b"a", 99), name(b"b", 49)), (Some("ann".into()), Some("bob".into())));
        assert_eq!((name(b"a", 99), name(b"b", 50), name(b"c", 0)), (Some("ann".into()), None, None));
        assert_eq!(table.len(), 1, "an expired one leaves");
        assert_eq!(table.find(b"a", 1, Timestamp(0)), None, "another generation");
    }

    #[test]
    fn the_table_is_bounded_and_those_in_use_stay() {
        let table = Remembered::new([7; 16]);
        for number in 0..2 * MAX_REMEMBERED {
            table.keep(format!("token-{number}").as_bytes(), 0, identity("x", 100));
            assert!(number > 0 || table.len() == 1);
            if number % 64 == 0 {
                assert!(table.find(b"token-0", 0, Timestamp(0)).is_some(), "after {number}");
            }
        }
        assert_eq!(table.len(), MAX_REMEMBERED);
    }
}
