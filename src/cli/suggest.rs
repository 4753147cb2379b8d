//! `tollgate suggest`: limits proposed from the requests of a log.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};

use super::logs::{self, LogArguments, Watcher};
use super::output::{fault, refuse, show};
use super::{FAILED, MISTAKE};
use crate::config;
use crate::log_reader::{LogInput, LogOptions, LogReader};
use crate::plan::Plan;
use crate::replay::LoggedConsumers;
use crate::replay::keys_of_log::KeysOfLog;
use crate::replay::report::html::{log_data, page};
use crate::replay::report::{LogProblem, LogSummary};
use crate::route::key::Part;
use crate::suggest::candidate::SuggestedAlgorithm;
use crate::suggest::report::{PeakBar, WindowReport};
use crate::suggest::{Peaks, Proposal, SuggestOptions, Suggestion};
use crate::telemetry::terminal::safe_text;

/// The configuration where none is named and none is there: one route for all requests.
const ONE_ROUTE: &str =
    "[upstreams.any]\nservers = [\"builtin:echo\"]\n[[routes]]\npath = \"/*\"\nupstream = \"any\"\n";

/// The maximum number of characters of a note and of a name in a comment.
const MAX_CHARS: usize = 1_000;

/// The options of `tollgate suggest`.
#[derive(Args, Clone, Debug)]
pub(super) struct SuggestArguments {
    #[command(flatten)]
    logs: LogArguments,
    /// What is limited: ip, header:NAME, consumer, …; several parts with commas
    #[arg(long, value_name = "KEY", default_value = "ip", value_delimiter = ',', value_parser = part)]
    key: Vec<Part>,
    /// The share of ordinary keys of which no request would have been refused
    #[arg(long, value_name = "SHARE", default_value_t = 0.999, value_parser = keep)]
    keep: f64,
    /// The factor between the peaks of ordinary keys and the limit
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = headroom)]
    headroom: f64,
    /// token-bucket, gcra, leaky-bucket, fixed-window, sliding-window or sliding-log
    #[arg(long, value_name = "NAME", default_value = "token-bucket", value_parser = algorithm, hide_possible_values = true)]
    algorithm: SuggestedAlgorithm,
    /// Write a page with charts and tables to this file, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// A proposal for a route, as a limit of this name.
struct NamedProposal<'p> {
    route: &'p str,
    name: String,
    toml: String,
    proposal: Proposal,
}

/// What the passes over the logs found.
struct Found {
    proposals: Vec<Proposal>,
    log: LogSummary,
}

/// Proposes limits for the routes of the configuration `file`. If it is not named and not there, for all requests
/// together.
pub(super) fn run(file: &Path, is_named: bool, arguments: &SuggestArguments) -> ExitCode {
    let mut options = match arguments.logs.options(&[file]) {
        Ok(options) => options,
        Err(message) => return fault(MISTAKE, message),
    };
    let loaded = match is_named || file.exists() {
        true => config::load(file),
        false => config::parse(ONE_ROUTE.as_bytes(), "", &|_| None),
    };
    let plan = match loaded {
        Ok(loaded) => loaded.plan,
        Err(report) => return refuse(&report),
    };
    options.trusted_proxies.clone_from(&plan.server.client.trusted_proxies);
    let found = match read(&plan, &options, arguments) {
        Ok(found) => found,
        Err(status) => return status,
    };
    let named = name_all(&plan, found.proposals, &arguments.key);
    if named.is_empty() {
        return fault(FAILED, logs::no_request(&found.log, "the log has no request with a route and a key"));
    }
    if let Some(file) = &arguments.report {
        let answer = format!(
            "{} proposed from {}",
            config::counted(named.len(), "limit"),
            logs::lines(found.log.lines)
        );
        let page = page(&data(&named, &found.log, &arguments.key), &answer);
        if let Err(error) = std::fs::write(file, page) {
            return fault(FAILED, format_args!("cannot write `{}`: {error}", file.display()));
        }
    }
    show(&text(&named, &found.log))
}

