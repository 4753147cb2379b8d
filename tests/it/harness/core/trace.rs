//! `tests/traces/*.trace`: what limits do, as tables that a person can read, played against every executor there is.
//!
//! ```text
//! # A bucket of 10.
//! limit token-bucket rate 10/s burst 10
//! at 0ms    cost 5 → allow remaining 5 reset 100ms
//! at 0ms    cost 10 → deny wait 500ms remaining 5
//! at 0ms    cost 1 x5 → allow remaining 0
//! at 100ms  settle -2 of 0ms → remaining 3
//! ```
//! Times count from a midnight. `xN` is N requests that all get the answer; `remaining` and `reset` are those of the last, and
//! what a line leaves out is not compared. A second `limit` line begins afresh.
//!
//! `limit concurrency max 3` has no rate: `deny unknown` is its refusal, and `settle -N of MOMENT` the end of a request that
//! was admitted then at that cost. The memory store can `settle` no other limit so far.
//!
//! `limit ban after 3 within 10s for 1min,1h` decides on refusals: `allow` is a refusal that begins no ban.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tollgate::limit::units::{Cost, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Decision, Verdict, Wait};

use super::cases::START;

/// Whatever can play a trace: one key under one limit.
pub(crate) trait Executor {
    /// A fresh key.
    fn begin(&mut self, algorithm: Algorithm);
    fn decide(&mut self, now: Timestamp, cost: Cost) -> Decision;
    /// What remains after the correction, or `None` if this executor cannot correct.
    fn settle(&mut self, admitted_at: Timestamp, difference: i64, now: Timestamp) -> Option<u64>;
}

/// Plays every trace of the folder and tells all that went wrong.
pub(crate) fn play_all(executor: &mut impl Executor) {
    let files = traces();
    assert!(files.len() >= 12, "only {} traces found", files.len());
    let mut wrong = String::new();
    for file in files {
        let table = std::fs::read_to_string(&file).unwrap();
        if let Err(told) = play(executor, &table) {
            writeln!(wrong, "{}: {told}", file.file_name().unwrap().display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "trace")).collect()
}

/// Plays one table. The error names the first line that is not so, and what was so.
pub(crate) fn play(executor: &mut impl Executor, table: &str) -> Result<(), String> {
    let (mut begun, mut steps) = (false, 0);
    for (number, line) in table.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let step = match words.as_slice() {
            [] => continue,
            ["limit", limit @ ..] => limit_in(limit).map(|limit| {
                executor.begin(limit);
                begun = true;
            }),
            _ if !begun => Err("no `limit` line stands above it".to_owned()),
            ["at", at, "cost", cost, request @ ..] => {
                steps += 1;
                request_in(executor, at, cost, request)
            }
            ["at", at, "settle", units, "of", admitted_at, "→", "remaining", left] => {
                match settle_in(executor, at, units, admitted_at, left) {
                    // What follows a correction that can't be made means nothing.
                    Ok(false) => return Ok(()),
                    other => other.map(|_| ()),
                }
            }
            _ => Err("not understood".to_owned()),
        };
        step.map_err(|told| format!("line {}: `{}`: {told}", number + 1, line.trim()))?;
    }
    if steps > 0 { Ok(()) } else { Err("no request in it".to_owned()) }
}

fn request_in(executor: &mut impl Executor, at: &str, cost: &str, words: &[&str]) -> Result<(), String> {
    let (times, expected) = match words {
        ["→", expected @ ..] => (1, expected),
        [times, "→", expected @ ..] => (
            times
                .strip_prefix('x')
                .ok_or("`x50` repeats")
                .and_then(|n| n.parse().map_err(|_| "not a number"))?,
            expected,
        ),
        _ => return Err("no `→`".to_owned()),
    };
    let (now, cost) = (moment(at)?, units(cost)?);
    for time in 1..=times {
        let decision = executor.decide(now, cost);
        let was = in_words(decision);
        let skip = if time < times { &["remaining", "reset"][..] } else { &[] };
        if !agrees(expected, &was, skip)? {
            return Err(format!("it was `{was}`"));
        }
    }
    Ok(())
}

fn settle_in(
    executor: &mut impl Executor,
    at: &str,
    units: &str,
    admitted_at: &str,
    left: &str,
) -> Result<bool, String> {
    let difference = units.parse().map_err(|_| format!("`{units}` is not a number"))?;
    match executor.settle(moment(admitted_at)?, difference, moment(at)?) {
        None => Ok(false),
        Some(remaining) if remaining.to_string() == left => Ok(true),
        Some(remaining) => Err(format!("it was `remaining {remaining}`")),
    }
}

