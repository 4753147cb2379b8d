//! What the script is handed.
//!
//! `EVALSHA sha1 n key… operation moment charge…`: n keys, as many charges, in the same order; a key may stand there several times.
//!
//! - `operation` is `decide`, `peek` (the same answers without the charge, nothing is written), `settle` or `grant` (see
//!   [`Algorithm::grant`]); `reset` deletes the keys, and takes no charges.
//! - `moment` is that of the admission, in µs, for `settle`; else 0.
//! - A charge is one argument in bytes: the twin's name and a zero byte; the group in two bytes (0: enforced, p + 1: shadow limit at
//!   place p); then six doubles, the cost (or difference) and the twin's five numbers. Eight numbers as text took the server 2 µs more.
//!
//! Bans are another matter, with a key and arguments of their own: see `bans.lua`.

use smallvec::SmallVec;

use crate::limit::Algorithm;
use crate::limit::units::{Cost, EXACT, Fingerprint, Timestamp};
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
pub fn decide(charges: &[Charge<'_>], give: impl FnMut(&[u8])) {
    ask(b"decide", charges, give);
}

/// Gives the arguments that follow the keys, to have each charge looked at as if alone.
pub fn peek(charges: &[Charge<'_>], give: impl FnMut(&[u8])) {
    ask(b"peek", charges, give);
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

/// Gives the arguments that follow the keys, to have so many units given back to each.
pub fn grant(charges: &[Charge<'_>], units: Cost, mut give: impl FnMut(&[u8])) {
    give(b"grant");
    give(b"0");
    for charge in charges {
        give(&argument(charge.algorithm, Group::Enforced, units.units().into()));
    }
}

/// Gives the arguments that follow the keys, to have them deleted.
pub fn reset(mut give: impl FnMut(&[u8])) {
    give(b"reset");
}

fn ask(operation: &[u8], charges: &[Charge<'_>], mut give: impl FnMut(&[u8])) {
    give(operation);
    give(b"0");
    for Charge { algorithm, group, cost, .. } in charges {
        give(&argument(algorithm, *group, cost.units().into()));
    }
}

/// As long as the longest: what is handed over lies on the stack.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::{Micros, Rate};
    use crate::store::{ParamsId, SharedKeyInfo};

    #[test]
    fn a_charge_is_a_name_a_group_and_six_doubles() {
        let rate = Rate::new(3, Micros::SECOND).unwrap();
        let algorithm = &Algorithm::sliding_log(rate, Some(Micros(7)), true);
        let (numbers, key, cost) = (ParamsId::of(algorithm), Fingerprint(1), Cost::new(2).unwrap());
        let (group, remote) = (Group::Shadow(4), SharedKeyInfo::NONE);
        let charge = Charge { algorithm, numbers, key, cost, group, remote };
        let mut given = Vec::new();
        decide(&[charge], |argument| given.push(argument.to_vec()));
        let doubles = [2.0, 1_000_000.0, 3.0, 7.0, 1.0, 0.0].map(f64::to_le_bytes).concat();
        let argument = [&b"sliding_log\0\x05\0"[..], &doubles].concat();
        assert_eq!(given, [b"decide".to_vec(), b"0".to_vec(), argument]);
    }

    #[test]
    fn no_argument_leaves_the_stack() {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        let longest = argument(&Algorithm::sliding_window(rate), Group::Shadow(u8::MAX), f64::MAX);
        assert!(!longest.spilled());
    }
}
