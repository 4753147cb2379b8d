//! What the script is handed.
//!
//! `EVALSHA sha1 n key… operation moment charge…`: n keys, as many charges, in the same order; a key may stand there several times.
//!
//! - `operation` is `decide`, `peek` (the same answers without the charge, nothing is written) or `settle`.
//! - `moment` is that of the admission, in µs, for `settle`; else 0.
//! - A charge is one argument in bytes, as the server takes numbers out of text 2 µs slower: the twin's name and a zero byte, the group in two
//!   bytes (0: enforced, p + 1: shadow limit at place p), then six doubles: cost (or difference) and the twin's five numbers.
//!
//! To reset a counter, delete its key.

use smallvec::SmallVec;

use crate::limit::Algorithm;
use crate::limit::units::{EXACT, Fingerprint, Timestamp};
use crate::store::{Charge, Group};

/// A cost admitted before that turned out to be another.
#[derive(Clone, Copy, Debug)]
pub struct Correction<'a> {
    /// The policy's algorithm and numbers.
    pub algorithm: &'a Algorithm,
    /// Whose allowance.
    pub key: Fingerprint,
    /// By how many units the cost was higher; a refund if negative.
    pub difference: i64,
}

/// Gives the arguments that follow the keys, to have the charges decided, all or none.
pub fn decide(charges: &[Charge<'_>], mut give: impl FnMut(&[u8])) {
    give(b"decide");
    give(b"0");
    charges
        .iter()
        .for_each(|charge| give(&argument(charge.algorithm, charge.group, charge.cost.units().into())));
}

/// Gives the arguments that follow the keys, to have each charge looked at as if alone.
pub fn peek(charges: &[Charge<'_>], mut give: impl FnMut(&[u8])) {
    give(b"peek");
    give(b"0");
    charges
        .iter()
        .for_each(|charge| give(&argument(charge.algorithm, charge.group, charge.cost.units().into())));
}

/// Gives the arguments that follow the keys, to have costs corrected that were admitted at `admitted_at`: the time that was used when
/// they were decided.
pub fn settle(corrections: &[Correction<'_>], admitted_at: Timestamp, mut give: impl FnMut(&[u8])) {
    give(b"settle");
    give(itoa::Buffer::new().format(admitted_at.0).as_bytes());
    for correction in corrections {
        give(&argument(correction.algorithm, Group::Enforced, exact(correction.difference)));
    }
}

type Argument = SmallVec<[u8; 80]>;

fn argument(algorithm: &Algorithm, group: Group, units: f64) -> Argument {
    let twin = algorithm.twin();
    let group = match group {
        Group::Enforced => 0,
        Group::Shadow(place) => u16::from(place) + 1,
    };
    let mut argument = Argument::new();
    argument.extend_from_slice(twin.module.as_bytes());
    argument.push(0);
    argument.extend_from_slice(&group.to_le_bytes());
    argument.extend_from_slice(&units.to_le_bytes());
    for number in twin.numbers {
        argument.extend_from_slice(&(number as f64).to_le_bytes());
    }
    argument
}

/// No state holds more than 2^53 - 1, so a larger difference does no more than that.
fn exact(difference: i64) -> f64 {
    let most = EXACT.cast_signed() - 1;
    difference.clamp(-most, most) as f64
}
