//! The queue of a concurrency limit: in order of arrival, with a bound in length and time, and charged for nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::api::{api, good};
use crate::harness::in_flight::{ask, ask_with, begin, comes_to_hold, fits, held, limited};
use crate::harness::{Client, Gateway, HoldingBackend, eventually};

/// Long enough for a busy gateway to have read a request. Nothing outside tells that one waits.
const READ: Duration = Duration::from_millis(150);
const PATIENT: &str = "max_wait = \"25s\"";

/// Sends a request and gives the gateway the time to let it wait.
fn wait_in_queue(gateway: &Gateway, target: &str) -> Client {
    let client = begin(gateway, target);
    std::thread::sleep(READ);
    client
}

fn bucket(burst: u32) -> String {
    format!(
        "[limits.t]\nalgorithm = \"token-bucket\"\nkey = \"header:x-client\"\nrate = \"1/366day\"\nburst = {burst}\n"
    )
}

fn tokens(gateway: &Gateway) -> u64 {
    api(gateway, "limits/t/keys/a")["policies"][0]["remaining"].as_u64().expect("a number")
}

#[test]
fn requests_leave_the_queue_in_order_of_arrival_over_all_workers() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 2\nqueue = 14\n{PATIENT}");
    let gateway = Gateway::start(&limited(&backend, &limit, "", "[server]\nworkers = 4\n"));
    let mut clients = vec![begin(&gateway, "/0"), begin(&gateway, "/1")];
    backend.holds(2);
    clients.extend((2..16).map(|number| wait_in_queue(&gateway, &format!("/{number}"))));
    let started = Instant::now();
    begin(&gateway, "/too-many").read().expect(429);
    assert!(started.elapsed() < Duration::from_secs(20), "a full queue refuses at once");
    // One at a time, so that the order at the backend is the order in which the gateway admits.
    for (number, client) in clients.iter_mut().enumerate() {
        let target = format!("/{number}");
        backend.release(&target);
        client.read().expect(200);
        backend.has_got((number + 3).min(16));
    }
    let order: Vec<_> = (0..16).map(|number| format!("/{number}")).collect();
    let arrived = backend.arrivals();
    // The first two did not wait.
    assert_eq!(arrived[2..], order[2..]);
    assert_eq!(backend.max(), 2);
    backend.close();
    comes_to_hold(&gateway, 0);
}

/// The API and `explain` tell what a request would meet now: it waits while there is room, and is refused beyond that.
#[test]
fn a_request_that_would_wait_is_told_as_delayed() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 1\n{PATIENT}");
    let gateway = Gateway::start(&limited(&backend, &limit, "", ""));
    let told = || {
        let key = api(&gateway, "limits/x/keys/a");
        assert_eq!(key["policies"][0]["next_ms"].is_null(), key["verdict"] != "admitted", "{key}");
        let question = r#"{"url": "/", "headers": {"x-client": "a"}}"#;
        let explained = good(&gateway, "POST explain", question);
        assert_eq!(explained["verdict"], key["verdict"], "{explained}");
        assert_eq!(explained["limits"][0]["verdict"], key["verdict"], "{explained}");
        assert!(
            explained["wait_ms"].as_u64().unwrap_or_default() == 0 && explained["until"].is_null(),
            "{explained}"
        );
        ["verdict", "limit", "status"].map(|name| explained[name].clone())
    };
    let mut first = begin(&gateway, "/first");
    backend.holds(1);
    assert_eq!(told(), [json!("delayed"), json!("x"), Value::Null]);
    let mut second = wait_in_queue(&gateway, "/second");
    let waiting = || gateway.metric("tollgate_concurrency_waiting", &["limit=\"x\""]);
    eventually("the second to wait", || (waiting() > 0.5).then_some(()));
    assert_eq!(told(), [json!("refused"), json!("x"), json!(429)]);
    backend.open();
    first.read().expect(200);
    second.read().expect(200);
    comes_to_hold(&gateway, 0);
    assert_eq!(told()[0], "admitted");
}

