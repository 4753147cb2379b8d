//! Proxies and applications that ask a gateway for decisions, each with the files of its recipe in docs/recipes. Their
//! clients see what clients of a gateway in front of the same server see.

mod applications;
mod caddy;
mod envoy;
mod nginx;
mod questions;
mod traefik;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::harness::page_run::{PageRun, follow_page};
use crate::harness::{Client, Gateway, Response, eventually};

/// The secret that the pages show.
const TOKEN: &str = "c0ffee00c0ffee00c0ffee00c0ffee00";

/// Routes with all that a request can be refused for, before the server of the page.
const ROUTES: &str = "
[auth.customers]
type = \"api-key\"
from = \"bearer\"
file = \"CUSTOMERS\"

[limits.per-client]
algorithm = \"token-bucket\"
key = \"ip\"
rate = \"6/h\"
burst = 3

[limits.busy]
algorithm = \"token-bucket\"
key = \"ip\"
rate = \"6/h\"
burst = 1
reject = { status = 503 }

[[routes]]
path = \"/orders/*\"
upstream = \"shop\"
limits = [\"per-client\"]

[[routes]]
path = \"/busy/*\"
upstream = \"shop\"
limits = [\"busy\"]

[[routes]]
path = \"/old/*\"
redirect = { to = \"https://new.example.com/{*}\" }

[[routes]]
path = \"/free/*\"
upstream = \"shop\"

[[routes]]
path = \"/accounts/*\"
upstream = \"shop\"
auth = \"customers\"

[[routes]]
path = \"/inside/*\"
upstream = \"shop\"
allow = [\"10.0.0.0/8\"]
";

/// What a client of a gateway in front is told with a refusal. Each proxy passes these on.
const ALL: &[&str] = &["retry-after", "ratelimit", "ratelimit-policy", "www-authenticate", "content-type"];

/// Further headers of refusals, which proxies pass on that pass on its body.
const FURTHER: &[&str] =
    &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "cache-control"];

/// What a client may claim: that it sends another request, or from elsewhere. The first eight may stand in one request.
const CLAIMS: [&str; 11] = [
    "x-forwarded-uri: /free/1\r\nx-forwarded-method: GET\r\nx-forwarded-host: free.test\r\nx-forwarded-proto: https\r\n",
    "x-original-uri: /free/1\r\nx-original-method: GET\r\n",
    "x-original-url: http://test/free/1\r\nx-original-uri: /free/1\r\n",
    "x-real-ip: 203.0.113.77\r\n",
    "x-forwarded-for: 203.0.113.77\r\n",
    "forwarded: for=203.0.113.77;host=free.test\r\n",
    "x-envoy-external-address: 203.0.113.77\r\nx-envoy-original-path: /free/1\r\n",
    "x-tollgate-token: guess\r\nx-tollgate-status: 200\r\n",
    "expect: 100-continue\r\n",
    "connection: x-real-ip, x-original-url, x-forwarded-uri, x-forwarded-for, x-tollgate-token\r\n",
    "upgrade: websocket\r\nconnection: upgrade\r\n",
];

/// A proxy that asks, and what its clients see of the answers.
struct Asking {
    /// Its page in docs/recipes.
    page: &'static str,
    /// The files of the page that name the decisions listener.
    files: &'static [&'static str],
    /// Starts it with the files of the page, on port 8000 of the page.
    start: fn(&mut PageRun),
    /// The headers of admitted responses that are those of a gateway in front.
    admitted: &'static [&'static str],
    /// The statuses of refusals whose headers are other ones.
    own_refusals: &'static [u16],
    /// Whether the body of a refusal is the gateway's.
    same_body: bool,
    /// The status of a request without a gateway.
    alone: u16,
    /// Whether it refuses an unusual `connection` by itself, without a question.
    refuses_connection: bool,
}

impl Asking {
    /// Follows the page as it stands.
    #[track_caller]
    fn recipe(&self) {
        follow_page(&format!("docs/recipes/{}", self.page), |page| {
            page.serve("server.py", 9001, &[]);
            start_gateway(page);
            (self.start)(page);
            page.sessions()
        });
    }

    /// The same files with a gateway of [`ROUTES`]: limits, waits, credentials and claims of clients, and a gateway that
    /// is killed and started again.
    #[track_caller]
    fn story(&self) {
        follow_page(&format!("docs/recipes/{}", self.page), |page| {
            let front = self.start_with_routes(page);
            let peer = page.address(8000);
            let mut faults = self.differences(peer, front.addr());
            faults.extend(claims(peer, self.refuses_connection));
            faults.extend(spellings(peer, front.addr()));
            page.kill_gateway();
            let mut expect = |what: &str, source: u8, status: u16| {
                let found = get(source, peer, "/free/1", "").status;
                faults.extend((found != status).then(|| format!("{what}: {found}, not {status}")));
            };
            expect("without a gateway", 20, self.alone);
            start_gateway(page);
            expect("with a new gateway", 21, 200);
            faults
        });
    }

    /// Starts the server of the page, the proxy, and two gateways with [`ROUTES`]: the one that is asked, and one in front.
    fn start_with_routes(&self, page: &mut PageRun) -> Gateway {
        page.serve("server.py", 9001, &[]);
        let customers = page.path("customers.csv");
        std::fs::write(&customers, "key,name\nacme-5d1c9b7e0a42,acme\n").expect("it can be written");
        let routes = ROUTES.replace("CUSTOMERS", &customers.display().to_string());
        let routes = format!("[upstreams]\nshop = \"http://{}\"\n{routes}", page.address(9001));
        let asked = format!(
            "[server]\nlisten = [\"{}\"]\n[decisions]\nlisten = \"{}\"\ntoken_env = \"TOLLGATE_DECISIONS_TOKEN\"\n{routes}",
            page.address(8080),
            page.address(9901)
        );
        std::fs::write(page.path("gateway.toml"), asked).expect("it can be written");
        start_gateway(page);
        (self.start)(page);
        Gateway::start(&routes)
    }

    /// What clients of the proxy see otherwise than those of a gateway in front.
    fn differences(&self, peer: SocketAddr, front: SocketAddr) -> Vec<String> {
        let right = "authorization: Bearer acme-5d1c9b7e0a42\r\n";
        let wrong = "authorization: Bearer acme\r\n";
        let escaped = "/free/a%20b/c;d=1?x=%2F&y=%41+z&status=403";
        let cases = [
            ("GET", "/orders/1", ""),
            ("POST", "/orders/1", ""),
            ("GET", "/orders/1?a=b", ""),
            ("GET", "/orders/1", ""),
            ("POST", "/orders/1", ""),
            ("HEAD", "/orders/1", ""),
            ("GET", "/orders/1?status=403", ""),
            ("GET", "/orders/logo.png", ""),
            ("GET", "/busy/1", ""),
            ("GET", "/busy/1", ""),
            ("GET", escaped, ""),
            ("GET", "/free/1", "if-none-match: *\r\nrange: bytes=0-1\r\n"),
            ("GET", "/accounts/1", ""),
            ("GET", "/accounts/1", wrong),
            ("GET", "/accounts/1", right),
            ("GET", "/nowhere", ""),
            ("GET", "/old/a%20b?c=%2F", ""),
            ("GET", "/inside/1", ""),
        ];
        let mut faults = Vec::new();
        for (method, target, fields) in cases {
            let [asking, direct] = [(2, peer), (3, front)]
                .map(|(source, address)| send(source, address, method, target, fields));
            let is_head = method == "HEAD";
            let [one, other] = [&asking, &direct].map(|response| self.seen(response, direct.status, is_head));
            if one != other {
                faults.push(format!("{method} {target} {fields}\n{one:#?}\n--- and in front\n{other:#?}"));
            }
        }
        faults
    }

    /// What is compared of a response. Without a body it may have no type.
    fn seen(&self, response: &Response, status: u16, is_head: bool) -> Vec<String> {
        let is_own = self.own_refusals.contains(&status);
        let names = match status {
            200 => self.admitted,
            300..400 => &["location"],
            _ if is_own => &[],
            _ if is_head => &ALL[..4],
            _ => ALL,
        };
        let is_passed_on = status >= 400 && !is_own && self.same_body;
        let further = if is_passed_on { FURTHER } else { &[] };
        let lines =
            names.iter().chain(further).map(|name| format!("{name}: {:?}", response.header_all(name)));
        let body = match status {
            // The first line says what the server got; the next one has the client's address.
            200 => response.text().lines().next().unwrap_or_default().to_owned(),
            _ if is_passed_on => response.text(),
            _ => String::new(),
        };
        [response.status.to_string()].into_iter().chain(lines).chain([body]).collect()
    }
}

/// A client whose allowance is used up claims to send another request, from elsewhere: nothing helps. Nor does it help a
/// client to claim that a refused request is another one.
fn claims(peer: SocketAddr, refuses_connection: bool) -> Vec<String> {
    let asked_about = if refuses_connection { &CLAIMS[..9] } else { &CLAIMS[..] };
    let mut faults = Vec::new();
    for _ in 0..3 {
        let status = get(4, peer, "/orders/1", "").status;
        faults.extend((status != 200).then(|| format!("an allowed request: {status}")));
    }
    let refused = [("/orders/1", 429), ("/inside/1", 403), ("/nowhere", 404)];
    for (claim, (target, expected)) in asked_about.iter().flat_map(|claim| refused.map(|case| (claim, case)))
    {
        let status = get(4, peer, target, claim).status;
        faults.extend(
            (status != expected).then(|| format!("{target} with {claim:?}: {status}, not {expected}")),
        );
    }
    // Each claim at once, by a client with an allowance: it pays as itself.
    let together = CLAIMS[..8].concat();
    let statuses: Vec<_> = (0..4).map(|_| get(5, peer, "/orders/1", &together).status).collect();
    faults.extend((statuses != [200, 200, 200, 429]).then(|| format!("all claims at once: {statuses:?}")));
    faults
}

/// A client whose allowance is used up spells the request in other ways, or one that the gateway would read as another
/// question. What a gateway in front refuses does not pass.
fn spellings(peer: SocketAddr, front: SocketAddr) -> Vec<String> {
    let targets = [
        "/ORDERS/1",
        "/%6frders/1",
        "//orders//1",
        "/./orders/1",
        "/orders%2f1",
        "/free/../orders/1",
        "/free/%2e%2e/orders/1",
        "/free/..%2forders/1",
        "/free/..;/orders/1",
        "/free\\..\\orders/1",
        "/free/1#/../../orders/1",
        "/free/1?#/../../orders/1",
        "/free/1%23/../../orders/1",
        "/;/../../orders/1",
        "/../forwarded",
        "/../forwarded?status=403",
        "/../../check/forwarded",
        "/../../v1/decide",
        "/%2e%2e/forwarded",
        "/..%2fforwarded",
        "/%2e%2e/%2e%2e/orders/1",
        "http://test/orders/1",
        "http://free.test/free/../orders/1",
        "http://test",
        "*",
    ];
    let claims = "x-forwarded-uri: /free/1\r\nx-forwarded-host: test\r\nx-forwarded-proto: http\r\n\
                  x-forwarded-method: GET\r\n";
    let requests = targets.map(|target| format!("GET {target} HTTP/1.1\r\nhost: test\r\n{claims}\r\n"));
    let others =
        ["GET /orders/1 HTTP/1.0\r\n\r\n", "GET /orders/1 HTTP/1.1\r\nhost:\r\n\r\n"].map(str::to_owned);
    for address in [peer, front] {
        let statuses = [(); 4].map(|()| get(6, address, "/orders/1", "").status);
        assert_eq!(statuses, [200, 200, 200, 429]);
    }
    let mut faults = Vec::new();
    for request in requests.into_iter().chain(others) {
        let status = |address| {
            let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, 6).into(), address);
            client.exchange(&request).status
        };
        let (asking, direct) = (status(peer), status(front));
        let passes = asking < 400 && direct >= 400;
        faults.extend(passes.then(|| format!("{request:?}: {asking}, in front {direct}")));
    }
    faults
}

/// The gateway of the page, whose decisions listener is there when it returns.
fn start_gateway(page: &mut PageRun) {
    page.set("TOLLGATE_DECISIONS_TOKEN", TOKEN);
    page.gateway();
    let decisions = page.address(9901);
    eventually("the decisions listener", || TcpStream::connect(decisions).ok());
}

/// A GET from `127.0.0.source`, on a connection of its own.
fn get(source: u8, to: SocketAddr, target: &str, fields: &str) -> Response {
    send(source, to, "GET", target, fields)
}

/// A request from `127.0.0.source`, on a connection of its own; a POST has a body.
fn send(source: u8, to: SocketAddr, method: &str, target: &str, fields: &str) -> Response {
    let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, source).into(), to);
    let body = if method == "POST" { "a=1" } else { "" };
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    client.write(format!("{method} {target} HTTP/1.1\r\nhost: test\r\n{length}{fields}\r\n{body}"));
    client.read_for(method)
}