/// Both passes; of a stream there is only one.
fn read(plan: &Plan, options: &LogOptions, arguments: &SuggestArguments) -> Result<Found, ExitCode> {
    let mut secret = [0; 16];
    getrandom(&mut secret, GetRandomFlags::empty())
        .map_err(|error| fault(FAILED, format_args!("cannot get random bytes: {error}")))?;
    let logged = LoggedConsumers::default();
    let mut keys = KeysOfLog::new(plan, &logged, arguments.key.clone(), secret);
    let interrupted = logs::interruptible()
        .map_err(|error| fault(FAILED, format_args!("cannot wait for Ctrl-C: {error}")))?;
    let mut peaks = Peaks::new(plan.routes.len());
    let mut reader = open(options, &interrupted)?;
    while let Some(request) = reader.next() {
        let (time, status) = (request.time, request.status);
        keys.find(request, |found| {
            peaks.add_answered(found.route.0, found.key, (time, found.cost, status), || (found.label)());
        });
    }
    if let Some(part) = keys.lacks(reader.known()).filter(|_| reader.counts().requests > 0) {
        let help = "choose another `--key`, or name the field with `--map`";
        return Err(fault(FAILED, format_args!("the log lacks `{part}`\n  = help: {help}")));
    }
    let suggestion = Suggestion::new(
        peaks,
        SuggestOptions {
            keep: arguments.keep,
            head_room: arguments.headroom,
            algorithm: arguments.algorithm,
        },
    );
    let log = logs::summary(&reader, options, Vec::new());
    drop(reader);
    if log.interrupted || options.inputs.iter().any(LogInput::is_stream) {
        return Ok(Found { proposals: suggestion.proposals(), log });
    }
    let mut verification = suggestion.verification();
    let mut reader = open(options, &interrupted)?;
    while let Some(request) = reader.next() {
        let time = request.time;
        keys.find(request, |found| verification.add(found.route.0, found.key, time, found.cost));
    }
    let log = LogSummary { interrupted: reader.is_interrupted(), ..log };
    Ok(Found { proposals: verification.finish(), log })
}

fn open(options: &LogOptions, interrupted: &Arc<AtomicBool>) -> Result<LogReader<'static>, ExitCode> {
    let mut watcher = Watcher::new(Arc::clone(interrupted));
    LogReader::open(options.clone(), move |progress| watcher.watch(progress))
        .map_err(|problem| fault(MISTAKE, format_args!("{}\n  = help: {}", problem.what, problem.remedy)))
}

/// The proposals for routes with requests.
fn name_all<'p>(plan: &'p Plan, proposals: Vec<Proposal>, key: &[Part]) -> Vec<NamedProposal<'p>> {
    let mut taken: HashSet<String> = plan.limits.iter().map(|limit| limit.name.to_string()).collect();
    let parts: Vec<_> = key.iter().map(ToString::to_string).collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    let with_requests = plan.routes.iter().zip(proposals).filter(|(_, proposal)| !proposal.rates.is_empty());
    let mut named = Vec::new();
    for (route, proposal) in with_requests {
        let mut name = limit_name(&route.name, &parts);
        while !taken.insert(name.clone()) {
            name.push_str("-2");
        }
        let toml = proposal.toml(&name, &parts);
        named.push(NamedProposal { route: &route.name, name, toml, proposal });
    }
    named
}

/// `login-per-ip`: of letters, digits and `-`.
fn limit_name(route: &str, key: &[&str]) -> String {
    let word = |text: &str| {
        let plain = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
        let plain: String = plain.take(40).collect();
        plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").to_ascii_lowercase()
    };
    let (route, key) = (word(route), word(&key.join("-")));
    if route.is_empty() { format!("per-{key}") } else { format!("{route}-per-{key}") }
}

