//! The present problems of the backends and the fleet, as sentences: part of the status, and the headline of the dashboard.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{certificates, fleet, top_keys};
use crate::admin_api::status::ProblemReport;
use crate::clock;
use crate::plan::{Limit, Upstream};
use crate::shared::Shared;
use crate::telemetry::history::UpstreamSecond;
use crate::telemetry::metrics::{LimitVerdict, ServerCounts, StatusClass};

/// The number of seconds that count as "now".
const RECENT: usize = 10;
/// From this many failures in a hundred on, an upstream has an outage: the same threshold as in `deploy/alerts.yml`.
const OUTAGE_PERCENT: u64 = 5;
/// The maximum number of problems, the worst first.
const MAX_PROBLEMS: usize = 20;
/// The maximum number of servers named in one problem.
const MAX_SERVERS: usize = 3;
/// The servers that have this many in a hundred of an upstream's failures are named, unless these are all of its servers.
const CULPRIT_PERCENT: u64 = 90;
/// From this many 4xx in a hundred responses on, and from so many responses on, an upstream rejects its requests.
const REJECTING: (u64, u64) = (50, 10);

/// A key with this many in a hundred of the requests under a limit that is overloaded is named.
const NAMED_PERCENT: f64 = 20.0;

/// The severity of a problem; the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemSeverity {
    /// Some requests are affected.
    Warn,
    /// An outage.
    Bad,
}

/// A problem of an upstream, or of the fleet.
#[derive(Debug)]
struct Problem<'p> {
    severity: ProblemSeverity,
    kind: &'static str,
    upstream: &'p str,
    text: String,
}

/// The counts of one server in the last [`RECENT`] seconds, with its `host:port`.
type RecentServer = (Arc<str>, ServerCounts);

/// The problems of all upstreams and of the fleet, the worst first.
pub(super) async fn get(shared: &Shared) -> Vec<ProblemReport> {
    let plan = shared.plan.load_full();
    let (recent, mut servers) = {
        let samples = shared.samples.lock();
        let mut servers: HashMap<Arc<str>, Vec<RecentServer>> = HashMap::new();
        for ((upstream, server), second) in samples.servers_recent(RECENT) {
            let of_upstream = servers.entry(Arc::clone(upstream)).or_default();
            of_upstream.push((Arc::clone(server), second.counts));
        }
        (samples.upstreams_recent(RECENT), servers)
    };
    let mut problems: Vec<Problem<'_>> = Vec::new();
    for upstream in &plan.upstreams {
        let name = &*upstream.name;
        let down = down(shared, upstream);
        let recent = recent.get(name).copied().unwrap_or_default();
        let servers = servers.remove(name).unwrap_or_default();
        let is_away = down.as_ref().is_some_and(|problem| problem.severity == ProblemSeverity::Bad);
        problems.extend(down);
        problems.extend(drained(shared, upstream));
        problems.extend(errors(upstream, &recent, &servers));
        // That all servers are down is the same problem.
        problems.extend(unanswered(upstream, &recent, &servers).filter(|_| !is_away));
        problems.extend(over_budget(name, &recent));
        problems.extend(rejections(name, &recent));
    }
    for limit in plan.limits.iter().filter(|limit| limit.protects_backend() || limit.share_by.is_some()) {
        problems.extend(overloaded(shared, limit).await);
    }
    problems.extend(fleet::problems(shared).into_iter().map(|(kind, text)| Problem {
        severity: ProblemSeverity::Warn,
        kind,
        upstream: "",
        text,
    }));
    problems.extend(certificates::problems(&plan, shared.clock.wall_now()).into_iter().map(
        |(is_outage, text)| Problem {
            severity: if is_outage { ProblemSeverity::Bad } else { ProblemSeverity::Warn },
            kind: "certificate",
            upstream: "",
            text,
        },
    ));
    problems.sort_by_key(|problem| Reverse(problem.severity));
    problems.iter().take(MAX_PROBLEMS).map(Problem::report).collect()
}

impl Problem<'_> {
    fn report(&self) -> ProblemReport {
        let severity = match self.severity {
            ProblemSeverity::Bad => "bad",
            ProblemSeverity::Warn => "warn",
        };
        ProblemReport {
            severity: severity.to_owned(),
            kind: self.kind.to_owned(),
            upstream: self.upstream.to_owned(),
            text: self.text.clone(),
        }
    }
}

