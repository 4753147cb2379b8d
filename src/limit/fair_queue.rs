//! Fair queueing: which of the requests that wait for a place is next, and which one is dropped.
//!
//! Requests are of four [priorities](Priority). The highest that waits is first; each lower one that waits gets at least one
//! place in ten. Within a priority the places are divided among the keys of `share_by` that want them, by weight: the next
//! is the first request of the key that has used least, which is weighted fair queueing (Demers, Keshav, Shenker 1989). Used
//! is the time for which a key holds places, divided by its weight. So a key whose requests take long gets no more than one
//! whose requests are short, which a round robin over keys would give it. What a key used while nobody waited is forgotten:
//! a place that nobody else wanted costs nothing.
//!
//! A queue that is full drops the newest request of the key with the most requests in it, by weight. If requests wait for
//! longer than half of `max_wait` all the time, each arrival drops the newest request of the lowest priority (the interval is
//! that of CoDel, RFC 8289).
//!
//! Only keys with places or requests are known, and up to [`MAX_DEBTORS`] that have used more than others of late. A step
//! takes time that grows with the logarithm of the number of keys, and with the number of different numbers of places that
//! the keys hold: with *n* places these are at most √(2*n*) for each weight.
//!
//! Pure: no clock, no I/O. Moments are of any clock that does not go back.

mod priority_class;

use std::fmt;
use std::num::NonZeroU32;

use super::units::{Fingerprint, Micros, Timestamp};
use priority_class::{PriorityClass, SCALE};

/// Which requests are first, the highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all others.
    High,
    /// As requests are that say nothing.
    #[default]
    Normal,
    /// After these.
    Low,
    /// After all others. A part of the places stays free of them: see [`background_reserve`].
    Background,
}

/// Whose share of the places a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    /// The priority of its route.
    pub priority: Priority,
    /// The key of `share_by`. Equal for all requests of a limit without.
    pub key: Fingerprint,
    /// The weight of the key.
    pub weight: NonZeroU32,
}

/// The requests that wait for the places of one key of a limit. `W` is what is kept of each.
#[derive(Debug)]
pub struct FairQueue<W> {
    /// By [`Priority`].
    classes: [PriorityClass<W>; 4],
    /// Since when no request was admitted that had waited for less than half of the longest wait.
    slow_since: Option<Timestamp>,
}

/// A request that waits.
#[derive(Debug)]
pub struct QueueEntry<W> {
    /// Earlier requests of a key have smaller numbers.
    pub ticket: u64,
    /// The places that it needs.
    pub places: u32,
    /// Since when.
    pub since: Timestamp,
    /// What is kept of it.
    pub waiter: W,
}

/// The places that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All of them.
    pub free: u32,
    /// So many of them are not for [`Priority::Background`].
    pub reserve: u32,
}

/// Keys of a priority that are known although they have neither places nor requests.
pub const MAX_DEBTORS: usize = 1_024;
/// A lower priority that waits gets one of so many places.
const GUARANTEED: u32 = 10;

/// The places, of `max`, that stay free of requests of [`Priority::Background`]: a tenth, at least one, but not the only one.
pub fn background_reserve(max: u32) -> u32 {
    (max / 10).max(1).min(max.saturating_sub(1))
}

impl Room {
    fn admits(self, priority: Priority, places: u32) -> bool {
        priority != Priority::Background || places.saturating_add(self.reserve) <= self.free
    }
}

impl Priority {
    /// All, the highest first.
    pub const ALL: [Self; 4] = [Self::High, Self::Normal, Self::Low, Self::Background];
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| PriorityClass::default()), slow_since: None }
    }
}

