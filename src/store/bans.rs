//! Temporary bans by the keys of limits: by hand, or automatic, after too many refusals. A banned key is refused
//! whatever its counters are.
//!
//! A request first checks whether there are any bans, and then locks one shard of a map for a look-up. Changes are rare
//! and made one after the other: their lock guards the order in which bans end, by which they expire. A full table drops
//! the automatic ban that ends first, and never one by hand. With a shared store all bans are copies of the store's; see
//! `redis/bans.rs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Unreachable;
use crate::limit::units::{Fingerprint, Micros, Timestamp};

/// One key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Banned {
    /// The [`SharedKeyInfo::identity`](super::SharedKeyInfo::identity) of the limit's first policy: a ban outlives a
    /// reload for as long as the limit's counters do.
    pub limit: u128,
    /// The owner of the key; see [`Charge::owner`](super::Charge::owner).
    pub key_hash: Fingerprint,
}

/// The cause of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BanCause {
    /// An operator.
    Hand,
    /// Too many refusals.
    Refusals,
}

/// A ban that is in force. Of two bans, the greater one ends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveBan {
    /// Its end.
    pub until: Timestamp,
    /// Its cause.
    pub cause: BanCause,
}

/// The number of bans of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanCounts {
    /// Those of an operator.
    pub by_hand: usize,
    /// Those after too many refusals.
    pub automatic: usize,
}

impl BanCounts {
    /// All of them.
    pub fn total(self) -> usize {
        self.by_hand + self.automatic
    }
}

/// Why a ban failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BanFault {
    /// The shared store, which keeps the bans, is unavailable.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// There are [`Bans::MAX`] bans already.
    #[error("there are {} bans, and there can be no more", Bans::MAX)]
    TooMany,
}

/// An automatic ban that has begun, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunBan {
    /// The key.
    pub banned: Banned,
    /// When the ban ends.
    pub until: Timestamp,
}

/// A ban, for files that outlive the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedBan {
    limit: u128,
    key_hash: u128,
    until: u64,
    by_hand: bool,
    label: Option<String>,
}

/// The bans that this process knows of.
#[derive(Debug, Default)]
pub struct Bans {
    /// Whether there are any.
    any: AtomicBool,
    /// Keys are keyed hashes already, so a fast hash spreads them. Shared stores without a secret use a known key: the
    /// seed of this process makes collisions unpredictable there.
    by_key: DashMap<Banned, KeyBans, RandomState>,
    /// Held during every change of `by_key`, except for labels.
    by_end: Mutex<ByEnd>,
    /// Automatic bans dropped so far because there were too many.
    evictions: AtomicU64,
    begun: Mutex<Begun>,
}

/// The bans of one key, at least one.
#[derive(Debug, Default)]
struct KeyBans {
    /// The end of the ban of each [`BanCause`].
    ends: [Option<Timestamp>; BanCause::ALL.len()],
    /// The text of the key, if it was given to this process. For lists only: requests never read it.
    label: Option<Arc<str>>,
}

/// The bans of each [`BanCause`] in the order of their ends.
type ByEnd = [BTreeSet<(Timestamp, Banned)>; BanCause::ALL.len()];

/// The automatic bans that this process has begun.
#[derive(Debug, Default)]
struct Begun {
    /// Those since the log was last written, up to [`Bans::MAX_BEGUN`].
    unlogged: Vec<BegunBan>,
    /// The number of others.
    more: u64,
    /// All so far, by limit.
    totals: HashMap<u128, u64>,
}

impl BanCause {
    /// In the order of their numbers.
    const ALL: [Self; 2] = [Self::Hand, Self::Refusals];
}

impl KeyBans {
    /// The bans that have not ended at `now`.
    fn in_force(&self, now: Timestamp) -> impl Iterator<Item = ActiveBan> {
        let bans = BanCause::ALL.into_iter().zip(self.ends);
        bans.filter_map(move |(cause, until)| {
            Some(ActiveBan { until: until.filter(|until| *until > now)?, cause })
        })
    }
}

impl Bans {
    /// The maximum number of bans by hand at once, of all limits together.
    pub const MAX: usize = 10_000;
    /// The maximum number of automatic bans at once: of more, those that end first are dropped.
    pub const MAX_AUTOMATIC: usize = 100_000;
    /// The maximum number of bans that are kept for the log.
    const MAX_BEGUN: usize = 10;