/// A limit that shares out what a backend bears, and refuses.
async fn overloaded<'p>(shared: &Shared, limit: &Limit) -> Option<Problem<'p>> {
    let recent = shared.samples.lock().limit_recent(&limit.name, RECENT);
    let refused = recent.of(LimitVerdict::Refused);
    let taken = recent.of(LimitVerdict::Admitted) + recent.of(LimitVerdict::Delayed);
    if refused * 100 < taken + refused || refused == 0 {
        return None;
    }
    let largest = top_keys::shares(shared, limit, 1).await.pop();
    let largest = largest.and_then(|share| Some((share.key?.join(", "), (100.0 * share.demand).round())));
    let text = overload_words(&limit.name, (taken, taken + refused), largest);
    Some(Problem { severity: ProblemSeverity::Warn, kind: "overloaded", upstream: "", text })
}

/// `` `shop` is overloaded: takes 120 of 400/s; `acme` holds 60 % of the demand``.
fn overload_words(limit: &str, (taken, all): (u64, u64), largest: Option<(String, f64)>) -> String {
    let seconds = RECENT as u64;
    let mut text = match all / seconds {
        ..10 => format!("`{limit}` is overloaded: takes {taken} of {all} requests in {seconds} s"),
        a_second => format!("`{limit}` is overloaded: takes {} of {a_second}/s", taken / seconds),
    };
    if let Some((key, percent)) = largest.filter(|(_, percent)| *percent >= NAMED_PERCENT) {
        // Writing to a string cannot fail.
        let _ = write!(text, "; `{key}` holds {percent} % of the demand");
    }
    text
}

/// Servers that are down, with the reason.
fn down<'p>(shared: &Shared, upstream: &'p Upstream) -> Option<Problem<'p>> {
    let (now, down_after, server_states) =
        (clock::now(), upstream.down_after(), shared.server_registry.states(upstream));
    let (all, name) = (upstream.endpoints().len(), &*upstream.name);
    let down: Vec<_> = upstream
        .endpoints()
        .iter()
        .enumerate()
        .filter_map(|(index, server)| Some((server, index, server_states.down(index, now, down_after)?)))
        .collect();
    if down.is_empty() {
        return None;
    }
    let reasons = down.iter().take(MAX_SERVERS).map(|(server, index, why)| match all {
        1 => server_states.reason(*index, *why),
        _ => format!("{} ({})", server.authority, server_states.reason(*index, *why)),
    });
    let mut reasons = reasons.collect::<Vec<_>>().join(", ");
    if down.len() > MAX_SERVERS {
        reasons += ", …";
    }
    let severity = if down.len() == all { ProblemSeverity::Bad } else { ProblemSeverity::Warn };
    let is_open = server_states.breaker_state().is_some_and(|(is_open, _)| is_open);
    let text = match down.len() {
        _ if is_open => format!("Backend `{name}` is down, its breaker is open: {reasons}"),
        _ if all == 1 => format!("Backend `{name}` is down: {reasons}"),
        count if count == all => format!("Backend `{name}` is down, all {all} servers: {reasons}"),
        1 => format!("Backend `{name}`: 1 of {all} servers is down: {reasons}"),
        count => format!("Backend `{name}`: {count} of {all} servers are down: {reasons}"),
    };
    Some(Problem { severity, kind: "down", upstream: name, text })
}

/// Servers that an operator has drained.
fn drained<'p>(shared: &Shared, upstream: &'p Upstream) -> Option<Problem<'p>> {
    let (states, name) = (shared.server_registry.states(upstream), &*upstream.name);
    let all = upstream.endpoints().len();
    let is_drained = |index| states.get(index).is_some_and(|server| server.is_drained());
    let servers = upstream.endpoints().iter().enumerate().filter(|(index, _)| is_drained(*index));
    let servers: Vec<&str> = servers.map(|(_, server)| &*server.authority).collect();
    let rest = if servers.len() > MAX_SERVERS { ", …" } else { "" };
    let names = servers.iter().take(MAX_SERVERS).copied().collect::<Vec<_>>().join(", ");
    let (severity, text) = match servers.len() {
        0 => return None,
        count if count == all => (
            ProblemSeverity::Bad,
            format!("Backend `{name}` gets no requests, all its servers are drained: {names}{rest}"),
        ),
        1 => (ProblemSeverity::Warn, format!("Backend `{name}`: 1 of {all} servers is drained: {names}")),
        count => (
            ProblemSeverity::Warn,
            format!("Backend `{name}`: {count} of {all} servers are drained: {names}{rest}"),
        ),
    };
    Some(Problem { severity, kind: "drained", upstream: name, text })
}

