//! The service is protected: from banned clients, from too many questions at once, and from repetitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{auth, guarded};
use crate::harness::api::good;
use crate::harness::{
    AllVersions, Backend, Client, Gateway, Next, Unanswered, eventually, everything_to, get_with, h2_get,
};

/// A service that redirects to its log-in page whoever has no good session.
fn redirecting() -> Backend {
    Backend::start(|exchange| {
        let is_good = exchange.field("cookie").is_some_and(|cookie| cookie.contains("session=good"));
        let status = exchange.field("x-status").unwrap_or_else(|| "302 Found".to_owned());
        let status = if is_good { "200 OK".to_owned() } else { status };
        exchange.write(format!("HTTP/1.1 {status}\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

#[test]
fn a_client_that_is_banned_causes_no_question() {
    let (backend, door) = (Backend::ok(), redirecting());
    let limit = "[limits.api]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1000/s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!("auth = \"door\"\nlimits = [\"api\"]\n{}{limit}", auth(&door, "")),
    ));
    get_with(gateway.addr(), "/", "cookie: session=good\r\n").expect(200);
    good(&gateway, "POST limits/api/keys/127.0.0.1/ban", "{\"for\": \"1h\"}");
    for fields in ["", "cookie: session=good\r\n", "cookie: session=bad\r\n"] {
        let response = get_with(gateway.addr(), "/", fields).expect(429);
        assert!(response.banned_for().is_some(), "{}", response.text());
    }
    assert_eq!(door.count(), 1);
    good(&gateway, "DELETE limits/api/keys/127.0.0.1/ban", "");
    get_with(gateway.addr(), "/", "").expect(302);
}

#[test]
fn more_questions_at_once_than_the_file_says_are_refused_and_never_admitted() {
    let backend = Backend::ok();
    let door = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = guarded(&backend, &door, "max_in_flight = 2\non_error = \"allow\"");
    let ask = || {
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        client
    };
    let mut waiting = [ask(), ask()];
    door.wait_for(2);
    for _ in 0..5 {
        let response = get_with(gateway.addr(), "/", "").expect(503);
        assert_eq!(response.header("retry-after"), Some("1"));
    }
    assert_eq!((door.count(), backend.count()), (2, 0));
    door.open_gate();
    waiting.iter_mut().for_each(|client| drop(client.read().expect(200)));
    get_with(gateway.addr(), "/", "").expect(200);
}

/// A question whose client has left is cancelled: its place is free, and the service sees its connection closed.
#[test]
fn the_questions_of_a_client_that_has_left_hold_no_place() {
    let (backend, closed) = (Backend::ok(), Arc::new(AtomicUsize::new(0)));
    let ended = Arc::clone(&closed);
    let door = Backend::start(move |exchange| {
        if exchange.read_some().is_empty() {
            ended.fetch_add(1, Ordering::SeqCst);
        }
        Next::Close
    });
    let gateway = AllVersions::start(&everything_to(
        &backend,
        &format!("auth = \"door\"\n{}", auth(&door, "max_in_flight = 4")),
    ));
    let frees_places = |leavers: usize, leave: &dyn Fn()| {
        let before = closed.load(Ordering::SeqCst);
        get_with(gateway.addr(), "/full", "").expect(503);
        leave();
        eventually("the questions to end", || {
            (closed.load(Ordering::SeqCst) == before + leavers).then_some(())
        });
    };
    let mut asked = 0;
    // HTTP/1.1: the connection is closed, or reset.
    for leave in [drop as fn(Client), Client::reset] {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = Client::connect(gateway.addr());
                client.write("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n");
                client
            })
            .collect();
        asked += 4;
        door.wait_for(asked);
        let clients = std::cell::RefCell::new(clients);
        frees_places(4, &|| clients.take().into_iter().for_each(leave));
    }
    // Streams are reset.
    for client in gateway.clients() {
        let streams: Vec<_> = (0..4).map(|_| client.begin(h2_get("/slow"), b"")).collect();
        asked += 4;
        door.wait_for(asked);
        let streams = std::cell::RefCell::new(streams);
        frees_places(4, &|| streams.take().into_iter().for_each(Unanswered::cancel));
    }
    // The whole connection ends.
    for client in gateway.clients() {
        let streams: Vec<_> = (0..4).map(|_| client.begin(h2_get("/slow"), b"")).collect();
        asked += 4;
        door.wait_for(asked);
        let held = std::cell::RefCell::new(Some((client, streams)));
        frees_places(4, &|| held.take().into_iter().for_each(|(client, _)| client.close()));
    }
    let lines = gateway.access_log(asked + asked / 4);
    let left = lines.iter().filter(|line| line["error"] == "client_gone" && line["status"] == 499);
    assert_eq!((left.count(), backend.count()), (asked, 0));
}

