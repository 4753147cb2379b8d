//! Recent refusals and their reasons.

use serde_json::{Value, json};

use crate::harness::api::{api, samples_with};
use crate::harness::{Backend, Client, Gateway, Load, Next, everything_to, get_with, send};

const LIMIT: &str = "limits = [\"one\"]\n[limits.one]\nalgorithm = \"token-bucket\"\nkey = \"header:x-key\"\nrate = \"1/day\"\nburst = 1\n";
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn list(told: &Value) -> Vec<Value> {
    told["refusals"].as_array().unwrap().clone()
}

#[test]
fn a_refusal_is_told_with_its_reason() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&(everything_to(&backend, LIMIT) + ADMIN));
    for status in [200, 429] {
        get_with(gateway.addr(), "/a/./b?secret=1", "x-key: 0123456789abcdef\r\n").expect(status);
    }
    samples_with(&gateway, 2);
    let told = api(&gateway, "refusals");
    let [mut one] = <[Value; 1]>::try_from(list(&told)).unwrap();
    assert!(one["time"].take().as_f64().unwrap() > 1.7e9);
    assert_eq!(one["id"], api(&gateway, "limits/one/keys")["keys"][0]["id"]);
    one["id"] = Value::Null;
    let key = one["key"].take();
    assert!(key[0].as_str().unwrap().starts_with("…cdef #"), "{key}");
    let retry_after = one["retry_after"].take().as_u64().unwrap();
    assert!((86_000..=86_400).contains(&retry_after), "{retry_after}");
    let expected = json!({
        "seq": 1, "time": null, "method": "GET", "host": "test", "path": "/a/./b", "route": "all", "status": 429,
        "client": "127.0.0.1", "limit": "one", "id": null, "key": null, "cost": 1, "retry_after": null, "server": null,
        "reason": "over 1/day, burst 1",
    });
    assert_eq!(one, expected);
    assert_eq!((&told["seq"], &told["skipped"]), (&1.into(), &0.into()));
    assert_eq!(told["started"], api(&gateway, "status")["started"]);
    assert_eq!(list(&api(&gateway, "refusals?since=1")), [] as [Value; 0]);
    assert_eq!(list(&api(&gateway, "refusals?since=99")).len(), 1);
    gateway.admin("/api/v1/refusals?since=x").expect(400);
}

#[test]
fn a_request_without_a_part_of_the_key_has_no_key() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, LIMIT) + "missing = \"deny\"\n" + ADMIN;
    let gateway = Gateway::start(&toml);
    gateway.get("/").expect(429);
    samples_with(&gateway, 1);
    let one = &list(&api(&gateway, "refusals"))[0];
    assert_eq!(one["reason"], "a part of the key is missing");
    assert_eq!((&one["limit"], &one["id"], &one["key"]), (&"one".into(), &Value::Null, &Value::Null));
    assert_eq!(api(&gateway, "limits")["limits"][0]["minute"]["refused"], 1);
}

#[test]
fn shadow_limits_refuse_no_request() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, LIMIT) + "mode = \"shadow\"\n" + ADMIN;
    let gateway = Gateway::start(&toml);
    for _ in 0..3 {
        gateway.get("/").expect(200);
    }
    samples_with(&gateway, 3);
    assert_eq!(list(&api(&gateway, "refusals")), [] as [Value; 0]);
    assert_eq!(api(&gateway, "limits")["limits"][0]["minute"]["refused"], 2);
}

