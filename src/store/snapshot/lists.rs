//! The bans and overrides that a process knows.

use serde::{Deserialize, Serialize};

use crate::limit::units::Timestamp;
use crate::limit::wall_clock::WallTime;
use crate::store::Store;
use crate::store::bans::SavedBan;
use crate::store::overrides::{KeyOfLimit, KeyOverride};

/// The bans and overrides that a process knows. A process with a shared store hands these alone to one that takes over,
/// which decides by them until it has read the store.
#[derive(Debug, Serialize, Deserialize)]
pub struct KnownLists {
    pub(super) bans: Vec<SavedBan>,
    pub(super) overrides: Vec<(KeyOfLimit, KeyOverride)>,
}

impl KnownLists {
    /// All that hold at this moment.
    pub fn of(store: &Store, at: Timestamp, wall: WallTime) -> Self {
        Self { bans: store.bans.saved(at), overrides: store.overrides.all(wall) }
    }

    /// Puts them into the store of another process, with the same clocks. Returns the number of bans.
    pub fn restore(self, store: &Store, at: Timestamp, wall: WallTime) -> u64 {
        store.overrides.restore(self.overrides, wall);
        store.bans.restore(self.bans, at)
    }
}
