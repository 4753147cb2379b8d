//! Tiers with other periods or more rates than their limit, and without a limit. Each in memory and in Redis.

use serde_json::{Value, json};

use super::{Files, key};
use crate::harness::api::good;
use crate::harness::{Backend, Gateway, Redis, eventually, get_with, send};

const CSV: &str = "key,name,tier\nkey-ada-1,ada,free\nkey-bob-1,bob,staff\n";

/// A free plan by day, a pro plan by hour and month, and no limit for staff; `rest` follows.
fn configuration(backend: &Backend, files: &Files, rest: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\napi = \"{}\"\n\
         [limits.api]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"3/day\"\n\
         [limits.api.tiers.free]\n\
         [limits.api.tiers.pro]\nrate = [\"5/h\", \"7/month\"]\n\
         [limits.api.tiers.large]\nrate = [\"100/month\", \"10/day\"]\n\
         [limits.api.tiers.staff]\nunlimited = true\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nauth = \"keys\"\nlimits = [\"api\"]\n{}{rest}",
        backend.url(),
        files.auth("keys", "header:x-api-key", ""),
    )
}

/// Each of these in memory and in Redis.
fn in_both_stores(story: impl Fn(&str)) {
    story("");
    let redis = Redis::start();
    story(&format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"2s\"\n", redis.url()));
}

fn passed(gateway: &Gateway, name: &str, requests: usize) -> usize {
    let fields = key(&format!("key-{name}-1"));
    (0..requests).filter(|_| get_with(gateway.addr(), "/", &fields).status == 200).count()
}

/// Exactly this many requests pass. With Redis a worker may remember a refusal for a second.
fn passes_in_time(gateway: &Gateway, name: &str, count: usize) {
    let mut admitted = 0;
    eventually(&format!("{count} requests pass"), || {
        admitted += passed(gateway, name, 1);
        (admitted == count).then_some(())
    });
    assert_eq!(passed(gateway, name, 3), 0);
}

/// Moves `ada` to another tier.
fn moved(files: &Files, gateway: &Gateway, toml: &str, tier: &str) {
    files.write("consumers.csv", CSV.replace("ada,free", &format!("ada,{tier}")));
    gateway.reload(toml, "reloaded");
}

#[test]
fn a_period_of_a_tier_has_a_counter_that_outlives_a_change_of_tier() {
    in_both_stores(|store| {
        let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
        let toml = configuration(&backend, &files, store);
        let gateway = Gateway::start(&toml);
        assert_eq!(passed(&gateway, "ada", 5), 3, "three a day");
        moved(&files, &gateway, &toml, "pro");
        assert_eq!(passed(&gateway, "ada", 7), 5, "five an hour, in a counter of its own");
        moved(&files, &gateway, &toml, "free");
        assert_eq!(passed(&gateway, "ada", 2), 0, "the day is still used up");
        moved(&files, &gateway, &toml, "large");
        assert_eq!(passed(&gateway, "ada", 9), 7, "ten a day, of which three are used");
        let state: Value = good(&gateway, "GET limits/api/keys/ada", "");
        assert_eq!(state["tier"], "large");
        let left: Vec<_> = state["policies"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["remaining"].clone())
            .collect();
        assert_eq!(left, [json!(88), json!(0)], "the month has the five of `pro` too: {state}");
        moved(&files, &gateway, &toml, "pro");
        assert_eq!(passed(&gateway, "ada", 3), 0, "the hour and the month are used up");
    });
}

#[test]
fn a_reset_is_of_the_counters_of_all_tiers() {
    in_both_stores(|store| {
        let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
        let toml = configuration(&backend, &files, store);
        let gateway = Gateway::start(&toml);
        assert_eq!(passed(&gateway, "ada", 4), 3);
        moved(&files, &gateway, &toml, "pro");
        assert_eq!(passed(&gateway, "ada", 6), 5);
        let reset = good(&gateway, "DELETE limits/api/keys/ada", "");
        assert_eq!(reset["changed"], true, "{reset}");
        passes_in_time(&gateway, "ada", 5);
        moved(&files, &gateway, &toml, "free");
        passes_in_time(&gateway, "ada", 3);
    });
}

#[test]
fn an_unlimited_tier_is_never_refused_and_counted_as_exempt() {
    in_both_stores(|store| {
        let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
        let gateway = Gateway::start(&configuration(&backend, &files, store));
        let response = get_with(gateway.addr(), "/", &key("key-bob-1")).expect(200);
        assert_eq!(response.header("ratelimit"), None);
        assert_eq!(passed(&gateway, "bob", 20), 20);
        let exempt = ["limit=\"api\"", "decision=\"exempt\""];
        assert_eq!(gateway.metric("tollgate_decisions_total", &exempt), 21.0);
        let question = json!({ "url": "http://localhost/", "headers": { "x-api-key": "key-bob-1" } });
        let told = good(&gateway, "POST explain", &question.to_string());
        assert!(told.to_string().contains("tier:staff"), "{told}");
    });
}

