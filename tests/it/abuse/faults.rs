//! When something of ours fails or is used against us: traffic goes on, and nothing is told that must not be.

use std::fs::OpenOptions;
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{Backend, Gateway, eventually, everything_to, get_with};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// Traffic goes on though no line of the access log can be written, and the lines that are lost are counted.
fn goes_on_without_its_log(access_log: impl Into<Stdio>) {
    let backend = Backend::ok();
    let mut gateway = Gateway::start_logging_to(&everything_to(&backend, ADMIN), access_log);
    (0..50).for_each(|_| drop(gateway.get("/").expect(200)));
    eventually("all lines to be lost", || {
        (gateway.metric("tollgate_access_log_dropped_total", &[]) == 50.0).then_some(())
    });
    gateway.get("/").expect(200);
    assert!(gateway.alive());
    gateway.wait_for_log("access log");
    let told = gateway.stderr_lines().iter().filter(|line| line.contains("access log")).count();
    assert!((1..5).contains(&told), "told, but not for each line: {}", gateway.stderr());
}

#[test]
fn a_log_reader_that_is_gone_stops_no_request() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    goes_on_without_its_log(writer);
}

#[test]
fn a_full_disk_stops_no_request() {
    goes_on_without_its_log(OpenOptions::new().write(true).open("/dev/full").expect("Linux has it"));
}

#[test]
fn a_hundred_hangups_at_once_disturb_no_request() {
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, ADMIN));
    for _ in 0..100 {
        gateway.signal(Signal::HUP);
        gateway.get("/").expect(200);
    }
    let reloads = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    eventually("a reload", || (reloads() >= 1.0).then_some(()));
    assert!(reloads() < 100.0, "{}", reloads());
    assert!(gateway.alive());
}

#[test]
fn what_clients_and_operators_keep_secret_is_told_nowhere() {
    let backend = Backend::ok();
    let rest = format!(
        "limits = [\"a\"]
        [limits.a]
        algorithm = \"fixed-window\"
        key = [\"header:x-api-key\", \"cookie:session\", \"header:authorization\"]
        rate = \"2/day\"
        [log]
        level = \"debug\"
        {ADMIN}token_env = \"TOLLGATE_ADMIN_TOKEN\"\n"
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let fields = "x-api-key: k-12345-secret\r\ncookie: session=s-12345-secret\r\nauthorization: Bearer b-12345-secret\r\n";
    let mut told = String::new();
    for status in [200, 200, 429] {
        let answer = get_with(gateway.addr(), "/", fields).expect(status);
        told += &(answer.head.clone() + &answer.text());
    }
    let host = gateway.admin_addr();
    let metrics = crate::harness::send(
        host,
        format!(
            "GET /metrics HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer test-token\r\nconnection: close\r\n\r\n"
        ),
    );
    told += &metrics.expect(200).text();
    gateway.access_log(3);
    told += &(gateway.stdout_lines().join("\n") + &gateway.stderr());
    for secret in ["12345", "secret", "test-token"] {
        assert!(!told.contains(secret), "`{secret}` stands in\n{told}");
    }
}

/// A worker's panic is to end the process, which is started again, and not one connection of many: `serve/workers.rs` does so
/// where panics unwind, and a release does without unwinding.
#[test]
fn a_panic_ends_a_release() {
    let manifest: toml::Table =
        std::fs::read_to_string("Cargo.toml").expect("it is here").parse().expect("TOML");
    assert_eq!(manifest["profile"]["release"]["panic"].as_str(), Some("abort"));
}
