//! `redirect = "https"`: a request without TLS is redirected, and charged nothing.

use serde_json::json;
use tollgate::config;
use tollgate::explain::{ExplainRequest, explain};

use crate::harness::api::good;
use crate::harness::config::parse;
use crate::harness::{Authority, Backend, Client, Gateway, everything_to, get_with, send};

const LIMITED: &str = "redirect = \"https\"\nlimits = [\"one\"]\n\
    [limits.one]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"1/day\"\nalign = \"first-request\"\n";

/// Without TLS first, then with.
const LISTEN: &str =
    "[server]\nlisten = [{ address = \"127.0.0.1:0\", tls = false }, \"127.0.0.1:0\"]\nworkers = 2\n";

fn start(backend: &Backend, rest: &str) -> (Gateway, Authority) {
    listening(backend, rest, LISTEN)
}

fn listening(backend: &Backend, rest: &str, listen: &str) -> (Gateway, Authority) {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let toml = everything_to(backend, &format!("{rest}\n{listen}{}", authority.server("a")));
    (Gateway::start(&toml), authority)
}

#[test]
fn a_request_without_tls_is_sent_to_https_and_costs_nothing() {
    let backend = Backend::ok();
    let (gateway, authority) = start(&backend, LIMITED);
    let mut plain = Client::connect(gateway.addr());
    for (target, host, location) in [
        ("/a?b=c&d", "a.test:8080", "https://a.test/a?b=c&d"),
        ("/x/../%61//b/", "A.Test.", "https://a.test/a/b/"),
        ("//evil.test/", "a.test", "https://a.test/evil.test/"),
        ("/a%0d%0ax:y?%0d%0a", "a.test", "https://a.test/a%0D%0Ax:y?%0d%0a"),
        ("/", "[::1]:80", "https://[::1]/"),
        ("http://b.test:80/q", "b.test:80", "https://b.test/q"),
    ] {
        let answer = plain.exchange(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).expect(308);
        assert_eq!(answer.header("location"), Some(location), "{target}");
        assert_eq!((answer.header("ratelimit"), answer.text().as_str()), (None, ""));
    }
    let post = "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\n\r\nbody";
    assert!(!plain.exchange(post).expect(308).closed, "a small body is read");
    assert_eq!(backend.count(), 0, "nothing is forwarded");
    let mut client = Client::connect_tls(gateway.addresses()[1], &authority.client(), "a.test");
    client.get("/", "").expect(200);
    client.get("/", "").expect(429);
    plain.get("/", "").expect(308);
}

#[test]
fn a_redirect_is_logged_with_its_route_and_counted() {
    let backend = Backend::ok();
    let (gateway, _) = start(&backend, "redirect = \"https\"\n[admin]\nlisten = \"127.0.0.1:0\"");
    gateway.get("/a").expect(308);
    let records = gateway.access_log(1);
    let record = &records[0];
    assert_eq!((record["status"].as_u64(), record["route"].as_str()), (Some(308), Some("all")));
    assert!(record["error"].is_null() && record["upstream"].is_null(), "{record}");
    gateway.has_counted("tollgate_requests_total", &["route=\"all\"", "code=\"308\""], 1);
}

#[test]
fn a_trusted_proxy_may_have_ended_tls() {
    let backend = Backend::ok();
    let trusting = "redirect = \"https\"\n[server]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&everything_to(&backend, trusting));
    for (proto, status) in [("https", 200), ("HTTPS", 200), ("https, http", 200), ("http", 308), ("", 308)] {
        get_with(gateway.addr(), "/", &format!("x-forwarded-proto: {proto}\r\n")).expect(status);
    }
    gateway.get("/").expect(308);
    let stranger = Gateway::start(&everything_to(&backend, "redirect = \"https\""));
    get_with(stranger.addr(), "/", "x-forwarded-proto: https\r\n").expect(308);
}

