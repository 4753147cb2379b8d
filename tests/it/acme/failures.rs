//! Orders that fail, processes that are killed, disks that are full, and authorities that say anything.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::acme_server::{AcmeServer, Instead, Step};
use crate::harness::any_certificate::shown;
use crate::harness::api::api;
use crate::harness::{Backend, FakeClock, Gateway, binary, eventually};

use super::{Acme, files, tls, wait_until_issued};

const STEPS: [Step; 9] = [
    Step::Directory,
    Step::Nonce,
    Step::Account,
    Step::Order,
    Step::Authorization,
    Step::Challenge,
    Step::Poll,
    Step::Finalize,
    Step::Certificate,
];

/// Seconds until the next order, as the status has it.
fn seconds_to_next(gateway: &Gateway) -> f64 {
    let status = api(gateway, "status");
    status["certificates"][0]["next_attempt"].as_f64().expect("a moment")
        - status["time"].as_f64().expect("a time")
}

#[test]
fn a_failure_is_told_waits_and_is_remembered_by_the_next_process() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.validate(|_, name, _| Err(format!("no answer from {name}\u{1b}[31m\n")));
    let toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
    let gateway = Gateway::start(&toml);
    gateway.wait_for_log("certificate for a.example: order failed, 1 in a row, next at");
    let line = gateway.stderr_lines().into_iter().find(|line| line.contains("order failed")).expect("a line");
    assert!(
        line.contains("the authority rejects the order: `a.example`: no answer from a.example"),
        "{line}"
    );
    let left = seconds_to_next(&gateway);
    assert!((40.0..=75.0).contains(&left), "{left} s");
    let status = api(&gateway, "status");
    let error = status["certificates"][0]["last_error"].as_str().expect("an error");
    assert!(error.contains("no answer from a.example") && !error.contains('\u{1b}'), "{error}");
    assert_eq!(status["problems"][0]["kind"], "certificate");
    assert_eq!(status["problems"][0]["severity"], "bad");
    assert_eq!(gateway.metric("tollgate_acme_orders_total", &["result=\"failed\""]), 1.0);
    drop(gateway);
    server.validate(|_, _, _| Ok(()));
    let gateway = Gateway::start(&toml);
    gateway.get("/").expect(200);
    let left = seconds_to_next(&gateway);
    assert!((10.0..=75.0).contains(&left), "{left} s");
    assert_eq!(server.orders().len(), 1, "the authority is not asked again at once");
}

#[test]
fn a_clock_step_ends_the_wait_and_one_back_does_not_lengthen_it() {
    let Some(clock) = FakeClock::ahead_by(0) else { return };
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.refuse(Step::Order, 400, "malformed", "");
    server.refuse(Step::Order, 400, "malformed", "");
    let gateway = clock.gateway(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend), &[]);
    gateway.wait_for_log("order failed, 1 in a row");
    clock.step_to(-86_400);
    // Until the step is noticed, the next order moves along with the clock.
    let mut last = 0.0;
    eventually("a wait by the new clock", || {
        let next = api(&gateway, "status")["certificates"][0]["next_attempt"].as_f64().expect("a moment");
        let stands = next == last;
        last = next;
        stands.then_some(())
    });
    assert!(seconds_to_next(&gateway) <= 76.0);
    clock.step_to(-86_400 + 90);
    gateway.wait_for_log("order failed, 2 in a row");
    let left = seconds_to_next(&gateway);
    assert!((60.0..=150.0).contains(&left), "{left} s");
}

#[test]
fn the_authority_s_wish_to_wait_is_obeyed() {
    for (lines, least, most) in [
        ("retry-after: 7200\r\n", 7_100.0, 7_300.0),
        // Longer than a week, or nonsense.
        ("retry-after: 18446744073709551615\r\n", 600_000.0, 604_900.0),
        ("retry-after: soon\r\n", 40.0, 76.0),
    ] {
        let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
        server.refuse(Step::Order, 429, "rateLimited", lines);
        let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
        gateway.wait_for_log("refused by the test: rateLimited (rateLimited)");
        let left = seconds_to_next(&gateway);
        assert!((least..=most).contains(&left), "{lines}: {left} s");
    }
}

