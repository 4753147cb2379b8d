//! `respond`: answers of the gateway itself.

use std::io::Write as _;

use crate::harness::config::parse;
use crate::harness::{Backend, Client, Gateway, get, get_with, send};

#[test]
fn a_route_answers_with_status_body_and_headers() {
    let gateway = Gateway::start(
        "[[routes]]\npath = \"/a\"\nrespond = { body = \"hello\\n\" }\n\
         [[routes]]\npath = \"/down\"\nrespond = { status = 503, body = '{\"down\":true}', content_type = \"application/json\", \
         headers = { retry-after = \"60\", x-a = \"1\" } }\nset_response_headers = { x-a = \"2\", x-b = \"3\" }\n\
         [[routes]]\npath = \"/none\"\nrespond = { status = 204 }\n\
         [[routes]]\npath = \"/*\"\nrespond = { status = 404 }\n",
    );
    let answer = get(gateway.addr(), "/a").expect(200);
    assert_eq!(answer.text(), "hello\n");
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("content-length"), Some("6"));
    assert!(answer.header("date").is_some() && answer.header("x-request-id").is_some());
    let answer = get(gateway.addr(), "/down").expect(503);
    assert_eq!(answer.json()["down"], true);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((answer.header_all("retry-after"), answer.header_all("x-a")), (vec!["60"], vec!["2"]));
    assert_eq!(answer.header("x-b"), Some("3"));
    let answer = get(gateway.addr(), "/none").expect(204);
    assert_eq!((answer.header("content-length"), answer.header("content-type")), (None, None));
    let answer = get(gateway.addr(), "/other").expect(404);
    assert_eq!((answer.header("content-length"), answer.text().as_str()), (Some("0"), ""));
}

#[test]
fn a_head_request_gets_the_head_alone_and_the_connection_stays() {
    let gateway = Gateway::start("[[routes]]\npath = \"/a\"\nrespond = { body = \"hello\" }\n");
    let mut client = Client::connect(gateway.addr());
    client.write("HEAD /a HTTP/1.1\r\nhost: a\r\n\r\n");
    let head = client.read_for("HEAD").expect(200);
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some("5"), ""));
    for body in ["", "x", &"x".repeat(100_000)] {
        let request = format!("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        assert_eq!(client.exchange(request).expect(200).text(), "hello");
    }
    let old = send(gateway.addr(), "GET /a HTTP/1.0\r\n\r\n").expect(200);
    assert_eq!(old.header("connection"), Some("close"));
}

#[test]
fn a_file_is_read_when_the_configuration_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    std::fs::write(&page, "<p>{route}</p>").expect("it is written");
    let path = page.display();
    let toml = format!("[[routes]]\npath = \"/page\"\nrespond = {{ body_file = \"{path}\" }}\n");
    let gateway = Gateway::start(&toml);
    let answer = get(gateway.addr(), "/page").expect(200);
    assert_eq!(answer.text(), "<p>{route}</p>", "a file has no values of the request");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    std::fs::write(&page, "new").expect("it is written");
    assert_eq!(get(gateway.addr(), "/page").expect(200).text(), "<p>{route}</p>");
    gateway.reload(&toml, "reloaded");
    assert_eq!(get(gateway.addr(), "/page").expect(200).text(), "new");
}

#[test]
fn a_file_has_at_most_one_mebibyte() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page");
    let toml = format!("[[routes]]\npath = \"/a\"\nrespond = {{ body_file = \"{}\" }}\n", page.display());
    let mut file = std::fs::File::create(&page).expect("a file");
    file.write_all(&vec![b'x'; 1 << 20]).expect("it is written");
    let gateway = Gateway::start(&toml);
    let answer = get(gateway.addr(), "/a").expect(200);
    assert_eq!(answer.body.len(), 1 << 20);
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    file.write_all(b"x").expect("it is written");
    let report = parse(&toml).expect_err("it is too large").to_string();
    assert!(report.contains("larger than"), "{report}");
}

/// Each response needs a copy of its own.
#[test]
fn a_body_with_values_has_at_most_64_kib() {
    let toml = |body: &str| format!("[[routes]]\npath = \"/a\"\nrespond = {{ body = \"{body}\" }}\n");
    let most = "x".repeat((64 << 10) - 6);
    assert!(parse(toml(&format!("{most}{{path}}"))).is_ok());
    assert!(parse(toml(&format!("{most}{{{{path}}}}xxxxxx"))).is_ok(), "the same for all requests");
    let report = parse(toml(&format!("{most}{{path}}x"))).expect_err("it is too long").to_string();
    let told = "`body` has values of the request and is longer than 64 KiB";
    assert!(report.contains(told) && report.contains("write it without values"), "{}", &report[..200]);
}

#[test]
fn limits_credentials_and_networks_apply_to_answers() {
    let limited = "[limits.one]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1/day\"\nalign = \"first-request\"\n";
    let gateway = Gateway::start(&format!(
        "[[routes]]\npath = \"/a\"\nrespond = {{ body = \"x\" }}\nlimits = [\"one\"]\n\
         [[routes]]\npath = \"/deny\"\nrespond = {{ body = \"x\" }}\ndeny = [\"127.0.0.0/8\"]\n{limited}"
    ));
    let answer = get(gateway.addr(), "/a").expect(200);
    assert_eq!(answer.header("ratelimit"), Some("\"one\";r=0;t=86400"));
    get(gateway.addr(), "/a").expect(429);
    get(gateway.addr(), "/deny").expect(403);
}

#[test]
fn cors_applies_to_answers() {
    let gateway = Gateway::start(
        "[[routes]]\npath = \"/a\"\nrespond = { body = \"x\" }\ncors = { origins = [\"https://app.test\"] }\n",
    );
    let answer = get_with(gateway.addr(), "/a", "origin: https://app.test\r\n").expect(200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.test"));
}

/// A route that answers stands beside one that forwards, as a maintenance page does.
#[test]
fn some_clients_are_answered_and_others_forwarded() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]\nb = \"{}\"\n[[routes]]\nname = \"staff\"\npath = \"/*\"\nheaders = {{ x-staff = \"*\" }}\nupstream = \"b\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = {{ status = 503 }}\n",
        backend.url()
    ));
    get(gateway.addr(), "/a").expect(503);
    get_with(gateway.addr(), "/a", "x-staff: me\r\n").expect(200);
    assert_eq!(backend.count(), 1);
    assert_eq!(gateway.access_log(2)[0]["route"], "all");
}
