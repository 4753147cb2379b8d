//! Keys: what a limit counts by, and the rules for requests without a key.
//!
//! A key becomes a fingerprint: 128 bits of a keyed hash over a text of tagged, length-prefixed parts:
//!
//! ```text
//! one a part:  tag                          1 byte: the kind of the part, or of its substitute
//!              count                        8 bytes; only of a header, and of several cookies or parameters: number of values
//!                                           (all integers little-endian)
//!              length, bytes                8 bytes, then the bytes; an address has 4 or 16
//! ```
//!
//! The text can be parsed back, so two keys are equal only if all their parts are: `("a:b", "c")` is not `("a",
//! "b:c")`, one value `x, y` is not two values, and an address substituted for a header is not a header with those
//! bytes. A client finds two texts with one fingerprint with no more chance than it guesses the secret.
//!
//! The limit is not part of the text: [`Fingerprint::of_policy`](crate::limit::units::Fingerprint::of_policy) adds it.

mod named;

use std::fmt::{self, Write as _};
use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::MatchedRequest;
use super::content::UnreadableBody;
use super::mask::Masking;
pub use super::part::KeyFault;
pub use super::part::{Part, Repeated};
use super::part_value::PartValue;
pub use super::part_value::{LACKS, REPEATED};
pub use super::secret::KeySecret;
use crate::limit::units::Fingerprint;
use crate::measure::JsonPointer;
pub use named::{EVERYONE, PathForm};

/// A key: its parts in order. One part, or several for a composite. As text through `Display`: `per client address and
/// path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// At least one.
    pub parts: Vec<Part>,
    /// The rule for an absent header, cookie or query part.
    pub missing: Missing,
    /// The rule for several different values of such a part; `None`: that of [`Part::repeated`].
    pub repeated: Option<Repeated>,
    /// Whether a part of a body that cannot be read counts as missing; else the request is refused.
    pub unreadable_is_missing: bool,
    /// Whether values are compared in lower case.
    pub folds_case: bool,
}

/// The rule for an absent header, cookie or query part of the key. As text through `Display`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The client's network is substituted for that part.
    #[default]
    Ip,
    /// All such requests share one counter (of a composite: all with equal other parts).
    Shared,
    /// The limit does not apply.
    Skip,
    /// Refused with 429.
    Deny,
}

/// The result of computing a request's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyResult {
    /// The key.
    Key(Fingerprint),
    /// A part is missing, and the limit is skipped in that case.
    Skip,
    /// A part is missing, and the request is refused in that case.
    Deny,
    /// A part has several values, and the request is refused in that case.
    Repeated,
    /// The body cannot be read, and the request is refused in that case.
    Unreadable(UnreadableBody),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "the client address stands in",
            Self::Shared => "all such requests share one counter",
            Self::Skip => "the limit does not apply",
            Self::Deny => "the request is refused",
        })
    }
}

impl Key {
    /// A key of these parts, with the default rules.
    pub fn new(parts: Vec<Part>) -> Self {
        Self {
            parts,
            missing: Missing::default(),
            repeated: None,
            unreadable_is_missing: false,
            folds_case: false,
        }
    }

    /// Whether it counts by the body of requests.
    pub fn reads_body(&self) -> bool {
        self.parts.iter().any(Part::is_of_body)
    }

