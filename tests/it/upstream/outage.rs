//! An outage of a backend is told of: by metrics, the program log, the admin API and the shipped alerts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::api::{api, samples_with, sum};
use crate::harness::exposition::{Page, Series};
use crate::harness::servers::{failing, is_up, over};
use crate::harness::{Backend, Client, Gateway, Next, eventually, promtool};

/// Scrapes that are taken, a minute apart as far as Prometheus knows.
const SCRAPES: usize = 25;
/// Requests between two scrapes: enough to be over the alerts' least rates.
const REQUESTS: usize = 20;

fn status(code: u16) -> Backend {
    Backend::answering(format!("HTTP/1.1 {code} Status\r\ncontent-length: 0\r\n\r\n"))
}

fn hanging() -> Backend {
    Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    })
}

/// A gateway before these servers.
fn before(servers: &str) -> Gateway {
    Gateway::start(&file(servers, "5s"))
}

/// The file of [`before`], with this `timeout` of the route.
fn file(servers: &str, timeout: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{servers}]\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n\
         timeout = \"{timeout}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"
    )
}

fn quoted(servers: &[&Backend]) -> String {
    servers.iter().map(|server| format!("\"{}\"", server.url())).collect::<Vec<_>>().join(", ")
}

fn page(gateway: &Gateway) -> Page {
    Page::parse(&gateway.admin("/metrics").expect(200).text())
}

/// Lines of the program log about the upstream.
fn told(gateway: &Gateway) -> Vec<String> {
    let lines = gateway.stderr_lines();
    let about = |line: &String| line.find("upstream `api`").map(|start| line[start..].to_owned());
    lines.iter().filter_map(about).collect()
}

/// The texts of the problems in the status, once there are that many.
fn problems(gateway: &Gateway, count: usize) -> Vec<(String, String)> {
    eventually(&format!("{count} problems"), || {
        Some(problems_now(gateway)).filter(|problems| problems.len() == count)
    })
}

fn problem(severity: &str, text: impl Into<String>) -> (String, String) {
    (severity.to_owned(), text.into())
}

/// Before each later scrape, sends a number of requests that all get this status.
fn scrapes(gateway: &Gateway, requests: usize, status: u16) -> Vec<Page> {
    let mut scrapes = vec![page(gateway)];
    for _ in 1..SCRAPES {
        (0..requests).for_each(|_| _ = gateway.get("/").expect(status));
        scrapes.push(page(gateway));
    }
    scrapes
}

/// That Prometheus' own tool, fed with these scrapes, finds exactly these alerts firing at the end.
#[track_caller]
fn assert_fires(scrapes: &[Page], expected: &[&str]) {
    let mut series: BTreeMap<Series, Vec<Option<f64>>> = BTreeMap::new();
    for (number, page) in scrapes.iter().enumerate() {
        for (name, value) in page.all() {
            let values = series.entry(name.clone()).or_insert_with(|| vec![None; scrapes.len()]);
            values[number] = Some(value);
        }
    }
    let input: Vec<Value> = series.iter().map(|(name, values)| input(name, values)).collect();
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts.yml");
    let samples: Vec<Value> = expected
        .iter()
        .map(|name| json!({ "labels": format!("{{alertname=\"{name}\"}}"), "value": 1 }))
        .collect();
    let question = json!({
        "expr": "group by (alertname) (ALERTS{alertstate=\"firing\"})",
        "eval_time": format!("{}m", scrapes.len() - 1), "exp_samples": samples,
    });
    let test = json!({ "rule_files": [alerts], "evaluation_interval": "1m", "tests": [{
        "interval": "1m", "input_series": input, "promql_expr_test": [question],
    }]});
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("outage.yml");
    std::fs::write(&file, test.to_string()).expect("it can be written");
    promtool(&["test", "rules", file.to_str().expect("text")], &file);
}

/// A series as the tool reads it: one value a minute, `_` where the scrape had none.
fn input((name, labels): &Series, values: &[Option<f64>]) -> Value {
    let mut text = format!("{name}{{job=\"tollgate\", instance=\"here\"");
    for (label, value) in labels {
        _ = write!(text, ", {label}=\"{value}\"");
    }
    let values: Vec<String> =
        values.iter().map(|value| value.map_or_else(|| "_".to_owned(), |value| value.to_string())).collect();
    json!({ "series": text + "}", "values": values.join(" ") })
}

