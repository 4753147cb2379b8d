//! A gateway that runs from several files, a directory, or standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::config_folder::{ConfigFolder, SMALL};
use crate::harness::{Backend, Gateway, binary, eventually, everything_to};

const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n";

fn marked(mark: &str) -> String {
    format!(
        "[[routes]]\npath = \"/*\"\nupstream = \"api\"\nset_response_headers = {{ x-mark = \"{mark}\" }}\n"
    )
}

/// A process that does not outlive its test, with its log.
struct Started {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Started {
    fn new(folder: &ConfigFolder, arguments: &[&str], input: impl FnOnce(ChildStdin)) -> Self {
        let mut child = Command::new(binary())
            .args(arguments)
            .current_dir(folder.path(""))
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        input(child.stdin.take().expect("piped"));
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (stderr, all) = (child.stderr.take().expect("piped"), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                all.lock().expect("no test panics inside").push(line);
            }
        });
        let started = Self { child, lines };
        started.wait_for("listening on", 1);
        started
    }

    fn log(&self) -> String {
        self.lines.lock().expect("no test panics inside").join("\n")
    }

    fn wait_for(&self, text: &str, count: usize) {
        eventually(text, || (self.log().matches(text).count() >= count).then_some(()));
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn included_files_are_watched_and_read_anew() {
    let backend = Backend::ok();
    let main = everything_to(&backend, SERVER).replace("path = \"/*\"", "path = \"/main\"");
    let gateway = Gateway::start_with(&main, &["--watch"]);
    let folder = gateway.config_path().parent().expect("a directory").join("routes");
    std::fs::create_dir(&folder).unwrap();
    let mark = || gateway.get("/x").header("x-mark").unwrap_or_default().to_owned();
    let sees = |wanted: &str| eventually(wanted, || (mark() == wanted).then_some(()));
    std::fs::write(folder.join("a.toml"), marked("a")).unwrap();
    gateway.write_config(&format!("include = \"routes/*.toml\"\n{main}"));
    sees("a");
    std::fs::write(folder.join("a.toml"), marked("changed")).unwrap();
    sees("changed");
    // A file that comes with a fault, and is mended in place.
    std::fs::write(folder.join("0.toml"), "= fault").unwrap();
    gateway.wait_for_log("not reloaded");
    assert_eq!(mark(), "changed");
    let other = marked("other").replace("\"/*\"", "\"/x\"");
    std::fs::write(folder.join("0.toml"), other).unwrap();
    sees("other");
    std::fs::remove_file(folder.join("0.toml")).unwrap();
    sees("changed");
}

#[test]
fn a_directory_is_run_and_watched() {
    let folder = ConfigFolder::new(&[("d/1.toml", SMALL), ("d/2.toml", SERVER)]);
    let started = Started::new(&folder, &["--watch", "-c", "d"], drop);
    assert!(started.log().contains("runs d"), "{}", started.log());
    folder.write("d/3.toml", "[[routes]]\nname = \"third\"\npath = \"/3\"\nupstream = \"demo\"\n");
    started.wait_for("changed: route third added", 1);
    std::fs::remove_file(folder.path("d/3.toml")).unwrap();
    started.wait_for("changed: route third removed", 1);
}

#[test]
fn standard_input_is_run_once() {
    let folder = ConfigFolder::new(&[("x.toml", SERVER)]);
    let started = Started::new(&folder, &["-c", "-"], |mut input| {
        input.write_all(format!("include = \"x.toml\"\n{SMALL}").as_bytes()).expect("it reads");
    });
    assert!(started.log().contains("runs <stdin>"), "{}", started.log());
    let process = Pid::from_child(&started.child);
    kill_process(process, Signal::HUP).expect("it runs");
    started
        .wait_for("not reloaded: the configuration came from standard input, which cannot be read again", 1);
}

#[test]
fn a_gateway_of_several_files_is_found_by_health() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[admin]\nlisten = \"127.0.0.1:0\""));
    let port = gateway.admin_addr().port();
    let folder = ConfigFolder::new(&[
        ("d/1.toml", &format!("include = \"sub/admin.toml\"\n{SMALL}")),
        (
            "d/sub/admin.toml",
            &format!("[admin]\nlisten = \"${{NO_SUCH_2:-127.0.0.1}}:{port}\"\nunknown = 1\n"),
        ),
        ("d/2.toml", "= being edited"),
    ]);
    let output = Command::new(binary())
        .args(["health", "-c"])
        .arg(folder.path("d"))
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
