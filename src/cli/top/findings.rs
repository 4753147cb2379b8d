//! The state of the gateway in sentences: what refuses, what fails, and what needs attention.

use super::display::{count, key, latency, plain, plural, rate, share};
use super::samples::{SampleNumbers, outcomes};
use super::snapshot::{GatewaySnapshot, Rejection};
use super::table::Tone;

/// From this share of failing requests on, the sentence is as severe as a refusal: as for backends in the status.
const OUTAGE_SHARE: f64 = 0.05;

/// A sentence with its severity.
pub(super) type Finding = (Tone, String);

/// The most severe sentence first, as the dashboard's page orders them.
pub(super) fn findings(snapshot: &GatewaySnapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for problem in &snapshot.status.problems {
        let tone = if problem.severity == "bad" { Tone::Refused } else { Tone::Shadow };
        found.push((tone, plain(&problem.text)));
    }
    found.push(refusing(snapshot));
    found.extend(suspect(snapshot));
    found.extend(concerns(snapshot));
    found
}

/// The limit that refuses most, or that no request is refused.
fn refusing(snapshot: &GatewaySnapshot) -> Finding {
    let all = &snapshot.samples.all;
    let requests: f64 = outcomes(all).map(SampleNumbers::lately).iter().sum();
    if let Some(rejection) = snapshot.worst_rejection() {
        return rejected(&rejection, requests);
    }
    match snapshot.worst_limit() {
        Some(limit) if snapshot.refused_lately(&limit.name) > 0.0 => {
            let refused = rate(snapshot.refused_lately(&limit.name));
            let policies = limit.policies.join(", ");
            let text = format!(
                "{} refuses {refused}/s of {}/s requests: over {policies}",
                limit.name,
                rate(requests)
            );
            (Tone::Refused, plain(&text))
        }
        Some(limit) => {
            let refused = count(limit.minute.refused);
            let text =
                format!("No request is refused now. In the last minute {} refused {refused}", limit.name);
            (Tone::Shadow, plain(&text))
        }
        None if requests <= 0.0 => (Tone::Plain, "No requests come".to_owned()),
        None => {
            let slowest = all.p99_ms.fresh().map(latency);
            let latency = slowest.map(|time| format!(", p99 {time}")).unwrap_or_default();
            let failed = all.failed.lately();
            let fail = if failed > 0.0 { format!(", {}/s fail", rate(failed)) } else { String::new() };
            let tone = match failed / requests {
                ..=0.0 => Tone::Plain,
                ..OUTAGE_SHARE => Tone::Shadow,
                _ => Tone::Refused,
            };
            (tone, format!("No request is refused. {}/s requests{fail}{latency}", rate(requests)))
        }
    }
}

/// What is refused, and the client of these requests. A few among many are no attack.
fn rejected(rejection: &Rejection, requests: f64) -> Finding {
    let Rejection { words, now, minute, client } = rejection;
    if *now > 0.0 {
        let tone = if *now * 20.0 >= requests { Tone::Refused } else { Tone::Shadow };
        return (tone, plain(&format!("{}/s refused: {words}{client}", rate(*now))));
    }
    let refused = format!("In the last minute {} refused: {words}{client}", count(*minute));
    (Tone::Shadow, plain(&format!("No request is refused now. {refused}")))
}

/// The key with most refusals of the limit that refuses most.
fn suspect(snapshot: &GatewaySnapshot) -> Option<Finding> {
    if snapshot.worst_rejection().is_some() {
        return None;
    }
    let worst = snapshot.worst_limit()?;
    let keys = snapshot.keys.as_ref().filter(|keys| keys.limit == worst.name)?;
    let first = keys.keys.iter().max_by_key(|one| one.refused).filter(|one| one.refused > 0)?;
    let part = share(first.refused, keys.refused);
    let text = format!(
        "{} has {part} of the refusals of {}",
        key(first.key.as_deref(), &first.id),
        plain(&worst.name)
    );
    Some((Tone::Plain, text))
}

