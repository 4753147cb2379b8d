//! What a copy is: the head that the backend gets, for the other upstream.

use super::{all_counted, file, post, wait_for, with_urls};
use crate::harness::{Backend, Client, Gateway, Recorded, eventually, get_with, send};

/// The lines of a head, without the one that marks a copy.
fn unmarked(copy: &Recorded) -> String {
    copy.head.replacen("x-tollgate-mirror: 1\r\n", "", 1)
}

#[test]
fn a_copy_has_every_header_of_the_request_and_a_mark() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(
        &api,
        &canary,
        "",
        "rewrite = \"/v2/{*}\"\nset_request_headers = { x-env = \"{request_id}\", x-client = \"{client}\" }\n\
         remove_request_headers = [\"x-debug\"]\n[server]\nvia = true\n",
    ));
    let fields = "x-forwarded-for: 6.6.6.6\r\nx-debug: 1\r\nx-odd:  a  b \r\ncookie: a=1; b=2\r\nAuthorization: Bearer t\r\n\
                  te: trailers\r\nconnection: x-hop, te\r\nx-hop: 1\r\naccept: */*\r\naccept: text/html\r\n";
    for (number, request) in [
        format!("GET /a%20b?q=%2F&r HTTP/1.1\r\nhost: Shop.Test:80\r\n{fields}\r\n"),
        format!(
            "PUT /c HTTP/1.1\r\nhost: test\r\n{fields}content-length: 5\r\nexpect: 100-continue\r\n\r\nhello"
        ),
        format!("OPTIONS /d HTTP/1.0\r\nhost: test\r\n{fields}\r\n"),
        format!("HEAD /e HTTP/1.1\r\nhost: test\r\n{fields}\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(gateway.addr());
        client.write(&request);
        let method = request.split(' ').next().expect("a method");
        client.read_for(method).expect(200);
        canary.wait_for(number + 1);
        let (original, copy) = (api.latest(), canary.latest());
        assert_eq!(unmarked(&copy), original.head);
        assert_eq!(copy.header("x-tollgate-mirror").as_deref(), Some("1"));
        eventually("the body", || (canary.latest().body == original.body).then_some(()));
    }
    wait_for(&gateway, "sent", 4);
}

#[test]
fn the_other_upstream_has_its_own_path_and_host() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&with_urls(
        (&api.url(), &format!("{}/next", canary.url())),
        ("", "strip_prefix = \"/shop\""),
        "host = \"canary.test\"",
    ));
    gateway.get("/shop/a?b=1").expect(200);
    canary.wait_for(1);
    let (original, copy) = (api.only(), canary.only());
    assert_eq!((original.target(), copy.target()), ("/a?b=1", "/next/a?b=1"));
    assert_eq!(original.header("host").as_deref(), Some("test"));
    assert_eq!(copy.header("host").as_deref(), Some("canary.test"));
    assert_eq!(copy.header("x-forwarded-host").as_deref(), Some("test"));
    assert_eq!(copy.header("x-request-id"), original.header("x-request-id"));
}

/// A backend may treat marked requests in another way, so that a client must not mark its own.
#[test]
fn no_client_marks_a_request_but_a_trusted_gateway_does() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let toml = file(&api, &canary, "", "");
    let gateway = Gateway::start(&toml);
    let marks = "X-Tollgate-Mirror: 1\r\nx_tollgate_mirror: 1\r\nx-tollgate_mirror: 1\r\n";
    get_with(gateway.addr(), "/", marks).expect(200);
    canary.wait_for(1);
    assert!(
        !api.only().head.to_lowercase().replace('_', "-").contains("x-tollgate-mirror"),
        "{}",
        api.only().head
    );
    assert_eq!(canary.only().header("x-tollgate-mirror").as_deref(), Some("1"));
    assert!(!canary.only().head.contains("x_tollgate"), "{}", canary.only().head);
    let trusting = Gateway::start(&format!("{toml}[server]\ntrusted_proxies = [\"127.0.0.1\"]\n"));
    get_with(trusting.addr(), "/", "x-tollgate-mirror: 1\r\n").expect(200);
    wait_for(&trusting, "skipped", 1);
    assert_eq!(api.latest().header("x-tollgate-mirror").as_deref(), Some("1"));
    assert_eq!(canary.count(), 1, "a copy is not copied again");
}

