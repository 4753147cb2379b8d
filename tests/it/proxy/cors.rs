//! CORS: scripts of the listed sites may read the responses; a preflight request is charged nothing.

use crate::harness::config::parse;
use crate::harness::{Backend, Gateway, Response, everything_to, get_with, send};

const LIMITED: &str = "limits = [\"one\"]\n\
    [limits.one]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"1/day\"\nalign = \"first-request\"\n";
const APP: &str = "origin: https://app.example.com\r\n";

fn cors(cors: &str, rest: &str) -> String {
    format!("cors = {{ {cors} }}\n{rest}")
}

fn preflight(gateway: &Gateway, origin: &str, method: &str, fields: &str) -> Response {
    let head = format!(
        "OPTIONS /a HTTP/1.1\r\nhost: test\r\norigin: {origin}\r\naccess-control-request-method: {method}\r\n{fields}\r\n"
    );
    send(gateway.addr(), head)
}

#[test]
fn preflights_are_answered_at_the_edge_and_cost_nothing() {
    let backend = Backend::ok();
    let rest = "origins = [\"https://app.example.com\"], headers = [\"X-Api-Key\"], credentials = true, max_age = \"1h\"";
    let rest = format!("methods = [\"GET\", \"PUT\"]\n{}", cors(rest, LIMITED));
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    for _ in 0..3 {
        let asked = "access-control-request-headers: x-api-key\r\n";
        let answer = preflight(&gateway, "https://app.example.com", "PUT", asked).expect(204);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
        assert_eq!(answer.header("access-control-allow-methods"), Some("GET, PUT"));
        assert_eq!(answer.header("access-control-allow-headers"), Some("x-api-key"));
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
        assert_eq!(answer.header("access-control-max-age"), Some("3600"));
        assert_eq!(answer.header("vary"), Some("origin"));
        assert_eq!((answer.header("content-length"), answer.header("ratelimit")), (None, None));
    }
    assert_eq!(backend.count(), 0, "no preflight is forwarded");
    get_with(gateway.addr(), "/a", APP).expect(200);
    get_with(gateway.addr(), "/a", APP).expect(429);
}

#[test]
fn a_preflight_of_another_site_learns_nothing() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&everything_to(&backend, &cors("origins = [\"https://app.example.com\"]", "")));
    let answer = preflight(&gateway, "https://evil.example", "PUT", "").expect(204);
    assert!(!answer.head.contains("access-control"), "{}", answer.head);
    assert_eq!((answer.header("vary"), backend.count()), (Some("origin"), 0));
}

#[test]
fn an_options_request_that_is_no_preflight_is_forwarded() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &cors("origins = [\"*\"]", "")));
    send(gateway.addr(), "OPTIONS /a HTTP/1.1\r\nhost: test\r\n\r\n").expect(200);
    send(gateway.addr(), format!("OPTIONS /a HTTP/1.1\r\nhost: test\r\n{APP}\r\n")).expect(200);
    assert_eq!(backend.count(), 2);
}

#[test]
fn without_cors_preflights_are_the_backends() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\naccess-control-allow-origin: https://b.example\r\ncontent-length: 0\r\n\r\n",
    );
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let answer = preflight(&gateway, "https://app.example.com", "GET", "").expect(200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://b.example"));
    assert_eq!(backend.count(), 1);
}

#[test]
fn answers_and_refusals_carry_the_fields_and_expose_ours() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://b.example\r\naccess-control-expose-headers: x-b\r\n\
         vary: accept\r\ncontent-length: 2\r\n\r\nok",
    );
    let rest = cors("origins = [\"https://app.example.com\"], expose_headers = [\"x-total\"]", LIMITED);
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let stranger = get_with(gateway.addr(), "/", "origin: https://evil.example\r\n").expect(200);
    assert!(!stranger.head.to_lowercase().contains("access-control"), "{}", stranger.head);
    let refused = get_with(gateway.addr(), "/", APP).expect(429);
    gateway.reload(&everything_to(&backend, &rest.replace("1/day", "5/day")), "reloaded");
    let passed = get_with(gateway.addr(), "/", APP).expect(200);
    for answer in [&refused, &passed] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
        let exposed = answer.header("access-control-expose-headers").expect("it is there");
        assert_eq!(exposed, format!("{}, x-total", tollgate::plan::cors::EXPOSED));
        assert!(answer.header_all("vary").contains(&"origin"), "{}", answer.head);
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
    assert_eq!(passed.header_all("vary"), ["accept", "origin"]);
    let plain = gateway.get("/").expect(200);
    assert_eq!(
        plain.header_all("vary"),
        ["accept", "origin"],
        "a cache must know, whichever client asked first"
    );
}

#[test]
fn failures_of_our_own_carry_the_fields() {
    let (address, _held) = Backend::refusing();
    let toml = format!(
        "[upstreams]\napi = \"http://{address}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\nmax_body_bytes = 1\n\
         cors = {{ origins = [\"*\"] }}\n"
    );
    let gateway = Gateway::start(&toml);
    let answer = get_with(gateway.addr(), "/", APP).expect(502);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("vary"), None, "it is the same for everybody");
    let large = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n{APP}\r\nhi");
    let answer = send(gateway.addr(), large).expect(413);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
}

#[test]
fn wildcards_hold_below_and_any_field_is_named_one_by_one() {
    let rest = cors("origins = [\"https://*.example.com\"], headers = [\"*\"], credentials = true", "");
    let gateway = Gateway::start(&everything_to(&Backend::ok(), &rest));
    let asked = "access-control-request-headers: authorization,x-a\r\n";
    let answer = preflight(&gateway, "https://a.example.com", "DELETE", asked).expect(204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://a.example.com"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization,x-a"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, HEAD, POST, PUT, PATCH, DELETE"));
    let answer = preflight(&gateway, "https://example.com", "DELETE", asked).expect(204);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn a_refusals_own_fields_of_cors_give_way() {
    let reject =
        "reject = { headers = { access-control-allow-origin = \"https://old.example\", x-own = \"1\" } }\n";
    let rest = cors("origins = [\"https://app.example.com\"]", &format!("{reject}{LIMITED}"));
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    gateway.get("/").expect(200);
    let answer = get_with(gateway.addr(), "/", APP).expect(429);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(answer.header("x-own"), Some("1"));
}

#[test]
fn origins_that_no_browser_sends_are_faults() {
    for (origin, good) in [
        ("https://a.example", true),
        ("http://localhost:3000", true),
        ("http://[::1]:3000", true),
        ("https://*.a.example:8443", true),
        ("app://a", true),
        ("https://a.example/", false),
        ("https://a.example:443", false),
        ("http://a.example:80", false),
        ("https://A.example", false),
        ("a.example", false),
        ("null", false),
        ("https://*", false),
        ("https://a.*.example", false),
        ("https://u@a.example", false),
        ("", false),
    ] {
        let file = format!(
            "upstreams.d = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"d\"\ncors = {{ origins = [\"{origin}\"] }}\n"
        );
        assert_eq!(parse(&file).is_ok(), good, "{origin}");
    }
}
