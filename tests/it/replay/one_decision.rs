//! One stream of random requests over random plans: the gateway over either version of HTTP, `replay`, and `explain` with
//! and without the running gateway come to the same decision.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate::config;
use tollgate::explain::{ExplainRequest, explain};
use tollgate::plan::Plan;

use crate::harness::api::good;
use crate::harness::replayed::{numbers, replay};
use crate::harness::{AllVersions, Backend, Body, Client, Gateway, Multiplexed, Next};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const REQUESTS: usize = 1_000;
/// The names of routes, by the credential that they ask for.
const ROUTES: [&str; 6] = ["open", "keyed", "optional", "password", "token", "asked"];

/// What limits count by, and what decides.
const FIELDS: &str = r#"["time", "method", "host", "path", "route", "status", "duration_ms", "client", "consumer", "tier",
"limit", "decision", "remaining", "cost", "reserved", "settled", "error", "header:x-tenant", "header:x-exempt"]"#;

/// Numbers that look random.
struct Draw(Box<dyn FnMut() -> u32>);

impl Draw {
    fn below(&mut self, end: u32) -> u32 {
        (self.0)() % end
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(u32::try_from(of.len()).expect("few")) as usize]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

/// A limit that refuses some of the requests of a key, and that time hardly changes.
fn limit(name: &str, draw: &mut Draw) -> String {
    let (rate, burst) = (5 + draw.below(60), 5 + draw.below(20));
    let (kind, numbers) = match draw.below(8) {
        0 => ("token-bucket", format!("rate = \"{rate}/366day\"\nburst = {burst}")),
        1 => ("gcra", format!("rate = \"{rate}/366day\"\nburst = {burst}")),
        2 => (
            "fixed-window",
            format!("rate = \"{rate}/year\"\nalign = \"first-request\"").replace("/year", "/300day"),
        ),
        3 => ("fixed-window", format!("rate = \"{rate}/year\"\nalign = \"calendar\"")),
        4 => ("sliding-window", format!("rate = [\"{rate}/200day\", \"{}/300day\"]", rate + 20)),
        5 => ("sliding-log", format!("rate = \"{rate}/300day\"\ncount_denied = {}", draw.chance(50))),
        6 => ("leaky-bucket", format!("rate = \"{rate}/300day\"\nqueue = {burst}\nmax_wait = \"1ms\"")),
        _ => ("concurrency", "max = 10".to_owned()),
    };
    let key = draw.one(&[
        "\"ip\"",
        "\"header:x-tenant\"",
        "\"query:user\"",
        "[\"ip\", \"path\"]",
        "[\"ip\", \"route\"]",
        "\"consumer\"",
        "[\"consumer\", \"header:x-tenant\"]",
    ]);
    let mut text = format!("[limits.{name}]\nalgorithm = \"{kind}\"\nkey = {key}\n{numbers}\n");
    let early =
        !key.contains("consumer") && !matches!(kind, "leaky-bucket" | "concurrency") && draw.chance(40);
    if early {
        text.push_str("before_auth = true\n");
    }
    match draw.below(10) {
        0 | 1 => text.push_str("mode = \"shadow\"\n"),
        2 if !early => text.push_str("trial = 0.5\n"),
        _ => {}
    }
    if key != "\"ip\"" && !key.contains("path") && !key.contains("route") {
        let _ = writeln!(text, "missing = \"{}\"", draw.one(&["skip", "deny", "shared", "ip"]));
    }
    if draw.chance(30) {
        let _ =
            writeln!(text, "ban = {{ after = {}, within = \"1day\", for = \"2day\" }}", 2 + draw.below(5));
    }
    if draw.chance(20) {
        text.push_str("exempt = [\"header:x-exempt=1\"]\n");
    }
    if key.contains("consumer") && !matches!(kind, "concurrency" | "sliding-window") {
        let numbers = numbers.lines().next().unwrap_or_default().replace("rate = \"", "rate = \"1");
        let _ = writeln!(text, "[limits.{name}.tiers.pro]\n{numbers}");
    }
    text
}

fn cost(draw: &mut Draw) -> &'static str {
    match draw.below(5) {
        0 => "cost = 2\n",
        1 => "cost = { from = \"query:n\", max = 3, missing = 1 }\n",
        2 => "cost = { reserve = 2, settle = \"status\", status = { \"2xx\" = 3, \"4xx\" = 1 } }\n",
        _ => "",
    }
}

