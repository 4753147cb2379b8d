//! A newcomer who follows README, on a clean machine: an empty home, no variables, and only the directories of the system
//! in the PATH. Nothing else is found but what the page says to make or to add.
//!
//! Three programs are stand-ins, in the directory where rustup puts cargo: a build takes minutes and needs the network.
//!
//! - `git clone` copies the repository under test.
//! - `cargo` puts the binary under test where the build would put it, such as `target/try/tollgate`, and starts it there.
//! - `make test` only lists its commands, since these tests cannot run themselves.
//!
//! Ports of the page are replaced by free ones, and the service of the page's reader is a backend of the test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::page_run::{ports_in, with_ports};
use super::page_session::{commands, lines_match};
use super::pages::{Block, Page, root};
use crate::harness::{Backend, TerminalProgram, binary, eventually, free_address, tools};

/// The directories of a system, as `/etc/login.defs` and sudo set them.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The first command of README.
pub(crate) const CLONE: &str = "git clone ADDRESS tollgate && cd tollgate";
/// A file that the page shows. The commands after it find the file under this name.
pub(crate) const SAVED: &str = "toml saved as ";
/// The end of what the program in the other terminal has written.
pub(crate) const LAST_LINES: &str = "text last lines of the terminal";
/// The port of the reader's own service.
const SERVICE: &str = "9001";
/// The address of the dashboard, as a page tells its readers to open it.
const DASHBOARD: &str = "http://127.0.0.1:9900/";
/// The last line of a gateway that serves, at a terminal.
const SERVES: &str = "INFO try: curl";

const CARGO: &str = r#"
put() { mkdir -p "$(dirname "$1")" && ln -sf "$BINARY" "$1"; }
case "$*" in
"run --locked --profile "*" -- "*)
    program=target/$4/tollgate
    while [ "$1" != -- ]; do shift; done
    shift
    put "$program" && exec "$program" "$@" ;;
"install --locked --path .") put "$HOME/.cargo/bin/tollgate" ;;
"nextest --version") ;; # The Makefile asks.
*) echo "what would cargo $* do?"; exit 1 ;;
esac
"#;
const GIT: &str = r#"[ "$*" = "clone ADDRESS tollgate" ] && cp -a "$HOME/../repository" tollgate"#;
const MAKE: &str = r#"
[ "$1" != test ] || set -- --dry-run "$@"
exec "$(PATH=$SYSTEM_PATH; command -v make)" "$@""#;

/// A person with two terminals: a gateway runs in one, commands are typed into the other.
pub(crate) struct Newcomer {
    machine: tempfile::TempDir,
    ports: BTreeMap<String, u16>,
    /// The program that serves, and the commands to type when it has ended.
    serving: Option<(TerminalProgram, String)>,
    /// The reader's own service.
    service: Backend,
}

impl Newcomer {
    pub(crate) fn new() -> Self {
        let service = Backend::ok();
        let ports = BTreeMap::from([(SERVICE.to_owned(), service.addr().port())]);
        let machine = tempfile::tempdir().expect("a temporary directory");
        let mut newcomer = Self { machine, ports, serving: None, service };
        newcomer.set_up();
        newcomer
    }

    fn set_up(&mut self) {
        let repository = self.machine.path().join("repository");
        fs::create_dir(&repository).expect("a directory");
        for entry in fs::read_dir(root()).expect("it can be listed") {
            let entry = entry.expect("it can be listed");
            if ![".git", "target", "gateway.toml"].iter().any(|name| entry.file_name() == *name) {
                symlink(entry.path(), repository.join(entry.file_name())).expect("a link");
            }
        }
        let shipped = fs::read_to_string(root().join("gateway.toml")).expect("the shipped file");
        fs::write(repository.join("gateway.toml"), self.with_free_ports(&shipped))
            .expect("it can be written");
        fs::create_dir_all(self.home().join(".cargo/bin")).expect("a directory");
        self.put_program("cargo", &format!("BINARY='{}'{CARGO}", binary()));
        self.put_program("git", GIT);
        self.put_program("make", &format!("SYSTEM_PATH='{SYSTEM_PATH}'{MAKE}"));
        // As at a terminal: without a progress meter.
        fs::write(self.home().join(".curlrc"), "silent\nshow-error\n").expect("it can be written");
        fs::write(self.home().join(".directory"), self.home().display().to_string())
            .expect("it can be written");
        fs::write(self.home().join(".variables"), "").expect("it can be written");
    }

