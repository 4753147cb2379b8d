//! SIGHUP and `--watch`: when the file is read again, and what a reload cannot change.

use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{
    Authority, Backend, Gateway, TerminalProgram, binary, eventually, everything_to, free_address,
};

/// A configuration whose answers tell which one it is.
fn marked(backend: &Backend, mark: &str) -> String {
    everything_to(
        backend,
        &format!(
            "set_response_headers = {{ x-mark = \"{mark}\" }}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [server]\nlisten = [\"127.0.0.1:0\"]\nworkers = 2"
        ),
    )
}

fn mark(gateway: &Gateway) -> String {
    gateway.get("/").expect(200).header("x-mark").expect("marked").to_owned()
}

fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_config_reloads_total", &[&format!("result=\"{result}\"")])
}

#[test]
fn a_storm_of_hangups_is_a_few_reloads() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&marked(&backend, "a"));
    for _ in 0..100 {
        gateway.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(2));
    }
    gateway.write_config(&marked(&backend, "b"));
    gateway.signal(Signal::HUP);
    eventually("the last word to hold", || (mark(&gateway) == "b").then_some(()));
    assert!(reloads(&gateway, "success") <= 50.0, "{} reloads", reloads(&gateway, "success"));
}

#[test]
fn what_needs_a_restart_keeps_its_value_and_is_named() {
    let backend = Backend::ok();
    let toml = marked(&backend, "a");
    let gateway = Gateway::start(&toml);
    let changed = toml
        .replace("[\"127.0.0.1:0\"]", "[\"127.0.0.1:1\"]")
        .replace("workers = 2", "workers = 3")
        .replace("listen = \"127.0.0.1:0\"", "listen = \"127.0.0.1:2\"")
        .replace("x-mark = \"a\"", "x-mark = \"b\"");
    gateway.reload(&format!("{changed}\n[store]\nmax_keys = 5\n"), "INFO reloaded");
    for setting in ["`server.listen`", "`server.workers`", "`admin`", "`store.max_keys`"] {
        let warned =
            gateway.stderr_lines().iter().any(|line| line.contains("WARN") && line.contains(setting));
        assert!(warned, "{setting} is not named in\n{}", gateway.stderr());
    }
    assert_eq!(mark(&gateway), "b", "all else is in force, at the same address");
    let listener = format!("listener=\"{}\"", gateway.addr());
    assert!(gateway.admin("/metrics").text().contains(&listener), "and is still called what it is");
}

#[test]
fn start_up_is_logged_in_four_lines() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&marked(&backend, "a"));
    let lines: Vec<_> = gateway.stderr_lines().into_iter().filter(|line| line.contains("INFO")).collect();
    let version = concat!("tollgate ", env!("CARGO_PKG_VERSION"), " runs ");
    let listening = format!("listening on {}", gateway.addr());
    for (line, part) in lines.iter().zip([
        version,
        &listening,
        "1 route, 0 limits, 1 upstream",
        "admin listening on http://127",
    ]) {
        assert!(line.contains(part), "{part}: {lines:?}");
    }
    assert!(lines.len() >= 4, "{lines:?}");
    // Only a person at a terminal is told what to do next.
    assert!(!gateway.stderr().contains("dashboard:"), "{}", gateway.stderr());
}

#[test]
fn at_a_terminal_the_last_lines_name_the_dashboard_and_the_next_command() {
    let authority = Authority::new();
    authority.certify("cert", &["localhost"]);
    let [admin, clients] = [free_address(), free_address()];
    // No other test may hold it on another address of this machine.
    let free = std::net::TcpListener::bind("0.0.0.0:0").expect("a free port");
    let everywhere = free.local_addr().expect("bound").port();
    drop(free);
    let listen = [
        format!("{{ address = \"{clients}\", tls = false }}"),
        format!("{{ address = \"0.0.0.0:{everywhere}\", tls = true }}"),
    ];
    let commands =
        [format!("try: curl -i http://{clients}/"), format!("try: curl -ik https://localhost:{everywhere}/")];
    let admins = [("http", ""), ("https", "tls = { cert = \"cert.pem\", key = \"cert.key\" }\n")];
    for ((listen, command), (scheme, tls)) in listen.iter().zip(commands).zip(admins) {
        let file = format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n\
             [admin]\nlisten = \"{admin}\"\n{tls}[server]\nlisten = [{listen}]\nworkers = 1\n\
             [[server.tls]]\ncert = \"cert.pem\"\nkey = \"cert.key\"\n"
        );
        std::fs::write(authority.path("gateway.toml"), file).expect("it can be written");
        let path = authority.path("gateway.toml").display().to_string();
        let terminal = TerminalProgram::start(&["run", "-c", &path], &[]);
        terminal.wait_for(&command);
        let screen = terminal.screen();
        let last: Vec<_> = screen.lines().rev().take(2).collect();
        let dashboard = format!("INFO dashboard: {scheme}://{admin}/");
        assert!(last[0].ends_with(&command) && last[1].ends_with(&dashboard), "{screen}");
    }
}

