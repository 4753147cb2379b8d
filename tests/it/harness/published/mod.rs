//! The pages of `tests/migrate/`: configurations of other proxies that people have published, rewritten in short, with
//! their counterparts. A page has the source, the counterpart, what `check --strict` says of it, what people write in
//! vain with the answer, and requests with their outcomes.
//!
//! The requests go to the gateway with the counterpart. Where the other proxy is installed, they also go to it, with
//! the file of the page ([`original`]). [`line`] says how a request is written.

mod line;
mod original;
mod services;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;

use line::Line;
pub(crate) use original::Kind;
use original::Original;
pub(crate) use services::named_backend;
pub(crate) use table::ALL;

use crate::harness::pages::{Block, Page, root};
use crate::harness::{Authority, Backend, Client, Gateway, Recorded, Response, binary, eventually};

/// A page, and what its files are adapted to.
#[derive(Clone, Copy)]
pub(crate) struct Published {
    pub(crate) name: &'static str,
    /// The file of the certificate, and its names.
    certificate: Option<(&'static str, &'static [&'static str])>,
    /// Certificates that clients show.
    clients: &'static [&'static str],
    /// Upstreams, and their addresses in both files. An address of [`AWAY`] gets no backend.
    upstreams: &'static [(&'static str, &'static str)],
    /// Further texts of the counterpart, and what stands for them. The other proxy's file has some of them, too.
    changes: &'static [(&'static str, &'static str)],
    /// Texts of the other proxy's file only. Periods are long there, so that no request of the test finds a refill.
    original: &'static [(&'static str, &'static str)],
    /// The beginnings of health checks and of questions to a service, which are no forwarded requests.
    questions: &'static [&'static str],
}

/// The name of an upstream whose server is not there.
const AWAY: &str = "away";

/// What the files know of the environment.
const ENVIRONMENT: [(&str, &str); 1] = [("TAUTULLI_API_KEY", "tautulli-5d1c9b7e")];

/// A network in a file beside a counterpart. The test has clients of another one.
const BLOCKED: &str = "198.51.100.0/24";

/// The text with each first item replaced by the second; each must be there.
pub(crate) fn substituted(text: &str, changes: &[(&str, String)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "`{from}` is not in\n{text}");
        text.replace(from, to)
    })
}

impl Published {
    /// The page of this name.
    pub(crate) fn named(name: &str) -> Self {
        *ALL.iter().find(|published| published.name == name).expect("it is in the table")
    }

    pub(crate) fn page(&self) -> Page {
        let path = format!("tests/migrate/{}.md", self.name);
        Page { text: std::fs::read_to_string(root().join(&path)).expect("the page is there"), path }
    }

    /// The counterpart, as the page has it.
    fn counterpart(&self) -> String {
        let blocks = self.page().blocks();
        blocks.into_iter().find(|block| block.info == "toml").expect("a counterpart").text
    }

    /// A directory with the certificates and the files that the page says are saved.
    pub(crate) fn folder(&self, page: &Page) -> Authority {
        let folder = Authority::new();
        if let Some((file, names)) = self.certificate {
            folder.certify(file, names);
            let read = |end: &str| std::fs::read_to_string(folder.path(&format!("{file}.{end}")));
            let both = read("pem").and_then(|pem| Ok(pem + &read("key")?)).expect("they can be read");
            std::fs::write(folder.path(&format!("{file}.both")), both).expect("it can be written");
        }
        for client in self.clients {
            folder.certify(client, &[client]);
        }
        for (name, text) in saved(page) {
            let text = self.changed(&text.replace(BLOCKED, "127.8.0.0/24"));
            std::fs::write(folder.path(&name), text).expect("it can be written");
        }
        folder
    }