#[test]
fn a_backend_that_answers_500_is_an_outage_though_it_is_up() {
    let backend = status(500);
    let gateway = before(&quoted(&[&backend]));
    let scrapes = scrapes(&gateway, REQUESTS, 500);
    assert_fires(&scrapes, &["TollgateServerErrorShareHigh", "TollgateBackendErrors"]);
    let sent = ((SCRAPES - 1) * REQUESTS) as u64;
    let page = page(&gateway);
    let server = backend.addr().to_string();
    let responses = |class| {
        let labels = [("upstream", "api"), ("server", server.as_str()), ("class", class)];
        page.get("tollgate_upstream_responses_total", &labels)
    };
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|class| responses(class).expect("a series"));
    assert_eq!(classes, [0.0, 0.0, 0.0, 0.0, sent as f64]);
    assert!(is_up(&gateway, &backend), "an answer is a sign of life");
    assert_eq!(told(&gateway), [""; 0]);
    let samples = samples_with(&gateway, sent);
    assert_eq!((sum(&samples["all"]["admitted"]), sum(&samples["all"]["failed"])), (0, sent));
    let upstream = &samples["upstreams"]["api"];
    assert_eq!((sum(&upstream["classes"]["5xx"]), sum(&upstream["classes"]["2xx"])), (sent, 0));
    let told = &upstream["servers"][0];
    assert_eq!((&told["up"], &told["minute"]["5xx"]), (&true.into(), &sent.into()));
    gateway.get("/").expect(500);
    let told = problems(&gateway, 1);
    assert_eq!(told[0].0, "bad");
    assert!(told[0].1.starts_with("`api` fails: ") && told[0].1.ends_with(" end in 5xx"), "{told:?}");
    let refusals = api(&gateway, "refusals");
    let last = refusals["refusals"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["status"], &last["reason"]), (&500.into(), &"answer of the backend".into()));
}

#[test]
fn a_backend_that_is_away_is_down_though_it_is_the_only_one() {
    let (away, _held) = Backend::refusing();
    let gateway = before(&format!("\"http://{away}\""));
    let up = || gateway.metric("tollgate_upstream_up", &[]) > 0.0;
    (0..4).for_each(|_| _ = gateway.get("/").expect(502));
    assert!(up(), "four failures are too few");
    let scrapes = scrapes(&gateway, REQUESTS, 502);
    assert!(!up());
    assert_fires(
        &scrapes,
        &["TollgateServerErrorShareHigh", "TollgateNoHealthyServer", "TollgateServerDown"],
    );
    let line = format!("upstream `api`: {away} is down: 5 failures in a row, connection refused");
    eventually("a line in the log", || (told(&gateway) == [line.as_str()]).then_some(()));
    assert_eq!(problems(&gateway, 1), [problem("bad", "Backend `api` is down: connection refused")]);
    let server = &api(&gateway, "samples")["upstreams"]["api"]["servers"][0];
    let state = ["up", "why", "reason"].map(|key| server[key].clone());
    assert_eq!(state, [json!(false), json!("failing"), json!("connection refused")]);
}

