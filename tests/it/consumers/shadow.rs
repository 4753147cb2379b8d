//! Auths in shadow: requests that they would refuse are counted and logged, and reach the backend as they came.

use serde_json::Value;

use super::{BY_CONSUMER, CSV, Files, key};
use crate::harness::{Backend, Client, Gateway, Next, everything_to};

/// A backend that checks keys itself: it takes `key-ada-1` and one that the gateway's file lacks.
fn checking() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        let key = exchange.field("x-api-key").unwrap_or_default();
        let status = if ["key-ada-1", "key-new-1"].contains(&key.as_str()) { 200 } else { 401 };
        exchange.write(format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

fn shadow(files: &Files, rest: &str) -> String {
    files.auth("keys", "header:x-api-key", &format!("mode = \"shadow\"\n{rest}"))
}

fn auth_metric(gateway: &Gateway, auth: &str, result: &str) -> f64 {
    gateway.metric("tollgate_auth_total", &[&format!("auth=\"{auth}\""), &format!("result=\"{result}\"")])
}

/// Of a gateway that one connection has asked, in order.
fn shadows(gateway: &Gateway, count: usize) -> Vec<String> {
    gateway
        .access_log(count)
        .iter()
        .map(|line| line["shadow"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn no_request_is_refused_and_each_that_would_be_is_told() {
    let (backend, files) = (checking(), Files::with_consumers(CSV));
    let toml = everything_to(
        &backend,
        &format!("auth = \"keys\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}", shadow(&files, "")),
    );
    let gateway = Gateway::start(&toml);
    let mut client = Client::connect(gateway.addr());
    client.get("/", &key("key-ada-1")).expect(200);
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("ada"));
    client.get("/", &key("key-new-1")).expect(200);
    assert_eq!(backend.latest().header("x-consumer"), None, "it is anonymous");
    let response = client.get("/", &key("key-wrong")).expect(401);
    assert_eq!(response.header("www-authenticate"), None, "that is the backend's answer");
    client.get("/", "").expect(401);
    client.get("/", &(key("key-ada-1") + &key("key-bob-1"))).expect(200);
    assert_eq!(backend.count(), 5);
    let told = shadows(&gateway, 5);
    assert_eq!(
        told,
        [
            "",
            "auth.keys:credential_invalid",
            "auth.keys:credential_invalid",
            "auth.keys:credential_missing",
            "auth.keys:credential_repeated"
        ]
    );
    assert_eq!(
        (auth_metric(&gateway, "keys", "accepted"), auth_metric(&gateway, "keys", "shadow_refused")),
        (1.0, 4.0)
    );
    for other in ["anonymous", "missing", "invalid", "repeated"] {
        assert_eq!(auth_metric(&gateway, "keys", other), 0.0, "{other}");
    }
    // The gateway decides once the mode is `enforce`, and keeps the key for itself.
    let before = backend.count();
    gateway.reload(&toml.replace("mode = \"shadow\"\n", ""), "mode");
    let mut client = Client::connect(gateway.addr());
    client.get("/", &key("key-new-1")).expect(401);
    assert_eq!(backend.count(), before);
    client.get("/", &key("key-ada-1"));
    assert_eq!((backend.count(), backend.latest().header("x-api-key")), (before + 1, None));
}

#[test]
fn limits_of_failures_and_requirements_refuse_nothing() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let wrong = "[limits.wrong]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1/day\"\n";
    let auth = shadow(&files, "failures = \"wrong\"");
    let toml =
        everything_to(&backend, &format!("auth = \"keys\"\nrequire = {{ tier = \"pro\" }}\n{auth}{wrong}"));
    let gateway = Gateway::start(&toml);
    let mut client = Client::connect(gateway.addr());
    for sent in ["key-wrong", "key-wrong", "key-wrong", "key-bob-1", "key-ada-1"] {
        client.get("/", &key(sent)).expect(200);
    }
    let told = shadows(&gateway, 5);
    let invalid = "auth.keys:credential_invalid";
    assert_eq!(told, [invalid, invalid, invalid, "auth.keys:insufficient_scope", ""]);
    assert_eq!(backend.requests()[3].header("x-consumer").as_deref(), Some("bob"), "it is known who it was");
}

#[test]
fn limits_by_consumer_count_anonymous_requests_by_address() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let route = format!("auth = \"keys\"\nlimits = [\"api\"]\n{}{BY_CONSUMER}", shadow(&files, ""));
    let gateway = Gateway::start(&everything_to(&backend, &route));
    let mut client = Client::connect(gateway.addr());
    let statuses: Vec<_> = ["key-1", "key-2", "key-3", "key-ada-1"]
        .iter()
        .map(|sent| client.get("/", &key(sent)).status)
        .collect();
    assert_eq!(statuses, [200, 200, 429, 200]);
}

#[test]
fn a_credential_is_cut_where_the_file_says_so() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let route = format!("auth = \"keys\"\nforward_credentials = false\n{}", shadow(&files, ""));
    let gateway = Gateway::start(&everything_to(&backend, &route));
    Client::connect(gateway.addr()).get("/", &key("key-ada-1")).expect(200);
    assert_eq!(backend.latest().header("x-api-key"), None);
}

