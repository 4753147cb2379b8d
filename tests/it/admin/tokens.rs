//! `[admin.tokens]`: what a request may do depends on its token.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate::admin_api::operations::{OPERATIONS, OperationEntry};

use crate::harness::fleet_config::{Plan, of};
use crate::harness::{Backend, Gateway, send};

/// The environment of the gateways: one variable for each token.
const SECRETS: [(&str, &str); 4] = [
    ("READ", "read-secret"),
    ("OPERATE", "operate-secret"),
    ("CHARGE", "charge-secret"),
    ("BOTH", "both-secret"),
];

const TOKENS: &str = r#"
[admin.tokens]
reader = { token_env = "READ", may = ["read"] }
operator = { token_env = "OPERATE", may = ["operate"] }
charger = { token_env = "CHARGE", may = ["charge:one"] }
billing = { token_env = "BOTH", may = ["read", "charge:one"] }
"#;

/// The right that a request needs, unless its token may operate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Operate,
    ChargeOne,
    ChargeOther,
}

/// Every request that the API knows, and the right that it needs.
const MATRIX: &[(&str, Right)] = &[
    ("GET status", Right::Read),
    ("GET samples", Right::Read),
    ("GET routes", Right::Read),
    ("GET bans", Right::Read),
    ("GET fleet", Right::Read),
    ("GET limits", Right::Read),
    ("GET limits/one/keys", Right::Read),
    ("GET limits/one/usage", Right::Read),
    ("GET refusals", Right::Read),
    ("POST explain", Right::Read),
    ("GET limits/one/keys/a", Right::Read),
    ("DELETE limits/one/keys/a", Right::Operate),
    ("POST limits/one/keys/a/ban", Right::Operate),
    ("DELETE limits/one/keys/a/ban", Right::Operate),
    ("PUT limits/one/keys/a/override", Right::Operate),
    ("DELETE limits/one/keys/a/override", Right::Operate),
    ("POST limits/one/keys/a/grant", Right::Operate),
    ("POST limits/one/keys/a/charge", Right::ChargeOne),
    ("POST limits/other/keys/a/charge", Right::ChargeOther),
    ("POST limits/unknown/keys/a/charge", Right::ChargeOther),
    ("POST limits/on%65/keys/a/charge", Right::ChargeOne),
    ("POST reload", Right::Operate),
    ("POST upstreams/backend/servers/a:1/drain", Right::Operate),
    ("DELETE upstreams/backend/servers/a:1/drain", Right::Operate),
    ("POST drain", Right::Operate),
];

fn plan(backend: &Backend) -> String {
    let lines = of("fixed-window", 5);
    let limits = "limits = [\"one\", \"other\"]";
    Plan::to(backend).route("/*", limits).limit("one", &lines).limit("other", &lines).alone()
}

fn start(backend: &Backend, more: &str) -> Gateway {
    Gateway::start_in(&format!("{}{more}", plan(backend)), &[], &SECRETS)
}

fn body(line: &str) -> &'static str {
    match line.rsplit('/').next() {
        Some("ban") => r#"{"for": "1s"}"#,
        Some("override") => r#"{"rate": "5/s"}"#,
        Some("grant" | "charge") => r#"{"units": 1}"#,
        _ if line == "POST explain" => r#"{"url": "/"}"#,
        _ => "",
    }
}

/// Sends a request to the admin listener: `GET /metrics`. Status and body.
fn ask(gateway: &Gateway, line: &str, secret: Option<&str>) -> (u16, String) {
    let body = if line.starts_with('P') { body(line) } else { "" };
    let token = secret.map(|secret| format!("authorization: Bearer {secret}\r\n")).unwrap_or_default();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = send(gateway.admin_addr(), request);
    (response.status, response.text())
}

