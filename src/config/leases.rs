//! `sync` and `lease` of a limit: units of a shared counter in advance.

use std::time::Duration;

use super::diagnostics::Diagnostics;
use super::report::SourceSpan;
use super::value::ConfigValue;
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::lease::Lease;
use crate::plan::Limit;
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
/// The lease of a limit. `place` is that of `sync`. `None`: it is exact, or they have faults.
pub(super) fn lease(
    sync: Sync,
    lease: Option<&ConfigValue<'_>>,
    place: SourceSpan,
) -> Option<(Lease, SourceSpan)> {
    match (sync, lease) {
        (Sync::Lease, written) => {
            let length = written.map_or(Some(LEASE), ConfigValue::duration)?;
            let lease = Lease::new(micros(length));
            if let (None, Some(written)) = (lease, written) {
                written.out_of_range(&format!("{length:?}"), "100ms", "60s");
            }
            Some((lease?, place))
        }
        (Sync::Exact, Some(written)) => {
            let message = "`lease` has no effect without `sync = \"lease\"`";
            written.fault(message, "add `sync = \"lease\"`, or leave it out");
            None
        }
        (Sync::Exact, None) => None,
    }
}

/// Checks a limit of which units are taken in advance; what it means in a fleet is checked later.
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
