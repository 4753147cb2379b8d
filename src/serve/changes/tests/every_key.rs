//! Each key of the configuration's schema, changed alone: a reload never says "no changes".

use std::collections::BTreeSet;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use serde_json::Value;

use crate::config;
use crate::plan::Plan;
use crate::serve::changes::changes;
use crate::serve::reload::{RestartOnlySettings, summary};

/// A file in which each key can be changed.
const BASE: &str = include_str!("base.toml");

/// A key of the schema, a text of [`BASE`], and what it is replaced by; `+ ` in front: what is added below its line. The
/// line `SECTION.*` says where keys of a section stand that have no line: they get a value of their type.
const CASES: &str = include_str!("cases.txt");

/// The keys of all tables that the schema describes: `limit.burst`, `route.cors.origins`.
fn keys_of_schema() -> BTreeSet<String> {
    fn walk(node: &Value, path: &str, found: &mut BTreeSet<String>) {
        if !node.is_object() {
            return;
        }
        for (key, inner) in node["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            walk(inner, &path, found);
            found.insert(path);
        }
        let choices = node["anyOf"].as_array().into_iter().flatten();
        for inner in choices.chain([&node["items"], &node["additionalProperties"]]) {
            walk(inner, path, found);
        }
    }
    let schema: Value = serde_json::from_str(&config::schema()).expect("the schema is JSON");
    let mut found = BTreeSet::new();
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        walk(definition, name, &mut found);
    }
    let sections = schema["properties"].as_object().expect("sections");
    // A set is part of the routes that use it: no plan has it.
    found.retain(|key| !key.starts_with("set."));
    found.extend(sections.keys().map(|section| format!("file.{section}")));
    found
}

struct Case {
    key: String,
    next: String,
}

/// The lines of [`CASES`]: a key, a text of [`BASE`] and its replacement.
fn lines() -> Vec<[String; 3]> {
    let lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = |line: &str| match line.splitn(3, " | ").collect::<Vec<_>>()[..] {
        [key, from, to] => [key, from, to].map(str::to_owned),
        _ => panic!("a case has three parts: {line}"),
    };
    lines.map(parts).collect()
}

/// A value that is not the default of a key whose type says all about it.
fn other_value(property: &Value) -> Option<String> {
    let default = &property["default"];
    match property["$ref"].as_str() {
        Some("#/$defs/duration") => return Some("\"3s\"".to_owned()),
        Some("#/$defs/size") => return Some("\"8MiB\"".to_owned()),
        _ => {}
    }
    let kind = &property["anyOf"][0];
    let (min, max) = (kind["minimum"].as_u64(), kind["maximum"].as_u64());
    match kind["type"].as_str() {
        Some("boolean") => Some((default != true).to_string()),
        Some("integer") if default.as_u64() == max => max.map(|max| (max - 1).to_string()),
        Some("integer") => default.as_u64().or(min).map(|number| (number + 1).to_string()),
        Some("number") => Some("0.3".to_owned()),
        _ => kind["enum"].as_array()?.iter().find(|word| *word != default).map(ToString::to_string),
    }
}

fn cases() -> Vec<Case> {
    let lines = lines();
    let mut all: Vec<Case> = Vec::new();
    for [key, from, to] in &lines {
        let [from, to] = [from, to].map(|text| text.replace("\\n", "\n").replace("(nothing)", ""));
        assert_eq!(BASE.matches(&from).count(), 1, "{key}: `{from}` stands once in the file");
        let Some(section) = key.strip_suffix(".*") else {
            let to = to.strip_prefix("+ ").map_or(to.clone(), |added| format!("{from}\n{added}"));
            all.push(Case { key: key.clone(), next: BASE.replacen(&from, &to, 1) });
            continue;
        };
        let schema: Value = serde_json::from_str(&config::schema()).expect("the schema is JSON");
        let properties = schema["$defs"][section]["properties"].as_object().expect("a section");
        for (name, property) in properties {
            let key = format!("{section}.{name}");
            let has_line = lines.iter().any(|[other, ..]| *other == key);
            if let (false, Some(value)) = (has_line, other_value(property)) {
                let next = BASE.replacen(&from, &format!("{from}\n{name} = {value}"), 1);
                all.push(Case { key, next });
            }
        }
    }
    all
}

