use proptest::prelude::*;

use super::*;
use crate::http1::fields::FieldSpan;

const CLIENT: &str = "x-forwarded-for: 203.0.113.7\r\n";
const FORWARDED: &str = "x-forwarded-method: GET\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.test\r\nx-forwarded-uri: /a?b=c\r\n";

fn parsed<'h>(text: &'h str, spans: &'h mut Vec<FieldSpan>) -> RequestHead<'h> {
    RequestHead::parse(text.as_bytes(), spans).expect("a head")
}

fn head(lines: &str) -> String {
    format!("GET /check/x HTTP/1.1\r\nhost: tollgate\r\n{lines}\r\n")
}

fn forwarded(lines: &str) -> Result<AskedRequest, AskedFault> {
    let (text, mut spans) = (head(lines), Vec::new());
    AskedRequest::forwarded(parsed(&text, &mut spans).fields, &ClientRule::default())
}

fn original(lines: &str) -> Result<AskedRequest, AskedFault> {
    let (text, mut spans) = (head(lines), Vec::new());
    AskedRequest::original(&parsed(&text, &mut spans), &ClientRule::default())
}

fn text_of(asked: Result<AskedRequest, AskedFault>) -> String {
    String::from_utf8(asked.expect("a request").head).expect("text")
}

#[test]
fn each_family_is_read_alone_and_left_out_of_the_request() {
    let lines = format!(
        "{FORWARDED}{CLIENT}x-original-uri: /evil\r\nx-original-method: PUT\r\nx-real-ip: 192.0.2.9\r\ncookie: a=b\r\nauthorization: Bearer x\r\nconnection: upgrade\r\nupgrade: websocket\r\nx-tollgate-token: guess\r\ncontent-length: 0\r\n"
    );
    let asked = forwarded(&lines).expect("a request");
    assert_eq!(asked.client.address.to_string(), "203.0.113.7");
    assert!(asked.secure);
    let expected = "GET /a?b=c HTTP/1.1\r\nhost: shop.test\r\ncookie: a=b\r\nauthorization: Bearer x\r\n\r\n";
    assert_eq!(String::from_utf8(asked.head).expect("text"), expected);
}

#[test]
fn the_original_request_is_a_url_or_a_path_with_the_host_of_the_call() {
    let url =
        "x-original-method: POST\r\nx-original-url: http://shop.test:8080/a?b\r\nx-real-ip: 192.0.2.9\r\n";
    let asked = original(url).expect("a request");
    assert_eq!((asked.client.address.to_string().as_str(), asked.secure), ("192.0.2.9", false));
    assert_eq!(
        String::from_utf8(asked.head).expect("text"),
        "POST /a?b HTTP/1.1\r\nhost: shop.test:8080\r\n\r\n"
    );
    // Of both, one may be the client's own: they must agree.
    for (host, path) in [("shop.test:8080", "/evil"), ("shop.test:8080", "/a?b"), ("tollgate", "/a")] {
        let both = format!("{url}x-original-uri: {path}\r\n").replace("shop.test:8080", host);
        assert_eq!(original(&both), Err(AskedFault::Contradiction), "{host} {path}");
    }
    let both = format!("{url}x-original-uri: /a?b\r\n").replace("shop.test:8080", "Tollgate");
    assert!(original(&both).is_ok());
    let path = format!("x-original-method: GET\r\nx-original-uri: /a\r\n{CLIENT}");
    assert_eq!(text_of(original(&path)), "GET /a HTTP/1.1\r\nhost: tollgate\r\n\r\n");
}

#[test]
fn what_is_missing_repeated_or_malformed_is_named() {
    let without = |name: &str| {
        let lines = FORWARDED.split_inclusive("\r\n").filter(|line| !line.starts_with(name));
        forwarded(&(lines.collect::<String>() + CLIENT))
    };
    for name in ["x-forwarded-method", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-uri"] {
        assert_eq!(without(name), Err(AskedFault::Missing(name)), "{name}");
        let twice = format!("{FORWARDED}{CLIENT}{name}: http\r\n");
        assert_eq!(forwarded(&twice), Err(AskedFault::Repeated(name)), "{name}");
    }
    assert_eq!(forwarded(FORWARDED), Err(AskedFault::NoClient));
    for (from, to, name) in [
        ("/a?b=c", "/a b", "x-forwarded-uri"),
        ("/a?b=c", "*", "x-forwarded-uri"),
        ("/a?b=c", "http://evil.test/", "x-forwarded-uri"),
        ("GET", "GET /evil HTTP/1.1", "x-forwarded-method"),
        ("https", "ftp", "x-forwarded-proto"),
    ] {
        let lines = FORWARDED.replace(from, to) + CLIENT;
        assert_eq!(forwarded(&lines), Err(AskedFault::Malformed(name)), "{to}");
    }
    let url = |url: &str| original(&format!("x-original-method: GET\r\nx-original-url: {url}\r\n{CLIENT}"));
    for bad in ["http:///path", "/path", "ftp://a/", "http://a@b/", "http://a?b"] {
        assert_eq!(url(bad), Err(AskedFault::Malformed("x-original-url")), "{bad}");
    }
    let bad = "x-original-method: GET\r\nx-original-uri: /\r\nx-real-ip: 192.0.2.1, 192.0.2.2\r\n";
    assert_eq!(original(bad), Err(AskedFault::Malformed("x-real-ip")));
}

#[test]
fn of_envoy_the_rest_of_the_path_is_the_target() {
    let text =
        format!("POST /check/envoy/x?y=z HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n{CLIENT}\r\n");
    let mut spans = Vec::new();
    let asked = AskedRequest::itself(&parsed(&text, &mut spans), "/x", &ClientRule::default());
    assert_eq!(text_of(asked), "POST /x?y=z HTTP/1.1\r\nhost: shop.test\r\n\r\n");
}

proptest! {
    /// Whatever the values are, the head is one head, with the method and the target that were asked about.
    #[test]
    fn no_value_makes_another_request(
        method in "[ -~]{0,12}",
        target in "/[ -~]{0,24}",
        host in "[ -~]{0,12}",
        other in "[ -~]{0,24}",
    ) {
        let lines = format!(
            "x-forwarded-method:{method}\r\nx-forwarded-proto: http\r\nx-forwarded-host:{host}\r\nx-forwarded-uri:{target}\r\nx-other:{other}\r\n{CLIENT}"
        );
        if let Ok(asked) = forwarded(&lines) {
            let mut spans = Vec::new();
            if let Ok(head) = RequestHead::parse(&asked.head, &mut spans) {
                prop_assert_eq!(head.length, asked.head.len());
                prop_assert_eq!(head.method.as_str(), method.trim());
                prop_assert_eq!(head.target.text, target.trim());
                prop_assert!(head.fields.iter().count() <= 2);
            }
        }
    }
}
