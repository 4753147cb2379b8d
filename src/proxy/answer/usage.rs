//! `respond = { usage = […] }`: what the caller has used of limits, as JSON. Nothing is charged.

use serde::Serialize;

use crate::limit::units::Micros;
use crate::limit::{Verdict, Wait};
use crate::plan::LimitIndex;
use crate::plan::admission::{LimitCheck, RequestCharges};
use crate::plan::resolve::RoutedRequest;
use crate::proxy::record::request_context::RequestContext;
use crate::store::{KeyOperation, OperationFault};

/// What the caller has used of limits.
#[derive(Debug, Default, Serialize)]
struct CallerUsage<'p> {
    /// In the order of the limits; those that do not apply to the caller are left out.
    policies: Vec<PolicyUse<'p>>,
}

/// One rate of a limit.
#[derive(Debug, Serialize)]
struct PolicyUse<'p> {
    name: &'p str,
    /// The whole allowance.
    quota: u64,
    used: u64,
    remaining: u64,
    /// Seconds until more is left; `None`: not known.
    reset: Option<u64>,
    /// The length of the window, in seconds; `None`: there is none.
    window: Option<u64>,
}

/// The body of the answer.
///
/// # Errors
///
/// The shared store is unavailable.
pub(crate) async fn report(
    ctx: &RequestContext,
    limits: &[LimitIndex],
    request: &RoutedRequest<'_, '_>,
) -> Result<Vec<u8>, OperationFault> {
    let plan = &*ctx.plan;
    let known = plan.counters.known(ctx.started);
    let charges = RequestCharges::of_usage(plan, limits, request, known, &plan.secret);
    let mut report = CallerUsage::default();
    for check in charges.checks.iter().filter(|check| check.cost().is_some()) {
        report.policies.extend(usage_of(ctx, &charges, check).await?);
    }
    // Numbers and names of the file are always JSON.
    Ok(serde_json::to_vec(&report).unwrap_or_default())
}

async fn usage_of<'p>(
    ctx: &RequestContext,
    charges: &RequestCharges<'p>,
    check: &LimitCheck<'p>,
) -> Result<Vec<PolicyUse<'p>>, OperationFault> {
    let (counters, now) = (&ctx.plan.counters, ctx.started);
    let of_check = charges.of_check(check);
    let decisions = counters.execute(&KeyOperation::Look, of_check, now).await?.decisions;
    let used = counters.execute(&KeyOperation::Used, of_check, now).await?.units;
    let states = decisions.iter().zip(&used).zip(check.policies());
    let usage = states.map(|((decision, used), policy)| {
        let is_counted_in_flight = policy.algorithm.as_concurrency().is_some();
        let reset = match decision.verdict {
            Verdict::Deny(Wait::Never | Wait::Unknown) => None,
            _ if is_counted_in_flight => None,
            Verdict::Deny(Wait::After(span)) => Some(span),
            Verdict::Allow | Verdict::Delay(_) => Some(decision.reset_after),
        };
        let window = (!is_counted_in_flight).then(|| policy.algorithm.window_at(now));
        PolicyUse {
            name: &policy.name,
            quota: policy.algorithm.quota(),
            used: policy.algorithm.reported_use(decision, *used),
            remaining: decision.remaining,
            reset: reset.map(Micros::seconds_rounded_up),
            window: window.map(Micros::seconds_rounded_up),
        }
    });
    Ok(usage.collect())
}
