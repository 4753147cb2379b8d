//! The files of `docs/migrate/`: what the other proxy does with a file of a page, and what the gateway does with the
//! counterpart that the page gives. The files are read from the pages. Each difference stands in the page.

mod haproxy;
mod nginx;
mod others;
mod published;
mod ratelimit_service;
mod traefik;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::harness::pages::{Page, pages};
use crate::harness::published::{named_backend, substituted};
use crate::harness::{Authority, Backend, Client, Front, Gateway, Response};

/// A page of `docs/migrate/`.
fn page(name: &str) -> Page {
    let path = format!("docs/migrate/{name}.md");
    pages().into_iter().find(|page| page.path == path).unwrap_or_else(|| panic!("{path} is missing"))
}

/// The first block of a page with this info string.
fn block(page: &Page, info: &str) -> String {
    let found = page.blocks().into_iter().find(|block| block.info == info);
    found.unwrap_or_else(|| panic!("{} has no block `{info}`", page.path)).text
}

/// One of the two proxies.
#[derive(Clone)]
struct Peer {
    name: &'static str,
    plain: SocketAddr,
    tls: Option<(SocketAddr, Arc<ClientConfig>)>,
}

impl Peer {
    /// A connection from 127.0.0.`from`.
    fn connect(&self, from: u8, plain: bool) -> Client {
        let source = [127, 0, 0, from].into();
        match &self.tls {
            Some((address, config)) if !plain => {
                let client = Client::connect_from(source, *address).agree_on_tls(config, "example.com");
                client.expect("a handshake")
            }
            _ => Client::connect_from(source, self.plain),
        }
    }
}

/// What a file of a page is adapted to.
struct Place<'a> {
    page: &'a Page,
    /// Has the certificate, and the error pages in `errors/`.
    authority: &'a Authority,
    /// The servers of `shop` and `search`.
    backends: [SocketAddr; 2],
}

impl Place<'_> {
    /// Addresses that stand in both files of a page, and those of the test.
    fn changes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("10.0.0.0/8", "127.0.0.1".to_owned()),
            ("192.168.0.0/16", "127.0.0.3".to_owned()),
            ("10.0.1.1:9001", self.backends[0].to_string()),
            ("10.0.1.2:9002", self.backends[1].to_string()),
        ]
    }
}

/// Another proxy and the gateway with the files of a page, before the same backends.
struct Pair {
    page: Page,
    authority: Authority,
    shop: Backend,
    search: Backend,
    there: Peer,
    here: Peer,
    compared: Compared,
    _front: Front,
    _gateway: Gateway,
}

