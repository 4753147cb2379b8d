//! The server and the client of `tests/cost`, each a process: the client asks by the libraries of the APIs' vendors.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{Gateway, tools};

/// Which versions of the libraries ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// Those of `tests/cost/requirements.txt`.
    Pinned,
    /// The newest ones when `.ci/tools` was last asked for them.
    Newest,
}

/// A script of `tests/cost`.
#[track_caller]
fn python(script: &str, versions: Versions) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cost").join(script);
    let mut command = match versions {
        Versions::Pinned => tools::client_libraries(),
        Versions::Newest => tools::newest_client_libraries(),
    };
    // No compiled files in the tree, and none of the settings that a user of the machine has for the libraries.
    let others = ["OLLAMA_API_KEY", "OPENAI_ORG_ID", "GOOGLE_GENAI_API_VERSION", "GOOGLE_GENAI_USE_VERTEXAI"];
    for name in others {
        command.env_remove(name);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).stdin(Stdio::null()).stdout(Stdio::piped());
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
        let mut child = python("server.py", Versions::Pinned).spawn().expect("there is a Python");
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
    pub(crate) fn ask(&self, gateway: &Gateway, case: &str, versions: Versions) -> Vec<String> {
        let base = |address| format!("http://{address}");
        let urls = [self.url.clone(), base(gateway.addr()), base(gateway.admin_addr())];
        let mut client = python("client.py", versions);
        let name = if versions == Versions::Pinned { "pinned" } else { "newest" };
        // All its waits are bounded by itself.
        let output = client
            .arg(case)
            .args(urls)
            .arg(name)
            .stderr(Stdio::inherit())
            .output()
            .expect("there is a Python");
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