    /// The text with what the test changes in all files.
    fn changed(&self, text: &str) -> String {
        self.changes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Sends the requests of the page to the gateway.
    pub(crate) fn run(self) -> Running {
        let running = Running::gateway(self);
        running.run();
        running
    }

    /// Sends the requests of the page to the other proxy, if it is one of these.
    pub(crate) fn run_original(self, kinds: &[Kind]) {
        let Some(original) = self.kind().filter(|kind| kinds.contains(kind)) else { return };
        Running::original(self, original).run();
    }

    /// The proxy whose file the page has; none: it does not run in tests.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of(&self.page())
    }
}

/// The names and contents of the files that stand beside the counterpart.
fn saved(page: &Page) -> Vec<(String, String)> {
    let named = |block: Block| Some((block.info.strip_prefix("text saved as ")?.to_owned(), block.text));
    page.blocks().into_iter().filter_map(named).collect()
}

/// What `tollgate check --strict` says of a file in this folder, on standard error.
pub(crate) fn check(folder: &Authority, toml: &str) -> String {
    std::fs::write(folder.path("gateway.toml"), toml).expect("it can be written");
    let mut command = Command::new(binary());
    command.args(["check", "--strict"]).current_dir(folder.path("")).env("NO_COLOR", "1");
    let output = command.envs(ENVIRONMENT).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert!(output.status.success() || !text.is_empty(), "it says why it fails");
    text
}

/// A server with a file of the page before backends of the test.
pub(crate) struct Running {
    published: Published,
    /// The port of each listener in the file, and its address here. The first is the one for `http`.
    listeners: Vec<(u16, SocketAddr)>,
    backends: Vec<(&'static str, Backend)>,
    folder: Authority,
    /// None: the requests go to the other proxy.
    _gateway: Option<Gateway>,
    original: Option<Original>,
    _away: Option<socket2::Socket>,
}

/// A server, and its listeners.
type Started = (Option<Gateway>, Option<Original>, Vec<(u16, SocketAddr)>);

impl Running {
    /// The gateway with the counterpart.
    fn gateway(published: Published) -> Self {
        Self::start(published, |folder, addresses| {
            let page = published.page();
            let written = published.changed(&substituted(&published.counterpart(), addresses));
            let toml = in_folder(&written, &file_names(&published, &page), folder);
            let (toml, ports) = on_free_ports(&toml);
            let gateway = Gateway::start_in(&without_refills(&toml), &[], &ENVIRONMENT);
            let listeners = ports.into_iter().zip(gateway.addresses().iter().copied()).collect();
            (Some(gateway), None, listeners)
        })
    }

    /// The other proxy with its own file.
    fn original(published: Published, kind: Kind) -> Self {
        let running = Self::start(published, |folder, addresses| {
            let original = Original::start(kind, &published, folder, addresses);
            let mut listeners = original.listeners().to_vec();
            let (_, ports) = on_free_ports(&published.counterpart());
            listeners
                .sort_by_key(|(port, _)| ports.iter().position(|known| known == port).unwrap_or(ports.len()));
            (None, Some(original), listeners)
        });
        if kind == Kind::Traefik {
            running.wait_for_routers();
        }
        running
    }

    /// Traefik listens before it has read its dynamic file.
    fn wait_for_routers(&self) {
        let names = self.published.certificate.map(|(_, names)| names[0].replace('*', "ready"));
        let (scheme, host) = names.map_or(("http", "ready.test".to_owned()), |name| ("https", name));
        let line = format!("GET {scheme}://{host}{} => 418", original::READY);
        let line = Line::parse(&line, true);
        eventually("the routers of the file", || {
            self.send(&line, 1).filter(|response| response.status == 418)
        });
    }

    fn start(published: Published, start: impl FnOnce(&Authority, &[(&str, String)]) -> Started) -> Self {
        let folder = published.folder(&published.page());
        let (mut backends, mut addresses, mut held) = (Vec::new(), Vec::new(), None);
        for (name, written) in published.upstreams {
            let address = if *name == AWAY {
                let (address, socket) = Backend::refusing();
                held = Some(socket);
                address
            } else {
                let backend = services::backend(name);
                let address = backend.addr();
                backends.push((*name, backend));
                address
            };
            let scheme = if written.starts_with("http://") { "http://" } else { "" };
            addresses.push((*written, format!("{scheme}{address}")));
        }
        let (gateway, original, listeners) = start(&folder, &addresses);
        Self { published, listeners, backends, folder, _gateway: gateway, original, _away: held }
    }