#[test]
fn a_reload_tells_what_came_and_went() {
    let backend = Backend::ok();
    let toml = marked(&backend, "a");
    let gateway = Gateway::start(&toml);
    gateway.reload(&toml.replace("name = \"all\"", "name = \"every\""), "INFO reloaded");
    let lines = ["reloaded: 2 changes", "changed: route all removed", "changed: route every added"];
    eventually("a line a change", || lines.iter().all(|line| gateway.stderr().contains(line)).then_some(()));
}

#[test]
fn the_logs_change_with_a_reload() {
    let backend = Backend::ok();
    let toml = marked(&backend, "a");
    let gateway = Gateway::start(&format!("{toml}\n[log]\naccess = \"off\"\n"));
    gateway.get("/").expect(200);
    gateway.reload(&format!("{toml}\n[log]\naccess = \"combined\"\n"), "INFO reloaded");
    gateway.get("/seen").expect(200);
    let lines =
        eventually("a line of access log", || Some(gateway.stdout_lines()).filter(|lines| !lines.is_empty()));
    assert!(lines.len() == 1 && lines[0].contains("\"GET /seen HTTP/1.1\" 200"), "{lines:?}");
    gateway.write_config(&format!("{toml}\n[log]\nlevel = \"error\"\n"));
    gateway.signal(Signal::HUP);
    eventually("the second reload", || (reloads(&gateway, "success") > 1.5).then_some(()));
    let told = gateway.stderr_lines().iter().filter(|line| line.contains("INFO reloaded")).count();
    assert_eq!(told, 1, "the second one is below the level: {}", gateway.stderr());
}

#[test]
fn a_watched_file_may_be_replaced_written_in_place_or_gone_for_a_while() {
    let backend = Backend::ok();
    let gateway = Gateway::start_with(&marked(&backend, "a"), &["--watch"]);
    let sees = |wanted: &str| eventually(wanted, || (mark(&gateway) == wanted).then_some(()));
    gateway.write_config(&marked(&backend, "replaced"));
    sees("replaced");
    std::fs::write(gateway.config_path(), marked(&backend, "in-place")).unwrap();
    sees("in-place");
    std::fs::remove_file(gateway.config_path()).unwrap();
    eventually("the loss to be told", || (reloads(&gateway, "failure") > 0.5).then_some(()));
    assert_eq!(mark(&gateway), "in-place", "the plan stays");
    std::fs::write(gateway.config_path(), marked(&backend, "again")).unwrap();
    sees("again");
}

#[test]
fn a_watched_file_is_read_again_only_when_it_has_changed() {
    let backend = Backend::ok();
    let toml = marked(&backend, "a");
    let gateway = Gateway::start_with(&toml, &["--watch"]);
    for number in 0..20 {
        std::fs::write(gateway.config_path().with_file_name(format!("other-{number}")), "noise").unwrap();
        std::fs::write(gateway.config_path(), &toml).unwrap();
    }
    gateway.write_config(&marked(&backend, "b"));
    eventually("the change", || (mark(&gateway) == "b").then_some(()));
    let total = reloads(&gateway, "success") + reloads(&gateway, "failure");
    assert!(total <= 3.0, "{total} reloads for one change");
}

/// Kubernetes mounts a file as a link to `..data/FILE`, where `..data` is a link that is swapped.
#[test]
fn a_watched_file_may_be_swapped_behind_links() {
    let backend = Backend::ok();
    let folder = tempfile::tempdir().unwrap();
    let write = |version: &str, mark: &str| {
        let below = folder.path().join(version);
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("gateway.toml"), marked(&backend, mark)).unwrap();
    };
    write("..v1", "a");
    symlink("..v1", folder.path().join("..data")).unwrap();
    symlink("..data/gateway.toml", folder.path().join("gateway.toml")).unwrap();
    let child = Command::new(binary())
        .args(["--watch", "-c"])
        .arg(folder.path().join("gateway.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::from(std::fs::File::create(folder.path().join("log")).unwrap()))
        .spawn()
        .unwrap();
    let _ends = Killed(child);
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    eventually("it to listen", || log().contains("admin listening on").then_some(()));
    write("..v2", "b");
    symlink("..v2", folder.path().join("..data_tmp")).unwrap();
    std::fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
    eventually("the swap to be seen", || log().contains("INFO reloaded").then_some(()));
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
