//! The keys that ask most of a limit, over all workers.

use serde_json::{Value, json};

use crate::harness::api::{api, samples_with};
use crate::harness::{Backend, Gateway, Load, everything_to, get_with};

fn toml(backend: &Backend, limit: &str) -> String {
    let limits = format!(
        "limits = [\"five\"]\n[limits.five]\nalgorithm = \"token-bucket\"\nrate = \"1/day\"\nburst = 5\n{limit}\n[admin]\nlisten = \"127.0.0.1:0\"\n"
    );
    everything_to(backend, &limits)
}

fn run(gateway: &Gateway, requests: usize, key: impl Fn(usize) -> usize + Sync) {
    Load { requests, concurrency: 8 }.run(gateway.addr(), |number| {
        format!("GET /?a=b HTTP/1.1\r\nhost: test\r\nx-key: a-longer-key-{:04}\r\n\r\n", key(number))
    });
}

fn keys(gateway: &Gateway, query: &str) -> Value {
    api(gateway, &format!("limits/five/keys{query}"))
}

#[test]
fn few_keys_are_counted_exactly_over_all_workers() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "key = \"header:x-key\""));
    // Key n of 20 asks 5 (n + 1) times.
    run(&gateway, 1_050, |number| (0..20).find(|key| number < 5 * (key + 1) * (key + 2) / 2).unwrap());
    samples_with(&gateway, 1_050);
    let told = keys(&gateway, "?top=100");
    assert_eq!(
        (&told["limit"], &told["mode"], &told["error"]),
        (&"five".into(), &"enforce".into(), &0.into())
    );
    let counts = ["requests", "admitted", "refused", "followed"].map(|name| told[name].as_u64().unwrap());
    assert_eq!(counts, [1_050, 100, 950, 1_000]);
    let list = told["keys"].as_array().unwrap();
    assert_eq!(list.len(), 20);
    for (place, one) in (1..).zip(list.iter().rev()) {
        let label = one["key"][0].as_str().unwrap();
        assert!(label.starts_with(&format!("…{:04} #", place - 1)), "{label}");
        let counts = json!([one["requests"], one["admitted"], one["refused"], one["banned_until"]]);
        assert_eq!(counts, json!([5 * place, 5, 5 * place - 5, null]));
        let id = one["id"].as_str().unwrap();
        assert!(id.starts_with("id:") && id.len() == 35, "{id}");
        assert!(one["last"].as_f64().unwrap() > 1.7e9);
    }
    let three = keys(&gateway, "?top=3&by=requests");
    let best: Vec<u64> =
        three["keys"].as_array().unwrap().iter().map(|one| one["requests"].as_u64().unwrap()).collect();
    assert_eq!(best, [100, 95, 90]);
    assert_eq!(keys(&gateway, "")["keys"].as_array().unwrap().len(), 20);
}

#[test]
fn more_keys_than_are_followed_cost_exactness_but_hide_no_key() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "key = \"header:x-key\"\nreveal = true"));
    run(&gateway, 12_000, |number| if number % 4 == 0 { number / 4 % 5 } else { 1_000 + number });
    samples_with(&gateway, 12_000);
    let told = keys(&gateway, "?top=5&by=requests");
    let error = told["error"].as_u64().unwrap();
    assert!(error > 0 && error <= 12, "{error}");
    assert_eq!(told["requests"], 12_000);
    let mut names = Vec::new();
    for one in told["keys"].as_array().unwrap() {
        let [requests, refused] = ["requests", "refused"].map(|name| one[name].as_u64().unwrap());
        assert!((600..=600 + error).contains(&requests), "{one}");
        assert!((595 - error..=595).contains(&refused), "{one}");
        names.push(one["key"][0].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, (0..5).map(|key| format!("a-longer-key-{key:04}")).collect::<Vec<_>>(), "revealed");
}

#[test]
fn keys_are_told_in_parts_without_the_query() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "key = [\"ip\", \"path\", \"header:x-key\"]"));
    get_with(gateway.addr(), "/a%20b?secret=1", "x-key: short\r\n").expect(200);
    let label = |told: &Value| told["keys"][0]["key"].clone();
    let told = label(&keys(&gateway, ""));
    assert_eq!((&told[0], &told[1]), (&json!("127.0.0.1"), &json!("/a%20b")));
    assert!(told[2].as_str().unwrap().starts_with("… #"), "{told}");
    let long = format!("/{}", "x".repeat(3_000));
    for _ in 0..2 {
        get_with(gateway.addr(), &long, "").expect(200);
    }
    let cut = format!("/{}…", "x".repeat(119));
    assert_eq!(label(&keys(&gateway, "?by=admitted")), json!(["127.0.0.1", cut, "127.0.0.1"]));
}

#[test]
fn a_limit_for_everybody_has_one_key_without_a_name() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "key = \"global\"\nmode = \"shadow\""));
    run(&gateway, 30, |number| number);
    samples_with(&gateway, 30);
    let told = keys(&gateway, "");
    assert_eq!((&told["mode"], &told["refused"]), (&"shadow".into(), &25.into()), "would have been");
    assert_eq!(told["keys"].as_array().unwrap().len(), 1);
    assert_eq!(told["keys"][0]["key"], json!([]));
    assert_eq!(told["keys"][0]["refused"], 25);
}

#[test]
fn a_reload_keeps_them_while_the_key_stays_and_is_shown_alike() {
    let backend = Backend::ok();
    let toml = toml(&backend, "key = \"header:x-key\"");
    let gateway = Gateway::start(&toml);
    run(&gateway, 30, |number| number % 3);
    samples_with(&gateway, 30);
    gateway.reload(&toml.replace("burst = 5", "burst = 7"), "reloaded");
    run(&gateway, 3, |number| number % 3);
    samples_with(&gateway, 33);
    let told = keys(&gateway, "");
    assert_eq!((&told["requests"], &told["keys"][0]["requests"]), (&33.into(), &11.into()));
    gateway.reload(&toml.replace("[admin]", "reveal = true\n[admin]"), "reloaded");
    assert_eq!(keys(&gateway, "")["keys"], json!([]), "what was masked is not called so any more");
}

#[test]
fn strange_questions_are_refused() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&toml(&backend, "key = \"ip\""));
    let ask = |path: &str, status| gateway.admin(&format!("/api/v1/{path}")).expect(status).text();
    for wrong in ["top=0", "top=101", "top=-1", "top=a", "top=", "by=", "by=name"] {
        let name = wrong.split('=').next().unwrap();
        assert!(ask(&format!("limits/five/keys?{wrong}"), 400).contains(&format!("`{name}`")), "{wrong}");
    }
    assert!(ask("limits/six/keys", 404).contains("there is no limit `six`"));
    assert!(ask("limits/%ff/keys", 400).contains("UTF-8"));
    assert_eq!(keys(&gateway, "?top=100&by=admitted")["keys"], json!([]));
}
