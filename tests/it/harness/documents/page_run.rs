//! A page of the documentation in use: its files in a directory of their own, the gateway that it configures, the
//! servers that it is about, and its sessions. Ports of the page are replaced by free ones, wherever they stand.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::page_session::{commands, lines_match, run};
use super::pages::{Block, pages, root};
use crate::harness::{binary, eventually, free_address, tools};

/// The commands that are run beside the servers of the page.
const SESSION: &str = "text session of this page";
/// Where a gateway listens whose file does not say it.
const DEFAULT_PORT: u16 = 8080;
/// The longest time until a log has a line, on a busy machine.
const LOG_DELAY: Duration = Duration::from_secs(5);
/// Holds the id of the gateway's process.
const PID: &str = "gateway.pid";
/// Attempts: a window may end between two commands, and the machine may be busy.
const ATTEMPTS: usize = 3;

/// One reader of a page. Its processes are killed when it is dropped.
#[derive(Debug)]
pub(crate) struct PageRun {
    blocks: Vec<Block>,
    directory: tempfile::TempDir,
    ports: BTreeMap<String, u16>,
    environment: Vec<(&'static str, String)>,
    children: Vec<Child>,
    /// The index of the gateway that was started last.
    last_gateway: usize,
}

/// Follows the page until nothing differs from what it shows. `follow` starts what runs beside the sessions, and
/// returns what is wrong.
#[track_caller]
pub(crate) fn follow_page(path: &str, follow: impl Fn(&mut PageRun) -> Vec<String>) {
    let mut faults = Vec::new();
    for _ in 0..ATTEMPTS {
        faults = follow(&mut PageRun::new(path));
        if faults.is_empty() {
            return;
        }
    }
    panic!("\n{}", faults.join("\n\n"));
}

impl PageRun {
    fn new(path: &str) -> Self {
        let page = pages().into_iter().find(|page| page.path == path);
        let mut blocks = page.unwrap_or_else(|| panic!("there is no page {path}")).blocks();
        let shown = blocks.iter().flat_map(|block| ports_in(&block.text)).chain([DEFAULT_PORT.to_string()]);
        let ports: BTreeMap<_, _> =
            shown.collect::<Vec<_>>().into_iter().map(|port| (port, free_address().port())).collect();
        for block in &mut blocks {
            // A reserved port is free at the loopback address only.
            block.text = with_ports(&block.text, &ports).replace("0.0.0.0:", "127.0.0.1:");
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (environment, children) = (Vec::new(), Vec::new());
        let run = Self { blocks, directory, ports, environment, children, last_gateway: 0 };
        run.write_files();
        run
    }

    fn write_files(&self) {
        for block in &self.blocks {
            if let Some(file) = block.info.strip_prefix("text saved as ") {
                fs::write(self.path(file), &block.text).expect("it can be written");
            }
        }
        fs::write(self.path("gateway.toml"), self.listening()).expect("it can be written");
        fs::create_dir(self.path("bin")).expect("a directory");
        symlink(binary(), self.path("bin/tollgate")).expect("a link");
        symlink(root().join("deploy"), self.path("deploy")).expect("a link");
        // As a terminal shows it: without a progress meter.
        self.put_program("curl", "PATH=${PATH#*:} exec curl -sS \"$@\"");
        if let Ok(promtool) = std::env::var("TOLLGATE_TEST_PROMTOOL") {
            self.put_program("promtool", &format!("exec {promtool} \"$@\""));
        }
        let python = tools::python(&[]);
        self.put_program("python3", &format!("exec {} \"$@\"", python.get_program().display()));
    }

    /// The complete file of the page.
    pub(crate) fn configuration(&self) -> &str {
        let mut complete = self.blocks.iter().filter(|block| block.info.starts_with("toml"));
        &complete.find(|block| !block.info.contains("fragment")).expect("the page has a file").text
    }

    /// The same on the port that stands for the default.
    fn listening(&self) -> String {
        let (file, address) = (self.configuration(), self.address(DEFAULT_PORT));
        if file.contains(&address.port().to_string()) || file.contains("[server]\nlisten") {
            return file.to_owned();
        }
        if let Some((before, after)) = file.split_once("[server]\n") {
            return format!("{before}[server]\nlisten = [\"{address}\"]\n{after}");
        }
        let tables = if file.starts_with('[') { 0 } else { file.find("\n[").map_or(0, |end| end + 1) };
        format!("{}[server]\nlisten = [\"{address}\"]\n\n{}", &file[..tables], &file[tables..])
    }

    /// A file of the reader's directory.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// A file of the reader's directory as text.
    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The address that stands for this port of the page.
    pub(crate) fn address(&self, shown: u16) -> SocketAddr {
        let port = self.ports.get(&shown.to_string());
        let port = *port.unwrap_or_else(|| panic!("the page has no address with port {shown}"));
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Sets a variable for the reader's commands and for gateways that start from now on.
    pub(crate) fn set(&mut self, name: &'static str, value: impl ToString) {
        self.environment.push((name, value.to_string()));
    }

    /// What a command of the reader prints.
    pub(crate) fn run(&self, command: &str) -> String {
        let exports = self.environment.iter().map(|(name, value)| format!("export {name}='{value}'\n"));
        run(self.directory.path(), &(exports.collect::<String>() + command))
    }

    /// A script as the server of this port of the page, with further arguments. A page saves it, or it is in
    /// `tests/recipes`.
    pub(crate) fn serve(&mut self, script: &str, shown: u16, arguments: &[&str]) {
        let (address, saved) = (self.address(shown), self.path(script));
        let mut server = tools::python(if script == "greeter.py" { &["grpc"] } else { &[] });
        server.arg(if saved.exists() { saved } else { root().join("tests/recipes").join(script) });
        server.arg(address.port().to_string()).args(arguments);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(server.spawn().expect("Python starts"));
        eventually("the server to listen", || TcpStream::connect(address).ok());
    }

    /// The gateway of the page. The last one that was started has its logs in the reader's `access.log` and
    /// `program.log`.
    pub(crate) fn gateway(&mut self) {
        let log = "program.log";
        let open = |name: &str| {
            fs::remove_file(self.path(name)).ok();
            File::create(self.path(name)).expect("it can be created")
        };
        let mut command = Command::new(binary());
        command.arg("run").current_dir(self.directory.path()).env("NO_COLOR", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command.stdout(open("access.log")).stderr(open(log));
        let mut gateway = command.spawn().expect("the binary starts");
        let words =
            if self.configuration().contains("[admin]") { "admin listening on" } else { "listening on" };
        eventually("the gateway to listen", || {
            let ended = gateway.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "tollgate ended with {ended:?}:\n{}", self.read(log));
            self.read(log).contains(words).then_some(())
        });
        fs::write(self.path(PID), gateway.id().to_string()).expect("it can be written");
        self.put_program("systemctl", &systemctl(log, words));
        self.last_gateway = self.children.len();
        self.children.push(gateway);
    }

    /// The gateway that runs now is killed when this is dropped.
    fn kill_successor(&self) {
        let running = fs::read_to_string(self.path(PID)).ok().and_then(|pid| pid.trim().parse().ok());
        let started = self.children.get(self.last_gateway).map(Child::id);
        if let Some(pid) = running.filter(|pid| Some(*pid) != started)
            && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        {
            kill_process(pid, Signal::KILL).ok();
        }
    }

    /// Kills the gateway that was started last.
    pub(crate) fn kill_gateway(&mut self) {
        let gateway = &mut self.children[self.last_gateway];
        gateway.kill().expect("it runs");
        gateway.wait().expect("it ends");
    }

    /// A program in the reader's directory, which listens on this port of the page.
    pub(crate) fn program(&mut self, command: &mut Command, shown: u16) {
        let address = self.address(shown);
        command
            .current_dir(self.directory.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        let log = File::create(self.path("peer.log")).expect("it can be created");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut program = command.spawn().expect("it starts");
        eventually("the program to listen", || {
            let ended = program.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "{command:?} ended with {ended:?}:\n{}", self.read("peer.log"));
            TcpStream::connect(address).ok()
        });
        self.children.push(program);
    }

    /// Changes a file of the reader's directory: `from` is in it.
    #[track_caller]
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "`{from}` is not in {file}");
        fs::write(self.path(file), text.replace(from, to)).expect("it can be written");
    }

