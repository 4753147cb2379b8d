//! The result of a replay as text: the answer first; with a chart of refusals over time in one line.

use std::cmp::Reverse;
use std::fmt::{self, Display, Formatter, Write as _};

use super::LogSummary;
use super::number::{Grouped, Moment, Share, Span};
use crate::limit::units::{Micros, Timestamp};
use crate::plan::{LimitIndex, Mode};
use crate::replay::run::{PlanComparison, Replay};
use crate::replay::statistics::clients::{HitClient, PERSON_RULE};
use crate::replay::statistics::timeline::Timeline;
use crate::replay::statistics::{LimitStatistics, ReplayStatistics, RouteStatistics};
use crate::telemetry::terminal::safe_text;

/// The maximum number of keys, clients and differences that are listed.
const MAX_LISTED: usize = 10;
/// The maximum number of routes that are listed: those with most refusals.
const MAX_ROUTES: usize = 20;

/// The maximum number of characters of a key, of a name of a file and of a decision in the log.
const MAX_CHARS: usize = 200;
/// The maximum number of characters of a note.
const MAX_NOTE: usize = 1_000;

/// The result as text. Text of clients and of the log is escaped.
#[derive(Clone, Copy, Debug)]
pub struct ReplayText<'r, 'p> {
    /// The replay.
    pub replay: &'r Replay<'p>,
    /// The log.
    pub log: &'r LogSummary,
}

impl Display for ReplayText<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { replay, log } = self;
        let sums = replay.statistics();
        let hit = sums.clients.hit();
        write_answer(f, sums, &hit)?;
        if let Some((_, comparison)) = replay.compared() {
            write_comparison(f, replay, comparison)?;
        }
        write_span(f, sums, log)?;
        write_limits(f, sums)?;
        if let Some(chart) = refusals_chart(&sums.timeline) {
            write!(f, "\n{chart}")?;
        }
        write_routes(f, sums)?;
        write_keys(f, sums)?;
        write_clients(f, &hit)?;
        write_own(f, sums, log)?;
        write_log(f, replay, log)
    }
}

/// The first line: how much would have been refused, and of how many clients.
pub fn answer(sums: &ReplayStatistics<'_>) -> String {
    struct Answer<'s, 'p>(&'s ReplayStatistics<'p>);
    impl Display for Answer<'_, '_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            write_answer(f, self.0, &self.0.clients.hit())
        }
    }
    Answer(sums).to_string().trim_end().to_owned()
}

fn write_answer(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>, hit: &[HitClient]) -> fmt::Result {
    let of = |part| Share { part, whole: sums.requests };
    let (refused, requests) = (Grouped(sums.refused), Grouped(sums.requests));
    write!(f, "{refused} of {requests} requests ({}) would have been refused", of(sums.refused))?;
    if sums.shadow_refused > 0 {
        let (more, share) = (Grouped(sums.shadow_refused), of(sums.shadow_refused));
        write!(f, ", and {more} more ({share}) by limits in shadow")?;
    }
    let most = hit.iter().filter(|client| client.loses_most()).count();
    let (hit, clients) = (Grouped(hit.len() as u64), Grouped(sums.clients.len() as u64));
    write!(f, "; {hit} of {clients} clients")?;
    match most {
        0 => writeln!(f),
        1 => writeln!(f, "; 1 of them loses more than half of its requests"),
        most => writeln!(f, "; {} of them lose more than half of their requests", Grouped(most as u64)),
    }
}

fn write_comparison(f: &mut Formatter<'_>, replay: &Replay<'_>, comparison: &PlanComparison) -> fmt::Result {
    let Some((baseline, _)) = replay.compared() else { return Ok(()) };
    let (refused, admitted) = (Grouped(comparison.newly_refused), Grouped(comparison.newly_admitted));
    writeln!(f, "Compared with the other file: {refused} newly refused, {admitted} newly admitted")?;
    let plans = [
        ("newly refused by", replay.statistics().plan, &comparison.refused_by),
        ("newly admitted, refused before by", baseline.plan, &comparison.admitted_from),
    ];
    for (words, plan, counts) in plans {
        for (index, limit) in plan.limits.iter().enumerate() {
            if let Some(count) = counts.get(&LimitIndex(index)) {
                writeln!(f, "  {} {words} `{}`", Grouped(*count), limit.name)?;
            }
        }
    }
    Ok(())
}