impl<W> FairQueue<W> {
    /// The requests that wait.
    pub fn len(&self) -> usize {
        self.classes.iter().map(|class| class.waiting).sum()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.waiting == 0)
    }

    /// Whether no request waits and no place is held.
    pub fn is_unused(&self) -> bool {
        self.classes.iter().all(|class| class.waiting == 0 && class.held == 0)
    }

    /// All that wait.
    pub fn iter(&self) -> impl Iterator<Item = &QueueEntry<W>> {
        self.classes.iter().flat_map(|class| class.keys.values()).flat_map(|key| &key.waiting)
    }

    /// A request takes places: from now on they are used.
    pub fn take(&mut self, share: FairShare, places: u32, now: Timestamp) {
        self.class(share.priority).change(share.key, Some(share.weight), now, |state| {
            state.held = state.held.saturating_add(places);
        });
    }

    /// It gives them back.
    pub fn give_back(&mut self, share: FairShare, places: u32, now: Timestamp) {
        self.class(share.priority).change(share.key, None, now, |state| {
            state.held = state.held.saturating_sub(places);
        });
    }

    /// A request waits.
    pub fn join(&mut self, share: FairShare, waiting: QueueEntry<W>, now: Timestamp) {
        self.class(share.priority).change(share.key, Some(share.weight), now, |state| {
            let at = state.waiting.partition_point(|other| other.ticket < waiting.ticket);
            state.waiting.insert(at, waiting);
        });
    }

    /// A request does not wait any more, since it has got its places or has ended.
    pub fn leave(&mut self, share: FairShare, ticket: u64, now: Timestamp) -> Option<QueueEntry<W>> {
        self.class(share.priority).change(share.key, None, now, |state| {
            let at = state.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()?;
            state.waiting.remove(at)
        })
    }

    /// The request that waited has got its places, of a limit with this longest wait.
    pub fn admitted(&mut self, share: FairShare, ticket: u64, max_wait: Micros, now: Timestamp) {
        let Some(waiting) = self.leave_in_turn(share, ticket, now) else { return };
        match now.since(waiting.since) > Micros(max_wait.0 / 2) {
            true => _ = self.slow_since.get_or_insert(now),
            false => self.slow_since = None,
        }
    }

    /// The request that waited has used its places for `span` at once, and waits no more.
    pub fn served(
        &mut self,
        share: FairShare,
        ticket: u64,
        span: Micros,
        now: Timestamp,
    ) -> Option<QueueEntry<W>> {
        let waiting = self.leave_in_turn(share, ticket, now)?;
        let class = self.class(share.priority);
        // What is used while nobody waits costs nothing later.
        if class.waiting > 0 {
            class.change(share.key, Some(share.weight), now, |state| {
                let used = state.weighed(u64::from(waiting.places).saturating_mul(span.0));
                state.used = state.used.saturating_add(used);
            });
        }
        Some(waiting)
    }

    /// A request leaves the queue because it is its turn.
    fn leave_in_turn(&mut self, share: FairShare, ticket: u64, now: Timestamp) -> Option<QueueEntry<W>> {
        let used = self.class(share.priority).used(share.key, now);
        let waiting = self.leave(share, ticket, now)?;
        for (priority, class) in Priority::ALL.into_iter().zip(&mut self.classes) {
            class.passed_over = match class.waiting {
                0 => 0,
                _ if priority == share.priority => 0,
                _ => class.passed_over.saturating_add(1),
            };
        }
        let class = self.class(share.priority);
        class.virtual_time = class.virtual_time.max(used);
        Some(waiting)
    }

    /// The request whose turn it is, with so many places free.
    pub fn next(&self, room: Room, now: Timestamp) -> Option<&QueueEntry<W>> {
        let mut next: Option<(bool, u32, usize)> = None;
        for (index, priority) in Priority::ALL.into_iter().enumerate() {
            let class = &self.classes[index];
            let Some(places) = class.first(now).map(|first| first.places) else { continue };
            if !room.admits(priority, places) {
                continue;
            }
            let passed_over = class.passed_over;
            let is_due = passed_over + 1 >= GUARANTEED;
            // The highest, unless a lower one has been passed over for too long.
            if next.is_none_or(|(due, most, _)| is_due && (!due || passed_over > most)) {
                next = Some((is_due, passed_over, index));
            }
        }
        self.classes[next?.2].first(now)
    }

    /// Drops the newest request of the key that has the most, by weight. Of equal ones the lowest priority loses.
    pub fn drop_from_longest(&mut self, now: Timestamp) -> Option<(Priority, QueueEntry<W>)> {
        let longest = |class: &PriorityClass<W>| class.lengths.last().copied();
        let all = Priority::ALL.into_iter().zip(&self.classes);
        let ((_, key), priority) = all
            .filter_map(|(priority, class)| Some((longest(class)?, priority)))
            .max_by_key(|((length, _), priority)| (*length, *priority))?;
        let dropped = self.class(priority).change(key, None, now, |state| state.waiting.pop_back())?;
        Some((priority, dropped))
    }

    /// Whether another key has more requests, by weight, than this one with a request more, or as many of a lower priority.
    pub fn is_shorter_than_longest(&self, share: FairShare) -> bool {
        let class = &self.classes[share.priority as usize];
        let own = class.keys.get(&share.key).map_or(0, |state| state.waiting.len() as u64) + 1;
        let own = own.saturating_mul(SCALE) / u64::from(share.weight.get());
        Priority::ALL.into_iter().zip(&self.classes).any(|(priority, class)| {
            let longest = class.lengths.last();
            longest.is_some_and(|(length, key)| {
                (*length, priority) > (own, share.priority) && (priority, *key) != (share.priority, share.key)
            })
        })
    }

    /// If requests have waited for longer than half of `max_wait` for as long as that, drops the newest request of the lowest
    /// priority that waits, of its key with the most. Its last one stays, and so does the highest priority.
    pub fn drop_if_slow(&mut self, max_wait: Micros, now: Timestamp) -> Option<(Priority, QueueEntry<W>)> {
        if now.since(self.slow_since?) < max_wait {
            return None;
        }
        let waits = |priority: &Priority| self.classes[*priority as usize].waiting > 0;
        let lowest = Priority::ALL.into_iter().rev().find(waits)?;
        let highest = Priority::ALL.into_iter().find(waits)?;
        let class = self.class(lowest);
        if lowest == highest || class.waiting < 2 {
            return None;
        }
        let (_, key) = *class.lengths.last()?;
        let dropped = class.change(key, None, now, |state| state.waiting.pop_back())?;
        Some((lowest, dropped))
    }

    /// Whether a key has more places and requests, by weight, than the keys of its priority on average, one of which waits.
    pub fn is_over_share(&self, share: FairShare) -> bool {
        let class = &self.classes[share.priority as usize];
        let Some(state) = class.keys.get(&share.key) else { return false };
        let own = u64::from(state.held) + state.waiting.len() as u64;
        let all = class.held + class.waiting as u64;
        class.waiting > state.waiting.len() && own * class.weights > all * u64::from(state.weight.get())
    }

    fn class(&mut self, priority: Priority) -> &mut PriorityClass<W> {
        &mut self.classes[priority as usize]
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        })
    }
}
