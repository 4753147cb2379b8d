//! Bodies in every spelling, in parts, and those that cannot be read.

use std::fmt::Write as _;

use http::Request;

use crate::harness::config::parse;
use crate::harness::{AllVersions, Backend, Body, Client, Gateway, Next, Response, everything_to, get_with};

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn gateway(backend: &Backend, key: &str, rest: &str) -> AllVersions {
    AllVersions::start(&everything_to(
        backend,
        &format!(
            "limits = [\"account\"]\n[limits.account]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\n\
             key = \"{key}\"\nrate = \"2/day\"\nmissing = \"skip\"\n{rest}\n[admin]\nlisten = \"127.0.0.1:0\"\n"
        ),
    ))
}

fn post(gateway: &Gateway, fields: &str, body: impl AsRef<[u8]>) -> Response {
    let body = body.as_ref();
    let mut client = Client::connect(gateway.addr());
    client
        .write(format!("POST /login HTTP/1.1\r\nhost: a\r\n{fields}content-length: {}\r\n\r\n", body.len()));
    client.write(body);
    client.read()
}

/// Uses up the allowance of `bob`, then sends each of these, which must not get past it.
fn each_counts_as_bob(key: &str, fields: &str, good: &str, spellings: &[&str]) {
    let backend = Backend::ok();
    let gateway = gateway(&backend, key, "fold = \"lower\"");
    for _ in 0..2 {
        post(&gateway, fields, good).expect(200);
        assert_eq!(backend.latest().body, good.as_bytes(), "the body arrives unchanged");
    }
    post(&gateway, fields, good).expect(429);
    let before = backend.count();
    for body in spellings {
        let response = post(&gateway, fields, body);
        assert!(matches!(response.status, 400 | 429), "{body}: {}", response.status);
    }
    assert_eq!(backend.count(), before, "none reaches the backend");
    post(&gateway, fields, good.replace("bob", "ann").replace("12", "13")).expect(200);
}

#[test]
fn no_spelling_of_a_form_gets_past_the_limit() {
    let spellings = [
        "username=bob&password=2",
        "username=BOB",
        "username=b%6fb",
        "%75sername=bob",
        "Username=bob",
        "username=bob&username=bob",
        "username=bob&username=eve",
        "username=eve&username=bob",
        "username=eve;username=bob",
        "x=1;username=bob",
        "username[]=bob",
        "username%5b0%5d=bob",
        "+username=bob",
        "%20username=bob",
        "username%00x=bob",
        "x=1&&username=bob&",
        "username=bob+",
        "username=%20bob%09",
        "username=bob%00",
        "username=%EF%BD%82%EF%BD%8F%EF%BD%82",
        "username=%EF%BC%A2ob%C2%A0%00",
    ];
    each_counts_as_bob("form:username", FORM, "username=bob&password=1", &spellings);
}

#[test]
fn no_spelling_of_a_json_document_gets_past_the_limit() {
    let spellings = [
        r#"{"user":{"name":"bob","password":"2"}}"#,
        r#"{"user":{"name":"\u0062ob"}}"#,
        r#"{"us\u0065r":{"name":"BOB"}}"#,
        r#"{"user":{"name":" bob\u0000"}}"#,
        r#"{"user":{"name":"\uff42ob\u00a0"}}"#,
        r#"{"user":{"NAME":"bob"}}"#,
        r#"{"User":{"name":"bob"}}"#,
        r#"{"user":{"name":"eve","name":"bob"}}"#,
        r#"{"user":{"name":"bob","name":"eve"}}"#,
        r#"{"user":{"name":"eve"},"user":{"name":"bob"}}"#,
        r#"{"user":{"name":["bob"]}}"#,
        r#"{"user":{"name":{"$eq":"bob"}}}"#,
        r#"{"user":{"name":"bob"}} {"user":{"name":"eve"}}"#,
        r#"{"user":{"name":"bob"}"#,
        r#"{"user":{"name":"bob"},}"#,
        "\u{feff}{\"user\":{\"name\":\"bob\"}}",
        " \n{\"user\" : {\"x\":[1,2,{}], \"name\":\t\"bob\"}}\n",
    ];
    each_counts_as_bob("json:/user/name", JSON, r#"{"user":{"name":"bob","password":"1"}}"#, &spellings);
}

#[test]
fn one_number_is_one_key_however_it_is_written() {
    each_counts_as_bob(
        "json:/id",
        JSON,
        r#"{"id":12,"name":"bob"}"#,
        &[r#"{"id":12.0}"#, r#"{"id":1.2e1}"#, r#"{"id":"12"}"#, r#"{"id":120e-1}"#],
    );
}

#[test]
fn a_body_that_cannot_be_read_is_refused_with_its_reason() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "form:username", "");
    let big = format!("x={}&username=bob", "x".repeat(64 << 10));
    post(&gateway, FORM, &big).expect(413);
    let chunked = {
        let mut client = Client::connect(gateway.addr());
        let mut request = format!("POST / HTTP/1.1\r\nhost: a\r\n{FORM}transfer-encoding: chunked\r\n\r\n");
        for part in big.as_bytes().chunks(1000) {
            let _ = write!(request, "{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part));
        }
        client.write(request + "0\r\n\r\n");
        client.read()
    };
    chunked.expect(413);
    for fields in [
        "",
        "content-type: multipart/form-data; boundary=x\r\n",
        "content-type: text/plain\r\n",
        JSON,
        &format!("{FORM}content-encoding: gzip\r\n"),
        &format!("{FORM}content-encoding: identity, gzip\r\n"),
        &format!("{FORM}{JSON}"),
        "content-type: application/x-www-form-urlencoded; charset=ibm037\r\n",
        "content-type: application/x-www-form-urlencoded, application/json\r\n",
    ] {
        let response = post(&gateway, fields, "username=bob").expect(415);
        assert!(response.json()["detail"].as_str().is_some_and(|detail| detail.contains("forms or JSON")));
    }
    assert_eq!(backend.count(), 0);
    let log = gateway.access_log(11);
    assert_eq!(log[0]["error"], "body_too_large");
    assert_eq!(log[2]["error"], "unreadable_body");
    // The body of these is readable, and lacks the field.
    get_with(gateway.addr(), "/", "").expect(200);
    post(&gateway, FORM, "password=1").expect(200);
    post(&gateway, "content-type: application/x-www-form-urlencoded; charset=UTF-8\r\n", "username=x")
        .expect(200);
}

#[test]
fn unreadable_bodies_pass_whole_where_they_count_as_missing() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "json:/user", "unreadable = \"missing\"");
    let big = format!("{{\"user\":\"{}\"}}", "x".repeat(200_000));
    for body in ["{", "user=bob", &big] {
        post(&gateway, JSON, body).expect(200);
        assert_eq!(backend.latest().body, body.as_bytes());
        let mut client = Client::connect(gateway.addr());
        let mut request = format!("POST / HTTP/1.1\r\nhost: a\r\n{JSON}transfer-encoding: chunked\r\n\r\n");
        for part in body.as_bytes().chunks(7777) {
            let _ = write!(request, "{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part));
        }
        client.write(request + "0\r\n\r\n");
        client.read().expect(200);
        assert_eq!(backend.latest().body, body.as_bytes());
    }
}

