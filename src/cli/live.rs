//! `tollgate explain --live`: asks the running gateway what would happen to a request, and prints its response in the
//! form of `tollgate explain`.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use time::OffsetDateTime;

use super::admin::AdminClient;
use super::output::{fault, show};
use super::{ExplainArguments, ExplainForm, FAILED, MISTAKE};
use crate::admin_api::changes::ProblemDetails;
use crate::admin_api::explain::{
    ExplainQuestion, ExplainReport, ExplainedDescriptor, ExplainedLimit, ExplainedPolicy, ExplainedResponse,
    ExplainedRoute, HeaderValues,
};
use crate::explain::text::{charges, detail, line, write_descriptor, write_other_rules, write_others};

/// The timeout for connecting, request and response together; the gateway may have to call a shared store.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the admin listener that `file` names, about a valid request.
pub(super) fn ask(file: &Path, asked: &ExplainArguments, form: ExplainForm) -> ExitCode {
    let ExplainArguments { method, url, headers, ip, listener, tls } = asked;
    let question = ExplainQuestion {
        method: Some(method.clone()),
        url: url.clone(),
        headers: Some(fields(headers)),
        ip: *ip,
        listener: listener.clone(),
    };
    let question = serde_json::to_string(&question).unwrap_or_default();
    let admin = match AdminClient::named_in(file, tls) {
        Ok(admin) => admin,
        Err(message) => return fault(MISTAKE, message),
    };
    let authorization = match admin.authorization() {
        Ok(authorization) => authorization,
        Err(message) => return fault(MISTAKE, message),
    };
    let address = admin.address;
    let answer = admin.ask(Method::POST, "/api/v1/explain", authorization, question, TIMEOUT);
    let (status, body) = match answer {
        Ok(answer) => answer,
        Err(error) => return fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    };
    if status != StatusCode::OK {
        let ProblemDetails { detail, .. } = serde_json::from_slice(&body).unwrap_or_default();
        let detail = if detail.is_empty() { "it says no more" } else { &detail };
        return fault(FAILED, format_args!("the gateway at {address} answers {status}: {detail}"));
    }
    let text = match form {
        // With the fields of other versions, too.
        ExplainForm::Json => serde_json::from_slice(&body).map(|report: Value| format!("{report:#}")),
        ExplainForm::Text => serde_json::from_slice(&body).map(|report| LiveExplanation(report).to_string()),
    };
    match text {
        Ok(text) => show(&text),
        Err(error) => {
            fault(FAILED, format_args!("the gateway at {address} is one of another version: {error}"))
        }
    }
}

/// `NAME: VALUE` each, by name; of a name that is repeated all values.
fn fields(headers: &[String]) -> BTreeMap<String, HeaderValues> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers.iter().filter_map(|header| header.split_once(':')) {
        fields.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
    }
    fields.into_iter().map(|(name, values)| (name, HeaderValues::Several(values))).collect()
}

/// The response of `POST /api/v1/explain`.
struct LiveExplanation(ExplainReport);

impl Display for LiveExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        writeln!(f, "{}\n", report.request)?;
        line(f, "verdict", verdict(report))?;
        if let Some(descriptors) = &report.descriptors {
            return descriptors.iter().enumerate().try_for_each(|(index, descriptor)| {
                write_called(
                    f,
                    descriptor,
                    report.limits.iter().filter(|limit| limit.descriptor == Some(index)),
                )
            });
        }
        line(f, "client", format_args!("{}: {}", report.client, report.identified))?;
        if let Some(consumer) = &report.consumer {
            let tier = report.tier.as_ref();
            let tier = tier.map_or_else(|| "no tier".to_owned(), |tier| format!("tier `{tier}`"));
            line(f, "consumer", format_args!("`{consumer}`, {tier}"))?;
        }
        match &report.route {
            Some(route) => write_route(f, route)?,
            None => line(f, "route", "none matches: answered 404")?,
        }
        report.limits.iter().try_for_each(|limit| write_limit(f, limit))?;
        let others = report.others.iter().map(|(name, why)| (&**name, &**why));
        write_others(f, others, report.untold)
    }
}

