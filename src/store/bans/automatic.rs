//! The bans that limits begin by themselves. A full table drops the ban that ends first.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Banned;
use crate::limit::units::{Fingerprint, Timestamp};

const SHARDS: usize = 16;

/// Automatic bans by key, over all limits.
#[derive(Debug)]
pub(super) struct AutomaticBans {
    shards: [Mutex<Shard>; SHARDS],
    max: usize,
    count: AtomicUsize,
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    ends: HashMap<Banned, Timestamp>,
    by_end: BTreeSet<(Timestamp, Banned)>,
}

impl AutomaticBans {
    /// An empty table for `max` bans.
    pub(super) fn new(max: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, max, count: AtomicUsize::new(0), evictions: AtomicU64::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Bans dropped so far because the table was full.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// The end of the ban of this key.
    pub(super) fn until(&self, banned: Banned) -> Option<Timestamp> {
        self.shard(banned).lock().ends.get(&banned).copied()
    }

    /// Adds a ban, or changes its end. Returns whether the table changed.
    pub(super) fn insert(&self, banned: Banned, until: Timestamp, now: Timestamp) -> bool {
        {
            let mut shard = self.shard(banned).lock();
            match shard.ends.insert(banned, until) {
                Some(before) if before == until => return false,
                Some(before) => _ = shard.by_end.remove(&(before, banned)),
                None => _ = self.count.fetch_add(1, Ordering::Relaxed),
            }
            shard.by_end.insert((until, banned));
        }
        while self.count.load(Ordering::Relaxed) > self.max && self.drop_first(now) {}
        true
    }

    /// Ends a ban. Returns whether there was one.
    pub(super) fn remove(&self, banned: Banned) -> bool {
        let mut shard = self.shard(banned).lock();
        let Some(until) = shard.ends.remove(&banned) else { return false };
        shard.by_end.remove(&(until, banned));
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Removes the bans that have ended.
    pub(super) fn sweep(&self, now: Timestamp) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            while let Some(&(until, banned)) = shard.by_end.first().filter(|(until, _)| *until <= now) {
                shard.by_end.remove(&(until, banned));
                shard.ends.remove(&banned);
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Calls `visit` for every ban.
    pub(super) fn each(&self, mut visit: impl FnMut(Banned, Timestamp)) {
        for shard in &self.shards {
            shard.lock().ends.iter().for_each(|(banned, until)| visit(*banned, *until));
        }
    }

    /// Replaces all bans.
    pub(super) fn replace(&self, list: &HashMap<Banned, Timestamp>, now: Timestamp) {
        let mut gone = Vec::new();
        self.each(|banned, _| {
            if !list.contains_key(&banned) {
                gone.push(banned);
            }
        });
        gone.into_iter().for_each(|banned| _ = self.remove(banned));
        list.iter().for_each(|(banned, until)| _ = self.insert(*banned, *until, now));
    }

    /// Drops the ban that ends first; it is counted unless it has ended. Returns whether there was one.
    fn drop_first(&self, now: Timestamp) -> bool {
        let firsts = self.shards.iter().filter_map(|shard| shard.lock().by_end.first().copied());
        let Some((until, banned)) = firsts.min() else { return false };
        if self.remove(banned) && until > now {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn shard(&self, banned: Banned) -> &Mutex<Shard> {
        let Fingerprint(owner) = banned.owner;
        // Only the low bits are used.
        &self.shards[owner as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banned(owner: u128) -> Banned {
        Banned { limit: 7, owner: Fingerprint(owner) }
    }

    #[test]
    fn a_full_table_drops_the_ban_that_ends_first() {
        let (bans, now) = (AutomaticBans::new(3), Timestamp(10));
        for (owner, until) in [(1, 100), (2, 50), (3, 200), (4, 150)] {
            assert!(bans.insert(banned(owner), Timestamp(until), now));
        }
        assert_eq!((bans.until(banned(2)), bans.evictions()), (None, 1));
        assert!(!bans.insert(banned(1), Timestamp(100), now), "known already");
        assert!(bans.insert(banned(5), Timestamp(20), now), "the newest ends first");
        assert_eq!((bans.until(banned(5)), bans.evictions()), (None, 2));
        bans.sweep(Timestamp(150));
        let mut left = Vec::new();
        bans.each(|banned, until| left.push((banned.owner.0, until.0)));
        assert_eq!(left, [(3, 200)]);
        assert!(bans.remove(banned(3)) && !bans.remove(banned(3)) && bans.is_empty());
    }

    #[test]
    fn a_flood_never_exceeds_the_bound() {
        let bans = AutomaticBans::new(100);
        for owner in 0..10_000 {
            bans.insert(banned(owner), Timestamp(1_000 + u64::try_from(owner).unwrap()), Timestamp(0));
            assert!(bans.count.load(Ordering::Relaxed) <= 100);
        }
        assert_eq!(bans.evictions(), 9_900);
        assert_eq!(bans.until(banned(9_999)), Some(Timestamp(10_999)));
        assert_eq!(bans.until(banned(9_899)), None);
    }
}