#[test]
fn a_backend_that_hangs_is_down_until_it_answers() {
    let healed = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&healed);
    let backend = Backend::start(move |exchange| {
        exchange.read_body();
        if !switch.load(Ordering::SeqCst) {
            exchange.hang();
            return Next::Close;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&file(&quoted(&[&backend]), "20ms"));
    let outage = scrapes(&gateway, 7, 504);
    assert_fires(&outage, &["TollgateServerErrorShareHigh", "TollgateNoHealthyServer", "TollgateServerDown"]);
    assert!(!is_up(&gateway, &backend));
    let reason = "no response within the route's `timeout`";
    assert_eq!(problems(&gateway, 1), [problem("bad", format!("Backend `api` is down: {reason}"))]);
    // A busy machine may need longer than that for a good answer.
    gateway.reload(&file(&quoted(&[&backend]), "5s"), "reloaded:");
    assert!(!is_up(&gateway, &backend), "a reload is not an answer");
    healed.store(true, Ordering::SeqCst);
    gateway.get("/").expect(200);
    assert!(is_up(&gateway, &backend), "one answer is enough");
    let server = backend.addr();
    let lines = [
        format!("upstream `api`: {server} is down: 5 failures in a row, {reason}"),
        format!("upstream `api`: {server} is up again"),
    ];
    eventually("two lines in the log", || (told(&gateway) == lines).then_some(()));
    let all: Vec<Page> = outage.into_iter().chain(scrapes(&gateway, REQUESTS, 200)).collect();
    assert_fires(&all, &[]);
}

#[test]
fn retries_count_at_the_server_that_failed() {
    let (away, _held) = Backend::refusing();
    let good = Backend::ok();
    let gateway = Gateway::start(
        &over(&[&good], "eject = { failures = 0 }\nretry = { attempts = 2, budget = 1 }")
            .replace("servers = [", &format!("servers = [\"http://{away}\", ")),
    );
    let scrapes = scrapes(&gateway, REQUESTS, 200);
    let last = scrapes.last().expect("a scrape");
    let labels = [("upstream", "api"), ("server", &*away.to_string()), ("reason", "connect")];
    let retries = last.get("tollgate_upstream_retries_total", &labels).expect("a series");
    let requests = ((SCRAPES - 1) * REQUESTS) as u64;
    let sent = requests as f64;
    assert!(retries > sent / 3.0 && retries < sent, "{retries} of {sent}");
    assert_eq!(last.sum("tollgate_upstream_retries_total", &[]), retries);
    assert_eq!(last.sum("tollgate_upstream_responses_total", &[("class", "2xx")]), sent);
    assert_eq!(
        last.sum("tollgate_upstream_up", &[("server", &*away.to_string())]),
        0.0,
        "without ejection, too"
    );
    assert_fires(&scrapes, &["TollgateServerDown", "TollgateRetries"]);
    let samples = samples_with(&gateway, requests);
    let upstream = &samples["upstreams"]["api"];
    assert_eq!(sum(&upstream["retries"]) as f64, retries);
    assert_eq!(upstream["servers"][0]["retries"].as_f64(), Some(retries));
}

#[test]
fn calm_traffic_fires_nothing_and_tells_of_nothing() {
    let backend = Backend::ok();
    let gateway = before(&quoted(&[&backend]));
    assert_fires(&scrapes(&gateway, REQUESTS, 200), &[]);
    assert_eq!(problems(&gateway, 0), []);
    assert_eq!(told(&gateway), [""; 0]);
}

#[test]
fn an_ejected_server_is_told_of_once_however_often_it_is_tried() {
    let ((server, broken), good) = (failing(), Backend::ok());
    let gateway = Gateway::start(&over(&[&server, &good], "eject = { failures = 2, for = \"50ms\" }"));
    let ejections = || gateway.metric("tollgate_upstream_ejections_total", &[]);
    let line = format!("upstream `api`: {} is down and is ejected: 2 failures in a row", server.addr());
    eventually("three ejections and a line", || {
        gateway.get("/").expect(200);
        assert!(ejections() < 1.0 || !is_up(&gateway, &server), "it has not answered");
        (ejections() >= 3.0 && !told(&gateway).is_empty()).then_some(())
    });
    broken.store(false, Ordering::SeqCst);
    eventually("it is up again", || {
        gateway.get("/").expect(200);
        is_up(&gateway, &server).then_some(())
    });
    eventually("two lines", || (told(&gateway).len() >= 2).then_some(()));
    let lines = told(&gateway);
    assert!(lines[0].starts_with("upstream `api`") && lines[0].contains(" is down"), "{lines:?}");
    assert!(lines[0].starts_with(&line) || !lines[0].contains("ejected"), "{lines:?}");
    assert_eq!(lines[1..], [format!("upstream `api`: {} is up again", server.addr())]);
}

#[test]
fn a_reload_tells_nothing_anew() {
    let (away, _held) = Backend::refusing();
    let gateway = before(&format!("\"http://{away}\""));
    (0..5).for_each(|_| _ = gateway.get("/").expect(502));
    eventually("a line in the log", || (told(&gateway).len() == 1).then_some(()));
    gateway.reload(&file(&format!("\"http://{away}\""), "6s"), "reloaded:");
    // As soon as the log has been looked after again there would be another line.
    let seq = || api(&gateway, "samples")["seq"].as_u64().expect("a number");
    let first = seq();
    eventually("two seconds", || (seq() >= first + 2).then_some(()));
    assert_eq!(told(&gateway).len(), 1);
    assert_eq!(gateway.metric("tollgate_upstream_up", &[]), 0.0);
}

/// Health checks tell of a change themselves: it is told of once, and the return ends what failed requests say.
#[test]
fn health_checks_and_failed_requests_tell_of_one_return() {
    let broken = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&broken);
    let backend = Backend::start(move |exchange| {
        exchange.read_body();
        if switch.load(Ordering::SeqCst) {
            return Next::Reset;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&over(&[&backend], "health = { path = \"/up\", interval = \"300ms\" }"));
    gateway.get("/").expect(200);
    // The first check alone would decide; with the second one it is over.
    backend.wait_for(3);
    broken.store(true, Ordering::SeqCst);
    (0..6).for_each(|_| _ = gateway.get("/").expect(502));
    assert!(!is_up(&gateway, &backend), "failed requests are faster than health checks");
    let has = |words: &str| told(&gateway).iter().any(|line| line.contains(words));
    eventually("the health check tells", || has("is unhealthy: ").then_some(()));
    assert_eq!(problems(&gateway, 1)[0].0, "bad");
    broken.store(false, Ordering::SeqCst);
    eventually("its return", || has("is healthy again").then_some(()));
    assert!(is_up(&gateway, &backend), "without a request");
    let seq = || api(&gateway, "samples")["seq"].as_u64().expect("a number");
    let first = seq();
    eventually("two seconds", || (seq() >= first + 2).then_some(()));
    let downs = told(&gateway).iter().filter(|line| line.contains(" is down: ")).count();
    assert!(downs <= 1 && !has("is up again"), "{:?}", told(&gateway));
}

#[test]
fn a_server_that_hangs_beside_others_is_one_of_them() {
    let (bad, good) = (hanging(), Backend::ok());
    let gateway = Gateway::start(&file(&quoted(&[&bad, &good]), "200ms"));
    eventually("its ejection", || {
        gateway.get("/");
        (!is_up(&gateway, &bad)).then_some(())
    });
    let text = eventually("the others' share", || {
        problems_now(&gateway).into_iter().find(|(severity, _)| severity == "warn")
    });
    let reason = "no response within the route's `timeout`";
    assert_eq!(text.1, format!("Backend `api`: 1 of 2 servers is down: {} ({reason})", bad.addr()));
}

/// Sends this number of requests on one connection, so that one worker chooses the servers in turn.
fn ask_in_turn(gateway: &Gateway, requests: usize) -> Vec<u16> {
    let mut client = Client::connect(gateway.addr());
    (0..requests).map(|_| client.get("/", "").status).collect()
}

#[test]
fn the_server_that_fails_is_named_beside_those_that_do_not() {
    let (bad, good) = (status(500), Backend::ok());
    let gateway = Gateway::start(&over(&[&bad, &good], "eject = { failures = 0 }"));
    let failed = ask_in_turn(&gateway, 22).into_iter().filter(|status| *status == 500).count();
    assert_eq!(failed, 11);
    samples_with(&gateway, 22);
    let text = format!("`api`: {} fails 11 of 11 requests in 10 s (5xx)", bad.addr());
    assert_eq!(problems(&gateway, 1), [problem("bad", text)]);
    // Without an answer, too: its failures are retried at the other.
    let (away, _held) = Backend::refusing();
    let lines = "eject = { failures = 0 }\nretry = { attempts = 2, budget = 1 }";
    let servers = over(&[&good], lines).replace("servers = [", &format!("servers = [\"http://{away}\", "));
    let gateway = Gateway::start(&servers);
    assert_eq!(ask_in_turn(&gateway, 8), [200; 8]);
    samples_with(&gateway, 8);
    let text = format!("`api`: {away} fails 4 of 4 attempts in 10 s (no answer)");
    assert_eq!(problems(&gateway, 1), [problem("bad", text)]);
}

#[test]
fn a_retry_budget_that_is_used_up_is_told_of() {
    let (away, _held) = Backend::refusing();
    let good = Backend::ok();
    let lines = "eject = { failures = 0 }\nretry = { attempts = 2, budget = 0 }";
    let servers = over(&[&good], lines).replace("servers = [", &format!("servers = [\"http://{away}\", "));
    let gateway = Gateway::start(&format!("[server]\nworkers = 1\n{servers}"));
    let find = |gateway: &Gateway| {
        let texts = problems_now(gateway).into_iter();
        texts.filter(|(_, text)| text.contains("retry `budget`")).collect::<Vec<_>>()
    };
    assert_eq!(ask_in_turn(&gateway, 20), [200; 20]);
    samples_with(&gateway, 20);
    assert_eq!(find(&gateway), [], "some retries are always allowed");
    // Without a share of the requests, 100 in 10 s may be retried.
    let refused = eventually("502", || Some(ask_in_turn(&gateway, 100)).filter(|told| told.contains(&502)));
    assert!(refused.contains(&200));
    let told = eventually("the problem", || Some(find(&gateway)).filter(|told| !told.is_empty()));
    assert_eq!(told[0].0, "warn");
    let start = "Backend `api`: the retry `budget` is used up, ";
    assert!(told[0].1.starts_with(start) && told[0].1.ends_with(" not retried in 10 s"), "{told:?}");
}

#[test]
fn a_backend_that_rejects_half_of_its_requests_is_told_of() {
    let (rejecting, good) = (status(401), Backend::ok());
    let gateway = Gateway::start(&over(&[&rejecting, &good], ""));
    assert_eq!(ask_in_turn(&gateway, 20).into_iter().filter(|status| *status == 401).count(), 10);
    samples_with(&gateway, 20);
    let text = "Backend `api`: 10 of 20 requests in 10 s end in 4xx";
    assert_eq!(problems(&gateway, 1), [problem("warn", text)]);
}

fn problems_now(gateway: &Gateway) -> Vec<(String, String)> {
    let status = api(gateway, "status");
    let text = |one: &Value, key: &str| one[key].as_str().expect("a text").to_owned();
    let list = status["problems"].as_array().expect("a list");
    list.iter().map(|one| (text(one, "severity"), text(one, "text"))).collect()
}
