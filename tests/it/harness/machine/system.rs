//! A copy of this machine with a systemd of its own, in which packages are installed. The machine keeps none of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::harness::{eventually, tools};

/// The search path inside.
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// The copy, which ends when this is dropped, or when this process ends.
pub(crate) struct System {
    outside: Child,
    /// The id of its first process.
    first: String,
    _directory: tempfile::TempDir,
}

impl System {
    /// Starts the copy. `None`, which is printed, if `TOLLGATE_TEST_WITHOUT` names `namespaces`.
    #[track_caller]
    pub(crate) fn start() -> Option<Self> {
        if tools::is_left_out("namespaces") {
            return None;
        }
        assert!(
            rustix::process::geteuid().is_root(),
            "needs root, for namespaces; a machine that cannot have them: TOLLGATE_TEST_WITHOUT=namespaces"
        );
        for program in ["nsenter", "ip", "systemd-analyze"] {
            tools::needed(program);
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/harness/machine/system.sh");
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", script]).arg(directory.path());
        let mut outside = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut first = String::new();
        let output = outside.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut first).expect("its output can be read");
        let system = Self { outside, first: first.trim().to_owned(), _directory: directory };
        assert!(!system.first.is_empty(), "the copy does not start; see above");
        eventually("its systemd to run", || {
            // Degraded: a unit of this machine has failed there.
            let state = system.run(&["systemctl", "is-system-running"]).1;
            ["running", "degraded"].contains(&state.trim()).then_some(())
        });
        Some(system)
    }

    /// Runs a command inside: whether it succeeds, and what it prints.
    pub(crate) fn run(&self, command: &[&str]) -> (bool, String) {
        let mut nsenter = tools::needed("nsenter");
        nsenter.args(["-t", &self.first, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "env", "-i", PATH]);
        nsenter.args(["LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]).args(command);
        let output = nsenter.stdin(Stdio::null()).output().expect("it starts");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    /// As [`Self::run`], of a command that succeeds.
    #[track_caller]
    pub(crate) fn good(&self, command: &[&str]) -> String {
        let (good, text) = self.run(command);
        assert!(good, "{command:?}: {text}");
        text.trim_end().to_owned()
    }

    /// A path inside, as this process reaches it.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.first))
    }

    /// Moves the calling thread to the copy's network, and with it all threads that it starts from now on.
    pub(crate) fn enter_network(&self) {
        let network = File::open(format!("/proc/{}/ns/net", self.first)).expect("it runs");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).expect("root may");
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // The end of its standard input ends the script, and with it the copy.
        drop(self.outside.stdin.take());
        self.outside.wait().ok();
    }
}
