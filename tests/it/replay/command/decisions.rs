//! Small logs whose decisions are computed by hand.

use serde_json::{Value, json};

use super::{Folder, bucket, config, line, lines};

#[track_caller]
fn assert_sums(report: &Value, requests: u64, refused: u64, delayed: u64) {
    let found = ["requests", "refused", "delayed"].map(|name| report[name].as_u64());
    assert_eq!(found, [Some(requests), Some(refused), Some(delayed)], "{report:#}");
}

/// Tokens: 2, 1, 0 (refused), 1 at 1 s, a half at 1.5 s (refused), 1 at 2 s.
#[test]
fn a_token_bucket_refuses() {
    let text = [lines(&[0, 0, 0, 1_000, 1_500, 2_000], 1, ""), line(2_000, 2, "")].concat();
    let report = Folder::with_bucket().replay_lines(&text);
    assert_sums(&report, 7, 2, 0);
    let key = json!({ "limit": "bucket", "key": "192.0.2.1", "refused": 2, "requests": 6 });
    assert_eq!(report["refused_keys"], json!([key]));
    let limit = &report["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["requests"], &limit["refused"]),
        (&json!("bucket"), &json!(7), &json!(2))
    );
    assert_eq!((&limit["keys"], &limit["keys_refused"]), (&json!(2), &json!(1)));
    assert_eq!((&report["clients"], &report["clients_refused"]), (&json!(2), &json!(1)));
}

/// Four at once at 1/s: at once, after 1 s, after 2 s, and no place in the queue.
#[test]
fn a_leaky_bucket_delays() {
    let table = "[limits.leaky]\nalgorithm = \"leaky-bucket\"\nkey = \"ip\"\nrate = \"1/s\"\nqueue = 2\n";
    let report = Folder::new(table, "\"leaky\"").replay_lines(&lines(&[0, 0, 0, 0], 1, ""));
    assert_sums(&report, 4, 1, 2);
    let limit = &report["limits"][0];
    assert_eq!((&limit["delay_mean_ms"], &limit["delay_max_ms"]), (&json!(1_500.0), &json!(2_000.0)));
}

/// One place and a queue of one, for at most a second:
/// - 0 s: in flight until 2 s.
/// - 0.5 s: waits, and is refused at 1.5 s.
/// - 1.6 s: waits until 2 s, in flight until 3 s.
/// - 2.1 s: waits until 3 s, in flight until 4 s.
/// - 2.2 s: the queue is full.
/// - 10 s: a place is free.
#[test]
fn requests_in_flight_end_after_the_logged_duration() {
    let table =
        "[limits.places]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 1\nqueue = 1\nmax_wait = \"1s\"\n";
    let folder = Folder::new(table, "\"places\"");
    let text = [line(0, 1, ",\"d\":2"), lines(&[500, 1_600, 2_100, 2_200, 10_000], 1, ",\"d\":1")].concat();
    let report = folder.replay_lines(&text);
    assert_sums(&report, 6, 2, 2);
    let limit = &report["limits"][0];
    let delays = ["requests", "refused", "delayed", "delay_mean_ms", "delay_max_ms"].map(|name| &limit[name]);
    assert_eq!(delays, [&json!(6), &json!(2), &json!(2), &json!(650.0), &json!(900.0)]);
    // Without a queue, the requests at 0.5 s, 1.6 s and 2.2 s are refused.
    folder.file("gateway.toml", config(&table.replace("queue = 1\nmax_wait = \"1s\"\n", ""), "\"places\""));
    assert_sums(&folder.replay_lines(&text), 6, 3, 0);
}

/// A failed login costs 5 of 20, a good one nothing.
#[test]
fn a_cost_is_settled_by_the_status() {
    let table = "[limits.logins]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"20/h\"\n";
    let cost = "{ name = \"logins\", cost = { reserve = 1, settle = \"status\", status = { 401 = 5, \"2xx\" = 0 } } }";
    let (failed, good) =
        ([0, 1_000, 2_000, 3_000, 4_000], (0..40).map(|number| number * 100).collect::<Vec<_>>());
    let text = [lines(&failed, 1, ",\"s\":401"), lines(&good, 2, ",\"s\":200")].concat();
    let report = Folder::new(table, cost).replay_lines(&text);
    assert_sums(&report, 45, 1, 0);
    assert_eq!(report["refused_keys"][0]["key"], "192.0.2.1");
}