/// Its answers, and its silence.
#[test]
fn a_service_in_shadow_refuses_nothing() {
    let backend = Backend::ok();
    let service = Backend::start(|exchange| {
        let (status, lines) = match exchange.field("x-user").as_deref() {
            Some("ada") => (200, "x-name: ada\r\n"),
            Some("sign-in") => (302, "location: /login\r\n"),
            Some("broken") => return Next::Close,
            _ => (401, ""),
        };
        exchange.write(format!("HTTP/1.1 {status} Status\r\n{lines}content-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let auth = format!(
        "[auth.sso]\ntype = \"forward\"\nmode = \"shadow\"\nurl = \"{}/auth\"\ncache_by = [\"x-user\"]\n\
         name = \"header:x-name\"\n",
        service.url()
    );
    let gateway = Gateway::start(&everything_to(&backend, &format!("auth = \"sso\"\n{auth}")));
    let mut client = Client::connect(gateway.addr());
    for user in ["ada", "sign-in", "eve", "broken"] {
        client.get("/", &format!("x-user: {user}\r\n")).expect(200);
    }
    let told = shadows(&gateway, 4);
    assert_eq!(
        told,
        ["", "auth.sso:forward_auth", "auth.sso:forward_auth", "auth.sso:credential_unverified"]
    );
    let consumers: Vec<_> = backend.requests().iter().map(|request| request.header("x-consumer")).collect();
    assert_eq!(consumers, [Some("ada".to_owned()), None, None, None]);
}

#[test]
fn explain_and_check_tell_it() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let toml = everything_to(&backend, &format!("auth = \"keys\"\n{}", shadow(&files, "")));
    let (status, summary) = files.check(&toml);
    assert_eq!(status, 0, "{summary}");
    assert!(summary.contains("in shadow: it refuses no request."), "{summary}");
    assert!(
        summary.contains("would require, and looks for a credential of `keys`, which the backend gets too")
    );
    let explained = files.tollgate(&toml, &["explain", "GET", "/", "-H", "x-api-key: key-none"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("`keys` would answer 401: the credential is not known"), "{text}");
    let explained = files.tollgate(&toml, &["explain", "GET", "/", "--json"]);
    let report: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    assert_eq!(report["shadow"], "`keys` would answer 401: this route requires a credential");
}

#[test]
fn auths_of_a_route_have_one_mode() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let other = files.auth("others", "query:key", "");
    let route = format!("auth = [\"keys\", \"others\"]\n{}{other}", shadow(&files, ""));
    let (status, told) = files.check(&everything_to(&backend, &route));
    assert_eq!(status, 2);
    assert!(told.contains("of `keys` and `others` only one is in shadow"), "{told}");
}