    /// The members of JSON bodies that it counts by.
    pub fn json_pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        self.parts.iter().filter_map(Part::json_pointer)
    }

    /// Whether it is the same whatever the credential and the body of a request are.
    pub fn is_known_before_auth(&self) -> bool {
        !self.parts.iter().any(|part| part.is_of_body() || part.is_of_consumer() || *part == Part::Upstream)
    }

    /// Whether a request may lack a part of the key, so that [`Missing`] applies.
    pub fn may_be_missing(&self) -> bool {
        self.parts.iter().any(Part::may_be_missing)
    }

    /// The fingerprint of the parts: they are length-prefixed, so `("a:b","c")` and `("a","b:c")` differ.
    /// Allocates only to decode an escaped cookie or query parameter, to join several, and in a fleet for keys of more
    /// than 64 bytes.
    pub fn claim(&self, secret: &KeySecret, matched: MatchedRequest<'_>) -> KeyResult {
        let mut text = KeyText::new(secret);
        let mut lacking = None;
        for part in &self.parts {
            let found = self.find(part, matched);
            if self.denies(part, &found) {
                return KeyResult::Repeated;
            }
            if let PartValue::Unreadable(fault) = found {
                return KeyResult::Unreadable(fault);
            }
            match (found, self.missing) {
                (PartValue::Missing | PartValue::Repeated, Missing::Ip) => {
                    text.address(KeyText::IP_STANDS_IN, matched.request.client.network);
                }
                (PartValue::Missing | PartValue::Repeated, Missing::Shared) => text.tag(KeyText::SHARED),
                // A later part may deny the request, whatever is missing.
                (PartValue::Missing | PartValue::Repeated, Missing::Skip) => lacking = Some(KeyResult::Skip),
                (PartValue::Missing | PartValue::Repeated, Missing::Deny) => lacking = Some(KeyResult::Deny),
                // Refused above.
                (PartValue::Unreadable(_), _) => {}
                (PartValue::Nothing, _) => text.tag(part.tag()),
                (PartValue::Address(address), _) => text.address(part.tag(), address),
                (PartValue::Bytes(bytes), _) => text.bytes(part.tag(), &bytes),
                (PartValue::Value(value), _) => text.value(part.tag(), &value),
                (PartValue::Values(values), _) => text.values(part.tag(), values.iter()),
                (PartValue::Several(values), _) => {
                    text.values(KeyText::SEVERAL | part.tag(), values.iter().map(|value| &**value));
                }
            }
        }
        lacking.unwrap_or_else(|| KeyResult::Key(text.fingerprint()))
    }

    /// Whether the request's key holds its client's address, as a part or in place of a missing one.
    pub fn holds_address(&self, matched: MatchedRequest<'_>) -> bool {
        let stands_in = |part: &Part| {
            let found = self.find(part, matched);
            matches!(found, PartValue::Missing | PartValue::Repeated)
        };
        self.parts.iter().any(|part| part.is_address() || self.missing == Missing::Ip && stands_in(part))
    }

    fn find<'r>(&self, part: &'r Part, matched: MatchedRequest<'r>) -> PartValue<'r> {
        let found = part.find(matched, self.repeated == Some(Repeated::Join));
        match found {
            PartValue::Unreadable(_) if self.unreadable_is_missing => PartValue::Missing,
            found if self.folds_case => found.folded(),
            found => found,
        }
    }

    /// Whether the request is refused since this part has several values.
    fn denies(&self, part: &Part, found: &PartValue<'_>) -> bool {
        matches!(found, PartValue::Repeated) && self.repeated.unwrap_or(part.repeated()) == Repeated::Deny
    }

    /// The parts with the request's values, for display: `("header:x-api-key", Some("…f3a9 #k7Qd"))`. Values of header,
    /// cookie and query parts are shown by `masking`. A missing part is shown as its substitute (`ip (header:x-api-key
    /// is missing)`), or without a value.
    pub fn describe(
        &self,
        matched: MatchedRequest<'_>,
        masking: Masking<'_>,
    ) -> Vec<(String, Option<String>)> {
        let describe = |part: &Part| {
            let found = self.find(part, matched);
            let Some(lack) = found.lack() else {
                return (part.to_string(), found.words(part.masking(masking), part.is_authorization()));
            };
            match self.missing {
                _ if self.denies(part, &found) || matches!(found, PartValue::Unreadable(_)) => {
                    (format!("{part} {lack}"), None)
                }
                Missing::Ip => {
                    (format!("ip ({part} {lack})"), Some(matched.request.client.network.to_string()))
                }
                Missing::Shared => (format!("everybody ({part} {lack})"), None),
                Missing::Skip | Missing::Deny => (format!("{part} {lack}"), None),
            }
        };
        self.parts.iter().map(describe).collect()
    }
}

impl Key {
    /// The values alone, masked as by [`Self::describe`]; a part without a value is named. Parts that are equal for all
    /// requests are left out.
    pub fn label(&self, matched: MatchedRequest<'_>, masking: Masking<'_>) -> Vec<String> {
        let described = self.describe(matched, masking).into_iter().zip(&self.parts);
        described
            .filter(|(_, part)| **part != Part::Global)
            .map(|((part, value), _)| value.unwrap_or(part))
            .collect()
    }
}

/// Maximum characters of a label: those of its parts together.
const LABEL_MOST: usize = 480;
/// Maximum characters of one part of a label.
const LABEL_PART_MOST: usize = 120;
/// The end of each part of a label: no part contains it, since controls are escaped.
pub const LABEL_END: char = '\n';

impl Key {
    /// Maximum characters of one part of this key's label.
    fn max_label_part(&self) -> usize {
        LABEL_PART_MOST.min(LABEL_MOST / self.parts.len().max(1))
    }

