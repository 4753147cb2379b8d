//! `require` of a route: consumers that are known, and do not suffice.

use std::fmt::Write as _;

use super::{Files, MISSING, UNKNOWN, assert_unauthorized, key};
use crate::harness::{Backend, Gateway, get_with};

const CSV: &str = "key,name,tier,groups\n\
    key-ada-1,ada,pro,ops billing\n\
    key-bob-1,bob,free,ops\n\
    key-eve-1,eve,,billings\n\
    key-dan-1,dan,pro,\n";

/// A route for each requirement: `/0`, `/1`, and so on, with two requests a day for each consumer.
fn configuration(backend: &Backend, files: &Files, requirements: &[&str]) -> String {
    let mut text = format!(
        "[upstreams]\napi = \"{}\"\n[limits.few]\nalgorithm = \"fixed-window\"\nkey = [\"consumer\", \"route\"]\n\
         rate = \"1/day\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        backend.url()
    );
    for (number, require) in requirements.iter().enumerate() {
        let _ = write!(
            text,
            "[[routes]]\npath = \"/{number}\"\nupstream = \"api\"\nauth = \"keys\"\nlimits = [\"few\"]\n\
             require = {{ {require} }}\n"
        );
    }
    text + &files.auth("keys", "header:x-api-key", "")
}

#[test]
fn names_tiers_and_columns_are_required() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let requirements = [
        (r#"tier = "pro""#, ["ada", "dan"].as_slice()),
        (r#"tier = ["pro", "free"]"#, &["ada", "bob", "dan"]),
        (r#"consumer = ["eve", "bob"]"#, &["bob", "eve"]),
        (r#"groups = "billing""#, &["ada"]),
        (r#"groups = "ops billing""#, &["ada"]),
        (r#"groups = ["billings", "billing"], tier = "pro""#, &["ada"]),
    ];
    let gateway = Gateway::start(&configuration(&backend, &files, &requirements.map(|(require, _)| require)));
    let mut admitted = 0;
    for (number, (require, names)) in requirements.into_iter().enumerate() {
        for name in ["ada", "bob", "eve", "dan"] {
            let ask = || get_with(gateway.addr(), &format!("/{number}"), &key(&format!("key-{name}-1")));
            if names.contains(&name) {
                assert_eq!((ask().status, ask().status), (200, 429), "{require}: {name}");
                admitted += 1;
            } else {
                let refused = ask().expect(403);
                assert_eq!(refused.header("www-authenticate"), None, "no token is asked for");
                assert_eq!(refused.header("cache-control"), Some("no-store"));
                let detail = "the credential does not suffice for this route";
                assert_eq!(refused.json()["detail"], detail);
                // A refusal is not charged, so that no later one has another status.
                ask().expect(403);
            }
        }
        let missing = get_with(gateway.addr(), &format!("/{number}"), "");
        assert_unauthorized(&missing, "ApiKey realm=\"keys\"", MISSING);
        let wrong = get_with(gateway.addr(), &format!("/{number}"), &key("key-zoe-1"));
        assert_unauthorized(&wrong, "ApiKey realm=\"keys\"", UNKNOWN);
    }
    assert_eq!(backend.count(), admitted);
    let log = gateway.access_log(60);
    let refused = log.iter().filter(|line| line["error"] == "insufficient_scope");
    assert!(refused.clone().count() > 10 && refused.clone().all(|line| line["consumer"].is_string()));
    let counted = gateway.metric("tollgate_auth_total", &["auth=\"keys\"", "result=\"insufficient\""]);
    assert_eq!(counted, f64::from(u32::try_from(refused.count()).expect("a few")));
}

/// The log tells who asked, so that the file is judged again.
#[test]
fn replay_decides_by_the_file() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let text = configuration(&backend, &files, &["tier = \"pro\""]);
    let gateway = Gateway::start(&text);
    for name in ["ada", "bob", "bob", "bob"] {
        get_with(gateway.addr(), "/0", &key(&format!("key-{name}-1")));
    }
    gateway.access_log(4);
    files.write("access.log", gateway.stdout_lines().join("\n"));
    let replayed = |text: &str| {
        let output = files.tollgate(text, &["replay", "--json", "access.log"]);
        let told: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (told["requests"].clone(), told["refused"].clone())
    };
    // Of those that reach the limit none is refused; with `free` allowed, two of three of `bob` are.
    assert_eq!(replayed(&text), (4.into(), 0.into()));
    assert_eq!(replayed(&text.replace("\"pro\"", "\"free\"")), (4.into(), 2.into()));
}

#[test]
fn a_requirement_that_no_consumer_meets_is_warned_of() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let told = |require: &str| files.check(&configuration(&backend, &files, &[require]));
    let (status, text) = told(r#"tier = ["Pro", "gold"]"#);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("no consumer has `tier`: `Pro` or `gold`, so that each request gets 403"),
        "{text}"
    );
    let (status, text) = told(r#"groups = "ops""#);
    assert!(status == 0 && !text.contains("no consumer"), "{text}");
    assert!(text.contains("the consumer must have `groups`: `ops`"), "{text}");
    let (status, text) = told(r#"group = "ops""#);
    assert!(status == 2 && text.contains("no auth of the route tells the `group` of a consumer"), "{text}");
}