/// The decision on the request, the limit that made it, and until when.
fn verdict(report: &ExplainReport) -> String {
    let refusing = report.limit.as_deref();
    let by = refusing.map(|limit| format!(" by `{limit}`")).unwrap_or_default();
    let limit = report.limits.iter().find(|limit| refusing == Some(limit.name.as_str()));
    let in_flight = limit.is_some_and(|limit| limit.policies.iter().any(bounds_requests_in_flight));
    let status = report.status.map(|status| format!(": answered {status}")).unwrap_or_default();
    let wait = match (report.wait_ms, report.until) {
        (Some(wait), Some(until)) => format!(", until {} ({} more)", clock(until), span(wait)),
        _ => String::new(),
    };
    let reason = report.reason.as_deref().unwrap_or_default();
    match report.verdict.as_deref().unwrap_or_default() {
        "admitted" => "admitted".to_owned(),
        "delayed" if wait.is_empty() => format!("delayed{by}, until a request in flight ends"),
        "refused" if wait.is_empty() && in_flight => {
            format!("refused{by}{status}, until a request in flight ends")
        }
        "refused" if wait.is_empty() && !by.is_empty() => format!("refused{by}{status}; no wait helps"),
        "no_route" => format!("no route{status}"),
        "not_verified" => format!("not verified: {reason}"),
        "answered" if reason.is_empty() => format!("answered {}", report.status.unwrap_or_default()),
        "answered" => format!("answered {}: {reason}", report.status.unwrap_or_default()),
        verdict => format!("{verdict}{by}{status}{wait}"),
    }
}

fn write_route(f: &mut Formatter<'_>, route: &ExplainedRoute) -> fmt::Result {
    line(f, "route", format_args!("`{}`", route.name))?;
    for (name, why) in &route.conditions {
        detail(f, name, why)?;
    }
    if let Some(location) = &route.redirect {
        line(f, "redirect", format_args!("without TLS 308 to `{location}`, and nothing below"))?;
    }
    if let (Some(upstream), target) = (&route.upstream, route.forwarded.as_deref().unwrap_or_default()) {
        line(f, "upstream", format_args!("{upstream} gets `{target}`"))?;
    }
    let Some(ExplainedResponse { status, location, content_type }) = &route.answer else { return Ok(()) };
    let what = match (location, content_type) {
        (Some(location), _) => format!("to `{location}`"),
        (None, Some(content_type)) => format!("with `{content_type}`"),
        (None, None) => "without a body".to_owned(),
    };
    line(f, "answer", format_args!("{status} {what}, once the limits admit it"))
}

/// A descriptor of a call, with its limits.
fn write_called<'a>(
    f: &mut Formatter<'_>,
    descriptor: &ExplainedDescriptor,
    mut limits: impl Iterator<Item = &'a ExplainedLimit>,
) -> fmt::Result {
    let ExplainedDescriptor { entries, standing, hits, rule, others, untold } = descriptor;
    write_descriptor(f, entries, (standing, *hits), rule.as_deref())?;
    limits.try_for_each(|limit| write_limit(f, limit))?;
    let others = others.iter().map(|(name, why)| (&**name, &**why));
    write_other_rules(f, others, *untold)
}

fn write_limit(f: &mut Formatter<'_>, limit: &ExplainedLimit) -> fmt::Result {
    let mode = if limit.mode == "shadow" { " (shadow: only counted, never refuses)" } else { "" };
    let (measured, about) = (limit.measured.as_deref(), limit.detail.as_deref().unwrap_or_default());
    let status = match limit.standing.as_str() {
        "charged" => {
            let charges = charges(limit.cost.into(), measured, limit.settled_by.as_deref());
            format!("{charges}: {}", limit.verdict.as_deref().unwrap_or_default())
        }
        "free" if measured.is_some() => charges(0, measured, None),
        "free" => "charges nothing: the route costs 0 there".to_owned(),
        "exempt" => format!("charges nothing: exempt by `{about}`"),
        "skipped" => format!("does not apply: {about}"),
        _ => format!("refuses: {about}"),
    };
    line(f, "limit", format_args!("`{}`{mode} {status}", limit.name))?;
    if let Some(id) = &limit.id {
        let values = limit.key.as_deref().unwrap_or_default();
        detail(f, "key", if values.is_empty() { "everybody".to_owned() } else { values.join(", ") })?;
        detail(f, "id", id)?;
    }
    if let Some(rule) = &limit.on_error {
        detail(f, "store", format_args!("unreachable: `on_error = \"{rule}\"` decides"))?;
    }
    if let Some(until) = limit.banned_until {
        detail(f, "banned", format_args!("until {}", clock(until)))?;
    }
    let is_away = limit.on_error.is_some();
    limit.policies.iter().try_for_each(|policy| detail(f, "allows", state(policy, is_away)))?;
    limit.ban.iter().try_for_each(|ban| detail(f, "ban", ban))
}

