//! What the admin API tells second by second: no request is lost or told twice, whatever the second it falls into.

use std::time::Duration;

use serde_json::Value;

use crate::harness::api::{FATES, api, samples_with, sum};
use crate::harness::{Backend, Client, Gateway, Load, Next, eventually, everything_to, send};

const ADMIN: &str = "\n[admin]\nlisten = \"127.0.0.1:0\"\n";

fn limited(backend: &Backend, more: &str) -> String {
    let toml = everything_to(
        backend,
        "limits = [\"five\"]\n[limits.five]\nalgorithm = \"token-bucket\"\nkey = \"header:x-key\"\nrate = \"1/day\"\nburst = 5\n",
    );
    toml + more + ADMIN
}

fn keyed(number: usize, keys: usize) -> String {
    format!("GET /a?b=c HTTP/1.1\r\nhost: test\r\nx-key: a-long-key-{}\r\n\r\n", number % keys)
}

#[test]
fn each_request_is_in_exactly_one_second() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&limited(&backend, ""));
    let load = Load { requests: 400, concurrency: 8 };
    let statuses = load.run(gateway.addr(), |number| keyed(number, 10));
    assert_eq!((statuses[&200], statuses[&429]), (50, 350));
    let samples = samples_with(&gateway, 400);
    let count = samples["count"].as_u64().unwrap();
    for (section, admitted, refused) in [(&samples["all"], 50, 350), (&samples["routes"]["all"], 50, 350)] {
        let sums = FATES.map(|fate| sum(&section[fate]));
        assert_eq!(sums, [admitted, 0, refused, 0], "{section}");
        for list in FATES.iter().chain(&["p50_ms", "p99_ms"]) {
            assert_eq!(section[list].as_array().unwrap().len() as u64, count, "{list}");
        }
        let times = section["p99_ms"].as_array().unwrap();
        assert!(times.iter().any(Value::is_f64) && times.iter().all(|time| time.is_f64() || time.is_null()));
    }
    assert_eq!(sum(&samples["limits"]["five"]["refused"]), 350);
    let upstream = &samples["upstreams"]["api"];
    assert_eq!((sum(&upstream["answers"]), sum(&upstream["failed"])), (50, 0));
    assert_eq!(upstream["up"].as_array().unwrap().last().unwrap(), 1);
    let server = serde_json::json!([{
        "server": backend.addr().to_string(), "up": true, "why": null, "reason": null,
        "minute": { "1xx": 0, "2xx": 50, "3xx": 0, "4xx": 0, "5xx": 0 }, "retries": 0, "drained": false, "in_flight": 0,
    }]);
    let mut servers = upstream["servers"].clone();
    for quantile in ["p50_ms", "p99_ms"] {
        assert!(
            servers[0]
                .as_object_mut()
                .and_then(|server| server.remove(quantile))
                .is_some_and(|time| time.is_f64())
        );
    }
    assert_eq!(servers, server);
    let store = &samples["store"];
    assert_eq!(store["keys"].as_array().unwrap().last().unwrap(), 10);
    assert!(store["p50_ms"].as_array().unwrap().iter().all(Value::is_null), "in memory");
    assert_eq!(samples["config"], api(&gateway, "status")["config"]["version"]);
}

#[test]
fn only_what_is_newer_comes_back() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&limited(&backend, ""));
    let first = eventually("a second", || Some(api(&gateway, "samples")).filter(|told| told["count"] != 0));
    let seq = first["seq"].as_u64().unwrap();
    assert_eq!(first["count"], seq, "all that there are");
    gateway.get("/").expect(200);
    let (mut last, mut told) = (first, 0);
    while told == 0 {
        let since = last["seq"].as_u64().unwrap();
        let next = api(&gateway, &format!("samples?since={since}"));
        let (seq, count) = (next["seq"].as_u64().unwrap(), next["count"].as_u64().unwrap());
        assert_eq!(seq, since + count, "numbered without gaps");
        assert_eq!(
            next["time"].as_u64().unwrap(),
            last["time"].as_u64().unwrap() + count,
            "second by second"
        );
        told += sum(&next["all"]["admitted"]);
        last = next;
    }
    assert_eq!(told, 1);
    for strange in [u64::MAX, last["seq"].as_u64().unwrap() + 1_000] {
        let all = api(&gateway, &format!("samples?since={strange}"));
        assert_eq!(all["count"], all["seq"], "of another process: all");
    }
    for wrong in ["-1", "a", "", "1.5", "99999999999999999999"] {
        let fault = gateway.admin(&format!("/api/v1/samples?since={wrong}")).expect(400);
        assert!(fault.text().contains("`since`"), "{}", fault.text());
    }
}

