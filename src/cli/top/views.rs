//! The table of each view.

use std::collections::BTreeMap;

use super::display::{clock, count, key, maybe, moment, plain, rate, share, span};
use super::samples::{SampleNumbers as _, class_lately, outcomes};
use super::snapshot::{GatewaySnapshot, GatewayState, REJECTIONS, ReadError};
use super::table::{DataTable, KeyTarget, TableCell, TableRow, Tone};
use crate::admin_api::bans::BanReport;
use crate::admin_api::fleet::{FleetReport, GatewayReport};
use crate::admin_api::keys::{KeyList, KeyReport};
use crate::admin_api::limits::LimitReport;
use crate::admin_api::refusals::RefusalReport;
use crate::admin_api::routes::RouteReport;
use crate::admin_api::samples::{RequestSamples, UpstreamSamples};
use crate::admin_api::servers::ServerReport;
use crate::admin_api::status::StatusReport;
use crate::labels::labels;

labels! {
    /// What the terminal shows, by number key.
    pub(super) enum TopView {
        /// Rates, charts, and the keys that are refused most.
        Overview = "Overview",
        /// The limits and their decisions.
        Limits = "Limits",
        /// The keys of one limit.
        Keys = "Keys",
        /// Refused and failed requests.
        Refusals = "Refusals",
        /// Upstreams and their servers.
        Backends = "Backends",
        /// The bans in force.
        Bans = "Bans",
        /// The routes of the configuration.
        Routes = "Routes",
        /// The gateways that share the store.
        Fleet = "Fleet",
    }
}

/// The classes of responses that are shown.
pub(super) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
/// The seconds of a minute.
const MINUTE: usize = 60;

impl TopView {
    /// The table of the view. That of the overview is the one of the keys.
    pub(super) fn table(self, snapshot: &GatewaySnapshot) -> DataTable {
        match self {
            Self::Overview | Self::Keys => keys(snapshot),
            Self::Limits => limits(snapshot),
            Self::Refusals => refusals(snapshot),
            Self::Backends => backends(snapshot),
            Self::Bans => bans(snapshot),
            Self::Routes => routes(snapshot),
            Self::Fleet if !snapshot.gateways.is_empty() => gateways(&snapshot.gateways),
            Self::Fleet => fleet(&snapshot.fleet),
        }
    }
}

fn limits(snapshot: &GatewaySnapshot) -> DataTable {
    let rows = snapshot.limits_in_order().into_iter().map(limit_row).collect::<Vec<_>>();
    let note = if rows.is_empty() { "The file has no limits." } else { "" };
    DataTable {
        title: "Limits".to_owned(),
        columns: &[
            "Limit",
            "Mode",
            "Refused 1m",
            "Share",
            "Keys",
            "Admitted 1m",
            "Refused 1h",
            "In flight",
            "Policies",
        ],
        numeric: (2, 8),
        rows,
        note: note.to_owned(),
    }
}

fn limit_row(limit: &LimitReport) -> TableRow {
    let (minute, hour) = (&limit.minute, &limit.hour);
    let passed = minute.admitted.saturating_add(minute.delayed);
    let all = passed.saturating_add(minute.refused);
    let tone = if limit.is_shadow() { Tone::Shadow } else { Tone::Refused };
    let in_flight = limit.in_flight.as_ref();
    let held = in_flight.map_or_else(String::new, |places| {
        let of = places.found_max.map(|max| format!(" of {} found", count(max))).unwrap_or_default();
        match places.waiting {
            0 => count(places.held) + &of,
            waiting => format!("{}{of} (+{} waiting)", count(places.held), count(waiting)),
        }
    });
    let refused_share = minute.refused as f64 / all.max(1) as f64;
    let failures = limit.failures.as_ref().map(|words| format!(" of {words}")).unwrap_or_default();
    let policies = format!("{}{failures} for each {}", limit.policies.join(", "), limit.key.join(" and "));
    TableRow {
        id: limit.name.clone(),
        cells: vec![
            TableCell::text(plain(&limit.name)),
            TableCell::text(plain(&limit.mode_words())).toned(if limit.mode_words() != "enforce" {
                Tone::Shadow
            } else {
                Tone::Quiet
            }),
            TableCell::count(minute.refused, tone),
            TableCell::number(refused_share, share(minute.refused, all)),
            TableCell::count(minute.refused_keys, Tone::Plain),
            TableCell::count(passed, Tone::Passed),
            TableCell::count(hour.refused, tone),
            TableCell { text: held, number: in_flight.map(|places| places.held as f64), tone: Tone::Plain },
            TableCell::text(plain(&policies)).toned(Tone::Quiet),
        ],
        key: None,
    }
}

