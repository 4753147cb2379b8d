//! A real nginx, HAProxy, Traefik or Envoy: between a client and the gateway, or in the gateway's place.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{eventually, free_address, tools};

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
        Self::nginx_with(gateway, "", directives)
    }

    /// As [`Self::nginx`]; `http` stands before its `server`.
    pub(crate) fn nginx_with(gateway: SocketAddr, http: &str, directives: &str) -> Self {
        Self::nginx_file(|address, _| {
            format!(
                "events {{}}
                http {{ {http}
                server {{ listen {address};
                location / {{ proxy_pass http://{gateway}; proxy_set_header Host test; {directives} }} }} }}\n"
            )
        })
    }

    /// nginx with a whole file; `configuration` gets the address to listen on and a directory for files.
    pub(crate) fn nginx_file(configuration: impl Fn(SocketAddr, &str) -> String) -> Self {
        let with_places = |address: SocketAddr, directory: &str| {
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|name| format!("{name}_temp_path {directory}/{name};"))
                .concat();
            let text = configuration(address, directory);
            let text = text.replacen("http {", &format!("http {{ access_log off; {temporary}"), 1);
            format!("daemon off; master_process off; pid {directory}/pid; error_log stderr;\n{text}")
        };
        Self::start(with_places, |file| {
            let mut nginx = tools::needed("nginx");
            nginx.args(["-e", "stderr", "-c", file]);
            nginx
        })
    }

    /// HAProxy before `gateway`; `lines` stand in its `frontend`.
    pub(crate) fn haproxy(gateway: SocketAddr, lines: &str) -> Self {
        Self::haproxy_file(|address| {
            format!(
                "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
                 frontend front\n bind {address}\n {lines}\n default_backend gateway\n\
                 backend gateway\n server one {gateway}\n"
            )
        })
    }

    /// HAProxy with a whole file; `configuration` gets the address to listen on.
    pub(crate) fn haproxy_file(configuration: impl Fn(SocketAddr) -> String) -> Self {
        let configuration = |address: SocketAddr, _: &str| configuration(address);
        Self::start(configuration, |file| {
            let mut haproxy = tools::needed("haproxy");
            haproxy.args(["-db", "-f", file]);
            haproxy
        })
    }

    /// Traefik before `backend`, with this middleware, in YAML, on its only router.
    pub(crate) fn traefik(backend: SocketAddr, middleware: &str) -> Self {
        Self::traefik_file(&format!(
            "http:\n  routers:\n    all:\n      rule: PathPrefix(`/`)\n      service: api\n      middlewares: [limit]\n  \
                 services:\n    api:\n      loadBalancer:\n        servers:\n          - url: http://{backend}\n  \
                 middlewares:\n    limit:\n      {middleware}\n"
        ))
    }

    /// Traefik with this dynamic configuration, in YAML.
    pub(crate) fn traefik_file(dynamic: &str) -> Self {
        let configuration = |_: SocketAddr, _: &str| dynamic.to_owned();
        Self::start_at(configuration, |file, address| {
            let dynamic = format!("{file}.yaml");
            std::fs::rename(file, &dynamic).expect("it can be renamed");
            let mut traefik = tools::needed("traefik");
            traefik.arg(format!("--entryPoints.web.address={address}"));
            traefik.arg(format!("--providers.file.filename={dynamic}"));
            traefik
        })
    }

    /// Traefik of `make test-peers` with a static file, which gets the address to listen on, and a dynamic one.
    pub(crate) fn traefik_files(fixed: impl Fn(SocketAddr) -> String, dynamic: &str) -> Self {
        let configuration = |address: SocketAddr, directory: &str| {
            let rules = format!("{directory}/rules.yml");
            std::fs::write(&rules, dynamic).expect("the file can be written");
            format!("{}\nproviders: {{ file: {{ filename: \"{rules}\" }} }}\n", fixed(address))
        };
        Self::start(configuration, |file| {
            let yaml = format!("{file}.yml");
            std::fs::rename(file, &yaml).expect("it can be renamed");
            let mut traefik = tools::peer("traefik");
            traefik.arg(format!("--configFile={yaml}"));
            traefik
        })
    }

    /// Caddy of `make test-peers` with a whole file; `configuration` gets the address to listen on and a directory.
    pub(crate) fn caddy_file(configuration: impl Fn(SocketAddr, &str) -> String) -> Self {
        Self::start(configuration, |file| {
            let mut caddy = tools::peer("caddy");
            caddy.args(["run", "--adapter", "caddyfile", "--config", file]);
            caddy
        })
    }

    /// Envoy with a whole file, in YAML; `configuration` gets the address to listen on.
    pub(crate) fn envoy_file(configuration: impl Fn(SocketAddr) -> String) -> Self {
        let configuration = |address: SocketAddr, _: &str| configuration(address);
        Self::start(configuration, |file| {
            let yaml = format!("{file}.yaml");
            std::fs::rename(file, &yaml).expect("it can be renamed");
            let mut envoy = tools::peer("envoy");
            envoy.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", &yaml]);
            envoy
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process takes signals");
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }

    fn start(configuration: impl Fn(SocketAddr, &str) -> String, command: impl Fn(&str) -> Command) -> Self {
        Self::start_at(configuration, |file, _| command(file))
    }

    /// A program with a file of this configuration, which gets an address to listen on and a directory.
    pub(crate) fn start_at(
        configuration: impl Fn(SocketAddr, &str) -> String,
        command: impl Fn(&str, SocketAddr) -> Command,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().to_str().expect("a plain path").to_owned();
        // Another process may take the port first; then the proxy exits and the next port is tried.
        for _ in 0..10 {
            let address = free_address();
            let file = format!("{place}/front.conf");
            std::fs::write(&file, configuration(address, &place)).expect("the file can be written");
            let mut child = command(&file, address)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("the proxy starts");
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