/// Whether it is that of a concurrency limit.
fn bounds_requests_in_flight(policy: &ExplainedPolicy) -> bool {
    policy.policy.starts_with("max ")
}

/// Whether it is that of a leaky bucket.
fn is_leaky_bucket(policy: &ExplainedPolicy) -> bool {
    !bounds_requests_in_flight(policy) && policy.policy.contains(", queue ")
}

/// `10/s, burst 50: 0 of 50 remain; the next in 84 ms, all again in 4.98 s`.
///
/// `is_away`: the shared store is unreachable.
fn state(policy: &ExplainedPolicy, is_away: bool) -> String {
    let ExplainedPolicy { policy: words, quota, used, remaining, next_ms, full_ms } = policy;
    let Some(remaining) = remaining else { return words.clone() };
    let next = match next_ms {
        None if bounds_requests_in_flight(policy) => "the next when a request in flight ends".to_owned(),
        None if is_away && *remaining == 0 => "none before the store answers again".to_owned(),
        None => "such a request never passes".to_owned(),
        Some(0) => "the next now".to_owned(),
        Some(wait) => format!("the next in {}", span(*wait)),
    };
    let full = match full_ms {
        None | Some(0) => String::new(),
        Some(wait) => format!(", all again in {}", span(*wait)),
    };
    let debt = used.and_then(|used| used.checked_sub(*quota));
    let debt = debt.filter(|debt| *debt > 0 && !is_leaky_bucket(policy));
    let debt = debt.map(|debt| format!(", {debt} in debt")).unwrap_or_default();
    format!("{words}: {remaining} of {quota} remain{debt}; {next}{full}")
}

/// A moment, in seconds since 1970: `2025-11-21 15:00:00 UTC`.
fn clock(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "seconds of this age; a moment is told in whole ones"
    )]
    let whole = seconds.ceil() as i64;
    let moment = OffsetDateTime::from_unix_timestamp(whole).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (moment.date(), moment.time());
    format!("{date} {:02}:{:02}:{:02} UTC", time.hour(), time.minute(), time.second())
}

/// A duration for reading: `84 ms`, `4.98 s`, `12 min`, `5 h`, `3 days`; rounded up beyond minutes.
fn span(milliseconds: u64) -> String {
    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{:.2} s", milliseconds.div_ceil(10) as f64 / 100.0),
        120_000..7_200_000 => format!("{} min", milliseconds.div_ceil(MINUTE)),
        7_200_000..172_800_000 => format!("{} h", milliseconds.div_ceil(HOUR)),
        _ => format!("{} days", milliseconds.div_ceil(DAY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_units_that_fit() {
        let shown = [0, 84, 4_981, 119_990, 120_001, 7_200_000, 172_800_001].map(span);
        assert_eq!(shown, ["0 ms", "84 ms", "4.99 s", "119.99 s", "3 min", "2 h", "3 days"]);
        assert_eq!(clock(1_763_737_200.207), "2025-11-21 15:00:01 UTC");
    }
    #[test]
    fn a_refusal_for_want_of_a_place_says_what_ends_it() {
        let of = |policy: &str, quota: u64, used: u64, next_ms: Option<u64>| ExplainedPolicy {
            policy: policy.to_owned(),
            quota,
            used: Some(used),
            remaining: Some(0),
            next_ms,
            full_ms: None,
        };
        let policy = of("max 5, queue 10", 5, 5, None);
        let told = "max 5, queue 10: 0 of 5 remain; the next when a request in flight ends";
        assert_eq!(state(&policy, false), told);
        let leased = of("100/h", 100, 100, None);
        assert_eq!(state(&leased, true), "100/h: 0 of 100 remain; none before the store answers again");
        let debt = of("100/h", 100, 160, Some(9));
        assert_eq!(state(&debt, false), "100/h: 0 of 100 remain, 60 in debt; the next in 9 ms");
        let limit = ExplainedLimit {
            name: "exports".to_owned(),
            policies: vec![policy],
            ..ExplainedLimit::default()
        };
        let report = ExplainReport {
            verdict: Some("refused".to_owned()),
            status: Some(429),
            limit: Some("exports".to_owned()),
            limits: vec![limit],
            ..ExplainReport::default()
        };
        assert_eq!(verdict(&report), "refused by `exports`: answered 429, until a request in flight ends");
        let waits = ExplainReport { verdict: Some("delayed".to_owned()), status: None, ..report };
        assert_eq!(verdict(&waits), "delayed by `exports`, until a request in flight ends");
    }
}