#[test]
fn a_body_is_asked_for_read_in_parts_and_forwarded_whole() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "form:username", "");
    let mut client = Client::connect(gateway.addr());
    let body = "username=bob&password=1";
    client.write(format!(
        "POST / HTTP/1.1\r\nhost: a\r\n{FORM}expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    assert_eq!(client.read_head().expect("an interim response").status, 100);
    let (first, second) = body.split_at(5);
    client.write(first);
    // The next request follows in the same piece.
    client.write(format!("{second}GET /next HTTP/1.1\r\nhost: a\r\n\r\n"));
    client.read().expect(200);
    client.read().expect(200);
    let request = format!(
        "POST / HTTP/1.1\r\nhost: a\r\n{FORM}trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
         8;a=b\r\nusername\r\n1\r\n=\r\n3\r\nbob\r\n0\r\nx-sum: 7\r\n\r\n"
    );
    // Cut at every byte: the account has one request left, and the gateway one connection for each cut.
    let mut statuses = Vec::new();
    for cut in (1..request.len()).step_by(7) {
        let mut client = Client::connect(gateway.addr());
        client.write(&request[..cut]);
        std::thread::yield_now();
        client.write(&request[cut..]);
        statuses.push(client.read().status);
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses[1..].iter().all(|status| *status == 429), "{statuses:?}");
    assert_eq!(backend.latest().body, b"username=bob");
}

/// Each body has the size of a stream's window, or is a little larger.
#[test]
fn http2_streams_are_read_to_their_end() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "form:username", "");
    let text = |user, length: usize| format!("username={user}&x={}", "x".repeat(length - 15));
    for (client, user) in gateway.clients().iter().zip(["bob", "eve"]) {
        for (length, sized, status) in [
            (20, true, 200),
            (64 << 10, false, 200),
            (64 << 10, true, 429),
            ((64 << 10) + 1, false, 413),
            ((64 << 10) + 1, true, 413),
        ] {
            let body = text(user, length);
            let request =
                Request::post("http://a/").header("content-type", "application/x-www-form-urlencoded");
            let request = if sized { request.header("content-length", body.len()) } else { request };
            let request = request.body(()).expect("a request");
            let answer = client
                .exchange(request, Body { bytes: body.clone().into_bytes(), trailers: None })
                .expect("an answer");
            assert_eq!(answer.status, status, "{length}, {sized}");
            if status == 200 {
                assert_eq!(backend.latest().body, body.as_bytes());
            }
        }
    }
}

#[test]
fn a_client_that_leaves_within_its_body_is_not_counted() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "form:username", "");
    for _ in 0..5 {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("POST / HTTP/1.1\r\nhost: a\r\n{FORM}content-length: 100\r\n\r\nusername=bob"));
        client.finish();
        client.read().expect(400);
    }
    post(&gateway, FORM, "username=bob").expect(200);
    let broken = format!(
        "POST / HTTP/1.1\r\nhost: a\r\n{FORM}transfer-encoding: chunked\r\n\r\nZZ\r\nusername=bob\r\n0\r\n\r\n"
    );
    let mut client = Client::connect(gateway.addr());
    client.write(broken);
    client.read().expect(400);
    assert_eq!(backend.count(), 1);
}

