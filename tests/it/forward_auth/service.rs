//! What the service is asked, what it answers, and what is remembered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Backend, Client, Gateway, Next, Recorded, Response, everything_to, get_with};

/// A service that admits the cookie `session=good`, and knows its user by the cookie.
fn door() -> Backend {
    Backend::start(|exchange| {
        let answer = match exchange.field("cookie").as_deref() {
            Some("session=good") => {
                "200 OK\r\nx-user: ann\r\nx-tier: pro\r\nx-role: admin\r\ncontent-length: 2\r\n\r\nok"
            }
            Some("session=mute") => "204 No Content\r\n\r\n",
            Some("session=moved") => {
                "302 Found\r\nlocation: https://login.example/?rd=%2F\r\nset-cookie: csrf=1; Path=/\r\n\
                 set-cookie: state=2\r\ncontent-length: 0\r\n\r\n"
            }
            Some("session=forbidden") => "403 Forbidden\r\nx-why: role\r\ncontent-length: 3\r\n\r\nno!",
            Some("session=broken") => "500 Oops\r\ncontent-length: 0\r\n\r\n",
            Some("session=chunked") => {
                "401 Unauthorized\r\ntransfer-encoding: chunked\r\nkeep-alive: timeout=5\r\n\r\n3\r\nwho\r\n0\r\n\r\n"
            }
            _ => {
                "401 Unauthorized\r\nwww-authenticate: Cookie\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nlogin"
            }
        };
        exchange.write(format!("HTTP/1.1 {answer}"));
        Next::KeepAlive
    })
}

fn auth(url: &str, rest: &str) -> String {
    format!(
        "[auth.door]\ntype = \"forward\"\nurl = \"{url}/check\"\nname = \"header:x-user\"\ntier = \"header:x-tier\"\n\
         headers = [\"x-role\"]\n{rest}\n"
    )
}

fn gateway(backend: &Backend, door: &Backend, rest: &str) -> Gateway {
    Gateway::start(&everything_to(backend, &format!("auth = \"door\"\n{}", auth(&door.url(), rest))))
}

fn ask(gateway: &Gateway, session: &str) -> Response {
    get_with(gateway.addr(), "/a?b=c", &format!("cookie: session={session}\r\n"))
}