    /// Runs the commands of all sessions in order. Those that print something else than the page shows.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for block in self.blocks.iter().filter(|block| block.info == SESSION) {
            for (command, expected) in commands(block) {
                if let Err(printed) = self.try_until_shown(&command, &expected) {
                    let (place, expected) = (block.place(), expected.join("\n"));
                    faults.push(format!("{place}: `{command}` prints\n{printed}\n--- and not\n{expected}"));
                }
            }
        }
        faults
    }

    /// Runs a command. A log has its last lines a moment after the responses, so a command that reads a log is tried
    /// again. What it prints if that is not what is expected.
    fn try_until_shown(&self, command: &str, expected: &[String]) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let printed = self.run(command);
            let lines: Vec<_> = printed.trim_end().lines().collect();
            if lines_match(expected, &lines) {
                return Ok(());
            }
            if !command.contains(".log") || started.elapsed() > LOG_DELAY {
                return Err(printed);
            }
        }
    }

    fn put_program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
}

/// A stand-in for systemd's: `systemctl reload tollgate` returns when the gateway has reloaded. `systemctl kill -s KILL` is
/// a crash, after which the unit is started again; `systemctl kill --kill-whom=main -s USR2` returns once another process has
/// taken over. The logs go on in the same files. A killed process has its sockets until the last of its threads has gone, and
/// the first one may wait for the others as a zombie.
fn systemctl(log: &str, words: &str) -> String {
    format!(
        r#"pid=$(cat {PID})
lines() {{ grep -c "$1" {log}; }}
tries=0
pause() {{ tries=$((tries + 1)); [ $tries -lt 1000 ] || exit 1; sleep 0.03; }}
until_more() {{ until [ "$(lines "$1")" -gt "$2" ]; do pause; done; }}
has_threads() {{ kill -0 $pid && ! {{ grep -q '^State:.Z' /proc/$pid/status && [ "$(ls /proc/$pid/task)" = $pid ]; }}; }}
case "$*" in
reload*)
    before=$(lines reloaded)
    kill -HUP $pid
    until [ "$(lines reloaded)" -gt "$before" ]; do kill -0 $pid || exit 1; pause; done ;;
*KILL*)
    before=$(lines '{words}')
    kill -KILL $pid
    while has_threads 2>/dev/null; do pause; done
    tollgate run >>access.log 2>>{log} </dev/null &
    echo $! >{PID}
    until_more '{words}' "$before" ;;
