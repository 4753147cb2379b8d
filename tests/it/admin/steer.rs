//! The admin API that steers and explains, and the dashboard's files, over real sockets.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{Gateway, Response, eventually, send};

const FILE: &str = r#"
[admin]
listen = "127.0.0.1:0"
[store]
snapshot = "counters"
[upstreams]
demo = "builtin:echo"
[limits.few]
algorithm = "token-bucket"
key = "ip"
rate = "1/day"
burst = 3
[limits.trial]
algorithm = "fixed-window"
key = "header:x-key"
missing = "skip"
rate = "10/day"
mode = "shadow"
[[routes]]
name = "search"
path = "/search/*"
upstream = "demo"
cost = 2
limits = ["few", "trial"]
[[routes]]
name = "rest"
path = "/*"
hosts = ["*.example.com"]
methods = ["GET", "POST"]
headers = { x-plan = "a secret" }
upstream = "demo"
"#;

/// Sends JSON to the admin listener.
pub(crate) fn post(gateway: &Gateway, path: &str, body: &Value) -> Response {
    post_to(gateway.admin_addr(), path, "content-type: application/json\r\n", &body.to_string())
}

fn post_to(address: SocketAddr, path: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    send(
        address,
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n{body}"),
    )
}

fn status(gateway: &Gateway) -> Value {
    gateway.admin("/api/v1/status").expect(200).json()
}

#[test]
fn the_status_tells_what_runs() {
    let gateway = Gateway::start(FILE);
    let told = status(&gateway);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&told["workers"], &told["life"]), (&json!(2), &json!("serving")));
    assert_eq!(told["last_reload"], Value::Null);
    assert_eq!(told["store"], json!({ "backend": "memory", "up": true, "max_keys": 1_000_000 }));
    assert!(told["time"].as_f64() >= told["started"].as_f64());
    let version = told["config"]["version"].as_str().unwrap();
    assert!(version.len() == 8 && version.bytes().all(|digit| digit.is_ascii_hexdigit()), "{version}");
    assert_eq!(told["config"]["file"].as_str().unwrap().rsplit('/').next(), Some("gateway.toml"));
}

#[test]
fn routes_are_told_without_secrets() {
    let gateway = Gateway::start(FILE);
    let response = gateway.admin("/api/v1/routes").expect(200);
    assert!(!response.text().contains("a secret"));
    let routes = &response.json()["routes"];
    let limits = json!([{ "name": "few", "mode": "enforce", "cost": 2, "cost_rule": null }, { "name": "trial", "mode": "shadow", "cost": 2, "cost_rule": null }]);
    assert_eq!((&routes[0]["name"], &routes[0]["limits"]), (&json!("search"), &limits));
    assert_eq!(routes[1]["hosts"], json!(["*.example.com"]));
    assert_eq!((&routes[1]["methods"], &routes[1]["headers"]), (&json!(["GET", "POST"]), &json!(["x-plan"])));
}

#[test]
fn a_reload_is_waited_for_and_tells_its_faults() {
    let gateway = Gateway::start(FILE);
    let first = status(&gateway)["config"]["version"].clone();
    let same = post(&gateway, "/api/v1/reload", &json!({})).expect(200).json();
    assert_eq!(
        same,
        json!({ "result": "success", "version": first, "changed": false, "warnings": [], "ended_bans": [] })
    );

    gateway.write_config(&FILE.replace(
        "burst = 3",
        "burst = 4\n[limits.idle]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"",
    ));
    let next = post(&gateway, "/api/v1/reload", &json!({})).expect(200).json();
    assert_eq!((&next["result"], &next["changed"]), (&json!("success"), &json!(true)));
    assert!(next["warnings"][0].as_str().unwrap().contains("idle"), "{next}");
    assert_ne!(next["version"], first);

    gateway.write_config(&FILE.replace("burst", "brust"));
    let failed = post(&gateway, "/api/v1/reload", &json!({})).expect(422).json();
    let fault = failed["faults"][0].as_str().unwrap();
    assert!(fault.contains("gateway.toml:") && fault.contains("brust"), "{fault}");
    let told = status(&gateway);
    assert_eq!(told["config"]["version"], next["version"], "what held before holds");
    assert_eq!(
        (&told["last_reload"]["result"], &told["last_reload"]["detail"]),
        (&json!("failure"), &json!(fault))
    );
    gateway.wait_for_log("reload requested by");
}

/// The file itself is the same.
#[test]
fn a_reload_tells_of_changes_to_the_files_that_it_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let consumers = folder.path().join("consumers.csv");
    let auth =
        format!("[auth.customers]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = {consumers:?}\n");
    let write =
        |lines: &str| std::fs::write(&consumers, format!("key,name\n{lines}")).expect("it is written");
    write("secret-of-acme-1,acme\n");
    let gateway = Gateway::start(&format!("{FILE}auth = \"customers\"\n{auth}"));
    for (key, changed) in [("1", false), ("2", true), ("2", false)] {
        write(&format!("secret-of-acme-{key},acme\n"));
        let told = post(&gateway, "/api/v1/reload", &json!({})).expect(200).json();
        assert_eq!((&told["result"], &told["changed"]), (&json!("success"), &json!(changed)), "{key}");
    }
}

#[test]
fn a_drain_ends_the_process() {
    let mut gateway = Gateway::start(FILE);
    gateway.get("/search/a").expect(200);
    assert_eq!(
        post(&gateway, "/api/v1/drain", &json!({})).expect(202).json(),
        json!({ "life": "draining", "changed": true })
    );
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    gateway.wait_for_log("shutdown requested by");
}

