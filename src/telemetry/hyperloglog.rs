//! HyperLogLog: the number of distinct keys, in constant memory. Few keys are counted exactly, more are estimated.
//!
//! P. Flajolet, É. Fusy, O. Gandouet, F. Meunier: "HyperLogLog: the analysis of a near-optimal cardinality estimation
//! algorithm" (2007), with 256 registers: the error is 1.04 ÷ √256 = 6.5 % (one standard deviation). Hashes have 64
//! bits, so no correction is needed for large numbers; small ones are counted by the empty registers, as in the paper.

/// The number of registers.
const REGISTERS: usize = 256;
/// The maximum number of keys counted exactly in one set.
const FEW: usize = 32;
/// One standard deviation of an estimate, as a share.
pub const ERROR: f64 = 0.065;

/// A set of distinct keys, by their hashes.
#[derive(Clone, Debug, Default)]
pub struct HyperLogLog {
    few: Vec<u64>,
    many: Option<Registers>,
}

/// For each of 256 parts of all hashes, the longest run of zeros seen in it.
#[derive(Clone, Debug)]
struct Registers(Box<[u8; REGISTERS]>);

/// The union of several sets. Exact as long as each of them is.
#[derive(Clone, Debug, Default)]
pub struct HyperLogLogUnion {
    /// Hashes, some of them repeated: duplicates are removed when they are counted, not by a worker.
    few: Vec<u64>,
    many: Option<Registers>,
}

impl HyperLogLog {
    /// Adds a key. `hash` is spread evenly over all 64 bits.
    pub fn insert(&mut self, hash: u64) {
        if let Some(many) = &mut self.many {
            return many.insert(hash);
        }
        if self.few.contains(&hash) {
            return;
        }
        if self.few.len() < FEW {
            return self.few.push(hash);
        }
        let many = self.many.get_or_insert_default();
        self.few.drain(..).chain([hash]).for_each(|hash| many.insert(hash));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many = None;
    }
}

impl HyperLogLogUnion {
    /// Adds the keys of a set.
    pub fn add(&mut self, part: &HyperLogLog) {
        self.few.extend_from_slice(&part.few);
        if let Some(many) = &part.many {
            self.many.get_or_insert_default().merge(many);
        }
    }

    /// Adds the keys of another union.
    pub fn merge(&mut self, other: &Self) {
        self.few.extend_from_slice(&other.few);
        if let Some(many) = &other.many {
            self.many.get_or_insert_default().merge(many);
        }
    }

    /// The number of keys: exact, or with the error [`ERROR`].
    pub fn count(&self) -> u64 {
        let mut few = self.few.clone();
        few.sort_unstable();
        few.dedup();
        let Some(many) = &self.many else { return few.len() as u64 };
        let mut all = many.clone();
        few.iter().for_each(|hash| all.insert(*hash));
        all.estimate()
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self(Box::new([0; REGISTERS]))
    }
}

impl Registers {
    fn insert(&mut self, hash: u64) {
        let [register, ..] = hash.to_le_bytes();
        // At most 57, as one bit is set.
        let run = ((hash >> 8) | 1 << 56).trailing_zeros() + 1;
        let longest = &mut self.0[usize::from(register)];
        *longest = (*longest).max(u8::try_from(run).unwrap_or(u8::MAX));
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(longest, other)| *longest = (*longest).max(*other));
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate is not negative, and far below 2^53"
    )]
    fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        let sum: f64 = self.0.iter().map(|run| f64::from(-i16::from(*run)).exp2()).sum();
        let estimate = alpha * registers * registers / sum;
        let empty = self.0.iter().filter(|run| **run == 0).count();
        let corrected = match estimate <= 2.5 * registers && empty > 0 {
            true => registers * (registers / empty as f64).ln(),
            false => estimate,
        };
        corrected.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use siphasher::sip::SipHasher13;

    use super::*;

    fn hash(number: u64, key: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(key, 0);
        hasher.write_u64(number);
        hasher.finish()
    }

    fn count(parts: &[HyperLogLog]) -> u64 {
        let mut union = HyperLogLogUnion::default();
        parts.iter().for_each(|part| union.add(part));
        union.count()
    }

    #[test]
    fn few_are_exact_in_many_sets() {
        let mut parts = vec![HyperLogLog::default(); 60];
        for number in 0..60 * FEW as u64 * 5 {
            let part = usize::try_from(number / 5).unwrap() / FEW;
            parts[part].insert(hash(number / 5, 1));
        }
        assert_eq!(count(&parts), 60 * FEW as u64);
        assert!(parts.iter().all(|part| part.many.is_none()));
        parts[0].clear();
        assert_eq!(count(&parts), 59 * FEW as u64);
    }

    #[test]
    fn many_are_estimated_with_the_error_that_is_told() {
        for size in [33_u64, 100, 600, 3_000, 100_000] {
            let errors = (0..60_u64).map(|key| {
                let mut parts = vec![HyperLogLog::default(); 3];
                // Each key is added twice, in different sets.
                for number in 0..2 * size {
                    parts[usize::try_from(number % 3).unwrap()].insert(hash(number % size, key));
                }
                (count(&parts) as f64 / size as f64 - 1.0).powi(2)
            });
            let deviation = (errors.sum::<f64>() / 60.0).sqrt();
            assert!(deviation < 1.4 * ERROR, "{size}: {deviation}");
        }
    }
}
