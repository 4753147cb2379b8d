//! The access log in a file: rotated under load, kept where a new one cannot be opened, and changed by a reload.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Client, Gateway, binary, eventually};

/// One route that answers by itself, with these lines in `[log]`.
fn logging(log: &str) -> String {
    format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"demo\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[log]\n{log}\n"
    )
}

/// A folder of the test's own, and the file in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("access.log");
    (folder, file)
}

/// The whole lines of a file: while the gateway writes, a reader may see the beginning of one more.
fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault} in `{line}`")))
        .collect()
}

fn paths(file: &Path) -> Vec<String> {
    lines(file).iter().map(|line| line["path"].as_str().expect("a path").to_owned()).collect()
}

fn told(gateway: &Gateway, word: &str) -> usize {
    gateway.stderr_lines().iter().filter(|line| line.contains(word)).count()
}

/// SIGUSR1, and a further line of the program log with this word.
fn rotate(gateway: &Gateway, word: &str) {
    let before = told(gateway, word);
    gateway.signal(Signal::USR1);
    eventually(word, || (told(gateway, word) > before).then_some(()));
}

/// Ends the clients of a test, also where the test fails: their scope waits for them.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn rotation_under_load_loses_no_line_and_mixes_none() {
    let (folder, file) = place();
    let mut gateway = Gateway::start(&logging(&format!("file = {:?}", file.display().to_string())));
    let address = gateway.addr();
    let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = OnDrop(&over);
        for client in 0..3 {
            let (over, asked) = (&over, &asked);
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                for number in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    connection.get(&format!("/{client}/{number}"), "").expect(200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for turn in 0..5 {
            let start = asked.load(Ordering::Relaxed);
            eventually("some traffic", || (asked.load(Ordering::Relaxed) > start + 50).then_some(()));
            let aside = folder.path().join(format!("access.log.{turn}"));
            std::fs::rename(&file, &aside).expect("it can be renamed");
            rotate(&gateway, "the access log is now written to");
            let size = || std::fs::metadata(&aside).expect("it is there").len();
            let then = size();
            eventually("lines in the new file", || (!paths(&file).is_empty()).then_some(()));
            assert_eq!(size(), then, "the old file gets no more lines");
        }
    });
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    let mut found = BTreeMap::<String, usize>::new();
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    for file in files.map(|file| file.expect("a file").path()) {
        let mode = std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode & !0o640, 0, "{mode:o}");
        assert!(std::fs::read(&file).expect("it can be read").ends_with(b"\n"), "{} is torn", file.display());
        let paths = paths(&file);
        paths.into_iter().for_each(|path| *found.entry(path).or_default() += 1);
    }
    assert_eq!(found.len() as u64, asked.load(Ordering::Relaxed), "each request has a line");
    assert!(found.values().all(|count| *count == 1), "and only one");
    assert!(gateway.stdout_lines().is_empty());
}

#[test]
fn a_relative_path_begins_where_the_file_lies_and_a_torn_line_stays_apart() {
    let (_folder, file) = place();
    std::fs::write(&file, "{\"path\":\"/before\"}\n{\"path\":\"/to").expect("it can be written");
    let gateway =
        Gateway::start(&logging(&format!("file = {:?}\nfields = [\"path\"]", file.display().to_string())));
    gateway.get("/after").expect(200);
    let text =
        eventually("a line", || std::fs::read_to_string(&file).ok().filter(|text| text.contains("/after")));
    assert_eq!(text, "{\"path\":\"/before\"}\n{\"path\":\"/to\n{\"path\":\"/after\"}\n");
    let beside = Gateway::start(&logging("file = \"access.log\""));
    beside.get("/").expect(200);
    let file = beside.config_path().with_file_name("access.log");
    eventually("a line beside gateway.toml", || (paths(&file) == ["/"]).then_some(()));
}

#[test]
fn check_makes_no_file() {
    let (folder, file) = place();
    let config = folder.path().join("gateway.toml");
    std::fs::write(&config, logging("file = \"access.log\"")).expect("it can be written");
    let checked = Command::new(binary()).arg("check").arg("-c").arg(&config).output();
    assert!(checked.expect("it starts").status.success());
    assert!(!file.exists());
}

#[test]
fn without_a_file_the_signal_does_nothing() {
    let mut gateway = Gateway::start(&logging("access = \"json\""));
    gateway.get("/first").expect(200);
    rotate(&gateway, "SIGUSR1");
    gateway.get("/second").expect(200);
    assert_eq!(gateway.access_log(2)[1]["path"], "/second");
    assert!(gateway.alive());
}

