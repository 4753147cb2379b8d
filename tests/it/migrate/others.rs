//! `docs/migrate/kong.md`, `envoy.md` and `caddy.md`: the counterparts do what the files there are documented to do.

use super::{Case, Compared, Peer, block, get, named_backend, observe, outcome, page, substituted};
use crate::harness::{Authority, Backend, Gateway};

const COMPARED: Compared = Compared { sent_on: &[], answered: &[] };

/// The outcome of each request.
fn outcomes(gateway: &Gateway, backends: &[(&str, &Backend)], rows: &[(Case, &str)]) {
    let peer = Peer { name: "tollgate", plain: gateway.addr(), tls: None };
    outcomes_of(&peer, backends, rows);
}

fn outcomes_of(peer: &Peer, backends: &[(&str, &Backend)], rows: &[(Case, &str)]) {
    for (case, expected) in rows {
        let observed = observe(peer, case, backends, &COMPARED);
        assert_eq!(outcome(&observed), *expected, "{} {} {:?}", case.method, case.target, case.fields);
    }
}

#[test]
fn kong() {
    let page = page("kong");
    let directory = tempfile::tempdir().expect("a directory");
    let consumers = directory.path().join("consumers.csv");
    std::fs::write(&consumers, block(&page, "text saved as kong-consumers.csv")).expect("it can be written");
    let (orders, search) = (named_backend("orders"), named_backend("search"));
    let gateway = Gateway::start(&substituted(
        &block(&page, "toml"),
        &[
            ("0.0.0.0:8000", "127.0.0.1:0".to_owned()),
            ("10.0.1.1:9001", orders.addr().to_string()),
            ("10.0.1.2:9002", search.addr().to_string()),
            ("192.168.0.0/16", "127.0.0.3".to_owned()),
            ("kong-consumers.csv", consumers.display().to_string()),
        ],
    ));
    let customer = |target| {
        get(target).fields("host: api.example.com\r\nx-api-key: acme-5d1c9b7e0a42\r\nx-debug: 1\r\n")
    };
    outcomes(
        &gateway,
        &[("orders", &orders), ("search", &search)],
        &[
            (customer("/orders/7?a=b"), "orders GET /internal/7?a=b HTTP/1.1"),
            (customer("/orders"), "orders GET /internal HTTP/1.1"),
            (customer("/orders/7").method("POST").body(10), "orders POST /internal/7 HTTP/1.1"),
            (customer("/orders/7").method("POST").body(1_100_000), "413"),
            (customer("/orders/7").method("DELETE"), "404"),
            (get("/orders/7").fields("host: api.example.com\r\n"), "401"),
            (get("/orders/7"), "404"),
            (get("/v1/search?q=a"), "search GET /v1/search?q=a HTTP/1.1"),
            (get("/v1/searches"), "404"),
            (get("/admin/a"), "403"),
            (get("/admin/a").by(3), "orders GET /admin/a HTTP/1.1"),
            (get("/reports/7"), "503"),
        ],
    );
    let seen = orders.requests().remove(0);
    assert_eq!(seen.header("x-consumer").as_deref(), Some("acme"));
    assert_eq!(seen.header("x-tenant").as_deref(), Some("orders"));
    assert_eq!((seen.header("x-api-key"), seen.header("x-debug")), (None, None));
    // A consumer of the usual allowance has ten times less.
    let limit = |key: &str| {
        let fields = format!("host: api.example.com\r\nx-api-key: {key}\r\n");
        let request = format!("GET /orders/7 HTTP/1.1\r\n{fields}connection: close\r\n\r\n");
        let response = crate::harness::send(gateway.addr(), request).expect(200);
        response.header("x-ratelimit-limit").map(str::to_owned)
    };
    assert_eq!(limit("acme-5d1c9b7e0a42").as_deref(), Some("600"));
    assert_eq!(limit("globex-71f0e3d8c6b5").as_deref(), Some("60"));
}

