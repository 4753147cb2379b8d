//! Operations on the counters of one owner, beside the decisions on requests. Each store executes all of them.

use super::charge_records::IdempotentCharge;
use super::{Decisions, Unreachable};
use crate::limit::units::Cost;

/// An operation on the counters of one owner, in each policy of its charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// What the policies would decide on a request of the charge's cost, each separately. Nothing is charged.
    Look,
    /// The units in use, rounded up: more than the quota in debt.
    Used,
    /// The counters begin afresh.
    Reset,
    /// Units are given back, but no more than are in use: see [`Algorithm::grant`](crate::limit::Algorithm::grant).
    Grant(Cost),
    /// Units are charged now, if necessary into debt: see [`Algorithm::charge`](crate::limit::Algorithm::charge). With an
    /// idempotency key they are charged once, however often the operation is sent.
    Charge(Cost, Option<IdempotentCharge>),
}

/// What an operation has found or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationResult {
    /// Of [`KeyOperation::Look`]: one a policy.
    pub decisions: Decisions,
    /// Of [`KeyOperation::Used`]: the units in use, one number a policy. Of [`KeyOperation::Grant`]: the units given back,
    /// where they were the most.
    pub units: Vec<u64>,
    /// Whether a counter has changed: not if it was not in use, or if the charge was made before.
    pub changed: bool,
}

/// Why an operation was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationFault {
    /// The shared store is unavailable. Nothing has changed, unless it did not reply in time.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The idempotency key was used for another charge.
    #[error(
        "this idempotency key was used for another limit, key or number of units within the last 24 hours"
    )]
    OtherCharge,
    /// There are [`ChargeRecords::MAX`](super::ChargeRecords::MAX) records.
    #[error(
        "{} idempotency keys of the last 24 hours are remembered, and there can be no more: send the charge again later",
        super::ChargeRecords::MAX
    )]
    TooMany,
}

impl From<Decisions> for OperationResult {
    fn from(decisions: Decisions) -> Self {
        Self { decisions, ..Self::default() }
    }
}

impl OperationResult {
    /// Units were given back.
    pub(super) fn granted(units: u64) -> Self {
        Self { units: vec![units], changed: units > 0, ..Self::default() }
    }

    /// The units in use.
    pub(super) fn used(units: Vec<u64>) -> Self {
        Self { units, ..Self::default() }
    }

    /// Counters have changed, or not.
    pub(super) fn changed(changed: bool) -> Self {
        Self { changed, ..Self::default() }
    }
}
