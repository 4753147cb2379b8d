//! `docs/migrate/haproxy.md`: the file of HAProxy and its counterpart, side by side.

use std::net::SocketAddr;

use super::{Compared, Pair, Place, block, get, substituted};
use crate::harness::{Backend, Front, free_address, tools};

const COMPARED: Compared = Compared {
    sent_on: &["host", "x-real-ip", "x-forwarded-for", "x-forwarded-proto", "x-tenant"],
    answered: &["x-frame-options", "x-powered-by", "content-type"],
};

fn start() -> Pair {
    start_with(None)
}

/// With another server than `search` behind the upstream of this name.
fn start_with(other: Option<SocketAddr>) -> Pair {
    Pair::start("haproxy", &["403.html", "429.html", "503.html"], COMPARED, other, |place| {
        let tls = free_address();
        (Front::haproxy_file(|plain| file(place, plain, tls)), tls)
    })
}

/// The file of the page, with a certificate and its key in one file.
fn file(place: &Place<'_>, plain: SocketAddr, tls: SocketAddr) -> String {
    let path = |file: &str| place.authority.path(file);
    let read = |file: &str| std::fs::read_to_string(path(file)).expect("it can be read");
    let both = read("example.com.pem") + &read("example.com.key");
    std::fs::write(path("both.pem"), both).expect("it can be written");
    let mut changes = place.changes();
    changes.extend([
        ("bind :80\n", format!("bind {plain}\n")),
        ("bind :443", format!("bind {tls}")),
        ("/etc/haproxy/example.com.pem", path("both.pem").display().to_string()),
        ("/etc/haproxy/errors", path("errors").display().to_string()),
    ]);
    substituted(&block(place.page, "text haproxy.cfg"), &changes)
}

/// `haproxy -c` has neither faults nor warnings.
#[test]
fn haproxy_accepts_the_file() {
    let pair = start();
    let addresses = [free_address(), free_address()];
    let place = Place { page: &pair.page, authority: &pair.authority, backends: addresses };
    let path = pair.authority.path("haproxy.cfg");
    std::fs::write(&path, file(&place, addresses[0], addresses[1])).expect("it can be written");
    let output = tools::needed("haproxy").args(["-c", "-f"]).arg(&path).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !told.contains("[WARNING]"), "{told}");
}

#[test]
fn paths_reach_the_same_backends() {
    let pair = start();
    pair.compare(&[
        get("/"),
        get("/a/b.html?c=d&e=%20f"),
        get("/a/").method("HEAD"),
        get("/a").method("POST").body(1000),
        get("/api/users/7?page=2&sort=%2Fa"),
        get("/api/"),
        get("/api/a%2Fb"),
        get("/v1/search?q=a+b"),
        get("/v1/search/"),
        get("/v1/searches"),
        get("/LOGIN"),
        get("/healthz"),
        get("/healthz").method("HEAD"),
        get("/blog/2024/a?b=c"),
        get("/missing"),
        get("/failing"),
        get("/moved"),
        get("/admin/x"),
        get("/admin/x").by(3),
        get("/ADMIN/x"),
    ]);
}

const NORMALISED: &str = "tollgate compares and forwards the normalised path.";
const PASS_BY: &str = "pass by the rule of HAProxy and reach the backend";
const BARE_PREFIX: &str = "A pattern `/api/*` includes `/api`.";
const REFUSED: &str = "tollgate refuses `..` above the root, NUL, bad escapes and backslashes with 400.";
const TWICE: &str =
    "`option forwardfor` adds the client's address a second time, as a header line of its own.";
const HTTPS: &str = "The redirect to https is 308 in tollgate";