/// A list of withdrawn certificates, as PEM.
fn revocations() -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::CrlSign];
    let issuer = Issuer::new(params, KeyPair::generate().expect("a key"));
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2026, 1, 1),
        next_update: date_time_ymd(4096, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&issuer).expect("a list").pem().expect("text")
}

/// The files that [`BASE`] names, and others that a key may name instead.
fn write_files(folder: &Path) {
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/certificates");
    for name in ["server.pem", "server.key"] {
        let text = std::fs::read_to_string(certificates.join(name)).expect("a certificate");
        std::fs::write(folder.join(name), &text).expect("written");
        std::fs::write(folder.join(format!("again-{name}")), format!("{text}\n")).expect("written");
    }
    let geo = certificates.with_file_name("geo");
    for name in ["country.mmdb", "other.mmdb"] {
        std::fs::copy(geo.join(name), folder.join(name)).expect("copied");
    }
    std::fs::write(folder.join("crl.pem"), revocations()).expect("written");
    let user = format!("shop:$2y$05${}\n", "u".repeat(53));
    for (name, text) in [
        ("consumers.csv", "key,name\n0123456789,shop\n"),
        ("others.csv", "key,name\n9876543210,shop\n"),
        ("rates.csv", "192.0.2.0/24,pro\n"),
        ("other-rates.csv", "192.0.2.0/25,pro\n"),
        ("users", &user),
        ("page.html", "sorry"),
        ("other.html", "gone"),
        ("more.toml", "[[routes]]\npath = \"/more\"\nupstream = \"demo\"\n"),
        (
            "keys.json",
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
        ),
        (
            "other-keys.json",
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"b","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
        ),
    ] {
        std::fs::write(folder.join(name), text).expect("written");
    }
}

fn plan(text: &str, folder: &Path, key: &str) -> Plan {
    let file = folder.join("gateway.toml");
    let environment = |name: &str| {
        let secret = || format!("a secret of {name}, with 32 bytes and more");
        Some(if name == "STORE" { "rediss://127.0.0.1:6381".to_owned() } else { secret() })
    };
    match config::parse(text.as_bytes(), file.to_str().expect("UTF-8"), &environment) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{key}:\n{report}"),
    }
}

/// What a reload from one plan to another logs.
fn logged(last: &Plan, mut next: Plan) -> Vec<String> {
    let addresses = last.server.listen.iter().map(|listener| listener.address).collect();
    let settings = RestartOnlySettings::of(last, addresses);
    let waiting = settings.unlike(&next);
    settings.impose_on(&mut next);
    let changes = changes(last, &next);
    let summary = summary(changes.len(), waiting.len());
    [summary].into_iter().chain(waiting.into_iter().map(str::to_owned)).chain(changes).collect()
}

#[test]
fn each_key_of_the_schema_is_changed() {
    let changed: BTreeSet<String> = cases().into_iter().map(|case| case.key).collect();
    assert_eq!(keys_of_schema(), changed);
}

#[test]
fn no_key_of_the_schema_changes_without_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path());
    let last = plan(BASE, folder.path(), "base");
    assert_eq!(logged(&last, plan(BASE, folder.path(), "base")), ["reloaded: no changes"]);
    let mut silent = Vec::new();
    for Case { key, next } in cases() {
        let lines = logged(&last, plan(&next, folder.path(), &key));
        if lines[0] == "reloaded: no changes" || lines.len() < 2 {
            silent.push(format!("{key}: {lines:?}"));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}
