//! The numbers behind a proposal, for a report.

use serde::Serialize;

use super::candidate::Candidate;
use super::group::GroupStudy;
use super::outliers::Gap;

use super::peaks::KeySummary;
use super::windows::WINDOWS;
use crate::limit::units::Micros;
use crate::telemetry::terminal::safe_text;

/// The number of characters of a name that are shown.
const MAX_NAME: usize = 80;

/// The peaks in one window.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    /// The window as the period of a rate: `min`.
    pub window: &'static str,
    /// The length in seconds.
    pub seconds: f64,
    /// The peak that the share of keys to be kept does not exceed, in units.
    pub kept_peak: u32,
    /// The largest peak of an ordinary key, in units.
    pub ordinary_peak: u32,
    /// The distribution of the peaks of all keys: bars from 1 unit on, each twice as wide as the one before.
    pub histogram: Vec<PeakBar>,
    /// The units that the proposed limit has for this window; `None`: it has no rate for it.
    pub limit: Option<u32>,
}

/// The keys with a peak from `from` to below 2 × `from` units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeakBar {
    /// The smallest peak.
    pub from: u64,
    /// The number of ordinary keys.
    pub ordinary: usize,
    /// The number of outliers.
    pub outliers: usize,
}

/// A gap in the distribution of peaks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GapReport {
    /// The window as the period of a rate.
    pub window: &'static str,
    /// The largest peak below, in units.
    pub below: u32,
    /// The smallest peak above, in units.
    pub above: u32,
    /// The number of keys above, without those of earlier gaps.
    pub keys: usize,
}

/// A key beyond a gap.
#[derive(Clone, Debug, Serialize)]
pub struct OutlierReport {
    /// The key's name.
    pub name: String,
    /// All units; requests, where each costs one.
    pub units: u32,
    /// The window in which the key stands out most, as the period of a rate.
    pub window: &'static str,
    /// The peak in that window, in units.
    pub peak: u32,
    /// Whether the limit has to refuse the key. `false`: it is near ordinary keys.
    pub is_target: bool,
    /// Whether all of its responses were 401 or 403.
    pub is_denied: bool,
    /// The peaks in the windows of the report, in units.
    pub peaks: Vec<u32>,
}

/// What a limit does to the requests that it was proposed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusalCounts {
    /// Requests of ordinary keys that are refused.
    pub ordinary_requests: u64,
    /// Ordinary keys of which a request is refused.
    pub ordinary_keys: usize,
    /// Requests of outliers that are refused.
    pub outlier_requests: u64,
    /// All requests of outliers.
    pub outlier_requests_seen: u64,
    /// Outliers of which a request is refused.
    pub outlier_keys: usize,
}

/// A span in seconds.
#[allow(clippy::cast_precision_loss, reason = "a span is below 2^53 µs")]
pub(super) fn seconds(span: Micros) -> f64 {
    span.0 as f64 / 1e6
}

pub(super) fn windows(group: &GroupStudy, candidate: &Candidate) -> Vec<WindowReport> {
    let windows = WINDOWS.iter().enumerate().take(group.judged);
    let report = windows.map(|(index, window)| WindowReport {
        window: window.name,
        seconds: window.seconds(),
        kept_peak: group.peaks.kept(index, candidate.rates.len()),
        ordinary_peak: group.peaks.max(index),
        histogram: histogram(&group.ordinary, &group.outliers, index),
        limit: candidate.rates.iter().find(|rate| rate.window == index).map(|rate| rate.count),
    });
    report.collect()
}

pub(super) fn gap(gap: &Gap) -> GapReport {
    let window = WINDOWS.get(gap.window).map_or("", |window| window.name);
    GapReport { window, below: gap.below, above: gap.above, keys: gap.keys }
}

pub(super) fn outliers(group: &GroupStudy) -> Vec<OutlierReport> {
    let report = group.outliers.iter().zip(&group.outlier_names).enumerate().map(|(at, (key, name))| {
        let (window, _) = group.peaks.ratio(key, group.judged);
        OutlierReport {
            name: name.clone(),
            units: key.units,
            window: WINDOWS.get(window).map_or("", |window| window.name),
            peak: key.peak(window),
            is_target: at < group.targets,
            is_denied: key.is_denied,
            peaks: key.peaks.iter().take(group.judged).copied().collect(),
        }
    });
    report.collect()
}

fn histogram(ordinary: &[KeySummary], outliers: &[KeySummary], window: usize) -> Vec<PeakBar> {
    let mut bars: Vec<PeakBar> =
        (0..u32::BITS).map(|bit| PeakBar { from: 1 << bit, ordinary: 0, outliers: 0 }).collect();
    let bar = |key: &KeySummary| usize::try_from(key.peak(window).max(1).ilog2()).unwrap_or(0);
    for key in ordinary {
        bars.get_mut(bar(key)).into_iter().for_each(|bar| bar.ordinary += 1);
    }
    for key in outliers {
        bars.get_mut(bar(key)).into_iter().for_each(|bar| bar.outliers += 1);
    }
    let used = bars.iter().rposition(|bar| bar.ordinary + bar.outliers > 0).map_or(0, |last| last + 1);
    bars.truncate(used);
    bars
}

/// The name of a key, fit for a comment and for a terminal: on one line, with other control characters escaped, and cut.
pub(super) fn shown(name: &str) -> String {
    safe_text(name, MAX_NAME)
}
