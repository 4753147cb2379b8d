//! Limits of which gateways take units in advance: whether there is a store to share them, and whether it is worth it.

use std::time::Duration;

use super::connection_limits::counts_connections;
use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::report::quoted;
use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::limit::units::Rate;
use crate::plan::{Limit, LimitIndex};

/// A tenth of a lease in which the limit admits fewer units is not worth units in advance.
const UNITS_IN_TENTH: u64 = 4;

/// A window of fewer leases may withhold much of its count.
const LEASES_IN_WINDOW: u64 = 10;

/// Warns of leases that have no effect, or nearly none.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    // Which store it is may be what is unknown.
    let is_store_unknown = diagnostics.unknown() > 0;
    for (index, named) in draft.limits.iter().enumerate() {
        let (Some(limit), Some(span)) = (&named.limit, named.places.sync) else { continue };
        let Some(lease) = limit.lease() else { continue };
        if counts_connections(draft, LimitIndex(index)) {
            continue;
        }
        if draft.store.settings.shared.is_none() && is_store_unknown {
            continue;
        }
        if draft.store.settings.shared.is_none() {
            let message =
                format!("`sync` of limit {} has no effect: counters are in memory", quoted(&named.name));
            diagnostics.warn(
                span,
                message,
                "share them by `backend = \"redis\"` of `[store]`, or leave `sync` out",
            );
            continue;
        }
        if let Some(window) = short_window(limit, lease) {
            let message = format!(
                "a window of {window:?} is shorter than ten leases: near its end units are withheld where they are not spent"
            );
            let help =
                "a shorter `lease`, or `algorithm = \"token-bucket\"`, whose units come back by refill";
            diagnostics.warn(span, message, help);
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

/// The shortest window of the limit, if it is shorter than ten leases.
fn short_window(limit: &Limit, lease: &Lease) -> Option<Duration> {
    let windows = limit.all_policies().filter_map(|policy| match policy.algorithm {
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) => policy.algorithm.rate().map(Rate::period),
        _ => None,
    });
    let shortest = windows.min()?;
    (shortest.0 < LEASES_IN_WINDOW * lease.duration().0).then(|| Duration::from_micros(shortest.0))
}