#[test]
fn where_no_file_can_be_opened_the_old_one_stays() {
    let (folder, _) = place();
    let (now, away) = (folder.path().join("now"), folder.path().join("away"));
    std::fs::create_dir(&now).expect("a folder");
    let toml = logging(&format!("file = {:?}", now.join("access.log").display().to_string()));
    let mut gateway = Gateway::start(&toml);
    gateway.get("/1").expect(200);
    std::fs::rename(&now, &away).expect("it can be renamed");
    rotate(&gateway, "WARN SIGUSR1");
    gateway.get("/2").expect(200);
    gateway.reload(&toml, "not reloaded");
    gateway.wait_for_log("gateway.toml:");
    gateway.get("/3").expect(200);
    let kept = away.join("access.log");
    eventually("three lines", || (paths(&kept) == ["/1", "/2", "/3"]).then_some(()));
    std::fs::create_dir(&now).expect("a folder");
    rotate(&gateway, "the access log is now written to");
    gateway.get("/4").expect(200);
    eventually("a fourth", || (paths(&now.join("access.log")) == ["/4"]).then_some(()));
    assert!(gateway.alive());
}

#[test]
fn a_file_that_can_not_be_opened_is_a_fault_with_its_place() {
    let (folder, _) = place();
    let config = folder.path().join("gateway.toml");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .expect("a pipe");
    for (path, word) in [("none/access.log", "No such file"), ("/", "directory"), ("pipe", "it is a pipe")] {
        std::fs::write(&config, logging(&format!("file = {path:?}"))).expect("it can be written");
        let started = Command::new(binary()).arg("-c").arg(&config).output();
        let started = started.expect("it starts");
        let stderr = String::from_utf8_lossy(&started.stderr).into_owned();
        assert_eq!(started.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(word) && stderr.contains("gateway.toml:10:8"), "{stderr}");
    }
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let mut gateway = Gateway::start(&logging("file = \"/dev/full\""));
    (0..20).for_each(|_| drop(gateway.get("/").expect(200)));
    eventually("all lines to be lost", || {
        (gateway.metric("tollgate_access_log_dropped_total", &[]) == 20.0).then_some(())
    });
    assert_eq!(told(&gateway, "cannot be written to `/dev/full`"), 1);
    let (_folder, file) = place();
    gateway.reload(
        &logging(&format!("file = {:?}", file.display().to_string())),
        "the access log is now written to",
    );
    gateway.get("/after").expect(200);
    eventually("a line", || (paths(&file) == ["/after"]).then_some(()));
    assert_eq!(gateway.metric("tollgate_access_log_dropped_total", &[]), 20.0);
    assert!(gateway.alive());
}

#[test]
fn a_reload_takes_over_form_fields_and_file() {
    let (folder, first) = place();
    let second = folder.path().join("second.log");
    let at = |file: &Path, rest: &str| logging(&format!("file = {:?}\n{rest}", file.display().to_string()));
    let gateway = Gateway::start(&logging(""));
    let ask = |place: usize| drop(gateway.get(&format!("/{place}")).expect(200));
    let reload = |toml: String| gateway.reload(&toml, "INFO reloaded");
    ask(0);
    reload(at(&first, "fields = [\"status\", \"path\"]"));
    ask(1);
    reload(at(&first, "fields = [\"path\"]"));
    ask(2);
    reload(at(&first, "access = \"combined\""));
    ask(3);
    reload(at(&second, "access = \"off\""));
    ask(4);
    reload(at(&second, "fields = [\"path\", \"error\"]"));
    ask(5);
    reload(logging(""));
    ask(6);
    let said = eventually("both on standard output", || {
        let lines = gateway.stdout_lines();
        (lines.len() == 2).then_some(lines)
    });
    assert!(said[0].contains("\"path\":\"/0\"") && said[1].contains("\"path\":\"/6\""), "{said:?}");
    let text = std::fs::read_to_string(&first).expect("the first");
    let rest =
        text.strip_prefix("{\"status\":200,\"path\":\"/1\"}\n{\"path\":\"/2\"}\n").expect("chosen fields");
    assert!(rest.starts_with("127.0.0.1 - - [") && rest.contains("\"GET /3 HTTP/1.1\" 200"), "{rest}");
    assert_eq!(rest.lines().count(), 1);
    let text = std::fs::read_to_string(&second).expect("the second");
    assert_eq!(text, "{\"path\":\"/5\",\"error\":null}\n");
}