fn keys(snapshot: &GatewaySnapshot) -> DataTable {
    let columns: &[&str] = &["Key", "Refused", "Admitted", "Share", "Units", "State"];
    let Some(list) = &snapshot.keys else {
        let note = "The file has no limits.".to_owned();
        return DataTable { title: "Keys".to_owned(), columns, numeric: (1, 5), note, rows: Vec::new() };
    };
    let shadow = if list.mode == "shadow" { " (shadow: would be refused)" } else { "" };
    let note = match (list.keys.is_empty(), list.error) {
        (true, _) => "No requests yet.".to_owned(),
        (false, 0) => format!("In the last {}; counts are exact.", span(list.span as f64)),
        (false, error) => {
            format!(
                "In the last {}; each count may be too low by up to {}.",
                span(list.span as f64),
                count(error)
            )
        }
    };
    DataTable {
        title: format!("Keys of {}{shadow}", plain(&list.limit)),
        columns,
        numeric: (1, 5),
        rows: list.keys.iter().map(|one| key_row(one, list, snapshot.status.time)).collect(),
        note,
    }
}

fn key_row(one: &KeyReport, list: &KeyList, now: f64) -> TableRow {
    let text = key(one.key.as_deref(), &one.id);
    let tone = if list.mode == "shadow" { Tone::Shadow } else { Tone::Refused };
    let refused_share = one.refused as f64 / list.refused.max(1) as f64;
    let is_idle = one.ban_in_shadow == Some(true);
    let verb = if is_idle { "shadow: would be banned" } else { "banned" };
    let banned = one.banned_until.map(|until| format!("{verb} until {}", moment(until, now)));
    let tier = one.tier.as_ref().map(|tier| format!("tier {}", plain(tier)));
    let overridden = one.overridden.as_ref().map(|set| format!("override {}", plain(&set.rate.join(", "))));
    let state: Vec<_> = banned.iter().cloned().chain(tier).chain(overridden).collect();
    TableRow {
        id: format!("{}/{}", list.limit, one.id),
        key: Some(KeyTarget { limit: list.limit.clone(), path: one.id.clone(), text: text.clone() }),
        cells: vec![
            TableCell::text(text),
            TableCell::count(one.refused, tone),
            TableCell::count(one.admitted, Tone::Passed),
            TableCell::number(
                refused_share,
                if one.refused == 0 { String::new() } else { share(one.refused, list.refused) },
            ),
            TableCell {
                text: one.units.map(count).unwrap_or_default(),
                number: one.units.map(|units| units as f64),
                tone: Tone::Plain,
            },
            TableCell::text(state.join(", ")).toned(match banned {
                Some(_) if is_idle => Tone::Shadow,
                Some(_) => Tone::Refused,
                None => Tone::Quiet,
            }),
        ],
    }
}

/// One row for equal refusals, so that a flood of one client does not hide the others.
fn refusals(snapshot: &GatewaySnapshot) -> DataTable {
    let mut alike: BTreeMap<String, (&RefusalReport, u64)> = BTreeMap::new();
    for one in &snapshot.refusals.list {
        let id = format!(
            "{}\n{:?}\n{:?}\n{:?}\n{}\n{}",
            one.client.as_deref().unwrap_or_default(),
            one.id,
            one.limit,
            one.route,
            one.status,
            one.reason
        );
        let times = alike.get(&id).map_or(0, |(_, times)| *times);
        alike.insert(id, (one, times + 1));
    }
    let mut rows: Vec<_> = alike.into_iter().collect();
    rows.sort_by_key(|(_, (one, _))| std::cmp::Reverse(one.seq));
    let note = match (snapshot.refusals.list.len(), snapshot.refusals.skipped) {
        (0, _) => "No request was refused.".to_owned(),
        (listed, 0) => format!("The last {listed}."),
        (listed, skipped) => format!("The last {listed}; {} more are not listed.", count(skipped)),
    };
    DataTable {
        title: "Refused and failed requests".to_owned(),
        columns: &["Time", "Client", "Status", "Times", "Why", "Route", "Request"],
        numeric: (2, 4),
        rows: rows.into_iter().map(|(id, (one, times))| refusal_row(id, one, times)).collect(),
        note,
    }
}