/// Metrics, log and list of limits tell of the same delays.
#[test]
fn a_wait_for_a_place_is_a_delay_wherever_it_is_told() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 5\n{PATIENT}");
    let gateway = Gateway::start(&limited(&backend, &limit, "limits = [\"x\", \"t\"]", &bucket(50)));
    let mut first = begin(&gateway, "/first");
    backend.holds(1);
    let mut second = wait_in_queue(&gateway, "/second");
    backend.release("/first");
    first.read().expect(200);
    backend.has_got(2);
    backend.release("/second");
    second.read().expect(200);
    comes_to_hold(&gateway, 0);
    for (limit, decision, count) in
        [("x", "allowed", 1.0), ("x", "delayed", 1.0), ("t", "allowed", 2.0), ("t", "delayed", 0.0)]
    {
        let labels = [format!("limit=\"{limit}\""), format!("decision=\"{decision}\"")];
        let labels = labels.each_ref().map(String::as_str);
        assert_eq!(gateway.metric("tollgate_decisions_total", &labels), count, "{limit} {decision}");
    }
    let told: Vec<_> = gateway
        .access_log(2)
        .iter()
        .map(|record| {
            ["path", "limit", "decision"].map(|field| record[field].as_str().unwrap_or("").to_owned())
        })
        .collect();
    assert_eq!(told, [["/first", "t", "allowed"], ["/second", "x", "delayed"]]);
    eventually("the list of limits to tell of it", || {
        let limits = api(&gateway, "limits");
        let x = limits["limits"].as_array()?.iter().find(|limit| limit["name"] == "x")?;
        (x["minute"]["delayed"] == 1).then_some(())
    });
}

#[test]
fn each_key_has_its_own_queue() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, &format!("max = 1\nqueue = 5\n{PATIENT}"), "", ""));
    let mut first = begin(&gateway, "/a-0");
    backend.holds(1);
    let mut second = wait_in_queue(&gateway, "/a-1");
    let mut other = Client::connect(gateway.addr());
    other.write("GET /b HTTP/1.1\r\nhost: test\r\nx-client: b\r\n\r\n");
    backend.holds(2);
    assert_eq!(backend.arrivals(), ["/a-0", "/b"]);
    backend.open();
    for client in [&mut first, &mut second, &mut other] {
        client.read().expect(200);
    }
}

#[test]
fn max_wait_refuses_and_charges_nothing() {
    let backend = HoldingBackend::start();
    let limit = "max = 1\nqueue = 5\nmax_wait = \"300ms\"";
    let gateway = Gateway::start(&limited(&backend, limit, "limits = [\"x\", \"t\"]", &bucket(10)));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let started = Instant::now();
    let refused = begin(&gateway, "/1").read().expect(429);
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.header("ratelimit"), Some("\"x\";r=0"));
    assert_eq!((tokens(&gateway), held(&gateway)), (9, 1));
    backend.open();
    first.read().expect(200);
    fits(&gateway, &backend, 1);
}

#[test]
fn no_other_limit_is_charged_while_a_request_waits() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 5\n{PATIENT}");
    let gateway = Gateway::start(&limited(&backend, &limit, "limits = [\"t\", \"x\"]", &bucket(10)));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut second = wait_in_queue(&gateway, "/1");
    assert_eq!((tokens(&gateway), held(&gateway)), (9, 1));
    backend.release("/0");
    first.read().expect(200);
    backend.has_got(2);
    assert_eq!((tokens(&gateway), held(&gateway)), (8, 1));
    backend.open();
    second.read().expect(200);
}

/// The tokens that a request found on arrival may be gone when its place is free: then it is refused, without a charge.
#[test]
fn all_limits_are_decided_again_when_a_place_is_free() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 5\n{PATIENT}");
    let more = "[[routes]]\nname = \"bucket\"\npath = \"/bucket\"\nupstream = \"api\"\nlimits = [\"t\"]\n";
    let rest = format!("{}{more}", bucket(2));
    let gateway = Gateway::start(&limited(&backend, &limit, "limits = [\"x\", \"t\"]", &rest));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut second = wait_in_queue(&gateway, "/1");
    backend.release("/bucket");
    begin(&gateway, "/bucket").read().expect(200);
    assert_eq!(tokens(&gateway), 0);
    backend.release("/0");
    first.read().expect(200);
    let refused = second.read().expect(429);
    assert!(refused.header("retry-after").is_some(), "by the bucket: {}", refused.head);
    comes_to_hold(&gateway, 0);
    assert_eq!(backend.arrivals(), ["/0", "/bucket"]);
}

