//! A share of the values of a key: of a limit's `trial`, and of a route's `mirror`.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::route::MatchedRequest;
use crate::route::key::{Key, KeyResult, KeySecret};

/// A share of the values of a key. A larger share has all values of a smaller one.
///
/// Values are chosen by a hash without a secret, so that all gateways and all runs choose the same ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyShare {
    share: f64,
    pub(super) hash_key: KeySecret,
}

impl PartialEq for KeyShare {
    fn eq(&self, other: &Self) -> bool {
        self.share.to_bits() == other.share.to_bits()
    }
}

impl Eq for KeyShare {}

impl KeyShare {
    /// A share from 0 to 1. Another `purpose` chooses other values.
    pub(super) fn new(share: f64, purpose: &[&str]) -> Self {
        let mut hasher = SipHasher24::new_with_keys(0, 0);
        purpose.iter().for_each(|part| hasher.write(part.as_bytes()));
        Self { share, hash_key: KeySecret::Process(hasher.finish128().as_u128().to_le_bytes()) }
    }

    /// The share, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// The share as text: `5 %`.
    pub(super) fn percent(&self) -> String {
        // Whole millionths: `0.07` is `7 %`, not `7.000000000000001 %`.
        format!("{} %", (self.share * 1e6).round() / 1e4)
    }

    /// Whether the share has the key of a request. A request without a key belongs to no share but the whole.
    pub(super) fn has(&self, key: &Key, matched: MatchedRequest<'_>) -> bool {
        match key.claim(&self.hash_key, matched) {
            KeyResult::Key(hash) => self.covers(hash.0),
            _ => self.share >= 1.0,
        }
    }

    /// Whether a hash is in the first part of all hashes.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are enough, and rounding keeps the order")]
    pub(super) fn covers(&self, hash: u128) -> bool {
        (hash >> 75) as f64 / ((1_u64 << 53) as f64) < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_share_has_the_keys_of_a_smaller_one() {
        let of = |share| KeyShare::new(share, &["l"]);
        let hashes =
            || (0..10_000_u128).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let count = |share| hashes().filter(|&hash| of(share).covers(hash)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((490..510).contains(&count(0.05)), "{}", count(0.05));
        assert!(hashes().filter(|&hash| of(0.05).covers(hash)).all(|hash| of(0.5).covers(hash)));
        assert!(of(1.0).covers(u128::MAX) && !of(0.0).covers(0));
    }

    #[test]
    fn shares_in_words() {
        let words = |share| KeyShare::new(share, &["l"]).percent();
        assert_eq!([words(0.05), words(0.07), words(0.001), words(1.0)], ["5 %", "7 %", "0.1 %", "100 %"]);
    }
}
