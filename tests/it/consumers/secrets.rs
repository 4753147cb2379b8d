//! No key shows in logs, metrics, admin views, traces, reports or what `explain` prints.

use std::fmt::Write as _;

use rustix::process::Signal;

use super::Files;
use crate::harness::api::{api, ask};
use crate::harness::{Backend, Client, Collector, Gateway, eventually, everything_to, send};

/// A part of every key of these tests, good or wrong.
const SECRET: &str = "hush-hush";
const SOURCES: [(&str, &str); 4] = [
    ("header", "header:x-api-key"),
    ("token", "bearer"),
    ("parameter", "query:api_key"),
    ("crumb", "cookie:session"),
];

/// Good keys of 24 bytes.
fn consumers() -> Files {
    Files::with_consumers(
        "key,name,tier\nhush-hush-0123456789-one,acme,pro\nhush-hush-0123456789-two,zeta,\n",
    )
}

/// Takes keys from four places, each on a route of its own: `/header`, `/token`, `/parameter`, `/crumb`. All limits.
fn configuration(backend: &Backend, files: &Files, rest: &str) -> String {
    let mut toml = format!(
        "{rest}\n[upstreams]\napi = \"{}\"\n\
         [limits.consumers]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"3/day\"\nmissing = \"skip\"\n\
         [limits.wrong]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"10/day\"\n",
        backend.url()
    );
    for (name, source) in SOURCES {
        let auth = files.auth(name, source, "failures = \"wrong\"");
        write!(
            toml,
            "{auth}[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"api\"\nauth = \"{name}\"\nlimits = [\"consumers\"]\n"
        )
        .expect("text");
    }
    toml
}

/// A request with a credential in each place, and with a referrer that has one in its query.
fn request(path: &str, secret: &str) -> String {
    format!(
        "GET {path}?a=1&api_key={secret}&b=2 HTTP/1.1\r\nhost: test\r\nx-api-key: {secret}\r\n\
         authorization: Bearer {secret}\r\ncookie: c=3; session={secret}\r\n\
         referer: https://test/page?api_key={secret}&d=4\r\nuser-agent: tests\r\n\r\n"
    )
}

/// Good and wrong keys in all places; refusals of all kinds. The number of requests.
fn traffic(gateway: &Gateway) -> usize {
    let mut client = Client::connect(gateway.addr());
    let mut count = 0;
    for (name, _) in SOURCES {
        for secret in
            ["hush-hush-0123456789-one", "hush-hush-wrong", "hush-hush-wronger", "hush-hush-wrongest"]
        {
            client.exchange(request(&format!("/{name}"), secret));
            count += 1;
        }
    }
    // Two keys that differ, no route, and a request that is malformed.
    let twice = "GET /parameter?api_key=hush-hush-1&api_key=hush-hush-2 HTTP/1.1\r\nhost: test\r\n\r\n";
    send(gateway.addr(), twice).expect(400);
    send(gateway.addr(), request("/none", "hush-hush-nowhere")).expect(404);
    send(gateway.addr(), request("/%zz", "hush-hush-nowhere")).expect(400);
    send(gateway.addr(), "GET /?api_key=hush-hush-odd HTTP/1.1\r\nhost: test\r\nhost: other\r\n\r\n")
        .expect(400);
    count + 4
}

#[track_caller]
fn assert_hidden(place: &str, text: &str) {
    let shown: Vec<_> = text.lines().filter(|line| line.contains(SECRET)).collect();
    assert!(shown.is_empty(), "{place} shows a key:\n{}", shown.join("\n"));
}

#[test]
fn logs_metrics_and_admin_views_show_no_key() {
    let (backend, files) = (Backend::ok(), consumers());
    let rest = "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nlevel = \"trace\"\n";
    let gateway = Gateway::start(&configuration(&backend, &files, rest));
    let count = traffic(&gateway);
    let log = gateway.access_log(count);
    assert!(log.iter().any(|record| record["path"] == "/parameter?a=1&b=2"), "the rest of a query is logged");
    assert!(
        log.iter().any(|record| record["status"] == 429) && log.iter().any(|record| record["status"] == 401)
    );
    assert_hidden("the access log", &gateway.stdout_lines().join("\n"));
    assert_hidden("the metrics", &gateway.admin("/metrics").text());
    for view in [
        "status",
        "routes",
        "limits",
        "limits/consumers/keys",
        "limits/wrong/keys",
        "limits/consumers/keys/acme",
        "upstreams",
        "refusals",
        "samples",
        "config",
    ] {
        let response = gateway.admin(&format!("/api/v1/{view}"));
        assert_hidden(view, &format!("{}\n{}", response.head, response.text()));
    }
    let refusals = api(&gateway, "refusals").to_string();
    assert!(refusals.contains("/parameter"), "there are samples: {refusals}");
    let body = serde_json::json!({
        "method": "GET",
        "url": "http://test/parameter?api_key=hush-hush-0123456789-one&b=2",
        "headers": { "x-api-key": "hush-hush-0123456789-one", "cookie": "session=hush-hush-0123456789-one" },
    });
    let (status, explained) = ask(&gateway, "POST explain", &body.to_string());
    assert_eq!((status, &explained["consumer"], &explained["tier"]), (200, &"acme".into(), &"pro".into()));
    assert_hidden("the explanation", &explained.to_string());
    assert_hidden("the program log", &gateway.stderr());
}

