//! The requests of one priority: the keys, what each has used, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

use super::{MAX_DEBTORS, QueueEntry};
use crate::limit::units::{Fingerprint, Micros, Timestamp};

/// The requests of one priority.
#[derive(Debug)]
pub(super) struct PriorityClass<W> {
    pub(super) keys: BTreeMap<Fingerprint, ShareState<W>>,
    /// The keys with requests, by what they have used. What keys with equal places and weights have used grows alike, so
    /// that time does not change their order: each set holds what its keys had used at `epoch_since`, had they used places
    /// at this rate ever since.
    turns: BTreeMap<UseRate, BTreeSet<(i128, Fingerprint)>>,
    /// The same, by the number of their requests.
    pub(super) lengths: BTreeSet<(u64, Fingerprint)>,
    pub(super) waiting: usize,
    pub(super) held: u64,
    /// The sum of the weights of keys with places or requests.
    pub(super) weights: u64,
    /// Places that others got since this priority got one, while it waits.
    pub(super) passed_over: u32,
    /// What the key had used that was next last: a key that comes begins here.
    pub(super) virtual_time: u64,
    /// Changes when the last request leaves the queue.
    pub(super) epoch: u32,
    pub(super) epoch_since: Timestamp,
    /// Keys without places and requests that are still known.
    pub(super) debtors: Vec<Fingerprint>,
}

/// What is known of a key.
#[derive(Debug)]
pub(super) struct ShareState<W> {
    pub(super) weight: NonZeroU32,
    pub(super) held: u32,
    /// In this epoch, until `since`.
    pub(super) used: u64,
    pub(super) since: Timestamp,
    pub(super) epoch: u32,
    /// As it stands in [`PriorityClass::turns`].
    turn: (UseRate, i128),
    /// It is one of [`PriorityClass::debtors`].
    pub(super) is_debtor: bool,
    pub(super) waiting: VecDeque<QueueEntry<W>>,
}

/// How fast the use of a key grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UseRate {
    held: u32,
    weight: NonZeroU32,
}

impl UseRate {
    /// What is used within a span.
    fn over(self, span: Micros) -> i128 {
        i128::from(self.held) * i128::from(span.0) * i128::from(SCALE) / i128::from(self.weight.get())
    }
}

/// A place counts for at least so long: of places that become free together not all go to the same key.
const LEAST_USE: Micros = Micros(1_000);
/// What is divided by weights is multiplied by this before.
pub(super) const SCALE: u64 = 1_024;

impl<W> Default for PriorityClass<W> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            turns: BTreeMap::new(),
            lengths: BTreeSet::new(),
            waiting: 0,
            held: 0,
            weights: 0,
            passed_over: 0,
            virtual_time: 0,
            epoch: 0,
            epoch_since: Timestamp(0),
            debtors: Vec::new(),
        }
    }
}

impl<W> PriorityClass<W> {
    /// Changes a key. All that follows from its state is kept true here.
    pub(super) fn change<R>(
        &mut self,
        key: Fingerprint,
        weight: Option<NonZeroU32>,
        now: Timestamp,
        change: impl FnOnce(&mut ShareState<W>) -> R,
    ) -> R {
        if self.waiting == 0 && self.epoch_since < now {
            self.epoch_since = now;
        }
        let (epoch, since) = (self.epoch, self.epoch_since);
        let state = self.keys.entry(key).or_insert_with(|| ShareState::new(epoch, now));
        let was_waiting = !state.waiting.is_empty();
        if was_waiting {
            let (rate, turn) = state.turn;
            if let Some(turns) = self.turns.get_mut(&rate) {
                turns.remove(&(turn, key));
                if turns.is_empty() {
                    self.turns.remove(&rate);
                }
            }
            self.lengths.remove(&(state.length(), key));
        }
        self.waiting -= state.waiting.len();
        self.held -= u64::from(state.held);
        state.settle(epoch, since, now);
        if state.is_active() {
            self.weights -= u64::from(state.weight.get());
        } else {
            state.used = state.used.max(self.virtual_time);
        }
        state.weight = weight.unwrap_or(state.weight);
        let result = change(state);
        self.waiting += state.waiting.len();
        self.held += u64::from(state.held);
        if state.is_active() {
            self.weights += u64::from(state.weight.get());
        }
        if !state.waiting.is_empty() {
            let (rate, turn) = (state.rate(), state.turn_since(since));
            state.turn = (rate, turn);
            self.turns.entry(rate).or_default().insert((turn, key));
            self.lengths.insert((state.length(), key));
        } else if !state.is_active() {
            if state.used <= self.virtual_time {
                self.keys.remove(&key);
            } else if !state.is_debtor {
                state.is_debtor = true;
                self.debtors.push(key);
            }
        }
        if was_waiting && self.waiting == 0 {
            self.end_epoch();
        } else if self.debtors.len() > MAX_DEBTORS {
            self.forget_debtors();
        }
        result
    }