fn concerns(snapshot: &GatewaySnapshot) -> Vec<Finding> {
    let (status, samples) = (&snapshot.status, &snapshot.samples);
    let mut found = Vec::new();
    if status.life == "draining" {
        found.push((Tone::Refused, "Draining: the gateway exits when its requests have ended".to_owned()));
    }
    if let Some(reload) = status.last_reload.as_ref().filter(|reload| reload.result == "failure") {
        let detail = reload.detail.as_deref().unwrap_or_default();
        found.push((
            Tone::Refused,
            plain(&format!("The last reload failed; the configuration did not change. {detail}")),
        ));
    }
    let headline = snapshot.worst_rejection();
    for other in snapshot.rejections() {
        if other.now > 0.0 && headline.as_ref().is_none_or(|first| first.words != other.words) {
            let text = format!("{}/s refused: {}{}", rate(other.now), other.words, other.client);
            found.push((Tone::Shadow, text));
        }
    }
    let failed = samples.all.failed.lately();
    if failed > 0.0 {
        found.push((
            Tone::Refused,
            format!("{}/s requests fail: a 5xx, an error of the gateway, or aborted", rate(failed)),
        ));
    }
    if !status.store.up {
        found.push((Tone::Refused, "The shared store is unreachable; on_error decides".to_owned()));
    }
    let evicted = samples.store.evictions.lately();
    if evicted > 0.0 {
        found.push((Tone::Shadow, format!("Counters are full: {}/s evicted. Raise max_keys", rate(evicted))));
    }
    for limit in snapshot.limits.iter().filter(|limit| limit.is_shadow() && limit.minute.refused > 0) {
        let (refused, keys) = (count(limit.minute.refused), plural(limit.minute.refused_keys, "key"));
        let text =
            format!("Shadow {} would have refused {refused} from {keys} in the last minute", limit.name);
        found.push((Tone::Shadow, plain(&text)));
    }
    for limit in snapshot.limits.iter().filter(|limit| !limit.is_shadow() && limit.minute.in_shadow > 0) {
        let (refused, more) = (count(limit.minute.enforced()), count(limit.minute.in_shadow));
        let text = format!(
            "{} ({}) refused {refused}, and would have refused {more} more, in the last minute",
            limit.name,
            limit.mode_words()
        );
        found.push((Tone::Shadow, plain(&text)));
    }
    if status.bans > 0 {
        found.push((Tone::Shadow, format!("Banned: {}", plural(status.bans, "key"))));
    }
    if status.shadow_bans > 0 {
        let keys = plural(status.shadow_bans, "key");
        found.push((Tone::Shadow, format!("In shadow, {keys} would be banned")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_api::keys::{KeyList, KeyReport};
    use crate::admin_api::limits::{LimitReport, VerdictReport};
    use crate::admin_api::refusals::{RefusalList, RefusalReport};
    use crate::admin_api::samples::{LimitSamples, RequestSamples, SampleList};
    use crate::admin_api::status::{ProblemReport, ReloadReport, StatusReport};

    fn limit(name: &str, mode: &str, policy: &str) -> LimitReport {
        let (name, mode, policies) = (name.to_owned(), mode.to_owned(), vec![policy.to_owned()]);
        LimitReport { name, mode, policies, ..LimitReport::default() }
    }

    fn refused(refused: u64, in_shadow: u64, refused_keys: u64) -> VerdictReport {
        VerdictReport { refused, in_shadow, refused_keys, ..VerdictReport::default() }
    }

    /// A limit that refused `all` requests, some of them of one key.
    fn keys(limit: &str, all: u64, refused: u64) -> KeyList {
        let (id, key) = ("id:1".to_owned(), Some(vec!["192.0.2.7".to_owned()]));
        let keys = vec![KeyReport { id, key, refused, ..KeyReport::default() }];
        KeyList { limit: limit.to_owned(), refused: all, keys, ..KeyList::default() }
    }

    fn texts(snapshot: &GatewaySnapshot) -> Vec<String> {
        findings(snapshot).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn refusals_of_no_limit_are_told_by_kind_and_client() {
        let mut snapshot = GatewaySnapshot::default();
        snapshot.status.store.up = true;
        snapshot.status.time = 1_000.0;
        let all = RequestSamples {
            admitted: vec![1],
            refused: vec![22],
            unauthenticated: vec![4],
            too_large: vec![2],
            ..RequestSamples::default()
        };
        let wrong = LimitSamples { refused: vec![16], ..LimitSamples::default() };
        let limits = [("wrong".to_owned(), wrong)].into();
        snapshot.samples.add(SampleList { seq: 10, count: 1, all, limits, ..SampleList::default() });
        let refusal = |seq: u64, status: u16, client: &str| RefusalReport {
            seq,
            time: 999.0,
            status,
            client: Some(client.to_owned()),
            ..RefusalReport::default()
        };
        let refusals =
            vec![refusal(1, 401, "192.0.2.7"), refusal(2, 413, "192.0.2.8"), refusal(3, 413, "192.0.2.9")];
        snapshot.refusals.add(RefusalList { started: 1.0, seq: 3, skipped: 0, refusals });
        let of_kinds = [
            "4/s refused: no valid credential (401), all from 192.0.2.7",
            "2/s refused: body too large (413)",
        ];
        assert_eq!(texts(&snapshot), of_kinds);
        snapshot.limits = vec![LimitReport {
            failures: Some("wrong API keys".to_owned()),
            minute: refused(16, 0, 0),
            ..limit("wrong", "enforce", "3/day")
        }];
        for (refused, words) in [(16, "all"), (12, "75 %")] {
            snapshot.keys = Some(keys("wrong", 16, refused));
            let attack = format!("16/s refused: wrong API keys, {words} from 192.0.2.7");
            assert_eq!(texts(&snapshot), [attack.as_str(), of_kinds[0], of_kinds[1]]);
        }
    }

    #[test]
    fn problems_come_before_refusals_and_concerns_after_them() {
        let mut snapshot = GatewaySnapshot::default();
        snapshot.status.store.up = true;
        assert_eq!(texts(&snapshot), ["No requests come"]);
        snapshot.status = StatusReport {
            life: "draining".to_owned(),
            bans: 1,
            last_reload: Some(ReloadReport {
                time: 0.0,
                result: "failure".to_owned(),
                detail: Some("a.toml:1:1: \u{1b}".to_owned()),
            }),
            problems: vec![ProblemReport {
                severity: "bad".to_owned(),
                text: "Backend `a` is down".to_owned(),
                ..ProblemReport::default()
            }],
            ..StatusReport::default()
        };
        snapshot.limits = vec![
            LimitReport { minute: refused(7, 0, 0), ..limit("hot", "enforce", "1/s") },
            LimitReport { minute: refused(2, 0, 1), ..limit("trial", "shadow", "1/s") },
            LimitReport { trial: Some(0.05), minute: refused(9, 6, 0), ..limit("new", "enforce", "1/s") },
        ];
        snapshot.keys = Some(keys("hot", 8, 4));
        assert_eq!(
            texts(&snapshot),
            [
                "Backend `a` is down",
                "No request is refused now. In the last minute hot refused 7",
                "192.0.2.7 has 50 % of the refusals of hot",
                "Draining: the gateway exits when its requests have ended",
                "The last reload failed; the configuration did not change. a.toml:1:1: \\u{1b}",
                "The shared store is unreachable; on_error decides",
                "Shadow trial would have refused 2 from 1 key in the last minute",
                "new (trial 5 %) refused 3, and would have refused 6 more, in the last minute",
                "Banned: 1 key",
            ]
        );
    }

    #[test]
    fn the_latency_is_one_of_now_and_failing_requests_are_no_good_news() {
        let first = |failed: [u64; 2], p99: &[(usize, f64)]| {
            let mut snapshot = GatewaySnapshot::default();
            snapshot.status.store.up = true;
            let mut p99_ms = vec![None; 12];
            p99.iter().for_each(|(second, time)| p99_ms[*second] = Some(*time));
            let failed = failed.repeat(6);
            let admitted = failed.iter().map(|failed| 20 - failed).collect();
            let all = RequestSamples { admitted, failed, p99_ms, ..RequestSamples::default() };
            snapshot.samples.add(SampleList { seq: 12, count: 12, all, ..SampleList::default() });
            findings(&snapshot).remove(0)
        };
        let (old, new) = ([(0, 7.5), (1, 7.5)], [(0, 7.5), (1, 7.5), (10, 1_234.5)]);
        let plain = |text: &str| (Tone::Plain, text.to_owned());
        assert_eq!(first([0, 0], &old), plain("No request is refused. 20/s requests"));
        assert_eq!(first([0, 0], &new), plain("No request is refused. 20/s requests, p99 1.2 s"));
        let half = (Tone::Refused, "No request is refused. 20/s requests, 10/s fail".to_owned());
        assert_eq!(first([10, 10], &old), half);
        assert_eq!(first([1, 0], &old).0, Tone::Shadow);
    }
}