#[test]
fn what_the_gateway_answers_itself_has_failed_and_attempts_count() {
    let backend = Backend::ok();
    let closed = [0; 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = closed.map(|listener| listener.local_addr().unwrap());
    let toml = format!(
        "[upstreams]\napi = \"{}\"\n[upstreams.gone]\nservers = [\"http://{one}\", \"http://{two}\"]\n\
         [[routes]]\npath = \"/good\"\nupstream = \"api\"\n[[routes]]\nname = \"gone\"\npath = \"/gone\"\nupstream = \"gone\"\n{ADMIN}",
        backend.url()
    );
    let gateway = Gateway::start(&toml);
    gateway.get("/good").expect(200);
    gateway.get("/gone").expect(502);
    gateway.get("/nothing").expect(404);
    send(gateway.addr(), "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n").expect(400);
    let samples = samples_with(&gateway, 4);
    assert_eq!((sum(&samples["all"]["admitted"]), sum(&samples["all"]["failed"])), (1, 3));
    assert_eq!(sum(&samples["routes"]["gone"]["failed"]), 1);
    assert_eq!(sum(&samples["routes"]["none"]["failed"]), 2);
    let gone = &samples["upstreams"]["gone"];
    assert_eq!((sum(&gone["answers"]), sum(&gone["failed"])), (0, 2), "the second attempt, too");
}

#[test]
fn a_delayed_request_counts_as_such() {
    let backend = Backend::ok();
    let toml = everything_to(
        &backend,
        "limits = [\"slow\"]\n[limits.slow]\nalgorithm = \"leaky-bucket\"\nkey = \"ip\"\nrate = \"1/s\"\nqueue = 5\n",
    ) + ADMIN;
    let gateway = Gateway::start(&toml);
    // Each is read when the one before it is answered, however slow the machine is.
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3));
    for _ in 0..3 {
        client.read().expect(200);
    }
    let samples = samples_with(&gateway, 3);
    assert_eq!((sum(&samples["all"]["admitted"]), sum(&samples["all"]["delayed"])), (1, 2));
    let slow = &api(&gateway, "limits")["limits"][0];
    assert_eq!((&slow["minute"]["admitted"], &slow["minute"]["delayed"]), (&1.into(), &2.into()));
}

#[test]
fn waits_in_a_leaky_bucket_are_told_apart_from_latency() {
    let backend = Backend::ok();
    let toml = everything_to(
        &backend,
        "limits = [\"slow\"]\n[limits.slow]\nalgorithm = \"leaky-bucket\"\nkey = \"ip\"\nrate = \"1/s\"\nqueue = 5\n",
    ) + ADMIN;
    let gateway = Gateway::start(&toml);
    for _ in 0..3 {
        gateway.get("/").expect(200);
    }
    let samples = samples_with(&gateway, 3);
    let told = |section: &Value, name: &str| -> Vec<f64> {
        section[name].as_array().unwrap().iter().filter_map(Value::as_f64).collect()
    };
    for section in [&samples["all"], &samples["routes"]["all"]] {
        for name in ["delay_p50_ms", "delay_p99_ms"] {
            let delays = told(section, name);
            // Each waits up to a second, but for what passed between the answer and the next request.
            assert!(
                !delays.is_empty() && delays.iter().all(|delay| (250.0..=1_000.0).contains(delay)),
                "{delays:?}"
            );
        }
        let latency = told(section, "p99_ms");
        assert!(!latency.is_empty() && latency.iter().all(|time| *time < 500.0), "{latency:?}");
    }
    let backend = told(&samples["upstreams"]["api"], "p99_ms");
    assert!(!backend.is_empty() && backend.iter().all(|time| *time < 500.0), "{backend:?}");
    // The metric tells what clients see.
    let all = gateway.metric("tollgate_request_duration_seconds_sum", &["route=\"all\""]);
    assert!(all > 1.0, "{all}");
    let count = gateway.metric("tollgate_request_duration_seconds_count", &["route=\"all\""]);
    assert!((count - 3.0).abs() < 0.1, "{count}");
}

