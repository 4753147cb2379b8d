//! A sample of ordinary requests, and every other one whole.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Backend, Client, Gateway, eventually, get_with};

/// Routes that end in every way that is always told of, and one that does not.
fn every_way(log: &str, failing: &Backend, gone: &str) -> String {
    format!(
        "[upstreams]
        demo = \"builtin:echo\"
        failing = \"{}\"
        gone = \"{gone}\"
        [limits.one]
        algorithm = \"fixed-window\"
        key = \"global\"
        rate = \"1/day\"
        [limits.queue]
        algorithm = \"leaky-bucket\"
        key = \"global\"
        rate = \"20/s\"
        [limits.keyed]
        algorithm = \"fixed-window\"
        key = \"header:x-key\"
        missing = \"deny\"
        rate = \"1000/day\"
        [[routes]]
        path = \"/fine/*\"
        upstream = \"demo\"
        [[routes]]
        path = \"/limited\"
        upstream = \"demo\"
        limits = [\"one\"]
        [[routes]]
        path = \"/delayed\"
        upstream = \"demo\"
        limits = [\"queue\"]
        [[routes]]
        path = \"/keyed\"
        upstream = \"demo\"
        limits = [\"keyed\"]
        [[routes]]
        name = \"failing\"
        path = \"/failing\"
        upstream = \"failing\"
        limits = [\"keyed\"]
        [[routes]]
        path = \"/gone\"
        upstream = \"gone\"
        [log]
        {log}\n",
        failing.url()
    )
}

fn of<'a>(records: &'a [Value], path: &str) -> &'a Value {
    let mut found = records.iter().filter(|record| record["path"] == path);
    let only = found.next().unwrap_or_else(|| panic!("no line of {path}"));
    assert!(found.next().is_none(), "a second line of {path}");
    only
}

#[test]
fn refused_and_failed_requests_are_told_of_whole_however_small_the_sample() {
    let failing = Backend::answering("HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno");
    let (gone, _held) = Backend::refusing();
    let gateway = Gateway::start(&every_way("sample = 0", &failing, &format!("http://{gone}")));
    let mut client = Client::connect(gateway.addr());
    (0..50).for_each(|number| drop(client.get(&format!("/fine/{number}"), "").expect(200)));
    client.get("/limited", "").expect(200);
    client.get("/limited", "").expect(429);
    client.get("/delayed", "").expect(200);
    client.get("/delayed", "").expect(200);
    client.get("/keyed", "x-key: a\r\n").expect(200);
    client.get("/keyed", "").expect(429);
    client.get("/failing?a=b", "x-key: a\r\n").expect(503);
    client.get("/gone", "").expect(502);
    client.get("/nowhere", "").expect(404);
    get_with(gateway.addr(), "/bad", "content-length: x\r\n").expect(400);
    let records = gateway.access_log(7);
    assert_eq!(records.len(), 7, "{records:#?}");
    let refused = of(&records, "/limited");
    assert_eq!(refused["decision"], "limited");
    assert_eq!(refused["limit"], "one");
    assert_eq!((refused["remaining"].as_u64(), refused["cost"].as_u64()), (Some(0), Some(1)));
    assert_eq!((&refused["host"], &refused["route"]), (&"test".into(), &"/limited".into()));
    assert_eq!(of(&records, "/delayed")["decision"], "delayed");
    assert_eq!(of(&records, "/keyed")["limit"], "keyed");
    let failed = of(&records, "/failing?a=b");
    assert_eq!((&failed["status"], &failed["decision"]), (&503.into(), &"allowed".into()));
    assert_eq!((&failed["limit"], &failed["remaining"]), (&"keyed".into(), &998.into()));
    assert_eq!(failed["upstream"], format!("failing/{}", failing.addr()).as_str());
    assert!(failed["upstream_ms"].is_number());
    assert_eq!(failed["request_id"].as_str(), failing.only().header("x-request-id").as_deref());
    assert_eq!((&failed["bytes_out"], &failed["method"]), (&2.into(), &"GET".into()));
    let gone = of(&records, "/gone");
    assert_eq!(
        (&gone["error"], &gone["limit"], &gone["decision"]),
        (&"connect".into(), &Value::Null, &Value::Null)
    );
    assert_eq!(of(&records, "/nowhere")["error"], "no_route");
    assert!(of(&records, "-")["error"].is_string());
}

#[test]
fn the_share_is_right_and_a_reload_changes_it() {
    let failing = Backend::ok();
    let toml = |sample: &str| every_way(&format!("sample = {sample}"), &failing, &failing.url());
    let mut gateway = Gateway::start(&toml("0.1"));
    let ask = |count: usize| {
        let mut clients = [Client::connect(gateway.addr()), Client::connect(gateway.addr())];
        for number in 0..count / 2 {
            // Requests that take turns must not hide one of them from the log.
            clients
                .iter_mut()
                .for_each(|client| drop(client.get(&format!("/fine/{}", number % 2), "").expect(200)));
        }
    };
    ask(2_000);
    gateway.reload(&toml("1"), "INFO reloaded");
    let before = eventually("no further lines of the sample", || {
        let lines = gateway.stdout_lines().len();
        std::thread::sleep(Duration::from_millis(200));
        (gateway.stdout_lines().len() == lines).then_some(lines)
    });
    assert!((180..=220).contains(&before), "{before} of 2000");
    for turn in ["/fine/0", "/fine/1"] {
        let found = gateway.access_log(0).iter().filter(|record| record["path"] == turn).count();
        assert!((80..=120).contains(&found), "{found} of 1000");
    }
    ask(100);
    eventually("every request", || (gateway.stdout_lines().len() == before + 100).then_some(()));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
}

#[test]
fn a_record_that_was_used_before_tells_nothing_of_the_request_before() {
    let failing = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[server]\nworkers = 1\n{}",
        every_way("sample = 0", &failing, "http://127.0.0.1:1")
    ));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..3 {
        client.get("/failing?long=0123456789", "x-key: a\r\nx-request-id: one\r\n").expect(200);
    }
    client.get("/none", "").expect(404);
    client.write("NO\0NSENSE\r\n\r\n");
    client.read().expect(400);
    let records = gateway.access_log(2);
    assert_eq!(records.len(), 2);
    for (record, path, host) in [(&records[0], "/none", "test"), (&records[1], "-", "")] {
        assert_eq!((&record["path"], &record["host"]), (&path.into(), &host.into()));
        assert_eq!(record["request_id"].as_str().map(str::len), Some(32), "an id of its own");
        for field in ["route", "upstream", "upstream_ms", "limit", "decision", "remaining", "cost"] {
            assert_eq!(record[field], Value::Null, "{field} of {path}");
        }
    }
}