#[test]
fn odd_paths() {
    let pair = start();
    let normalised = |target, there, here| get(target).differs(NORMALISED, "request", there, here);
    pair.compare(&[
        normalised("/a/../b?c=../d", "GET /a/../b?c=../d HTTP/1.1", "GET /b?c=../d HTTP/1.1"),
        normalised("//a", "GET //a HTTP/1.1", "GET /a HTTP/1.1"),
        normalised("/%61%2fb", "GET /%61%2fb HTTP/1.1", "GET /a%2Fb HTTP/1.1"),
        get("/api").differs(BARE_PREFIX, "request", "GET /api HTTP/1.1", "GET /v2 HTTP/1.1"),
        get("/blog").ends(BARE_PREFIX, "shop GET /blog HTTP/1.1", "301 https://blog.example.com/blog"),
        get("/admin").ends(BARE_PREFIX, "shop GET /admin HTTP/1.1", "403"),
        get("//admin/x").ends(PASS_BY, "shop GET //admin/x HTTP/1.1", "403"),
        get("/a/../admin/x").ends(PASS_BY, "shop GET /a/../admin/x HTTP/1.1", "403"),
        get("/%61dmin/x").ends(PASS_BY, "shop GET /%61dmin/x HTTP/1.1", "403"),
        get("/../x").ends(REFUSED, "shop GET /../x HTTP/1.1", "400"),
        get("/a%zz").ends(REFUSED, "shop GET /a%zz HTTP/1.1", "400"),
        get("/a%00b").ends(REFUSED, "shop GET /a%00b HTTP/1.1", "400"),
        get("/a\\b").ends(REFUSED, "shop GET /a\\b HTTP/1.1", "400"),
    ]);
}

#[test]
fn clients_and_headers() {
    let pair = start();
    let forwarded = "x-forwarded-for";
    pair.compare(&[
        get("/a").fields("x-tenant: a\r\nx-tenant: b\r\n"),
        get("/a").fields("host: EXAMPLE.com:8443\r\n").differs(
            "tollgate forwards `host` in lower case, without final dot and default port.",
            "host",
            "EXAMPLE.com:8443",
            "example.com:8443",
        ),
        get("/a").fields("x-real-ip: 203.0.113.7\r\n"),
        get("/a").fields("x-forwarded-proto: http\r\n"),
        get("/a").fields("x-forwarded-for: 203.0.113.7\r\n"),
        get("/a").by_trusted(),
        get("/a").by_trusted().fields("x-forwarded-for: 203.0.113.7\r\n").differs(
            TWICE,
            forwarded,
            "203.0.113.7 | 203.0.113.7",
            "203.0.113.7, 127.0.0.1",
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
            "127.0.0.3 | 127.0.0.3",
            "127.0.0.3, 127.0.0.1",
        ),
        get("/admin/x").fields("x-forwarded-for: 127.0.0.3\r\n"),
    ]);
}

#[test]
fn requests_without_tls_are_redirected() {
    let pair = start();
    pair.compare(&[
        get("/a?b=c").plain().ends(HTTPS, "301 https://example.com/a?b=c", "308 https://example.com/a?b=c"),
        get("/a/../b").plain().ends(
            "Its path is the normalised one, and its host has no port.",
            "301 https://example.com/a/../b",
            "308 https://example.com/b",
        ),
        get("/a").plain().fields("host: EXAMPLE.com:80\r\n").ends(
            "Its path is the normalised one, and its host has no port.",
            "301 https://EXAMPLE.com:80/a",
            "308 https://example.com/a",
        ),
        get("/blog/x").plain().ends(
            "In tollgate a route with `redirect = { … }` answers on all ports.",
            "301 https://example.com/blog/x",
            "301 https://blog.example.com/blog/x",
        ),
    ]);
}

/// Five of each address are admitted; the sixth gets the page of 429.
#[test]
fn bursts_are_refused_alike() {
    let pair = start();
    let mut cases: Vec<_> = (0..8).map(|_| get("/login")).collect();
    cases.extend((0..7).map(|_| get("/login").method("POST").body(9).by(3)));
    pair.compare(&cases);
    assert_eq!(pair.shop.count(), 20, "five of two addresses at both");
}

#[test]
fn a_backend_that_is_away() {
    let (away, _socket) = Backend::refusing();
    let pair = start_with(Some(away));
    let case = || {
        let why = "A server that accepts no connection leads to 502 in tollgate and to 503 in HAProxy.";
        get("/v1/search").differs(why, "status", "503", "502")
    };
    pair.compare(&[case(), case().method("HEAD"), get("/a")]);
}
