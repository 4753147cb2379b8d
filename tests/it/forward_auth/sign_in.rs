//! `sign_in` sends browsers to the log-in, and `set_cookie` gives them the cookies of an admitting answer.

use super::{admitting, auth, guarded};
use crate::harness::{Backend, Gateway, Next, get_with, send};

const SIGN_IN: &str = "sign_in = \"https://login.example/start?rd={url}&a=b\"";

fn refusing() -> Backend {
    Backend::start(|exchange| {
        let status = exchange.field("x-status").unwrap_or_else(|| "401 Unauthorized".to_owned());
        exchange.write(format!(
            "HTTP/1.1 {status}\r\nset-cookie: gone=; Max-Age=0\r\nwww-authenticate: Cookie\r\ncontent-length: 5\r\n\r\nlogin"
        ));
        Next::KeepAlive
    })
}

#[test]
fn a_401_becomes_a_redirect_to_the_log_in_for_pages_only() {
    let (backend, door) = (Backend::ok(), refusing());
    let gateway = guarded(&backend, &door, SIGN_IN);
    let page = "accept: application/xhtml+xml, Text/HTML;q=0.9, */*;q=0.8\r\n";
    let response = get_with(gateway.addr(), "/a/../b?c=d&e=%20f", page).expect(302);
    assert_eq!(
        response.header("location"),
        Some("https://login.example/start?rd=http%3A%2F%2Ftest%2Fb%3Fc%3Dd%26e%3D%2520f&a=b")
    );
    assert_eq!(response.header_all("set-cookie"), ["gone=; Max-Age=0"]);
    assert_eq!(
        (response.header("cache-control"), response.header("www-authenticate")),
        (Some("no-store"), None)
    );
    assert_eq!(response.text(), "");
    for fields in ["", "accept: */*\r\n", "accept: application/json\r\n", "accept: text/html;q=0\r\n"] {
        assert_eq!(get_with(gateway.addr(), "/", fields).expect(401).text(), "login", "{fields}");
    }
    let post = format!("POST / HTTP/1.1\r\nhost: test\r\n{page}content-length: 0\r\n\r\n");
    send(gateway.addr(), post).expect(401);
    get_with(gateway.addr(), "/", &format!("{page}x-status: 403 Forbidden\r\n")).expect(403);
    let log = gateway.access_log(1);
    assert_eq!((&log[0]["status"], &log[0]["error"]), (&302.into(), &"forward_auth".into()));
    assert_eq!(backend.count(), 0);
}

#[test]
fn cookies_of_an_admitting_answer_reach_the_client_where_the_file_says_so() {
    let lines = "set-cookie: session=2; Path=/\r\nset-cookie: csrf=3\r\nx-user: ann\r\n";
    let backend = Backend::answering("HTTP/1.1 200 OK\r\nset-cookie: app=1\r\ncontent-length: 2\r\n\r\nok");
    let door = admitting(lines);
    let without = guarded(&backend, &door, "");
    assert_eq!(get_with(without.addr(), "/", "").expect(200).header_all("set-cookie"), ["app=1"]);
    let limit = "[limits.one]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"1/day\"\n";
    let gateway = Gateway::start(&crate::harness::everything_to(
        &backend,
        &format!("auth = \"door\"\nlimits = [\"one\"]\n{}{limit}", auth(&door, "set_cookie = true")),
    ));
    let both = ["session=2; Path=/", "csrf=3"];
    let cookies = |status: u16| {
        let response = get_with(gateway.addr(), "/", "").expect(status);
        response.header_all("set-cookie").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(cookies(200), ["app=1", both[0], both[1]]);
    assert_eq!(cookies(429), both, "also of a request that a limit refuses");
    assert_eq!(backend.latest().header("set-cookie"), None);
}
