//! The usage of one process.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{comes_to, consumers, expected, plan, settled, sums, usage};
use crate::harness::api::{ask, ask_with, good};
use crate::harness::metered::{begin, json as json_body, parrot};
use crate::harness::{FakeClock, Gateway, eventually, send};

const DAY: i64 = 86_400;

fn admin() -> &'static str {
    "[admin]\nlisten = \"127.0.0.1:0\"\n"
}

#[test]
fn units_are_counted_as_they_are_charged_settled_given_back_and_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let keys = consumers(folder.path(), &["anna", "bob", "=cmd"]);
    let gateway = Gateway::start(&plan(&backend, &keys, 1_000, "", admin()));
    assert_eq!(usage(&gateway, "")["consumers"], json!([]));
    // More and less than was reserved.
    for (consumer, units) in [("anna", 30), ("anna", 250), ("bob", 0), ("=cmd", 100)] {
        assert_eq!(settled(&gateway, Some(consumer), units), 200);
    }
    assert_eq!(settled(&gateway, None, 7), 200);
    comes_to(&gateway, &[("anna", 280, 2), ("bob", 0, 1), ("=cmd", 100, 1), ("-", 7, 1)]);
    // By hand, once for each idempotency key.
    for _ in 0..2 {
        let key = "idempotency-key: a\r\n";
        let (status, seen) = ask_with(&gateway, "POST limits/x/keys/bob/charge", key, r#"{"units": 800}"#);
        assert_eq!(status, 200, "{seen}");
    }
    good(&gateway, "POST limits/x/keys/anna/grant", r#"{"units": 50}"#);
    // No more is given back than was in use.
    good(&gateway, "POST limits/x/keys/%3Dcmd/grant", r#"{"units": 500}"#);
    let rows = [("anna", 230, 2), ("bob", 800, 1), ("=cmd", 0, 1), ("-", 7, 1)];
    comes_to(&gateway, &rows);
    // A refused request is not counted, nor is a reset.
    good(&gateway, "POST limits/x/keys/bob/charge", r#"{"units": 150}"#);
    assert_eq!(settled(&gateway, Some("bob"), 1), 429);
    good(&gateway, "DELETE limits/x/keys/bob", "");
    comes_to(&gateway, &[("anna", 230, 2), ("bob", 950, 1), ("=cmd", 0, 1), ("-", 7, 1)]);
    assert_eq!(settled(&gateway, Some("bob"), 1), 200);
    comes_to(&gateway, &[("anna", 230, 2), ("bob", 951, 2), ("=cmd", 0, 1), ("-", 7, 1)]);

    let seen = usage(&gateway, "?top=2");
    assert_eq!(sums(&seen), expected(&[("bob", 951, 2), ("anna", 230, 2)]));
    assert_eq!(seen["total"], json!({ "units": 1188, "requests": 6 }));
    assert_eq!((&seen["limit"], &seen["policy"]), (&json!("x"), &json!("1000/month")));
    assert_eq!(seen["windows"], json!([seen["window"]["begin"]]));
    assert_eq!(seen["incomplete_since"], Value::Null);
    let bob = &seen["consumers"][0];
    assert_eq!((&bob["quota"], &bob["share"], &bob["tier"]), (&json!(1000), &json!(0.951), &Value::Null));
    let begin = seen["window"]["begin"].as_str().expect("a begin").to_owned();
    for begin in [begin.clone(), begin.replace(':', "%3A")] {
        assert_eq!(sums(&usage(&gateway, &format!("?window={begin}&top=1"))), expected(&[("bob", 951, 2)]));
    }

    let table = gateway.admin("/api/v1/limits/x/usage?format=csv").expect(200);
    assert_eq!(table.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let end = seen["window"]["end"].as_str().expect("an end");
    let line = |row: &str| format!("{row},{begin},{end}\r\n");
    let lines = ["bob,951,2", "anna,230,2", ",7,1", "\"'=cmd\",0,1"].map(line).concat();
    assert_eq!(table.text(), format!("consumer,units,requests,window_begin,window_end\r\n{lines}"));
}

#[test]
fn questions_that_have_no_answer_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let other = "[limits.plain]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"500/month\"\n";
    let keys = consumers(folder.path(), &["anna"]);
    let toml = plan(&backend, &keys, 500, "", &format!("{other}{}", admin())).replacen(
        "limits = [\"x\"]",
        "limits = [\"x\", \"plain\"]",
        1,
    );
    let gateway = Gateway::start(&toml);
    for (line, status, words) in [
        ("GET limits/plain/usage", 404, "write `usage = true` in [limits.plain]"),
        ("GET limits/none/usage", 404, "there is no limit `none`"),
        ("GET limits/x/usage?window=next", 400, "`window` is `current`, `previous`, or"),
        ("GET limits/x/usage?window=2001-01-01T00:00:00Z", 400, "`window` is"),
        ("GET limits/x/usage?window=", 400, "`window` is"),
        ("GET limits/x/usage?window=-9999-01-01T00:00:00Z", 400, "`window` is"),
        ("GET limits/x/usage?format=xml", 400, "`format` is `json` or `csv`"),
        ("GET limits/x/usage?top=0", 400, "`top` is a number from 1 to 100000"),
        ("GET limits/x/usage?top=100001", 400, "`top` is"),
    ] {
        let (seen, value) = ask(&gateway, line, "");
        assert_eq!(seen, status, "{line}: {value}");
        assert!(value["detail"].as_str().expect("a detail").contains(words), "{line}: {value}");
    }
}

/// By how much a clock that shows the 15th of a month is ahead: 32 days later is the next month.
fn middle_of_month() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let now = jiff::Timestamp::from_second(i64::try_from(now).expect("small")).expect("a moment");
    let today = jiff::tz::TimeZone::UTC.to_datetime(now).date();
    let days = if today.day() > 15 { today.days_in_month() - today.day() + 15 } else { 15 - today.day() };
    i64::from(days) * DAY
}

/// What is in flight at the end of a window is settled in it.
#[test]
fn the_previous_window_is_that_of_its_admissions() {
    let begin_at = middle_of_month();
    let Some(clock) = FakeClock::ahead_by(begin_at) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let keys = consumers(folder.path(), &["anna"]);
    let toml = plan(&backend, &keys, 1_000, "keep_windows = 2", admin());
    let gateway = clock.gateway(&toml, &[]);
    assert_eq!(settled(&gateway, Some("anna"), 30), 200);
    let body = "{\"total\":|   41}";
    let head = String::from_utf8(json_body(body)).expect("text");
    let head = head.replace(&format!("length: {}", body.len()), &format!("length: {}", body.len() - 1));
    let fields = "x-key: secret-key-anna\r\nx-then: gate\r\n";
    let mut open = begin(&gateway, 0, "-", fields, head.as_bytes());
    comes_to(&gateway, &[("anna", 130, 2)]);
    let first = usage(&gateway, "")["window"]["begin"].clone();

    clock.step_to(begin_at + 32 * DAY);
    let is_next = || (usage(&gateway, "")["window"]["begin"] != first).then_some(());
    eventually("the next month", is_next);
    assert_eq!(settled(&gateway, Some("anna"), 5), 200);
    comes_to(&gateway, &[("anna", 5, 1)]);
    assert_eq!(sums(&usage(&gateway, "?window=previous")), expected(&[("anna", 130, 2)]));
    backend.open_gate();
    open.read().expect(200);
    eventually("the settlement", || {
        (sums(&usage(&gateway, "?window=previous")) == expected(&[("anna", 71, 2)])).then_some(())
    });
    comes_to(&gateway, &[("anna", 5, 1)]);
    let previous = usage(&gateway, "?window=previous");
    assert_eq!(previous["window"]["begin"], first);
    assert_eq!(previous["consumers"][0]["exhausted_at"], Value::Null);
    assert_eq!(previous["windows"].as_array().map(Vec::len), Some(2));
    let first = first.as_str().expect("a begin");
    assert_eq!(usage(&gateway, &format!("?window={first}"))["total"], json!({ "units": 71, "requests": 2 }));

    // Two more months: the first one is no longer kept.
    clock.step_to(begin_at + 32 * 3 * DAY);
    eventually("the last month", || {
        (ask(&gateway, &format!("GET limits/x/usage?window={first}"), "").0 == 400).then_some(())
    });
}

#[test]
fn a_reload_keeps_usage_and_one_without_it_leaves_a_gap() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let keys = consumers(folder.path(), &["anna"]);
    let gateway = Gateway::start(&plan(&backend, &keys, 1_000, "", admin()));
    let reloads = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    let reload = |toml: &str| {
        let before = reloads();
        gateway.write_config(toml);
        gateway.signal(Signal::HUP);
        eventually("a reload", || (reloads() > before).then_some(()));
    };
    assert_eq!(settled(&gateway, Some("anna"), 30), 200);
    comes_to(&gateway, &[("anna", 30, 1)]);
    reload(&plan(&backend, &keys, 2_000, "keep_windows = 3", admin()));
    gateway.wait_for_log("keep_windows 1 → 3");
    assert_eq!(settled(&gateway, Some("anna"), 4), 200);
    comes_to(&gateway, &[("anna", 34, 2)]);
    assert_eq!(usage(&gateway, "")["incomplete_since"], Value::Null);

    reload(&plan(&backend, &keys, 2_000, "", admin()).replace("usage = true\n", ""));
    gateway.wait_for_log("usage true → false");
    assert_eq!(ask(&gateway, "GET limits/x/usage", "").0, 404);
    assert_eq!(settled(&gateway, Some("anna"), 9), 200);
    reload(&plan(&backend, &keys, 2_000, "", admin()));
    comes_to(&gateway, &[("anna", 34, 2)]);
    assert!(usage(&gateway, "")["incomplete_since"].is_string());
}

/// A request without a consumer counts by its address, which is the name of no consumer.
#[test]
fn a_charge_to_a_key_without_a_consumer_names_none() {
    let (backend, folder) = (parrot(), tempfile::tempdir().expect("a folder"));
    let gateway = Gateway::start(&plan(&backend, &consumers(folder.path(), &["anna"]), 1_000, "", admin()));
    settled(&gateway, None, 70);
    settled(&gateway, Some("anna"), 30);
    let keys = good(&gateway, "GET limits/x/keys", "")["keys"].as_array().expect("a list").clone();
    for key in &keys {
        let place = format!("POST limits/x/keys/{}/charge", key["id"].as_str().expect("an id"));
        good(&gateway, &place, r#"{"units": 5}"#);
    }
    comes_to(&gateway, &[("anna", 35, 1), ("-", 75, 1)]);
}

#[test]
fn shadow_limits_count_what_they_charge() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let keys = consumers(folder.path(), &["anna"]);
    let gateway = Gateway::start(&plan(&backend, &keys, 250, "mode = \"shadow\"", admin()));
    for units in [100, 100, 100] {
        assert_eq!(settled(&gateway, Some("anna"), units), 200);
    }
    // The third would have been refused.
    comes_to(&gateway, &[("anna", 200, 2)]);
}

/// A call about limits that an application names is counted for the consumer that it names.
#[test]
fn calls_of_applications_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = parrot();
    let keys = consumers(folder.path(), &["anna"]);
    let rest = format!("[decisions]\nlisten = \"127.0.0.1:0\"\n{}", admin());
    let gateway = Gateway::start(&plan(&backend, &keys, 250, "", &rest));
    for (peek, status) in [(false, true), (true, true), (false, true), (false, false)] {
        let body =
            json!({ "limits": [{ "name": "x", "cost": 100 }], "key": { "consumer": "dora" }, "peek": peek });
        let body = body.to_string();
        let request = format!(
            "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = send(gateway.decisions_addr(), request).expect(200);
        assert_eq!(answer.json()["allowed"], json!(status), "{}", answer.text());
    }
    comes_to(&gateway, &[("dora", 200, 2)]);
}
