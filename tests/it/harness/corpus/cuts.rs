//! Where a message is cut.

use super::generate::Random;

/// Longer messages are cut at a sample of places: each cut costs a whole run.
const EVERYWHERE: usize = 700;
/// Places of such a sample at each end of the message, and between.
const SAMPLE: usize = 40;

/// Every index at which a message of this length can be cut in two; for a long message, both ends and a sample between.
pub(crate) fn in_two(length: usize) -> Vec<usize> {
    if length <= EVERYWHERE {
        return (1..length).collect();
    }
    let mut random = Random::new(length as u64);
    let between = (0..SAMPLE).map(|_| 1 + random.below(length - 1));
    let mut indices: Vec<usize> = (1..SAMPLE).chain(length - SAMPLE..length).chain(between).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

/// Ways of cutting into three, drawn by this seed.
pub(crate) fn pairs(length: usize, seed: u64, count: usize) -> Vec<[usize; 2]> {
    if length < 3 {
        return Vec::new();
    }
    let mut random = Random::new(seed);
    let mut pair = || {
        let (one, other) = (1 + random.below(length - 1), 1 + random.below(length - 1));
        [one.min(other), one.max(other)]
    };
    (0..count).map(|_| pair()).filter(|[one, other]| one < other).collect()
}

/// Byte by byte.
pub(crate) fn bytewise(length: usize) -> Vec<usize> {
    (1..length).collect()
}

/// The segments between these places.
pub(crate) fn segments<'b>(bytes: &'b [u8], indices: &[usize]) -> Vec<&'b [u8]> {
    let begins = std::iter::once(0).chain(indices.iter().copied());
    let ends = indices.iter().copied().chain([bytes.len()]);
    begins.zip(ends).map(|(begin, end)| &bytes[begin..end]).collect()
}