#[test]
fn without_a_host_there_is_nowhere_to_go() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "redirect = \"https\""));
    assert_eq!(send(gateway.addr(), "GET / HTTP/1.0\r\n\r\n").expect(400).header("location"), None);
}

#[test]
fn a_script_of_another_site_can_follow() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&everything_to(&backend, "redirect = \"https\"\ncors = { origins = [\"*\"] }"));
    let answer = get_with(gateway.addr(), "/", "origin: https://app.example.com\r\n").expect(308);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
}

#[test]
fn check_and_explain_tell_of_it() {
    let toml = "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[upstreams]\ndemo = \"builtin:echo\"\n\
        [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nredirect = \"https\"\nstrip_prefix = \"/a\"\n";
    let plan = parse(toml).expect("it is good").plan;
    let summary = config::summary(&plan, "gateway.toml");
    assert!(summary.contains("\n  without TLS: sent to https by 308, and charged nothing\n"), "{summary}");
    for (url, location) in
        [("http://a.test:8080/a/./b?c", "https://a.test/a/b?c"), ("/a/b", "https://HOST/a/b")]
    {
        let request = ExplainRequest::new("GET", url, &[], None).expect("a request");
        let told = explain(&plan, &request).to_string();
        assert!(told.contains(&format!("redirect  without TLS 308 to `{location}`")), "{told}");
        assert!(told.contains("gets `/b"), "what goes on over TLS is told, too: {told}");
    }
}

#[test]
fn explain_answers_308_where_the_gateway_does() {
    let backend = Backend::ok();
    let names = LISTEN.replace("tls = false", "tls = false, name = \"plain\"");
    let names = names.replace("\"127.0.0.1:0\"]", "{ address = \"127.0.0.1:0\", name = \"secure\" }]");
    let (gateway, authority) =
        listening(&backend, &format!("{LIMITED}[admin]\nlisten = \"127.0.0.1:0\"\n"), &names);
    let explained = |url: &str, listener: Option<&str>| {
        let told = good(&gateway, "POST explain", &json!({ "url": url, "listener": listener }).to_string());
        (told["verdict"].as_str().unwrap_or_default().to_owned(), told["status"].clone())
    };
    let redirected = ("redirected".to_owned(), json!(308));
    for (url, listener) in
        [("http://a.test/s", None), ("HTTP://a.test/s", Some("plain")), ("/s", None), ("/s", Some("plain"))]
    {
        assert_eq!(explained(url, listener), redirected, "{url} {listener:?}");
    }
    let secure = [("https://a.test/s", None), ("https://a.test/s", Some("secure")), ("/s", Some("secure"))];
    for (url, listener) in secure {
        assert_eq!(explained(url, listener).0, "admitted", "{url} {listener:?}");
    }
    Client::connect_tls(gateway.addresses()[1], &authority.client(), "a.test").get("/s", "").expect(200);
    for (url, listener) in secure {
        assert_eq!(explained(url, listener), ("refused".to_owned(), json!(429)), "{url} {listener:?}");
    }
    assert_eq!(explained("http://a.test/s", None), redirected);
}

#[test]
fn explain_believes_the_scheme_of_a_trusted_proxy_only() {
    let toml = "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[upstreams]\ndemo = \"builtin:echo\"\n\
        [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nredirect = \"https\"\n";
    let plan = parse(toml).expect("it is good").plan;
    let proto = |scheme: &str| [format!("x-forwarded-proto: {scheme}")];
    for (headers, ip, status) in [
        (proto("https"), "10.0.0.1", None),
        (proto("http"), "10.0.0.1", Some(308)),
        (proto("https"), "192.0.2.1", Some(308)),
    ] {
        let request = ExplainRequest::new("GET", "http://a.test/", &headers, ip.parse().ok());
        let told = explain(&plan, &request.expect("a request"));
        assert_eq!(told.answer.map(|answer| answer.status.as_u16()), status, "{headers:?} from {ip}");
    }
}
