//! The schema and the loader know the same keys, and whatever the loader accepts the schema accepts.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate::config;

use crate::harness::config::{files, parse};

/// An unknown key, so that the loader lists the known keys.
const UNKNOWN: &str = "zzzzzzzzzz = 1";

fn schema() -> Value {
    serde_json::from_str(config::SCHEMA).expect("the schema is JSON")
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

#[test]
fn the_schema_accepts_every_file_that_the_loader_accepts() {
    let schema = schema();
    let tour = include_bytes!("../../../gateway.toml").to_vec();
    for (path, bytes) in files("valid", "toml").into_iter().chain([("gateway.toml".into(), tour)]) {
        let text = String::from_utf8(bytes).expect("text");
        let file: Value = toml::from_str(text.trim_start_matches('\u{feff}')).expect("TOML");
        if let Err(fault) = accepts(&schema, &schema, &file) {
            panic!("{}: {fault}", path.display());
        }
    }
}

#[test]
fn the_schema_refuses_what_no_file_may_say() {
    let schema = schema();
    for file in [
        "routes = []",
        "[[routes]]\npath = \"/*\"",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncots = 1",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = 1_000_000_001",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = \"1\"",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = { reserve = 1 }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = { from = \"query:a\", reserve = 1 }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = { reserve = 1, settle = [] }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncost = { reserve = 1, settle = \"status\", status = { 401 = -1 } }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\nheaders = { x-a = 1 }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\ncookies = { a = [] }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\nnot = { headers = { x-a = [\"b\", 1] } }",
        "[[routes]]\npath = \"/*\"\nupstream = \"a\"\n[limits.a]\nalgorithm = \"bucket\"\nkey = \"ip\"\nrate = \"1/s\"",
    ] {
        let file: Value = toml::from_str(file).expect("TOML");
        assert!(accepts(&schema, &schema, &file).is_err(), "{file}");
    }
}

/// Whether `node` of the schema accepts a value: the part of JSON Schema that ours uses, but for patterns.
fn accepts(schema: &Value, node: &Value, value: &Value) -> Result<(), String> {
    let node = resolved(schema, node);
    if let Some(choices) = node["anyOf"].as_array() {
        let refusals: Vec<String> =
            choices.iter().filter_map(|choice| accepts(schema, choice, value).err()).collect();
        if refusals.len() == choices.len() {
            return Err(refusals.join(", "));
        }
    }
    let is_allowed = node["enum"].as_array().is_none_or(|choices| choices.contains(value))
        && node.get("const").is_none_or(|only| only == value)
        && node["type"].as_str().is_none_or(|name| is_of_type(value, name))
        && node["minimum"].as_f64().is_none_or(|min| value.as_f64() >= Some(min))
        && node["maximum"].as_f64().is_none_or(|max| value.as_f64() <= Some(max))
        && (node["pattern"] != "\\$\\{" || value.as_str().is_some_and(|text| text.contains("${")));
    if !is_allowed {
        return Err(format!("{value} is not {node}"));
    }
    match value {
        Value::Array(items) => accepts_items(schema, node, items),
        Value::Object(fields) => accepts_fields(schema, node, fields),
        _ => Ok(()),
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        _ => panic!("the type `{name}` is new here"),
    }
}

fn accepts_items(schema: &Value, node: &Value, items: &[Value]) -> Result<(), String> {
    let min = node["minItems"].as_u64().unwrap_or(0);
    let max = node["maxItems"].as_u64().unwrap_or(u64::MAX);
    if !(min..=max).contains(&u64::try_from(items.len()).expect("a length")) {
        return Err(format!("{} items", items.len()));
    }
    items.iter().try_for_each(|item| accepts(schema, &node["items"], item))
}

fn accepts_fields(
    schema: &Value,
    node: &Value,
    fields: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    for required in node["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        fields.get(required).ok_or_else(|| format!("no `{required}`"))?;
    }
    for (key, value) in fields {
        let rest = &node["additionalProperties"];
        if rest.is_null() {
            continue;
        }
        let property = node["properties"].get(key).or_else(|| rest.is_object().then_some(rest));
        accepts(schema, property.ok_or_else(|| format!("`{key}` is unknown"))?, value)?;
    }
    Ok(())
}
