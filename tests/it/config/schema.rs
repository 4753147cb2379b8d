//! The schema and the loader know the same keys, and whatever the loader accepts the schema accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tollgate::config;

use crate::harness::config::{files, parse};
use crate::harness::pages::pages;
use crate::harness::tools;

/// An unknown key, so that the loader lists the known keys.
const UNKNOWN: &str = "zzzzzzzzzz = 1";

fn schema() -> Value {
    serde_json::from_str(&config::schema()).expect("the schema is JSON")
}

/// The part of the schema that `node` stands for.
fn resolved<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect("a reference inside the schema");
            schema.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
        }
        None => node,
    }
}

/// The keys that the schema knows of the table with that title.
fn schema_keys(title: &str) -> BTreeSet<String> {
    fn find<'a>(node: &'a Value, title: &str) -> Option<&'a Value> {
        if node["title"] == title {
            return Some(&node["properties"]);
        }
        match node {
            Value::Object(fields) => fields.values().find_map(|inner| find(inner, title)),
            Value::Array(items) => items.iter().find_map(|inner| find(inner, title)),
            _ => None,
        }
    }
    let schema = schema();
    let properties = find(&schema, title).unwrap_or_else(|| panic!("the schema has no `{title}`"));
    properties.as_object().expect("properties").keys().cloned().collect()
}

/// The keys that the loader lists when it is asked for [`UNKNOWN`].
fn loader_keys(file: &str) -> BTreeSet<String> {
    let report = parse(file).expect_err("an unknown key is a fault").to_string();
    let (_, known) = report.split_once("known here: ").unwrap_or_else(|| panic!("no list in\n{report}"));
    let line = known.lines().next().expect("a line");
    line.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

#[test]
fn schema_and_loader_know_the_same_keys() {
    let cost = |keys: &str| format!("[[routes]]\ncost = {{ {keys}, {UNKNOWN} }}");
    for (title, file) in [
        ("tollgate's gateway.toml", UNKNOWN.to_owned()),
        ("[server]", format!("[server]\n{UNKNOWN}")),
        ("an item of listen", format!("server = {{ listen = [{{ {UNKNOWN} }}] }}")),
        ("an item of tls", format!("[[server.tls]]\n{UNKNOWN}")),
        ("[admin]", format!("[admin]\n{UNKNOWN}")),
        ("[admin.tokens.NAME]", format!("[admin.tokens.NAME]\n{UNKNOWN}")),
        ("[store]", format!("[store]\n{UNKNOWN}")),
        ("tls", format!("[upstreams.a]\nservers = [\"https://h\"]\ntls = {{ {UNKNOWN} }}")),
        ("tls", format!("[store]\nurl = \"rediss://h\"\ntls = {{ {UNKNOWN} }}")),
        ("[log]", format!("[log]\n{UNKNOWN}")),
        ("[trace]", format!("[trace]\n{UNKNOWN}")),
        ("[upstreams.NAME]", format!("[upstreams.a]\nbalance = \"hash\"\n{UNKNOWN}")),
        ("eject", format!("[upstreams.a.eject]\n{UNKNOWN}")),
        ("health", format!("[upstreams.a.health]\n{UNKNOWN}")),
        ("retry", format!("[upstreams.a.retry]\n{UNKNOWN}")),
        ("an item of servers", format!("[upstreams.a]\nservers = [{{ {UNKNOWN} }}, \"http://b\"]")),
        ("[[routes]]", format!("[[routes]]\n{UNKNOWN}")),
        ("an item of limits", format!("[[routes]]\nlimits = [{{ {UNKNOWN} }}]")),
        ("cost by a number in the request", cost("from = \"query:a\"")),
        ("cost by numbers in the response", cost("reserve = 1, settle = \"bytes\"")),
        ("cost by the status", cost("reserve = 1, settle = \"status\", status = { 401 = 5 }")),
        ("ban", format!("[limits.a]\nban = {{ {UNKNOWN} }}")),
        ("not", format!("[[routes]]\nnot = {{ {UNKNOWN} }}")),
        ("cors", format!("[[routes]]\ncors = {{ {UNKNOWN} }}")),
        ("reject", format!("[[routes]]\nreject = {{ {UNKNOWN} }}")),
        ("redirect", format!("[[routes]]\nredirect = {{ {UNKNOWN} }}")),
        ("respond", format!("[[routes]]\nrespond = {{ {UNKNOWN} }}")),
        ("errors.NNN", format!("[errors]\n404 = {{ {UNKNOWN} }}")),
    ] {
        assert_eq!(schema_keys(title), loader_keys(&file), "{title}");
    }
}

#[test]
fn schema_and_loader_know_the_same_keys_of_a_limit() {
    let all = &schema()["$defs"]["limit"]["properties"]["algorithm"]["anyOf"][0]["enum"];
    let algorithms: Vec<&str> = all.as_array().expect("choices").iter().filter_map(Value::as_str).collect();
    assert_eq!(algorithms.len(), 7);
    let keys_of =
        |algorithm: &&str| loader_keys(&format!("[limits.a]\nalgorithm = \"{algorithm}\"\n{UNKNOWN}"));
    let known: BTreeSet<String> = algorithms.iter().flat_map(keys_of).collect();
    assert_eq!(schema_keys("[limits.NAME]"), known);
}

#[test]
fn every_key_is_described() {
    fn walk(schema: &Value, node: &Value, path: &str) {
        for (key, property) in node["properties"].as_object().into_iter().flatten() {
            let here = format!("{path}/{key}");
            let described =
                property["description"].is_string() || resolved(schema, property)["description"].is_string();
            assert!(described, "{here} has no description");
            assert_eq!(node["additionalProperties"], false, "{path} lets unknown keys in");
        }
        match node {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, inner)| walk(schema, inner, &format!("{path}/{key}")))
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(schema, inner, path)),
            _ => {}
        }
    }
    walk(&schema(), &schema(), "");
}