fn route(name: &str, limits: &[String], draw: &mut Draw) -> String {
    let auth = match name {
        "open" => "",
        "keyed" => "auth = \"keys\"\n",
        "optional" => "auth = \"keys\"\nauth_optional = true\n",
        "password" => "auth = \"users\"\n",
        "token" => "auth = \"tokens\"\n",
        _ => "auth = \"door\"\n",
    };
    let action = match draw.below(6) {
        0 => "respond = { status = 204 }\n",
        1 => "redirect = { to = \"https://a.test/{*}\", status = 302 }\n",
        2 => "upstream = { blue = 60, green = 40 }\n",
        _ => "upstream = \"blue\"\n",
    };
    let cost = if action.contains("upstream") { cost(draw) } else { "" };
    let mut used: Vec<&String> = limits.iter().filter(|_| draw.chance(40)).collect();
    used.truncate(4);
    format!("[[routes]]\nname = \"{name}\"\npath = \"/{name}/*\"\n{auth}{action}{cost}limits = {used:?}\n")
}

/// A file with these features, which is good.
fn file(draw: &mut Draw, folder: &Path, door: &Backend) -> (String, Plan) {
    for _ in 0..1_000 {
        let names: Vec<String> = (0..10).map(|number| format!("limit-{number}")).collect();
        let limits: String = names.iter().map(|name| limit(name, draw)).collect();
        let routes: String = ROUTES.iter().map(|name| route(name, &names, draw)).collect();
        let text = format!(
            "[server]\nworkers = 1\ntrusted_proxies = [\"127.0.0.1\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nfile = {:?}\nfields = {FIELDS}\n[upstreams]\nblue = \"builtin:echo\"\ngreen = \"builtin:echo\"\n\
             [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = {:?}\nfailures = \"wrong\"\n\
             [auth.users]\ntype = \"basic\"\nfile = {:?}\nfailures = \"wrong\"\n\
             [auth.tokens]\ntype = \"jwt\"\nsecret_env = \"TOKEN_SECRET\"\n\
             [auth.door]\ntype = \"forward\"\nurl = \"{}/\"\n\
             [limits.wrong]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"{}/300day\"\nalign = \"first-request\"\n{limits}{routes}",
            folder.join("access.log"),
            folder.join("consumers.csv"),
            folder.join("users"),
            door.url(),
            3 + draw.below(20),
        );
        let environment = |name: &str| (name == "TOKEN_SECRET").then(|| SECRET.to_owned());
        if let Ok(loaded) = config::parse(text.as_bytes(), "gateway.toml", &environment) {
            return (text, loaded.plan);
        }
    }
    panic!("no random file is good");
}

