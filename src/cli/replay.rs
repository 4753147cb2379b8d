//! `tollgate replay`: what the limits would have done to the requests of a log.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};

use super::logs::{self, LogArguments, Watcher};
use super::output::{fault, refuse, show};
use super::suggest::bins;
use super::{FAILED, MISTAKE};
use crate::config::{self, Report};
use crate::limit::Algorithm;
use crate::log_reader::LogReader;
use crate::log_reader::request::LoggedRequest;
use crate::plan::{Limit, Plan};
use crate::replay::report::html::{page, page_data};
use crate::replay::report::number::{Grouped, Share};
use crate::replay::report::text::{ReplayText, answer};
use crate::replay::report::{LogSummary, json};
use crate::replay::{Replay, ReplayedRequest, missing_fields};
use crate::suggest::report::WindowReport;
use crate::suggest::{Peaks, Proposal, SuggestOptions, Suggestion};
use crate::telemetry::metrics::DecisionLabel;

/// The number of requests that show which fields a log has.
const FIRST: usize = 2_000;
/// The bytes of these requests after which no more of them are kept: 16 MiB.
const FIRST_BYTES: usize = 16 << 20;

/// The options of `tollgate replay`.
#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArguments {
    #[command(flatten)]
    logs: LogArguments,
    /// Compare with another configuration: which requests are refused by one of them only
    #[arg(long, value_name = "OTHER")]
    against: Option<PathBuf>,
    /// Print a JSON object with the same facts, for programs
    #[arg(long)]
    json: bool,
    /// Write a page with charts and tables to this file, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit with 1 if a larger share of the requests is refused: `0.1%`, or `0.001`
    #[arg(long, value_name = "SHARE", value_parser = share)]
    fail_above: Option<f64>,
}

/// Replays logs through the configuration `file`.
pub(super) fn run(file: &Path, arguments: &ReplayArguments) -> ExitCode {
    let files: Vec<_> = [Some(file), arguments.against.as_deref()].into_iter().flatten().collect();
    let mut options = match arguments.logs.options(&files) {
        Ok(options) => options,
        Err(message) => return fault(MISTAKE, message),
    };
    let (mut plan, mut against) = match plans(file, arguments.against.as_deref()) {
        Ok(plans) => plans,
        Err(report) => return refuse(&report),
    };
    options.trusted_proxies.clone_from(&plan.server.client.trusted_proxies);
    let interrupted = match logs::interruptible() {
        Ok(interrupted) => interrupted,
        Err(error) => return fault(FAILED, format_args!("cannot wait for Ctrl-C: {error}")),
    };
    let mut watcher = Watcher::new(interrupted);
    let mut reader = match LogReader::open(options.clone(), move |progress| watcher.watch(progress)) {
        Ok(reader) => reader,
        Err(problem) => {
            return fault(MISTAKE, format_args!("{}\n  = help: {}", problem.what, problem.remedy));
        }
    };
    // Which fields a log has is known from its first requests.
    let (mut first, mut bytes) = (Vec::new(), 0);
    while first.len() < FIRST
        && bytes < FIRST_BYTES
        && let Some(request) = reader.next()
    {
        bytes += request.head.len();
        first.push(request.clone());
    }
    let mut notes = missing_fields::adapt(&mut plan, reader.known());
    if let Some(against) = &mut against {
        let others = missing_fields::adapt(against, reader.known()).into_iter();
        let others: Vec<_> = others.filter(|note| !notes.contains(note)).collect();
        notes.extend(others.iter().map(|note| format!("in the file of `--against`: {note}")));
    }
    let mut secret = [0; 16];
    if let Err(error) = getrandom(&mut secret, GetRandomFlags::empty()) {
        return fault(FAILED, format_args!("cannot get random bytes: {error}"));
    }
    let logged = Default::default();
    let mut replay = match Replay::new(&plan, against.as_ref(), &logged, secret) {
        Ok(replay) => replay,
        Err(error) => return fault(FAILED, format_args!("`max_keys` of [store]: {error}")),
    };
    let mut peaks = arguments.report.is_some().then(|| Peaks::new(plan.limits.len()));
    let mut watch = |request: &LoggedRequest, replayed: &ReplayedRequest<'_>| {
        peaks.iter_mut().for_each(|peaks| note_peaks(peaks, request, replayed));
    };
    first.iter().for_each(|request| replay.request(request, &mut watch));
    while let Some(request) = reader.next() {
        replay.request(request, &mut watch);
    }
    replay.finish(&mut watch);
    notes.extend(notes_on_consumers(&replay));
    let summary = logs::summary(&reader, &options, notes);
    drop(reader);
    let peaks = peaks.map(|peaks| limit_peaks(&plan, peaks)).unwrap_or_default();
    conclude(arguments, &replay, &summary, &peaks)
}