/// Of 100 MiB an hour: 61 are used, then 61 + 29, then 61 + 29 + 1; 10 more would be 101.
#[test]
fn a_cost_is_settled_by_the_size_of_the_response() {
    let table = "[limits.mib]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"100/h\"\n";
    let cost = "{ name = \"mib\", cost = { reserve = 10, settle = \"bytes\", per = 1048576 } }";
    let sizes = [(60 << 20) + 1, 29 << 20, 1, 1];
    let text: String =
        (0..).zip(sizes).map(|(at, bytes)| line(at * 1_000, 1, &format!(",\"b\":{bytes}"))).collect();
    let report = Folder::new(table, cost).replay_lines(&text);
    assert_sums(&report, 4, 1, 0);
}

/// Of 600 s: at 561 s 561 + 1 are used, at 570 s 5 more, at 580 s 9 more: 30 more would be 606.
#[test]
fn a_cost_is_settled_by_the_duration_when_the_response_ends() {
    let table = "[limits.seconds]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"600/h\"\nalign = \"first-request\"\n";
    let cost = "{ name = \"seconds\", cost = { reserve = 30, settle = \"duration\", per = 1000, min = 1 } }";
    let requests = [(0, 560.5), (100_000, 1.0), (561_000, 5.0), (570_000, 9.0), (580_000, 1.0)];
    let text: String =
        requests.iter().map(|(millis, seconds)| line(*millis, 1, &format!(",\"d\":{seconds}"))).collect();
    let report = Folder::new(table, cost).replay_lines(&text);
    assert_sums(&report, 5, 1, 0);
}

/// One request in 5 s is admitted. The third refusal, at 3 s, begins a ban until 23 s.
#[test]
fn bans_refuse_what_the_limit_would_admit() {
    let table = "[limits.one]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"1/5s\"\nban = { after = 3, within = \"10s\", for = \"20s\" }\n";
    let times = [0, 1_000, 2_000, 3_000, 9_000, 22_900, 23_500];
    let report = Folder::new(table, "\"one\"").replay_lines(&lines(&times, 1, ""));
    assert_sums(&report, 7, 5, 0);
    let without = table.split("ban").next().expect("a table");
    let report = Folder::new(without, "\"one\"").replay_lines(&lines(&times, 1, ""));
    assert_sums(&report, 7, 4, 0);
}

/// A pro consumer has 4 an hour; others, and clients without a name, have 2.
#[test]
fn consumers_have_the_numbers_of_their_tiers() {
    let tables = "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n[limits.plan]\n\
                  algorithm = \"sliding-log\"\nkey = \"consumer\"\nrate = \"2/h\"\n[limits.plan.tiers.pro]\nrate = \"4/h\"\n";
    let folder = Folder::new(tables, "\"plan\"]\nauth = [\"keys\"");
    folder.file("consumers.csv", "key,name,tier\nk1-0123456789,ada,pro\nk2-0123456789,ben,\n");
    let times = [0, 1, 2, 3, 4];
    let named = |name: &str| lines(&times, 1, &format!(",\"u\":\"{name}\""));
    let report = folder.replay_lines(&[named("ada"), named("ben"), lines(&times, 9, "")].concat());
    assert_sums(&report, 15, 1 + 3 + 3, 0);
    let refused: Vec<_> =
        report["refused_keys"].as_array().expect("keys").iter().map(|key| &key["refused"]).collect();
    assert_eq!(refused, [3, 3, 1]);
    assert_eq!(report["notes"], json!([]));
    // A name that the file does not have.
    let report = folder.replay_lines(&named("zoe"));
    assert_sums(&report, 5, 3, 0);
    let note = report["notes"][0].as_str().expect("a note");
    assert!(note.starts_with("5 requests count as anonymous"), "{note}");
}