fn write_span(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>, log: &LogSummary) -> fmt::Result {
    let Some((first, last)) = sums.span else { return Ok(()) };
    let span = Span(last.since(first));
    write!(f, "\nFrom {} to {} UTC ({span}), {} lines", Moment(first), Moment(last), Grouped(log.lines))?;
    if log.skipped > 0 {
        write!(f, ", {} of them no request (see the end)", Grouped(log.skipped))?;
    }
    writeln!(f)?;
    if sums.delayed > 0 {
        let share = Share { part: sums.delayed, whole: sums.requests };
        writeln!(f, "{} requests ({share}) would have been delayed", Grouped(sums.delayed))?;
    }
    if sums.answered > 0 {
        let share = Share { part: sums.answered, whole: sums.requests };
        let answered = Grouped(sums.answered);
        writeln!(
            f,
            "{answered} requests ({share}) would have been answered before any limit: no route, an address, a credential"
        )?;
    }
    Ok(())
}

fn write_limits(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>) -> fmt::Result {
    writeln!(f, "\nLimits")?;
    let all = || sums.plan.limits.iter().zip(&sums.limits);
    for (limit, counts) in all().filter(|(_, counts)| counts.requests + counts.exempt > 0) {
        let mode = match (limit.mode, &limit.trial) {
            (Mode::Shadow, _) => ", in shadow".to_owned(),
            (Mode::Enforce, Some(trial)) => {
                format!(", in shadow for all but {} of the keys", trial.percent())
            }
            (Mode::Enforce, None) => String::new(),
        };
        let LimitStatistics { requests, refused, delayed, delay_sum, delay_max, exempt, keys, .. } = counts;
        let share = Share { part: *refused, whole: *requests };
        let (count, all) = (Grouped(*refused), Grouped(*requests));
        write!(f, "  {}{mode}: {count} of {all} requests refused ({share})", limit.name)?;
        if !keys.is_empty() {
            write!(f, ", {} of {} keys", Grouped(keys.refused() as u64), Grouped(keys.len() as u64))?;
        }
        if *delayed > 0 {
            let mean = Span(Micros(delay_sum.0 / delayed));
            write!(f, "; {} delayed by {mean} on average, at most {}", Grouped(*delayed), Span(*delay_max))?;
        }
        if *exempt > 0 {
            write!(f, "; {} exempt", Grouped(*exempt))?;
        }
        writeln!(f)?;
    }
    let idle = all().filter(|(_, counts)| counts.requests + counts.exempt == 0);
    write_idle(f, &idle.map(|(limit, _)| &*limit.name).collect::<Vec<_>>())
}

fn write_routes(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>) -> fmt::Result {
    writeln!(f, "\nRoutes")?;
    let (mut used, mut idle) = (Vec::new(), Vec::new());
    for (route, counts) in sums.plan.routes.iter().zip(&sums.routes) {
        match counts.requests {
            0 => idle.push(&*route.name),
            _ => used.push((&*route.name, counts)),
        }
    }
    let refused = |counts: &RouteStatistics| counts.refused + counts.shadow_refused;
    // Stable: of equals, the first in the file leads.
    used.sort_by_key(|(_, counts)| (Reverse(refused(counts)), Reverse(counts.requests)));
    for (name, counts) in used.iter().take(MAX_ROUTES) {
        let share = |part| Share { part, whole: counts.requests };
        let (requests, refused) = (Grouped(counts.requests), Grouped(counts.refused));
        write!(f, "  {name}: {requests} requests, {refused} refused ({})", share(counts.refused))?;
        if counts.shadow_refused > 0 {
            write!(f, ", {} in shadow ({})", Grouped(counts.shadow_refused), share(counts.shadow_refused))?;
        }
        match counts.delayed {
            0 => writeln!(f)?,
            delayed => writeln!(f, ", {} delayed", Grouped(delayed))?,
        }
    }
    write_more(f, used.len(), MAX_ROUTES, "routes with requests")?;
    write_idle(f, &idle)
}

/// Names that had no request.
fn write_idle(f: &mut Formatter<'_>, names: &[&str]) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    write!(f, "  no request: {}", names.iter().copied().take(MAX_LISTED).collect::<Vec<_>>().join(", "))?;
    match names.len().saturating_sub(MAX_LISTED) {
        0 => writeln!(f),
        more => writeln!(f, " and {more} more"),
    }
}

fn write_keys(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>) -> fmt::Result {
    for (limit, counts) in sums.plan.limits.iter().zip(&sums.limits) {
        let hit = counts.keys.hit_hardest(MAX_LISTED);
        if hit.is_empty() {
            continue;
        }
        writeln!(f, "\nKeys of `{}` hit hardest", limit.name)?;
        for (key, count) in &hit {
            let (refused, requests) = (Grouped(count.refused.into()), Grouped(count.requests.into()));
            let share = Share { part: count.refused.into(), whole: count.requests.into() };
            let key = if key.is_empty() { "everybody".to_owned() } else { shown(key) };
            writeln!(f, "  {key}: {refused} of {requests} refused ({share})")?;
        }
        write_more(f, counts.keys.refused(), hit.len(), "keys")?;
    }
    Ok(())
}