*USR2*)
    before=$(lines 'has taken over')
    kill -USR2 $pid
    until_more 'has taken over' "$before"
    grep 'has taken over' {log} | tail -1 | sed 's/.*process \([0-9]*\) has taken over.*/\1/' >{PID} ;;
esac"#
    )
}

impl Drop for PageRun {
    fn drop(&mut self) {
        self.kill_successor();
        for child in &mut self.children {
            child.kill().ok();
            child.wait().ok();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("program.log")).unwrap_or_default();
            eprintln!("--- tollgate's program log\n{log}\n---");
        }
    }
}

/// The ports behind addresses of this machine.
pub(crate) fn ports_in(text: &str) -> Vec<String> {
    let hosts = ["127.0.0.1:", "localhost:", "0.0.0.0:"];
    let behind = hosts.iter().flat_map(|host| text.split(host).skip(1));
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    behind.map(digits).filter(|port| port.len() >= 4).collect()
}

/// The text with other ports.
pub(crate) fn with_ports(text: &str, ports: &BTreeMap<String, u16>) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        let digits = rest[start..].find(|char: char| !char.is_ascii_digit());
        let end = digits.map_or(rest.len(), |length| start + length);
        let number = &rest[start..end];
        replaced += &rest[..start];
        replaced += &ports.get(number).map_or(number.to_owned(), u16::to_string);
        rest = &rest[end..];
    }
    replaced + rest
}

#[test]
fn ports_are_replaced_as_whole_numbers() {
    let text = "url = \"http://127.0.0.1:9001\" # (9001), 90010, r=9001; localhost:80";
    let ports: BTreeMap<_, _> = ports_in(text).into_iter().map(|port| (port, 40_000)).collect();
    let expected = "url = \"http://127.0.0.1:40000\" # (40000), 90010, r=40000; localhost:80";
    assert_eq!(with_ports(text, &ports), expected);
}
