//! The metrics of the process, under the names that all Prometheus clients use.
//!
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>. They are read from `/proc` at each
//! scrape; unreadable ones are left out.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::exposition::{Exposition, MetricKind};

/// The process's series.
pub(super) fn process(page: &mut Exposition) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second();
    if let Some(used) = cpu_ticks(&stat) {
        let name = "process_cpu_seconds_total";
        page.family(name, MetricKind::Counter, "Total user and system CPU time spent in seconds.");
        page.sample(name, &[], Seconds::of(used, ticks));
    }
    if let (Some(since_boot), Some(boot)) = (start_ticks(&stat), boot_seconds()) {
        let name = "process_start_time_seconds";
        page.family(name, MetricKind::Gauge, "Start time of the process since the Unix epoch in seconds.");
        page.sample(name, &[], Seconds::of(since_boot, ticks).after(boot));
    }
    if let Some(bytes) = resident_bytes() {
        page.single("process_resident_memory_bytes", MetricKind::Gauge, "Memory in use, in bytes.", bytes);
    }
    if let Some(open) = open_descriptors() {
        page.single("process_open_fds", MetricKind::Gauge, "File descriptors open now.", open);
    }
    if let Some(max) = getrlimit(Resource::Nofile).current {
        page.single("process_max_fds", MetricKind::Gauge, "File descriptors that may be open.", max);
    }
}

/// Seconds with two digits after the point: a tick is a hundredth.
struct Seconds {
    whole: u64,
    hundredths: u64,
}

impl Seconds {
    fn of(ticks: u64, ticks_per_second: u64) -> Self {
        let per_second = ticks_per_second.max(1);
        Self { whole: ticks / per_second, hundredths: ticks % per_second * 100 / per_second }
    }

    fn after(self, seconds: u64) -> Self {
        Self { whole: self.whole.saturating_add(seconds), ..self }
    }
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.whole, self.hundredths)
    }
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
        assert_eq!(Seconds::of(301, 100).to_string(), "3.01");
        assert_eq!(Seconds::of(98_765, 1024).after(1_700_000_000).to_string(), "1700000096.45");
    }
}
