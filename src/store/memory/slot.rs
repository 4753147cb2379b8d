//! A slot: the data that a set holds of one key, in three words: its tag, the time, and the use.
//!
//! ```text
//! label    tag, bits 10 to 41 (32) │ ParamsId (32)
//! moment   tag, bits 0 to 9 (10) │ is it a log (1) │ time, or number of events (53)
//! used     use, or the log's id (64)
//! ```
//! An empty slot is an unused counter. Two keys are treated as one if they have the same tag and sets. In a full table
//! of n keys, the chance that a new key meets such a key is 10 × 2^-42. Since fingerprints are keyed, no client can
//! search for one.

use crate::limit::Packed;
use crate::limit::units::{EXACT, Fingerprint, Timestamp};
use crate::store::ParamsId;

/// The part of a fingerprint that distinguishes the keys of one set: 42 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u64);

/// The words of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CounterSlot {
    pub(super) label: u64,
    pub(super) moment: u64,
    pub(super) used: u64,
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The state itself.
    State(Packed),
    /// A sliding log that is stored elsewhere.
    Log {
        /// The log's id; never 0.
        id: u64,
        /// The number of its events.
        events: u64,
    },
}

/// Bits of `moment` below the tag's and the log's.
const TIME_BITS: u32 = 53;
/// Bits of the tag in `moment`.
const LOW_BITS: u32 = 10;

impl Tag {
    /// Bits of a tag.
    pub(super) const BITS: u32 = 42;

    /// Taken from the low end of the fingerprint: the high end selects the set.
    pub(super) fn of(key: Fingerprint) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let low = key.0 as u64;
        Self(low & ((1 << Self::BITS) - 1))
    }

    /// Its bits, at the low end.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// The tag with these bits, as far as a tag has so many.
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// Whether `label` begins as the label of this tag.
    #[inline]
    pub(super) const fn heads(self, label: u64) -> bool {
        label >> u32::BITS == self.0 >> LOW_BITS
    }

    /// The tag's bits at the high end of a word.
    pub(super) const fn spread(self) -> u64 {
        self.0 << (u64::BITS - Self::BITS)
    }
}

impl CounterSlot {
    /// An empty slot.
    pub(super) const EMPTY: Self = Self { label: 0, moment: 0, used: 0 };

    /// A slot of the key with `tag`, written under the parameters `params`.
    #[inline]
    pub(super) fn new(tag: Tag, params: ParamsId, content: Content) -> Self {
        let (is_log, time, used) = match content {
            Content::State(state) => (0, state.at.0, state.used),
            Content::Log { id, events } => (1, events, id),
        };
        let low = tag.0 & ((1 << LOW_BITS) - 1);
        Self {
            label: (tag.0 >> LOW_BITS) << u32::BITS | u64::from(params.0),
            moment: (low << 1 | is_log) << TIME_BITS | time.min(EXACT - 1),
            used,
        }
    }

    /// Whether the slot is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether the slot is of the key with `tag`.
    #[inline]
    pub(super) fn is_of(&self, tag: Tag) -> bool {
        !self.is_empty() && self.tag() == tag
    }

    /// Whether the slot has the key, the parameters and the kind of `other`.
    #[inline]
    pub(super) const fn agrees(&self, other: &Self) -> bool {
        self.label == other.label && (self.moment ^ other.moment) >> TIME_BITS == 0
    }

    /// The key's tag.
    #[inline]
    pub(super) const fn tag(&self) -> Tag {
        Tag((self.label >> u32::BITS) << LOW_BITS | self.moment >> (TIME_BITS + 1))
    }

    /// The parameters that it was written under.
    pub(super) const fn params(&self) -> ParamsId {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        let low = self.label as u32;
        ParamsId(low)
    }

    /// Its content.
    #[inline]
    pub(super) const fn content(&self) -> Content {
        let time = self.moment & (EXACT - 1);
        if self.moment >> TIME_BITS & 1 == 1 {
            Content::Log { id: self.used, events: time }
        } else {
            Content::State(Packed { at: Timestamp(time), used: self.used })
        }
    }

    /// The id of its log, if it is one.
    pub(super) const fn log(&self) -> Option<u64> {
        match self.content() {
            Content::Log { id: 0, .. } | Content::State(_) => None,
            Content::Log { id, .. } => Some(id),
        }
    }

    /// The number of entries that it counts as in the store's capacity.
    pub(super) const fn weight(&self) -> u64 {
        match self.content() {
            _ if self.is_empty() => 0,
            Content::State(_) => 1,
            Content::Log { events, .. } => events,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_found_again(key: u128, params: u32, time in 0..EXACT, used in 1..=u64::MAX, is_log: bool) {
            let (tag, params) = (Tag::of(Fingerprint(key)), ParamsId(params));
            let content = match is_log {
                true => Content::Log { id: used, events: time },
                false => Content::State(Packed { at: Timestamp(time), used }),
            };
            let slot = CounterSlot::new(tag, params, content);
            prop_assert_eq!((slot.tag(), slot.params(), slot.content()), (tag, params, content));
            prop_assert_eq!(slot.weight(), if is_log { time } else { 1 });
            prop_assert!(slot.is_of(tag) && !slot.is_of(Tag::of(Fingerprint(key ^ 1))));
            prop_assert!(!slot.agrees(&CounterSlot::new(Tag::of(Fingerprint(key ^ 1 << 41)), params, content)));
            prop_assert!(!slot.agrees(&CounterSlot::new(tag, ParamsId(params.0 ^ 1), content)));
        }
    }
}
