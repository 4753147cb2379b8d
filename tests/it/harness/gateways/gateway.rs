//! The real binary as a child process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::output_lines::OutputLines;
use crate::harness::{Response, binary, eventually, get, send};

/// A running `tollgate`, killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    directory: tempfile::TempDir,
    stderr: OutputLines,
    stdout: OutputLines,
    addresses: Vec<SocketAddr>,
    decisions: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl Gateway {
    /// Starts the binary with `toml` and waits until it listens.
    ///
    /// Unless the file says otherwise, it listens on a free port of the loopback with two workers.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_with(toml, &[])
    }

    /// As [`Self::start`], with further arguments.
    pub(crate) fn start_with(toml: &str, arguments: &[&str]) -> Self {
        Self::start_in(toml, arguments, &[])
    }

    /// As [`Self::start_with`], with further environment variables.
    pub(crate) fn start_in(toml: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
        Self::start_by(toml, command)
    }

    /// As [`Self::start`], with a limit of open files.
    pub(crate) fn start_with_files(toml: &str, files: u64) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\""), binary()])
            .stdin(Stdio::null());
        Self::start_by(toml, shell)
    }

    /// Starts what `command` starts, with further arguments that name the file.
    pub(crate) fn start_by(toml: &str, command: Command) -> Self {
        Self::launch(toml, command, Stdio::piped())
    }

    /// As [`Self::start`], with its access log going there.
    pub(crate) fn start_logging_to(toml: &str, access_log: impl Into<Stdio>) -> Self {
        let mut command = Command::new(binary());
        command.stdin(Stdio::null());
        Self::launch(toml, command, access_log.into())
    }

    fn launch(toml: &str, mut command: Command, access_log: Stdio) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let toml = on_free_ports(toml);
        std::fs::write(directory.path().join("gateway.toml"), &toml).expect("the file can be written");
        command
            .arg("-c")
            .arg(directory.path().join("gateway.toml"))
            .env("TOLLGATE_ADMIN_TOKEN", "test-token")
            .env("NO_COLOR", "1")
            .stdout(access_log)
            .stderr(Stdio::piped());
        let (child, stdout, stderr) = spawn(&mut command);
        let (addresses, decisions, admin) = (Vec::new(), None, None);
        let mut gateway = Self { child, directory, stderr, stdout, addresses, decisions, admin };
        while !gateway.comes_to_listen(&toml) {
            (gateway.child, gateway.stdout, gateway.stderr) = spawn(&mut command);
        }
        gateway
    }

    /// Where it listens; the first of `server.listen`.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where it listens, in the order of `server.listen`.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it answers questions of others.
    pub(crate) fn decisions_addr(&self) -> SocketAddr {
        self.decisions.expect("the configuration has a [decisions] table")
    }

    /// Where the admin listener is.
    pub(crate) fn admin_addr(&self) -> SocketAddr {
        self.admin.expect("the configuration has an [admin] table")
    }

    /// `GET path` from the gateway.
    pub(crate) fn get(&self, path: &str) -> Response {
        get(self.addr(), path)
    }

    /// `GET path` from the admin listener.
    pub(crate) fn admin(&self, path: &str) -> Response {
        let host = self.admin_addr();
        send(host, format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
    }

    /// The value of a series in `/metrics`, 0 if it is absent. Every one of `labels` (`route="a"`) must be on its line.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.admin("/metrics").text();
        let matches = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        text.lines().filter(matches).filter_map(value).sum()
    }

    /// Asserts that [`Self::metric`] gives `expected`. It waits while the value is smaller, since the gateway counts a request a
    /// moment after its response.
    #[track_caller]
    pub(crate) fn has_counted(&self, name: &str, labels: &[&str], expected: u32) {
        let expected = f64::from(expected);
        let counted = eventually(&format!("{name} {labels:?} is {expected}"), || {
            let value = self.metric(name, labels);
            (value > expected - 0.5).then_some(value)
        });
        assert!(counted < expected + 0.5, "{name} {labels:?}: {counted}, expected {expected}");
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// The same without the pages of its program, which are read when they are first used: what it holds for its clients.
    pub(crate) fn anonymous_kib(&self) -> u64 {
        self.memory_kib("RssAnon:")
    }

    fn memory_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(field)).expect("Linux tells");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
    }

    /// Whether the process is alive.
    pub(crate) fn alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process takes signals");
    }

    /// The path of its configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.directory.path().join("gateway.toml")
    }

    /// Replaces the file at once, as editors do: written beside it, then renamed. Listeners keep their addresses.
    pub(crate) fn write_config(&self, toml: &str) {
        let beside = self.directory.path().join("gateway.toml.new");
        std::fs::write(&beside, on_free_ports(toml)).expect("the file can be written");
        std::fs::rename(beside, self.config_path()).expect("the file can be renamed");
    }

    /// Replaces the file, sends SIGHUP and waits until the program log has a further line with `word`.
    pub(crate) fn reload(&self, toml: &str, word: &str) {
        let before = self.stderr_lines().iter().filter(|line| line.contains(word)).count();
        self.write_config(toml);
        self.signal(Signal::HUP);
        eventually(&format!("a line with `{word}` on standard error"), || {
            (self.stderr_lines().iter().filter(|line| line.contains(word)).count() > before).then_some(())
        });
    }

    /// The program log so far.
    pub(crate) fn stderr_lines(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// The program log so far, as one text.
    pub(crate) fn stderr(&self) -> String {
        self.stderr_lines().join("\n")
    }

    /// Waits until the program log has these words: a response may arrive before the line about it.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, words: &str) {
        let what = format!("a line with `{words}` in the program log");
        eventually(&what, || self.stderr().contains(words).then_some(()));
    }

    /// The access log so far.
    pub(crate) fn stdout_lines(&self) -> Vec<String> {
        self.stdout.lines()
    }

    /// Waits for at least `count` records of the JSON access log and gives all there are, by the time of their requests: one
    /// worker's lines may be written before earlier ones of another.
    pub(crate) fn access_log(&self, count: usize) -> Vec<Value> {
        let mut records: Vec<Value> = eventually(&format!("{count} lines of access log"), || {
            let lines = self.stdout_lines();
            (lines.len() >= count).then(|| lines.iter().map(|line| json(line)).collect())
        });
        records.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
        records
    }

    /// Waits for the end of the process.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        eventually("the process to exit", || self.child.try_wait().expect("it can be asked"))
    }

    /// Waits until it listens. False: the port that TCP got in place of port 0 is another program's for UDP.
    fn comes_to_listen(&mut self, toml: &str) -> bool {
        let expected = expected_listeners(toml);
        let kinds = ["", "decisions ", "admin "];
        let found = eventually("the gateway to listen", || {
            let ended = self.child.try_wait().expect("it can be asked");
            let lines = self.stderr.lines();
            let is_taken = |line: &String| line.contains("cannot receive UDP") && line.contains("in use");
            if let Some(status) = ended {
                let may_move = toml.contains(":0\"") && lines.iter().any(is_taken);
                assert!(may_move, "tollgate ended with {status}:\n{}\n--- with\n{toml}", lines.join("\n"));
                return Some(None);
            }
            let found = kinds.map(|kind| {
                let words = format!("{kind}listening on ");
                lines.iter().flat_map(|line| addresses_after(line, &words)).collect::<Vec<_>>()
            });
            (found.each_ref().map(Vec::len) == expected).then_some(Some(found))
        });
        let Some([all, decisions, admin]) = found else { return false };
        self.decisions = decisions.first().copied();
        self.admin = admin.first().copied();
        let others = [self.decisions, self.admin];
        self.addresses = all.into_iter().filter(|address| !others.contains(&Some(*address))).collect();
        true
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- tollgate's standard error\n{}\n---", self.stderr());
        }
    }
}