fn api(gateway: &Gateway, line: &str, secret: Option<&str>) -> (u16, Value) {
    let (method, path) = line.split_once(' ').unwrap();
    let (status, body) = ask(gateway, &format!("{method} /api/v1/{path}"), secret);
    (status, serde_json::from_str(&body).unwrap_or_else(|fault| panic!("{line}: {fault}: {body}")))
}

/// All requests of the API's table, with a value for each name in their paths.
fn known() -> BTreeSet<String> {
    let names = [("{limit}", "one"), ("{key}", "a"), ("{upstream}", "backend"), ("{server}", "a:1")];
    let with_values = |entry: &OperationEntry| {
        let filled = |path: String, (name, value): &(&str, &str)| path.replace(name, value);
        format!("{} {}", entry.method, names.iter().fold(entry.path.to_owned(), filled))
    };
    OPERATIONS.iter().map(with_values).collect()
}

#[test]
fn every_request_of_the_api_needs_a_right() {
    let backend = Backend::ok();
    let gateway = start(&backend, TOKENS);
    let is_listed = |line: &&str| !["/other/", "/unknown/", "%"].iter().any(|part| line.contains(part));
    let listed: BTreeSet<String> =
        MATRIX.iter().map(|(line, _)| *line).filter(is_listed).map(str::to_owned).collect();
    assert_eq!(known(), listed, "the matrix lists all requests");
    // `drain` is last: it ends the gateway.
    for (line, right) in MATRIX {
        for (secret, allowed) in [
            ("read-secret", *right == Right::Read),
            ("charge-secret", *right == Right::ChargeOne),
            ("both-secret", matches!(right, Right::Read | Right::ChargeOne)),
            ("operate-secret", true),
        ] {
            let (status, value) = api(&gateway, line, Some(secret));
            assert_eq!(status != 403, allowed, "{line} with {secret}: {status} {value}");
            assert_ne!(status, 401, "{line} with {secret}");
            if !allowed {
                let detail = value["detail"].as_str().unwrap();
                assert!(detail.contains("does not have the right `"), "{detail}");
            }
        }
    }
}

#[test]
fn a_request_without_a_valid_token_is_refused_even_on_loopback() {
    let backend = Backend::ok();
    let gateway = start(&backend, TOKENS);
    for line in MATRIX.iter().map(|(line, _)| *line).chain(["GET nothing", "PUT status"]) {
        for secret in
            [None, Some("wrong"), Some("read-secre"), Some("read-secret2"), Some(""), Some("reader")]
        {
            assert_eq!(api(&gateway, line, secret).0, 401, "{line} {secret:?}");
        }
    }
    for line in ["GET /", "GET /app.js", "GET /healthz", "GET /readyz"] {
        assert_eq!(ask(&gateway, line, None).0, 200, "{line}");
    }
    for (line, secret, status) in [
        ("GET /metrics", None, 401),
        ("GET /metrics", Some("charge-secret"), 403),
        ("GET /metrics", Some("read-secret"), 200),
        ("GET /metrics", Some("operate-secret"), 200),
        ("GET /nothing", Some("charge-secret"), 404),
    ] {
        assert_eq!(ask(&gateway, line, secret).0, status, "{line} {secret:?}");
    }
    assert!(!gateway.stderr().contains("-secret"), "no secret in the log");
}

#[test]
fn the_main_token_has_all_rights_beside_the_others() {
    let backend = Backend::ok();
    let listen = "listen = \"127.0.0.1:0\"\n";
    let main = format!("{listen}token_env = \"TOLLGATE_ADMIN_TOKEN\"\n");
    let toml = format!("{}{TOKENS}", plan(&backend).replace(listen, &main));
    let gateway = Gateway::start_in(&toml, &[], &SECRETS);
    assert_eq!(api(&gateway, "GET status", Some("test-token")).0, 200);
    assert_eq!(api(&gateway, "DELETE limits/one/keys/a", Some("test-token")).0, 200);
    assert_eq!(api(&gateway, "DELETE limits/one/keys/a", Some("read-secret")).0, 403);
    assert_eq!(api(&gateway, "GET status", None).0, 401);
}