/// One request, and whether it can be explained: to explain one with a wrong credential charges it.
struct Asked {
    target: String,
    fields: Vec<(&'static str, String)>,
    /// HTTP/1.1, or one of the versions with streams.
    version: u32,
    is_explained: bool,
}

fn asked(draw: &mut Draw, token: &str) -> Asked {
    let name = draw.one(&ROUTES);
    let (user, tenant, number) = (draw.below(12), draw.below(6), draw.below(5));
    let mut target = format!("/{name}/{}", draw.below(3));
    let query = [format!("user={user}"), format!("n={number}")];
    let query: Vec<String> = query.into_iter().filter(|_| draw.chance(70)).collect();
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let mut fields = vec![("x-forwarded-for", format!("198.51.100.{}", draw.below(15)))];
    if draw.chance(70) {
        fields.push(("x-tenant", format!("t{tenant}")));
    }
    if draw.chance(5) {
        fields.push(("x-exempt", "1".to_owned()));
    }
    let mut is_explained = true;
    match (name, draw.below(10)) {
        ("open", _) => {}
        ("optional", 0 | 1) => {}
        (_, 0) => is_explained = false,
        ("keyed" | "optional", 1 | 9) => {
            fields.push(("x-api-key", "wrong".to_owned()));
            is_explained = false;
        }
        ("keyed" | "optional", _) => fields.push(("x-api-key", format!("customer-{}", draw.below(3)))),
        ("password", 1) => {
            fields.push(("authorization", "Basic YW5uOndyb25n".to_owned()));
            is_explained = false;
        }
        ("password", _) => fields.push(("authorization", "Basic YW5uOnNlY3JldA==".to_owned())),
        ("token", _) => fields.push(("authorization", format!("Bearer {token}"))),
        (_, 1) => fields.push(("x-refuse", "1".to_owned())),
        _ => {}
    }
    Asked { target, fields, version: draw.below(3), is_explained }
}

/// What a response says.
#[derive(Debug)]
struct Told {
    status: u16,
    retry_after: Option<u64>,
    text: String,
}

fn send(asked: &Asked, http1: &mut Client, others: &[Multiplexed]) -> Told {
    if asked.version > 0 {
        let client = &others[asked.version as usize % others.len()];
        let request = Request::get(format!("http://test{}", asked.target));
        let request =
            asked.fields.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let answer =
            client.exchange(request.body(()).expect("a request"), Body::default()).expect("an answer");
        let retry_after = answer.header("retry-after").and_then(|value| value.parse().ok());
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        return Told { status: answer.status, retry_after, text };
    }
    let fields: String = asked.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let response = http1.get(&asked.target, &fields);
    let retry_after = response.header("retry-after").and_then(|value| value.parse().ok());
    Told { status: response.status, retry_after, text: response.text() }
}

fn live(asked: &Asked, gateway: &Gateway) -> Value {
    let headers: serde_json::Map<_, _> =
        asked.fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let body =
        json!({ "url": format!("http://test{}", asked.target), "headers": headers, "ip": "127.0.0.1" });
    good(gateway, "POST explain", &body.to_string())
}

/// An explanation in short.
fn said(explained: &Value) -> String {
    let of = |value: &Value, names: &[&str]| names.iter().map(|name| value[name].clone()).collect::<Vec<_>>();
    let limits = explained["limits"].as_array().expect("limits");
    let limits = limits.iter().map(|limit| {
        let policies: Vec<_> = limit["policies"].as_array().expect("policies").iter().collect();
        format!(
            "{:?} {policies:?}",
            of(limit, &["name", "standing", "mode", "verdict", "cost", "banned_until"])
        )
    });
    let verdict = of(explained, &["verdict", "status", "limit", "wait_ms", "reason", "consumer"]);
    format!("{verdict:?}\n{}", limits.collect::<Vec<_>>().join("\n"))
}

/// Whether a refusal by this limit may begin a ban, which then refuses the request in place of the limit with the longest
/// wait. An explanation is no refusal.
fn may_ban(explained: &Value, name: Option<&str>) -> bool {
    let limits = explained["limits"].as_array().expect("limits");
    let limit = limits.iter().find(|limit| limit["name"].as_str() == name);
    limit.is_some_and(|limit| {
        explained["verdict"] == "refused" && limit["verdict"] == "refused" && limit["ban"] != Value::Null
    })
}

/// The response is what the explanation has said just before.
fn agrees(explained: &Value, told: &Told) -> bool {
    let verdict = explained["verdict"].as_str().expect("a verdict");
    let status = explained["status"].as_u64().map(|status| u16::try_from(status).expect("a status"));
    match verdict {
        "admitted" | "delayed" => told.status == 200,
        "refused" | "banned" => {
            let limit = explained["limit"].as_str().expect("a limit");
            let seconds = explained["wait_ms"].as_f64().map(|wait| (wait / 1_000.0).ceil());
            let is_near = match (seconds, told.retry_after) {
                (Some(seconds), Some(told)) => (seconds - told as f64).abs() <= 1.0,
                (None, None) => true,
                // Waiting helps after a second at the earliest.
                (seconds, told) => {
                    seconds.is_none_or(|wait| wait <= 1.0) && told.is_none_or(|told| told <= 1)
                }
            };
            // A key with several values is a bad request.
            let text: Value = serde_json::from_str(&told.text).expect("a problem");
            let names_it = match text["violated-policies"].get(0) {
                Some(first) => {
                    let first = first.as_str().expect("a name").split(':').next();
                    first == Some(limit) || told.text.contains("banned") && may_ban(explained, first)
                }
                None => told.status == 400,
            };
            Some(told.status) == status && names_it && is_near
        }
        "not_verified" => true,
        _ => Some(told.status) == status,
    }
}

/// The explanation without the running gateway names the same route and charges, as far as it knows the credential.
fn agrees_offline(plan: &Plan, asked: &Asked, live: &Value) {
    let lines: Vec<String> = asked.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let peer = Some([127, 0, 0, 1].into());
    let url = format!("http://test{}", asked.target);
    let request = ExplainRequest::new("GET", &url, &lines, peer).unwrap_or_else(|fault| panic!("{fault}"));
    let offline = explain(plan, &request);
    let route = offline.route.as_ref().map(|route| route.name.as_str());
    assert_eq!(route, live["route"]["name"].as_str(), "{}", asked.target);
    if offline.unverified.is_some() || live["verdict"] == "not_verified" {
        return;
    }
    let known: Vec<_> = offline
        .route
        .iter()
        .flat_map(|route| &route.limits)
        .map(|limit| (&limit.name, limit.mode.as_str()))
        .collect();
    let limits = live["limits"].as_array().expect("limits");
    let told: Vec<_> = limits.iter().map(|limit| (limit["name"].as_str(), limit["mode"].as_str())).collect();
    let known: Vec<_> = known.iter().map(|(name, mode)| (Some(name.as_str()), Some(*mode))).collect();
    assert_eq!(known, told, "{}", asked.target);
}

/// The line of the log says what the explanation has said.
fn agrees_with_log(explained: &Value, line: &Value) -> bool {
    let verdict = explained["verdict"].as_str().expect("a verdict");
    if explained["route"]["name"] != line["route"] {
        return false;
    }
    let limits = explained["limits"].as_array().expect("limits");
    let binding = limits.iter().find(|limit| limit["name"] == line["limit"]);
    match (verdict, binding) {
        ("refused", _) if line["error"] == "repeated_key" => true,
        ("banned", _) => line["limit"] == explained["limit"] && line["decision"] == "banned",
        // The refusal may begin a ban.
        ("refused", _) if line["decision"] == "banned" => may_ban(explained, line["limit"].as_str()),
        ("refused", _) => line["limit"] == explained["limit"] && line["decision"] == "limited",
        ("admitted" | "delayed", Some(binding)) => {
            let cost = binding["cost"].as_u64().expect("a cost");
            let mut policies = binding["policies"].as_array().expect("policies").iter();
            // What the explanation looks at is not charged yet. A place in a queue is free again at once.
            let is_told = |policy: &Value| {
                policy["policy"].as_str().is_some_and(|words| words.contains("queue"))
                    || policy["remaining"].as_u64().map(|remaining| json!(remaining - cost))
                        == Some(line["remaining"].clone())
            };
            binding["cost"] == line["cost"] && policies.any(is_told)
        }
        _ => true,
    }
}

/// A gateway with a random file gets random requests.
fn compare(seed: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    std::fs::write(folder.path().join("users"), format!("ann:{hash}\n")).expect("a file");
    let consumers = "key,name,tier\ncustomer-0,anna,pro\ncustomer-1,ben,\ncustomer-2,carla,basic\n";
    std::fs::write(folder.path().join("consumers.csv"), consumers).expect("a file");
    let door = Backend::start(|exchange| {
        let status = if exchange.field("x-refuse").is_some() { "403 Forbidden" } else { "200 OK" };
        exchange.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    });
    let mut draw = Draw(Box::new(numbers(seed)));
    let (toml, plan) = file(&mut draw, folder.path(), &door);
    std::fs::write(folder.path().join("gateway.toml"), &toml).expect("a file");
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let claims = json!({ "sub": "tom", "exp": seconds + 86_400 });
    let token = encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(SECRET.as_bytes()));
    let token = token.expect("it is signed");
    let mut gateway = AllVersions::start_in(&toml, &[("TOKEN_SECRET", SECRET)]);
    let (mut http1, others) = (Client::connect(gateway.addr()), gateway.clients());
    let mut explained = Vec::with_capacity(REQUESTS);
    for number in 0..REQUESTS {
        let asked = asked(&mut draw, &token);
        let mut told = asked.is_explained.then(|| live(&asked, &gateway));
        let response = send(&asked, &mut http1, &others);
        if let Some(explained) = &mut told
            && explained["consumer"] == "ann"
            && !agrees(explained, &response)
        {
            // A good password is remembered for a minute, which may end between the two: once `failures` is used up, it is
            // not checked again.
            let again = live(&asked, &gateway);
            assert_eq!(again["verdict"], "not_verified", "{}\n{response:?}\n{toml}", said(explained));
            *explained = again;
        }
        if let Some(told) = &told {
            let said = said(told);
            assert!(agrees(told, &response), "{number} {}: {said}\n{response:?}\n{toml}", asked.target);
            agrees_offline(&plan, &asked, told);
        }
        explained.push(told);
    }
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    let log = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    assert_eq!(lines.len(), REQUESTS);
    for (told, line) in explained.iter().zip(&lines) {
        let Some(told) = told else { continue };
        assert!(agrees_with_log(told, line), "{}\n{line}\n{toml}", said(told));
    }
    let replayed = replay(folder.path(), &[("TOKEN_SECRET", SECRET)]);
    let decisions = &replayed["log_decisions"];
    assert_eq!(decisions["different"], 0, "{decisions:#}\n{toml}");
    let is_refused = |line: &&Value| line["decision"] == "limited" || line["decision"] == "banned";
    let refused = lines.iter().filter(is_refused).count();
    assert_eq!(replayed["refused"], refused, "{toml}");
    assert!(refused > REQUESTS / 50, "the limits are tried: {refused}\n{toml}");
}

macro_rules! plans {
    ($($name:ident: $seed:expr;)*) => { $( #[test] fn $name() { compare($seed); } )* };
}

plans! {
    plan_1: 1;
    plan_2: 2;
    plan_3: 3;
    plan_4: 4;
    plan_5: 5;
    plan_6: 6;
    plan_7: 7;
    plan_8: 8;
}
