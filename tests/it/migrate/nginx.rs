//! `docs/migrate/nginx.md`: the file of nginx and its counterpart, side by side.

use std::net::SocketAddr;

use super::{Compared, Pair, block, get, substituted};
use crate::harness::{Backend, Front, free_address};

const COMPARED: Compared = Compared {
    sent_on: &[
        "host",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-proto",
        "accept",
        "x-tenant",
        "x_tenant",
        "x_real_ip",
        "x_forwarded_for",
        "cookie",
    ],
    answered: &["x-frame-options", "x-powered-by", "content-type"],
};

fn start() -> Pair {
    start_with(None)
}

/// With another server than `search` behind the upstream of this name.
fn start_with(other: Option<SocketAddr>) -> Pair {
    Pair::start("nginx", &["404.html", "429.html", "502.html"], COMPARED, other, |place| {
        let (file, tls) = (block(place.page, "text nginx.conf"), free_address());
        let root = place.authority.path("").display().to_string();
        let front = Front::nginx_file(|plain, _| {
            let mut changes = place.changes();
            changes.extend([
                ("listen      80;", format!("listen {plain};")),
                ("listen              443 ssl;", format!("listen {tls} ssl;")),
                ("/etc/ssl/", root.clone()),
                ("/srv/www", root.clone()),
            ]);
            substituted(&file, &changes)
        });
        (front, tls)
    })
}

const NORMALISED: &str = "tollgate forwards the normalised path";
const DECODED: &str = "After a `rewrite`, nginx forwards the decoded path";
const BARE_PREFIX: &str = "A pattern `/api/*` includes `/api`.";
const PAGES: &str =
    "Errors that have no page in the file have nginx's HTML there and a problem document (JSON) here.";
const HOST: &str = "`$host` is in lower case and without its port.";
const CLAIMED: &str = "`$proxy_add_x_forwarded_for` keeps what an untrusted client claims.";
const TWICE: &str = "appends the client's address a second time.";
const UNNAMED: &str = "A client that a trusted proxy names by no address has none in tollgate.";
const STRICT: &str = "tollgate refuses a `#` in a target, and a target that names another host than `host`.";
const HTTPS: &str = "The redirect to https is 308 in tollgate";
const ALWAYS: &str = "`add_header` without `always` leaves out statuses such as 404 and 500 of the backend.";

#[test]
fn paths_reach_the_same_backends() {
    let pair = start();
    pair.compare(&[
        get("/"),
        get("/a/b.html?c=d&e=%20f"),
        get("/a/").method("HEAD"),
        get("/a").method("POST").body(1000),
        get("/a").method("DELETE"),
        get("/api/users/7"),
        get("/api/users/7?page=2&sort=%2Fa"),
        get("/api/"),
        get("/api/a/b").method("HEAD"),
        get("/v1/search?q=a+b"),
        get("/v27/search"),
        get("/v1/search/"),
        get("/v1/searches"),
        get("/va/search"),
        get("/V1/SEARCH"),
        get("/LOGIN"),
        get("/healthz"),
        get("/healthz").method("HEAD"),
        get("/healthz/"),
        get("/internal/x"),
        get("/internal/x").method("POST").body(10),
        get("/errors/404.html"),
        get("/moved"),
        get("/admin/x").by(3),
        get("/blog/2024/a?b=c").own_page(PAGES),
        get("/blog/").own_page(PAGES),
        get("/missing").differs(ALWAYS, "answered x-frame-options", "", "DENY"),
        get("/failing").differs(ALWAYS, "answered x-frame-options", "", "DENY"),
        get("/admin/x").own_page(PAGES),
        get("/a").method("POST").body(2_000_000).own_page(PAGES),
    ]);
}