/// A process, its standard output if that is a pipe, and its standard error.
fn spawn(command: &mut Command) -> (Child, OutputLines, OutputLines) {
    let mut child = command.spawn().expect("the binary starts");
    let stderr = OutputLines::of(child.stderr.take().expect("piped"));
    let stdout = child.stdout.take().map(OutputLines::of).unwrap_or_default();
    (child, stdout, stderr)
}

/// Fills in what every test wants: free ports, and as many workers as the tests' machine has at least.
fn on_free_ports(toml: &str) -> String {
    let has = |table: &str, key: &str| {
        let table = table.split("\n[").next().unwrap_or_default();
        table.lines().any(|line| line.split_once('=').is_some_and(|(name, _)| name.trim() == key))
    };
    let server = "[server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 2\n";
    match toml.split_once("[server]\n") {
        Some((_, after)) if has(after, "listen") => toml.to_owned(),
        Some((before, after)) if has(after, "workers") => {
            format!("{before}[server]\nlisten = [\"127.0.0.1:0\"]\n{after}")
        }
        Some((before, after)) => format!("{before}{server}{after}"),
        None => format!("{server}\n{toml}"),
    }
}

/// How many listeners the file has in all, for decisions, and for the admin API.
fn expected_listeners(toml: &str) -> [usize; 3] {
    let file: toml::Table = toml.parse().expect("a test's configuration is TOML");
    let listen = |table: &str| file.get(table).and_then(|table| table.get("listen"));
    let public = listen("server").and_then(toml::Value::as_array).map_or(1, Vec::len);
    let [decisions, admin] = ["decisions", "admin"].map(|table| usize::from(listen(table).is_some()));
    [public + decisions + admin, decisions, admin]
}

/// The addresses of one line, separated by commas, each perhaps as a URL or with `(TLS)` behind it.
fn addresses_after(line: &str, words: &str) -> Vec<SocketAddr> {
    let rest = line.split_once(words).map_or("", |(_, rest)| rest);
    let address = |item: &str| {
        let word = item.split_whitespace().next()?;
        word.trim_start_matches("https://")
            .trim_start_matches("http://")
            .trim_end_matches(['/', '"', '}'])
            .parse()
            .ok()
    };
    rest.split(", ").filter_map(address).collect()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault} in the access log: {line}"))
}
