//! Tests beside programs of others that `make test` does not install: `make test-peers` runs them.

mod acme;
mod asking;
mod axe;
mod client_libraries;
mod deb;
mod editor;
mod envoy_calls;
mod envoy_limits;
mod grpc;
mod http2_clients;
#[cfg(feature = "http3")]
mod http3;
mod lintian;
mod mcp;
mod mirroring;
mod openapi;
mod published;
mod systemd;
mod websocket;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Front, pages, tools};

/// Envoy with each action of its rate limit filter (`tests/peers/envoy.yaml`), whose filter has these lines too.
fn envoy_of(shop: SocketAddr, service: SocketAddr, filter: &[&str]) -> Front {
    let yaml = std::fs::read_to_string(pages::root().join("tests/peers/envoy.yaml")).expect("it is there");
    Front::envoy_file(|address| {
        let ports = [("LISTEN", address), ("SHOP", shop), ("TOLLGATE", service)];
        let yaml = ports.into_iter().fold(yaml.clone(), |yaml, (name, address)| {
            yaml.replace(&format!("port_value: {name}"), &format!("port_value: {}", address.port()))
        });
        yaml.replace("FILTER\n", &(filter.join("\n              ") + "\n"))
    })
}

/// A server of `tests/websocket/server.py`. Killed when dropped.
struct WebSocketServer(Child, SocketAddr);

impl WebSocketServer {
    fn start(kind: &str) -> Self {
        let mut python = websocket_script("server.py");
        let mut child = python.arg(kind).stdout(Stdio::piped()).spawn().expect("there is a Python");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut port).expect("text");
        let port = port.trim_end().parse().expect("the server's port");
        Self(child, ([127, 0, 0, 1], port).into())
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn websocket_script(name: &str) -> Command {
    let mut python = tools::websocket();
    python.arg(pages::root().join("tests/websocket").join(name));
    python.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    python
}

/// The line of JSON that a script prints.
#[track_caller]
fn told(command: &mut Command) -> Value {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
