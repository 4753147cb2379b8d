//! `sync` and `lease` of a limit: units of a shared counter in advance.

use std::time::Duration;

use super::connection_limits::counts_connections;
use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::limits::LIMIT;
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::plan::{Limit, LimitIndex};
use crate::store::OnError;

/// How gateways share the counters of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// The store decides each request.
    Exact,
    /// Each gateway takes units in advance.
    Lease,
}

pub(super) const SYNC: [(&str, Sync); 2] = [("exact", Sync::Exact), ("lease", Sync::Lease)];

/// How long units are taken in advance, if nothing is said.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// A tenth of a lease in which the limit admits fewer units is not worth units in advance.
const UNITS_IN_TENTH: u64 = 2;

/// Reads both keys. `None`: the limit is exact, or they have faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<(Lease, SourceSpan)> {
    let place = table.given(LIMIT.sync.name);
    let (sync, lease) = (table.value(&LIMIT.sync), table.take(&LIMIT.lease));
    match (sync, lease) {
        (Sync::Lease, lease) => {
            let length = lease.as_ref().map_or(Some(LEASE), ConfigValue::duration)?;
            let lease = Lease::new(micros(length)).or_else(|| {
                lease?.out_of_range(&format!("{length:?}"), "100ms", "60s");
                None
            })?;
            Some((lease, place.unwrap_or(table.span())))
        }
        (Sync::Exact, Some(lease)) => {
            let message = "`lease` has no effect without `sync = \"lease\"`";
            lease.fault(message, "add `sync = \"lease\"`, or leave it out");
            None
        }
        (Sync::Exact, None) => None,
    }
}

/// Checks a limit of which units are taken in advance; what it means in a fleet is checked by [`check_all`].
pub(super) fn check(limit: &Limit, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    let algorithm = limit.all_policies().map(|policy| &policy.algorithm).find(|one| !one.can_be_leased());
    if let Some(algorithm) = algorithm {
        let why = match algorithm {
            Algorithm::Gcra(_) => "a `burst` of one spaces all requests of the fleet evenly",
            Algorithm::LeakyBucket(_) => "its requests leave one after the other",
            Algorithm::SlidingLog(_) => "it keeps the moment of each request",
            _ => "its places are taken and given back",
        };
        let message = format!("`{}` cannot be taken in advance: {why}", algorithm.name());
        let help = "leave `sync` out, or use `token-bucket`, `gcra` with a larger `burst`, `fixed-window` or \
                    `sliding-window`";
        diagnostics.fault(span, message, help);
        return;
    }
    if limit.on_error == OnError::Allow {
        let message = "`on_error = \"allow\"` breaks the promise of `sync = \"lease\"`: without the store all requests pass";
        diagnostics.warn(
            span,
            message,
            "write `on_error = \"local\"`: it spends the units in advance, then refuses",
        );
    }
}

/// Checks limits of which units are taken in advance: whether there is a store to share them, and whether it is worth it.
pub(super) fn check_all(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    for (index, named) in draft.limits.iter().enumerate() {
        let (Some(limit), Some(span)) = (&named.limit, named.places.sync) else { continue };
        let Some(lease) = limit.lease() else { continue };
        if counts_connections(draft, LimitIndex(index)) {
            continue;
        }
        if draft.store.shared.is_none() {
            let message =
                format!("`sync` of limit {} has no effect: counters are in memory", quoted(&named.name));
            diagnostics.warn(
                span,
                message,
                "share them by `backend = \"redis\"` of `[store]`, or leave `sync` out",
            );
            continue;
        }
        let slowest = limit
            .policies
            .iter()
            .filter_map(|policy| policy.algorithm.rate())
            .min_by_key(|rate| u128::from(rate.count()) * 1_000_000_000 / u128::from(rate.period().0));
        let Some(rate) = slowest else { continue };
        let tenth = u64::from(lease.max_units(rate)) / 10;
        if tenth < UNITS_IN_TENTH {
            let message = format!(
                "limit {} admits fewer than {UNITS_IN_TENTH} units in a tenth of its lease: nearly each request asks the store",
                quoted(&named.name)
            );
            let help = "`sync = \"exact\"` is the better choice, or a longer `lease`, if keys come in bursts";
            diagnostics.warn(span, message, help);
        }
    }
}
