//! Refusals that are of no limit on requests, in each view of the gateway: wrong credentials, 401, 403 and 413.

use std::process::Command;

use serde_json::{Value, json};

use super::{CSV, Files, key};
use crate::harness::api::{api, samples_with, sum};
use crate::harness::{Backend, Gateway, Load, Next, binary, everything_to, get_with, send};

const HEADER: &str = "header:x-api-key";
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
const WRONG: &str = "[limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"3/day\"\n";

fn guarded(backend: &Backend, files: &Files, more: &str) -> String {
    let auth = files.auth("keys", HEADER, "failures = \"wrong\"");
    everything_to(backend, &format!("auth = \"keys\"\n{WRONG}{more}{ADMIN}{auth}"))
}

fn guess(gateway: &Gateway, times: usize) {
    let load = Load { requests: times, concurrency: 4 };
    load.run(gateway.addr(), |number| {
        format!("GET / HTTP/1.1\r\nhost: test\r\n{}\r\n", key(&format!("guess-{number}")))
    });
}

/// What `tollgate top --once` prints.
fn top(gateway: &Gateway) -> String {
    let url = format!("http://{}", gateway.admin_addr());
    let output = Command::new(binary()).args(["top", "--once", "--url", &url]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn assert_shows(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

/// The count of a decision on the route `all`.
fn decisions(gateway: &Gateway, limit: &str, decision: &str) -> u64 {
    let labels =
        ["route=\"all\"".to_owned(), format!("limit=\"{limit}\""), format!("decision=\"{decision}\"")];
    let count = gateway.metric("tollgate_decisions_total", &labels.each_ref().map(String::as_str));
    format!("{count:.0}").parse().expect("a count")
}

fn sums(lists: &Value, names: [&str; 6]) -> [u64; 6] {
    names.map(|name| sum(&lists[name]))
}

const ALL: [&str; 6] = ["admitted", "refused", "failed", "unauthenticated", "forbidden", "too_large"];

#[test]
fn an_attack_with_wrong_keys_is_in_every_view() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = Gateway::start(&guarded(&backend, &files, ""));
    guess(&gateway, 150);
    let samples = samples_with(&gateway, 150);
    for lists in [&samples["all"], &samples["routes"]["all"]] {
        assert_eq!(sums(lists, ALL), [0, 150, 0, 3, 0, 0], "{lists}");
    }
    assert_eq!(sum(&samples["limits"]["wrong"]["refused"]), 147);
    let counted = ["allowed", "limited", "shadow_limited"].map(|name| decisions(&gateway, "wrong", name));
    assert_eq!(counted, [3, 147, 0]);
    assert_eq!(decisions(&gateway, "", "unauthenticated"), 3);
    let limit = &api(&gateway, "limits")["limits"][0];
    let span = json!({ "admitted": 3, "delayed": 0, "refused": 147, "in_shadow": 0, "refused_keys": 1 });
    assert_eq!([&limit["minute"], &limit["hour"]], [&span; 2]);
    assert_eq!((&limit["routes"], &limit["failures"]), (&json!(["all"]), &"wrong API keys".into()));
    let keys = api(&gateway, "limits/wrong/keys");
    let one = &keys["keys"][0];
    assert_eq!(
        (&keys["refused"], &one["refused"], &one["key"]),
        (&147.into(), &147.into(), &json!(["127.0.0.1"]))
    );
    let refusals = api(&gateway, "refusals")["refusals"].as_array().expect("a list").clone();
    let of = |status: u16| refusals.iter().filter(move |one| one["status"] == status);
    assert!(of(429).count() > 0 && of(401).count() > 0, "{refusals:?}");
    for refused in of(429) {
        assert_eq!((&refused["limit"], &refused["id"]), (&"wrong".into(), &one["id"]), "{refused}");
        assert_eq!(refused["reason"], "over 3/day");
    }
    assert!(of(401).all(|one| one["limit"].is_null() && one["reason"] == "credential_invalid"));
    let text = top(&gateway);
    assert_shows(
        &text,
        &[
            "refused: wrong API keys, all from 127.0.0.1",
            "3/day of wrong API keys for each ip",
            "150 (401: 3)",
        ],
    );
    assert!(!text.contains("No request is refused. "), "{text}");
    // A reload keeps what was counted.
    gateway.reload(&guarded(&backend, &files, "# changed\n"), "reloaded");
    guess(&gateway, 5);
    samples_with(&gateway, 155);
    assert_eq!(decisions(&gateway, "wrong", "limited"), 152);
    assert_eq!(api(&gateway, "limits")["limits"][0]["minute"]["refused"], 152);
}

#[test]
fn wrong_keys_that_a_limit_in_shadow_would_refuse_are_counted_as_such() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let ban = "ban = { after = 5, within = \"10min\", for = \"1h\" }";
    let file = guarded(&backend, &files, "")
        .replace("\"3/day\"\n", &format!("\"3/day\"\nmode = \"shadow\"\n{ban}\n"));
    let gateway = Gateway::start(&file);
    guess(&gateway, 10);
    let samples = samples_with(&gateway, 10);
    assert_eq!(sums(&samples["all"], ALL), [0, 10, 0, 10, 0, 0], "each is a 401");
    let counted = ["allowed", "limited", "shadow_limited"].map(|name| decisions(&gateway, "wrong", name));
    assert_eq!(counted, [3, 0, 7]);
    let minute = &api(&gateway, "limits")["limits"][0]["minute"];
    assert_eq!((&minute["refused"], &minute["in_shadow"]), (&7.into(), &7.into()));
    assert_eq!(api(&gateway, "limits/wrong/keys")["keys"][0]["refused"], 7);
    assert!(gateway.access_log(10).iter().filter(|line| line["shadow"] == "wrong").count() == 7);
    let words = [
        "refused: no valid credential (401), all from 127.0.0.1",
        "Shadow wrong would have refused 7 from 1 key",
        "In shadow, 1 key would be banned",
        "shadow: would be banned until",
        "shadow: not refused",
    ];
    assert_shows(&top(&gateway), &words);
}

/// A service that answers each question with this status.
fn service(status: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.write(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

/// A file whose routes refuse for each of the reasons. The services of its auths answer with 403 and 500.
fn refusing(backend: &Backend, files: &Files, [denying, failing]: [&Backend; 2]) -> String {
    let route = |path: &str, rest: &str| {
        format!("[[routes]]\nname = \"{path}\"\npath = \"{path}\"\nupstream = \"api\"\n{rest}\n")
    };
    let auth = |name: &str, service: &Backend| {
        format!("[auth.{name}]\ntype = \"forward\"\nurl = \"{}/\"\ntimeout = \"30s\"\n", service.url())
    };
    let file = [
        format!("{ADMIN}[upstreams]\napi = \"{}\"\n", backend.url()),
        files.auth("keys", HEADER, ""),
        auth("door", denying),
        auth("broken", failing),
        route("/keys", "auth = \"keys\""),
        route("/door", "auth = \"door\""),
        route("/broken", "auth = \"broken\""),
        route("/denied", "deny = [\"127.0.0.0/8\"]"),
        route("/small", "max_body_bytes = 10"),
        route("/open", ""),
    ];
    file.concat()
}

#[test]
fn what_the_gateway_itself_refuses_is_no_failure() {
    let (files, denying, failing) = (Files::with_consumers(CSV), service("403"), service("500"));
    // Its own 401 is an answer like others.
    let backend = service("401");
    let gateway = Gateway::start(&refusing(&backend, &files, [&denying, &failing]));
    for (path, status) in [("/keys", 401), ("/door", 403), ("/denied", 403), ("/open", 401), ("/broken", 500)]
    {
        get_with(gateway.addr(), path, "").expect(status);
    }
    let large = "POST /small HTTP/1.1\r\nhost: test\r\ncontent-length: 20\r\n\r\n01234567890123456789";
    send(gateway.addr(), large).expect(413);
    let chunked = "POST /small HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n14\r\n01234567890123456789\r\n0\r\n\r\n";
    send(gateway.addr(), chunked).expect(413);
    let samples = samples_with(&gateway, 7);
    let routes = &samples["routes"];
    for (path, expected) in [
        ("/keys", [0, 1, 0, 1, 0, 0]),
        ("/door", [0, 1, 0, 0, 1, 0]),
        ("/broken", [0, 0, 1, 0, 0, 0]),
        ("/denied", [0, 1, 0, 0, 1, 0]),
        ("/small", [0, 2, 0, 0, 0, 2]),
        ("/open", [1, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(sums(&routes[path], ALL), expected, "{path}");
    }
    assert_eq!(sums(&samples["all"], ALL), [1, 5, 1, 1, 2, 2]);
    let count = |path: &str, decision: &str| {
        let labels =
            [format!("route=\"{path}\""), "limit=\"\"".to_owned(), format!("decision=\"{decision}\"")];
        let count = gateway.metric("tollgate_decisions_total", &labels.each_ref().map(String::as_str));
        format!("{count:.0}")
    };
    for (path, decision, expected) in [
        ("/keys", "unauthenticated", "1"),
        ("/keys", "forbidden", "0"),
        ("/door", "forbidden", "1"),
        ("/denied", "forbidden", "1"),
        ("/small", "too_large", "2"),
    ] {
        assert_eq!(count(path, decision), expected, "{path}: {decision}");
    }
    let page = gateway.admin("/metrics").expect(200).text();
    let of_no_limit = |path: &str| page.contains(&format!("{{route=\"{path}\",limit=\"\""));
    assert!(!of_no_limit("/open") && !of_no_limit("/broken"), "absent until there is one");
    let reasons: Vec<_> = api(&gateway, "refusals")["refusals"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["status"].as_u64().unwrap(), one["reason"].as_str().unwrap().to_owned()))
        .collect();
    for (status, reason) in
        [(401, "credential_missing"), (403, "forward_auth"), (403, "address_denied"), (413, "body_too_large")]
    {
        assert!(reasons.contains(&(status, reason.to_owned())), "{reason} is missing in {reasons:?}");
    }
    assert_shows(&top(&gateway), &["refused: not allowed (403), all from 127.0.0.1"]);
}
