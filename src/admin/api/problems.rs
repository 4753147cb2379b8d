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
        let second = recent.get(&*upstream.name).copied().unwrap_or_default();
        let is_away = down.as_ref().is_some_and(|problem| problem.severity == Severity::Bad);
        problems.extend(down);
        problems.extend(errors(&upstream.name, &second));
        // That all servers are down is the same problem.
        problems.extend(unanswered(&upstream.name, &second).filter(|_| !is_away));
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
    let text = match down.len() {
        _ if all == 1 => format!("Backend `{name}` is down: {reasons}"),
        count if count == all => format!("Backend `{name}` is down, all {all} servers: {reasons}"),
        1 => format!("Backend `{name}`: 1 of {all} servers is down: {reasons}"),
        count => format!("Backend `{name}`: {count} of {all} servers are down: {reasons}"),
    };
    Some(Problem { severity, kind: "down", upstream: name, text })
}

/// 5xx responses.
fn errors<'p>(upstream: &'p str, second: &UpstreamSecond) -> Option<Problem<'p>> {
    let (severity, share) = share(second.counts.class(StatusClass::ServerError), second.counts.responses())?;
    let text = format!("Backend `{upstream}`: {share} of answers are 5xx");
    Some(Problem { severity, kind: "errors", upstream, text })
}

/// Attempts without a response.
fn unanswered<'p>(upstream: &'p str, second: &UpstreamSecond) -> Option<Problem<'p>> {
    let (severity, share) = share(second.failed, second.answers + second.failed)?;
    let text = format!("Backend `{upstream}`: {share} of attempts get no answer");
    Some(Problem { severity, kind: "unanswered", upstream, text })
}

/// The severity of a share, and its text; `None` if it is zero.
fn share(part: u64, whole: u64) -> Option<(Severity, String)> {
    let percent = (part * 100).checked_div(whole).filter(|_| part > 0)?;
    let severity = if percent >= OUTAGE_PERCENT { Severity::Bad } else { Severity::Warn };
    let words = if percent == 0 { "less than 1 %".to_owned() } else { format!("{percent} %") };
    Some((severity, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_words() {
        for (part, whole, expected) in [
            (0, 0, None),
            (0, 9, None),
            (1, 1_000, Some((Severity::Warn, "less than 1 %"))),
            (4, 100, Some((Severity::Warn, "4 %"))),
            (5, 100, Some((Severity::Bad, "5 %"))),
            (999, 1_000, Some((Severity::Bad, "99 %"))),
            (7, 7, Some((Severity::Bad, "100 %"))),
        ] {
            let expected = expected.map(|(severity, words)| (severity, words.to_owned()));
            assert_eq!(share(part, whole), expected, "{part} of {whole}");
        }
    }
}