impl Pair {
    /// `start` starts the other proxy and gives its address for TLS. With `other`, that server is behind `search`.
    fn start(
        name: &'static str,
        error_pages: &[&'static str],
        compared: Compared,
        other: Option<SocketAddr>,
        start: impl FnOnce(&Place<'_>) -> (Front, SocketAddr),
    ) -> Self {
        let (page, authority) = (page(name), Authority::new());
        authority.certify("example.com", &["example.com"]);
        std::fs::create_dir(authority.path("errors")).expect("a directory");
        for file in error_pages {
            let text = block(&page, &format!("text saved as {file}"));
            std::fs::write(authority.path("errors").join(file), text).expect("it can be written");
        }
        let (shop, search) = (named_backend("shop"), named_backend("search"));
        let backends = [shop.addr(), other.unwrap_or_else(|| search.addr())];
        let place = Place { page: &page, authority: &authority, backends };
        let (front, tls) = start(&place);
        let gateway = start_gateway(&place, error_pages);
        let client = authority.client();
        let there = Peer { name, plain: front.addr(), tls: Some((tls, client.clone())) };
        let [plain, tls] = [0, 1].map(|index| gateway.addresses()[index]);
        let here = Peer { name: "tollgate", plain, tls: Some((tls, client)) };
        Self { page, authority, shop, search, there, here, compared, _front: front, _gateway: gateway }
    }

    fn compare(&self, cases: &[Case]) {
        let backends = [("shop", &self.shop), ("search", &self.search)];
        compare(&self.page, (&self.there, &self.here), &backends, &self.compared, cases);
    }
}

fn start_gateway(place: &Place<'_>, error_pages: &[&str]) -> Gateway {
    let quoted = |file: &str| format!("\"{}\"", place.authority.path(file).display());
    let mut changes = place.changes();
    changes.extend([
        ("0.0.0.0:80", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:443", "127.0.0.1:0".to_owned()),
        ("\"example.com.pem\"", quoted("example.com.pem")),
        ("\"example.com.key\"", quoted("example.com.key")),
    ]);
    let toml = substituted(&block(place.page, "toml"), &changes);
    let paths = error_pages.iter().map(|file| (format!("\"{file}\""), quoted(&format!("errors/{file}"))));
    Gateway::start(&paths.fold(toml, |toml, (file, path)| toml.replace(&file, &path)))
}

/// A request to both, and what differs.
struct Case {
    method: &'static str,
    target: &'static str,
    fields: &'static str,
    body: String,
    from: u8,
    plain: bool,
    /// What is observed, there and here.
    differences: Vec<(&'static str, &'static str, &'static str)>,
    /// The answers are not comparable: what each of them is, as [`outcome`] says.
    outcomes: Option<(&'static str, &'static str)>,
    /// Both answer with an error page of their own form.
    own_page: bool,
    /// The sentence of the page about the differences.
    why: &'static str,
}

/// `GET target`, which both proxies treat alike.
fn get(target: &'static str) -> Case {
    Case {
        method: "GET",
        target,
        fields: "",
        body: String::new(),
        from: 2,
        plain: false,
        differences: Vec::new(),
        outcomes: None,
        own_page: false,
        why: "",
    }
}

impl Case {
    fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    fn fields(self, fields: &'static str) -> Self {
        Self { fields, ..self }
    }

    /// With a body of this many bytes.
    fn body(self, length: usize) -> Self {
        Self { body: "x".repeat(length), ..self }
    }

    /// From 127.0.0.1, which both trust.
    fn by_trusted(self) -> Self {
        Self { from: 1, ..self }
    }

    /// From the address 127.0.0.`from`.
    fn by(self, from: u8) -> Self {
        Self { from, ..self }
    }

    /// Without TLS.
    fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// What is observed under `key` differs. `why` stands in the page.
    fn differs(
        mut self,
        why: &'static str,
        key: &'static str,
        there: &'static str,
        here: &'static str,
    ) -> Self {
        self.differences.push((key, there, here));
        Self { why, ..self }
    }

    /// Something else becomes of the request. `why` stands in the page.
    fn ends(self, why: &'static str, there: &'static str, here: &'static str) -> Self {
        Self { why, outcomes: Some((there, here)), ..self }
    }

    /// The error page of each has a form of its own. `why` stands in the page.
    fn own_page(self, why: &'static str) -> Self {
        Self { why, own_page: true, ..self }
    }

    fn bytes(&self) -> String {
        let Self { method, target, fields, body, .. } = self;
        let host = if fields.starts_with("host: ") { "" } else { "host: example.com\r\n" };
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        format!("{method} {target} HTTP/1.1\r\n{host}{fields}{length}connection: close\r\n\r\n{body}")
    }
}

/// The names of what is compared beside status, location, body and request line.
struct Compared {
    /// Headers that backends get.
    sent_on: &'static [&'static str],
    /// Headers that clients get.
    answered: &'static [&'static str],
}

/// What can be seen of an exchange.
type Observed = BTreeMap<String, String>;

/// Sends the request and gives what the client and the backends see.
fn observe(peer: &Peer, case: &Case, backends: &[(&str, &Backend)], compared: &Compared) -> Observed {
    let before: Vec<_> = backends.iter().map(|(_, backend)| backend.count()).collect();
    let mut client = peer.connect(case.from, case.plain);
    client.write(case.bytes());
    let response = client.try_read(case.method);
    let response =
        response.unwrap_or_else(|fault| panic!("{}: {fault}: {} {}", peer.name, case.method, case.target));
    let mut observed = seen_by_client(peer, &response, compared);
    let mut forwarded = false;
    for ((name, backend), before) in backends.iter().zip(before) {
        for request in backend.requests().into_iter().skip(before) {
            forwarded = true;
            let mut put = |key: &str, value: String| observed.insert(key.to_owned(), value);
            put("backend", (*name).to_owned());
            put("request", request.request_line().to_owned());
            put("request body", request.body.len().to_string());
            for name in compared.sent_on {
                put(name, request.header_all(name).join(" | "));
            }
        }
    }
    if !forwarded {
        observed.insert("body".to_owned(), response.text());
    }
    observed
}

fn seen_by_client(peer: &Peer, response: &Response, compared: &Compared) -> Observed {
    let mut observed = Observed::from([("status".to_owned(), response.status.to_string())]);
    for name in ["location"].iter().chain(compared.answered) {
        observed.insert(format!("answered {name}"), response.header_all(name).join(" | "));
    }
    // The files of the pages have the usual ports.
    for port in [Some(peer.plain), peer.tls.as_ref().map(|(address, _)| *address)].into_iter().flatten() {
        let location = observed.entry("answered location".to_owned()).or_default();
        *location = location.replace(&format!(":{}", port.port()), "");
    }
    observed
}

/// What becomes of a request: `shop GET /a HTTP/1.1` at a backend, else `301 https://example.com/`.
fn outcome(observed: &Observed) -> String {
    let value = |key: &str| observed.get(key).map_or("", String::as_str);
    let words = match observed.contains_key("backend") {
        true => [value("backend"), value("request")],
        false => [value("status"), value("answered location")],
    };
    words.join(" ").trim_end().to_owned()
}

/// How what is observed is not what the case says.
fn fault(case: &Case, there: &Observed, here: &Observed) -> Option<String> {
    if let Some(expected) = case.outcomes {
        let found = (outcome(there), outcome(here));
        return (found != (expected.0.to_owned(), expected.1.to_owned())).then(|| format!("{found:?}"));
    }
    let mut found = differences(there, here);
    let form = |(key, ..): &(String, String, String)| key == "body" || key == "answered content-type";
    if case.own_page {
        let before = found.len();
        found.retain(|difference| !form(difference));
        if before == found.len() {
            return Some("the error pages are equal".to_owned());
        }
    }
    let mut expected: Vec<_> =
        case.differences.iter().map(|(key, there, here)| owned(key, there, here)).collect();
    expected.sort_unstable();
    (found != expected).then(|| format!("{found:#?}"))
}

fn owned(key: &str, there: &str, here: &str) -> (String, String, String) {
    (key.to_owned(), there.to_owned(), here.to_owned())
}

/// What differs between two observations: the key, the value there and the value here.
fn differences(there: &Observed, here: &Observed) -> Vec<(String, String, String)> {
    let keys: std::collections::BTreeSet<_> = there.keys().chain(here.keys()).collect();
    let value = |of: &Observed, key: &String| of.get(key).cloned().unwrap_or_default();
    let rows = keys.into_iter().map(|key| (key.clone(), value(there, key), value(here, key)));
    rows.filter(|(_, there, here)| there != here).collect()
}

/// What differs, as the page says it, on one line.
fn section(page: &Page) -> String {
    let section = page.text.split("\n## What differs").nth(1).expect("a section `What differs`");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Sends all requests to both proxies and compares what is observed with what the page says.
fn compare(
    page: &Page,
    (there, here): (&Peer, &Peer),
    backends: &[(&str, &Backend)],
    compared: &Compared,
    cases: &[Case],
) {
    let section = section(page);
    let mut faults = Vec::new();
    for case in cases {
        let observed = [there, here].map(|peer| observe(peer, case, backends, compared));
        if let Some(fault) = fault(case, &observed[0], &observed[1]) {
            let Case { method, target, fields, from, .. } = case;
            faults.push(format!("{method} {target} {fields:?} from {from}: {fault}"));
        }
        if !section.contains(case.why) {
            faults.push(format!("{} does not say under `What differs`: {}", page.path, case.why));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
