//! The usage of consumers: what an admission charges, and by how much a settlement differs from it.

use crate::limit::units::Timestamp;
use crate::plan::admission::{Applicability, LimitCheck};
use crate::plan::reservation::ReservedCharge;
use crate::plan::resolve::RoutedRequest;
use crate::plan::{Limit, TierIndex};
use crate::store::usage::{UsageConsumer, UsageEntry, UsageLedger, UsageSettings, UsageSpan, UsageTotals};
use crate::store::{OnError, Outcome};
use crate::telemetry::metrics::DecisionLabel;

/// The row that has the reservation of a request, for its correction.
#[derive(Debug)]
pub(super) struct ReservedUsage {
    series: u128,
    /// The window of the admission.
    span: UsageSpan,
    consumer: Option<Box<str>>,
}

impl ReservedUsage {
    /// The row of a request that began at `started` and was admitted with these charges. `None`: it has none.
    pub(super) fn of(
        (limit, tier): (&Limit, Option<TierIndex>),
        charges: &[ReservedCharge<'_>],
        routed: &RoutedRequest<'_, '_>,
        started: Timestamp,
    ) -> Option<Self> {
        let usage = limit.usage.as_ref()?;
        // A rate that an unreachable store has not counted leaves the limit without a charge.
        if charges.len() < limit.policies_of(tier).len() {
            return None;
        }
        let first = charges.first()?;
        let counted_at = if first.shared { first.counted_at } else { started };
        let consumer = routed.caller.consumer.map(|named| named.consumer.name().into());
        Some(Self { series: usage.id(), span: usage.span_at(counted_at), consumer })
    }

    /// Adds a correction.
    pub(super) fn record(&self, ledger: &UsageLedger, difference: i64) {
        let consumer = self.consumer.as_deref().map_or(UsageConsumer::Anonymous, UsageConsumer::Named);
        let change = UsageTotals::units(difference);
        ledger.record(UsageEntry { series: self.series, span: self.span, consumer, change });
    }
}

/// Adds an admitted request, which began at `started`, to the usage of its consumer, if the limit has charged it.
pub(crate) fn record_admission(
    (ledger, usage): (&UsageLedger, &UsageSettings),
    (check, label): (&LimitCheck<'_>, DecisionLabel),
    (outcome, started): (&Outcome, Timestamp),
    consumer: Option<&str>,
) {
    let Applicability::Charged(cost, first) = check.applicability else { return };
    let is_charged = match label {
        DecisionLabel::Allowed | DecisionLabel::Delayed => true,
        DecisionLabel::StoreError => check.limit.on_error == OnError::Local && !check.denies(outcome),
        _ => false,
    };
    if is_charged {
        // Without the store, the time is about a state whose window is an estimate.
        let counted_at = outcome.counted_at.as_ref().filter(|_| !outcome.decided_locally.contains(first));
        let counted_at = counted_at.and_then(|times| times.get(first).copied());
        let span = usage.span_at(counted_at.unwrap_or(started));
        let consumer = consumer.map_or(UsageConsumer::Anonymous, UsageConsumer::Named);
        let change = UsageTotals::admitted(cost.units());
        ledger.record(UsageEntry { series: usage.id(), span, consumer, change });
    }
}
