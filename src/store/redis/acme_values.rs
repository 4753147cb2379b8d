//! What a fleet shares of its certificates, as the control thread of each gateway reads and writes it: see `acme.lua`.

use std::time::Duration;

use super::client::RedisClient;
use super::resp::Integers;
use crate::clock::micros;
use crate::store::Unreachable;

/// The hash tag of all its keys.
const TAG: &[u8] = b"acme";
/// What needs them.
const WHAT: &str = "certificates of the fleet";
/// The longest value.
const MAX_VALUE: usize = 1 << 17;

impl RedisClient {
    /// The value with this name, if there is one.
    ///
    /// # Errors
    ///
    /// The server cannot be asked, or its reply is malformed.
    pub(in crate::store) async fn acme_value(&self, name: &str) -> Result<Option<Vec<u8>>, Unreachable> {
        let reply = self.ask_acme(name, &[b"acme-get"]).await?;
        value(&reply).ok_or(Unreachable)
    }

    /// Sets the value with this name, for `kept` or for ever; an empty one removes it.
    ///
    /// # Errors
    ///
    /// The server cannot be asked, or the value is too long.
    pub(in crate::store) async fn set_acme_value(
        &self,
        name: &str,
        value: &[u8],
        kept: Option<Duration>,
    ) -> Result<(), Unreachable> {
        let kept = kept.map_or(0, |kept| micros(kept).0.div_ceil(1_000)).to_string();
        match value.len() <= MAX_VALUE {
            true => self.ask_acme(name, &[b"acme-put", value, kept.as_bytes()]).await.map(drop),
            false => Err(Unreachable),
        }
    }

    /// Takes the lock with this name for `kept`, or keeps it for so long. Returns whether `holder` has it.
    ///
    /// # Errors
    ///
    /// The server cannot be asked.
    pub(in crate::store) async fn lock_acme(
        &self,
        name: &str,
        holder: &str,
        kept: Duration,
    ) -> Result<bool, Unreachable> {
        let kept = (micros(kept).0 / 1_000).max(1).to_string();
        let reply = self.ask_acme(name, &[b"acme-lock", holder.as_bytes(), kept.as_bytes()]).await?;
        Ok(reply.get(1) == Some(&1))
    }

    /// Gives the lock back.
    ///
    /// # Errors
    ///
    /// The server cannot be asked: the lock ends by itself.
    pub(in crate::store) async fn unlock_acme(&self, name: &str, holder: &str) -> Result<(), Unreachable> {
        self.ask_acme(name, &[b"acme-unlock", holder.as_bytes()]).await.map(drop)
    }

    async fn ask_acme(&self, name: &str, words: &[&[u8]]) -> Result<Integers, Unreachable> {
        let name = format!("acme-{name}");
        let reply = self.script.ask_list(WHAT, name.as_bytes(), TAG, |command| {
            words.iter().for_each(|word| command.word(word));
        });
        reply.await.map_err(|_| Unreachable)
    }
}

/// The value of a reply. `None`: it is malformed.
fn value(reply: &[i64]) -> Option<Option<Vec<u8>>> {
    let (&[_, length], words) = reply.split_first_chunk::<2>()?;
    let Ok(length) = usize::try_from(length) else {
        return (length == -1 && words.is_empty()).then_some(None);
    };
    if words.len() != length.div_ceil(4) {
        return None;
    }
    let words: Option<Vec<u32>> = words.iter().map(|word| u32::try_from(*word).ok()).collect();
    let mut bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.truncate(length);
    Some(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_are_cut_or_out_of_range_are_none() {
        assert_eq!(value(&[7, -1]), Some(None));
        assert_eq!(value(&[7, 0]), Some(Some(Vec::new())));
        let whole = [7, 5, 0x6463_6261, 0x65];
        assert_eq!(value(&whole), Some(Some(b"abcde".to_vec())));
        for end in 0..whole.len() {
            assert_eq!(value(&whole[..end]), None, "{end}");
        }
        for faulty in [&[7, -2][..], &[7, -1, 0], &[7, 9, 1, 2], &[7, 4, -1], &[7, 4, 1 << 32]] {
            assert_eq!(value(faulty), None, "{faulty:?}");
        }
    }
}