/// Two wrong keys are answered with 401, more of them with 429.
#[test]
fn wrong_credentials_are_charged_to_their_limit() {
    let tables = "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\nfailures = \"wrong\"\n\
                  [limits.wrong]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/h\"\nburst = 2\n";
    let folder = Folder::new(tables, "]\nauth = [\"keys\"");
    folder.file("consumers.csv", "key,name,tier\nk1-0123456789,ada,pro\n");
    let text: String = (0..5)
        .map(|second| {
            let (status, error) = if second < 4 { (401, "\"credential_invalid\"") } else { (200, "null") };
            let consumer = if second < 4 { "null" } else { "\"ada\"" };
            format!(
                "{{\"time\":\"2026-01-31T12:00:0{second}.000000Z\",\"method\":\"GET\",\"host\":\"a\",\"path\":\"/\",\"route\":\"all\",\
                 \"status\":{status},\"client\":\"192.0.2.1\",\"consumer\":{consumer},\"limit\":null,\"decision\":null,\"error\":{error}}}\n"
            )
        })
        .collect();
    folder.file("log", text);
    let report = folder.replay(&[]);
    assert_sums(&report, 5, 2, 0);
    assert_eq!(report["answered"], 2);
    let limit = &report["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["requests"], &limit["refused"]),
        (&json!("wrong"), &json!(4), &json!(2))
    );
}

/// The second refusal begins a ban, which a request with a wrong key meets before its 401.
#[test]
fn a_ban_comes_before_the_credential() {
    let tables = "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
                  [limits.one]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"1/h\"\n\
                  ban = { after = 2, within = \"1min\", for = \"1h\" }\n";
    let folder = Folder::new(tables, "\"one\"]\nauth = [\"keys\"");
    folder.file("consumers.csv", "key,name,tier\nk1-0123456789,ada,pro\n");
    let text: String = (0..4)
        .map(|second| {
            let (status, error) = if second == 3 { (401, "\"credential_invalid\"") } else { (200, "null") };
            let consumer = if second == 3 { "null" } else { "\"ada\"" };
            format!(
                "{{\"time\":\"2026-01-31T12:00:0{second}.000000Z\",\"method\":\"GET\",\"host\":\"a\",\"path\":\"/\",\"route\":\"all\",\
                 \"status\":{status},\"client\":\"192.0.2.1\",\"consumer\":{consumer},\"limit\":null,\"decision\":null,\"error\":{error}}}\n"
            )
        })
        .collect();
    folder.file("log", text);
    let report = folder.replay(&[]);
    assert_sums(&report, 4, 3, 0);
    assert_eq!(report["answered"], 0);
}

#[test]
fn limits_in_shadow_are_counted() {
    let table = format!("{}mode = \"shadow\"\n", bucket(2));
    let folder = Folder::new(&table, "\"bucket\"");
    let report = folder.replay_lines(&lines(&[0, 0, 0, 0], 1, ""));
    assert_sums(&report, 4, 0, 0);
    assert_eq!((&report["shadow_refused"], &report["limits"][0]["refused"]), (&json!(2), &json!(2)));
    let output = folder.run(&["replay", "log", "--map", super::MAP], b"");
    assert!(super::text(&output).starts_with("0 of 4 requests (0 %) would have been refused, and 2 more (50.0 %) by limits in shadow; 1 of 1 clients\n"), "{}", super::text(&output));
}

#[test]
fn a_limit_whose_key_the_log_lacks_is_left_out_with_a_note() {
    let table = bucket(1).replace("\"ip\"", "\"header:x-tenant\"");
    let report = Folder::new(&table, "\"bucket\"").replay_lines(&lines(&[0, 0, 0], 1, ""));
    assert_sums(&report, 3, 0, 0);
    assert_eq!(report["limits"][0]["requests"], 0);
    assert_eq!(report["notes"], json!(["limit `bucket` is left out: the log lacks `header:x-tenant`"]));
}

/// Logs have no bodies.
#[test]
fn a_reservation_from_the_body_is_what_missing_says() {
    let folder = Folder::with_bucket();
    let cost = "{ reserve = { from = \"json:/max_tokens\", max = 9, missing = 2 }, settle = \"status\", status = { \"5xx\" = 0 } }";
    folder.file("gateway.toml", config(&bucket(2), &format!("{{ name = \"bucket\", cost = {cost} }}")));
    let report = folder.replay_lines(&lines(&[0], 1, ""));
    let note = "the reservation for `bucket` is what `missing` says: the log lacks `json:/max_tokens`";
    assert!(report["notes"].to_string().contains(note), "{}", report["notes"]);
}