fn refusal_row(id: String, one: &RefusalReport, times: u64) -> TableRow {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let request = format!("{} {}{}", part(&one.method), part(&one.host), part(&one.path));
    let why = match &one.limit {
        Some(limit) => format!("{limit}: {}", one.reason),
        None => one.reason.clone(),
    };
    let target = |(limit, id): (&String, &String)| KeyTarget {
        limit: limit.clone(),
        path: id.clone(),
        text: key(one.key.as_deref(), id),
    };
    TableRow {
        id,
        key: one.limit.as_ref().zip(one.id.as_ref()).map(target),
        cells: vec![
            TableCell::number(one.time, clock(one.time)),
            TableCell::text(plain(one.client.as_deref().unwrap_or_default())),
            TableCell::number(one.status as f64, one.status.to_string()).toned(Tone::Refused),
            TableCell::count(times, Tone::Plain),
            TableCell::text(plain(&why)),
            TableCell::text(plain(one.route.as_deref().unwrap_or("none"))),
            TableCell::text(plain(&request)).toned(Tone::Quiet),
        ],
    }
}

fn backends(snapshot: &GatewaySnapshot) -> DataTable {
    let samples = &snapshot.samples;
    let store = &snapshot.status.store;
    let counters = samples.store.keys.newest().unwrap_or_default();
    let note = match store.max_keys {
        Some(max) => format!("Counters in memory: {} of at most {}.", maybe(Some(counters)), count(max)),
        None => format!(
            "{} {}; a decision takes p50 {} ms, p99 {} ms; {}/s are made without it.",
            plain(&store.backend),
            if store.up { "responds" } else { "is unreachable" },
            maybe(samples.store.p50_ms.newest_known()),
            maybe(samples.store.p99_ms.newest_known()),
            maybe(Some(samples.store.errors.lately())),
        ),
    };
    DataTable {
        title: "Backends".to_owned(),
        columns: &[
            "Backend",
            "State",
            "2xx/s",
            "3xx/s",
            "4xx/s",
            "5xx/s",
            "No answer/s",
            "Retries/s",
            "p99 ms",
        ],
        numeric: (2, 9),
        rows: samples.upstreams.iter().map(|(name, lists)| backend_row(name, lists)).collect(),
        note,
    }
}

fn backend_row(name: &str, lists: &UpstreamSamples) -> TableRow {
    let servers = &lists.servers;
    let down: Vec<_> = servers.iter().filter(|server| !server.up).collect();
    let why = |server: &&ServerReport| {
        let reason = server.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{} {}{reason}", server.server, server.why.as_deref().unwrap_or("down"))
    };
    let state = match (servers.len(), down.len()) {
        (0, _) => "built in".to_owned(),
        (all, 0) => format!("all {all} up"),
        (all, gone) => {
            let which: Vec<_> = down.iter().take(3).map(why).collect();
            format!("{} of {all} up; {}", all - gone, which.join(", "))
        }
    };
    let tone = if down.is_empty() { Tone::Passed } else { Tone::Refused };
    let mut cells = vec![TableCell::text(plain(name)), TableCell::text(plain(&state)).toned(tone)];
    for class in CLASSES {
        cells.push(TableCell::rate(
            class_lately(lists, class),
            if class == "5xx" { Tone::Refused } else { Tone::Plain },
        ));
    }
    cells.push(TableCell::rate(lists.failed.lately(), Tone::Refused));
    cells.push(TableCell::rate(lists.retries.lately(), Tone::Shadow));
    cells.push(latency(&lists.p99_ms));
    TableRow { id: name.to_owned(), cells, key: None }
}

fn latency(p99_ms: &[Option<f64>]) -> TableCell {
    let slowest = p99_ms.newest_known();
    TableCell { text: maybe(slowest), number: slowest, tone: Tone::Plain }
}

