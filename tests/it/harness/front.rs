//! A real nginx or HAProxy between a client and the gateway.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::{eventually, free_address, tools};

/// A running proxy, killed when dropped.
#[derive(Debug)]
pub(crate) struct Front {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Front {
    /// nginx before `gateway`; `directives` stand in its `location /`.
    pub(crate) fn nginx(gateway: SocketAddr, directives: &str) -> Self {
        let configuration = |address: SocketAddr, directory: &str| {
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|name| format!("{name}_temp_path {directory}/{name};"))
                .concat();
            format!(
                "daemon off; master_process off; pid {directory}/pid; error_log stderr;
                events {{}}
                http {{ access_log off; {temporary}
                server {{ listen {address};
                location / {{ proxy_pass http://{gateway}; proxy_set_header Host test; {directives} }} }} }}\n"
            )
        };
        Self::start(configuration, |file| {
            let mut nginx = tools::needed("nginx");
            nginx.args(["-e", "stderr", "-c", file]);
            nginx
        })
    }

    /// HAProxy before `gateway`; `lines` stand in its `frontend`.
    pub(crate) fn haproxy(gateway: SocketAddr, lines: &str) -> Self {
        let configuration = |address: SocketAddr, _: &str| {
            format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
                 frontend front\n bind {address}\n {lines}\n default_backend gateway\n\
                 backend gateway\n server one {gateway}\n"
            )
        };
        Self::start(configuration, |file| {
            let mut haproxy = tools::needed("haproxy");
            haproxy.args(["-db", "-f", file]);
            haproxy
        })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    fn start(configuration: impl Fn(SocketAddr, &str) -> String, command: impl Fn(&str) -> Command) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().to_str().expect("a plain path").to_owned();
        // Another process may take the port first; then the proxy exits and the next port is tried.
        for _ in 0..10 {
            let address = free_address();
            let file = format!("{place}/front.conf");
            std::fs::write(&file, configuration(address, &place)).expect("the file can be written");
            let mut child =
                command(&file).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the proxy starts");
            let listens = eventually("the proxy to listen or to exit", || {
                if child.try_wait().expect("it can be asked").is_some() {
                    return Some(false);
                }
                TcpStream::connect(address).ok().map(|_| true)
            });
            if listens {
                return Self { child, address, _directory: directory };
            }
        }
        panic!("the proxy does not start");
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