#[test]
fn the_log_names_the_token_of_a_change() {
    let backend = Backend::ok();
    let gateway = start(&backend, TOKENS);
    for line in ["DELETE limits/one/keys/a", "POST limits/one/keys/a/grant", "POST reload"] {
        assert_eq!(api(&gateway, line, Some("operate-secret")).0, 200, "{line}");
    }
    for words in [
        "(token `operator`) resets id:",
        "(token `operator`) gives 0 of 1 units back to id:",
        "reload requested by 127.0.0.1:",
        "(token `operator`) through",
    ] {
        gateway.wait_for_log(words);
    }
}

#[test]
fn a_reload_changes_the_tokens_but_never_opens_a_listener() {
    let backend = Backend::ok();
    let gateway = start(&backend, TOKENS);
    let status = |secret: Option<&str>, line: &str| api(&gateway, line, secret).0;
    assert_eq!(status(Some("read-secret"), "DELETE limits/one/keys/a"), 403);
    let swapped = "[admin.tokens]\nreader = { token_env = \"CHARGE\", may = [\"operate\"] }\n";
    gateway.reload(&format!("{}{swapped}", plan(&backend)), "changed: admin: tokens changed");
    assert_eq!(status(Some("read-secret"), "GET status"), 401, "the old secret");
    assert_eq!(status(Some("charge-secret"), "DELETE limits/one/keys/a"), 200, "the new one");
    // Without `[admin]` the listener goes on, with its last tokens.
    gateway.reload(&plan(&backend).replace("[admin]\nlisten = \"127.0.0.1:0\"\n", ""), "reloaded: ");
    let log = gateway.stderr();
    assert_eq!(
        log.matches("`admin` has changed, which takes effect only after a restart").count(),
        1,
        "{log}"
    );
    assert_eq!(status(None, "GET status"), 401);
    assert_eq!(status(Some("charge-secret"), "GET status"), 200);
    assert_eq!(status(Some("read-secret"), "GET status"), 401);
}

#[test]
fn a_listener_that_others_can_reach_keeps_its_tokens() {
    let backend = Backend::ok();
    let open = plan(&backend).replace("listen = \"127.0.0.1:0\"", "listen = \"0.0.0.0:0\"");
    let gateway = Gateway::start_in(&format!("{open}{TOKENS}"), &[], &SECRETS);
    gateway.reload(&plan(&backend), "reloaded: ");
    gateway.wait_for_log("`admin` has changed, which takes effect only after a restart");
    assert_eq!(api(&gateway, "GET status", None).0, 401);
    let (status, seen) = api(&gateway, "GET status", Some("read-secret"));
    assert_eq!((status, &seen["last_reload"]["result"]), (200, &json!("success")));
}

#[test]
fn a_charge_without_the_right_to_read_tells_no_state() {
    let backend = Backend::ok();
    let gateway = start(&backend, TOKENS);
    let line = "POST limits/one/keys/a/charge";
    let (status, seen) = api(&gateway, line, Some("charge-secret"));
    let fields: BTreeSet<&str> = seen.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((status, fields), (200, BTreeSet::from(["changed", "charged", "id", "limit", "repeated"])));
    let (status, seen) = api(&gateway, line, Some("both-secret"));
    assert_eq!((status, &seen["policies"][0]["used"]), (200, &json!(2)), "{seen}");
    gateway.wait_for_log("(token `billing`) charges 1 units to id:");
    // Each token has idempotency keys of its own.
    for (secret, repeated) in [("both-secret", false), ("operate-secret", false), ("both-secret", true)] {
        let body = r#"{"units": 1}"#;
        let request = format!(
            "POST /api/v1/limits/one/keys/b/charge HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nidempotency-key: 1\r\n\
             authorization: Bearer {secret}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let value = send(gateway.admin_addr(), request).expect(200).json();
        assert_eq!(value["repeated"], repeated, "{secret}: {value}");
    }
}
