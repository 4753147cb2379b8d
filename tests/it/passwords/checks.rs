//! Good, wrong, changed and floods of passwords.

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Folder, basic, line};
use crate::harness::{Backend, Client, Gateway, Response, binary, get_with};

const CHALLENGE: &str = "Basic realm=\"people\", charset=\"UTF-8\"";

fn ask(gateway: &Gateway, credential: &str) -> Response {
    get_with(gateway.addr(), "/", &basic(credential))
}

#[test]
fn a_password_names_a_consumer_whom_the_backend_is_told_of() {
    let folder =
        Folder::new(&format!("# people\n{}{}", line("ann", "se:cret", 4), line("Bl\u{fc}te", "x", 4)));
    let backend = Backend::ok();
    let gateway = folder.gateway(&backend, "");
    ask(&gateway, "ann:se:cret").expect(200);
    let request = backend.latest();
    assert_eq!(request.header("x-consumer").as_deref(), Some("ann"));
    assert_eq!(request.header("authorization"), None, "the backend does not see the password");
    ask(&gateway, "Bl\u{fc}te:x").expect(200);
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("Bl%C3%BCte"));
    let before = backend.count();
    for wrong in ["ann:secret", "ann:", "ann", "bob:se:cret", ":", "", "ANN:se:cret", "ann:se:cret\0"] {
        let response = ask(&gateway, wrong).expect(401);
        assert_eq!(response.header("www-authenticate"), Some(CHALLENGE), "{wrong:?}");
        assert!(!response.text().contains("ann"), "{}", response.text());
    }
    let raw = |value: &str| get_with(gateway.addr(), "/", &format!("authorization: {value}\r\n"));
    for value in
        ["Basic", "Basic !!!", "basic YW5uOnNlOmNyZXQ=x", "Bearer YW5uOnNlOmNyZXQ=", "Basic\u{a0}YW5u"]
    {
        raw(value).expect(401);
    }
    raw("bAsIc   YW5uOnNlOmNyZXQ=").expect(200);
    raw("Basic YW5uOnNlOmNyZXQ").expect(200);
    get_with(gateway.addr(), "/", "").expect(401);
    let twice = format!("{}{}", basic("ann:se:cret"), basic("ann:other"));
    get_with(gateway.addr(), "/", &twice).expect(400);
    assert_eq!(backend.count(), before + 2);
    let log = gateway.access_log(18);
    assert_eq!(log[0]["consumer"], "ann");
    let text = format!("{log:?}{}", gateway.stderr());
    assert!(!text.contains("se:cret") && !text.contains("YW5u") && !text.contains("$2y$"), "{text}");
}

#[test]
fn exactly_as_many_wrong_passwords_are_checked_as_failures_allows() {
    let folder = Folder::new(&format!("{}{}", line("ann", "good", 4), line("bob", "good", 4)));
    let backend = Backend::ok();
    let limit = "failures = \"wrong\"\n[limits.wrong]\nalgorithm = \"fixed-window\"\n\
                 align = \"first-request\"\nkey = \"ip\"\nrate = \"5/day\"\n\
                 [admin]\nlisten = \"127.0.0.1:0\"";
    let gateway = folder.gateway(&backend, limit);
    ask(&gateway, "ann:good").expect(200);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let wrong = |number| format!("ann:wrong-{number}");
        let ask = |number| {
            let gateway = &gateway;
            scope.spawn(move || ask(gateway, &wrong(number)).status)
        };
        let running: Vec<_> = (0..40).map(ask).collect();
        running.into_iter().map(|asked| asked.join().expect("no panic")).collect()
    });
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(401), count(429)), (5, 35), "{statuses:?}");
    let retry = ask(&gateway, "ann:wrong").expect(429);
    assert!(retry.header("retry-after").is_some());
    ask(&gateway, "ann:good").expect(200);
    ask(&gateway, "bob:good").expect(429);
    assert_eq!(gateway.metric("tollgate_auth_total", &["auth=\"people\"", "result=\"limited\""]), 37.0);
    assert_eq!(gateway.metric("tollgate_auth_total", &["auth=\"people\"", "result=\"invalid\""]), 5.0);
}

/// The queue is bounded, and good passwords that are remembered do not wait in it.
#[test]
fn a_flood_of_wrong_passwords_does_not_slow_a_good_one_that_is_known() {
    let folder = Folder::new(&line("ann", "good", 10));
    let backend = Backend::ok();
    let gateway = folder.gateway(&backend, "");
    ask(&gateway, "ann:good").expect(200);
    // Far more than any number of threads takes at once.
    let mut flood: Vec<Client> = (0..600)
        .map(|number| {
            let mut client = Client::connect(gateway.addr());
            client.write(format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", basic(format!("ann:{number}"))));
            client
        })
        .collect();
    let begin = Instant::now();
    for _ in 0..100 {
        ask(&gateway, "ann:good").expect(200);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let refused = flood.pop().expect("a client").read().expect(503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["detail"], "the credential cannot be verified at the moment");
}

/// Many requests come with one password just when it is not remembered: they wait for one check.
#[test]
fn requests_with_one_password_wait_for_a_single_check() {
    let folder = Folder::new(&line("ann", "good", 10));
    let backend = Backend::ok();
    let gateway = folder.gateway(&backend, "");
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(gateway.addr())).collect();
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", basic("ann:good"));
    clients.iter_mut().for_each(|client| client.write(&request));
    for client in &mut clients {
        client.read().expect(200);
    }
}

#[test]
fn a_changed_file_counts_from_the_reload_on() {
    let folder = Folder::new(&format!("{}{}", line("ann", "old", 4), line("bob", "x", 4)));
    let backend = Backend::ok();
    let gateway = folder.gateway(&backend, "");
    ask(&gateway, "ann:old").expect(200);
    folder.write(&line("ann", "new", 4));
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("reload");
    ask(&gateway, "ann:old").expect(401);
    ask(&gateway, "bob:x").expect(401);
    ask(&gateway, "ann:new").expect(200);
}

#[test]
fn faults_name_the_line_and_show_nothing_of_it() {
    let folder =
        Folder::new(&format!("{}bob:{{SHA}}secret\ncarl\n{}", line("ann", "x", 4), line("ann", "y", 4)));
    let toml = format!(
        "[upstreams]\na = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\nauth = \"people\"\n{}",
        folder.auth("")
    );
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("the file can be written");
    let check = || {
        let Output { status, stdout, stderr } = Command::new(binary())
            .arg("check")
            .current_dir(folder.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary starts");
        (status.code(), format!("{}{}", String::from_utf8_lossy(&stderr), String::from_utf8_lossy(&stdout)))
    };
    let (status, text) = check();
    assert_ne!(status, Some(0));
    for words in [
        "users.htpasswd:2",
        "not of bcrypt or Argon2",
        "users.htpasswd:3",
        "is not `name:hash`",
        "users.htpasswd:4",
        "has an earlier line",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("secret") && !text.contains("$2y$"), "{text}");
    folder.write(&line("ann", "x", 4));
    let (status, text) = check();
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("passwords of 1 user"), "{text}");
}