fn write_clients(f: &mut Formatter<'_>, hit: &[HitClient]) -> fmt::Result {
    if hit.is_empty() {
        return Ok(());
    }
    let (people, programs): (Vec<&HitClient>, Vec<&HitClient>) =
        hit.iter().partition(|client| client.looks_like_a_person);
    for (clients, words) in [(people, "look like people"), (programs, "look automated")] {
        if clients.is_empty() {
            writeln!(f, "\nClients with refused requests that {words}: none")?;
            continue;
        }
        writeln!(f, "\nClients with refused requests that {words}: {}", Grouped(clients.len() as u64))?;
        for client in clients.iter().take(MAX_LISTED) {
            let (refused, requests) = (Grouped(client.refused.into()), Grouped(client.requests.into()));
            writeln!(f, "  {}: {refused} of {requests} refused", client.address)?;
        }
        write_more(f, clients.len(), MAX_LISTED, "clients")?;
    }
    writeln!(f, "  Rule: {PERSON_RULE}.")
}

fn write_own(f: &mut Formatter<'_>, sums: &ReplayStatistics<'_>, log: &LogSummary) -> fmt::Result {
    let own = &sums.own;
    if own.is_empty() {
        return Ok(());
    }
    let compared = own.same + own.different;
    let same = Share { part: own.same, whole: compared };
    writeln!(
        f,
        "\nDecisions in the log: {} of {} are the same here ({same})",
        Grouped(own.same),
        Grouped(compared)
    )?;
    for difference in &own.first {
        let file = log.files.get(difference.place.file as usize).map_or("", String::as_str);
        let (file, line) = (shown(file), difference.place.line);
        let (logged, replayed) = (shown(&difference.logged), shown(&difference.replayed));
        writeln!(f, "  {file}:{line}: log: {logged}; here: {replayed}")?;
    }
    write_more(f, usize::try_from(own.different).unwrap_or(usize::MAX), own.first.len(), "differences")
}

fn write_log(f: &mut Formatter<'_>, replay: &Replay<'_>, log: &LogSummary) -> fmt::Result {
    if !log.problems.is_empty() {
        writeln!(f, "\nProblems of the log")?;
        for problem in &log.problems {
            let (reason, lines) = (&problem.reason, Grouped(problem.lines));
            let (first, text) = (shown(&problem.first), shown(&problem.text));
            writeln!(f, "  {lines}: {reason}; the first is {first} `{text}`")?;
        }
    }
    let evictions = replay.evictions();
    if !log.notes.is_empty() || evictions > 0 {
        writeln!(f, "\nNotes")?;
    }
    for note in &log.notes {
        writeln!(f, "  {}", safe_text(note, MAX_NOTE))?;
    }
    if evictions > 0 {
        writeln!(
            f,
            "  {} keys were evicted: `max_keys` of [store] is too small for this log",
            Grouped(evictions)
        )?;
    }
    if log.interrupted {
        writeln!(f, "\nInterrupted: this is what was known so far.")?;
    }
    Ok(())
}

fn shown(text: &str) -> String {
    safe_text(text, MAX_CHARS)
}

fn write_more(f: &mut Formatter<'_>, all: usize, listed: usize, what: &str) -> fmt::Result {
    match all.saturating_sub(listed) {
        0 => Ok(()),
        more => writeln!(f, "  and {} more {what}", Grouped(more as u64)),
    }
}

const COLUMNS: usize = 64;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The refusals over time with their axis; `None`: there are none, or the log is too short.
fn refusals_chart(timeline: &Timeline) -> Option<String> {
    let (each, columns) = timeline.columns(COLUMNS);
    let most = columns.iter().map(|column| column.refused).max().filter(|most| *most > 0)?;
    if columns.len() < 2 {
        return None;
    }
    let step = Micros(timeline.step().0.saturating_mul(each as u64));
    let level = |refused: u64| match refused {
        0 => ' ',
        // The least column that is not empty is visible.
        _ => LEVELS[usize::try_from((refused * 8).div_ceil(most)).unwrap_or(8).clamp(1, 8) - 1],
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "Refusals over time (a column is {}, the highest {})", Span(step), Grouped(most));
    let bars: String = columns.iter().map(|column| level(column.refused)).collect();
    let _ = writeln!(text, "  {bars}");
    let begin = timeline.begin();
    let end = Timestamp(begin.0.saturating_add(step.0.saturating_mul(columns.len() as u64)));
    let (from, to) = (Moment(begin).to_string(), Moment(end).to_string());
    let room = columns.len().max(from.len() + to.len() + 1) - from.len() - to.len();
    let _ = writeln!(text, "  {from}{:room$}{to}", "");
    Some(text)
}