/// An override counts in the counters of the limit itself, whatever the tier has.
#[test]
fn an_override_holds_on_a_tier_of_another_shape() {
    in_both_stores(|store| {
        let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
        let second = "[limits.all]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"9/day\"\n";
        let toml = configuration(&backend, &files, &format!("{second}{store}"))
            .replace("limits = [\"api\"]", "limits = [\"api\", \"all\"]");
        let gateway = Gateway::start(&toml);
        moved(&files, &gateway, &toml, "pro");
        assert_eq!(passed(&gateway, "ada", 2), 2);
        let rate = json!({ "rate": "4/day" }).to_string();
        good(&gateway, "PUT limits/api/keys/ada/override", &rate);
        assert_eq!(passed(&gateway, "ada", 6), 4, "four a day, which the tier has not used");
        good(&gateway, "DELETE limits/api/keys/ada/override", "");
        assert_eq!(passed(&gateway, "ada", 9), 3, "the tier's own: five an hour, and nine for all");
    });
}

#[test]
fn a_consumer_is_exempt_by_name() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let exempt = "exempt = [\"consumer:ada\", \"consumer:zoe\"]";
    let toml = configuration(&backend, &files, "")
        .replace("rate = \"3/day\"", &format!("rate = \"3/day\"\n{exempt}"))
        .replace("[limits.api.tiers.staff]\nunlimited = true\n", "");
    let gateway = Gateway::start(&toml);
    assert_eq!((passed(&gateway, "ada", 9), passed(&gateway, "bob", 9)), (9, 3));
    let question = json!({ "url": "http://localhost/", "headers": { "x-api-key": "key-ada-1" } });
    let told = good(&gateway, "POST explain", &question.to_string());
    assert!(told.to_string().contains("consumer:ada"), "{told}");
}

/// The numbers of an override hold for a key whose tier has no limit, and explain, replay and the API tell so.
#[test]
fn an_override_wins_over_an_unlimited_tier() {
    in_both_stores(|store| {
        let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
        let toml = configuration(&backend, &files, store);
        let gateway = Gateway::start(&toml);
        assert_eq!(passed(&gateway, "bob", 5), 5);
        good(&gateway, "GET limits/api/keys/bob", "");
        let answer = good(&gateway, "PUT limits/api/keys/bob/override", "{\"rate\": \"2/day\"}");
        assert_eq!(answer["changed"], json!(true), "{answer}");
        passes_in_time(&gateway, "bob", 2);
        let looked = good(&gateway, "GET limits/api/keys/bob", "");
        assert_eq!(looked["policies"][0]["remaining"], json!(0), "{looked}");
        let question = json!({ "url": "http://localhost/", "headers": { "x-api-key": "key-bob-1" } });
        let told = good(&gateway, "POST explain", &question.to_string());
        assert_eq!(told["limits"][0]["cost"], json!(1), "{told}");
        assert!(
            told["limits"][0]["allows"][0].as_str().is_some_and(|allows| allows.contains("2 in each day")),
            "{told}"
        );
        assert_eq!(passed(&gateway, "ada", 5), 3, "the other keys have their tiers");
        good(&gateway, "DELETE limits/api/keys/bob/override", "");
        eventually("no limit again", || (passed(&gateway, "bob", 3) == 3).then_some(()));
    });
}

/// The calls of a batch are charged together to a key whose tier has no limit.
#[test]
fn an_override_wins_over_an_unlimited_tier_for_each_call_of_a_batch() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let toml = configuration(&backend, &files, "")
        .replace("key = \"consumer\"", "key = [\"consumer\", \"json:/model\"]")
        .replace("limits = [\"api\"]", "limits = [\"api\"]\nbatch = \"each\"");
    let gateway = Gateway::start(&toml);
    let batch = |models: &[&str]| {
        let calls: Vec<_> = models.iter().map(|model| json!({ "model": model })).collect();
        let body = json!(calls).to_string();
        let head =
            "POST / HTTP/1.1\r\nhost: test\r\nx-api-key: key-bob-1\r\ncontent-type: application/json\r\n";
        send(gateway.addr(), format!("{head}content-length: {}\r\n\r\n{body}", body.len())).status
    };
    assert_eq!(batch(&["a", "a", "a", "b"]), 200);
    good(&gateway, "PUT limits/api/keys/bob,a/override", "{\"rate\": \"4/day\"}");
    good(&gateway, "PUT limits/api/keys/bob,c/override", "{\"rate\": \"1/day\"}");
    assert_eq!(batch(&["b", "a", "a", "b", "a"]), 200, "three of four");
    assert_eq!(batch(&["b", "a", "a"]), 429, "two more do not fit");
    assert_eq!(batch(&["c", "b", "a"]), 200);
    assert_eq!(batch(&["b", "c"]), 429);
    assert_eq!(batch(&["b", "b", "b", "b", "b"]), 200, "it has no override");
}