    /// Forgets those that others have caught up with, and of the others all but half of the bound.
    #[cold]
    fn forget_debtors(&mut self) {
        let virtual_time = self.virtual_time;
        let mut kept = 0;
        let keys = &mut self.keys;
        self.debtors.retain(|key| match keys.get_mut(key) {
            Some(state) if state.is_active() => {
                state.is_debtor = false;
                false
            }
            Some(state) if state.used > virtual_time && kept < MAX_DEBTORS / 2 => {
                kept += 1;
                true
            }
            _ => {
                keys.remove(key);
                false
            }
        });
    }

    /// The last request has left the queue: nobody has used what another wanted.
    fn end_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.virtual_time = 0;
        for key in self.debtors.drain(..) {
            match self.keys.get_mut(&key) {
                Some(state) if state.is_active() => state.is_debtor = false,
                _ => _ = self.keys.remove(&key),
            }
        }
    }

    /// What the key has used.
    pub(super) fn used(&mut self, key: Fingerprint, now: Timestamp) -> u64 {
        let (epoch, since) = (self.epoch, self.epoch_since);
        let Some(state) = self.keys.get_mut(&key) else { return 0 };
        state.settle(epoch, since, now);
        state.used_with_places()
    }

    /// The first request of the key that has used least.
    pub(super) fn first(&self, now: Timestamp) -> Option<&QueueEntry<W>> {
        let span = now.since(self.epoch_since);
        let firsts = self.turns.iter().filter_map(|(rate, turns)| {
            let (turn, key) = turns.first()?;
            Some((turn + rate.over(span), key))
        });
        let (_, key) = firsts.min()?;
        self.keys.get(key)?.waiting.front()
    }
}

impl<W> ShareState<W> {
    fn new(epoch: u32, now: Timestamp) -> Self {
        let weight = NonZeroU32::MIN;
        Self {
            weight,
            held: 0,
            used: 0,
            since: now,
            epoch,
            turn: (UseRate { held: 0, weight }, 0),
            is_debtor: false,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.held > 0 || !self.waiting.is_empty()
    }

    /// Counts what was used until `now`, in this epoch.
    pub(super) fn settle(&mut self, epoch: u32, epoch_since: Timestamp, now: Timestamp) {
        if self.epoch != epoch {
            (self.epoch, self.used) = (epoch, 0);
        }
        let span = now.since(self.since.max(epoch_since));
        self.used = self.used.saturating_add(self.weighed(u64::from(self.held).saturating_mul(span.0)));
        self.since = self.since.max(now);
    }

    /// What it has used, with the least use of the places that it holds.
    pub(super) fn used_with_places(&self) -> u64 {
        self.used.saturating_add(self.weighed(u64::from(self.held).saturating_mul(LEAST_USE.0)))
    }

    fn rate(&self) -> UseRate {
        UseRate { held: self.held, weight: self.weight }
    }

    /// What it would have used at a moment, had it always used places at the present rate since.
    fn turn_since(&self, moment: Timestamp) -> i128 {
        i128::from(self.used_with_places()) - self.rate().over(self.since.since(moment))
    }

    pub(super) fn length(&self) -> u64 {
        self.weighed(self.waiting.len() as u64)
    }

    pub(super) fn weighed(&self, number: u64) -> u64 {
        number.saturating_mul(SCALE) / u64::from(self.weight.get())
    }
}