/// Attempts that were not retried since the retry budget is used up.
fn over_budget<'p>(upstream: &'p str, recent: &UpstreamSecond) -> Option<Problem<'p>> {
    let count = recent.over_budget;
    let attempts = if count == 1 { "attempt was" } else { "attempts were" };
    let text = format!(
        "Backend `{upstream}`: the retry `budget` is used up, {count} failed {attempts} not retried in {RECENT} s"
    );
    (count > 0).then_some(Problem { severity: ProblemSeverity::Warn, kind: "budget", upstream, text })
}

/// Requests of which the upstream rejects most.
fn rejections<'p>(upstream: &'p str, recent: &UpstreamSecond) -> Option<Problem<'p>> {
    let (part, whole) = (recent.counts.class(StatusClass::ClientError), recent.counts.responses());
    let text = || format!("Backend `{upstream}`: {} end in 4xx", amount(part, whole, "requests"));
    let (percent, least) = REJECTING;
    let rejects = whole >= least && part * 100 >= whole * percent;
    rejects.then(|| Problem { severity: ProblemSeverity::Warn, kind: "rejections", upstream, text: text() })
}

/// 5xx responses.
fn errors<'p>(
    upstream: &'p Upstream,
    recent: &UpstreamSecond,
    servers: &[RecentServer],
) -> Option<Problem<'p>> {
    let counts = |counts: &ServerCounts| (counts.class(StatusClass::ServerError), counts.responses());
    let culprits = culprits(upstream, servers, counts, recent.counts.class(StatusClass::ServerError));
    share(&upstream.name, "errors", counts(&recent.counts), &culprits)
}

/// Attempts without a response.
fn unanswered<'p>(
    upstream: &'p Upstream,
    recent: &UpstreamSecond,
    servers: &[RecentServer],
) -> Option<Problem<'p>> {
    let counts = |counts: &ServerCounts| (counts.retries, counts.retries + counts.responses());
    let culprits = culprits(upstream, servers, counts, recent.failed);
    share(&upstream.name, "unanswered", (recent.failed, recent.answers + recent.failed), &culprits)
}

/// A server that fails, with its failures and all its requests.
type Culprit = (Arc<str>, (u64, u64));

/// The servers that fail, if these are not all servers of the upstream, and have nearly all of its failures.
fn culprits(
    upstream: &Upstream,
    servers: &[RecentServer],
    counts: impl Fn(&ServerCounts) -> (u64, u64),
    failures: u64,
) -> Vec<Culprit> {
    let mut failing: Vec<Culprit> =
        servers.iter().map(|(server, of_server)| (Arc::clone(server), counts(of_server))).collect();
    failing.sort_by_key(|(_, (failed, _))| Reverse(*failed));
    let mut sum = 0;
    let enough = failing.iter().position(|(_, (failed, _))| {
        sum += failed;
        sum * 100 >= failures * CULPRIT_PERCENT
    });
    let count = enough.map_or(usize::MAX, |last| last + 1);
    failing.truncate(count);
    let is_few = count <= MAX_SERVERS && count < upstream.endpoints().len();
    if is_few { failing } else { Vec::new() }
}

/// `1 of 9 requests in 10 s`, `96 of 96 requests a second`.
fn amount(part: u64, whole: u64, noun: &str) -> String {
    let seconds = RECENT as u64;
    match part / seconds {
        ..10 => format!("{part} of {whole} {noun} in {seconds} s"),
        a_second => format!("{a_second} of {} {noun} a second", whole.div_ceil(seconds)),
    }
}