#[test]
fn bad_nonces_are_tried_again() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    for step in [Step::Account, Step::Order, Step::Order, Step::Finalize] {
        server.refuse(step, 400, "badNonce", "");
    }
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    wait_until_issued(&gateway, "a.example");
    assert!(!gateway.stderr().contains("order failed"));
}

#[test]
fn an_account_that_the_authority_does_not_know_is_replaced() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let Some(clock) = FakeClock::ahead_by(0) else { return };
    server.refuse(Step::Order, 400, "accountDoesNotExist", "");
    let gateway = clock.gateway(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend), &[]);
    gateway.wait_for_log("order failed, 1 in a row");
    clock.step_to(80);
    wait_until_issued(&gateway, "a.example");
    assert_eq!(server.accounts(), 2);
}

#[test]
fn a_damaged_account_is_moved_aside() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let acme = Acme::of(&server, folder.path(), &["a.example"]);
    drop(Gateway::start(&acme.toml(&backend)));
    let gateway = Gateway::start(&acme.toml(&backend));
    wait_until_issued(&gateway, "a.example");
    let state = folder.path().join("state");
    let account =
        eventually("the account", || files(&state).into_iter().find(|file| file.ends_with("account.json")));
    drop(gateway);
    let text = fs::read(&account).expect("the account");
    fs::write(&account, &text[..text.len() / 2]).expect("damaged");
    let other = ["b.example"];
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &other).toml(&backend));
    wait_until_issued(&gateway, "b.example");
    gateway.wait_for_log("cannot be used");
    assert_eq!(fs::read(account.with_file_name("account.damaged")).expect("kept"), text[..text.len() / 2]);
}

