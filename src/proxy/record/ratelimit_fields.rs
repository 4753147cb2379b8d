//! The rate-limit headers: of the binding limit, or of every enforced policy.

use std::sync::Arc;

use super::policy_numbers::PolicyNumbers;
use super::request_context::RequestContext;
use crate::http1::syntax::is_named;
use crate::http2::head_sink::HeadSink;
use crate::limit::units::Timestamp;
use crate::plan::admission::{Admission, AdmissionDecision, BindingLimit, RequestCharges};
use crate::plan::{Policy, RatelimitHeaders, RatelimitPolicies};
use crate::store::Outcome;

/// The names of draft-ietf-httpapi-ratelimit-headers.
const POLICY: &[u8] = b"ratelimit-policy";
const LIMIT: &[u8] = b"ratelimit";
/// The names that services used before there was a standard.
const LEGACY: [&[u8]; 3] = [b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset"];
/// Those of OpenAI's API: of a limit by tokens, and of one by requests.
const OPENAI: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
];

impl RequestContext {
    /// Keeps the numbers of every enforced policy for the response, if the file wants them all; or those of the binding
    /// one, if its windows have different lengths.
    #[inline]
    pub(crate) fn list_policies(
        &mut self,
        charges: &RequestCharges<'_>,
        outcome: &Outcome,
        admission: &Admission<'_>,
    ) {
        let retry_after = match &admission.decision {
            AdmissionDecision::Refuse(refusal) => refusal.retry_after(),
            AdmissionDecision::Admit(_) => None,
        };
        if self.policies.is_some() {
            let admitted = matches!(admission.decision, AdmissionDecision::Admit(_));
            let binding = admission.tightest.as_ref().map(|tightest| tightest.policy);
            self.report_policies(&charges.reported(outcome, admitted), binding, retry_after);
        }
        let server = &self.plan.server;
        if server.ratelimit_headers == RatelimitHeaders::OpenAi {
            let binding = admission.tightest.as_ref().map(|tightest| tightest.policy);
            let admitted = matches!(admission.decision, AdmissionDecision::Admit(_));
            self.lines.ratelimit = openai(&charges.reported(outcome, admitted), binding, retry_after);
        } else if server.ratelimit_policies == RatelimitPolicies::All
            && server.ratelimit_headers.has_standard()
        {
            let binding = admission.tightest.as_ref().map(|tightest| tightest.policy);
            let admitted = matches!(admission.decision, AdmissionDecision::Admit(_));
            self.lines.ratelimit =
                listed(&charges.reported(outcome, admitted), binding, retry_after, self.started);
        } else if let Some(tightest) = &admission.tightest {
            self.list_binding(tightest, retry_after);
        }
    }

    /// Keeps the numbers of the binding policy alone, if its windows have different lengths. What was kept of limits that
    /// were decided before is dropped: the binding policy is tighter.
    #[inline]
    pub(crate) fn list_binding(&mut self, tightest: &BindingLimit<'_>, retry_after: Option<u64>) {
        if self.policies.as_ref().is_some_and(Vec::is_empty) {
            self.report_policies(std::slice::from_ref(tightest), Some(tightest.policy), retry_after);
        }
        let which = self.plan.server.ratelimit_headers;
        let policies = std::slice::from_ref(tightest);
        self.lines.ratelimit = if which == RatelimitHeaders::OpenAi {
            openai(policies, Some(tightest.policy), retry_after)
        } else if which.has_standard() && tightest.policy.algorithm.calendar().is_some() {
            listed(policies, Some(tightest.policy), retry_after, self.started)
        } else {
            None
        };
    }
}

impl RequestContext {
    /// Keeps the numbers of these policies for an answer in JSON.
    #[cold]
    fn report_policies(
        &mut self,
        reported: &[BindingLimit<'_>],
        binding: Option<&Policy>,
        retry_after: Option<u64>,
    ) {
        let is_binding = |policy: &Policy| binding.is_some_and(|binding| std::ptr::eq(binding, policy));
        let numbers = |one: &BindingLimit<'_>| PolicyNumbers {
            name: Arc::clone(&one.policy.name),
            quota: one.policy.algorithm.quota(),
            remaining: one.decision.remaining,
            reset: reset(one, retry_after.filter(|_| is_binding(one.policy))),
        };
        self.policies = Some(reported.iter().map(numbers).collect());
    }
}