#[test]
fn each_admitted_request_is_copied_once_and_no_other() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(
        &api,
        &canary,
        "",
        "limits = [\"few\"]\ndeny = [\"127.0.0.9\"]\nmethods = [\"GET\", \"POST\"]\n\
         [limits.few]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"300/day\"\nalign = \"first-request\"\n",
    ));
    let mut client = Client::connect(gateway.addr());
    for number in 0..400 {
        let answer = match number % 2 {
            0 => client.get("/a", ""),
            _ => client.exchange(post("/a", "abc")),
        };
        assert_eq!(answer.status, if number < 300 { 200 } else { 429 });
    }
    send(gateway.addr(), "DELETE / HTTP/1.1\r\nhost: test\r\n\r\n").expect(404);
    let mut denied = Client::connect_from([127, 0, 0, 9].into(), gateway.addr());
    denied.get("/", "").expect(403);
    send(gateway.addr(), "GET /\u{1} HTTP/1.1\r\nhost: test\r\n\r\n").expect(400);
    wait_for(&gateway, "sent", 300);
    assert_eq!((api.count(), canary.count()), (300, 300));
    assert!(canary.connections() < 50, "{} connections for 300 copies", canary.connections());
}

/// Only the route's own upstream is asked again.
#[test]
fn a_retry_makes_no_further_copy() {
    let (bad, good, canary) =
        (Backend::answering("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"), Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&format!(
        "[upstreams.api]\nservers = [\"{}\", \"{}\"]\nretry = {{ attempts = 2, on = [\"503\"] }}\n[upstreams]\ncanary = \"{}\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n\
         mirror = {{ upstream = \"canary\" }}\n",
        bad.url(),
        good.url(),
        canary.url()
    ));
    for _ in 0..10 {
        gateway.get("/").expect(200);
        send(gateway.addr(), "PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nab").expect(200);
    }
    wait_for(&gateway, "sent", 20);
    assert_eq!((good.count(), canary.count()), (20, 20));
    assert!(bad.count() > 0);
}

#[test]
fn connections_that_are_bound_to_a_client_are_not_copied() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    get_with(gateway.addr(), "/", upgrade).expect(200);
    get_with(gateway.addr(), "/", "authorization: NTLM abc\r\n").expect(200);
    wait_for(&gateway, "skipped", 2);
    assert_eq!((api.count(), canary.count()), (2, 0));
}

#[test]
fn a_route_by_a_service_copies_what_the_service_admits() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let service = Backend::start(|exchange| {
        let admitted = exchange.field("x-token").is_some();
        exchange.write(match admitted {
            true => "HTTP/1.1 200 OK\r\nx-user: ann\r\ncontent-length: 0\r\n\r\n",
            false => "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n",
        });
        crate::harness::Next::KeepAlive
    });
    let gateway = Gateway::start(&file(
        &api,
        &canary,
        "",
        &format!(
            "auth = \"who\"\n[auth.who]\ntype = \"forward\"\nurl = \"{}/check\"\nheaders = [\"x-user\"]\n",
            service.url()
        ),
    ));
    gateway.get("/").expect(401);
    get_with(gateway.addr(), "/", "x-token: 1\r\nx-user: eve\r\n").expect(200);
    wait_for(&gateway, "sent", 1);
    assert_eq!(unmarked(&canary.only()), api.only().head);
    assert_eq!(canary.only().header("x-user").as_deref(), Some("ann"));
}

/// The mirror leads back to the gateway: three passes, and no more.
#[test]
fn a_loop_ends() {
    let api = Backend::ok();
    let one = crate::harness::free_address();
    let two = crate::harness::free_address();
    let mirroring = Gateway::start(&format!(
        "[server]\nlisten = [\"{one}\"]\n{}",
        with_urls((&api.url(), &format!("http://{two}")), ("", ""), "")
    ));
    let _back = Gateway::start(&format!(
        "[server]\nlisten = [\"{two}\"]\n[upstreams]\none = \"http://{one}\"\n[[routes]]\npath = \"/*\"\nupstream = \"one\"\n"
    ));
    mirroring.get("/").expect(200);
    eventually("the last copy is answered", || (all_counted(&mirroring) >= 3.0).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!((api.count(), all_counted(&mirroring)), (3, 3.0));
}