#[test]
fn the_service_sees_the_request_and_its_2xx_lets_it_through() {
    let (backend, door) = (Backend::ok(), door());
    let gateway = gateway(&backend, &door, "");
    let mut client = Client::connect(gateway.addr());
    client.write(
        "POST /a%2Fb?c=%20d HTTP/1.1\r\nhost: shop.example:8080\r\ncookie: session=good\r\nx-role: root\r\n\
         x_role: root\r\nx-consumer: eve\r\nx-forwarded-uri: /harmless\r\nx-original-url: /harmless\r\n\
         x_forwarded_method: GET\r\nif-none-match: \"1\"\r\nrange: bytes=0-1\r\nx-own: 1\r\nconnection: x-own\r\n\
         user-agent: test\r\ncontent-length: 4\r\n\r\nbody",
    );
    client.read().expect(200);
    let asked = door.only();
    assert_eq!(asked.request_line(), "GET /check HTTP/1.1");
    let field = |name: &str| asked.header_all(name).join("|");
    assert_eq!(field("host"), door.addr().to_string());
    for (name, value) in [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example:8080"),
        ("x-forwarded-uri", "/a%2Fb?c=%20d"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-original-uri", "/a%2Fb?c=%20d"),
        ("x-original-method", "POST"),
        ("x-original-url", "http://shop.example:8080/a%2Fb?c=%20d"),
        ("cookie", "session=good"),
        ("user-agent", "test"),
        ("x-role", ""),
        ("x_role", ""),
        ("x-consumer", ""),
        ("x_forwarded_method", ""),
        ("if-none-match", ""),
        ("range", ""),
        ("x-own", ""),
        ("content-length", ""),
        ("connection", ""),
    ] {
        assert_eq!(field(name), value, "{name}");
    }
    let request = backend.only();
    assert_eq!(request.body, b"body");
    let field = |name: &str| request.header_all(name).join("|");
    assert_eq!((field("x-consumer"), field("x-consumer-tier")), ("ann".into(), "pro".into()));
    assert_eq!(
        (field("x-role"), field("x_role")),
        ("admin".into(), String::new()),
        "the client's own are dropped"
    );
    assert_eq!(field("cookie"), "session=good", "the application keeps its cookies");
    let log = gateway.access_log(1);
    assert_eq!((&log[0]["consumer"], &log[0]["tier"]), (&"ann".into(), &"pro".into()));
}

#[test]
fn any_other_answer_goes_to_the_client_as_it_is() {
    let (backend, door) = (Backend::ok(), door());
    let gateway = gateway(&backend, &door, "");
    let response = ask(&gateway, "moved").expect(302);
    assert_eq!(response.header("location"), Some("https://login.example/?rd=%2F"));
    assert_eq!(response.header_all("set-cookie"), ["csrf=1; Path=/", "state=2"]);
    let response = ask(&gateway, "forbidden").expect(403);
    assert_eq!((response.header("x-why"), response.text()), (Some("role"), "no!".into()));
    ask(&gateway, "broken").expect(500);
    let response = ask(&gateway, "chunked").expect(401);
    assert_eq!((response.text(), response.header("keep-alive")), ("who".into(), None));
    let response = get_with(gateway.addr(), "/", "").expect(401);
    assert_eq!(response.header_all("www-authenticate"), ["Cookie"]);
    assert_eq!((response.header("content-type"), response.text()), (Some("text/html"), "login".into()));
    let mut client = Client::connect(gateway.addr());
    client.write("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    client.read_for("HEAD").expect(401);
    client.write(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbodyGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    client.read().expect(401);
    client.read().expect(401);
    assert_eq!(backend.count(), 0);
    ask(&gateway, "mute").expect(200);
    assert_eq!(backend.only().header("x-consumer"), None, "nobody is named");
    let log = gateway.access_log(9);
    assert_eq!((&log[0]["error"], &log[0]["status"]), (&"forward_auth".into(), &302.into()));
    assert!(door.connections() <= 3, "they are kept: {}", door.connections());
}

#[test]
fn nothing_is_remembered_by_default_and_with_cache_only_equal_questions_are() {
    let (backend, service) = (Backend::ok(), door());
    let gateway_without = gateway(&backend, &service, "");
    ask(&gateway_without, "good").expect(200);
    ask(&gateway_without, "good").expect(200);
    assert_eq!(service.count(), 2);
    let service = door();
    let gateway = gateway(&backend, &service, "cache = \"1h\"\ncache_by = [\"x-org\"]");
    let send = |request_line: &str, fields: &str| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("{request_line} HTTP/1.1\r\n{fields}\r\n"));
        client.read_for(request_line.split(' ').next().unwrap_or_default()).status
    };
    const GOOD: &str = "host: a\r\ncookie: session=good\r\n";
    assert_eq!((send("GET /a?b", GOOD), service.count()), (200, 1));
    assert_eq!((send("GET /a?b", GOOD), service.count()), (200, 1));
    let other = [
        ("HEAD /a?b", GOOD.to_owned()),
        ("GET /a?", GOOD.to_owned()),
        ("GET /a", GOOD.to_owned()),
        ("GET /A?b", GOOD.to_owned()),
        ("GET /a?b", GOOD.replace("host: a", "host: b")),
        ("GET /a?b", format!("{GOOD}authorization: Bearer x\r\n")),
        ("GET /a?b", format!("{GOOD}x-org: 1\r\n")),
        ("GET /a?b", format!("{GOOD}x_org: 1\r\n")),
    ];
    for (number, (line, fields)) in (2..).zip(&other) {
        assert_eq!((send(line, fields), service.count()), (200, number), "{line} {fields}");
    }
    let count = service.count();
    for _ in 0..3 {
        send("GET /a?b", "host: a\r\ncookie: session=forbidden\r\n");
    }
    assert_eq!(service.count(), count + 3, "a refusal is not remembered");
    assert_eq!(send("GET /a?b", &format!("{GOOD}x-irrelevant: 1\r\n")), 200);
    assert_eq!(service.count(), count + 3);
    assert_eq!(backend.latest().header("x-role").as_deref(), Some("admin"), "also of a remembered answer");
}

#[test]
fn a_service_that_is_away_or_slow_is_an_error_and_one_that_talks_rubbish_never_admits() {
    let backend = Backend::ok();
    let (address, _socket) = Backend::refusing();
    let with = |url: &str, rest: &str| {
        Gateway::start(&everything_to(&backend, &format!("auth = \"door\"\n{}", auth(url, rest))))
    };
    let away = format!("http://{address}");
    let response = get_with(with(&away, "").addr(), "/", "").expect(503);
    assert_eq!(response.header("retry-after"), Some("1"));
    get_with(with(&away, "on_error = \"allow\"").addr(), "/", "x-role: root\r\n").expect(200);
    let request = backend.only();
    assert_eq!((request.header("x-consumer"), request.header("x-role")), (None, None));
    let slow = Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    });
    get_with(with(&slow.url(), "timeout = \"50ms\"").addr(), "/", "").expect(503);
    get_with(with(&slow.url(), "timeout = \"50ms\"\non_error = \"allow\"").addr(), "/", "").expect(200);
    for rubbish in
        ["SMTP ready\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "HTTP/1.1 101 Up\r\n\r\n"]
    {
        let broken = Backend::answering_once(rubbish);
        let gateway = with(&broken.url(), "on_error = \"allow\"\ntimeout = \"30s\"");
        get_with(gateway.addr(), "/", "").expect(503);
    }
    let long = format!("HTTP/1.1 200 OK\r\nx-user: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(257));
    get_with(with(&Backend::answering(long).url(), "").addr(), "/", "").expect(503);
    assert_eq!(backend.count(), 2);
}

#[test]
fn refused_credentials_are_charged_and_then_refused_without_the_service() {
    let (backend, door) = (Backend::ok(), door());
    let limit = "failures = \"wrong\"\ncache = \"1h\"\n[limits.wrong]\nalgorithm = \"fixed-window\"\n\
                 align = \"first-request\"\nkey = \"ip\"\nrate = \"3/day\"";
    let gateway = gateway(&backend, &door, limit);
    ask(&gateway, "good").expect(200);
    for _ in 0..5 {
        get_with(gateway.addr(), "/", "").expect(401);
    }
    ask(&gateway, "moved").expect(302);
    for number in 0..3 {
        ask(&gateway, &format!("guess-{number}")).expect(401);
    }
    let asked = door.count();
    for number in 3..9 {
        ask(&gateway, &format!("guess-{number}")).expect(429);
    }
    ask(&gateway, "mute").expect(429);
    assert_eq!(door.count(), asked, "the service is not asked any more");
    ask(&gateway, "good").expect(200);
    get_with(gateway.addr(), "/", "").expect(401);
}

/// The service closes its connections after each answer, and also while they are idle.
#[test]
fn a_connection_that_the_service_has_closed_is_no_failure() {
    let backend = Backend::ok();
    let answers = Arc::new(Mutex::new(0));
    let count = Arc::clone(&answers);
    let door = Backend::start(move |exchange| {
        *count.lock().expect("no panic inside") += 1;
        exchange.write("HTTP/1.1 200 OK\r\nx-user: ann\r\ncontent-length: 0\r\n\r\n");
        Next::Close
    });
    let gateway = gateway(&backend, &door, "");
    for _ in 0..20 {
        ask(&gateway, "good").expect(200);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(*answers.lock().expect("no panic inside"), 20);
    let requests: Vec<Recorded> = backend.requests();
    assert!(requests.iter().all(|request| request.header("x-consumer").as_deref() == Some("ann")));
}
