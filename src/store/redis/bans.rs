//! The bans of a fleet, as one worker of each gateway reads and changes them: see `bans.lua`.
//!
//! A ban is transferred as its remaining time, so the clocks of gateways need not agree. All bans are stored under one
//! name, so in a cluster on one node.

use super::client::RedisClient;
use crate::limit::units::{Fingerprint, Micros, Timestamp};
use crate::store::Unreachable;
use crate::store::bans::{BanCause, BanFault, Banned, Bans};

/// Integers of a ban: limit and key in four of 32 bits each, and the remaining time.
const EACH: usize = 9;
/// The maximum number of bans in one reply, as in `bans.lua`.
const PAGE: usize = 1_000;

impl RedisClient {
    /// Bans a key by hand for `span`, or ends its bans, in the server and in `bans`.
    ///
    /// # Errors
    ///
    /// Nothing has changed, except by a call without a reply in time.
    pub(in crate::store) async fn ban(
        &self,
        bans: &Bans,
        banned: Banned,
        span: Option<Micros>,
        now: Timestamp,
    ) -> Result<(), BanFault> {
        if span.is_none() {
            self.script.announce(banned, Micros(0)).await.map_err(|_| Unreachable)?;
        }
        let answer = self.script.change_bans(BanCause::Hand, banned, span.unwrap_or_default());
        match answer.await.map_err(|_| Unreachable)?.as_slice() {
            [_, _] => Err(BanFault::TooMany),
            [_, before, after] => {
                // If all bans were known before, all are known now; else the next read gets the rest.
                let known = self.known_bans.of(BanCause::Hand);
                if known.get() == Some(*before) {
                    known.set(Some(*after));
                }
                match span {
                    Some(span) => {
                        // The server had room for it, so this process has room once it is up to date.
                        let _ = bans.insert(banned, now.plus(span), now);
                    }
                    None => bans.remove(banned),
                }
                Ok(())
            }
            _ => Err(Unreachable.into()),
        }
    }

    /// Takes an automatic ban off the list.
    ///
    /// # Errors
    ///
    /// It may be listed still.
    pub(in crate::store) async fn end_automatic_ban(&self, banned: Banned) -> Result<(), Unreachable> {
        self.script.announce(banned, Micros(0)).await.map_err(|_| Unreachable)
    }

    /// Reads the bans of this cause, if they have changed since this client read them last.
    ///
    /// # Errors
    ///
    /// The bans could not be read, so the known ones stay.
    pub(in crate::store) async fn read_bans(
        &self,
        bans: &Bans,
        cause: BanCause,
        now: Timestamp,
    ) -> Result<(), Unreachable> {
        let known = self.known_bans.of(cause).get();
        let (mut list, mut version, mut first) = (Vec::new(), None, 0);
        loop {
            let page = self.script.read_bans(cause, known, first).await.map_err(|_| Unreachable)?;
            let Some((&[_, present], records)) = page.split_first_chunk::<2>() else {
                return Err(Unreachable);
            };
            if known == Some(present) && first == 0 && records.is_empty() {
                return Ok(());
            }
            if *version.get_or_insert(present) != present {
                // The bans are changing at this moment: the next read gets all of them.
                return Ok(());
            }
            let (records, _) = records.as_chunks::<EACH>();
            list.extend(records.iter().filter_map(|record| read(record, now)));
            first += records.len();
            if records.len() < PAGE || first >= Bans::MAX {
                break;
            }
        }
        // Otherwise another task has read them meanwhile.
        if self.known_bans.of(cause).get() == known {
            self.known_bans.of(cause).set(version);
            bans.replace(cause, list, now);
        }
        Ok(())
    }
}

/// A ban and its end; `None` for a malformed record.
fn read(record: &[i64; EACH], now: Timestamp) -> Option<(Banned, Timestamp)> {
    let [limit @ .., _, _, _, _, left] = record;
    let [_, _, _, _, key_hash @ .., _] = record;
    let left = u64::try_from(*left).ok()?;
    Some((Banned { limit: joined(limit)?, key_hash: Fingerprint(joined(key_hash)?) }, now.plus(Micros(left))))
}

/// 128 bits from four times 32, the lowest first.
fn joined(parts: &[i64; 4]) -> Option<u128> {
    let mut whole = 0;
    for part in parts.iter().rev() {
        whole = whole << u32::BITS | u128::from(u32::try_from(*part).ok()?);
    }
    Some(whole)
}
