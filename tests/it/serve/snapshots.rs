//! The counters in memory are written to a file, and a process that starts with it goes on with them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Backend, FakeClock, Gateway, binary, eventually, everything_to};

const DAY: i64 = 86_400;

/// A gateway's file of counters, in a folder of its own.
struct Counters {
    folder: tempfile::TempDir,
    backend: Backend,
}

impl Counters {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), backend: Backend::ok() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("counters")
    }

    /// A gateway that admits ten requests a month, written as often, with further lines of `[store]`.
    fn toml(&self, interval: &str, store: &str) -> String {
        let rest = format!(
            "limits = [\"month\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nsnapshot = \"{}\"\nsnapshot_interval = \"{interval}\"\n{store}\
             [limits.month]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"10/month\"\n",
            self.file().display()
        );
        everything_to(&self.backend, &rest)
    }

    fn start(&self, interval: &str) -> Gateway {
        Gateway::start(&self.toml(interval, ""))
    }
}

fn passed(gateway: &Gateway, requests: usize) -> usize {
    (0..requests).filter(|_| gateway.get("/").status == 200).count()
}

/// Waits until a snapshot is written that began after this call.
fn written(gateway: &Gateway, result: &str) {
    let label = format!("result=\"{result}\"");
    let count = || gateway.metric("tollgate_snapshots_total", &[&label]);
    let before = count();
    eventually("two snapshots", || (count() > before + 1.5).then_some(()));
}

fn kill(mut gateway: Gateway) {
    gateway.signal(Signal::KILL);
    gateway.wait_for_exit();
}

fn stop(mut gateway: Gateway) {
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn counters_outlive_a_crash_but_for_what_came_after_the_last_snapshot() {
    let counters = Counters::new();
    let gateway = counters.start("1s");
    assert_eq!(passed(&gateway, 4), 4);
    written(&gateway, "success");
    kill(gateway);
    let gateway = counters.start("1h");
    gateway.wait_for_log("count on");
    assert_eq!(passed(&gateway, 4), 4);
    kill(gateway);
    let gateway = counters.start("1h");
    assert_eq!(passed(&gateway, 12), 6, "the last four are lost with the process");
    stop(gateway);
}

#[test]
fn a_planned_restart_loses_nothing() {
    let counters = Counters::new();
    let mut left = 10;
    for requests in [1, 2, 3, 1] {
        let gateway = counters.start("1h");
        assert_eq!(passed(&gateway, requests), requests);
        left -= requests;
        stop(gateway);
    }
    // As by a reload: what is used stays used.
    let gateway = Gateway::start(&counters.toml("1h", "").replace("10/month", "12/month"));
    assert_eq!(passed(&gateway, 12), left + 2);
    stop(gateway);
}

#[test]
fn a_file_that_cannot_be_used_is_logged_and_counters_begin_at_0() {
    let counters = Counters::new();
    let gateway = counters.start("1h");
    assert_eq!(passed(&gateway, 10), 10);
    stop(gateway);
    let good = fs::read(counters.file()).expect("it is written");
    let mut changed = good.clone();
    changed[good.len() / 2] ^= 1;
    let cut = good[..good.len() - 1].to_vec();
    for (bytes, store, words) in [
        (changed, "", "it is damaged"),
        (cut, "", "it is damaged"),
        (Vec::new(), "", "it is damaged"),
        (good.clone(), "max_keys = 10\n", "it was written with another `max_keys` in [store]"),
    ] {
        fs::write(counters.file(), bytes).expect("it can be written");
        let gateway = Gateway::start(&counters.toml("1h", store));
        gateway.wait_for_log(&format!("are not used, and begin at 0: {words}"));
        assert_eq!(passed(&gateway, 12), 10);
        kill(gateway);
    }
    fs::write(counters.file(), good).expect("it can be written");
    let gateway = counters.start("1h");
    assert_eq!(passed(&gateway, 1), 0);
}

#[test]
fn a_clock_that_is_set_between_two_processes_refills_nothing_that_it_should_not() {
    let Some(clock) = FakeClock::ahead_by(0) else { return };
    let counters = Counters::new();
    let start = || clock.gateway(&counters.toml("1h", ""), &[]);
    let gateway = start();
    assert_eq!(passed(&gateway, 7), 7);
    stop(gateway);
    // A little back: no time has passed.
    clock.step_to(-20);
    let gateway = start();
    gateway.wait_for_log("count on");
    assert_eq!(passed(&gateway, 2), 2);
    stop(gateway);
    // A day back: the file is of another time. It stays, until the process writes its own.
    clock.step_to(-DAY);
    let gateway = start();
    gateway.wait_for_log("it is from the future");
    kill(gateway);
    clock.step_to(0);
    let gateway = start();
    assert_eq!(passed(&gateway, 2), 1);
    stop(gateway);
    // The next month.
    clock.step_to(32 * DAY);
    let gateway = start();
    gateway.wait_for_log("count on");
    assert_eq!(passed(&gateway, 12), 10);
}

#[test]
fn a_disk_that_takes_no_more_leaves_the_last_snapshot_and_the_traffic_alone() {
    let counters = Counters::new();
    let gateway = counters.start("1h");
    assert_eq!(passed(&gateway, 4), 4);
    stop(gateway);
    let good = fs::read(counters.file()).expect("it is written");
    // No file may get a byte.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ && ulimit -f 0 && exec \"$0\" \"$@\"", binary()]).stdin(Stdio::null());
    let gateway = Gateway::start_by(&counters.toml("1s", ""), shell);
    written(&gateway, "failure");
    assert_eq!(fs::read(counters.file()).expect("it is there"), good);
    assert_eq!(fs::read_dir(counters.folder.path()).expect("a folder").count(), 1, "nothing else is left");
    assert_eq!(passed(&gateway, 2), 2);
    gateway.wait_for_log("cannot be written");
    let log = gateway.stderr();
    assert_eq!(log.matches("cannot be written").count(), 1, "{log}");
    stop(gateway);
    let gateway = counters.start("1h");
    assert_eq!(passed(&gateway, 12), 6);
}

#[test]
fn a_process_that_takes_over_owns_the_file() {
    let counters = Counters::new();
    let mut gateway = counters.start("1s");
    let next = Gateway::start_with(
        &counters.toml("1s", &format!("[server]\nlisten = [\"{}\"]\nworkers = 2\n", gateway.addr())),
        &["--takeover"],
    );
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    assert_eq!(passed(&next, 3), 3);
    stop(next);
    let gateway = counters.start("1s");
    assert_eq!(passed(&gateway, 12), 7);
}
