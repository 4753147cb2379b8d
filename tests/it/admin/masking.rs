//! Keys in the views of the admin listener: told apart, acted upon, and never shown.

use serde_json::{Value, json};

use crate::harness::api::good;
use crate::harness::api::{api, samples_with};
use crate::harness::{Backend, Gateway, everything_to, get_with};

const TOML: &str = "limits = [\"one\"]\n[limits.one]\nalgorithm = \"token-bucket\"\nkey = \"header:authorization\"\nrate = \"1/day\"\nburst = 1\n\
                    [log]\nlevel = \"debug\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
/// They differ in the middle only.
const TOKENS: [&str; 2] = ["Bearer token-of-alice-f3a9", "Bearer token-of-bobby-f3a9"];

fn spend(gateway: &Gateway, token: &str, status: u16) -> String {
    get_with(gateway.addr(), "/", &format!("authorization: {token}\r\n")).expect(status).head.clone()
}

/// Label and id of each key that asks most.
fn keys(gateway: &Gateway) -> Vec<(String, String)> {
    let told = api(gateway, "limits/one/keys");
    let key =
        |one: &Value| (one["key"][0].as_str().unwrap().to_owned(), one["id"].as_str().unwrap().to_owned());
    told["keys"].as_array().unwrap().iter().map(key).collect()
}

#[test]
fn keys_are_told_apart_and_acted_upon_without_showing_them() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, TOML));
    for token in TOKENS {
        spend(&gateway, token, 200);
        spend(&gateway, token, 429);
    }
    samples_with(&gateway, 4);
    let keys = keys(&gateway);
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|(label, _)| label.starts_with("Bearer …f3a9 #")), "{keys:?}");
    assert_ne!(keys[0].0, keys[1].0);
    // All views call a key the same.
    let refusals = api(&gateway, "refusals");
    for refusal in refusals["refusals"].as_array().unwrap() {
        let named =
            (refusal["key"][0].as_str().unwrap().to_owned(), refusal["id"].as_str().unwrap().to_owned());
        assert!(keys.contains(&named), "{refusal}");
    }
    let body = json!({ "url": "/", "headers": { "authorization": TOKENS[0] } });
    let explained = good(&gateway, "POST explain", &body.to_string());
    let [alice, bobby] = if explained["limits"][0]["id"] == keys[0].1.as_str() { [0, 1] } else { [1, 0] };
    assert_eq!(explained["limits"][0]["key"], json!([keys[alice].0]));
    let one = good(&gateway, &format!("GET limits/one/keys/{}", keys[bobby].1), "");
    assert_eq!((&one["key"], &one["verdict"]), (&json!([keys[bobby].0]), &json!("refused")));
    // A key is acted upon by the id that stands beside its label.
    good(&gateway, &format!("DELETE limits/one/keys/{}", keys[alice].1), "");
    spend(&gateway, TOKENS[1], 429);
    spend(&gateway, TOKENS[0], 200);
    let dashboard = gateway.admin("/").expect(200).text();
    let told = [
        api(&gateway, "limits/one/keys").to_string(),
        refusals.to_string(),
        explained.to_string(),
        one.to_string(),
        dashboard,
        gateway.admin("/metrics").expect(200).text(),
        gateway.stdout_lines().join("\n"),
        gateway.stderr(),
    ]
    .concat();
    for secret in ["token-of", "alice", "bobby"] {
        assert!(!told.contains(secret), "`{secret}` stands in\n{told}");
    }
}

/// A short id of this process says nothing elsewhere: another process has other ones.
#[test]
fn short_ids_are_those_of_a_process_and_outlive_its_reloads() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, TOML);
    let labels: Vec<String> = (0..2)
        .map(|_| {
            let gateway = Gateway::start(&toml);
            spend(&gateway, "1234", 200);
            samples_with(&gateway, 1);
            let before = keys(&gateway);
            assert!(before[0].0.starts_with("… #"), "{before:?}");
            gateway.reload(&toml.replace("burst = 1", "burst = 2"), "reloaded");
            spend(&gateway, "1234", 200);
            samples_with(&gateway, 2);
            assert_eq!(keys(&gateway), before);
            before[0].0.clone()
        })
        .collect();
    assert_ne!(labels[0], labels[1]);
}
