//! A server that an operator drains: `POST` and `DELETE …/servers/{server}/drain`.

use serde_json::Value;

use crate::harness::api::{api, ask as call};
use crate::harness::servers::{is_up, over};
use crate::harness::{Backend, Client, Gateway};

fn path(server: &Backend) -> String {
    format!("upstreams/api/servers/{}/drain", server.addr())
}

fn drained(gateway: &Gateway, server: &Backend) -> Value {
    let samples = api(gateway, "samples");
    let servers = samples["upstreams"]["api"]["servers"].as_array().expect("servers").clone();
    let its = servers.into_iter().find(|one| one["server"] == server.addr().to_string());
    its.expect("the server")["drained"].clone()
}

#[test]
fn it_gets_no_new_requests_until_it_is_undrained() {
    let (one, other) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&over(&[&one, &other], ""));
    let mut client = Client::connect(gateway.addr());
    let mut ask = |count: usize| (0..count).for_each(|_| drop(client.get("/", "").expect(200)));
    ask(10);
    assert_eq!((one.count(), other.count()), (5, 5));
    for changed in [true, false] {
        let (status, answer) = call(&gateway, &format!("POST {}", path(&one)), "{}");
        assert_eq!(
            (status, &answer["drained"], &answer["changed"]),
            (200, &true.into(), &changed.into()),
            "{answer}"
        );
    }
    ask(20);
    assert_eq!((one.count(), other.count()), (5, 25));
    // It is not down: nothing is wrong with it.
    assert!(is_up(&gateway, &one));
    assert_eq!((drained(&gateway, &one), drained(&gateway, &other)), (true.into(), false.into()));
    gateway.wait_for_log(&format!("{} is drained by", one.addr()));
    let (status, answer) = call(&gateway, &format!("DELETE {}", path(&one)), "");
    assert_eq!(
        (status, &answer["drained"], &answer["changed"]),
        (200, &false.into(), &true.into()),
        "{answer}"
    );
    ask(20);
    assert_eq!((one.count(), other.count()), (15, 35));
}

#[test]
fn the_status_tells_of_drained_servers() {
    let (one, other) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&over(&[&one, &other], ""));
    let told = || {
        let problem = api(&gateway, "status")["problems"][0].clone();
        [problem["severity"].clone(), problem["kind"].clone(), problem["text"].clone()]
    };
    assert_eq!(told(), [Value::Null, Value::Null, Value::Null]);
    call(&gateway, &format!("POST {}", path(&one)), "{}");
    let text = format!("Backend `api`: 1 of 2 servers is drained: {}", one.addr());
    assert_eq!(told(), ["warn".into(), "drained".into(), Value::from(text)]);
    call(&gateway, &format!("POST {}", path(&other)), "{}");
    let names = format!("{}, {}", one.addr(), other.addr());
    let text = format!("Backend `api` gets no requests, all its servers are drained: {names}");
    assert_eq!(told(), ["bad".into(), "drained".into(), Value::from(text)]);
}

#[test]
fn the_only_server_may_be_drained_too() {
    let server = Backend::ok();
    let gateway = Gateway::start(&over(&[&server], ""));
    call(&gateway, &format!("POST {}", path(&server)), "{}");
    gateway.get("/").expect(503);
    call(&gateway, &format!("DELETE {}", path(&server)), "");
    gateway.get("/").expect(200);
}

#[test]
fn unknown_names_are_not_found() {
    let server = Backend::ok();
    let gateway = Gateway::start(&over(&[&server], ""));
    for path in [
        "upstreams/other/servers/a:1/drain",
        "upstreams/api/servers/10.0.0.1:1/drain",
        "upstreams/api/servers/%FF/drain",
    ] {
        let (status, _) = call(&gateway, &format!("POST {path}"), "{}");
        assert!(status == 404 || status == 400, "{path}: {status}");
    }
    let (status, _) = call(&gateway, &format!("GET {}", path(&server)), "");
    assert_eq!(status, 405);
}
