//! The process: its configuration, logs and traces, and what the system says of it.
//!
//! The families `process_*` have the names that all Prometheus clients use:
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>. They are read from `/proc` at each
//! scrape; unreadable ones are left out.

use std::fs;
use std::sync::atomic::Ordering;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};

use super::family::families;
use super::{Metrics, ProcessCounts};
use crate::acme::live::LiveSource;
use crate::clock::Clock;
use crate::plan::Plan;
use crate::telemetry::trace::SpanCounts;

families! {
    // `stat`: the text of `/proc/self/stat`.
    from (metrics: &Metrics, plan: &Plan, counts: ProcessCounts, spans: Option<&SpanCounts>, stat: &str)

    Counter tollgate_config_reloads_total{result} "Reloads of the configuration."
        = values([
            (["success"], metrics.reloads_succeeded.load(Ordering::Relaxed)),
            (["failure"], metrics.reloads_failed.load(Ordering::Relaxed)),
        ]);
    Gauge tollgate_config_last_reload_successful{} "Whether the last reload succeeded."
        = value(Some(u8::from(!metrics.last_reload_failed.load(Ordering::Relaxed))));
    Counter tollgate_snapshots_total{result} "Writes of the counters to the file of `snapshot`."
        = values([
            (["success"], metrics.snapshots_written.load(Ordering::Relaxed)),
            (["failure"], metrics.snapshots_failed.load(Ordering::Relaxed)),
        ]);
    Gauge tollgate_certificate_expiry_timestamp_seconds{}
        "When the first of the certificates that clients are shown expires, in seconds since 1970."
        = value(plan.server.tls.as_ref().and_then(|tls| tls.first_expiry()).map(|expiry| expiry.seconds()));
    Counter tollgate_acme_orders_total{result} "Orders of certificates that have ended."
        = values(plan.acme.iter().flat_map(|_| [
            (["issued"], metrics.orders_issued.load(Ordering::Relaxed)),
            (["failed"], metrics.orders_failed.load(Ordering::Relaxed)),
        ]));
    Gauge tollgate_acme_certificates{source}
        "Certificates of `acme` names, by what is shown for them: one from the authority, or a self-signed one."
        = values(plan.acme.iter().flat_map(|_| acme_certificates(plan)));
    Gauge tollgate_acme_lifetime_left_ratio{}
        "The smallest share of its lifetime that a certificate from the authority has left, 0 to 1."
        = value(lifetime_left(plan));
    Gauge tollgate_build_info{version} "Always 1; the label is the version."
        = values([([env!("CARGO_PKG_VERSION")], 1)]);
    Counter tollgate_access_log_dropped_total{}
        "Access records dropped because the queue was full or the output failed."
        = value(Some(counts.access_log_dropped));
    Gauge tollgate_buffered_bytes{} "Bytes held by requests that are not decided yet."
        = value(Some(counts.buffered_bytes));
    Counter tollgate_buffer_evictions_total{}
        "Undecided requests refused because all together held more than `max_buffered`."
        = value(Some(counts.buffer_evictions));
    Counter tollgate_clock_steps_total{} "Steps of the wall clock by more than a second."
        = value(Some(metrics.clock_steps.load(Ordering::Relaxed)));
    Counter tollgate_trace_exports_total{result} "Batches of spans exported to the collector, by result."
        = values(spans.into_iter().flat_map(|spans| [(["success"], spans.succeeded()), (["failure"], spans.failed())]));
    Counter tollgate_trace_spans_dropped_total{} "Spans dropped because the queue was full or an export failed."
        = value(spans.map(SpanCounts::dropped));
    Counter process_cpu_seconds_total{} "Total user and system CPU time spent in seconds."
        = value(cpu_ticks(stat).map(|ticks| seconds(ticks, clock_ticks_per_second(), 0)));
    Gauge process_start_time_seconds{} "Start time of the process since the Unix epoch in seconds."
        = value(start_ticks(stat).zip(boot_seconds()).map(|(ticks, boot)| {
            seconds(ticks, clock_ticks_per_second(), boot)
        }));
    Gauge process_resident_memory_bytes{} "Memory in use, in bytes." = value(resident_bytes());
    Gauge process_open_fds{} "File descriptors open now." = value(open_descriptors());
    Gauge process_max_fds{} "File descriptors that may be open." = value(getrlimit(Resource::Nofile).current);
}

/// The number of certificates from the authority, and of self-signed ones in their place.
fn acme_certificates(plan: &Plan) -> [([&'static str; 1], usize); 2] {
    let live = plan.server.tls.iter().flat_map(|tls| tls.acme()).filter_map(|one| one.live());
    let (own, issued): (Vec<_>, Vec<_>) =
        live.partition(|live| live.status().source == LiveSource::SelfSigned);
    [(["acme"], issued.len()), (["self-signed"], own.len())]
}

fn lifetime_left(plan: &Plan) -> Option<String> {
    let now = Clock::system().wall_now();
    let live = plan.server.tls.iter().flat_map(|tls| tls.acme()).filter_map(|one| one.live());
    let issued = live.filter(|live| live.status().source != LiveSource::SelfSigned);
    let left = issued.map(|live| live.validity().left(now)).min_by(f64::total_cmp)?;
    Some(format!("{left:.4}"))
}

/// The text of `/proc/self/stat`; empty if it is unreadable.
pub(super) fn stat() -> String {
    fs::read_to_string("/proc/self/stat").unwrap_or_default()
}

/// Seconds with two digits after the point, as a tick is a hundredth; after this many.
fn seconds(ticks: u64, ticks_per_second: u64, after: u64) -> String {
    let per_second = ticks_per_second.max(1);
    format!("{}.{:02}", after.saturating_add(ticks / per_second), ticks % per_second * 100 / per_second)
}

/// The fields of `/proc/self/stat` after the name, which may contain blanks and brackets; the first is the third of
/// proc(5).
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

/// `utime` and `stime`, 14 and 15 of proc(5).
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut times = fields(stat).skip(11).map(|ticks| ticks.parse::<u64>().ok());
    times.next()??.checked_add(times.next()??)
}

/// `starttime`, 22 of proc(5).
fn start_ticks(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}

fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Since Linux 6.2 the size of the directory is their number; before, and in some sandboxes, it is 0.
fn open_descriptors() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        // Reading the directory takes a descriptor itself.
        0 => fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1)),
        known => Some(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 250 51 6 7 20 0 4 0 98765 1 2";

    #[test]
    fn a_name_with_brackets_and_blanks_moves_nothing() {
        assert_eq!((cpu_ticks(STAT), start_ticks(STAT)), (Some(301), Some(98_765)));
        assert_eq!((cpu_ticks(""), start_ticks("7 (a) S 1")), (None, None));
    }

    #[test]
    fn ticks_are_told_as_seconds() {
        assert_eq!(seconds(301, 100, 0), "3.01");
        assert_eq!(seconds(98_765, 1024, 1_700_000_000), "1700000096.45");
    }
}
