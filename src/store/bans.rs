//! Temporary bans by the keys of limits: by hand, or automatic, after too many refusals. A banned key is refused
//! whatever its counters are.
//!
//! A request first checks whether there are any bans. Bans by hand are in a list that is never changed in place, so no
//! request waits; they are few. Automatic bans may be many and change often (`automatic`). With a shared store both are
//! copies of the store's; see `redis/bans.rs`.

mod automatic;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::memory::MemoryStore;
use super::{Charge, Group, Outcome, Unreachable};
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::limit::{Decision, Verdict, Wait};
use automatic::AutomaticBans;

/// One key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Banned {
    /// The [`SharedKeyInfo::identity`](super::SharedKeyInfo::identity) of the limit's first policy: a ban outlives a
    /// reload for as long as the limit's counters do.
    pub limit: u128,
    /// The owner of the key; see [`Charge::owner`](super::Charge::owner).
    pub owner: Fingerprint,
}

/// The cause of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BanCause {
    /// An operator.
    Hand,
    /// Too many refusals.
    Refusals,
}

/// A ban that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveBan {
    /// Its end.
    pub until: Timestamp,
    /// Its cause.
    pub cause: BanCause,
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

/// The bans that this process knows of.
#[derive(Debug)]
pub struct Bans {
    /// Whether there are any.
    any: AtomicBool,
    /// The end of each ban by hand, by this process's clock.
    list: ArcSwap<List>,
    automatic: AutomaticBans,
    begun: Mutex<Begun>,
    /// The text of banned keys, as far as it was given to this process. For lists only: requests never read it.
    labels: Mutex<HashMap<Banned, Arc<str>>>,
}

type List = HashMap<Banned, Timestamp>;

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

impl Default for Bans {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            list: ArcSwap::default(),
            automatic: AutomaticBans::new(Self::MAX_AUTOMATIC),
            begun: Mutex::default(),
            labels: Mutex::default(),
        }
    }
}

impl Bans {
    /// The maximum number of bans by hand at once, of all limits together.
    pub const MAX: usize = 10_000;
    /// The maximum number of automatic bans at once: of more, those that end first are dropped.
    pub const MAX_AUTOMATIC: usize = 100_000;
    /// The maximum number of bans that are kept for the log.
    const MAX_BEGUN: usize = 10;

    /// Whether there are no bans: the only check of a request in that case.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// The ban of this key, if it is banned at `now`; of two the one that ends later.
    pub fn find(&self, banned: Banned, now: Timestamp) -> Option<ActiveBan> {
        if self.is_empty() {
            return None;
        }
        let by_hand = self.list.load().get(&banned).map(|until| (*until, BanCause::Hand));
        let automatic = self.automatic.until(banned).map(|until| (until, BanCause::Refusals));
        let (until, cause) = by_hand.max(automatic).filter(|(until, _)| *until > now)?;
        Some(ActiveBan { until, cause })
    }

    /// The end of the ban of this key, if it is banned at `now`.
    pub fn until(&self, banned: Banned, now: Timestamp) -> Option<Timestamp> {
        self.find(banned, now).map(|ban| ban.until)
    }

    /// The ban that refuses requests of this key at `now`: an automatic one does not in shadow.
    pub fn refusing(&self, banned: Banned, in_shadow: bool, now: Timestamp) -> Option<ActiveBan> {
        if !in_shadow {
            return self.find(banned, now);
        }
        let until = self.list.load().get(&banned).copied().filter(|until| *until > now)?;
        Some(ActiveBan { until, cause: BanCause::Hand })
    }

    /// The keys of this limit that are banned at `now`, with their bans. Unordered; a key may have two.
    pub fn of_limit(&self, limit: u128, now: Timestamp) -> Vec<(Fingerprint, ActiveBan)> {
        let mut bans = Vec::new();
        self.each(now, |banned, ban| {
            if banned.limit == limit {
                bans.push((banned.owner, ban));
            }
        });
        bans
    }

    /// The number of bans of each limit at `now`; limits without any are left out.
    pub fn counts(&self, now: Timestamp) -> HashMap<u128, usize> {
        let mut counts = HashMap::new();
        self.each(now, |banned, _| *counts.entry(banned.limit).or_default() += 1);
        counts
    }

    /// Automatic bans dropped so far because there were too many.
    pub fn evictions(&self) -> u64 {
        self.automatic.evictions()
    }

    /// Bans a key by hand until then, in place of an earlier ban by hand.
    ///
    /// # Errors
    ///
    /// [`BanFault::TooMany`].
    pub fn insert(&self, banned: Banned, until: Timestamp, now: Timestamp) -> Result<(), BanFault> {
        let mut full = false;
        self.change(|list| {
            list.retain(|_, until| *until > now);
            full = list.len() >= Self::MAX && !list.contains_key(&banned);
            if !full {
                list.insert(banned, until);
            }
        });
        if full { Err(BanFault::TooMany) } else { Ok(()) }
    }

    /// Adds an automatic ban for `span` from `now`. Returns whether it was unknown.
    pub fn begin(&self, banned: Banned, span: Micros, now: Timestamp) -> bool {
        let until = now.plus(span);
        let is_new = self.automatic.until(banned).is_none_or(|before| before <= now);
        self.automatic.insert(banned, until, now);
        self.mark();
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
        self.automatic.remove(banned);
        self.change(|list| {
            list.remove(&banned);
        });
    }

    /// Keeps the text of a banned key, for as long as it is banned.
    pub fn name(&self, banned: Banned, label: impl Into<Arc<str>>) {
        let mut labels = self.labels.lock();
        if self.contains(banned) {
            labels.insert(banned, label.into());
        }
    }

