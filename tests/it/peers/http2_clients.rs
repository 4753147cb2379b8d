//! Requests that are refused before their body has arrived, as common HTTP/2 clients see them: each client must report the
//! status, never an error of the stream or the connection.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::{Authority, Backend, Gateway, Next, tools};

/// The path, and the status with which it is answered.
const OK: (&str, u16) = ("/ok", 200);
/// Its answer has 20 MB in small parts: the frames with which a client takes it are no flood.
const LARGE: (&str, u16) = ("/large", 200);
/// Its limit is exhausted.
const LIMITED: (&str, u16) = ("/limited", 429);
/// Its route takes smaller bodies only.
const SMALL: (&str, u16) = ("/small", 413);
/// Nothing listens at its upstream.
const DEAD: (&str, u16) = ("/dead", 502);
/// Its backend answers without reading the body.
const EARLY: (&str, u16) = ("/early", 403);

const MEGABYTE: usize = 1_000_000;
const LARGEST: usize = 100 * MEGABYTE;
/// Sizes that end within the stream's window, just within it, behind it, and far behind it.
const SIZES: [usize; 5] = [0, 1_000, 60_000, 100_000, MEGABYTE];

/// A gateway with these paths, over TLS and without.
struct Site {
    gateway: Gateway,
    authority: Authority,
    _backend: Backend,
    _dead: socket2::Socket,
}

/// POSTs of one size to one path, one after the other.
#[derive(Clone, Copy, Debug)]
struct Job {
    path: &'static str,
    status: u16,
    size: usize,
    count: usize,
}

/// What the requests to each path with each size came to, and how many came to that.
type Results = BTreeMap<(String, usize), BTreeMap<String, usize>>;

impl Site {
    fn start() -> Self {
        let backend = Backend::start(|exchange| {
            if exchange.target() == EARLY.0 {
                let head = "HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\nconnection: close\r\n\r\n";
                exchange.write(head.to_owned() + "early");
                exchange.wait_at_gate();
                return Next::Close;
            }
            if exchange.target() == LARGE.0 {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 20 * MEGABYTE);
                exchange.write(head);
                (0..20_000).for_each(|_| assert!(exchange.write([0; 1_000]), "the gateway reads"));
                return Next::Close;
            }
            exchange.read_body();
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            Next::KeepAlive
        });
        let (address, dead) = Backend::refusing();
        let authority = Authority::new();
        authority.certify("a", &["127.0.0.1"]);
        let toml = format!(
            r#"[server]
listen = [{{ address = "127.0.0.1:0", tls = true }}, {{ address = "127.0.0.1:0", tls = false }}]
workers = 2
max_body_bytes = 0
[upstreams]
api = "{}"
dead = "http://{address}"
[limits.few]
algorithm = "fixed-window"
key = "global"
rate = "1/day"
[[routes]]
path = "/limited"
upstream = "api"
limits = ["few"]
[[routes]]
path = "/small"
upstream = "api"
max_body_bytes = 10
[[routes]]
path = "/dead"
upstream = "dead"
[[routes]]
path = "/*"
upstream = "api"
{}"#,
            backend.url(),
            authority.server("a")
        );
        let gateway = Gateway::start(&toml);
        let site = Self { gateway, authority, _backend: backend, _dead: dead };
        crate::harness::get(site.plain(), LIMITED.0).expect(OK.1);
        site
    }

    fn secure(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    fn plain(&self) -> SocketAddr {
        self.gateway.addresses()[1]
    }

    /// Has a client of `tests/clients` do these jobs. `tls`: by ALPN, else with prior knowledge.
    #[track_caller]
    fn drive(&self, mut command: Command, script: &[&str], tls: bool, jobs: &[Job]) {
        let (base, ca) = if tls {
            (format!("https://{}", self.secure()), self.authority.path("ca.pem"))
        } else {
            (format!("http://{}", self.plain()), PathBuf::from("-"))
        };
        let program = command.get_program().to_string_lossy().into_owned();
        let [arguments @ .., script] = script else { panic!("a script") };
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
        command.args(arguments).arg(script).arg(base).arg(ca);
        command.args(jobs.iter().map(|job| format!("{}:{}:{}", job.path, job.size, job.count)));
        let said = output(command, &program);
        let mut results = Results::new();
        for line in said.lines() {
            let mut words = line.splitn(3, ' ');
            let (path, size, result) = (words.next(), words.next(), words.next());
            let (Some(path), Some(Ok(size)), Some(result)) = (path, size.map(str::parse), result) else {
                panic!("{program} said {line:?}")
            };
            note(&mut results, path, size, result);
        }
        judge(&program, jobs, &results);
    }
}