fn bans(snapshot: &GatewaySnapshot) -> DataTable {
    let (listed, total) = (snapshot.bans.bans.len(), snapshot.bans.total);
    let note = match total {
        0 => "No key is banned.".to_owned(),
        _ if total > listed as u64 => {
            format!("{} keys are banned; these {listed} bans end first.", count(total))
        }
        _ => String::new(),
    };
    let row = |ban: &BanReport| ban_row(ban, snapshot.status.time);
    DataTable {
        title: "Bans".to_owned(),
        columns: &["Key", "Limit", "State", "Ends in", "Ends", "Cause"],
        numeric: (3, 4),
        rows: snapshot.bans.bans.iter().map(row).collect(),
        note,
    }
}

fn ban_row(ban: &BanReport, now: f64) -> TableRow {
    let text = key(ban.key.as_deref(), &ban.id);
    let left = (ban.banned_until - now).max(0.0);
    let (state, tone) =
        if ban.in_shadow { ("shadow: not refused", Tone::Shadow) } else { ("in force", Tone::Refused) };
    TableRow {
        id: format!("{}/{}", ban.limit, ban.id),
        key: Some(KeyTarget { limit: ban.limit.clone(), path: ban.id.clone(), text: text.clone() }),
        cells: vec![
            TableCell::text(text).toned(tone),
            TableCell::text(plain(&ban.limit)),
            TableCell::text(state).toned(tone),
            TableCell::number(left, span(left)),
            TableCell::text(clock(ban.banned_until)),
            TableCell::text(plain(&ban.cause)).toned(Tone::Quiet),
        ],
    }
}

fn routes(snapshot: &GatewaySnapshot) -> DataTable {
    let row = |route: &RouteReport| route_row(route, snapshot.samples.routes.get(&route.name));
    let none = RouteReport {
        name: "none".to_owned(),
        path: "no route matches".to_owned(),
        ..RouteReport::default()
    };
    let has_none = snapshot.samples.routes.contains_key("none")
        && !snapshot.routes.iter().any(|route| route.name == "none");
    DataTable {
        title: "Routes".to_owned(),
        columns: &["Route", "Requests 1m", "Refused 1m", "Failed 1m", "p99 ms", "Matches", "To", "Limits"],
        numeric: (1, 5),
        rows: snapshot.routes.iter().chain(has_none.then_some(&none)).map(row).collect(),
        note: "Latency is without delays by limits.".to_owned(),
    }
}

fn route_row(route: &RouteReport, lists: Option<&RequestSamples>) -> TableRow {
    let nothing = RequestSamples::default();
    let lists = lists.unwrap_or(&nothing);
    let minute = |list: &[u64]| list.sum(MINUTE);
    let requests: f64 = outcomes(lists).map(minute).iter().sum();
    let kinds = REJECTIONS.iter().map(|(list, _, status)| (minute(list(lists)), status));
    let kinds = kinds.filter(|(number, _)| *number > 0.0);
    let kinds: Vec<_> = kinds.map(|(number, status)| format!("{status}: {}", rate(number))).collect();
    let mut refused = TableCell::rate(minute(&lists.refused), Tone::Refused);
    if !kinds.is_empty() {
        refused.text += &format!(" ({})", kinds.join(", "));
    }
    let hosts = route.hosts.join(", ");
    let conditions = [route.methods.join(", "), hosts, route.path.clone()];
    let conditions: Vec<_> = conditions.into_iter().filter(|part| !part.is_empty()).collect();
    let to = match (&route.upstream, route.answer) {
        (Some(upstream), _) => plain(upstream),
        (None, Some(status)) => format!("answers {status}"),
        (None, None) => String::new(),
    };
    let limits: Vec<_> = route.limits.iter().map(|limit| limit.name.as_str()).collect();
    TableRow {
        id: route.name.clone(),
        key: None,
        cells: vec![
            TableCell::text(plain(&route.name)),
            TableCell::rate(requests, Tone::Plain),
            refused,
            TableCell::rate(minute(&lists.failed), Tone::Refused),
            latency(&lists.p99_ms),
            TableCell::text(plain(&conditions.join(" "))),
            TableCell::text(to),
            TableCell::text(plain(&limits.join(", "))).toned(Tone::Quiet),
        ],
    }
}