/// Without addresses all requests would have one client.
#[test]
fn a_log_without_clients_has_no_limit_by_address() {
    let folder = Folder::with_bucket();
    folder.file("log", lines(&[0, 0, 0, 0], 1, ""));
    let report = folder.replay(&["--map", "start=$.t,path=$.p"]);
    assert_sums(&report, 4, 0, 0);
    assert_eq!(report["notes"], json!(["limit `bucket` is left out: the log lacks `ip`"]));
    let output = folder.run(&["suggest", "log", "--map", "start=$.t,path=$.p"], b"");
    assert_eq!(super::status(&output), 1);
    assert!(super::error(&output).starts_with("error: the log lacks `ip`\n"), "{}", super::error(&output));
}

/// `/a`: one of three is admitted at once instead of two. `/b`: three of four instead of two.
#[test]
fn two_files_are_compared() {
    let file = |a: u32, b: u32| {
        let limit =
            |name: &str, burst: u32| bucket(burst).replace("limits.bucket", &format!("limits.{name}"));
        let routes = "[[routes]]\npath = \"/a\"\nupstream = \"echo\"\nlimits = [\"a\"]\n[[routes]]\npath = \"/b\"\nupstream = \"echo\"\nlimits = [\"b\"]\n";
        config(&format!("{}{}{routes}", limit("a", a), limit("b", b)), "")
    };
    let folder = Folder::with_bucket();
    folder.file("gateway.toml", file(1, 3));
    folder.file("other.toml", file(2, 2));
    let to =
        |path: &str, count: usize| lines(&vec![0; count], 1, "").replace("\"/\"", &format!("\"{path}\""));
    folder.file("log", [to("/a", 3), to("/b", 4)].concat());
    let report = folder.replay(&["--map", super::MAP, "--against", "other.toml"]);
    assert_sums(&report, 7, 3, 0);
    let expected = json!({
        "refused": 3,
        "newly_refused": 1,
        "newly_admitted": 1,
        "newly_refused_by": [{ "limit": "a", "requests": 1 }],
        "newly_admitted_from": [{ "limit": "b", "requests": 1 }],
    });
    assert_eq!(report["against"], expected);
    let output = folder.run(&["replay", "log", "--map", super::MAP, "--against", "other.toml"], b"");
    assert!(
        super::text(&output).contains("\nCompared with the other file: 1 newly refused, 1 newly admitted\n")
    );
    // A limit that the log cannot replay is left out of either file, and the report says of which.
    folder.file("other.toml", file(2, 2).replace("key = \"ip\"", "key = \"header:x-tenant\""));
    let report = folder.replay(&["--map", super::MAP, "--against", "other.toml"]);
    let notes = report["notes"].as_array().expect("notes");
    assert_eq!(notes.len(), 2, "{notes:?}");
    let is_said = |note: &serde_json::Value| {
        let note = note.as_str().unwrap_or_default();
        note.starts_with("in the file of `--against`: limit `") && note.contains("`header:x-tenant`")
    };
    assert!(notes.iter().all(is_said), "{notes:?}");
}

/// A day of 23 hours in Berlin: the third request of the day is refused until its last second.
#[test]
fn a_day_of_the_calendar_has_its_real_length() {
    let table = "[limits.day]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"2/day\"\nalign = \"calendar\"\ntime_zone = \"Europe/Berlin\"\n";
    // 29 March 2026 begins at 23:00 UTC of the day before, and ends at 22:00 UTC.
    let (begin, end) = (1774738800, 1774821600);
    let at = |second: u64| format!("{{\"t\":{second}.000,\"c\":\"192.0.2.1\",\"p\":\"/\"}}\n");
    let text = [begin - 1, begin - 1, begin - 1, begin, begin, begin, end - 1, end, end].map(at).concat();
    let report = Folder::new(table, "\"day\"").replay_lines(&text);
    assert_sums(&report, 9, 3, 0);
}

/// Without a trial all but the first request of each client are refused; a trial of half of them refuses fewer.
#[test]
fn a_trial_refuses_its_share_of_the_clients() {
    let table = "[limits.x]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1/day\"\ntrial = 0.5\n";
    let text: String = (1..=100).map(|client| lines(&[0, 1_000], client, "")).collect();
    let report = Folder::new(table, "\"x\"").replay_lines(&text);
    let refused = report["refused"].as_u64().expect("a number");
    assert!((25..=75).contains(&refused), "{refused}");
    let report = Folder::new(&table.replace("trial = 0.5\n", ""), "\"x\"").replay_lines(&text);
    assert_sums(&report, 200, 100, 0);
}