#[test]
fn odd_paths() {
    let pair = start();
    let normalised = |target, there, here| get(target).differs(NORMALISED, "request", there, here);
    pair.compare(&[
        normalised("/a/./b", "GET /a/./b HTTP/1.1", "GET /a/b HTTP/1.1"),
        normalised("/a/../b?c=../d", "GET /a/../b?c=../d HTTP/1.1", "GET /b?c=../d HTTP/1.1"),
        normalised("//a", "GET //a HTTP/1.1", "GET /a HTTP/1.1"),
        normalised("/a//b", "GET /a//b HTTP/1.1", "GET /a/b HTTP/1.1"),
        normalised("/%61%2Fb", "GET /%61%2Fb HTTP/1.1", "GET /a%2Fb HTTP/1.1"),
        normalised("/%2fa", "GET /%2fa HTTP/1.1", "GET /%2Fa HTTP/1.1"),
        get("/api/a%2Fb").differs(DECODED, "request", "GET /v2/a/b HTTP/1.1", "GET /v2/a%2Fb HTTP/1.1"),
        get("/api/%41"),
        get("/api/a%20b"),
        get("/api/a/../b"),
        get("/api/../internal/x"),
        get("/%69nternal/x"),
        get("//internal//x"),
        get("/api//a"),
        get("/API/x"),
        get("/a?b=%zz"),
        get("/a;x=1/b"),
        get("/api/a+b&c=d"),
        get("/api").ends(BARE_PREFIX, "301 https://example.com/api/", "shop GET /v2 HTTP/1.1"),
        get("/blog").ends(BARE_PREFIX, "shop GET /blog HTTP/1.1", "301 https://blog.example.com/"),
        get("/../x").own_page(PAGES),
        get("/a%zz").own_page(PAGES),
        get("/a%00b").own_page(PAGES),
        get("/a\\b").ends(
            "tollgate refuses a backslash in a path with 400.",
            "shop GET /a\\b HTTP/1.1",
            "400",
        ),
    ]);
}

#[test]
fn clients_and_headers() {
    let pair = start();
    let forwarded = "x-forwarded-for";
    pair.compare(&[
        get("/a").fields("accept: text/html\r\nx-tenant: a\r\nx-tenant: b\r\n"),
        get("/a").fields("host: other.test\r\n"),
        get("/a").fields("x-real-ip: 203.0.113.7\r\n"),
        get("/a").fields("x-forwarded-proto: http\r\n"),
        get("/a").by_trusted(),
        get("/a").fields("host: EXAMPLE.com:8443\r\n").differs(
            HOST,
            "host",
            "example.com",
            "example.com:8443",
        ),
        get("/a").fields("x-forwarded-for: 203.0.113.7\r\n").differs(
            CLAIMED,
            forwarded,
            "203.0.113.7, 127.0.0.2",
            "127.0.0.2",
        ),
        get("/a").by_trusted().fields("x-forwarded-for: 203.0.113.7\r\n").differs(
            TWICE,
            forwarded,
            "203.0.113.7, 203.0.113.7",
            "203.0.113.7, 127.0.0.1",
        ),
        get("/a").by_trusted().fields("x-forwarded-for: 198.51.100.1, 203.0.113.7, 127.0.0.1\r\n").differs(
            TWICE,
            forwarded,
            "198.51.100.1, 203.0.113.7, 127.0.0.1, 203.0.113.7",
            "198.51.100.1, 203.0.113.7, 127.0.0.1, 127.0.0.1",
        ),
        get("/a").by_trusted().fields("x-forwarded-for: garbage\r\n").differs(
            UNNAMED,
            "x-real-ip",
            "127.0.0.1",
            "",
        ),
        get("/a").by_trusted().fields("x-forwarded-proto: http\r\n").differs(
            "A trusted proxy's `x-forwarded-proto` is kept in tollgate.",
            "x-forwarded-proto",
            "https",
            "http",
        ),
        get("/admin/x").by_trusted().fields("x-forwarded-for: 127.0.0.3\r\n").differs(
            TWICE,
            forwarded,
            "127.0.0.3, 127.0.0.3",
            "127.0.0.3, 127.0.0.1",
        ),
        get("/admin/x").fields("x-forwarded-for: 127.0.0.3\r\n").own_page(PAGES),
    ]);
}