/// A flood of refusals does not hide how long admitted requests take, and no bound of a bucket is told as a duration.
#[test]
fn latencies_are_those_of_admitted_requests_within_a_twentieth() {
    let backend = Backend::start(|exchange| {
        std::thread::sleep(Duration::from_millis(137));
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&limited(&backend, ""));
    let mut admitted = 0;
    let (samples, at) = eventually("a second with one admitted request and refusals", || {
        let key = admitted;
        admitted += 1;
        (0..6).for_each(|_| drop(send(gateway.addr(), keyed(key, 1_000))));
        (0..50).for_each(|_| drop(send(gateway.addr(), keyed(key, 1_000)).expect(429)));
        let samples = samples_with(&gateway, 56 * admitted as u64);
        let all = &samples["all"];
        let count = |name: &str, second: usize| all[name][second].as_u64().unwrap();
        let seconds = all["admitted"].as_array().unwrap().len();
        let found =
            (0..seconds).find(|second| count("admitted", *second) > 0 && count("refused", *second) > 9);
        found.map(|second| (samples.clone(), second))
    });
    let lines = gateway.access_log(56);
    let slowest = |name: &str| {
        let times =
            lines.iter().filter(|line| line["status"] == 200).map(|line| line[name].as_f64().unwrap());
        times.fold((f64::MAX, 0.0), |(least, most): (f64, f64), time| (least.min(time), most.max(time)))
    };
    for (section, name) in [
        (&samples["all"], "duration_ms"),
        (&samples["routes"]["all"], "duration_ms"),
        (&samples["upstreams"]["api"], "upstream_ms"),
    ] {
        let (least, most) = slowest(name);
        for quantile in ["p50_ms", "p99_ms"] {
            let told = section[quantile][at].as_f64().unwrap();
            assert!(
                (least * 0.95..=most * 1.05).contains(&told),
                "{name} {least} to {most}, {quantile} {told}"
            );
        }
    }
    // What the gateway itself answers has no latency, the metric counts all.
    let metric = gateway.metric("tollgate_request_duration_seconds_count", &["route=\"all\""]);
    assert_eq!(metric, (56 * admitted) as f64);
    let refused = Gateway::start(&limited(&backend, ""));
    send(refused.addr(), "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n").expect(400);
    let samples = samples_with(&refused, 1);
    assert!(samples["all"]["p99_ms"].as_array().unwrap().iter().all(Value::is_null), "{samples}");
}

#[test]
fn a_reload_keeps_what_stays_and_brings_what_is_new() {
    let backend = Backend::ok();
    let toml = limited(&backend, "");
    let gateway = Gateway::start(&toml);
    gateway.get("/").expect(200);
    let before = samples_with(&gateway, 1);
    let next =
        toml.replace("[admin]", "[[routes]]\nname = \"new\"\npath = \"/new\"\nupstream = \"api\"\n[admin]");
    gateway.reload(&next, "reloaded");
    for path in ["/", "/new", "/new"] {
        gateway.get(path).expect(200);
    }
    let after = samples_with(&gateway, 4);
    assert_ne!(before["config"], after["config"]);
    assert!(before["routes"]["new"].is_null());
    assert_eq!((sum(&after["routes"]["all"]["admitted"]), sum(&after["routes"]["new"]["admitted"])), (2, 2));
    gateway.reload(&toml, "reloaded");
    gateway.get("/").expect(200);
    let again = samples_with(&gateway, 5);
    assert!(again["routes"]["new"].is_null(), "it is not in the file");
    assert_eq!(sum(&again["routes"]["all"]["admitted"]), 3);
    assert_eq!(again["started"], before["started"]);
}
