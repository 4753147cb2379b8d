//! gRPC as its own library speaks it: the server and the client in `tests/grpc`, each a process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::harness::{Authority, Gateway, tools};

/// A script of `tests/grpc`.
fn python(script: &str) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/grpc").join(script);
    let mut command = tools::python(&["grpc"]);
    // No proxy of the environment's has a part in it.
    command.arg(script).env("no_proxy", "*").stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A gRPC server on a free port. Killed when dropped.
#[derive(Debug)]
pub(crate) struct GrpcServer {
    child: Child,
    address: SocketAddr,
    scheme: &'static str,
}

impl GrpcServer {
    /// Speaks HTTP/2 with prior knowledge.
    pub(crate) fn start() -> Self {
        Self::run(python("server.py"), "http")
    }

    /// Speaks TLS, with the certificate that `authority` gave this file's name.
    pub(crate) fn start_tls(authority: &Authority, file: &str) -> Self {
        let mut command = python("server.py");
        command.args(["pem", "key"].map(|kind| authority.path(&format!("{file}.{kind}"))));
        Self::run(command, "https")
    }

    fn run(mut command: Command, scheme: &'static str) -> Self {
        let mut child = command.spawn().expect("there is a Python");
        let port = Lines::of(&mut child).next();
        let port = port.parse().expect("the server's port");
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), scheme }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Kills it in the middle of what it does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A client on its way through its cases. Killed when dropped.
#[derive(Debug)]
pub(crate) struct GrpcClient {
    child: Child,
    lines: Lines,
}

impl GrpcClient {
    /// Goes through `cases` of `tests/grpc/client.py`, one after the other. `authority`: over TLS.
    pub(crate) fn start(
        gateway: &Gateway,
        server: &GrpcServer,
        authority: Option<&Authority>,
        cases: &[&str],
    ) -> Self {
        let mut command = python("client.py");
        let roots = authority.map_or(PathBuf::from("-"), |authority| authority.path("ca.pem"));
        command.arg(gateway.addr().to_string()).arg(server.address.to_string()).arg(roots).args(cases);
        let mut child = command.spawn().expect("there is a Python");
        let lines = Lines::of(&mut child);
        Self { child, lines }
    }

    /// Waits until it says that it has begun.
    pub(crate) fn has_begun(&mut self) {
        assert_eq!(self.lines.next(), "begun");
    }

    /// Waits until all has turned out well.
    #[track_caller]
    pub(crate) fn finishes(mut self) {
        assert_eq!(self.lines.next(), "done", "what is wrong stands above");
    }
}

impl Drop for GrpcClient {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a process says. All its waits are bounded by itself.
#[derive(Debug)]
struct Lines(BufReader<ChildStdout>);

impl Lines {
    fn of(child: &mut Child) -> Self {
        Self(BufReader::new(child.stdout.take().expect("piped")))
    }

    /// The next line; empty at the end.
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }
}
