//! `tollgate explain` of calls on descriptors: with the file alone, and of a gateway that runs.

use std::process::Command;

use serde_json::{Value, json};
use tollgate::rate_limit_service::RateLimitDescriptor;

use super::is_ok;
use crate::harness::api::good;
use crate::harness::{Gateway, RateLimitClient, binary, descriptor, message};

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[decisions]
listen = \"127.0.0.1:0\"
[limits.per-address]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:remote_address\"
rate = \"5/h\"
ban = { after = 2, within = \"1h\", for = \"2h\" }
[limits.all]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"global\"
rate = \"20/h\"
[limits.budget]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:plan\"
rate = \"10/h\"
[[descriptors]]
domain = \"shop\"
match = { generic_key = \"search\", remote_address = \"*\" }
limits = [\"per-address\", \"all\"]
[[descriptors]]
match = { generic_key = \"*\", remote_address = \"*\" }
limits = [\"all\"]
[[descriptors]]
match = { plan = \"*\" }
limits = [\"budget\"]
cost = 2
[[descriptors]]
match = { plan = \"*\", done = \"yes\" }
limits = [\"budget\"]
report = true
";

fn explain(arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("gateway.toml"), FILE).expect("it can be written");
    let mut command = Command::new(binary());
    let output =
        command.arg("explain").args(arguments).current_dir(folder.path()).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_rule_the_key_the_cost_and_the_other_rules_are_told() {
    let call =
        "http://shop/generic_key=search,remote_address=192.0.2.7*3;plan=gold,done=yes*40;x=1;plan=gold*0";
    let (code, told, error) = explain(&["descriptors", call]);
    assert_eq!(code, Some(0), "{error}");
    let expected = "\
descriptors shop/generic_key=search,remote_address=192.0.2.7*3;plan=…,done=yes*40;x=…;plan=…*0

entries   generic_key=search,remote_address=192.0.2.7
  hits    3 hits
rule      `shop/generic_key=search,remote_address=*`
limit     `per-address` charges 3
  key     descriptor:remote_address = 192.0.2.7
  allows  fixed-window: 5 in each hour (from the first request)
  ban     2 refusals in an hour: banned for 2 hours
limit     `all` charges 3
  key     global
  allows  fixed-window: 20 in each hour (from the first request)
other     `*/generic_key=*,remote_address=*`: matches too, but the rule above names more values
";
    assert!(told.starts_with(expected), "{told}\n{expected}");
    for line in [
        "  hits    40 hits, spent already: charged even into debt",
        "  hits    none: asks whether one more would pass",
        "rule      none matches: no limit applies",
        "limit     `budget` charges 40",
        "limit     `budget` charges 2",
        "other     `*/plan=*,done=yes`: the descriptor has entries with other names",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
    let (_, told, _) =
        explain(&["descriptors", "http://elsewhere/remote_address=192.0.2.7,generic_key=search"]);
    for line in [
        "rule      `*/generic_key=*,remote_address=*`",
        "other     `shop/generic_key=search,remote_address=*`: the domain is not `shop`",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
}

#[test]
fn a_call_that_is_none_is_a_mistake() {
    for (arguments, word) in [
        (&["descriptors", "http://shop/generic_key"][..], "has no list of descriptors"),
        (&["descriptors", "http://shop/a=1*x"], "has no list of descriptors"),
        (&["descriptors", "http://shop/a=1", "-H", "a: b"], "has no headers"),
        (&["descriptors", "shop"], "neither a URL nor a path"),
    ] {
        let (code, told, error) = explain(arguments);
        assert_eq!(code, Some(2), "{told}{error}");
        assert!(error.contains(word), "{word}\n{error}");
    }
    // Without a limit, and without a counter, the answer is known.
    let (_, told, _) = explain(&["--json", "descriptors", "http://shop/"]);
    let report: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&report["verdict"], &report["descriptors"]), (&json!("admitted"), &json!([])));
    let (_, told, _) = explain(&["--json", "descriptors", "http://shop/plan=gold"]);
    let report: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&report["verdict"], &report["limits"][0]["cost"]), (&json!(null), &json!(2)));
}

fn search(hits: u64) -> RateLimitDescriptor {
    descriptor(&[("generic_key", "search"), ("remote_address", "192.0.2.7")], Some(hits))
}

fn plan(done: bool, hits: u64) -> RateLimitDescriptor {
    let entries: &[(&str, &str)] =
        if done { &[("plan", "gold"), ("done", "yes")] } else { &[("plan", "gold")] };
    descriptor(entries, Some(hits))
}

fn text(descriptors: &[RateLimitDescriptor]) -> String {
    let one = |descriptor: &RateLimitDescriptor| {
        let entries = descriptor.entries.iter().map(|entry| {
            format!("{}={}", String::from_utf8_lossy(&entry.key), String::from_utf8_lossy(&entry.value))
        });
        let entries: Vec<_> = entries.collect();
        format!("{}*{}", entries.join(","), descriptor.hits_addend.as_ref().map_or(1, |hits| hits.value))
    };
    descriptors.iter().map(one).collect::<Vec<_>>().join(";")
}

/// The explanation of a call, and then its answer.
fn explained(gateway: &Gateway, client: &RateLimitClient, call: &[RateLimitDescriptor]) -> (Value, bool) {
    let question = json!({"method": "descriptors", "url": format!("http://shop/{}", text(call))});
    let report = good(gateway, "POST explain", &question.to_string());
    (report, is_ok(&client.ask(&message("shop", call)).expect("an answer")))
}

/// Every explanation says what the call that follows it gets, and charges nothing.
#[test]
fn a_running_gateway_tells_what_the_next_call_gets() {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    for (turn, (call, verdict, limit)) in [
        (vec![search(3)], "admitted", Value::Null),
        // Two of a call that each would pass alone.
        (vec![search(1), search(2)], "refused", json!("per-address")),
        (vec![search(1), search(1)], "admitted", Value::Null),
        // One that is used up charges no other.
        (vec![plan(false, 1), search(0)], "refused", json!("per-address")),
        (vec![plan(false, 5), plan(false, 0)], "admitted", Value::Null),
        (vec![plan(false, 0), plan(true, 3)], "refused", json!("budget")),
        (vec![plan(true, 3)], "admitted", Value::Null),
        (vec![descriptor(&[("x", "1")], Some(100))], "admitted", Value::Null),
        // The second refusal bans the key for two hours.
        (vec![search(1)], "refused", json!("per-address")),
        (vec![search(1)], "banned", json!("per-address")),
    ]
    .into_iter()
    .enumerate()
    {
        let (report, is_admitted) = explained(&gateway, &client, &call);
        assert_eq!((&report["verdict"], &report["limit"]), (&json!(verdict), &limit), "{turn}: {report:#}");
        assert_eq!(is_admitted, verdict == "admitted", "{turn}: {report:#}");
        let status = if is_admitted { Value::Null } else { json!(429) };
        assert_eq!(report["status"], status, "{turn}");
        assert_eq!(report["wait_ms"].is_null(), is_admitted, "{turn}");
    }
    // The reports were charged into debt: 10 + 3 + 3 of 10.
    let (report, _) = explained(&gateway, &client, &[plan(false, 0)]);
    assert_eq!(report["limits"][0]["policies"][0]["used"], json!(16), "{report:#}");
}
