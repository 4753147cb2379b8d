//! The two lists of bans in the server: calls that read and change them. See `bans.lua`.

use std::cell::Cell;

use super::errors::CallError;
use super::resp::Integers;
use super::script_client::ScriptClient;
use crate::limit::units::Micros;
use crate::store::bans::{BanCause, Banned, Bans};

/// The names of the two lists.
const BY_HAND: &[u8] = b"bans";
const BEGUN: &[u8] = b"begun-bans";
/// What needs them.
const WHAT: &str = "bans";
/// The hash tag of the bans in a cluster.
const TAG: &[u8] = b"bans";

/// The version of each list of bans that was read last.
#[derive(Debug, Default)]
pub(super) struct KnownBans {
    by_hand: Cell<Option<i64>>,
    begun: Cell<Option<i64>>,
}

impl KnownBans {
    /// The version of the list of bans with this cause.
    pub(super) fn of(&self, cause: BanCause) -> &Cell<Option<i64>> {
        match cause {
            BanCause::Hand => &self.by_hand,
            BanCause::Refusals => &self.begun,
        }
    }
}

impl ScriptClient {
    /// Puts a ban that a limit began, or its end, on the list for all gateways.
    pub(super) async fn announce(&self, banned: Banned, span: Micros) -> Result<(), CallError> {
        self.change_bans(BanCause::Refusals, banned, span).await.map(drop)
    }

    /// Bans a key, or ends its ban with a span of zero.
    pub(super) async fn change_bans(
        &self,
        cause: BanCause,
        banned: Banned,
        span: Micros,
    ) -> Result<Integers, CallError> {
        let record_key = [banned.limit.to_le_bytes(), banned.key_hash.0.to_le_bytes()].concat();
        let (name, operation) = match cause {
            BanCause::Hand => (BY_HAND, &b"ban"[..]),
            BanCause::Refusals => (BEGUN, &b"begin"[..]),
        };
        self.ask_list(WHAT, name, TAG, |command| {
            command.word(operation);
            command.word(&record_key);
            command.number(span.0);
            command.number(Bans::MAX as u64);
        })
        .await
    }

    /// Reads a page of a list, from record `first` on, unless its version is `known`.
    pub(super) async fn read_bans(
        &self,
        cause: BanCause,
        known: Option<i64>,
        first: usize,
    ) -> Result<Integers, CallError> {
        let known = known.and_then(|known| u64::try_from(known).ok());
        let (name, operation) = match cause {
            BanCause::Hand => (BY_HAND, &b"bans"[..]),
            BanCause::Refusals => (BEGUN, &b"begun"[..]),
        };
        self.ask_list(WHAT, name, TAG, |command| {
            command.word(operation);
            match known {
                Some(known) => command.number(known),
                None => command.word(b"-1"),
            }
            command.number(first as u64);
        })
        .await
    }
}