/// The standard headers of these policies, as header lines; `None` if there is no policy. `retry_after` is the reset of
/// the binding one.
#[cold]
fn listed(
    policies: &[BindingLimit<'_>],
    binding: Option<&Policy>,
    retry_after: Option<u64>,
    now: Timestamp,
) -> Option<Box<str>> {
    if policies.is_empty() {
        return None;
    }
    let is_binding = |policy: &Policy| binding.is_some_and(|binding| std::ptr::eq(binding, policy));
    let (mut quotas, mut rests) = (String::from("ratelimit-policy: "), String::from("\r\nratelimit: "));
    for (index, reported) in policies.iter().enumerate() {
        let [(_, quota), (_, rest)] = reported.policy.standard.fields();
        let comma = if index > 0 { ", " } else { "" };
        let reset = reset(reported, retry_after.filter(|_| is_binding(reported.policy)));
        let mut buffers = (itoa::Buffer::new(), itoa::Buffer::new());
        quotas.extend([comma, quota]);
        if reported.policy.algorithm.calendar().is_some() {
            let window = reported.policy.algorithm.window_at(now).seconds_rounded_up();
            quotas.extend([";w=", itoa::Buffer::new().format(window)]);
        }
        rests.extend([comma, rest, buffers.0.format(reported.decision.remaining)]);
        if let Some(reset) = reset {
            rests.extend([";t=", buffers.1.format(reset)]);
        }
    }
    rests.push_str("\r\n");
    Some((quotas + &rests).into())
}

/// OpenAI's headers, as header lines: of the tightest policy of limits whose costs are settled, which count tokens, and of
/// the tightest of the others, which count requests. `None`: there is neither.
#[cold]
fn openai(
    policies: &[BindingLimit<'_>],
    binding: Option<&Policy>,
    retry_after: Option<u64>,
) -> Option<Box<str>> {
    let mut lines = String::new();
    for (names, counts_tokens) in OPENAI.iter().zip([true, false]) {
        let rates = policies.iter().filter(|one| one.policy.algorithm.as_concurrency().is_none());
        let of_kind = rates.filter(|one| one.limit.settles() == counts_tokens);
        let Some(tightest) =
            of_kind.reduce(|one, other| if other.is_tighter_than(one) { other } else { one })
        else {
            continue;
        };
        let is_binding = binding.is_some_and(|binding| std::ptr::eq(binding, tightest.policy));
        let reset = reset(tightest, retry_after.filter(|_| is_binding)).unwrap_or_default();
        let (mut quota, mut rest) = (itoa::Buffer::new(), itoa::Buffer::new());
        let quota = quota.format(tightest.policy.algorithm.quota());
        let rest = rest.format(tightest.decision.remaining);
        let values = [quota, rest, &span_of(reset)];
        names.iter().zip(values).for_each(|(name, value)| lines.extend([*name, ": ", value, "\r\n"]));
    }
    (!lines.is_empty()).then(|| lines.into())
}

/// A span of whole seconds as Go writes it: `1s`, `6m0s`, `1h0m0s`.
fn span_of(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (hours, minutes) => format!("{hours}h{minutes}m{}s", seconds % 60),
    }
}

/// The seconds until more is available; of a refusal, until the same request is admitted (`retry_after`). A place of a
/// concurrency limit becomes free when another request ends, which is not known, unless a ban ends first.
pub(crate) fn reset(reported: &BindingLimit<'_>, retry_after: Option<u64>) -> Option<u64> {
    let reset_after = reported.decision.reset_after;
    let untimed = reported.policy.algorithm.as_concurrency().is_some() && reset_after.0 == 0;
    (!untimed).then(|| retry_after.unwrap_or(reset_after.seconds_rounded_up()))
}

/// Whether the gateway writes this header under `which`.
#[inline]
pub(crate) fn is_ratelimit(which: RatelimitHeaders, name: &[u8]) -> bool {
    // Most names begin with another letter.
    match name.first() {
        Some(b'r' | b'R') => which.has_standard() && is_one_of(name, &[POLICY, LIMIT]),
        Some(b'x' | b'X') if which == RatelimitHeaders::OpenAi => {
            OPENAI.as_flattened().iter().any(|one| is_named(name, one.as_bytes()))
        }
        Some(b'x' | b'X') => which.has_legacy() && is_one_of(name, &LEGACY),
        _ => false,
    }
}

fn is_one_of(name: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|one| is_named(name, one))
}

/// Writes the rate-limit headers of the binding policy, or the standard ones as `listed`. `retry_after` is the reset
/// of a refusal.
pub(crate) fn put_ratelimit(
    sink: &mut impl HeadSink,
    which: RatelimitHeaders,
    tightest: Option<&BindingLimit<'_>>,
    listed: Option<&str>,
    retry_after: Option<u64>,
) {
    if let (Some(listed), true) = (listed, which.has_standard() || which == RatelimitHeaders::OpenAi) {
        sink.lines(listed.as_bytes());
    }
    let Some(tightest) = tightest else { return };
    let (mut buffer, mut other) = (itoa::Buffer::new(), itoa::Buffer::new());
    let remaining = buffer.format(tightest.decision.remaining).as_bytes();
    let reset = reset(tightest, retry_after).map(|reset| other.format(reset).as_bytes());
    let Policy { standard, legacy, .. } = tightest.policy;
    if which.has_standard() && listed.is_none() {
        match reset {
            Some(reset) => sink.pair(standard, &[remaining, b";t=", reset]),
            None => sink.pair(standard, &[remaining]),
        }
    }
    if which.has_legacy() {
        sink.pair(legacy, &[remaining]);
        if let Some(reset) = reset {
            sink.field(b"x-ratelimit-reset", reset);
        }
    }
}
