//! The names of counters: `tollgate:per-client:1t:5f0c4a1b:{9f86d081884c7d659a2feaa0c55ad015}`.
//!
//! Prefix, limit, [`Version`], policy, and in braces the owner. A cluster hashes the part in braces: all counters of
//! one owner are in one slot, so that limits with the same key are decided by one call.

use std::fmt::{self, Display, Formatter};

use crate::limit::Algorithm;
use crate::limit::units::Fingerprint;

/// The digits of an owner in hexadecimal.
pub const KEY_HASH: usize = 32;

/// The part of a name that is the same for all owners, without the prefix. `identity` is the policy's: the name has 32
/// bits of it, which distinguish a limit from an earlier one of the same name that counted by another key.
pub fn policy(limit: &str, algorithm: &Algorithm, identity: u128) -> String {
    format!("{limit}:{}:{:08x}", Version(algorithm), identity >> 96)
}

/// The owner as written in braces.
pub fn key_hash(fingerprint: Fingerprint) -> [u8; KEY_HASH] {
    let mut digits = [0; KEY_HASH];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(fingerprint.0.to_be_bytes()) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    digits
}

/// A counter's whole name, in parts.
pub fn parts<'a>(prefix: &'a str, policy: &'a str, key_hash: &'a [u8; KEY_HASH]) -> [&'a [u8]; 6] {
    [prefix.as_bytes(), b":", policy.as_bytes(), b":{", key_hash, b"}"]
}

fn digit(number: u8) -> u8 {
    if number < 10 { b'0' + number } else { b'a' + number - 10 }
}

/// A part of every key: the format of the state, the algorithm, and for windows and logs the period in µs, or
/// the calendar. `1t`, `1f60000000`, `1fmonth-1@UTC`.
///
/// States under different versions are never confused, so gateways with different configurations or of different builds
/// may use one server. A build that writes another format uses another number.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a>(pub &'a Algorithm);

impl Display for Version<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "1{}", self.0.letter())?;
        if let Some(calendar) = self.0.calendar() {
            return f.write_str(calendar.name());
        }
        self.0.state_period().map_or(Ok(()), |period| write!(f, "{}", period.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_prefix_limit_version_policy_and_owner() {
        let rate = crate::limit::units::Rate::new(5, crate::limit::units::Micros::SECOND).unwrap();
        let algorithm = Algorithm::sliding_window(rate);
        let policy = policy("per-client", &algorithm, 0xdead_beef << 96 | 7);
        let name = parts("tollgate", &policy, &key_hash(Fingerprint(0xab))).concat();
        let expected = "tollgate:per-client:1w1000000:deadbeef:{000000000000000000000000000000ab}";
        assert_eq!(String::from_utf8(name).unwrap(), expected);
    }
    use crate::limit::Align;
    use crate::limit::units::{Cost, Micros, Rate};

    #[test]
    fn versions_tell_algorithms_and_periods_apart_but_not_other_numbers() {
        let of = |algorithm: Algorithm| Version(&algorithm).to_string();
        let minute = Rate::new(5, Micros(60_000_000)).unwrap();
        let (second, more) = (Rate::new(5, Micros::SECOND).unwrap(), Rate::new(6, Micros::SECOND).unwrap());
        assert_eq!(of(Algorithm::token_bucket(minute, Cost::ONE)), "1t");
        assert_eq!(of(Algorithm::gcra(second, Cost::ONE)), "1g");
        assert_eq!(of(Algorithm::leaky_bucket(minute, Cost::ONE, Micros::SECOND)), "1l");
        assert_eq!(of(Algorithm::fixed_window(minute, Align::Clock)), "1f60000000");
        assert_eq!(of(Algorithm::fixed_window(more, Align::FirstRequest)), "1f1000000");
        assert_eq!(of(Algorithm::sliding_window(second)), of(Algorithm::sliding_window(more)));
        assert_eq!(of(Algorithm::sliding_log(more, Some(Micros(7)), true)), "1s1000000");
    }
}
