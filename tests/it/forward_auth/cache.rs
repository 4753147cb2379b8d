//! What is remembered of a service's answers.

use super::{admitting, auth, guarded};
use crate::harness::{Backend, Client, Gateway, Next, everything_to, get_with};

fn ask_from(gateway: &Gateway, source: &str) -> u16 {
    Client::connect_from(source.parse().expect("an address"), gateway.addr()).get("/a", "").status
}

/// A service that knows the clients of the office by their address.
#[test]
fn an_answer_for_one_client_is_none_for_another() {
    let backend = Backend::ok();
    let door = Backend::start(|exchange| {
        let is_office = exchange.field("x-forwarded-for").as_deref() == Some("127.0.0.2");
        let answer = if is_office { "200 OK\r\nx-user: office" } else { "403 Forbidden" };
        exchange.write(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let gateway = guarded(&backend, &door, "cache = \"1h\"\nname = \"header:x-user\"");
    assert_eq!((ask_from(&gateway, "127.0.0.2"), door.count()), (200, 1));
    assert_eq!((ask_from(&gateway, "127.0.0.2"), door.count()), (200, 1));
    assert_eq!((ask_from(&gateway, "127.0.0.3"), door.count()), (403, 2));
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("office"));
}

/// The cookie of one answer belongs to one client.
#[test]
fn an_answer_with_a_cookie_is_not_remembered() {
    let (backend, door) = (Backend::ok(), admitting("set-cookie: session=1\r\n"));
    let gateway = guarded(&backend, &door, "cache = \"1h\"");
    for _ in 0..3 {
        get_with(gateway.addr(), "/", "").expect(200);
    }
    assert_eq!(door.count(), 3);
}

#[test]
fn spellings_of_one_request_share_an_answer() {
    let (backend, door) = (Backend::ok(), admitting(""));
    let gateway = guarded(&backend, &door, "cache = \"1h\"");
    for (target, host) in
        [("/a/b", "test"), ("/a/./b", "TEST"), ("/a/c/../%62", "test.:80"), ("/a//b", "Test:80")]
    {
        let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        crate::harness::send(gateway.addr(), request).expect(200);
        assert_eq!(door.count(), 1, "{target} {host}");
    }
}

/// What an auth has learned depends on its own settings only.
#[test]
fn answers_outlive_a_reload_that_does_not_change_their_auth() {
    let (backend, door) = (Backend::ok(), admitting(""));
    let with = |more: &str, rest: &str| {
        everything_to(&backend, &format!("auth = \"door\"\n{more}\n{}", auth(&door, rest)))
    };
    let gateway = Gateway::start(&with("", "cache = \"1h\""));
    get_with(gateway.addr(), "/", "").expect(200);
    gateway.reload(&with("timeout = \"20s\"", "cache = \"1h\""), "reloaded");
    get_with(gateway.addr(), "/", "").expect(200);
    assert_eq!(door.count(), 1, "it is remembered");
    gateway.reload(&with("", "cache = \"1800s\""), "reloaded");
    get_with(gateway.addr(), "/", "").expect(200);
    assert_eq!(door.count(), 2, "another auth");
}

/// Whatever else changes: other auths, limits, routes, the upstream.
#[test]
fn answers_outlive_changes_around_their_auth() {
    let (backend, other, door) = (Backend::ok(), Backend::ok(), admitting("x-user: ann\r\n"));
    let with = |backend: &Backend, more: &str| {
        let door = auth(&door, "cache = \"1h\"\nname = \"header:x-user\"");
        everything_to(backend, &format!("auth = \"door\"\n{more}\n{door}"))
    };
    let gateway = Gateway::start(&with(&backend, ""));
    get_with(gateway.addr(), "/", "").expect(200);
    let limits = "[limits.y]\nkey = \"consumer\"\nalgorithm = \"gcra\"\nrate = \"1000/s\"\n";
    let second = auth(&other, "").replace("auth.door", "auth.other");
    for (backend, more) in [
        (&backend, format!("limits = [\"y\"]\n{limits}")),
        (&backend, second.clone()),
        (&other, second.replace("30s", "20s")),
        (&backend, "name_is_new = true".to_owned()),
        (&backend, String::new()),
    ] {
        let is_faulty = more.contains("name_is_new");
        gateway.reload(&with(backend, &more), if is_faulty { "not reloaded" } else { "reloaded" });
        let asked = other.count();
        get_with(gateway.addr(), "/", "").expect(200);
        assert_eq!(door.count(), 1, "it is remembered: {more}");
        let is_forwarded_to_other = other.count() > asked;
        assert!(is_faulty || is_forwarded_to_other == (backend.addr() == other.addr()), "{more}");
    }
}
