//! The recipe of `docs/consumers.md`: its service, its files and its commands, as a reader would run them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::harness::page_session::{commands, lines_match, run};
use crate::harness::pages::{Block, Page, pages};
use crate::harness::{Gateway, eventually, tools};

const SESSION: &str = "text session of this page";

fn page() -> Page {
    pages().into_iter().find(|page| page.path == "docs/consumers.md").expect("the page is there")
}

/// The service of the page on a free port. Killed when dropped.
struct Service {
    child: Child,
    port: u16,
}

impl Service {
    fn start(directory: &Path) -> Self {
        let code = fs::read_to_string(directory.join("service.py")).expect("the page saves it");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.expect("a free port").port();
        let code = code.replace("9001", &port.to_string());
        let child =
            tools::python(&[]).args(["-c", &code]).stderr(Stdio::null()).spawn().expect("Python starts");
        let service = Self { child, port };
        eventually("the service to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Programs that find the gateway where the page says that it is.
fn put_programs(directory: &Path, gateway: &Gateway) {
    fs::create_dir(directory.join("bin")).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_tollgate"), directory.join("bin/tollgate")).expect("a link");
    let to = |port: u16, address| format!("--connect-to localhost:{port}:{address}");
    let curl = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec curl -sS {} {} \"$@\"\n",
        to(8080, gateway.addr()),
        to(9900, gateway.admin_addr())
    );
    fs::write(directory.join("bin/curl"), curl).expect("it can be written");
    fs::set_permissions(directory.join("bin/curl"), fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Goes through the recipe once; the commands that print something else.
fn go_through(blocks: &[Block]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = folder.path();
    for block in blocks {
        if let Some(file) = block.info.strip_prefix("text saved as ") {
            fs::write(directory.join(file), &block.text).expect("it can be written");
        }
    }
    let toml = &blocks.iter().find(|block| block.info == "toml").expect("the file of the recipe").text;
    fs::write(directory.join("gateway.toml"), toml).expect("it can be written");
    let service = Service::start(directory);
    let csv = directory.join("consumers.csv").display().to_string();
    let gateway = Gateway::start(
        &toml
            .replace("127.0.0.1:9001", &format!("127.0.0.1:{}", service.port))
            .replace("127.0.0.1:9900", "127.0.0.1:0")
            .replace("\"consumers.csv\"", &format!("\"{csv}\"")),
    );
    put_programs(directory, &gateway);
    let mut faults = Vec::new();
    for block in blocks.iter().filter(|block| block.info == SESSION) {
        for (command, expected) in commands(block) {
            let printed = run(directory, &command);
            let lines: Vec<_> = printed.trim_end().lines().collect();
            if !lines_match(&expected, &lines) {
                faults.push(format!(
                    "{}: `{command}` prints\n{printed}\n--- and not\n{}",
                    block.place(),
                    expected.join("\n")
                ));
            }
        }
    }
    faults
}

#[test]
fn the_recipe_of_two_plans_works_as_it_is_written() {
    let blocks = page().blocks();
    let sessions = blocks.iter().filter(|block| block.info == SESSION).count();
    assert!(sessions >= 5, "{sessions} sessions were found");
    // The window of a minute may end in between.
    let faults = (0..3).map(|_| go_through(&blocks)).find(Vec::is_empty);
    let faults = faults.unwrap_or_else(|| go_through(&blocks));
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}