/// Whether what is `expected` stands in what `was`; the verdict must always be told.
fn agrees(expected: &[&str], was: &str, skip: &[&str]) -> Result<bool, String> {
    let was: Vec<&str> = was.split(' ').collect();
    let said = |name: &str| was.iter().position(|word| *word == name).map(|index| was[index + 1]);
    let (verdict, mut fields) = match expected {
        ["allow", fields @ ..] => (was[0] == "allow", fields),
        ["deny", why @ ("never" | "unknown"), fields @ ..] => (was[..2] == ["deny", why], fields),
        ["deny", "wait", span, fields @ ..] => {
            (was[0] == "deny" && said("wait").is_some_and(|w| same(w, span)), fields)
        }
        ["delay", span, fields @ ..] => (was[0] == "delay" && same(was[1], span), fields),
        _ => {
            return Err(
                "not `allow`, `delay SPAN`, `deny wait SPAN`, `deny never` or `deny unknown`".to_owned()
            );
        }
    };
    let mut agrees = verdict;
    while let [name, value, rest @ ..] = fields {
        if !["remaining", "reset"].contains(name) {
            return Err(format!("`{name}` is not understood"));
        }
        agrees &= skip.contains(name) || said(name).is_some_and(|w| w == *value || same(w, value));
        fields = rest;
    }
    if fields.is_empty() { Ok(agrees) } else { Err(format!("`{}` says nothing", fields[0])) }
}

fn same(one: &str, other: &str) -> bool {
    matches!((span(one), span(other)), (Ok(one), Ok(other)) if one == other)
}

fn in_words(decision: Decision) -> String {
    let verdict = match decision.verdict {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Delay(wait) => format!("delay {}", span_in_words(wait)),
        Verdict::Deny(Wait::After(wait)) => format!("deny wait {}", span_in_words(wait)),
        Verdict::Deny(Wait::Never) => "deny never".to_owned(),
        Verdict::Deny(Wait::Unknown) => "deny unknown".to_owned(),
    };
    format!("{verdict} remaining {} reset {}", decision.remaining, span_in_words(decision.reset_after))
}

fn span_in_words(Micros(span): Micros) -> String {
    if span.is_multiple_of(1000) { format!("{}ms", span / 1000) } else { format!("{span}us") }
}

/// `token-bucket rate 10/s burst 10`, with the parameters and defaults of `gateway.toml`.
fn limit_in(words: &[&str]) -> Result<Algorithm, String> {
    let (name, rate, parameters) = match words {
        ["concurrency", "max", max] => return Ok(Algorithm::concurrency(units(max)?, 0, Micros(0))),
        ["ban", "after", after, "within", within, "for", spans] => {
            let spans: Vec<_> = spans.split(',').map(span).collect::<Result<_, _>>()?;
            let ban = Algorithm::ban(units(after)?.units(), span(within)?, &spans);
            return ban.ok_or_else(|| "no ban can have these numbers".to_owned());
        }
        [name, "rate", rate, parameters @ ..] => (name, rate, parameters),
        _ => return Err("no `NAME rate RATE`".to_owned()),
    };
    let rate = rate_in(rate)?;
    let count = Cost::new(rate.count()).unwrap();
    let given = |wanted: &str| {
        parameters.chunks(2).find(|pair| pair[0] == wanted).and_then(|pair| pair.get(1).copied())
    };
    let known = ["burst", "queue", "max_wait", "align", "spacing", "count_denied"];
    if let Some(unknown) = parameters.chunks(2).find(|pair| !known.contains(&pair[0])) {
        return Err(format!("`{}` is not understood", unknown[0]));
    }
    Ok(match *name {
        "token-bucket" => Algorithm::token_bucket(rate, given("burst").map_or(Ok(count), units)?),
        "gcra" => Algorithm::gcra(rate, given("burst").map_or(Ok(Cost::ONE), units)?),
        "leaky-bucket" => {
            let queue = given("queue").map_or(Ok(count), units)?;
            Algorithm::leaky_bucket(rate, queue, span(given("max_wait").unwrap_or("10s"))?)
        }
        "fixed-window" => {
            let align =
                if given("align") == Some("first-request") { Align::FirstRequest } else { Align::Clock };
            Algorithm::fixed_window(rate, align)
        }
        "sliding-window" => Algorithm::sliding_window(rate),
        "sliding-log" => {
            let spacing = given("spacing").map(span).transpose()?;
            Algorithm::sliding_log(rate, spacing, given("count_denied") == Some("true"))
        }
        _ => return Err(format!("`{name}` is not an algorithm")),
    })
}

fn rate_in(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is not a rate");
    let (count, period) = text.split_once('/').ok_or_else(wrong)?;
    let period = if period.starts_with(|first: char| first.is_ascii_digit()) {
        period.to_owned()
    } else {
        format!("1{period}")
    };
    Rate::new(count.parse().map_err(|_| wrong())?, span(&period)?).ok_or_else(wrong)
}

fn units(text: &str) -> Result<Cost, String> {
    text.parse().ok().and_then(Cost::new).ok_or_else(|| format!("`{text}` is not a count"))
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Ok(START.plus(span(text)?))
}

/// `250us`, `100ms`, `1.5s`, `2min`, `1h`, `1day`.
fn span(text: &str) -> Result<Micros, String> {
    let wrong = || format!("`{text}` is not a span");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "day" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let places = u32::try_from(fraction.len()).map_err(|_| wrong())?;
    let fraction = fraction.parse::<u64>().map_err(|_| wrong())? * unit / 10_u64.pow(places);
    Ok(Micros(whole * unit + fraction))
}
