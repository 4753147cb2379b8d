//! A shared counter of which this process takes units in advance, apart from any request.

use std::sync::Arc;

use super::slot::HashSlot;
use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::limit::units::{Cost, Fingerprint, Timestamp};
use crate::store::{Charge, Group, ParamsId, SharedKeyInfo};

/// A shared counter of which this process takes units in advance.
#[derive(Clone, Debug)]
pub(super) struct LeasedKey {
    pub(super) slot: HashSlot,
    /// Its whole name.
    pub(super) name: Arc<[u8]>,
    pub(super) algorithm: Algorithm,
    pub(super) lease: Lease,
    /// What the store said last of it, in memory.
    copy: (ParamsId, Fingerprint),
    /// The units in memory.
    units: (Algorithm, ParamsId, Fingerprint),
}

/// Units that go back.
#[derive(Debug)]
pub(super) struct ReturnedUnits {
    pub(super) key: LeasedKey,
    pub(super) units: u32,
    /// When they were taken, by the store's clock; the first of them.
    pub(super) granted_at: Timestamp,
}

impl LeasedKey {
    /// That of a charge, in this slot and with this name. `None`: the limit is exact.
    pub(super) fn of(charge: &Charge<'_>, slot: HashSlot, name: Arc<[u8]>) -> Option<Self> {
        let units = charge.of_lease()?;
        Some(Self {
            slot,
            name,
            algorithm: *charge.algorithm,
            lease: *units.algorithm.as_lease()?,
            copy: (charge.params, charge.key),
            units: (*units.algorithm, units.params, units.key),
        })
    }

    /// The key of its units in memory.
    pub(super) const fn units_key(&self) -> Fingerprint {
        let (_, _, key) = self.units;
        key
    }

    /// The charge of its units in memory.
    pub(super) fn units(&self) -> Charge<'_> {
        let (algorithm, params, key) = &self.units;
        bare_charge(algorithm, *params, *key)
    }

    /// The charge of the copy in memory.
    pub(super) fn copy(&self) -> Charge<'_> {
        let (params, key) = self.copy;
        bare_charge(&self.algorithm, params, key)
    }
}

fn bare_charge(algorithm: &Algorithm, params: ParamsId, key: Fingerprint) -> Charge<'_> {
    let shared_key = SharedKeyInfo::NONE;
    Charge { algorithm, params, key, cost: Cost::ONE, group: Group::Enforced, shared_key }
}