    /// No bans.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<Bans> = LazyLock::new(Bans::default);
        &NONE
    }

    /// Whether there are no bans: the only check of a request in that case.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// The ban of this key, if it is banned at `now`; of two the one that ends later.
    pub fn find(&self, banned: Banned, now: Timestamp) -> Option<ActiveBan> {
        self.refusing(banned, false, now)
    }

    /// The end of the ban of this key, if it is banned at `now`.
    pub fn until(&self, banned: Banned, now: Timestamp) -> Option<Timestamp> {
        self.find(banned, now).map(|ban| ban.until)
    }

    /// The ban that refuses requests of this key at `now`: an automatic one does not in shadow.
    pub fn refusing(&self, banned: Banned, in_shadow: bool, now: Timestamp) -> Option<ActiveBan> {
        if self.is_empty() {
            return None;
        }
        let refuses = |ban: &ActiveBan| !in_shadow || ban.cause == BanCause::Hand;
        self.by_key.view(&banned, |_, bans| bans.in_force(now).filter(refuses).max())?
    }

    /// The keys of this limit that are banned at `now`, with their bans. Unordered; a key may have two.
    pub fn of_limit(&self, limit: u128, now: Timestamp) -> Vec<(Fingerprint, ActiveBan)> {
        let mut bans = Vec::new();
        self.each(now, |banned, ban| {
            if banned.limit == limit {
                bans.push((banned.key_hash, ban));
            }
        });
        bans
    }

    /// The number of bans of each limit at `now`; limits without any are left out.
    pub fn counts(&self, now: Timestamp) -> HashMap<u128, BanCounts> {
        let mut counts = HashMap::<u128, BanCounts>::new();
        self.each(now, |banned, ban| {
            let of_limit = counts.entry(banned.limit).or_default();
            match ban.cause {
                BanCause::Hand => of_limit.by_hand += 1,
                BanCause::Refusals => of_limit.automatic += 1,
            }
        });
        counts
    }

    /// Automatic bans dropped so far because there were too many.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Bans a key by hand until then, in place of an earlier ban by hand.
    ///
    /// # Errors
    ///
    /// [`BanFault::TooMany`].
    pub fn insert(&self, banned: Banned, until: Timestamp, now: Timestamp) -> Result<(), BanFault> {
        let cause = BanCause::Hand;
        self.change(|by_end| {
            self.expire(by_end, cause, now);
            let is_full = by_end[cause as usize].len() >= Self::MAX;
            if is_full
                && !self
                    .by_key
                    .view(&banned, |_, bans| bans.ends[cause as usize].is_some())
                    .unwrap_or_default()
            {
                return Err(BanFault::TooMany);
            }
            self.put(by_end, cause, banned, until, now);
            Ok(())
        })
    }

    /// Adds an automatic ban for `span` from `now`. Returns whether it was unknown.
    pub fn begin(&self, banned: Banned, span: Micros, now: Timestamp) -> bool {
        let until = now.plus(span);
        let before = self.change(|by_end| self.put(by_end, BanCause::Refusals, banned, until, now));
        let is_new = before.is_none_or(|before| before <= now);
        if is_new {
            let begun = &mut *self.begun.lock();
            *begun.totals.entry(banned.limit).or_default() += 1;
            if begun.unlogged.len() < Self::MAX_BEGUN {
                begun.unlogged.push(BegunBan { banned, until });
            } else {
                begun.more += 1;
            }
        }
        is_new
    }

    /// Keeps an automatic ban that another gateway has begun.
    pub fn insert_remote(&self, banned: Banned, rest: Micros, now: Timestamp) {
        self.change(|by_end| self.put(by_end, BanCause::Refusals, banned, now.plus(rest), now));
    }

    /// The first automatic bans that have begun since the last call, and how many more there were.
    pub fn take_begun(&self) -> (Vec<BegunBan>, u64) {
        let begun = &mut *self.begun.lock();
        (std::mem::take(&mut begun.unlogged), std::mem::take(&mut begun.more))
    }

    /// The automatic bans that a limit has begun in this process so far.
    pub fn begun(&self, limit: u128) -> u64 {
        self.begun.lock().totals.get(&limit).copied().unwrap_or_default()
    }

    /// Ends the bans of a key, if there are any.
    pub fn remove(&self, banned: Banned) {
        self.change(|by_end| BanCause::ALL.into_iter().for_each(|cause| self.end(by_end, cause, banned)));
    }

    /// Ends the automatic bans of a limit. Returns their keys.
    pub fn end_automatic(&self, limit: u128) -> Vec<Fingerprint> {
        self.change(|by_end| {
            let all = by_end[BanCause::Refusals as usize].iter().map(|(_, banned)| *banned);
            let ended: Vec<Banned> = all.filter(|banned| banned.limit == limit).collect();
            ended.iter().for_each(|banned| self.end(by_end, BanCause::Refusals, *banned));
            ended.into_iter().map(|banned| banned.key_hash).collect()
        })
    }

    /// Keeps the text of a banned key, for as long as it is banned.
    pub fn set_label(&self, banned: Banned, label: impl Into<Arc<str>>) {
        self.by_key.alter(&banned, |_, bans| KeyBans { label: Some(label.into()), ..bans });
    }

    /// The text of a banned key, if it was given.
    pub fn label(&self, banned: Banned) -> Option<Arc<str>> {
        self.by_key.view(&banned, |_, bans| bans.label.clone())?
    }

    /// Removes expired bans.
    pub fn sweep(&self, now: Timestamp) {
        if !self.is_empty() {
            self.change(|by_end| BanCause::ALL.into_iter().for_each(|cause| self.expire(by_end, cause, now)));
        }
    }

    /// Forgets all bans.
    pub fn clear(&self) {
        self.change(|by_end| {
            self.by_key.clear();
            *by_end = ByEnd::default();
        });
    }

    /// Replaces all bans of one cause.
    pub fn replace(
        &self,
        cause: BanCause,
        list: impl IntoIterator<Item = (Banned, Timestamp)>,
        now: Timestamp,
    ) {
        let list: HashMap<_, _> = list.into_iter().collect();
        self.change(|by_end| {
            let known = by_end[cause as usize].iter().map(|(_, banned)| *banned);
            let gone: Vec<_> = known.filter(|banned| !list.contains_key(banned)).collect();
            gone.into_iter().for_each(|banned| self.end(by_end, cause, banned));
            list.iter().for_each(|(banned, until)| _ = self.put(by_end, cause, *banned, *until, now));
        });
    }

    /// All bans that have not ended at `now`.
    pub fn saved(&self, now: Timestamp) -> Vec<SavedBan> {
        let saved = |bans: RefMulti<'_, Banned, KeyBans>| {
            let (Banned { limit, key_hash }, label) = (*bans.key(), bans.label.clone());
            let save = |ActiveBan { until, cause }| SavedBan {
                limit,
                key_hash: key_hash.0,
                until: until.0,
                by_hand: cause == BanCause::Hand,
                label: label.as_deref().map(str::to_owned),
            };
            bans.in_force(now).map(save).collect::<Vec<_>>()
        };
        self.by_key.iter().flat_map(saved).collect()
    }

    /// Takes bans of another process that have not ended at `now`. Returns how many.
    pub fn restore(&self, saved: Vec<SavedBan>, now: Timestamp) -> u64 {
        let mut restored = 0;
        for SavedBan { limit, key_hash, until, by_hand, label } in saved {
            let (banned, until) = (Banned { limit, key_hash: Fingerprint(key_hash) }, Timestamp(until));
            if until <= now {
                continue;
            }
            if by_hand {
                if self.insert(banned, until, now).is_err() {
                    continue;
                }
            } else {
                self.insert_remote(banned, until.since(now), now);
            }
            label.into_iter().for_each(|label| self.set_label(banned, label));
            restored += 1;
        }
        restored
    }

    fn each(&self, now: Timestamp, mut visit: impl FnMut(Banned, ActiveBan)) {
        self.by_key.iter().for_each(|bans| bans.in_force(now).for_each(|ban| visit(*bans.key(), ban)));
    }

    /// Makes a change, while no other is made.
    fn change<T>(&self, change: impl FnOnce(&mut ByEnd) -> T) -> T {
        let mut by_end = self.by_end.lock();
        let result = change(&mut by_end);
        self.any.store(by_end.iter().any(|bans| !bans.is_empty()), Ordering::Relaxed);
        result
    }

    /// Adds a ban, or changes its end. Returns its end before. Of too many automatic bans, the first to end is dropped: it
    /// is counted unless it has ended.
    fn put(
        &self,
        by_end: &mut ByEnd,
        cause: BanCause,
        banned: Banned,
        until: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let before = self.by_key.entry(banned).or_default().ends[cause as usize].replace(until);
        let by_end = &mut by_end[cause as usize];
        before.inspect(|before| _ = by_end.remove(&(*before, banned)));
        by_end.insert((until, banned));
        if cause == BanCause::Refusals
            && by_end.len() > Self::MAX_AUTOMATIC
            && let Some((until, first)) = by_end.pop_first()
        {
            self.forget(cause, first);
            self.evictions.fetch_add(u64::from(until > now), Ordering::Relaxed);
        }
        before
    }

    /// Ends a ban, if there is one.
    fn end(&self, by_end: &mut ByEnd, cause: BanCause, banned: Banned) {
        if let Some(until) = self.forget(cause, banned) {
            by_end[cause as usize].remove(&(until, banned));
        }
    }

    /// Ends the bans whose time is over.
    fn expire(&self, by_end: &mut ByEnd, cause: BanCause, now: Timestamp) {
        let by_end = &mut by_end[cause as usize];
        while let Some((_, banned)) = by_end.first().copied().filter(|(until, _)| *until <= now) {
            by_end.pop_first();
            self.forget(cause, banned);
        }
    }

    /// Removes a ban from the map, and the key with its last one. Returns the end of the ban.
    fn forget(&self, cause: BanCause, banned: Banned) -> Option<Timestamp> {
        let mut until = None;
        self.by_key.remove_if_mut(&banned, |_, bans| {
            until = bans.ends[cause as usize].take();
            bans.ends.iter().all(Option::is_none)
        });
        until
    }
}