/// What an authority may send, whatever it means by it: the self-signed certificate stays, and the process goes on.
#[test]
fn an_authority_that_says_anything_harms_nothing() {
    let huge = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", 2 << 20, "x".repeat(2 << 20));
    let json = |body: &str| {
        format!("HTTP/1.1 200 OK\r\nreplay-nonce: bm9uY2U\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /directory\r\ncontent-length: 0\r\n\r\n".to_owned();
    let waits = "HTTP/1.1 200 OK\r\nretry-after: 99999999999999999999\r\nreplay-nonce: bm9uY2U\r\ncontent-length: 2\r\n\r\n{}";
    let mut answers = vec![
        (Step::Poll, waits.to_owned()),
        (Step::Directory, json(r#"{"newNonce":"not a url","newAccount":"x","newOrder":"x"}"#)),
    ];
    for step in [
        Step::Directory,
        Step::Account,
        Step::Order,
        Step::Authorization,
        Step::Poll,
        Step::Finalize,
        Step::Certificate,
    ] {
        let bodies = [
            "",
            "[]",
            "{}",
            "null",
            "{\"status\":7}",
            "\u{0}",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        ];
        answers.extend(bodies.iter().map(|body| (step, json(body))));
        answers.extend(
            [huge.clone(), redirect.clone(), "nonsense\r\n\r\n".to_owned(), String::new()]
                .map(|text| (step, text)),
        );
        answers.push((step, "HTTP/1.1 500 Oh\r\ncontent-length: 6\r\n\r\n<html>".to_owned()));
    }
    let more = r#"{"status":"pending","authorizations":["http://127.0.0.1:1/a","http://127.0.0.1:1/b"],"finalize":"http://127.0.0.1:1/"}"#;
    answers.push((Step::Order, json(more)));
    let other = r#"{"status":"pending","identifier":{"type":"dns","value":"evil.example"},"challenges":[]}"#;
    answers.push((Step::Authorization, json(other)));
    let token = r#"{"status":"pending","identifier":{"type":"dns","value":"a.example"},"challenges":[{"type":"tls-alpn-01","url":"http://127.0.0.1:1/","status":"pending","token":"../../x"}]}"#;
    answers.push((Step::Authorization, json(token)));
    let Some(clock) = FakeClock::ahead_by(0) else { return };
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let count = answers.len();
    let gateway = clock.gateway(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend), &[]);
    let first = wait_until_issued(&gateway, "a.example");
    for (index, (step, answer)) in answers.into_iter().enumerate() {
        let shown_step =
            format!("{index} of {count}: {step:?} {}", answer.chars().take(120).collect::<String>());
        server.instead(step, Instead::Answer(answer));
        // Years later it has expired, and half a day ends each wait.
        clock.step_to(86_400 * 365 + 60_000 * i64::try_from(index).expect("small"));
        let words = format!("order failed, {} in a row", index + 1);
        eventually(&shown_step, || gateway.stderr().contains(&words).then_some(()));
    }
    let still = shown(tls(&gateway), "a.example", &[]).expect("a handshake");
    assert_eq!(still.certificate, first.certificate);
    gateway.get("/").expect(200);
}

#[test]
fn a_certificate_for_other_names_is_refused_and_the_old_one_stays() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    server.set_other_names(Some(&["evil.example"]));
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    gateway.wait_for_log("the authority's certificate is not used: it is not for `a.example`");
    let still = shown(tls(&gateway), "a.example", &[]).expect("a handshake");
    assert_ne!(still.issuer, "authority of tests");
    let kept = files(&folder.path().join("state"));
    assert!(kept.iter().all(|file| !file.to_string_lossy().contains(".pem")), "{kept:?}");
}

#[test]
fn a_process_that_is_killed_at_any_step_is_followed_by_one_that_finishes() {
    for step in STEPS {
        let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
        server.instead(step, Instead::Hang);
        let toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
        let gateway = Gateway::start(&toml);
        eventually(&format!("{step:?}"), || (server.count(step) > 0).then_some(()));
        gateway.signal(Signal::KILL);
        drop(gateway);
        let gateway = Gateway::start(&toml);
        assert_eq!(wait_until_issued(&gateway, "a.example").names, ["a.example"], "{step:?}");
        assert!(server.accounts() <= 2);
    }
}

/// The limit on the size of files is as a disk without room; what was written before is left.
#[test]
fn a_full_disk_keeps_no_certificate_from_being_shown() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let toml = Acme::of(&server, folder.path(), &["a.example"]).toml(&backend);
    let mut shell = Command::new("sh");
    // 512 bytes: enough for an account, too little for a certificate.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1 && exec \"$0\" \"$@\"", binary()]);
    let gateway = Gateway::start_by(&toml, shell);
    wait_until_issued(&gateway, "a.example");
    gateway.wait_for_log("it cannot be written to");
    gateway.get("/").expect(200);
    let kept = files(&folder.path().join("state"));
    assert!(kept.iter().all(|file| !file.to_string_lossy().contains(".pem")), "{kept:?}");
}

#[test]
fn a_state_directory_that_cannot_be_used_is_told_of_and_stops_nothing() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    fs::write(folder.path().join("state"), "a file").expect("written");
    let gateway = Gateway::start(&Acme::of(&server, folder.path(), &["a.example"]).toml(&backend));
    wait_until_issued(&gateway, "a.example");
    gateway.wait_for_log("the state directory of `[acme]` cannot be used");
    assert_eq!(fs::read_to_string(folder.path().join("state")).expect("it stays"), "a file");
}

/// `check` asks no authority, and makes no directory.
#[test]
fn a_check_touches_nothing() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let file = folder.path().join("gateway.toml");
    fs::write(&file, Acme::of(&server, folder.path(), &["a.example"]).toml(&backend)).expect("written");
    let checked = Command::new(binary()).args(["check", "-c"]).arg(&file).output().expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    assert!(server.steps().is_empty() && !folder.path().join("state").exists());
}
