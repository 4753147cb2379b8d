//! `trial` of a limit: the share of its keys for which it is enforced. For the others it is in shadow.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::{Limit, Mode};
use crate::route::MatchedRequest;
use crate::route::client::ClientRule;
use crate::route::key::{Key, KeyFault, KeyResult, KeySecret, PathForm};

/// The share of a limit's keys for which it is enforced. A larger share has all keys of a smaller one.
///
/// Keys are chosen by a hash without a secret, so that all gateways and all runs choose the same ones.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    share: f64,
    /// Derived from the limit's name, so that two limits choose different keys.
    hash_key: KeySecret,
}

impl PartialEq for Trial {
    fn eq(&self, other: &Self) -> bool {
        self.share.to_bits() == other.share.to_bits()
    }
}

impl Eq for Trial {}

impl Trial {
    /// A share from 0 to 1 of the keys of the limit `name`.
    pub fn new(share: f64, name: &str) -> Self {
        let mut hasher = SipHasher24::new_with_keys(0, 0);
        hasher.write(b"trial of ");
        hasher.write(name.as_bytes());
        Self { share, hash_key: KeySecret::Process(hasher.finish128().as_u128().to_le_bytes()) }
    }

    /// The share, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The share as text: `5 %`.
    pub fn percent(&self) -> String {
        // Whole millionths: `0.07` is `7 %`, not `7.000000000000001 %`.
        format!("{} %", (self.share * 1e6).round() / 1e4)
    }

    /// Whether the limit is enforced for the key of a request. A request without a key belongs to no share.
    fn has(&self, key: &Key, matched: MatchedRequest<'_>) -> bool {
        match key.claim(&self.hash_key, matched) {
            KeyResult::Key(hash) => self.covers(hash.0),
            _ => self.share >= 1.0,
        }
    }

    /// Whether a hash is in the first part of all hashes.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are enough, and rounding keeps the order")]
    fn covers(&self, hash: u128) -> bool {
        (hash >> 75) as f64 / ((1_u64 << 53) as f64) < self.share
    }
}

impl Limit {
    /// Whether it is enforced for a request: that depends on the request's key in a trial.
    #[inline]
    pub fn mode_of(&self, matched: MatchedRequest<'_>) -> Mode {
        match &self.trial {
            Some(trial) if !trial.has(&self.key, matched) => Mode::Shadow,
            _ => self.mode,
        }
    }

    /// The same for the key of these values: see [`Key::owner_of`].
    ///
    /// # Errors
    ///
    /// As [`Key::owner_of`].
    pub fn mode_of_values(
        &self,
        values: &[String],
        rule: &ClientRule,
        paths: PathForm,
    ) -> Result<Mode, KeyFault> {
        let Some(trial) = &self.trial else { return Ok(self.mode) };
        let hash = self.key.owner_of(values, &trial.hash_key, rule, paths)?;
        Ok(if trial.covers(hash.0) { self.mode } else { Mode::Shadow })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_share_has_the_keys_of_a_smaller_one() {
        let of = |share| Trial::new(share, "l");
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
        let words = |share| Trial::new(share, "l").percent();
        assert_eq!([words(0.05), words(0.07), words(0.001), words(1.0)], ["5 %", "7 %", "0.1 %", "100 %"]);
    }
}