    /// Where clients without TLS connect.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.listeners[0].1
    }

    /// Sends all requests of the page, in order.
    fn run(&self) {
        let page = self.published.page();
        let block = page.blocks().into_iter().find(|block| block.info == "text requests");
        let block = block.expect("a list of requests");
        let mut faults = Vec::new();
        for (index, line) in block.text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = Line::parse(line, self.original.is_some());
            for turn in 1..=line.count {
                if let Some(fault) = self.fault(&line, turn) {
                    let place = format!("{}:{}", page.path, block.line + index + 1);
                    faults.push(format!("{place}: {} {} ({turn}): {fault}", line.method, line.url));
                    break;
                }
            }
        }
        let server = self.original.as_ref().map_or("tollgate", Original::name);
        assert!(faults.is_empty(), "{server}:\n{}", faults.join("\n"));
    }

    /// How what becomes of the request is not what the line says.
    fn fault(&self, line: &Line<'_>, turn: usize) -> Option<String> {
        let before: Vec<_> = self.backends.iter().map(|(_, backend)| backend.count()).collect();
        let Some(response) = self.send(line, turn) else {
            return (line.outcome != "closed").then(|| format!("closed, not {}", line.outcome));
        };
        let forwarded = self.backends.iter().zip(before).find_map(|((name, backend), before)| {
            let asks = |request: &Recorded| {
                self.published.questions.iter().any(|path| request.target().starts_with(path))
            };
            let new = backend.requests().into_iter().skip(before).find(|request| !asks(request));
            Some((*name, new?))
        });
        let found = self.outcome(&response, forwarded.as_ref());
        if found != line.outcome {
            return Some(format!("{found}, not {}", line.outcome));
        }
        line.seen.iter().find_map(|(name, value)| {
            let found = match (*name, name.strip_prefix("sent ")) {
                ("body", _) => response.text().trim().to_owned(),
                (_, Some(name)) => forwarded.as_ref()?.1.header_all(name).join(", "),
                _ => response.header_all(name).join(", "),
            };
            let equal = found == *value || (*value == "*" && !found.is_empty());
            (!equal).then(|| format!("{name} is {found:?}, not {value:?}"))
        })
    }

    /// What became of a request.
    fn outcome(&self, response: &Response, forwarded: Option<&(&str, Recorded)>) -> String {
        if let Some((name, request)) = forwarded {
            let line = request.request_line();
            return format!("{name} {}", line.rsplit_once(" HTTP/1.").map_or(line, |(line, _)| line));
        }
        let limit = || response.header("ratelimit").and_then(|value| value.split('"').nth(1));
        let more = match response.status {
            300..400 => response.header("location").unwrap_or_default().to_owned(),
            429 | 503 => limit().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        // The files of the pages have the usual ports.
        let usual = |more: String, (_, address): &(u16, SocketAddr)| {
            more.replace(&format!(":{}/", address.port()), "/")
        };
        let more = self.listeners.iter().fold(more, usual);
        format!("{} {more}", response.status).trim_end().to_owned()
    }

    /// Sends the request; none: the server closes the connection without an answer.
    fn send(&self, line: &Line<'_>, turn: usize) -> Option<Response> {
        let (scheme, rest) = line.url.split_once("://").expect("a scheme");
        let (host, _) = rest.split_once('/').expect("a path");
        let target = rest.strip_prefix(host).unwrap_or_default();
        let source: IpAddr = line.from.replace('*', &turn.to_string()).parse().expect("an address");
        let mut client = Client::try_connect_from(source, self.listener(scheme, host)).ok()?;
        if scheme == "https" {
            let name = host.split(':').next().unwrap_or_default();
            client = client.agree_on_tls(&self.client(line.certificate), name).ok()?;
        }
        let mut head = format!("{} {target} HTTP/1.1\r\nhost: {host}\r\n", line.method);
        if !line.sent.iter().any(|(name, _)| *name == "connection") {
            head.push_str("connection: close\r\n");
        }
        for (name, value) in &line.sent {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if line.body > 0 {
            head.push_str(&format!("content-length: {}\r\n", line.body));
        }
        client.write(format!("{head}\r\n{}", "x".repeat(line.body)));
        client.try_read(line.method).ok()
    }

    /// The listener with the port of the host, else the one of the scheme.
    fn listener(&self, scheme: &str, host: &str) -> SocketAddr {
        let written = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let of = |port: u16| self.listeners.iter().find(|(written, _)| *written == port);
        let found = written.and_then(of).or_else(|| if scheme == "https" { of(443) } else { None });
        found.unwrap_or(&self.listeners[0]).1
    }

    /// How a client speaks TLS.
    fn client(&self, certificate: Option<&str>) -> Arc<ClientConfig> {
        self.folder.client_of(certificate, rustls::ALL_VERSIONS)
    }
}

/// The names of the files that stand beside the page's.
fn file_names(published: &Published, page: &Page) -> Vec<String> {
    let mut names: Vec<String> = saved(page).into_iter().map(|(name, _)| name).collect();
    names.push("ca.pem".to_owned());
    if let Some((file, _)) = published.certificate {
        names.extend([format!("{file}.pem"), format!("{file}.key")]);
    }
    names
}

/// The counterpart with the paths of what stands in the folder.
fn in_folder(toml: &str, names: &[String], folder: &Authority) -> String {
    names.iter().fold(toml.to_owned(), |toml, name| {
        let path = folder.path(name);
        let toml = toml.replace(&format!("\"{name}\""), &format!("\"{}\"", path.display()));
        toml.replace(&format!("\"file:{name}\""), &format!("\"file:{}\"", path.display()))
    })
}

/// The counterpart with free ports, and the ports of its listeners, in order.
fn on_free_ports(toml: &str) -> (String, Vec<u16>) {
    const ALL_ADDRESSES: &str = "\"0.0.0.0:";
    let mut parts = toml.split(ALL_ADDRESSES);
    let (mut text, mut ports) = (parts.next().unwrap_or_default().to_owned(), Vec::new());
    for part in parts {
        let (port, rest) = part.split_once('"').expect("a port");
        ports.push(port.parse().expect("a port"));
        text.push_str(&format!("\"127.0.0.1:0\"{rest}"));
    }
    (text, ports)
}

/// The same bursts and counts in a day, so that no request of the test finds a refill.
fn without_refills(toml: &str) -> String {
    let mut file: toml::Table = toml.parse().expect("TOML");
    let limits = file.get_mut("limits").and_then(toml::Value::as_table_mut);
    for (_, limit) in limits.into_iter().flatten() {
        in_a_day(limit);
        let tiers = limit.get_mut("tiers").and_then(toml::Value::as_table_mut);
        for (_, tier) in tiers.into_iter().flatten() {
            in_a_day(tier);
        }
    }
    toml::to_string(&file).expect("TOML")
}

/// Of several rates the smallest count stands for all.
fn in_a_day(limit: &mut toml::Value) {
    let rates: Vec<&str> = match limit.get("rate") {
        Some(toml::Value::String(rate)) => vec![rate],
        Some(toml::Value::Array(rates)) => rates.iter().filter_map(toml::Value::as_str).collect(),
        _ => return,
    };
    let count = |rate: &&str| rate.split_once('/').and_then(|(count, _)| count.parse::<u64>().ok());
    let smallest = rates.iter().filter_map(count).min().expect("a count");
    let count = if limit.get("burst").is_some() { 1 } else { smallest };
    limit["rate"] = format!("{count}/day").into();
}
