//! `explain` is no way around `failures`: what it may learn of a credential, and which thread computes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Folder, basic, line};
use crate::harness::api::{ask_with, good};
use crate::harness::{Gateway, binary, get_with};

/// Passwords of `ann` and the API key `key-of-acme`; two wrong ones a client are bounded by `wrong`.
fn config(folder: &Folder, admin: &str) -> String {
    let keys = folder.path().join("keys.csv");
    std::fs::write(&keys, "key,name,tier\nkey-of-acme,acme,pro\n").expect("the file can be written");
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n[upstreams]\na = \"builtin:echo\"\n\
         [[routes]]\nname = \"people\"\npath = \"/people\"\nupstream = \"a\"\nauth = \"people\"\n\
         [[routes]]\nname = \"keys\"\npath = \"/keys\"\nupstream = \"a\"\nauth = \"keys\"\n\
         [limits.wrong]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/366day\"\nburst = 2\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\nfailures = \"wrong\"\n{}",
        keys.display(),
        folder.auth("failures = \"wrong\"")
    )
}

fn field(credential: &str) -> String {
    basic(credential).trim_end().split_once(": ").expect("a field").1.to_owned()
}

/// The question about a request of a client with a password, or with an API key.
fn question(client: &str, credential: &str) -> String {
    let (url, name, value) = match credential.strip_prefix("key:") {
        Some(key) => ("/keys", "x-api-key", key.to_owned()),
        None => ("/people", "authorization", field(credential)),
    };
    json!({ "url": url, "ip": client, "headers": { name: value } }).to_string()
}

#[test]
fn without_a_gateway_no_password_is_verified() {
    let folder = Folder::new(&line("ann", "good", 4));
    std::fs::write(folder.path().join("gateway.toml"), config(&folder, "")).expect("the file can be written");
    let explain = |credential: &str, json: bool| {
        let header = format!("authorization: {}", field(credential));
        let output = Command::new(binary())
            .args(["explain", "GET", "http://a/people", "-H", &header])
            .args(json.then_some("--json"))
            .current_dir(folder.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = explain("ann:good", false);
    assert!(told.contains("not verified: only a running gateway"), "{told}");
    assert!(!told.contains("limits") && !told.contains("401"), "{told}");
    assert_eq!(told, explain("ann:bad", false));
    let told: Value = serde_json::from_str(&explain("ann:good", true)).expect("JSON");
    assert_eq!(
        (&told["verdict"], &told["status"], &told["consumer"]),
        (&"not_verified".into(), &Value::Null, &Value::Null)
    );
}

#[test]
fn a_token_that_may_only_read_learns_nothing_of_a_credential() {
    let folder = Folder::new(&line("ann", "good", 4));
    let tokens = "[admin.tokens]\nreader = { token_env = \"READ\", may = [\"read\"] }\n\
                  operator = { token_env = \"OPERATE\", may = [\"operate\"] }\n";
    let environment = [("READ", "read-secret"), ("OPERATE", "operate-secret")];
    let gateway = Gateway::start_in(&config(&folder, tokens), &[], &environment);
    get_with(gateway.addr(), "/people", &basic("ann:good")).expect(200);
    let explain = |token: &str, credential: &str| {
        let token = format!("authorization: Bearer {token}\r\n");
        let (status, told) = ask_with(&gateway, "POST explain", &token, &question("127.0.0.1", credential));
        assert_eq!(status, 200, "{told}");
        told
    };
    for (good, wrong) in [("ann:good", "ann:bad"), ("key:key-of-acme", "key:other")] {
        let told = explain("read-secret", good);
        assert_eq!((&told["verdict"], &told["consumer"]), (&"not_verified".into(), &Value::Null), "{told}");
        assert_eq!(told, explain("read-secret", wrong), "not even what was verified before");
        let told = explain("operate-secret", good);
        assert!(told["consumer"].is_string(), "{told}");
    }
}

#[test]
fn wrong_credentials_are_charged_and_bounded_as_those_of_clients() {
    let folder = Folder::new(&line("ann", "good", 4));
    let gateway = Gateway::start(&config(&folder, ""));
    let explain =
        |client: &str, credential: &str| good(&gateway, "POST explain", &question(client, credential));
    let told = explain("127.0.0.1", "ann:bad");
    assert_eq!((&told["status"], &told["verdict"]), (&401.into(), &"answered".into()), "{told}");
    assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("the password is wrong")), "{told}");
    assert_eq!(explain("127.0.0.1", "key:other")["status"], 401);
    // Both are used up, also for the client itself.
    let told = explain("127.0.0.1", "ann:good");
    assert_eq!((&told["verdict"], &told["consumer"]), (&"not_verified".into(), &Value::Null), "{told}");
    assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("`failures`")), "{told}");
    // Nor is another wrong key charged: the client would be locked out for longer.
    let told = explain("127.0.0.1", "key:another");
    assert_eq!((&told["verdict"], &told["status"]), (&"not_verified".into(), &Value::Null), "{told}");
    assert_eq!(good(&gateway, "GET limits/wrong/keys/127.0.0.1", "")["policies"][0]["used"], 2);
    assert_eq!(explain("127.0.0.1", "key:key-of-acme")["consumer"], "acme");
    get_with(gateway.addr(), "/people", &basic("ann:bad")).expect(429);
    assert_eq!(explain("192.0.2.1", "ann:good")["consumer"], "ann", "another client");
}

/// A flood of guesses does not keep the admin listener from its other requests: their hashes are computed elsewhere.
#[test]
fn guesses_do_not_delay_the_admin_listener() {
    let folder = Folder::new(&line("ann", "good", 10));
    let gateway = Gateway::start(&config(&folder, ""));
    let explained = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (gateway, explained) = (&gateway, Arc::clone(&explained));
            scope.spawn(move || {
                good(
                    gateway,
                    "POST explain",
                    &question(&format!("192.0.2.{number}"), &format!("ann:{number}")),
                );
                explained.fetch_add(1, Ordering::SeqCst);
            });
        }
        // The first ones are being computed.
        for _ in 0..20 {
            gateway.admin("/healthz").expect(200);
        }
        assert!(explained.load(Ordering::SeqCst) < 8, "the hashes were computed before");
    });
    assert_eq!(explained.load(Ordering::SeqCst), 8);
}
