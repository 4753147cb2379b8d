//! Each change has its line; no key of the file changes without one.

mod every_key;

use super::*;

const FILE: &str = "[upstreams]\na = \"builtin:echo\"\nb = \"http://127.0.0.1:9001\"\n\
    [limits.per-client]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"100/h\"\nexempt = [\"header:x-in=one\"]\n\
    [[routes]]\npath = \"/api/*\"\nupstream = \"a\"\nlimits = [\"per-client\"]\n\
    [[routes]]\npath = \"/y\"\nupstream = \"b\"\n";

fn plan(text: &str) -> Plan {
    crate::config::parse(text.as_bytes(), "gateway.toml", &|_| None).expect("a good file").plan
}

fn lines(next: &str) -> Vec<String> {
    changes(&plan(FILE), &plan(next))
}

#[test]
fn a_calendar_that_changes_starts_counters_afresh() {
    let of = |start: u32| FILE.replace("100/h\"", &format!("100/month\"\nstarts = {start}"));
    assert_eq!(
        changes(&plan(&of(1)), &plan(&of(15))),
        [
            "limit per-client: rate 100/month → 100/month from day 15",
            "limit per-client: counters of rate 100/month from day 15 start afresh"
        ]
    );
    assert!(changes(&plan(&of(15)), &plan(&of(15))).is_empty());
}

#[test]
fn each_change_has_its_line() {
    for (from, to, expected) in [
        ("", "", &[][..]),
        ("100/h", "200/h", &["limit per-client: rate 100/h → 200/h"]),
        (
            "100/h",
            "100/31day",
            &[
                "limit per-client: rate 100/h → 100/31day",
                "limit per-client: counters of rate 100/31day start afresh",
            ],
        ),
        (
            "100/h",
            "100/month",
            &[
                "limit per-client: rate 100/h → 100/month",
                "limit per-client: counters of rate 100/month start afresh",
            ],
        ),
        (
            "\"100/h\"",
            "[\"9000/31day\", \"200/h\"]",
            &[
                "limit per-client: rate 100/h → 9000/31day, 200/h",
                "limit per-client: counters of rate 9000/31day start afresh",
            ],
        ),
        ("100/h\"", "100/h\"\ntrial = 0.05", &["limit per-client: trial none → 5 %"]),
        ("100/h\"", "100/h\"\nbefore_auth = true", &["limit per-client: before_auth false → true"]),
        ("key = \"ip\"", "key = \"ip\"\nfold = \"lower\"", &["limit per-client: fold none → lower"]),
        ("100/h\"", "100/h\"\nmax_keys = 500", &["limit per-client: max_keys none → 500"]),
        ("100/h\"", "100/h\"\nretry_jitter = \"5s\"", &["limit per-client: retry_jitter none → 5s"]),
        ("upstream = \"a\"", "upstream = \"b\"", &["route /api/*: upstream a → b"]),
        ("9001", "9002", &["upstream b: servers 127.0.0.1:9001 → 127.0.0.1:9002"]),
        ("=one", "=two", &["limit per-client: exempt changed"]),
        ("[upstreams]", "[errors]\n404 = { body = \"gone\" }\n[upstreams]", &["errors: pages changed"]),
        ("path = \"/y\"", "path = \"/z\"", &["route /y removed", "route /z added"]),
        ("[upstreams]", "[store]\nsnapshot = \"/tmp/counters\"\n[upstreams]", &["store: snapshot changed"]),
        ("limits = [\"per-client\"]", "", &["route /api/*: limits per-client → none"]),
        (
            "[upstreams]",
            "[server]\nclient_ip = \"peer\"\n[upstreams]",
            &["server: client_ip x-forwarded-for → peer"],
        ),
    ] {
        let next = FILE.replacen(from, to, 1);
        assert_eq!(lines(&next), expected, "{from} → {to}");
    }
}

