//! The server and the client of `tests/cost`, each a process: the client asks by the libraries of the APIs' vendors.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{Gateway, tools};

/// A script of `tests/cost`.
#[track_caller]
fn python(script: &str) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cost").join(script);
    let mut command = tools::client_libraries();
    command.arg(script).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A server that tells in its responses what requests cost. Killed when dropped.
#[derive(Debug)]
pub(crate) struct CostServer {
    child: Child,
    url: String,
}

impl CostServer {
    /// Starts it on a free port.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let mut child = python("server.py").spawn().expect("there is a Python");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut port).expect("text");
        let port: u16 = port.trim_end().parse().expect("the server's port");
        Self { child, url: format!("http://127.0.0.1:{port}") }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Goes through `case` of `tests/cost/client.py`, which must turn out well. Returns the lines that it prints.
    #[track_caller]
    pub(crate) fn ask(&self, gateway: &Gateway, case: &str) -> Vec<String> {
        let base = |address| format!("http://{address}");
        let urls = [self.url.clone(), base(gateway.addr()), base(gateway.admin_addr())];
        let mut client = python("client.py");
        // All its waits are bounded by itself.
        let output =
            client.arg(case).args(urls).stderr(Stdio::inherit()).output().expect("there is a Python");
        let mut lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some("done"), "what is wrong stands above");
        lines
    }
}

impl Drop for CostServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
