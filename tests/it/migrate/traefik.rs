//! `docs/migrate/traefik.md`: the counterpart of a dynamic configuration beside what Traefik's documentation says, and
//! beside Traefik itself where its binary is on the path: Debian has none.

use super::{Case, Compared, Peer, block, get, named_backend, observe, page, section, substituted};
use crate::harness::pages::Page;
use crate::harness::{Backend, Front, Gateway, tools};

const COMPARED: Compared = Compared {
    sent_on: &[
        "host",
        "x-debug",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-forwarded-server",
        "x-real-ip",
        "x-tenant",
    ],
    answered: &["x-frame-options", "x-powered-by"],
};

/// A request, and what is documented of it: what is observed under each key.
struct Row(Case, Vec<(&'static str, &'static str)>);

/// The gateway, and Traefik if it is here, with the files of the page, before the same backends.
struct Pair {
    page: Page,
    shop: Backend,
    tollgate: Peer,
    traefik: Option<Peer>,
    _gateway: Gateway,
    _front: Option<Front>,
    _pages: Backend,
    _away: socket2::Socket,
    _directory: tempfile::TempDir,
}

impl Pair {
    fn start() -> Self {
        let page = page("traefik");
        let directory = tempfile::tempdir().expect("a directory");
        let error_page = block(&page, "text saved as 502.html");
        let file = directory.path().join("502.html");
        std::fs::write(&file, &error_page).expect("it can be written");
        let pages = Backend::answering(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{error_page}",
            error_page.len()
        ));
        let shop = named_backend("shop");
        // The second server of the shop and the only one of the search are away.
        let (away, socket) = Backend::refusing();
        let changes = [
            ("10.0.1.1:9001", shop.addr().to_string()),
            ("10.0.1.2:9001", away.to_string()),
            ("10.0.1.3:9002", away.to_string()),
            ("192.168.0.0/16", "127.0.0.3".to_owned()),
        ];
        let toml = substituted(&block(&page, "toml"), &changes);
        let place = ("\"502.html\"", format!("\"{}\"", file.display()));
        let gateway = Gateway::start(&substituted(&toml, &[place]));
        let front = tools::is_here("traefik").then(|| {
            let yaml = substituted(&block(&page, "yaml"), &changes);
            Front::traefik_file(&substituted(&yaml, &[("10.0.1.4:9003", pages.addr().to_string())]))
        });
        if front.is_none() {
            eprintln!("`traefik` is not on the path: compared with its documentation");
        }
        let peer = |name, plain| Peer { name, plain, tls: None };
        Self {
            page,
            shop,
            tollgate: peer("tollgate", gateway.addr()),
            traefik: front.as_ref().map(|front| peer("traefik", front.addr())),
            _gateway: gateway,
            _front: front,
            _pages: pages,
            _away: socket,
            _directory: directory,
        }
    }

    fn compare(&self, rows: &[Row]) {
        let text = section(&self.page);
        let mut faults = Vec::new();
        for Row(case, documented) in rows {
            let differing = |key: &str| case.differences.iter().find(|(differing, ..)| *differing == key);
            for peer in [Some(&self.tollgate), self.traefik.as_ref()].into_iter().flatten() {
                let observed = observe(peer, case, &[("shop", &self.shop)], &COMPARED);
                for (key, there) in documented {
                    let here = differing(key).map_or(*there, |(_, _, here)| *here);
                    let expected = if peer.name == "tollgate" { here } else { there };
                    let found = observed.get(*key).map_or("", String::as_str);
                    if found != expected {
                        faults.push(format!(
                            "{}: {} {}: {key}: {found:?} and not {expected:?}",
                            peer.name, case.method, case.target
                        ));
                    }
                }
            }
            for (key, there, _) in &case.differences {
                assert!(documented.contains(&(*key, *there)), "{}: {key} is documented", case.target);
            }
            if !text.contains(case.why) {
                faults.push(format!("{} does not say under `What differs`: {}", self.page.path, case.why));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// A request that the shop gets with this request line.
fn reaches(case: Case, line: &'static str) -> Row {
    Row(case, vec![("status", "200"), ("backend", "shop"), ("request", line)])
}

/// A request that Traefik itself answers with this status and body.
fn answered(case: Case, status: &'static str, body: &'static str) -> Row {
    Row(case, vec![("status", status), ("backend", ""), ("body", body)])
}

/// A redirect to this location.
fn moved(case: Case, status: &'static str, location: &'static str) -> Row {
    Row(case, vec![("status", status), ("backend", ""), ("answered location", location)])
}

/// stripprefix, addprefix: <https://doc.traefik.io/traefik/middlewares/http/overview/>.
#[test]
fn prefixes_are_stripped_and_added() {
    let none = get("/shopping").differs("`PathPrefix` compares characters", "status", "200", "404");
    Pair::start().compare(&[
        reaches(get("/shop/a/b?c=d"), "GET /v2/a/b?c=d HTTP/1.1"),
        reaches(get("/shop/"), "GET /v2/ HTTP/1.1"),
        reaches(get("/shop/a/").method("POST").body(100), "POST /v2/a/ HTTP/1.1"),
        reaches(get("/shop/a").method("HEAD"), "HEAD /v2/a HTTP/1.1"),
        reaches(get("/shop/a%20b"), "GET /v2/a%20b HTTP/1.1"),
        reaches(get("/shop/a/../b"), "GET /v2/b HTTP/1.1"),
        reaches(get("/shop//a"), "GET /v2/a HTTP/1.1"),
        reaches(get("/shop"), "GET /v2 HTTP/1.1"),
        Row(none, vec![("status", "200")]),
        answered(get("/SHOP/a"), "404", "404 page not found\n"),
        answered(get("/other"), "404", "404 page not found\n"),
    ]);
}

/// headers: an empty value removes a header. Forwarding headers of peers that are not trusted are set anew.
#[test]
fn headers_are_edited() {
    let fields =
        "x-debug: 1\r\nx-tenant: other\r\nx-forwarded-for: 203.0.113.7\r\nx-real-ip: 203.0.113.7\r\n";
    let server = "Traefik sends `x-forwarded-port` and `x-forwarded-server` to backends.";
    let seen = vec![
        ("status", "200"),
        ("host", "example.com"),
        ("x-tenant", "shop"),
        ("x-debug", ""),
        ("x-forwarded-prefix", "/shop"),
        ("x-forwarded-for", "127.0.0.2"),
        ("x-forwarded-host", "example.com"),
        ("x-forwarded-proto", "http"),
        ("x-real-ip", "127.0.0.2"),
        ("answered x-frame-options", "DENY"),
        ("answered x-powered-by", ""),
    ];
    let pair = Pair::start();
    pair.compare(&[Row(get("/shop/a").fields(fields), seen)]);
    assert!(pair.shop.latest().header("x-forwarded-server").is_some() == pair.traefik.is_some());
    assert!(section(&pair.page).contains(server));
    let failing = vec![("status", "404"), ("backend", "shop"), ("answered x-frame-options", "DENY")];
    pair.compare(&[Row(get("/shop/missing"), failing)]);
}

/// retry: tried again where the server cannot have got the request. One of the two servers is away.
#[test]
fn servers_that_are_away_are_retried() {
    let pair = Pair::start();
    let rows: Vec<_> = (0..8)
        .map(|turn| {
            let case = if turn % 2 == 0 { get("/shop/a") } else { get("/shop/a").method("POST").body(10) };
            Row(case, vec![("status", "200"), ("backend", "shop")])
        })
        .collect();
    pair.compare(&rows);
}

/// errors: the page of the service, with the status that it stands for.
#[test]
fn errors_have_their_page() {
    let pair = Pair::start();
    let body = "<h1>Back soon</h1>\n";
    pair.compare(&[answered(get("/search"), "502", body)]);
    let text = section(&pair.page);
    assert!(text.contains("The middleware `errors` replaces the bodies of backends, too."));
    // A failing backend: its body is passed on here.
    let failing = observe(&pair.tollgate, &get("/shop/failing"), &[("shop", &pair.shop)], &COMPARED);
    assert_eq!((failing["status"].as_str(), failing["backend"].as_str()), ("500", "shop"));
}

/// redirectregex: 301 for GET and 308 for others, if it is permanent.
#[test]
fn old_urls_are_redirected() {
    let bare = "The pattern `/old/*` includes `/old`.";
    Pair::start().compare(&[
        moved(get("/old/a/b?c=d"), "301", "https://new.example.com/a/b?c=d"),
        moved(get("/old/"), "301", "https://new.example.com/"),
        moved(get("/old/a").method("HEAD"), "308", "https://new.example.com/a"),
        moved(get("/old/a").method("POST").body(10), "308", "https://new.example.com/a"),
        Row(get("/old").differs(bare, "status", "404", "301"), vec![("status", "404")]),
    ]);
}

/// ipallowlist: 403 with its text.
#[test]
fn other_addresses_are_refused() {
    Pair::start().compare(&[
        answered(get("/admin/a"), "403", "Forbidden"),
        reaches(get("/admin/a").by(3), "GET /admin/a HTTP/1.1"),
        answered(get("/admin/a").fields("x-forwarded-for: 127.0.0.3\r\n"), "403", "Forbidden"),
    ]);
}

/// ratelimit: `burst` requests of an address at once, then 429.
#[test]
fn bursts_are_refused() {
    let mut rows: Vec<_> = (0..5).map(|_| reaches(get("/login"), "GET /login HTTP/1.1")).collect();
    rows.extend((0..3).map(|_| answered(get("/login"), "429", "Too Many Requests")));
    rows.push(reaches(get("/login").by(3), "GET /login HTTP/1.1"));
    Pair::start().compare(&rows);
}

/// inflightreq: `amount` requests of an address at the same time, then 429.
#[test]
fn requests_at_the_same_time_are_refused() {
    let pair = Pair::start();
    let peers = [Some(&pair.tollgate), pair.traefik.as_ref()].into_iter().flatten();
    let mut held: Vec<_> = peers.flat_map(|peer| [peer.connect(2, true), peer.connect(2, true)]).collect();
    for client in &mut held {
        client.write(get("/export/all").bytes());
    }
    pair.shop.wait_for(held.len());
    pair.compare(&[Row(get("/export/all"), vec![("status", "429"), ("backend", "")])]);
    pair.shop.open_gate();
    for mut client in held {
        client.read().expect(200);
        assert!(client.closes());
    }
    pair.compare(&[reaches(get("/export/all"), "GET /export/all HTTP/1.1")]);
}
