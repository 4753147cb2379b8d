//! A gateway that is upgraded by SIGUSR2: each new process is the child of the one before.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Gateway, eventually};

/// A gateway, and the process that serves now; both are killed when dropped.
pub(crate) struct Upgraded {
    /// The first process. Its log is that of all that follow.
    pub(crate) gateway: Gateway,
    process: u32,
}

impl Upgraded {
    pub(crate) fn new(gateway: Gateway) -> Self {
        let process = gateway.pid();
        Self { gateway, process }
    }

    /// The process that serves now.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Sends SIGUSR2 and waits until another process has taken over and the one before has ended.
    pub(crate) fn upgrade(&mut self) {
        let ended = self.lines("stopped").len();
        self.hand_over();
        eventually("the process before to end", || (self.lines("stopped").len() > ended).then_some(()));
    }

    /// Sends SIGUSR2 and waits until another process has taken over.
    pub(crate) fn hand_over(&mut self) {
        let confirmed = self.lines("took over from process").len();
        self.signal(Signal::USR2);
        let words = "has taken over: draining";
        self.process = eventually("another process to take over", || {
            let processes = self.lines(words);
            let latest = processes.last().and_then(|line| process_in(line))?;
            (latest != self.process).then_some(latest)
        });
        // From then on the admin listener is served by that process alone.
        eventually("the takeover to be confirmed", || {
            (self.lines("took over from process").len() > confirmed).then_some(())
        });
    }

    /// Sends a signal to the process that serves now.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.process, signal);
    }

    /// Waits until the log has `count` lines with `words`, and gives the last of them.
    pub(crate) fn wait_for(&self, count: usize, words: &str) -> String {
        eventually(&format!("{count} lines with `{words}`"), || {
            let lines = self.lines(words);
            (lines.len() >= count).then(|| lines.last().cloned())?
        })
    }

    /// A file of the present process in `/proc`.
    pub(crate) fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process))
    }

    /// The processes that the present one has started and not reaped.
    pub(crate) fn children(&self) -> String {
        let list = self.proc(&format!("task/{}/children", self.process));
        std::fs::read_to_string(list).expect("the process runs")
    }

    fn lines(&self, words: &str) -> Vec<String> {
        self.gateway.stderr_lines().into_iter().filter(|line| line.contains(words)).collect()
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        if self.process != self.gateway.pid() {
            send(self.process, Signal::KILL);
        }
    }
}

/// The number after the word `process`.
pub(crate) fn process_in(line: &str) -> Option<u32> {
    line.split_once("process ")?.1.split_whitespace().next()?.parse().ok()
}

/// Sends a signal to a process, which may be gone.
pub(crate) fn send(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(process, signal).ok();
}