    fn put_program(&self, name: &str, script: &str) {
        let path = self.home().join(".cargo/bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    fn home(&self) -> PathBuf {
        self.machine.path().join("home")
    }

    /// The text with free ports, the same ones each time.
    fn with_free_ports(&mut self, text: &str) -> String {
        for port in ports_in(text) {
            self.ports.entry(port).or_insert_with(|| free_address().port());
        }
        with_ports(text, &self.ports)
    }

    /// A shell that begins where the one before has ended.
    fn shell(&self, command: &mut Command, script: &str) {
        command
            .args(["-c", &format!(". ~/.variables\ncd \"$(cat ~/.directory)\"\n{script}")])
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", format!("{}/.cargo/bin:{SYSTEM_PATH}", self.home().display()))
            .current_dir(self.home());
    }

    /// Types a command. What it prints, and whether its exit status is 0.
    pub(crate) fn run(&self, command: &str) -> (String, bool) {
        let mut bash = Command::new("/bin/bash");
        let keep = "status=$?\nexport -p >~/.variables\npwd >~/.directory\nexit $status";
        self.shell(&mut bash, &format!("exec 2>&1\n{command}\n{keep}"));
        let output = bash.output().expect("there is a bash");
        (String::from_utf8_lossy(&output.stdout).replace('\r', ""), output.status.success())
    }

    /// Follows all blocks of the page, and stops what still serves. What is not as the page says.
    pub(crate) fn follow(&mut self, page: &Page) -> Vec<String> {
        let mut faults = Vec::new();
        for mut block in page.blocks() {
            block.text = self.with_free_ports(&block.text);
            faults.extend(
                self.follow_block(&block).into_iter().map(|fault| format!("{}: {fault}", block.place())),
            );
        }
        if page.text.contains(&format!("<{DASHBOARD}>")) {
            faults.extend(self.look_at_dashboard());
        }
        faults.extend(self.stop());
        faults
    }

    /// Takes a picture of the dashboard, as the reader sees it who opens the address of the page. It shows the refusals.
    fn look_at_dashboard(&mut self) -> Option<String> {
        let (address, picture) = (self.with_free_ports(DASHBOARD), self.machine.path().join("dashboard.png"));
        let mut browser = Command::new(tools::browser());
        browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,900"]);
        // Time goes on at once, until the page has asked for its data and drawn them.
        browser.arg("--virtual-time-budget=5000").arg(format!("--screenshot={}", picture.display()));
        let output =
            browser.arg(format!("--user-data-dir={}", self.machine.path().join("browser").display()));
        let output = output.arg(&address).stdin(Stdio::null()).output().expect("the browser starts");
        // An empty page, or one that waits for its data, takes a tenth of that.
        let bytes = fs::metadata(picture).map_or(0, |file| file.len());
        (bytes < 40_000)
            .then(|| format!("{address}: {bytes} bytes: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn follow_block(&mut self, block: &Block) -> Vec<String> {
        match block.info.as_str() {
            "sh" => self.type_lines(&block.text).into_iter().collect(),
            "console" => self.compare(block),
            LAST_LINES => self.compare_last_lines(&block.text).into_iter().collect(),
            info => match info.strip_prefix(SAVED) {
                Some(file) => self.save(file, &block.text),
                None => vec![format!("a newcomer does not know what to do with `{info}`")],
            },
        }
    }

    /// Types the lines. One that starts a gateway goes into the other terminal, and the lines after it wait for its end.
    fn type_lines(&mut self, lines: &str) -> Option<String> {
        let serves = |line: &&str| line.starts_with("make run") || line.starts_with("tollgate run");
        let before: Vec<_> = lines.lines().take_while(|line| !serves(line)).collect();
        let mut rest = lines.lines().skip(before.len());
        let (printed, is_good) = self.run(&format!("set -e\n{}", before.join("\n")));
        if !is_good {
            return Some(format!("the commands fail:\n{printed}"));
        }
        let line = rest.next()?;
        if let Some(fault) = self.stop() {
            return Some(fault);
        }
        let terminal = TerminalProgram::start_by(|setsid| {
            self.shell(setsid.arg("/bin/bash"), line);
        });
        terminal.wait_for(SERVES);
        self.serving = Some((terminal, rest.collect::<Vec<_>>().join("\n")));
        None
    }

    /// Presses Ctrl-C, and types the lines that waited for it.
    fn stop(&mut self) -> Option<String> {
        let (mut terminal, waiting) = self.serving.take()?;
        terminal.press("\x03");
        terminal.wait_for_exit();
        let (printed, is_good) = self.run(&format!("set -e\n{waiting}"));
        (!is_good).then(|| format!("after Ctrl-C the commands fail:\n{printed}"))
    }

    /// Commands that print something else than the block shows.
    fn compare(&self, block: &Block) -> Vec<String> {
        let mut faults = Vec::new();
        for (command, mut expected) in commands(block) {
            let (printed, _) = self.run(&command);
            let lines: Vec<_> = printed.trim_end().lines().collect();
            while expected.last().is_some_and(String::is_empty) {
                expected.pop();
            }
            if !lines_match(&expected, &lines) {
                let expected = expected.join("\n");
                faults.push(format!("`{command}` prints\n{printed}\n--- and not\n{expected}"));
            }
        }
        faults
    }

    fn compare_last_lines(&self, text: &str) -> Option<String> {
        let expected: Vec<_> = text.lines().map(str::to_owned).collect();
        let screen = self.serving.as_ref().map(|(terminal, _)| terminal.screen()).unwrap_or_default();
        let lines: Vec<_> = screen.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(expected.len())..];
        (!lines_match(&expected, last)).then(|| format!("the terminal shows\n{screen}"))
    }

    /// Saves a file, which listens on a free port instead of the default.
    fn save(&mut self, file: &str, text: &str) -> Vec<String> {
        let default = self.with_free_ports("127.0.0.1:8080");
        let listens = text.contains("[server]");
        let listen = if listens { String::new() } else { format!("server.listen = [\"{default}\"]\n") };
        let directory = fs::read_to_string(self.home().join(".directory")).expect("it is there");
        fs::write(Path::new(directory.trim()).join(file), listen + text).expect("it can be written");
        Vec::new()
    }

    /// Waits until the reader's own service has received requests.
    pub(crate) fn service_was_reached(&self) {
        eventually("a request at the service", || (self.service.count() > 0).then_some(()));
    }
}