/// The story of docs/passwords.md, "Protecting a log-in".
#[test]
fn the_sixth_attempt_on_an_account_is_refused_from_whichever_address_it_comes() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\ntrusted_proxies = [\"127.0.0.1\"]\nclient_ip = \"x-forwarded-for\"\n\
         [upstreams]\nservice = \"{}\"\n\
         [limits.address]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"20/day\"\n\
         [limits.account]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"form:username\"\n\
         rate = \"5/day\"\nmissing = \"deny\"\nfold = \"lower\"\n\
         [[routes]]\npath = \"/login\"\nmethods = [\"POST\"]\nupstream = \"service\"\nlimits = [\"address\", \"account\"]\n",
        backend.url()
    ));
    let attempt = |client: &mut Client, address: u32, account: &str| {
        let body = format!("username={account}&password=guess-{address}");
        client.write(format!(
            "POST /login HTTP/1.1\r\nhost: a\r\n{FORM}x-forwarded-for: 198.51.{}.{}\r\ncontent-length: {}\r\n\r\n{body}",
            address / 250,
            address % 250,
            body.len()
        ));
        client.read().status
    };
    let admitted: usize = std::thread::scope(|scope| {
        let run = |worker: u32| {
            let (gateway, attempt) = (&gateway, &attempt);
            scope.spawn(move || {
                let mut client = Client::connect(gateway.addr());
                let names = ["bob", "BOB", "b%6Fb", "Bob"];
                let try_one = |address: u32| attempt(&mut client, address, names[address as usize % 4]);
                (worker * 250..(worker + 1) * 250).map(try_one).filter(|status| *status == 200).count()
            })
        };
        let workers: Vec<_> = (0..4).map(run).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert_eq!(admitted, 5);
    let mut client = Client::connect(gateway.addr());
    assert_eq!(attempt(&mut client, 1, "ann"), 200);
    assert_eq!(attempt(&mut client, 2, ""), 429, "without a name");
    assert_eq!(attempt(&mut client, 2, "+%00"), 429, "blanks are no name");
}

/// A prompt may be larger than 64 KiB. A byte above the bound is too much, by any version and either framing.
#[test]
fn a_route_may_read_larger_bodies() {
    let backend = Backend::start(|exchange| {
        let length = exchange.read_body().len();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-length: {length}\r\n\r\n"));
        Next::KeepAlive
    });
    let toml = everything_to(
        &backend,
        "max_key_body = \"256KiB\"\nlimits = [\"account\"]\n[limits.account]\nalgorithm = \"fixed-window\"\n\
         key = \"json:/user\"\nrate = \"2/day\"\nmissing = \"deny\"\n",
    );
    let gateway = AllVersions::start(&toml);
    let body = |length: usize, user: &str| {
        let rest = format!("\",\"user\":\"{user}\"}}");
        let start = "{\"prompt\":\"";
        format!("{start}{}{rest}", "x".repeat(length - start.len() - rest.len()))
    };
    let max = 256 << 10;
    for (length, user, status) in [
        (200_000, "ann", 200),
        (max, "ann", 200),
        (100_000, "ann", 429),
        (max + 1, "bob", 413),
        (max, "bob", 200),
    ] {
        let response = post(&gateway, JSON, body(length, user)).expect(status);
        if status == 200 {
            assert_eq!(response.header("x-length"), Some(&*length.to_string()), "it arrives whole");
        }
    }
    for (client, user) in gateway.clients().iter().zip(["eve", "joe"]) {
        for (length, status) in [(max, 200), (max + 1, 413), (90_000, 200), (90_000, 429)] {
            let request = Request::post("http://a/").header("content-type", "application/json");
            let request = request.body(()).expect("a request");
            let body = Body { bytes: body(length, user).into_bytes(), trailers: None };
            let answer = client.exchange(request, body).expect("an answer");
            assert_eq!(answer.status, status, "{length} {user}");
        }
    }
}

#[test]
fn the_bound_of_bodies_is_checked() {
    let check = |lines: &str| parse(format!("[upstreams]\na = \"builtin:echo\"\n{lines}"));
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"a\"\nlimits = [\"l\"]\nmax_key_body = \"4MiB\"\n\
        [limits.l]\nalgorithm = \"gcra\"\nkey = \"json:/user\"\nrate = \"1/s\"\n";
    assert!(check(route).is_ok());
    let told = check(&route.replace("4MiB", "5MiB")).expect_err("over a sixteenth of 64 MiB").to_string();
    assert!(told.contains("`max_key_body` is more than a sixteenth of `max_buffered`, 4MiB"), "{told}");
    assert!(check(&format!("[server]\nmax_buffered = \"80MiB\"\n{}", route.replace("4MiB", "5MiB"))).is_ok());
}