#[test]
fn odd_messages() {
    let pair = start();
    pair.compare(&[
        get("/a").method("OPTIONS"),
        get("/a").method("PATCH").body(3),
        get("/a").method("PUT").body(3).fields("expect: 100-continue\r\n"),
        get("/a").fields("cookie: a=1; b=2\r\n"),
        get("/a").method("FOO"),
        get("http://example.com/a"),
        get("/a").method("TRACE").own_page(PAGES),
        get("/a").fields("content-length: 1\r\ncontent-length: 2\r\n").own_page(PAGES),
        get("/a").fields("content-length: 1\r\ntransfer-encoding: chunked\r\n").own_page(PAGES),
        get("/a").fields("host: a.test\r\nhost: b.test\r\n").own_page(PAGES),
        get("/a").fields("host: a b\r\n").own_page(PAGES),
        get("/a").fields("host: \r\n").own_page(PAGES),
        get("/a").fields("x-tenant : a\r\n").own_page(PAGES),
        get("/a").fields("X_Real_IP: 203.0.113.7\r\nx_forwarded_for: 203.0.113.7\r\n"),
        get("/a").fields("x_tenant: a\r\n").differs(
            "nginx drops headers whose name has an underscore.",
            "x_tenant",
            "",
            "a",
        ),
        get("/a").fields("connection: x-tenant\r\nx-tenant: a\r\n").differs(
            "tollgate drops the headers that `connection` names.",
            "x-tenant",
            "a",
            "",
        ),
        get("http://other.test/a?b").ends(STRICT, "shop GET /a?b HTTP/1.1", "400"),
        get("/a#b").ends(STRICT, "shop GET /a#b HTTP/1.1", "400"),
    ]);
}

#[test]
fn requests_without_tls_are_redirected() {
    let pair = start();
    let to_https = |target| get(target).plain();
    pair.compare(&[
        to_https("/a?b=c").ends(HTTPS, "301 https://example.com/a?b=c", "308 https://example.com/a?b=c"),
        to_https("/healthz").ends(
            HTTPS,
            "301 https://example.com/healthz",
            "308 https://example.com/healthz",
        ),
        to_https("/a/../b").ends(
            "Its path is the normalised one.",
            "301 https://example.com/a/../b",
            "308 https://example.com/b",
        ),
        to_https("/a").fields("host: EXAMPLE.com:80\r\n").ends(
            HTTPS,
            "301 https://example.com/a",
            "308 https://example.com/a",
        ),
        to_https("/blog/x").ends(
            "In tollgate a route with `redirect = { … }` answers on all ports.",
            "301 https://example.com/blog/x",
            "301 https://blog.example.com/x",
        ),
    ]);
}

/// Five of each address are admitted; the sixth gets the page of 429.
#[test]
fn bursts_are_refused_alike() {
    let pair = start();
    let mut cases: Vec<_> = (0..8).map(|_| get("/login")).collect();
    cases.extend((0..7).map(|_| get("/login").method("POST").body(9).by(3)));
    cases.extend((0..7).map(|_| get("/login").by_trusted()));
    pair.compare(&cases);
    assert_eq!(pair.shop.count(), 30, "five of three addresses at both");
    let own = ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "retry-after", "x-request-id"];
    for (peer, count) in [(&pair.there, 0), (&pair.here, own.len())] {
        let refusal = peer.connect(2, false).exchange(get("/login").bytes()).expect(429);
        let sent = own.iter().filter(|name| refusal.header(name).is_some());
        assert_eq!(sent.count(), count, "{}: {}", peer.name, refusal.head);
    }
}

#[test]
fn requests_at_the_same_time_are_refused_alike() {
    let pair = start();
    let mut held: Vec<_> = [&pair.there, &pair.here]
        .into_iter()
        .flat_map(|peer| [peer.connect(2, false), peer.connect(2, false)])
        .collect();
    for client in &mut held {
        client.write(get("/export/all").bytes());
    }
    pair.shop.wait_for(4);
    pair.compare(&[get("/export/all"), get("/export/all"), get("/a")]);
    pair.shop.open_gate();
    for mut client in held {
        client.read().expect(200);
        assert!(client.closes());
    }
    pair.compare(&[get("/export/all").by(3), get("/export/all")]);
}

#[test]
fn a_backend_that_is_away() {
    let (away, _socket) = Backend::refusing();
    let pair = start_with(Some(away));
    pair.compare(&[get("/v1/search"), get("/v1/search").method("HEAD"), get("/a")]);
}

#[test]
fn a_redirect_of_a_backend() {
    let backend =
        Backend::answering("HTTP/1.1 302 Found\r\nlocation: http://search/x\r\ncontent-length: 0\r\n\r\n");
    let pair = start_with(Some(backend.addr()));
    pair.compare(&[get("/v1/search").ends(
        "tollgate passes it on.",
        "302 https://example.com/x",
        "302 http://search/x",
    )]);
}