#[test]
fn a_request_is_charged_by_all_limits_or_by_none() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 2", "limits = [\"x\", \"t\"]", &bucket(3)));
    let mut clients = [begin(&gateway, "/0"), begin(&gateway, "/1")];
    backend.holds(2);
    for number in 0..5 {
        begin(&gateway, &format!("/refused-{number}")).read().expect(429);
    }
    assert_eq!((tokens(&gateway), held(&gateway)), (1, 2), "without a place no token is taken");
    backend.open();
    for client in &mut clients {
        client.read().expect(200);
    }
    comes_to_hold(&gateway, 0);
    begin(&gateway, "/last").read().expect(200);
    for number in 0..5 {
        let refused = begin(&gateway, &format!("/empty-{number}")).read().expect(429);
        assert!(refused.header("retry-after").is_some(), "by the bucket: {}", refused.head);
    }
    assert_eq!((tokens(&gateway), held(&gateway)), (0, 0), "without a token no place is taken");
}

/// A request for many places is not overtaken by requests for few.
#[test]
fn a_request_that_costs_more_keeps_its_turn() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 4\nqueue = 10\n{PATIENT}");
    let large =
        "[[routes]]\nname = \"large\"\npath = \"/large\"\nupstream = \"api\"\nlimits = [\"x\"]\ncost = 4\n";
    let gateway = Gateway::start(&limited(&backend, &limit, "", large));
    let mut early = [begin(&gateway, "/0"), begin(&gateway, "/1")];
    backend.holds(2);
    let mut large = wait_in_queue(&gateway, "/large");
    // Two places are free, and are kept for the request before it.
    let mut late = wait_in_queue(&gateway, "/2");
    assert_eq!((backend.present(), held(&gateway)), (2, 2));
    backend.release("/0");
    early[0].read().expect(200);
    backend.release("/1");
    early[1].read().expect(200);
    backend.has_got(3);
    assert_eq!((backend.arrivals()[2..].to_vec(), held(&gateway)), (vec!["/large".to_owned()], 4));
    backend.open();
    large.read().expect(200);
    late.read().expect(200);
    fits(&gateway, &backend, 4);
}

#[test]
fn a_client_that_leaves_the_queue_leaves_no_trace() {
    let backend = HoldingBackend::start();
    let limit = format!("max = 1\nqueue = 3\n{PATIENT}");
    let gateway = Gateway::start(&limited(&backend, &limit, "limits = [\"x\", \"t\"]", &bucket(10)));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let reset = wait_in_queue(&gateway, "/reset");
    let closed = wait_in_queue(&gateway, "/closed");
    let mut half_closed = wait_in_queue(&gateway, "/half-closed");
    begin(&gateway, "/too-many").read().expect(429);
    reset.reset();
    drop(closed);
    half_closed.finish();
    assert!(half_closed.closes(), "nothing is answered");
    std::thread::sleep(READ);
    let mut last = wait_in_queue(&gateway, "/last");
    backend.release("/0");
    first.read().expect(200);
    backend.has_got(2);
    assert_eq!(backend.arrivals(), ["/0", "/last"]);
    assert_eq!(tokens(&gateway), 8, "those that left are not charged");
    backend.open();
    last.read().expect(200);
    let gone = gateway.access_log(6).into_iter().filter(|line| line["status"] == 499).count();
    assert_eq!(gone, 3, "{:#?}", gateway.stdout_lines());
    fits(&gateway, &backend, 1);
}

/// A body that is sent ahead of the turn waits with its request.
#[test]
fn a_queued_upload_arrives_whole() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, &format!("max = 1\nqueue = 3\n{PATIENT}"), "", ""));
    let mut first = begin(&gateway, "/0");
    backend.holds(1);
    let mut upload = Client::connect(gateway.addr());
    let request = ask_with("/upload", "content-length: 300000\r\n").replace("GET", "POST");
    let writer = upload.write_in_background([request.as_bytes(), &[b'a'; 300_000]].concat());
    std::thread::sleep(READ);
    assert_eq!(backend.present(), 1);
    backend.open();
    first.read().expect(200);
    upload.read().expect(200);
    writer.join().expect("it is written");
    let mut pipelined = Client::connect(gateway.addr());
    pipelined.write(format!("{}{}", ask("/one"), ask("/two")));
    pipelined.read().expect(200);
    pipelined.read().expect(200);
    fits(&gateway, &backend, 1);
}
