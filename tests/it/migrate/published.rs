//! The pages of `tests/migrate/`: configurations of other proxies that people have published, rewritten in short, with
//! their counterparts. A page has the source, the counterpart, what `check --strict` says of it, what people write in
//! vain with the answer, and requests with their outcomes.
//!
//! A line of the requests is `[COUNT x] METHOD URL | sent … => outcome | seen …`:
//!
//! - sent: `name: value`; `from ADDRESS` (127.0.0.2 without it; `127.1.0.*` is another client each time); `body BYTES`
//! - outcome: `UPSTREAM METHOD TARGET`, or the status of the gateway with the limit that refuses or the location
//! - seen: `name: value` of the response, `body: text`, `sent name: value` at the backend; no value: it is absent

use std::ffi::OsString;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;

use super::{named_backend, substituted};
use crate::harness::pages::{Page, root};
use crate::harness::{Authority, Backend, Client, Gateway, Next, Recorded, Response, binary};

/// A page, and what its counterpart is adapted to.
#[derive(Clone, Copy)]
struct Published {
    name: &'static str,
    /// The file of the certificate, and its names.
    certificate: Option<(&'static str, &'static [&'static str])>,
    /// Upstreams, and their addresses in the file.
    upstreams: &'static [(&'static str, &'static str)],
    /// Further texts of the file, and what stands for them.
    changes: &'static [(&'static str, &'static str)],
    /// The beginning of questions to a service, which are no forwarded requests.
    question: Option<&'static str>,
}

const OPEN_FOOD_FACTS: Published = Published {
    name: "open-food-facts",
    certificate: Some(("openfoodfacts.org", &["openfoodfacts.org", "*.openfoodfacts.org", "example.org"])),
    upstreams: &[
        ("product-opener", "10.1.0.113:80"),
        ("query", "10.1.0.105:16001"),
        ("images", "10.1.0.114:80"),
    ],
    changes: &[("10.1.0.0/16", "127.0.1.0/24")],
    question: None,
};

const HAPROXY_MAPS: Published = Published {
    name: "haproxy-maps",
    certificate: None,
    upstreams: &[("ui", "10.0.1.1:9001"), ("api", "10.0.1.2:9002"), ("docs", "10.0.1.3:9003")],
    changes: &[("192.0.2.0/24", "127.9.0.0/24"), ("127.0.0.1:8901", "127.0.0.1:0")],
    question: None,
};

const TRAEFIK_AUTHELIA: Published = Published {
    name: "traefik-authelia",
    certificate: Some(("example.com", &["*.example.com"])),
    upstreams: &[
        ("authelia", "authelia:9091"),
        ("adguard", "192.168.1.110:80"),
        ("haos", "192.168.1.123:8123"),
        ("tautulli", "192.168.1.111:8181"),
    ],
    changes: &[("127.0.0.1:9900", "127.0.0.1:0")],
    question: Some("/api/verify"),
};

const SUPABASE_KONG: Published = Published {
    name: "supabase-kong",
    certificate: None,
    upstreams: &[
        ("auth", "auth:9999"),
        ("rest", "rest:3000"),
        ("storage", "storage:5000"),
        ("functions", "functions:9000"),
        ("meta", "meta:8080"),
        ("studio", "studio:3000"),
        ("realtime", "http://realtime-dev.supabase-realtime:4000"),
    ],
    changes: &[],
    question: None,
};

const CADDY_RATE_LIMIT: Published = Published {
    name: "caddy-rate-limit",
    certificate: Some(("example.com", &["*.example.com"])),
    upstreams: &[("api", "10.0.1.1:3000"), ("files", "10.0.1.2:8080"), ("web", "10.0.1.3:3000")],
    changes: &[("192.168.0.0/16", "127.9.0.0/24")],
    question: None,
};

const ALL: [Published; 5] =
    [OPEN_FOOD_FACTS, HAPROXY_MAPS, TRAEFIK_AUTHELIA, SUPABASE_KONG, CADDY_RATE_LIMIT];

/// What the files know of the environment.
const ENVIRONMENT: [(&str, &str); 1] = [("TAUTULLI_API_KEY", "tautulli-5d1c9b7e")];

/// A network in a file beside a counterpart. The test has clients of another one.
const BLOCKED: &str = "198.51.100.0/24";

/// What stands above the lines that people write in vain.
const BASE: &str =
    "[upstreams]\na = \"http://127.0.0.1:9001\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\n";

impl Published {
    fn page(&self) -> Page {
        let path = format!("tests/migrate/{}.md", self.name);
        Page { text: std::fs::read_to_string(root().join(&path)).expect("the page is there"), path }
    }

    /// A directory with the certificate and the files that the page says are saved.
    fn folder(&self, page: &Page) -> Authority {
        let folder = Authority::new();
        if let Some((file, names)) = self.certificate {
            folder.certify(file, names);
        }
        for (name, text) in saved(page) {
            let text = text.replace(BLOCKED, "127.8.0.0/24");
            std::fs::write(folder.path(&name), text).expect("it can be written");
        }
        folder
    }
}

/// The names and contents of the files that stand beside the counterpart.
fn saved(page: &Page) -> Vec<(String, String)> {
    let blocks = page.blocks().into_iter();
    let named = |block: crate::harness::pages::Block| {
        Some((block.info.strip_prefix("text saved as ")?.to_owned(), block.text))
    };
    blocks.filter_map(named).collect()
}

/// What `tollgate check --strict` says on standard error.
fn check(folder: &Authority, toml: &str) -> String {
    std::fs::write(folder.path("gateway.toml"), toml).expect("it can be written");
    let mut command = Command::new(binary());
    command.args(["check", "--strict"]).current_dir(folder.path("")).env("NO_COLOR", "1");
    let output = command.envs(ENVIRONMENT).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert!(output.status.success() || !text.is_empty(), "it says why it fails");
    text
}

/// All of the counterparts are good, but for the warnings that the page has. What people write in vain is answered with
/// what stands for it.
#[test]
fn check_says_what_the_pages_say() {
    let mut faults = Vec::new();
    for published in ALL {
        let page = published.page();
        let folder = published.folder(&page);
        let mut asked = String::new();
        let mut answered = 0;
        for block in page.blocks() {
            match block.info.as_str() {
                "toml" => asked = check(&folder, &block.text),
                "toml refused" => asked = check(&folder, &format!("{BASE}{}", block.text)),
                "text check" | "text answer" => {
                    answered += 1;
                    if asked != block.text.trim() {
                        faults.push(format!("{}: `check` says\n{asked}", block.place()));
                    }
                }
                _ => {}
            }
        }
        let refused = page.blocks().iter().filter(|block| block.info == "toml refused").count();
        assert_eq!(answered, refused + 1, "{}: each block has its answer", page.path);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn each_page_has_its_test() {
    let files = std::fs::read_dir(root().join("tests/migrate")).expect("it is there");
    let names = files.map(|file| file.expect("it can be listed").file_name());
    let is_page = |name: &OsString| name.to_string_lossy().ends_with(".md");
    let mut found: Vec<_> = names.filter(is_page).collect();
    let known = ALL.iter().map(|published| format!("{}.md", published.name).into());
    let mut known: Vec<OsString> = known.collect();
    found.sort();
    known.sort();
    assert_eq!(found, known);
}

/// The counterpart before backends of the test.
struct Running {
    published: Published,
    gateway: Gateway,
    backends: Vec<(&'static str, Backend)>,
    client: Arc<ClientConfig>,
    _folder: Authority,
}

impl Running {
    fn start(published: Published) -> Self {
        let page = published.page();
        let folder = published.folder(&page);
        let backend = |name| if name == "authelia" { authelia() } else { named_backend(name) };
        let backends: Vec<_> = published.upstreams.iter().map(|(name, _)| (*name, backend(name))).collect();
        let mut changes: Vec<(&str, String)> =
            published.changes.iter().map(|(from, to)| (*from, (*to).to_owned())).collect();
        for ((_, written), (_, backend)) in published.upstreams.iter().zip(&backends) {
            let scheme = if written.starts_with("http://") { "http://" } else { "" };
            changes.push((written, format!("{scheme}{}", backend.addr())));
        }
        let toml = page.blocks().into_iter().find(|block| block.info == "toml").expect("a counterpart").text;
        let toml = in_folder(&substituted(&toml, &changes), &page, &published, &folder);
        let gateway = Gateway::start_in(&without_refills(&toml), &[], &ENVIRONMENT);
        Self { client: folder.client(), published, gateway, backends, _folder: folder }
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
            let line = Line::parse(line);
            for turn in 1..=line.count {
                if let Some(fault) = self.fault(&line, turn) {
                    let place = format!("{}:{}", page.path, block.line + index + 1);
                    faults.push(format!("{place}: {} {} ({turn}): {fault}", line.method, line.url));
                    break;
                }
            }
        }
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }

    /// How what becomes of the request is not what the line says.
    fn fault(&self, line: &Line<'_>, turn: usize) -> Option<String> {
        let before: Vec<_> = self.backends.iter().map(|(_, backend)| backend.count()).collect();
        let response = self.send(line, turn);
        let forwarded = self.backends.iter().zip(before).find_map(|((name, backend), before)| {
            let asks = |request: &Recorded| {
                self.published.question.is_some_and(|path| request.target().starts_with(path))
            };
            let new = backend.requests().into_iter().skip(before).find(|request| !asks(request));
            Some((*name, new?))
        });
        let found = outcome(&response, forwarded.as_ref());
        if found != line.outcome {
            return Some(format!("{found}, not {}", line.outcome));
        }
        line.seen.iter().find_map(|(name, value)| {
            let found = match (*name, name.strip_prefix("sent ")) {
                ("body", _) => response.text().trim().to_owned(),
                (_, Some(name)) => forwarded.as_ref()?.1.header_all(name).join(", "),
                _ => response.header_all(name).join(", "),
            };
            (found != *value).then(|| format!("{name} is {found:?}, not {value:?}"))
        })
    }

    fn send(&self, line: &Line<'_>, turn: usize) -> Response {
        let (scheme, rest) = line.url.split_once("://").expect("a scheme");
        let (host, _) = rest.split_once('/').expect("a path");
        let target = rest.strip_prefix(host).unwrap_or_default();
        let source: IpAddr = line.from.replace('*', &turn.to_string()).parse().expect("an address");
        let mut client = match scheme {
            "https" => Client::connect_from(source, self.gateway.addresses()[1])
                .agree_on_tls(&self.client, host)
                .expect("a handshake"),
            _ => Client::connect_from(source, self.gateway.addr()),
        };
        let mut head = format!("{} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n", line.method);
        for (name, value) in &line.sent {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if line.body > 0 {
            head.push_str(&format!("content-length: {}\r\n", line.body));
        }
        client.write(format!("{head}\r\n{}", "x".repeat(line.body)));
        client.read_for(line.method)
    }
}

/// The file with the paths of what stands in the folder, and free ports.
fn in_folder(toml: &str, page: &Page, published: &Published, folder: &Authority) -> String {
    let mut names: Vec<String> = saved(page).into_iter().map(|(name, _)| name).collect();
    if let Some((file, _)) = published.certificate {
        names.extend([format!("{file}.pem"), format!("{file}.key")]);
    }
    let mut toml = toml.to_owned();
    for name in names {
        let path = folder.path(&name);
        toml = toml.replace(&format!("\"{name}\""), &format!("\"{}\"", path.display()));
        toml = toml.replace(&format!("\"file:{name}\""), &format!("\"file:{}\"", path.display()));
    }
    for port in ["80", "443", "8000", "8900"] {
        toml = toml.replace(&format!("\"0.0.0.0:{port}\""), "\"127.0.0.1:0\"");
    }
    toml
}

/// The same bursts and counts in a day, so that no request of the test finds a refill.
fn without_refills(toml: &str) -> String {
    let mut file: toml::Table = toml.parse().expect("TOML");
    let limits = file.get_mut("limits").and_then(toml::Value::as_table_mut);
    for (_, limit) in limits.into_iter().flatten() {
        let rate = limit.get("rate").and_then(toml::Value::as_str).expect("one rate");
        let (count, _) = rate.split_once('/').expect("a period");
        let count = if limit.get("burst").is_some() { "1" } else { count };
        limit["rate"] = format!("{count}/day").into();
    }
    toml::to_string(&file).expect("TOML")
}

/// A line of the requests.
struct Line<'a> {
    count: usize,
    method: &'a str,
    url: &'a str,
    sent: Vec<(&'a str, &'a str)>,
    from: &'a str,
    body: usize,
    outcome: &'a str,
    seen: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Self {
        let (request, result) = text.split_once(" => ").unwrap_or_else(|| panic!("no outcome: {text}"));
        let (mut request, mut result) = (request.split(" | "), result.split(" | "));
        let first = request.next().unwrap_or_default();
        let (count, first) = first.split_once(" x ").unwrap_or(("1", first));
        let (method, url) = first.split_once(' ').unwrap_or_else(|| panic!("no URL: {text}"));
        let count = count.parse().unwrap_or_else(|_| panic!("no count: {text}"));
        let outcome = result.next().unwrap_or_default();
        let seen = result.map(field).collect();
        let mut line =
            Self { count, method, url, sent: Vec::new(), from: "127.0.0.2", body: 0, outcome, seen };
        for part in request {
            if let Some(address) = part.strip_prefix("from ") {
                line.from = address;
            } else if let Some(bytes) = part.strip_prefix("body ") {
                line.body = bytes.parse().unwrap_or_else(|_| panic!("no number: {part}"));
            } else {
                line.sent.push(field(part));
            }
        }
        line
    }
}

/// `name: value`, or `name:` alone.
fn field(text: &str) -> (&str, &str) {
    let (name, value) = text.split_once(':').unwrap_or_else(|| panic!("no field: {text}"));
    (name, value.trim())
}

/// What became of a request.
fn outcome(response: &Response, forwarded: Option<&(&str, Recorded)>) -> String {
    if let Some((name, request)) = forwarded {
        return format!("{name} {}", request.request_line().trim_end_matches(" HTTP/1.1"));
    }
    let limit = || response.header("ratelimit").and_then(|value| value.split('"').nth(1));
    let more = match response.status {
        300..400 => response.header("location"),
        429 | 503 => limit(),
        _ => None,
    };
    format!("{} {}", response.status, more.unwrap_or_default()).trim_end().to_owned()
}

/// Answers questions as Authelia does: a session passes, all else is sent to the log-in.
fn authelia() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        let head = exchange.head.to_lowercase();
        let header = |name: &str| {
            let lines = head.lines();
            let value = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).next();
            value.unwrap_or_default().to_owned()
        };
        let answer = if !exchange.target().starts_with("/api/verify?rd=https%3A%2F%2Fauthelia.example.com") {
            "200 OK\r\nserver: authelia".to_owned()
        } else if header("cookie").contains("authelia_session=ann") {
            "200 OK\r\nremote-user: ann\r\nremote-groups: admins\r\nremote-name: Ann".to_owned()
        } else {
            let [scheme, host, uri, method] =
                ["proto", "host", "uri", "method"].map(|name| header(&format!("x-forwarded-{name}")));
            let back = format!("{scheme}://{host}{uri}&rm={}", method.to_uppercase());
            format!("302 Found\r\nlocation: https://authelia.example.com/?rd={back}")
        };
        exchange.write(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

#[test]
fn open_food_facts() {
    Running::start(OPEN_FOOD_FACTS).run();
}

#[test]
fn haproxy_maps() {
    let running = Running::start(HAPROXY_MAPS);
    running.run();
    // `conn_cur gt 20`: the next connection of the address is refused.
    let connect = || Client::connect_from([127, 0, 0, 20].into(), running.gateway.addr());
    let mut held: Vec<_> = (0..20).map(|_| connect()).collect();
    for client in &mut held {
        client.write("GET / HTTP/1.1\r\nhost: other.test\r\n\r\n");
        client.read().expect(404);
    }
    connect().read().expect(503);
}

#[test]
fn traefik_authelia() {
    Running::start(TRAEFIK_AUTHELIA).run();
}

#[test]
fn supabase_kong() {
    Running::start(SUPABASE_KONG).run();
}

#[test]
fn caddy_rate_limit() {
    Running::start(CADDY_RATE_LIMIT).run();
}
