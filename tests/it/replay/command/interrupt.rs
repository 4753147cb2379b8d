//! Ctrl-C while a log goes on.

use std::io::Write as _;
use std::process::{Child, Output};

use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, error, gzip, lines, status, text};
use crate::harness::eventually;

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
}

/// Writes to a program, and interrupts it when it has read everything. Its standard input stays open.
fn run(arguments: &[&str], input: &[u8]) -> Output {
    let folder = Folder::with_bucket();
    let mut child = folder.command(arguments).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads");
    eventually("everything is read", || (rustix::io::ioctl_fionread(&stdin) == Ok(0)).then_some(()));
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    output
}

#[test]
fn what_is_known_so_far_is_printed() {
    let text_of_log = lines(&[0, 0, 0, 1_000], 1, "");
    for input in [text_of_log.as_bytes().to_vec(), gzip(text_of_log.as_bytes())] {
        let output = run(&["replay", "-", "--map", super::MAP], &input);
        let shown = text(&output);
        assert_eq!(status(&output), 0, "{}", error(&output));
        assert!(shown.starts_with("1 of 4 requests (25.0 %) would have been refused"), "{shown}");
        assert!(shown.ends_with("\nInterrupted: this is what was known so far.\n"), "{shown}");
    }
    let output = run(&["suggest", "-", "--map", super::MAP], text_of_log.as_bytes());
    assert!(text(&output).contains("\n# Interrupted: this is what was known so far.\n"), "{}", text(&output));
}

#[test]
fn nothing_so_far_is_said_to_be_nothing() {
    for command in ["replay", "suggest"] {
        let output = run(&[command, "-", "--map", super::MAP], b"{\"t\":");
        assert_eq!(status(&output), 1);
        assert_eq!(error(&output), "error: interrupted before the first request\n");
    }
}