fn text(named: &[NamedProposal<'_>], log: &LogSummary) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# Proposed by `tollgate suggest` from {}.", logs::lines(log.lines));
    if log.interrupted {
        text.push_str("# Interrupted: this is what was known so far.\n");
    }
    for LogProblem { reason, lines, first, .. } in &log.problems {
        let first = safe_text(first, MAX_CHARS);
        let _ = writeln!(text, "# {reason}: {}, the first is {first}.", logs::lines(*lines));
    }
    for note in &log.notes {
        let _ = writeln!(text, "# {}.", safe_text(note, MAX_CHARS));
    }
    for NamedProposal { route, toml, .. } in named {
        let _ = write!(text, "\n# Route {}\n{toml}", safe_text(route, MAX_CHARS));
    }
    text
}

fn data(named: &[NamedProposal<'_>], log: &LogSummary, key: &[Part]) -> Value {
    let key = key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let suggestions = named.iter().map(|named| suggestion(named, &key)).collect::<Vec<_>>();
    json!({ "kind": "suggest", "suggestions": suggestions, "log": log_data(log) })
}

/// The bars of a distribution of peaks.
pub(super) fn bins(window: &WindowReport) -> Vec<Value> {
    let bar =
        |bar: &PeakBar| json!({ "from": bar.from, "to": bar.from * 2, "keys": bar.ordinary + bar.outliers });
    window.histogram.iter().map(bar).collect()
}

fn suggestion(named: &NamedProposal<'_>, key: &str) -> Value {
    let proposal = &named.proposal;
    let windows = proposal.windows.iter().map(|window| {
        let gap = proposal.gaps.iter().find(|gap| gap.window == window.window);
        json!({
            "seconds": window.seconds,
            "keys": proposal.keys,
            "ordinary_peak": window.ordinary_peak,
            "outlier_peak": gap.map(|gap| gap.above),
            "bins": bins(window),
            "limit": window.limit,
        })
    });
    let outliers = proposal.outliers.iter().map(|outlier| {
        let peaks = proposal.windows.iter().zip(&outlier.peaks);
        let peaks = peaks.map(|(window, peak)| (window.seconds.to_string(), json!(peak)));
        json!({ "key": outlier.name, "requests": outlier.units, "peaks": Value::Object(peaks.collect()) })
    });
    json!({
        "name": named.name,
        "route": named.route,
        "key": key,
        "algorithm": proposal.algorithm,
        "rates": proposal.rates.iter().map(|rate| rate.rate.clone()).collect::<Vec<_>>(),
        "burst": proposal.rates.iter().map(|rate| rate.count).collect::<Vec<_>>(),
        "requests": proposal.requests,
        "keys": proposal.keys,
        "ordinary": proposal.keys - proposal.outliers.len(),
        "toml": named.toml,
        "notes": proposal.notes,
        "outliers": outliers.collect::<Vec<_>>(),
        "windows": windows.collect::<Vec<_>>(),
    })
}

fn part(text: &str) -> Result<Part, String> {
    Part::parse(text.trim()).map_err(|fault| format!("{}: {}", fault.message, fault.help))
}

fn algorithm(text: &str) -> Result<SuggestedAlgorithm, String> {
    let known = SuggestedAlgorithm::ALL.iter().find(|algorithm| algorithm.as_str() == text);
    known.copied().ok_or_else(|| {
        let all: Vec<_> = SuggestedAlgorithm::ALL.iter().map(|algorithm| algorithm.as_str()).collect();
        format!("write {}", all.join(", "))
    })
}

fn keep(text: &str) -> Result<f64, String> {
    let keep = text.parse().ok().filter(|keep| (0.5..=1.0).contains(keep));
    keep.ok_or_else(|| "write a share from 0.5 to 1, as `0.999`".to_owned())
}

fn headroom(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (1.0..=100.0).contains(factor));
    factor.ok_or_else(|| "write a factor from 1 to 100, as `1.5`".to_owned())
}