/// The faults that an editor's engine finds in files, by name.
fn faults(files: BTreeMap<String, String>) -> BTreeMap<String, Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/editor.py");
    let mut engine = tools::json_schema()
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let asked = json!({ "schema": schema(), "files": files });
    let mut input = engine.stdin.take().expect("a pipe");
    input.write_all(asked.to_string().as_bytes()).expect("the engine reads");
    drop(input);
    let output = engine.wait_with_output().expect("the engine ends");
    assert!(output.status.success(), "the schema is a JSON Schema");
    serde_json::from_slice(&output.stdout).expect("faults by name")
}

#[test]
fn an_editor_accepts_every_file_that_the_loader_accepts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shipped = ["gateway.toml", "packaging/gateway.toml", "docs/examples/routes.toml"]
        .map(|path| (path.to_owned(), std::fs::read(root.join(path)).expect("a shipped file")));
    let valid = files("valid", "toml").into_iter().map(|(path, bytes)| (path.display().to_string(), bytes));
    let text =
        |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_start_matches('\u{feff}').to_owned();
    let faults = faults(valid.chain(shipped).map(|(path, bytes)| (path, text(bytes))).collect());
    assert!(faults.len() > 30 && faults.values().all(Vec::is_empty), "{faults:#?}");
}

#[test]
fn an_editor_refuses_what_no_file_may_say() {
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"a\"";
    let keys = [
        "cots = 1",
        "cost = 1_000_000_001",
        "cost = \"1\"",
        "cost = { reserve = 1 }",
        "cost = { from = \"query:a\", reserve = 1 }",
        "cost = { reserve = 1, settle = [] }",
        "cost = { reserve = 1, settle = \"status\", status = { 401 = -1 } }",
        "headers = { x-a = 1 }",
        "cookies = { a = [] }",
        "not = { headers = { x-a = [\"b\", 1] } }",
        "not = {}",
        "[limits.a]\nalgorithm = \"bucket\"\nkey = \"ip\"\nrate = \"1/s\"",
        "[limits.a]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 0",
        "[server]\nmax_connections = 0",
        "[server]\nidle_timeout = 10",
    ];
    let refused = ["routes = []".to_owned(), "[[routes]]\nupstream = \"a\"".to_owned()];
    let refused: Vec<_> = keys.map(|key| format!("{route}\n{key}")).into_iter().chain(refused).collect();
    let count = refused.len();
    let faults = faults(refused.into_iter().map(|file| (file.clone(), file)).collect());
    let accepted: Vec<_> = faults.iter().filter(|(_, faults)| faults.is_empty()).collect();
    assert!(faults.len() == count && accepted.is_empty(), "{accepted:#?}");
}

/// A page of docs/ names each key, in back-ticks or in a block of a configuration.
#[test]
fn every_key_stands_in_the_documentation() {
    let pages: String = pages().into_iter().map(|page| page.text).collect();
    let schema = schema();
    let tables = schema["$defs"].as_object().expect("definitions").iter();
    let keys = tables.flat_map(|(table, definition)| {
        let keys = definition["properties"].as_object().into_iter().flat_map(|keys| keys.keys());
        keys.map(move |key| (table, key))
    });
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let stands = |key: &str| {
        pages.match_indices(key).any(|(at, _)| {
            let (before, after) = (&pages[..at], &pages[at + key.len()..]);
            let line = before.rsplit('\n').next().unwrap_or_default();
            let is_whole = !is_word(before.bytes().next_back()) && !is_word(after.bytes().next());
            is_whole && (line.matches('`').count() % 2 == 1 || after.trim_start().starts_with('='))
        })
    };
    let absent: Vec<_> = keys.filter(|(_, key)| !stands(key)).collect();
    assert!(absent.is_empty(), "{absent:?}");
}