#[test]
fn envoy() {
    let page = page("envoy");
    let [shop, search, blue] = ["shop", "search", "blue"].map(named_backend);
    let gateway = Gateway::start(&substituted(
        &block(&page, "toml"),
        &[
            ("0.0.0.0:8080", "127.0.0.1:0".to_owned()),
            ("10.0.1.1:9001", shop.addr().to_string()),
            // The other server of the shop, by another name of the same address.
            ("\"http://10.0.1.2:9001\"", format!("\"http://localhost:{}\"", shop.addr().port())),
            ("10.0.1.3:9002", search.addr().to_string()),
            ("10.0.1.4:9003", blue.addr().to_string()),
            // The checks are requests, too.
            ("interval = \"5s\"", "interval = \"1h\"".to_owned()),
        ],
    ));
    shop.wait_for(2);
    outcomes(
        &gateway,
        &[("shop", &shop), ("search", &search), ("blue", &blue)],
        &[
            (get("/healthz"), "200"),
            (get("/old/a?b=c"), "301 https://new.example.com/a?b=c"),
            (get("/v1/search"), "search GET /v1/search HTTP/1.1"),
            (get("/api/a?b=c"), "shop GET /v2/a?b=c HTTP/1.1"),
            (get("/a").fields("x-tenant: blue-1\r\n"), "blue GET /a HTTP/1.1"),
            (get("/a").fields("x-tenant: red\r\n"), "shop GET /a HTTP/1.1"),
            (get("/a"), "shop GET /a HTTP/1.1"),
            (get("/api/a").fields("x-tenant: blue-1\r\n"), "shop GET /v2/a HTTP/1.1"),
        ],
    );
}

#[test]
fn caddy() {
    let page = page("caddy");
    let authority = Authority::new();
    authority.certify("example.com", &["example.com"]);
    let (shop, search) = (named_backend("shop"), named_backend("search"));
    let quoted = |file: &str| format!("\"{}\"", authority.path(file).display());
    let gateway = Gateway::start(&substituted(
        &block(&page, "toml"),
        &[
            ("0.0.0.0:80", "127.0.0.1:0".to_owned()),
            ("0.0.0.0:443", "127.0.0.1:0".to_owned()),
            ("\"example.com.pem\"", quoted("example.com.pem")),
            ("\"example.com.key\"", quoted("example.com.key")),
            // The other server of the API, by another name of the same address.
            ("\"http://10.0.1.2:9001\"", format!("\"http://localhost:{}\"", shop.addr().port())),
            ("10.0.1.1:9001", shop.addr().to_string()),
            ("10.0.1.3:9002", search.addr().to_string()),
            ("192.168.0.0/16", "127.0.0.3".to_owned()),
            // The checks are requests, too.
            ("path = \"/healthz\" }", "path = \"/healthz\", interval = \"1h\" }".to_owned()),
        ],
    ));
    shop.wait_for(2);
    let [plain, tls] = [0, 1].map(|index| gateway.addresses()[index]);
    let peer = Peer { name: "tollgate", plain, tls: Some((tls, authority.client())) };
    let shops = |target| get(target).fields("host: shop.example.com\r\n");
    let mut rows = vec![
        (shops("/a?b=c").plain(), "308 https://shop.example.com/a?b=c"),
        (shops("/healthz"), "200"),
        (shops("/old"), "301 /new"),
        (shops("/api/a?b=c"), "shop GET /api/a?b=c HTTP/1.1"),
        (shops("/search/a"), "search GET /a HTTP/1.1"),
        (shops("/admin/a"), "403"),
        (shops("/admin/a").by(3), "shop GET /admin/a HTTP/1.1"),
        (get("/a"), "404"),
    ];
    rows.extend((0..5).map(|_| (shops("/login").method("POST").body(9), "shop POST /login HTTP/1.1")));
    rows.push((shops("/login").method("POST").body(9), "429"));
    rows.push((shops("/login"), "shop GET /login HTTP/1.1"));
    outcomes_of(&peer, &[("shop", &shop), ("search", &search)], &rows);
    let requests = shop.requests();
    let of_api = requests.iter().find(|request| request.target() == "/api/a?b=c").expect("it was forwarded");
    assert_eq!(of_api.header("x-real-ip").as_deref(), Some("127.0.0.2"));
}