/// A client that leaves, or a service that is too slow, holds no place.
#[test]
fn places_of_questions_are_given_back() {
    let backend = Backend::ok();
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let door = Backend::start(move |exchange| {
        if asked.fetch_add(1, Ordering::SeqCst) < 4 {
            exchange.hang();
            return Next::Close;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!(
            "auth = \"door\"\n[auth.door]\ntype = \"forward\"\nurl = \"{}/\"\ntimeout = \"50ms\"\nmax_in_flight = 1\n",
            door.url()
        ),
    ));
    eventually("an answer", || (get_with(gateway.addr(), "/", "").status == 200).then_some(()));
    assert!(count.load(Ordering::SeqCst) >= 5);
}

const WRONG: &str = "failures = \"wrong\"\n[limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\n\
                     key = \"ip\"\nrate = \"3/day\"";

#[test]
fn redirects_count_as_failures_once_for_each_credential_that_the_file_names() {
    let (backend, door) = (Backend::ok(), redirecting());
    let gateway = guarded(&backend, &door, &format!("credential_cookies = [\"session\"]\n{WRONG}"));
    for fields in ["", "cookie: theme=dark\r\n", "cookie: xsession=1\r\n"] {
        (0..4).for_each(|_| drop(get_with(gateway.addr(), "/", fields).expect(302)));
    }
    // A page with an old cookie loads its parts.
    for theme in 0..9 {
        get_with(gateway.addr(), "/part", &format!("cookie: theme={theme}; session=old\r\n")).expect(302);
    }
    for status in ["404 Not Found", "429 Too Many Requests", "500 Oops", "503 Away"] {
        let fields = format!("cookie: session={}\r\nx-status: {status}\r\n", &status[..3]);
        let expected = status[..3].parse().expect("a number");
        (0..4).for_each(|_| drop(get_with(gateway.addr(), "/", &fields).expect(expected)));
    }
    get_with(gateway.addr(), "/", "authorization: Bearer a\r\n").expect(302);
    get_with(gateway.addr(), "/", "cookie: session=b\r\nx-status: 307 Temporary\r\n").expect(307);
    let asked = door.count();
    get_with(gateway.addr(), "/", "cookie: session=c\r\n").expect(429);
    get_with(gateway.addr(), "/", "cookie: session=d\r\n").expect(429);
    assert!(door.count() <= asked + 1, "the service is not asked any more");
    get_with(gateway.addr(), "/", "").expect(302);
    get_with(gateway.addr(), "/", "cookie: theme=dark\r\n").expect(302);
}

/// Whether or not a limit would bound wrong ones.
#[test]
fn an_answer_that_refuses_no_credential_counts_as_none() {
    let (backend, door) = (Backend::ok(), redirecting());
    let gateway = guarded(&backend, &door, &format!("{WRONG}\n[admin]\nlisten = \"127.0.0.1:0\""));
    for status in ["404 Not Found", "503 Away"] {
        let fields = format!("authorization: Bearer a\r\nx-status: {status}\r\n");
        get_with(gateway.addr(), "/", &fields).expect(status[..3].parse().expect("a number"));
    }
    let invalid = gateway.metric("tollgate_auth_total", &["result=\"invalid\""]);
    assert!(invalid.abs() < 0.5, "{invalid}");
    get_with(gateway.addr(), "/", "authorization: Bearer a\r\nx-status: 401 No\r\n").expect(401);
    let invalid = gateway.metric("tollgate_auth_total", &["result=\"invalid\""]);
    assert!((invalid - 1.0).abs() < 0.5, "{invalid}");
}

#[test]
fn a_401_counts_for_the_cookies_that_the_file_names_alone() {
    let (backend, door) = (Backend::ok(), redirecting());
    let gateway = guarded(&backend, &door, &format!("credential_cookies = [\"session\"]\n{WRONG}"));
    let ask = |cookie: &str, status: &str| {
        get_with(gateway.addr(), "/", &format!("cookie: {cookie}\r\nx-status: {status}\r\n")).status
    };
    (0..6).for_each(|_| assert_eq!(ask("theme=dark", "401 Unauthorized"), 401));
    assert_eq!(ask("session=a", "401 Unauthorized"), 401);
    assert_eq!(ask("session=a", "403 Forbidden"), 403);
    assert_eq!(ask("session=a", "401 Unauthorized"), 401, "each time");
    assert_eq!(ask("session=a", "401 Unauthorized"), 429);
}

/// The service answers each connection once, keeps it open, and closes it on the second question.
#[test]
fn a_question_is_repeated_once_at_most() {
    let backend = Backend::ok();
    let door = Backend::start(|exchange| {
        if exchange.earlier > 0 || exchange.field("x-close").is_some() {
            return Next::Close;
        }
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = guarded(&backend, &door, "");
    // Each on a connection of its own, which is kept.
    let mut clients: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::connect(gateway.addr());
            client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
            client
        })
        .collect();
    door.wait_for(8);
    door.open_gate();
    clients.iter_mut().for_each(|client| drop(client.read().expect(200)));
    assert_eq!((door.count(), door.connections()), (8, 8));
    get_with(gateway.addr(), "/", "").expect(200);
    assert_eq!((door.count(), door.connections()), (10, 9), "once more, on a new connection");
    get_with(gateway.addr(), "/", "x-close: 1\r\n").expect(503);
    assert_eq!((door.count(), door.connections()), (12, 10), "and no more than that");
}