#[test]
fn the_combined_log_shows_no_key_in_path_or_referrer() {
    let (backend, files) = (Backend::ok(), consumers());
    let gateway = Gateway::start(&configuration(&backend, &files, "[log]\naccess = \"combined\"\n"));
    let count = traffic(&gateway);
    let lines =
        eventually("the access log", || Some(gateway.stdout_lines()).filter(|lines| lines.len() >= count));
    let text = lines.join("\n");
    assert_hidden("the access log", &text);
    assert!(text.contains("\"GET /parameter?a=1&b=2 HTTP/1.1\" 200"), "{text}");
    assert!(
        text.contains("\"https://test/page?d=4\" \"tests\""),
        "the rest of a referrer is logged:\n{text}"
    );
}

#[test]
fn traces_show_no_key() {
    let (backend, files, collector) = (Backend::ok(), consumers(), Collector::start());
    let toml = configuration(&backend, &files, &collector.section("sample = 1"));
    let gateway = Gateway::start(&toml);
    let requests = traffic(&gateway);
    // Those that were forwarded have two spans.
    let forwarded = backend.count();
    assert!(forwarded > 0);
    let spans = collector.wait(requests + forwarded);
    assert!(spans.iter().any(|span| span.get("url.path") == "/parameter"));
    for span in &spans {
        assert_hidden("a span", &format!("{span:?}"));
    }
    for request in collector.backend().requests() {
        assert_hidden("an export", &String::from_utf8_lossy(&request.body));
    }
}

#[test]
fn explain_prints_no_key() {
    let (backend, files) = (Backend::ok(), consumers());
    let toml = configuration(&backend, &files, "");
    for arguments in [
        vec![
            "explain",
            "GET",
            "http://test/header?api_key=hush-hush-0123456789-one",
            "-H",
            "x-api-key: hush-hush-0123456789-one",
        ],
        vec!["explain", "GET", "http://test/parameter?x=1&api_key=hush-hush-0123456789-one"],
        vec!["explain", "GET", "http://test/parameter?api_key=hush-hush-wrong"],
        vec!["explain", "GET", "http://test/token", "-H", "authorization: Bearer hush-hush-wrong"],
        vec!["explain", "GET", "http://test/crumb", "-H", "cookie: session=hush-hush-0123456789-two"],
        vec!["explain", "GET", "http://test/none?api_key=hush-hush-wrong"],
    ] {
        let output = files.tollgate(&toml, &arguments);
        let printed =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains("test/"), "{printed}");
        assert_hidden(&format!("{arguments:?}"), &printed);
    }
}

/// Whatever is wrong with a file, no line of it is printed: not by `check`, not at the start, not on a reload.
#[test]
fn broken_files_of_consumers_are_never_quoted() {
    let broken: [&[u8]; 9] = [
        b"hush-hush-1,acme\nhush-hush-2,zeta\n",
        b"key,name\nhush-hush-1,acme\nhush-hush-1,zeta\nhush-hush-2\nhush-hush-3,b,c\n",
        b"key,name\nhush-hush-1,\nsha256:hush-hush-2,zeta\n,eve\n",
        b"key,name,tier\nhush-hush-1,acme,a\nhush-hush-2,acme,b\n",
        b"key,name\nhush-hush-1,acme\nhush-hush-2,M\xfcller\n",
        b"key,name\n\"hush-hush-1,acme\nhush-hush-2,zeta\n",
        b"key,name\n\"hush-hush\n-1\",acme\nhush-hush\x07,zeta\n",
        b"key;name\nhush-hush-1;acme\n",
        b"key,name\nhush-hush-1,hush-hush\x01\n",
    ];
    let (backend, files) = (Backend::ok(), consumers());
    let auth = files.auth("keys", "header:x-api-key", "");
    let rest = format!("auth = \"keys\"\n{auth}[admin]\nlisten = \"127.0.0.1:0\"\n");
    let toml = everything_to(&backend, &rest);
    let gateway = Gateway::start(&toml);
    for (number, csv) in (1_u8..).zip(broken) {
        files.write("consumers.csv", csv);
        let (status, printed) = files.check(&toml);
        assert_eq!(status, 2, "{printed}");
        assert_hidden("`check`", &printed);
        assert!(printed.contains("consumers.csv:"), "it names the line:\n{printed}");
        gateway.signal(Signal::HUP);
        let failures = || gateway.metric("tollgate_config_reloads_total", &["result=\"failure\""]);
        eventually("a failed reload", || (failures() >= f64::from(number)).then_some(()));
        let good = "GET / HTTP/1.1\r\nhost: test\r\nx-api-key: hush-hush-0123456789-one\r\n\r\n";
        send(gateway.addr(), good).expect(200);
        let status = gateway.admin("/api/v1/status").text();
        assert_hidden("the status", &status);
        assert!(status.contains("consumers.csv:"), "the status names the line:\n{status}");
    }
    assert_hidden("the program log", &gateway.stderr());
}