    /// The text of a banned key, if it was given.
    pub fn label(&self, banned: Banned) -> Option<Arc<str>> {
        self.labels.lock().get(&banned).cloned()
    }

    /// Removes expired bans.
    pub fn sweep(&self, now: Timestamp) {
        if self.is_empty() {
            return;
        }
        self.automatic.sweep(now);
        if self.list.load().values().any(|until| *until <= now) {
            self.change(|list| list.retain(|_, until| *until > now));
        } else {
            self.settle();
        }
    }

    /// Forgets all bans.
    pub fn clear(&self) {
        self.automatic.replace(&List::new(), Timestamp(0));
        self.change(List::clear);
    }

    /// Keeps an automatic ban that another gateway has begun.
    pub fn learn(&self, banned: Banned, rest: Micros, now: Timestamp) {
        self.automatic.insert(banned, now.plus(rest), now);
        self.mark();
    }

    /// Replaces all bans of one cause.
    pub fn replace(
        &self,
        cause: BanCause,
        list: impl IntoIterator<Item = (Banned, Timestamp)>,
        now: Timestamp,
    ) {
        let list: List = list.into_iter().collect();
        match cause {
            BanCause::Hand => self.change(|known| known.clone_from(&list)),
            BanCause::Refusals => {
                self.automatic.replace(&list, now);
                self.settle();
            }
        }
    }

    fn each(&self, now: Timestamp, mut visit: impl FnMut(Banned, ActiveBan)) {
        let mut visit = |banned, until, cause| {
            if until > now {
                visit(banned, ActiveBan { until, cause });
            }
        };
        self.list.load().iter().for_each(|(banned, until)| visit(*banned, *until, BanCause::Hand));
        self.automatic.each(|banned, until| visit(banned, until, BanCause::Refusals));
    }

    fn contains(&self, banned: Banned) -> bool {
        self.list.load().contains_key(&banned) || self.automatic.until(banned).is_some()
    }

    fn change(&self, mut change: impl FnMut(&mut List)) {
        self.list.rcu(|list| {
            let mut next = List::clone(list);
            change(&mut next);
            Arc::new(next)
        });
        self.settle();
    }

    /// There is a ban. The lock is that of `settle`, so that the last to store the flag has seen the last change.
    fn mark(&self) {
        let _labels = self.labels.lock();
        self.any.store(true, Ordering::Relaxed);
    }

    /// After a change: drops the texts of keys that are no longer banned.
    fn settle(&self) {
        let mut labels = self.labels.lock();
        labels.retain(|banned, _| self.contains(*banned));
        self.any.store(!self.list.load().is_empty() || !self.automatic.is_empty(), Ordering::Relaxed);
    }
}

/// The charges of a request, and the bans of its limits.
#[derive(Clone, Copy, Debug)]
pub struct BanningRequest<'a> {
    /// The charges.
    pub charges: &'a [Charge<'a>],
    /// The bans: charges of [`Group::Ban`].
    pub bans: &'a [Charge<'a>],
}

impl<'a> BanningRequest<'a> {
    /// The bans of the limits that refuse the request, each with its key.
    pub fn refusing(&self, outcome: &Outcome) -> impl Iterator<Item = (&'a Charge<'a>, Banned)> {
        let decisions = &*outcome.decisions;
        let mut decided = self.charges.iter().zip(decisions);
        let admitted =
            decided.all(|(charge, decision)| charge.group != Group::Enforced || !decision.denies());
        self.bans.iter().filter_map(move |ban| {
            let Group::Ban { first, count, shadow } = ban.group else { return None };
            let own = decisions.get(usize::from(first)..)?.iter().take(count.into());
            let refuses = (admitted || !shadow) && own.into_iter().any(Decision::denies);
            if refuses { Some((ban, self.banned(ban)?)) } else { None }
        })
    }

    /// Decides the request in this process, counts a refusal, and may begin a ban.
    pub fn decide_in(&self, memory: &MemoryStore, bans: &Bans, now: Timestamp) -> Outcome {
        let mut outcome = memory.decide(self.charges, now);
        outcome.banned = self.count_refusals(&outcome, memory, bans, now);
        outcome
    }

    /// Counts the refusals of limits with bans in this process. Returns whether the request is refused because of a ban
    /// now.
    pub fn count_refusals(
        &self,
        outcome: &Outcome,
        memory: &MemoryStore,
        bans: &Bans,
        now: Timestamp,
    ) -> bool {
        let mut banned = false;
        for (ban, key) in self.refusing(outcome) {
            if let Verdict::Deny(Wait::After(rest)) = memory.decide_alone(ban, now).verdict {
                bans.begin(key, rest, now);
                banned |= !ban.group.is_shadow();
            }
        }
        banned
    }

    /// Whether one of the keys is banned, so that its limit refuses the request.
    pub fn is_banned(&self, bans: &Bans, now: Timestamp) -> bool {
        let key = |charge: &Charge<'_>| Banned { limit: charge.remote.identity, owner: charge.owner() };
        let refuses = |charge: &Charge<'_>| bans.refusing(key(charge), charge.group.is_shadow(), now);
        !bans.is_empty() && self.charges.iter().any(|charge| refuses(charge).is_some())
    }

    /// The key that a ban bans.
    pub fn banned(&self, ban: &Charge<'_>) -> Option<Banned> {
        let Group::Ban { first, .. } = ban.group else { return None };
        let limit = self.charges.get(usize::from(first))?;
        Some(Banned { limit: limit.remote.identity, owner: limit.owner() })
    }
}