    /// Appends to `out` the same as [`Self::label`], with [`LABEL_END`] after each part. Of a long value the first 120
    /// characters and `…`, or fewer if the key has more than four parts.
    pub fn write_label(&self, matched: MatchedRequest<'_>, masking: Masking<'_>, out: &mut String) {
        let parts = self.parts.iter().filter(|part| **part != Part::Global);
        let max = self.max_label_part();
        for part in parts {
            let found = self.find(part, matched);
            // Writing to a `String` cannot fail.
            let _ = match (found.lack(), self.missing) {
                (None, _) => {
                    found.write(part.masking(masking), part.is_authorization(), max, out);
                    Ok(())
                }
                (Some(lack), _) if self.denies(part, &found) || matches!(found, PartValue::Unreadable(_)) => {
                    write!(out, "{part} {lack}")
                }
                (Some(_), Missing::Ip) => write!(out, "{}", matched.request.client.network),
                (Some(lack), Missing::Shared) => write!(out, "everybody ({part} {lack})"),
                (Some(lack), Missing::Skip | Missing::Deny) => write!(out, "{part} {lack}"),
            };
            out.push(LABEL_END);
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> =
            self.parts.iter().filter(|part| **part != Part::Global).map(Part::words).collect();
        match parts.split_last() {
            None => f.write_str("for everybody together"),
            Some((only, [])) => write!(f, "per {only}"),
            Some((last, first)) => write!(f, "per {} and {last}", first.join(", ")),
        }
    }
}

/// The text that the fingerprint is a hash of; see the module.
struct KeyText<'s> {
    secret: &'s KeySecret,
    /// It is created only for bytes that do not fit into `pending`: a short text is hashed at once, which is faster.
    hasher: Option<KeyHasher>,
    /// Bytes not hashed yet: a hasher is faster on one long text than on many short ones.
    pending: [u8; 64],
    length: usize,
}

/// By the [`KeySecret`].
enum KeyHasher {
    Process(SipHasher13),
    /// Boxed since it is large.
    Fleet(Box<blake3::Hasher>),
}

impl<'s> KeyText<'s> {
    /// Tags of the substitutes for a missing part; those of parts are [`Part::tag`].
    const IP_STANDS_IN: u8 = 254;
    const SHARED: u8 = 255;
    /// Added to the tag of a cookie or a query parameter that has several values.
    const SEVERAL: u8 = 64;

    #[inline]
    fn new(secret: &'s KeySecret) -> Self {
        Self { secret, hasher: None, pending: [0; 64], length: 0 }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        match self.pending.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.write_through(bytes),
        }
    }

    #[cold]
    fn write_through(&mut self, bytes: &[u8]) {
        let hasher = self.hasher.get_or_insert_with(|| KeyHasher::new(self.secret));
        hasher.write(&self.pending[..self.length]);
        hasher.write(bytes);
        self.length = 0;
    }

    fn tag(&mut self, tag: u8) {
        self.write(&[tag]);
    }

    fn number(&mut self, number: usize) {
        self.write(&(number as u64).to_le_bytes()); // usize has at most 64 bits
    }

    fn prefixed(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.write(bytes);
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.tag(tag);
        self.prefixed(bytes);
    }

    /// The same as [`Self::bytes`], in one piece: most keys are addresses.
    #[inline]
    fn address(&mut self, tag: u8, address: IpAddr) {
        let mut text = [0; 25];
        text[0] = tag;
        match address {
            IpAddr::V4(v4) => {
                text[1] = 4;
                text[9..13].copy_from_slice(&v4.octets());
                self.write(&text[..13]);
            }
            IpAddr::V6(v6) => {
                text[1] = 16;
                text[9..].copy_from_slice(&v6.octets());
                self.write(&text);
            }
        }
    }

    /// A header with one value.
    fn value(&mut self, tag: u8, value: &[u8]) {
        self.tag(tag);
        self.number(1);
        self.prefixed(value);
    }

    fn values<'v>(&mut self, tag: u8, values: impl Iterator<Item = &'v [u8]> + Clone) {
        self.tag(tag);
        self.number(values.clone().count());
        values.for_each(|value| self.prefixed(value));
    }

    #[inline]
    fn fingerprint(&mut self) -> Fingerprint {
        let pending = &self.pending[..self.length];
        Fingerprint(match (&mut self.hasher, self.secret) {
            (None, KeySecret::Process(secret)) => SipHasher13::new_with_key(secret).hash(pending).as_u128(),
            (None, KeySecret::Fleet(secret)) => half(&blake3::keyed_hash(secret, pending)),
            (Some(KeyHasher::Process(hasher)), _) => {
                hasher.write(pending);
                hasher.finish128().as_u128()
            }
            (Some(KeyHasher::Fleet(hasher)), _) => half(&hasher.update(pending).finalize()),
        })
    }
}

impl KeyHasher {
    fn new(secret: &KeySecret) -> Self {
        match secret {
            KeySecret::Process(secret) => Self::Process(SipHasher13::new_with_key(secret)),
            KeySecret::Fleet(secret) => Self::Fleet(Box::new(blake3::Hasher::new_keyed(secret))),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Process(hasher) => hasher.write(bytes),
            Self::Fleet(hasher) => {
                hasher.update(bytes);
            }
        }
    }
}

/// 128 of the 256 bits.
fn half(hash: &blake3::Hash) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}
