//! Usage outlives a planned restart and upgrades, and says what a crash has lost.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{comes_to, consumers, plan, settled, stream, sums, usage};
use crate::harness::metered::parrot;
use crate::harness::upgraded::Upgraded;
use crate::harness::{Backend, Client, Gateway, binary, eventually, free_address};

struct Site {
    folder: tempfile::TempDir,
    backend: Backend,
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), backend: parrot() }
    }

    fn toml(&self, interval: &str, rest: &str) -> String {
        let snapshot = self.folder.path().join("counters");
        let rest = format!(
            "[store]\nsnapshot = \"{}\"\nsnapshot_interval = \"{interval}\"\n{rest}",
            snapshot.display()
        );
        plan(&self.backend, &consumers(self.folder.path(), &["anna", "bob"]), 1_000_000, "", &rest)
    }

    fn start(&self, interval: &str) -> Gateway {
        Gateway::start(&self.toml(interval, "[admin]\nlisten = \"127.0.0.1:0\"\n"))
    }
}

fn end(mut gateway: Gateway, signal: Signal) {
    gateway.signal(signal);
    gateway.wait_for_exit();
}

#[test]
fn a_planned_restart_loses_nothing() {
    let site = Site::new();
    let mut sum = 0;
    for round in 1..4 {
        let gateway = site.start("1h");
        for units in [30, 250] {
            assert_eq!(settled(&gateway, Some("anna"), units), 200);
            sum += i64::from(units);
        }
        comes_to(&gateway, &[("anna", sum, 2 * round)]);
        assert_eq!(usage(&gateway, "")["incomplete_since"], Value::Null);
        end(gateway, Signal::TERM);
    }
}

#[test]
fn a_crash_loses_what_came_after_the_last_snapshot_and_says_so() {
    let site = Site::new();
    let gateway = site.start("1h");
    assert_eq!(settled(&gateway, Some("anna"), 30), 200);
    comes_to(&gateway, &[("anna", 30, 1)]);
    let since = usage(&gateway, "")["since"].clone();
    end(gateway, Signal::TERM);

    // It has written nothing since it started, and the file was complete before.
    let gateway = site.start("1h");
    assert_eq!(settled(&gateway, Some("anna"), 5), 200);
    comes_to(&gateway, &[("anna", 35, 2)]);
    end(gateway, Signal::KILL);
    let gateway = site.start("1s");
    let seen = usage(&gateway, "");
    assert_eq!(sums(&seen), super::expected(&[("anna", 30, 1)]));
    assert_eq!(seen["since"], since);
    let incomplete_since = seen["incomplete_since"].as_str().expect("a crash").to_owned();
    assert!(*since.as_str().expect("a time") < *incomplete_since);

    // A later crash is told of by the first one, also after a planned restart.
    assert_eq!(settled(&gateway, Some("bob"), 8), 200);
    let count = || gateway.metric("tollgate_snapshots_total", &["result=\"success\""]);
    let before = count();
    eventually("two snapshots", || (count() > before + 1.5).then_some(()));
    end(gateway, Signal::KILL);
    end(site.start("1s"), Signal::TERM);
    let gateway = site.start("1s");
    comes_to(&gateway, &[("anna", 30, 1), ("bob", 8, 1)]);
    assert_eq!(usage(&gateway, "")["incomplete_since"], *incomplete_since);
}

/// A request that is cut off at the end costs what it has reserved, and its difference is missing.
#[test]
fn requests_that_the_end_cuts_off_are_told_of() {
    let site = Site::new();
    let server = "[server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 2\ndrain_timeout = \"100ms\"\n";
    let gateway = Gateway::start(&site.toml("1h", &format!("{server}[admin]\nlisten = \"127.0.0.1:0\"\n")));
    let _open = stream(&gateway, "anna");
    comes_to(&gateway, &[("anna", 100, 1)]);
    end(gateway, Signal::TERM);
    let gateway = site.start("1h");
    comes_to(&gateway, &[("anna", 100, 1)]);
    assert!(usage(&gateway, "")["incomplete_since"].is_string());
}

/// Requests that end in a process before are counted once, whichever process has the counters by then.
#[test]
fn two_upgrades_with_open_streams_count_each_request_once() {
    let site = Site::new();
    let toml = site.toml(
        "1h",
        &format!(
            "[server]\nlisten = [\"{}\"]\nworkers = 2\n[admin]\nlisten = \"{}\"\n",
            free_address(),
            free_address()
        ),
    );
    let mut command = Command::new(binary());
    command.arg("run").stdin(Stdio::null());
    let mut gateway = Upgraded::new(Gateway::start_by(&toml, command));
    let mut streams: Vec<Client> = (0..25).map(|_| stream(&gateway.gateway, "anna")).collect();
    comes_to(&gateway.gateway, &[("anna", 2_500, 25)]);
    // Of a connection that sends its request after the hand-over, to the process before.
    let mut silent = Client::connect(gateway.gateway.addr());
    gateway.hand_over();
    silent.write(
        "POST /0/ HTTP/1.1\r\nhost: test\r\nx-key: secret-key-bob\r\ncontent-length: 0\r\nx-then: close\r\n\r\n",
    );
    streams.extend((0..25).map(|_| stream(&gateway.gateway, "anna")));
    assert_eq!(settled(&gateway.gateway, Some("bob"), 3), 200);
    eventually("all streams to be open", || {
        (usage(&gateway.gateway, "")["total"]["requests"] == 52).then_some(())
    });
    gateway.hand_over();
    assert_eq!(settled(&gateway.gateway, Some("bob"), 4), 200);
    site.backend.open_gate();
    for stream in &mut streams {
        stream.read().expect(200);
    }
    // The backend has answered the silent one with nothing: it costs what it has reserved.
    silent.read().expect(502);
    comes_to(&gateway.gateway, &[("anna", 50 * 70, 50), ("bob", 107, 3)]);
    gateway.wait_for(2, "stopped");
    comes_to(&gateway.gateway, &[("anna", 50 * 70, 50), ("bob", 107, 3)]);
    assert_eq!(usage(&gateway.gateway, "")["incomplete_since"], Value::Null);
}
