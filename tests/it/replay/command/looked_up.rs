//! API keys in a log are looked up in the file of consumers, as the gateway does.

use serde_json::{Value, json};

use super::{DAY, Folder, error, status, text};

const TABLES: &str = "[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
    [limits.plan]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"2/day\"\nmissing = \"skip\"\n\
    [limits.plan.tiers.pro]\nrate = \"3/day\"\n";
const CONSUMERS: &str =
    "key,name,tier\nkey-of-acme,acme,pro\nother-key-of-acme,acme,pro\nkey-of-shop,shop,\n";
const MAP: &str = "start=$.t,client=$.c,path=$.p,status=$.s,header:x-api-key=$.k";

/// A folder whose only route asks for a key.
fn folder() -> Folder {
    let folder = Folder::new(TABLES, "\"plan\"");
    let file = folder.0.path().join("gateway.toml");
    let config = std::fs::read_to_string(&file).expect("a file");
    std::fs::write(file, format!("{config}auth = \"keys\"\n")).expect("written");
    folder.file("consumers.csv", CONSUMERS);
    folder
}

/// A line a second, each with one of the keys; an empty one is none.
fn log(keys: &[&str]) -> String {
    let line = |(at, key): (u64, &&str)| {
        let key = if key.is_empty() { String::new() } else { format!(",\"k\":\"{key}\"") };
        format!("{{\"t\":{},\"c\":\"192.0.2.1\",\"p\":\"/\",\"s\":200{key}}}\n", DAY + at)
    };
    (0..).zip(keys).map(line).collect()
}

fn replay(keys: &[&str]) -> Value {
    let folder = folder();
    folder.file("log", log(keys));
    folder.replay(&["--map", MAP])
}

#[test]
fn a_consumer_is_found_by_its_key_with_its_tier() {
    let acme = ["key-of-acme", "other-key-of-acme"].repeat(2);
    let report = replay(&[&acme[..], &["key-of-shop"; 3]].concat());
    assert_eq!([&report["requests"], &report["refused"]], [&json!(7), &json!(2)], "{report:#}");
    let refused = json!([
        { "limit": "plan", "key": "acme", "refused": 1, "requests": 4 },
        { "limit": "plan", "key": "shop", "refused": 1, "requests": 3 },
    ]);
    assert_eq!(report["refused_keys"], refused, "{report:#}");
    assert_eq!(report["notes"], json!([]), "{report:#}");
}

#[test]
fn an_unknown_key_gets_401_and_a_note_says_so() {
    let report = replay(&["key-of-acme", "guessed", "guessed"]);
    assert_eq!([&report["answered"], &report["refused"]], [&json!(2), &json!(0)], "{report:#}");
    let note = "2 requests get 401: no consumer of their route has the key in the log";
    assert_eq!(report["notes"], json!([note]), "{report:#}");
}

#[test]
fn a_log_without_the_header_leaves_the_limit_out_as_before() {
    let folder = folder();
    folder.file("log", log(&[""; 3]));
    let report = folder.replay(&["--map", "start=$.t,client=$.c,path=$.p,status=$.s"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("limit `plan` is left out: the log lacks `consumer`"), "{report:#}");
    assert!(notes.contains("all requests count as anonymous"), "{report:#}");
}

#[test]
fn suggest_counts_by_the_consumers_that_keys_name() {
    let folder = folder();
    folder.file("log", log(&["key-of-acme", "other-key-of-acme"].repeat(20)));
    let arguments = ["suggest", "log", "-c", "gateway.toml", "--map", MAP, "--key", "consumer"];
    let output = folder.run(&arguments, b"");
    assert_eq!(status(&output), 0, "{}", error(&output));
    assert!(text(&output).contains("From 40 requests of 1 client in"), "{}", text(&output));
}
