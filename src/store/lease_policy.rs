//! Limits of which each gateway takes units in advance: see [`crate::limit::lease`].

use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::store::{Charge, ParamsId, SharedKeyInfo};

/// What the identity of a policy differs by from that of its units in advance.
const LEASED: u128 = 0x6c65_6173_6564_2075_6e69_7473_2061_6c6c;

/// The units of a policy's counters that this process has in advance: a policy of its own in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    algorithm: Algorithm,
    params: ParamsId,
    identity: u128,
}

impl LeasePolicy {
    /// That of a policy with this identity.
    pub fn new(lease: Lease, identity: u128) -> Self {
        let (algorithm, identity) = (Algorithm::Lease(lease), identity ^ LEASED);
        Self { algorithm, params: ParamsId::of_policy(&algorithm, identity), identity }
    }

    /// Its algorithm, and the identity of its counters.
    pub fn registration(&self) -> (&Algorithm, u128) {
        (&self.algorithm, self.identity)
    }

    /// Its parameters.
    pub fn lease(&self) -> Option<&Lease> {
        self.algorithm.as_lease()
    }
}

impl<'a> Charge<'a> {
    /// The same charge of the units that this process has in advance. `None`: the limit is exact.
    #[inline]
    pub fn of_lease(&self) -> Option<Self> {
        let LeasePolicy { algorithm, params, identity } = self.shared_key.lease.as_ref()?;
        let key = self.key_hash().of_policy(*identity);
        Some(Self { algorithm, params: *params, key, shared_key: SharedKeyInfo::NONE, ..*self })
    }

    /// Whether gateways take units of it in advance.
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.shared_key.lease.is_some()
    }
}