#[test]
fn the_order_of_rates_is_told_and_no_counter_starts_afresh() {
    let of = |rates: &str| plan(&FILE.replace("\"100/h\"", rates));
    let (list, reversed) = (of("[\"100/h\", \"9000/31day\"]"), of("[\"9000/31day\", \"100/h\"]"));
    let told = "limit per-client: rate 100/h, 9000/31day → 9000/31day, 100/h";
    assert_eq!(changes(&list, &reversed), [told]);
    let told = "limit per-client: rate 100/h, 9000/31day → 9000/31day";
    assert_eq!(changes(&list, &of("\"9000/31day\"")), [told]);
    let buckets =
        |rates: &str| plan(&FILE.replace("\"100/h\"", rates).replace("\"fixed-window\"", "\"token-bucket\""));
    let told = ["limit per-client: rate 5/s, 40/min → 40/min, 5/s", "limit per-client: burst 5, 40 → 40, 5"];
    assert_eq!(changes(&buckets("[\"5/s\", \"40/min\"]"), &buckets("[\"40/min\", \"5/s\"]")), told);
    let of_one_burst = |rates: &str| buckets(&format!("{rates}\nburst = 9"));
    let told = ["limit per-client: rate 5/s, 40/min → 40/min, 5/s"];
    assert_eq!(changes(&of_one_burst("[\"5/s\", \"40/min\"]"), &of_one_burst("[\"40/min\", \"5/s\"]")), told);
}

#[test]
fn measured_and_settled_costs_are_told_in_words() {
    let with = |cost: &str| {
        FILE.replacen("[\"per-client\"]", &format!("[{{ name = \"per-client\", cost = {cost} }}]"), 1)
            .replacen("upstream = \"a\"", "upstream = \"b\"", 1)
    };
    let last = with("{ reserve = 5, settle = \"json:/usage\" }");
    for (next, told) in [
        ("1", "route /api/*: limits per-client (cost 5 reserved, settled by json:/usage) → per-client"),
        (
            "{ reserve = 7, settle = \"json:/usage\", max = 9 }",
            "route /api/*: limits per-client (cost 5 reserved, settled by json:/usage) → per-client (cost 7 reserved, settled by json:/usage, at most 9)",
        ),
        (
            "{ from = \"query:limit\", per = 10 }",
            "route /api/*: limits per-client (cost 5 reserved, settled by json:/usage) → per-client (cost query:limit per 10, at least 1, or 1 where it is missing)",
        ),
    ] {
        assert_eq!(changes(&plan(&last), &plan(&with(next))), [told]);
    }
    let of_route = |cost: &str| FILE.replacen("path = \"/y\"", &format!("path = \"/y\"\ncost = {cost}"), 1);
    let status = |units: u32| {
        of_route(&format!("{{ reserve = 1, settle = \"status\", status = {{ 401 = {units} }} }}"))
    };
    let told =
        "route /y: cost 1 reserved, settled by status (401: 5) → 1 reserved, settled by status (401: 6)";
    assert_eq!(changes(&plan(&status(5)), &plan(&status(6))), [told]);
}

#[test]
fn places_and_bans_have_their_lines() {
    let ban = "ban = { after = 20, within = \"10min\", for = \"1h\" }\nrate";
    let told = "limit per-client: ban none → 20 refusals in 10 minutes: banned for an hour";
    assert_eq!(lines(&FILE.replace("rate", ban)), [told]);
    let last = FILE.replace("fixed-window", "concurrency").replace("rate = \"100/h\"", "max = 5");
    let tier = "max = 9\nqueue = 3\n[limits.per-client.tiers.pro]\nmax = 20\n[[routes]]";
    let next = last.replacen("max = 5", "", 1).replacen("[[routes]]", tier, 1);
    let told = ["max 5 → 9", "queue 0 → 3", "tier pro added: max 20"];
    let told = told.map(|change| format!("limit per-client: {change}"));
    assert_eq!(changes(&plan(&last), &plan(&next)), told);
}

#[test]
fn lines_are_bounded() {
    let mut many = FILE.to_owned();
    for number in 0..60 {
        many.push_str(&format!("[[routes]]\npath = \"/more/{number}\"\nupstream = \"a\"\n"));
    }
    let lines = lines(&many);
    assert_eq!(lines.len(), MAX_LINES + 1);
    assert_eq!(lines.last().map(String::as_str), Some("and 10 more"));
}