/// `count` requests of every size to every path, one large answer, and two requests of the largest size.
fn jobs(largest: usize, count: impl Fn((&'static str, u16), usize) -> usize) -> Vec<Job> {
    let mut jobs = vec![Job { path: LARGE.0, status: LARGE.1, size: 0, count: 1 }];
    for to in [OK, LIMITED, SMALL, DEAD, EARLY] {
        let (path, status) = to;
        for size in SIZES {
            // A body of 0 bytes is not too large.
            if (path, size) != (SMALL.0, 0) {
                jobs.push(Job { path, status, size, count: count(to, size) });
            }
        }
    }
    let large = [LIMITED, EARLY];
    jobs.extend(large.map(|(path, status)| Job { path, status, size: largest, count: 1 }));
    jobs
}

/// More of those within the window, where whether an answer is lost is a matter of chance.
fn by_size(_: (&'static str, u16), size: usize) -> usize {
    match size {
        1_000 | 60_000 => 50,
        0 | 100_000 => 10,
        _ => 5,
    }
}

fn note(results: &mut Results, path: &str, size: usize, result: &str) {
    *results.entry((path.to_owned(), size)).or_default().entry(result.to_owned()).or_default() += 1;
}

/// Fails with a table of all requests that did not come to the status of their path.
#[track_caller]
fn judge(client: &str, jobs: &[Job], results: &Results) {
    let mut failures = String::new();
    for job in jobs {
        let (status, none) = (job.status.to_string(), BTreeMap::new());
        let results = results.get(&(job.path.to_owned(), job.size)).unwrap_or(&none);
        let good = results.get(&status).copied().unwrap_or_default();
        if good == job.count {
            continue;
        }
        writeln!(failures, "{} {} B: {good} of {} got {status}", job.path, job.size, job.count)
            .expect("text");
        if results.is_empty() {
            writeln!(failures, "    not tried: the client had waited in vain too often").expect("text");
        }
        for (result, count) in results.iter().filter(|(result, _)| **result != status) {
            writeln!(failures, "    {count} x {result}").expect("text");
        }
    }
    assert!(failures.is_empty(), "{client} did not see the status of some requests:\n{failures}");
}

/// What a client says on standard output. It bounds its own waits.
#[track_caller]
fn output(mut command: Command, program: &str) -> String {
    let output = command.env("no_proxy", "*").stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!said.is_empty(), "{program} said nothing, and on standard error:\n{errors}");
    said
}

/// How curl sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curl {
    /// Each request on a connection of its own.
    Fresh,
    /// All of a job on one connection.
    Kept,
    /// As `Fresh`, without telling the length first, as a pipe is sent.
    Unsized,
    /// As `Fresh`, so slowly that the answer arrives while the body is being sent.
    Slow,
}

/// Has curl do these jobs.
#[track_caller]
fn curl(site: &Site, tls: bool, how: Curl, jobs: &[Job]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ca = site.authority.path("ca.pem");
    let mut results = Results::new();
    for job in jobs {
        let file = directory.path().join("body");
        let body = std::fs::File::create(&file).expect("it can be made");
        // A file with a hole: it takes no room.
        body.set_len(job.size as u64).expect("it can be grown");
        let base =
            if tls { format!("https://{}", site.secure()) } else { format!("http://{}", site.plain()) };
        let run = |urls: &[String]| {
            let mut command = tools::needed("curl");
            command.args(["--silent", "--max-time", "20", "--request", "POST"]);
            command.args(urls.iter().flat_map(|url| ["--output", "/dev/null", url]));
            command.args(["--write-out", "%{http_code} %{http_version} %{exitcode} %{errormsg}\n"]);
            if tls {
                command.arg("--http2").arg("--cacert").arg(&ca);
            } else {
                command.arg("--http2-prior-knowledge");
            }
            if how == Curl::Slow {
                command.args(["--limit-rate", "100k"]);
            }
            if how == Curl::Unsized {
                command.args(["--upload-file", "-"]).stdin(std::fs::File::open(&file).expect("it is there"));
                let output = command.output().expect("it can be run");
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            command.arg("--data-binary").arg(format!("@{}", file.display()));
            output(command, "curl")
        };
        let said: String = if how == Curl::Kept {
            run(&vec![format!("{base}{}", job.path); job.count])
        } else {
            (0..job.count).map(|_| run(&[format!("{base}{}", job.path)])).collect()
        };
        for line in said.lines() {
            let good = format!("{} 2 0 ", job.status);
            let result = if line == good { job.status.to_string() } else { line.to_owned() };
            note(&mut results, job.path, job.size, &result);
        }
    }
    judge(&format!("curl ({how:?}, {})", if tls { "TLS" } else { "h2c" }), jobs, &results);
}

#[test]
fn curl_with_a_connection_each() {
    let site = Site::start();
    let count = |(path, _): (&str, u16), size| match size {
        1_000 | 60_000 if path == LIMITED.0 => 20,
        1_000 | 60_000 => 8,
        _ => 3,
    };
    curl(&site, true, Curl::Fresh, &jobs(LARGEST, count));
}

/// Over TLS only: with prior knowledge, curl 7.88 fails by itself when it uses a connection again (error 16).
#[test]
fn curl_on_one_connection() {
    curl(&Site::start(), true, Curl::Kept, &jobs(LARGEST, by_size));
}

#[test]
fn curl_with_prior_knowledge() {
    curl(&Site::start(), false, Curl::Fresh, &jobs(LARGEST, |_, _| 3));
}

#[test]
fn curl_that_sends_a_pipe() {
    curl(&Site::start(), true, Curl::Unsized, &jobs(LARGEST, |_, _| 3));
}

#[test]
fn curl_that_sends_slowly() {
    let slow = [LIMITED, SMALL, DEAD, EARLY].map(|(path, status)| {
        [(60_000, 3), (MEGABYTE, 1)].map(|(size, count)| Job { path, status, size, count })
    });
    curl(&Site::start(), true, Curl::Slow, &slow.concat());
}

#[test]
fn httpx_by_alpn_and_with_prior_knowledge() {
    let site = Site::start();
    // It takes more than half a second for each megabyte, and a minute for 100 of them.
    let few = |_, size| match size {
        MEGABYTE => 1,
        60_000 | 100_000 => 5,
        _ => 10,
    };
    let python = || tools::python(&["httpx", "h2"]);
    site.drive(python(), &["httpx_client.py"], true, &jobs(2 * MEGABYTE, few));
    site.drive(python(), &["httpx_client.py"], false, &jobs(2 * MEGABYTE, few));
}

#[test]
fn java_by_alpn() {
    let Some(java) = tools::tool("java") else { return };
    Site::start().drive(java, &["JavaClient.java"], true, &jobs(LARGEST, by_size));
}

#[test]
fn node_by_alpn_and_with_prior_knowledge() {
    let (Some(first), Some(second)) = (tools::tool("node"), tools::tool("node")) else { return };
    let site = Site::start();
    site.drive(first, &["node_client.js"], true, &jobs(LARGEST, by_size));
    site.drive(second, &["node_client.js"], false, &jobs(LARGEST, |_, _| 5));
}
