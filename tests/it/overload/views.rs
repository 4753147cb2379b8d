//! What operators see of an overload: the sentence, the shares, the curve, the explanation.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::api::{api, good};
use crate::harness::{Backend, Client, Gateway, Next, eventually, get_with};

/// Two tenants by API key, of which one has a tier with a weight of 4.
fn toml(backend: &Backend, consumers: &Path, limit: &str) -> String {
    std::fs::write(consumers, "key,name,tier\nkey-acme-0123456789,acme,pro\nkey-other-0123456789,other,\n")
        .unwrap();
    format!(
        "[upstreams]\nshop = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"{}\"\n\
         [limits.shop]\nalgorithm = \"concurrency\"\nkey = \"upstream\"\n{limit}\nqueue = 40\nmax_wait = \"2s\"\n\
         share_by = \"consumer\"\ntiers = {{ pro = {{ weight = 4 }} }}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"shop\"\nauth = \"keys\"\nlimits = [\"shop\"]\n",
        backend.url(),
        consumers.display(),
    )
}

fn slow() -> Backend {
    Backend::start(|exchange| {
        thread::sleep(Duration::from_millis(20));
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

/// Both ask over thirty connections each until `end`. How many of each were answered.
fn ask_from_both(gateway: &Gateway, end: Instant) -> [usize; 2] {
    let answered = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for (answered, key) in answered.iter().zip(["key-acme-0123456789", "key-other-0123456789"]) {
            for _ in 0..30 {
                scope.spawn(move || {
                    let mut client = Client::connect(gateway.addr());
                    while Instant::now() < end {
                        let response = client.get("/", &format!("x-key: {key}\r\n"));
                        match response.status {
                            200 => _ = answered.fetch_add(1, Ordering::Relaxed),
                            429 | 503 => thread::sleep(Duration::from_millis(10)),
                            _ => panic!("{}", response.head),
                        }
                    }
                });
            }
        }
    });
    answered.map(AtomicUsize::into_inner)
}

/// Under pressure a tier's weight of 4 gets four times as much, and the views tell who asks for how much.
#[test]
fn the_weight_of_a_tier_and_what_operators_see_of_it() {
    let (backend, directory) = (slow(), tempfile::tempdir().unwrap());
    let gateway = Gateway::start(&toml(&backend, &directory.path().join("consumers.csv"), "max = 4"));
    let [acme, other] = ask_from_both(&gateway, Instant::now() + Duration::from_secs(4));
    let ratio = acme as f64 / other as f64;
    assert!((3.0..5.0).contains(&ratio), "{acme} : {other}");

    let keys = api(&gateway, "limits/shop/keys");
    let shares = keys["shares"].as_array().unwrap();
    let of = |name: &str| shares.iter().find(|share| share["key"][0] == name).unwrap();
    let share = of("acme")["share"].as_f64().unwrap();
    assert!((0.7..0.9).contains(&share), "{share}");
    let demand = of("acme")["demand"].as_f64().unwrap() + of("other")["demand"].as_f64().unwrap();
    assert!((demand - 1.0).abs() < 1e-9, "{demand}");
    assert!(of("other")["refused"].as_u64() > Some(0));

    let problems = api(&gateway, "status")["problems"].clone();
    let overloaded = problems.as_array().unwrap().iter().find(|one| one["kind"] == "overloaded").unwrap();
    let text = overloaded["text"].as_str().unwrap();
    assert!(text.starts_with("`shop` is overloaded: takes "), "{text}");
    assert!(text.contains(" % of the demand"), "{text}");

    let samples = api(&gateway, "samples")["limits"]["shop"].clone();
    let most = |list: &str| samples[list].as_array().unwrap().iter().filter_map(|one| one.as_u64()).max();
    // A sample tells of a moment, in which a place may be between two requests.
    assert!((1..=4).contains(&most("held").unwrap()), "{samples}");
    assert!(most("waiting") > Some(20), "{samples}");
    assert!(samples.get("found_max").is_none());
}

#[test]
fn the_curve_of_what_is_found() {
    let (backend, directory) = (slow(), tempfile::tempdir().unwrap());
    let gateway = Gateway::start(&toml(&backend, &directory.path().join("consumers.csv"), "max = \"auto\""));
    assert_eq!(get_with(gateway.addr(), "/", "x-key: key-acme-0123456789\r\n").status, 200);
    eventually("the found maximum in the samples", || {
        let samples = api(&gateway, "samples");
        let found = samples["limits"]["shop"]["found_max"].as_array()?.iter().any(|one| one == 20);
        found.then_some(())
    });
}

#[test]
fn an_explanation_tells_whose_share_it_is() {
    let (backend, directory) = (slow(), tempfile::tempdir().unwrap());
    let text = toml(&backend, &directory.path().join("consumers.csv"), "max = 4")
        .replace("name = \"all\"", "name = \"all\"\npriority = \"high\"");
    let gateway = Gateway::start(&text);
    let asked = json!({ "url": "/", "headers": { "x-key": "key-acme-0123456789" } });
    let explained = good(&gateway, "POST explain", &asked.to_string());
    assert_eq!(explained["limits"][0]["share"], "consumer = acme, weight 4, priority high", "{explained}");
}
