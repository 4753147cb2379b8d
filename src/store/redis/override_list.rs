//! The overrides of a fleet, as one worker of each gateway reads and changes them: see `overrides.lua`.

use super::client::RedisClient;
use crate::limit::wall_clock::WallTime;
use crate::store::Unreachable;
use crate::store::overrides::{
    KeyOfLimit, KeyOverride, OverrideFault, OverrideNumbers, OverrideRate, Overrides,
};

/// Name and hash tag of the list.
const NAME: &[u8] = b"overrides";
/// What needs it.
const WHAT: &str = "overrides";
/// Integers of a record before its rates: limit and key in four of 32 bits each, its end, the burst, and the number of
/// integers behind it.
const HEAD: usize = 11;
/// Integers of a rate: its count, and its period in two of 32 bits, the lowest first.
const RATE: usize = 3;
/// The maximum number of overrides in one reply, as in `overrides.lua`.
const PAGE: usize = 1_000;

impl RedisClient {
    /// Sets or takes back the override of a key, in the server and here. Returns whether it changes something.
    ///
    /// # Errors
    ///
    /// Nothing has changed, except by a call without a reply in time.
    pub(in crate::store) async fn set_override(
        &self,
        overrides: &Overrides,
        key: KeyOfLimit,
        set: Option<KeyOverride>,
        now: WallTime,
    ) -> Result<bool, OverrideFault> {
        let subject = [key.limit.to_le_bytes(), key.key_hash.to_le_bytes()].concat();
        let record = set.as_ref().map(record).unwrap_or_default();
        let answer = self.script.ask_list(WHAT, NAME, NAME, |command| {
            command.word(b"override");
            command.word(&subject);
            command.word(&record);
            command.number(Overrides::MAX as u64);
        });
        match answer.await.map_err(|_| Unreachable)?.as_slice() {
            [_, _] => Err(OverrideFault::TooMany),
            [_, before, after] => {
                // If all were known before, all are known now; else the next read gets the rest.
                if self.known_overrides.get() == Some(*before) {
                    self.known_overrides.set(Some(*after));
                }
                match set {
                    // The server had room for it, so this process has room once it is up to date.
                    Some(set) => _ = overrides.set(key, set, now),
                    None => _ = overrides.remove(key, now),
                }
                Ok(before != after)
            }
            _ => Err(Unreachable.into()),
        }
    }

    /// Reads the overrides, if they have changed since this client read them last.
    ///
    /// # Errors
    ///
    /// They could not be read, so the known ones stay.
    pub(in crate::store) async fn read_overrides(
        &self,
        overrides: &Overrides,
        now: WallTime,
    ) -> Result<(), Unreachable> {
        let known = self.known_overrides.get();
        let (mut list, mut version, mut first) = (Vec::new(), None, 0);
        loop {
            let page = self.script.ask_list(WHAT, NAME, NAME, |command| {
                command.word(b"overrides");
                match known.and_then(|known| u64::try_from(known).ok()) {
                    Some(known) => command.number(known),
                    None => command.word(b"-1"),
                }
                command.number(first as u64);
            });
            let page = page.await.map_err(|_| Unreachable)?;
            let Some((&[_, present], records)) = page.split_first_chunk::<2>() else {
                return Err(Unreachable);
            };
            if known == Some(present) && first == 0 && records.is_empty() {
                return Ok(());
            }
            if *version.get_or_insert(present) != present {
                // They are changing at this moment: the next read gets all of them.
                return Ok(());
            }
            let read = read(records).ok_or(Unreachable)?;
            let count = read.len();
            list.extend(read);
            first += count;
            if count < PAGE || first >= Overrides::MAX {
                break;
            }
        }
        // Otherwise another task has read them meanwhile.
        if self.known_overrides.get() == known {
            self.known_overrides.set(version);
            overrides.replace(list, now);
        }
        Ok(())
    }
}

/// What follows the subject in a record.
fn record(set: &KeyOverride) -> Vec<u8> {
    let OverrideNumbers { rates, burst } = &set.numbers;
    // Below 2^53, as all times are.
    let mut bytes = (set.until.unwrap_or_default() as f64).to_le_bytes().to_vec();
    bytes.extend(burst.unwrap_or_default().to_le_bytes());
    bytes.extend(u32::try_from(RATE * rates.len()).unwrap_or(u32::MAX).to_le_bytes());
    for OverrideRate { count, period } in rates {
        bytes.extend(count.to_le_bytes());
        bytes.extend(period.to_le_bytes());
    }
    bytes
}

/// The overrides of a reply. `None`: it is malformed.
fn read(mut integers: &[i64]) -> Option<Vec<(KeyOfLimit, KeyOverride)>> {
    let mut list = Vec::new();
    while let Some((head, rest)) = integers.split_first_chunk::<HEAD>() {
        let [a, b, c, d, e, f, g, h, until, burst, count] = *head;
        let (rates, others) = rest.split_at_checked(usize::try_from(count).ok()?)?;
        let key = KeyOfLimit { limit: joined([a, b, c, d])?, key_hash: joined([e, f, g, h])? };
        // An earlier version of tollgate has stored counts alone: of such a record there are none.
        let rates: Option<Vec<OverrideRate>> = rates.as_chunks().0.iter().map(rate).collect();
        let burst = u32::try_from(burst).ok()?;
        let until = u64::try_from(until).ok()?;
        let numbers = OverrideNumbers { rates: rates?, burst: (burst > 0).then_some(burst) };
        list.push((key, KeyOverride { numbers, until: (until > 0).then_some(until), label: None }));
        integers = others;
    }
    integers.is_empty().then_some(list)
}

fn rate([count, low, high]: &[i64; RATE]) -> Option<OverrideRate> {
    let [count, low, high] =
        [u32::try_from(*count).ok()?, u32::try_from(*low).ok()?, u32::try_from(*high).ok()?];
    Some(OverrideRate { count, period: u64::from(high) << u32::BITS | u64::from(low) })
}

/// 128 bits from four times 32, the lowest first.
fn joined(parts: [i64; 4]) -> Option<u128> {
    let mut whole = 0;
    for part in parts.iter().rev() {
        whole = whole << u32::BITS | u128::from(u32::try_from(*part).ok()?);
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_are_cut_or_out_of_range_are_none() {
        let whole = [
            [1, 0, 0, 0, 2, 0, 0, 0, 5_000, 9, 6, 7, 60, 0].as_slice(),
            &[8, 1, 1, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 3, 6, 5, 0],
        ]
        .concat();
        let list = read(&whole).unwrap();
        let rates = [(7, 60), (8, (1 << 32) + 1)].map(|(count, period)| OverrideRate { count, period });
        let first = OverrideNumbers { rates: rates.into(), burst: Some(9) };
        assert_eq!(list[0].1, KeyOverride { numbers: first, until: Some(5_000), label: None });
        assert_eq!(list[1].0, KeyOfLimit { limit: 3, key_hash: 4 });
        assert_eq!((list[1].1.until, list[1].1.numbers.burst, list.len()), (None, None, 2));
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]).is_some(), end == 0 || end == 17, "{end}");
        }
        for index in 0..whole.len() {
            let mut other = whole.clone();
            other[index] = -1;
            assert!(read(&other).is_none(), "{index}");
        }
    }
}