/// The problem that this part of the whole, in the last [`RECENT`] seconds, fails; `None` if it is zero.
fn share<'p>(
    upstream: &'p str,
    kind: &'static str,
    (part, whole): (u64, u64),
    culprits: &[Culprit],
) -> Option<Problem<'p>> {
    let percent = (part * 100).checked_div(whole).filter(|_| part > 0)?;
    let (noun, end, short) = match kind {
        "errors" => ("requests", "end in 5xx", "5xx"),
        _ => ("attempts", "get no answer", "no answer"),
    };
    let fails = |(server, (failed, all)): &Culprit| format!("{server} fails {}", amount(*failed, *all, noun));
    let servers = culprits.iter().map(fails).collect::<Vec<_>>().join(", ");
    let is_outage = percent >= OUTAGE_PERCENT;
    let severity = if is_outage { ProblemSeverity::Bad } else { ProblemSeverity::Warn };
    let text = match (is_outage, servers.is_empty()) {
        (true, true) => format!("`{upstream}` fails: {} {end}", amount(part, whole, noun)),
        (true, false) => format!("`{upstream}`: {servers} ({short})"),
        (false, is_all) => {
            let percent = if percent == 0 { "less than 1 %".to_owned() } else { format!("{percent} %") };
            let servers = if is_all { String::new() } else { format!(": {servers}") };
            format!("Backend `{upstream}`: {percent} of {noun} {end}{servers}")
        }
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
            (1, 1_000, Some((ProblemSeverity::Warn, "Backend `shop`: less than 1 % of requests end in 5xx"))),
            (4, 100, Some((ProblemSeverity::Warn, "Backend `shop`: 4 % of requests end in 5xx"))),
            (5, 100, Some((ProblemSeverity::Bad, "`shop` fails: 5 of 100 requests in 10 s end in 5xx"))),
            (10, 19, Some((ProblemSeverity::Bad, "`shop` fails: 10 of 19 requests in 10 s end in 5xx"))),
            (960, 960, Some((ProblemSeverity::Bad, "`shop` fails: 96 of 96 requests a second end in 5xx"))),
        ] {
            let problem = share("shop", "errors", (part, whole), &[]);
            let told = problem.as_ref().map(|problem| (problem.severity, problem.text.as_str()));
            assert_eq!(told, expected, "{part} of {whole}");
        }
    }

    #[test]
    fn overload_in_words() {
        let acme = |percent| Some(("acme".to_owned(), percent));
        for (counts, largest, expected) in [
            (
                (1_200, 4_000),
                acme(60.0),
                "`shop` is overloaded: takes 120 of 400/s; `acme` holds 60 % of the demand",
            ),
            ((1_200, 4_000), acme(19.0), "`shop` is overloaded: takes 120 of 400/s"),
            ((3, 9), None, "`shop` is overloaded: takes 3 of 9 requests in 10 s"),
        ] {
            assert_eq!(overload_words("shop", counts, largest), expected);
        }
    }

    #[test]
    fn the_server_that_fails_is_named() {
        let culprit = |server: &str, failed, all| (server.into(), (failed, all));
        let one = [culprit("10.0.0.1:80", 11, 11)];
        let two = [culprit("10.0.0.1:80", 500, 990), culprit("10.0.0.2:80", 9, 300)];
        for (kind, counts, culprits, expected) in [
            ("errors", (11, 22), &one[..], "`shop`: 10.0.0.1:80 fails 11 of 11 requests in 10 s (5xx)"),
            ("unanswered", (11, 22), &one, "`shop`: 10.0.0.1:80 fails 11 of 11 attempts in 10 s (no answer)"),
            (
                "errors",
                (509, 1_500),
                &two,
                "`shop`: 10.0.0.1:80 fails 50 of 99 requests a second, 10.0.0.2:80 fails 9 of 300 requests in 10 s (5xx)",
            ),
            (
                "errors",
                (11, 1_000),
                &one,
                "Backend `shop`: 1 % of requests end in 5xx: 10.0.0.1:80 fails 11 of 11 requests in 10 s",
            ),
        ] {
            let problem = share("shop", kind, counts, culprits);
            assert_eq!(problem.map(|problem| problem.text).as_deref(), Some(expected));
        }
    }
}