fn fleet(fleet: &FleetReport) -> DataTable {
    let row = |gateway: &GatewayReport| gateway_row(gateway, fleet.time);
    DataTable {
        title: "Fleet".to_owned(),
        columns: &["Gateway", "State", "Last seen", "Up", "File", "Version", "Clock ms", "Leased", "Id"],
        numeric: (6, 8),
        rows: fleet.gateways.iter().map(row).collect(),
        note: match fleet.shared {
            true if fleet.gateways.is_empty() => "The shared store cannot be asked for the other gateways.",
            true => "",
            false => "Counters are in memory: no other gateway shares them.",
        }
        .to_owned(),
    }
}

/// A row for each of several gateways, and their sums.
fn gateways(gateways: &[GatewayState]) -> DataTable {
    let rates = |state: &GatewayState| {
        let all = &state.samples.all;
        [&all.admitted, &all.delayed, &all.refused, &all.failed].map(|list| list.lately())
    };
    let numbers = |rates: [f64; 4]| {
        let tones = [Tone::Passed, Tone::Plain, Tone::Refused, Tone::Refused];
        rates.into_iter().zip(tones).map(|(number, tone)| TableCell::number(number, rate(number)).toned(tone))
    };
    let row = |state: &GatewayState| {
        let (word, tone) = match &state.status {
            Err(ReadError::Refused(status, _)) => (format!("answers {status}"), Tone::Refused),
            Err(ReadError::Away(_)) => ("no answer".to_owned(), Tone::Refused),
            Ok(status) if state.shown => (format!("{}, shown", plain(&status.life)), Tone::Passed),
            Ok(status) => (plain(&status.life), Tone::Passed),
        };
        let status = state.status.as_ref().ok();
        let text = |of: fn(&StatusReport) -> &str| {
            TableCell::text(status.map_or_else(String::new, |status| plain(of(status))))
        };
        let up = status.map_or(0.0, |status| (status.time - status.started).max(0.0));
        let mut cells = vec![TableCell::text(plain(&state.address)), TableCell::text(word).toned(tone)];
        cells.extend(numbers(if status.is_some() { rates(state) } else { [0.0; 4] }));
        cells.push(TableCell { text: span(up), number: Some(up), tone: Tone::Plain });
        cells.extend([text(|status| &status.config.version), text(|status| &status.version)]);
        TableRow { id: state.address.clone(), key: None, cells }
    };
    let answering: Vec<_> = gateways.iter().filter(|state| state.status.is_ok()).collect();
    let sum = answering.iter().map(|state| rates(state)).fold([0.0; 4], |sum, next| {
        let mut next = next.into_iter();
        sum.map(|number| number + next.next().unwrap_or_default())
    });
    let count = format!("{} of {} answer", answering.len(), gateways.len());
    let mut total = vec![TableCell::text("all".to_owned()), TableCell::text(count)];
    total.extend(numbers(sum));
    total.extend((0..3).map(|_| TableCell::text(String::new())));
    let total = TableRow { id: "all".to_owned(), key: None, cells: total };
    DataTable {
        title: "Gateways".to_owned(),
        columns: &[
            "Gateway",
            "State",
            "Admitted/s",
            "Delayed/s",
            "Refused/s",
            "Failed/s",
            "Up",
            "File",
            "Version",
        ],
        numeric: (2, 7),
        rows: gateways.iter().map(row).chain([total]).collect(),
        note: "`g`: the other views show the next gateway.".to_owned(),
    }
}

fn gateway_row(gateway: &GatewayReport, now: f64) -> TableRow {
    let (state, tone) = match (gateway.gone, gateway.this) {
        (true, _) => ("gone", Tone::Refused),
        (false, true) => ("live, this one", Tone::Passed),
        (false, false) => ("live", Tone::Passed),
    };
    let (silent, up) = ((now - gateway.last_seen).max(0.0), (now - gateway.since).max(0.0));
    let time = |seconds: f64| TableCell { text: span(seconds), number: Some(seconds), tone: Tone::Plain };
    TableRow {
        id: gateway.id.clone(),
        key: None,
        cells: vec![
            TableCell::text(plain(&gateway.address)),
            TableCell::text(state).toned(tone),
            time(silent),
            time(up),
            TableCell::text(plain(&gateway.file_hash)),
            TableCell::text(plain(&gateway.version)),
            TableCell::number(gateway.clock_ahead_ms as f64, gateway.clock_ahead_ms.to_string()),
            TableCell::count(gateway.leased_units, Tone::Plain),
            TableCell::text(plain(&gateway.id)).toned(Tone::Quiet),
        ],
    }
}
