//! The present problems of the backends, as sentences: part of the status, and the headline of the dashboard.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::clock;
use crate::plan::Upstream;
use crate::shared::Shared;
use crate::telemetry::history::UpstreamSecond;
use crate::telemetry::metrics::StatusClass;

/// The number of seconds that count as "now".
const RECENT: usize = 10;
/// From this many failures in a hundred on, an upstream has an outage: the same threshold as in `deploy/alerts.yml`.
const OUTAGE_PERCENT: u64 = 5;
/// The maximum number of problems, the worst first.
const MAX_PROBLEMS: usize = 20;
/// The maximum number of servers named in one problem.
const MAX_SERVERS: usize = 3;

/// The severity of a problem; the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Some requests are affected.
    Warn,
    /// An outage.
    Bad,
}

/// A problem of an upstream.
#[derive(Debug)]
struct Problem<'p> {
    severity: Severity,
    kind: &'static str,
    upstream: &'p str,
    text: String,
}

/// The problems of all upstreams, the worst first.
pub(super) fn get(shared: &Shared) -> Value {
    let plan = shared.plan.load();
    let recent = shared.samples.lock().upstreams_recent(RECENT);
    let mut problems: Vec<Problem<'_>> = Vec::new();
    for upstream in &plan.upstreams {
        let down = down(shared, upstream);
        let of_upstream = recent.get(&*upstream.name).copied().unwrap_or_default();
        let is_away = down.as_ref().is_some_and(|problem| problem.severity == Severity::Bad);
        problems.extend(down);
        problems.extend(errors(&upstream.name, &of_upstream));
        // That all servers are down is the same problem.
        problems.extend(unanswered(&upstream.name, &of_upstream).filter(|_| !is_away));
    }
    problems.sort_by_key(|problem| Reverse(problem.severity));
    problems.iter().take(MAX_PROBLEMS).map(Problem::json).collect()
}

impl Problem<'_> {
    fn json(&self) -> Value {
        let severity = match self.severity {
            Severity::Bad => "bad",
            Severity::Warn => "warn",
        };
        json!({ "severity": severity, "kind": self.kind, "upstream": self.upstream, "text": self.text })
    }
}

/// Servers that are down, with the reason.
fn down<'p>(shared: &Shared, upstream: &'p Upstream) -> Option<Problem<'p>> {
    let (now, down_after, peers) =
        (clock::now(), upstream.down_after(), shared.server_registry.states(upstream));
    let (all, name) = (upstream.endpoints().len(), &*upstream.name);
    let down: Vec<_> = upstream
        .endpoints()
        .iter()
        .enumerate()
        .filter_map(|(index, server)| Some((server, index, peers.down(index, now, down_after)?)))
        .collect();
    if down.is_empty() {
        return None;
    }
    let reasons = down.iter().take(MAX_SERVERS).map(|(server, index, why)| match all {
        1 => peers.reason(*index, *why),
        _ => format!("{} ({})", server.authority, peers.reason(*index, *why)),
    });
    let mut reasons = reasons.collect::<Vec<_>>().join(", ");
    if down.len() > MAX_SERVERS {
        reasons += ", …";
    }
    let severity = if down.len() == all { Severity::Bad } else { Severity::Warn };
    let is_open = peers.breaker_state().is_some_and(|(is_open, _)| is_open);
    let text = match down.len() {
        _ if is_open => format!("Backend `{name}` is down, its breaker is open: {reasons}"),
        _ if all == 1 => format!("Backend `{name}` is down: {reasons}"),
        count if count == all => format!("Backend `{name}` is down, all {all} servers: {reasons}"),
        1 => format!("Backend `{name}`: 1 of {all} servers is down: {reasons}"),
        count => format!("Backend `{name}`: {count} of {all} servers are down: {reasons}"),
    };
    Some(Problem { severity, kind: "down", upstream: name, text })
}

/// 5xx responses.
fn errors<'p>(upstream: &'p str, recent: &UpstreamSecond) -> Option<Problem<'p>> {
    let (part, whole) = (recent.counts.class(StatusClass::ServerError), recent.counts.responses());
    share(upstream, "errors", (part, whole), "requests", "end in 5xx")
}

/// Attempts without a response.
fn unanswered<'p>(upstream: &'p str, recent: &UpstreamSecond) -> Option<Problem<'p>> {
    let (part, whole) = (recent.failed, recent.answers + recent.failed);
    share(upstream, "unanswered", (part, whole), "attempts", "get no answer")
}

/// The problem that this part of the whole, in the last [`RECENT`] seconds, meets this end; `None` if it is zero.
fn share<'p>(
    upstream: &'p str,
    kind: &'static str,
    (part, whole): (u64, u64),
    noun: &str,
    end: &str,
) -> Option<Problem<'p>> {
    let percent = (part * 100).checked_div(whole).filter(|_| part > 0)?;
    let (severity, text) = if percent >= OUTAGE_PERCENT {
        let seconds = RECENT as u64;
        let amount = match part / seconds {
            0 => format!("{part} of {whole} {noun} in {seconds} s"),
            a_second => format!("{a_second} of {} {noun} a second", whole.div_ceil(seconds)),
        };
        (Severity::Bad, format!("`{upstream}` fails: {amount} {end}"))
    } else {
        let percent = if percent == 0 { "less than 1 %".to_owned() } else { format!("{percent} %") };
        (Severity::Warn, format!("Backend `{upstream}`: {percent} of {noun} {end}"))
    };
    Some(Problem { severity, kind, upstream, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_words() {
        for (part, whole, expected) in [
            (0, 0, None),
            (0, 9, None),
            (1, 1_000, Some((Severity::Warn, "Backend `shop`: less than 1 % of requests end in 5xx"))),
            (4, 100, Some((Severity::Warn, "Backend `shop`: 4 % of requests end in 5xx"))),
            (5, 100, Some((Severity::Bad, "`shop` fails: 5 of 100 requests in 10 s end in 5xx"))),
            (10, 19, Some((Severity::Bad, "`shop` fails: 1 of 2 requests a second end in 5xx"))),
            (960, 960, Some((Severity::Bad, "`shop` fails: 96 of 96 requests a second end in 5xx"))),
        ] {
            let problem = share("shop", "errors", (part, whole), "requests", "end in 5xx");
            let told = problem.as_ref().map(|problem| (problem.severity, problem.text.as_str()));
            assert_eq!(told, expected, "{part} of {whole}");
        }
    }
}