#[test]
fn an_explanation_is_that_of_the_live_counters_and_charges_nothing() {
    let gateway = Gateway::start(FILE);
    let explain = |url: &str| {
        post(&gateway, "/api/v1/explain", &json!({ "url": url, "headers": { "x-key": "k-123456789012" } }))
            .expect(200)
            .json()
    };
    for _ in 0..3 {
        let told = explain("http://a.test/search/x?q=1");
        assert_eq!(
            (&told["verdict"], &told["status"], &told["limit"]),
            (&json!("admitted"), &Value::Null, &Value::Null)
        );
        assert_eq!(told["route"]["name"], "search");
        let few = &told["limits"][0];
        assert_eq!(
            (&few["cost"], &few["key"], &few["verdict"]),
            (&json!(2), &json!(["127.0.0.1"]), &json!("admitted"))
        );
        assert_eq!(
            few["policies"],
            json!([{ "policy": "1/day, burst 3", "quota": 3, "used": 0, "remaining": 3, "next_ms": 0, "full_ms": 0 }])
        );
        let key = told["limits"][1]["key"][0].as_str().unwrap();
        assert!(key.starts_with("… #"), "what may be a secret is masked: {key}");
    }
    gateway.get("/search/x").expect(200);
    let told = explain("/search/x");
    assert_eq!(
        (&told["verdict"], &told["status"], &told["limit"]),
        (&json!("refused"), &json!(429), &json!("few"))
    );
    assert_eq!(told["limits"][0]["policies"][0]["remaining"], 1);
    let wait = told["wait_ms"].as_u64().unwrap();
    assert!((86_000_000..=86_400_000).contains(&wait), "one unit is missing: {wait}");
    assert!(told["until"].as_f64().is_some());
    assert_eq!(told["others"][0][0], "rest");
    let none = explain("/");
    assert_eq!(
        (&none["verdict"], &none["status"], &none["route"]),
        (&json!("no_route"), &json!(404), &Value::Null)
    );
    let malformed = explain("/search/%zz");
    assert_eq!(
        (&malformed["verdict"], &malformed["status"], &malformed["route"]),
        (&json!("answered"), &json!(400), &Value::Null)
    );
    assert!(malformed["reason"].as_str().is_some_and(|reason| reason.starts_with("the path contains a `%`")));
}

/// The echo shows what a backend sees: the mark of the process among it.
#[test]
fn an_explanation_tells_of_requests_that_go_round_in_a_circle() {
    let gateway = Gateway::start(FILE);
    let echo = gateway.get("/search/x").expect(200).text();
    let mark = echo.lines().find_map(|line| line.strip_prefix("cdn-loop: ")).expect("a mark").to_owned();
    let explain = |passes: usize| {
        let headers = json!({ "cdn-loop": vec![mark.as_str(); passes].join(", "), "x-key": "k-1" });
        post(&gateway, "/api/v1/explain", &json!({ "url": "/other", "headers": headers })).expect(200).json()
    };
    assert_eq!(
        (&explain(2)["verdict"], &explain(3)["verdict"]),
        (&json!("no_route"), &json!("answered")),
        "508 comes before 404"
    );
    assert_eq!(explain(3)["status"], 508);
}

#[test]
fn what_is_no_question_is_refused() {
    let gateway = Gateway::start(FILE);
    let address = gateway.admin_addr();
    let json = "content-type: application/json; charset=utf-8\r\n";
    for (fields, body, code) in [
        ("", "{}", 415),
        ("content-type: text/plain\r\n", "{}", 415),
        ("content-type: application/x-www-form-urlencoded\r\n", "url=/", 415),
        (json, "", 400),
        (json, "[]", 400),
        (json, "{\"url\":\"/\"", 400),
        (json, "{\"url\":1}", 400),
        (json, "{\"url\":\"/\",\"ip\":\"me\"}", 400),
        (json, "{\"url\":\"/\",\"header\":{}}", 400),
        (json, "{\"url\":\"/\",\"headers\":{\"a\":\"b\\nc: d\"}}", 400),
        (json, "{\"url\":\"ftp://a/\"}", 400),
    ] {
        let refused = post_to(address, "/api/v1/explain", fields, body).expect(code);
        assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{body}");
    }
    post_to(address, "/api/v1/explain", json, &format!("{{\"url\":\"/{}\"}}", "a".repeat(20_000)))
        .expect(413);
    for (line, allowed) in [("DELETE /api/v1/status", "GET, HEAD"), ("GET /api/v1/reload", "POST")] {
        let refused = send(address, format!("{line} HTTP/1.1\r\nhost: localhost\r\n\r\n")).expect(405);
        assert_eq!(refused.header("allow"), Some(allowed));
    }
    for foreign in ["host: attacker.example\r\n", "host: localhost\r\norigin: https://attacker.example\r\n"] {
        let text = format!(
            "POST /api/v1/drain HTTP/1.1\r\n{foreign}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        send(address, text).expect(403);
    }
    assert_eq!(status(&gateway)["life"], "serving");
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let gateway = Gateway::start(FILE);
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/uplot.js", "text/javascript"),
        ("/uplot.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let file = gateway.admin(path).expect(200);
        assert!(file.header("content-type").unwrap().starts_with(kind), "{path}");
        assert!(file.header("content-security-policy").unwrap().starts_with("default-src 'self'"), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let page = gateway.admin("/").text();
    assert!(!page.contains("://") && !page.contains("<script>") && !page.contains("style="), "{page}");
}

#[test]
fn a_storm_of_reloads_is_answered() {
    let gateway = Gateway::start(FILE);
    let answered = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..20).map(|_| scope.spawn(|| post(&gateway, "/api/v1/reload", &json!({})).status)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(answered.iter().all(|status| *status == 200), "{answered:?}");
    eventually("the reloads to be counted", || {
        (gateway.metric("tollgate_config_reloads_total", &["success"]) >= 1.0).then_some(())
    });
}