#[test]
fn failures_are_told_by_the_word_of_the_access_log() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for log in ["", "[log]\naccess = \"off\"\n"] {
        let toml = format!(
            "[upstreams]\napi = \"http://{closed}\"\n[[routes]]\nname = \"all\"\npath = \"/a/*\"\nupstream = \"api\"\n{log}{ADMIN}"
        );
        let gateway = Gateway::start(&toml);
        let mut client = Client::connect(gateway.addr());
        for _ in 0..2 {
            client.get("/a/b?secret=1", "").expect(502);
        }
        client.get("/nothing", "").expect(404);
        send(gateway.addr(), "nonsense\r\n\r\n").expect(400);
        samples_with(&gateway, 4);
        let mut told = list(&api(&gateway, "refusals"));
        // A request is over a moment after its answer has come: another worker's may be told of first.
        told[2..].sort_by_key(|one| std::cmp::Reverse(one["status"].as_u64()));
        let words: Vec<_> = told.iter().map(|one| (&one["reason"], &one["status"], &one["route"])).collect();
        let (connect, none) = (Value::from("connect"), Value::Null);
        assert_eq!(
            words[..2],
            [(&connect, &502.into(), &"all".into()), (&connect, &502.into(), &"all".into())]
        );
        assert_eq!(words[2], (&"no_route".into(), &404.into(), &none));
        assert_eq!(words[3].1, &Value::from(400));
        assert!(told.iter().all(|one| one["limit"].is_null() && one["cost"].is_null()));
        assert!(told.iter().all(|one| one["client"] == "127.0.0.1"));
        assert_eq!((&told[2]["path"], &told[2]["method"]), (&"/nothing".into(), &"GET".into()));
        // Without a log, the path of the first request that fails after its head is not kept; later paths are.
        assert_eq!(told[0]["path"], if log.is_empty() { Value::from("/a/b") } else { Value::Null });
        assert_eq!((&told[1]["path"], &told[1]["method"]), (&"/a/b".into(), &"GET".into()));
        let server = Value::from(format!("api/{closed}"));
        assert_eq!((&told[1]["server"], &told[2]["server"]), (&server, &Value::Null));
        assert_eq!(told[0]["server"], if log.is_empty() { server } else { Value::Null });
        assert!(told[3]["path"].is_null(), "it had none that could be read");
        let lines = if log.is_empty() { gateway.access_log(4).len() } else { gateway.stdout_lines().len() };
        assert_eq!(lines, if log.is_empty() { 4 } else { 0 });
    }
}

#[test]
fn of_a_flood_a_few_are_kept_and_no_client_is_hidden() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let other = "[[routes]]\nname = \"other\"\npath = \"/other\"\nupstream = \"api\"\nlimits = [\"rare\"]\n\
                 [limits.rare]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/day\"\n";
    // The queue of an access log takes 10 MB where the machine is too busy to write it.
    let quiet = "[log]\naccess = \"off\"\n";
    let gateway = Gateway::start(&(everything_to(&backend, LIMIT) + other + ADMIN + quiet));
    gateway.get("/other").expect(200);
    let load = Load { requests: 10_000, concurrency: 4 };
    let before = gateway.anonymous_kib();
    let statuses = load.run(gateway.addr(), |number| match number {
        9_500 => "GET /other HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(),
        _ => format!("GET /{number} HTTP/1.1\r\nhost: test\r\nx-key: a-long-key-{}\r\n\r\n", number % 7),
    });
    assert_eq!(statuses[&429], 10_000 - 7);
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
    samples_with(&gateway, 10_001);
    let told = api(&gateway, "refusals");
    let kept = list(&told);
    let (mut seconds, mut rare) = (std::collections::BTreeMap::<String, usize>::new(), 0);
    for one in &kept {
        let second = one["time"].to_string().split('.').next().unwrap().to_owned();
        *seconds.entry(second).or_default() += 1;
        rare += usize::from(one["limit"] == "rare");
    }
    assert_eq!(rare, 1, "the one of the other limit is there");
    assert!(seconds.values().all(|count| *count <= 22), "{seconds:?}");
    let (skipped, seq) = (told["skipped"].as_u64().unwrap(), told["seq"].as_u64().unwrap());
    // Where the machine was slow, the first are forgotten.
    assert_eq!(kept.len() as u64, seq.min(200));
    assert!(seq > 200 || skipped + seq == 10_000 - 7, "{seq} kept, {skipped} skipped");
    // Since the last that is kept, only skipped ones may have come.
    let next = api(&gateway, &format!("refusals?since={seq}"));
    assert_eq!(list(&next), [] as [Value; 0]);
    assert!(next["skipped"].as_u64().unwrap() <= skipped);
}