/// What the consumers in the log have come to.
fn notes_on_consumers(replay: &Replay<'_>) -> impl Iterator<Item = String> + use<> {
    let notes = [
        (
            replay.unknown_consumers(),
            "requests count as anonymous: no `[auth]` has a consumer of the name in the log",
        ),
        (replay.wrong_keys(), "requests get 401: no consumer of their route has the key in the log"),
    ];
    notes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, note)| format!("{} {note}", Grouped(count)))
}

/// The plan of the file, and that of the file that it is compared with.
fn plans(file: &Path, against: Option<&Path>) -> Result<(Plan, Option<Plan>), Report> {
    let plan = config::load(file)?.plan;
    let against = against.map(config::load).transpose()?;
    Ok((plan, against.map(|loaded| loaded.plan)))
}

fn note_peaks(peaks: &mut Peaks, request: &LoggedRequest, replayed: &ReplayedRequest<'_>) {
    for result in replayed.limits.iter().filter(|result| result.label != DecisionLabel::Exempt) {
        let Some(key_hash) = result.key_hash else { continue };
        #[expect(clippy::cast_possible_truncation, reason = "half of the hash tells millions of keys apart")]
        let key = key_hash.0 as u64;
        peaks.add(result.limit.0, key, request.time, result.cost.units(), String::new);
    }
}

/// The distribution of the peaks of each limit's keys, and what the limit admits in each window.
fn limit_peaks(plan: &Plan, peaks: Peaks) -> Vec<Value> {
    let studied = Suggestion::new(peaks, SuggestOptions::default()).proposals();
    let window = |limit: &Limit, window: &WindowReport| {
        let admits = limit.policies.iter().map(|policy| admitted_within(&policy.algorithm, window.seconds));
        json!({
            "seconds": window.seconds,
            "keys": window.histogram.iter().map(|bar| bar.ordinary + bar.outliers).sum::<usize>(),
            "bins": bins(window),
            "limit": admits.min_by(f64::total_cmp),
        })
    };
    let of_limit = |(limit, proposal): (&Limit, &Proposal)| {
        let windows = proposal.windows.iter().map(|one| window(limit, one)).collect::<Vec<_>>();
        json!({ "windows": windows })
    };
    plan.limits.iter().zip(&studied).map(of_limit).collect()
}

/// The units that a limit admits in a window that begins with an unused counter.
#[expect(clippy::cast_precision_loss, reason = "a line in a chart")]
fn admitted_within(algorithm: &Algorithm, seconds: f64) -> f64 {
    let (quota, window) = (algorithm.quota() as f64, algorithm.window().0 as f64 / 1e6);
    match algorithm {
        Algorithm::Concurrency(_) => f64::INFINITY,
        Algorithm::TokenBucket(_) | Algorithm::Gcra(_) | Algorithm::LeakyBucket(_) => {
            quota + quota * seconds / window
        }
        _ => quota * (seconds / window).max(1.0),
    }
}

fn conclude(arguments: &ReplayArguments, replay: &Replay<'_>, log: &LogSummary, peaks: &[Value]) -> ExitCode {
    let sums = replay.statistics();
    let shown = match arguments.json {
        true => show(&format!("{:#}", json::report(replay, log))),
        false if sums.requests == 0 => ExitCode::SUCCESS,
        false => show(&ReplayText { replay, log }.to_string()),
    };
    if sums.requests == 0 {
        return fault(FAILED, logs::no_request(log, "the log has no request"));
    }
    if let Some(file) = &arguments.report
        && let Err(error) = std::fs::write(file, page(&page_data(replay, log, peaks), &answer(sums)))
    {
        return fault(FAILED, format_args!("cannot write `{}`: {error}", file.display()));
    }
    let share = Share { part: sums.refused, whole: sums.requests };
    match arguments.fail_above {
        Some(most) if share.value() > most => fault(
            FAILED,
            format_args!("{share} of the requests would have been refused, more than `--fail-above`"),
        ),
        _ => shown,
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().map(|share| share / scale).ok();
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "write `0.1%`, or `0.001`".to_owned())
}
