//! `settle`: costs that a response tells.

use crate::harness::body_scan::{CODINGS, coded};
use crate::harness::metered::{a_day, begin, json, metered, parrot, request, used};
use crate::harness::{Client, Gateway};

const TOKENS: &str = "{ reserve = 100, settle = \"json:/usage/total_tokens\", max = 500 }";
const BOTH: &str = "{ reserve = 100, settle = [\"json:/usage/total_tokens\", \"sse:/usage/total_tokens\"] }";
const SUM: &str = "{ reserve = 100, settle = [\"sse:/in\", \"sse:/out\"], missing = 3 }";
const HEADER: &str = "{ reserve = 100, settle = \"header:x-cost\", per = 10, min = 2, missing = 1 }";
const TRAILER: &str = "{ reserve = 100, settle = \"trailer:x-cost\" }";
const BYTES: &str = "{ reserve = 100, settle = \"bytes\", per = 10 }";
const STATUS: &str =
    "{ reserve = 100, settle = \"status\", status = { 401 = 5, 403 = 6, \"2xx\" = 0, \"4xx\" = 7 } }";
const COSTS: [&str; 7] = [TOKENS, BOTH, SUM, HEADER, TRAILER, BYTES, STATUS];

fn with(fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn chunked(fields: &str, parts: &[&str], trailers: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 200 OK\r\n{fields}transfer-encoding: chunked\r\n\r\n");
    for part in parts {
        text += &format!("{:x}\r\n{part}\r\n", part.len());
    }
    format!("{text}0\r\n{trailers}\r\n").into_bytes()
}

fn events(parts: &[&str]) -> Vec<u8> {
    chunked("content-type: text/event-stream\r\n", parts, "")
}

/// Routes, responses, and what they cost.
fn rows() -> Vec<(usize, Vec<u8>, u64)> {
    let usage = |value: &str| json(&format!("{{\"id\":1,\"usage\":{{\"total_tokens\":{value}}}}}"));
    vec![
        (0, usage("42"), 42),
        (0, usage("0"), 0),
        (0, usage("100"), 100),
        (0, usage("499.2"), 500),
        // More than `max`.
        (0, usage("501"), 500),
        (0, usage("1e400"), 500),
        (0, usage("12345678901234567890123456789"), 500),
        // No value, so as reserved.
        (0, usage("-1"), 100),
        (0, usage("NaN"), 100),
        (0, usage("\"12\""), 100),
        (0, usage("null"), 100),
        (0, usage("true"), 100),
        (0, usage("[1]"), 100),
        (0, json("{}"), 100),
        (0, json(""), 100),
        (0, json("{\"usage\":{\"total_tokens\":1"), 100),
        (0, b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), 100),
        (0, chunked("", &["{\"usage\":{\"total_to", "kens\":4", "3}}"], ""), 43),
        (
            0,
            chunked(
                "content-type: application/json\r\n",
                &["{\"a\":[\"\\\"usage\\\":\"],\"usage\"", ":{\"total_tokens\": 44 }}"],
                "",
            ),
            44,
        ),
        (1, usage("42"), 42),
        (
            1,
            events(&[
                "data: {\"usage\":null}\n\nda",
                "ta: {\"usage\":{\"total_tokens\":45}}\r\n\r\n",
                "data: [DONE]\n\n",
            ]),
            45,
        ),
        (1, events(&["data: {\"usage\":null}\n\ndata: [DONE]\n\n"]), 100),
        (2, events(&["data: {\"in\":5}\n\n", "data: {\"out\":1}\n\n", "data: {\"out\":7}\n\n"]), 12),
        (2, events(&["data: {\"in\":5}\n\n"]), 5),
        (2, events(&[": comment\n\n"]), 3),
        (3, with("x-cost: 41\r\n", ""), 5),
        (3, with("x-cost: 1\r\n", ""), 2),
        (3, with("x-cost: 1\r\nx-cost: 1\r\n", ""), 1),
        (3, with("x-cost: free\r\n", ""), 1),
        (3, with("", ""), 1),
        (4, chunked("", &["a"], "x-cost: 46\r\n"), 46),
        (4, chunked("trailer: x-cost\r\n", &[], "x-cost: 47\r\nother: 1\r\n"), 47),
        (4, chunked("", &["a"], "x-cost: 46\r\nX-Cost: 46\r\n"), 100),
        (4, chunked("", &["a"], ""), 100),
        (5, with("", &"a".repeat(991)), 100),
        (5, with("", ""), 0),
        (5, chunked("", &["abc", "de", &"f".repeat(40)], ""), 5),
        (6, b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec(), 5),
        (6, b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_vec(), 6),
        (6, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(), 7),
        (6, b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(), 100),
        (6, b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), 0),
    ]
}

/// As soon as the client has the whole response, it is settled.
#[test]
fn each_source_tells_the_cost() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &COSTS, &a_day(1_000), ""));
    let mut client = Client::connect(gateway.addr());
    let responses = rows();
    let count = responses.len();
    for (number, (route, response, cost)) in responses.into_iter().enumerate() {
        let name = format!("c{number}");
        let answer = client.exchange(request(route, &name, "", &response));
        assert!(!answer.closed, "row {number}");
        let text = String::from_utf8_lossy(&response).into_owned();
        assert_eq!(used(&gateway, &name), cost, "row {number}: {text}");
    }
    let settled = gateway.metric("tollgate_settlements_total", &["limit=\"x\""]);
    assert!((settled - count as f64).abs() < 0.5, "{settled} of {count}");
    let reserved = gateway.metric("tollgate_reserved_units_total", &["limit=\"x\""]);
    assert!((reserved - 100.0 * count as f64).abs() < 0.5, "{reserved}");
    let changed = |direction: &str| {
        gateway
            .metric("tollgate_settled_units_total", &["limit=\"x\"", &format!("direction=\"{direction}\"")])
    };
    let sum: u64 = rows().iter().map(|(.., cost)| cost).sum();
    assert!((reserved + changed("charged") - changed("refunded") - sum as f64).abs() < 0.5);
}

/// A copy is decoded; the client gets the body as it was coded.
#[test]
fn coded_bodies_tell_their_cost() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS], &a_day(1_000), ""));
    let text = b"{\"id\":1,\"usage\":{\"total_tokens\":43}}";
    let bomb = [&vec![b' '; 16 << 20][..], text].concat();
    let mut damaged = coded("gzip", text);
    damaged.truncate(12);
    let twice = coded("br", &coded("gzip", text));
    let mut rows: Vec<_> = CODINGS
        .iter()
        .map(|coding| (format!("content-encoding: {coding}\r\n"), coded(coding, text), 43))
        .collect();
    rows.push(("content-encoding: gzip\r\ncontent-encoding: br\r\n".to_owned(), twice, 43));
    rows.push(("content-encoding: secret\r\n".to_owned(), text.to_vec(), 100));
    rows.push(("content-encoding: gzip\r\n".to_owned(), damaged, 100));
    rows.push(("content-encoding: gzip\r\n".to_owned(), coded("gzip", &bomb), 100));
    for (number, (fields, body, cost)) in rows.into_iter().enumerate() {
        let name = format!("c{number}");
        let head = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n", body.len());
        let response = [head.as_bytes(), &body].concat();
        let answer = Client::connect(gateway.addr()).exchange(request(0, &name, "", &response)).expect(200);
        assert_eq!(answer.body, body, "row {number}");
        assert_eq!(used(&gateway, &name), cost, "row {number}: {fields}");
    }
}

/// The log says what was reserved, what was settled, and how it was found.
#[test]
fn the_log_tells_what_was_settled() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS, "1"], &a_day(1_000), ""));
    let mut client = Client::connect(gateway.addr());
    let usage = |value: &str| json(&format!("{{\"usage\":{{\"total_tokens\":{value}}}}}"));
    for value in ["42", "501", "null", "\"1\""] {
        client.exchange(request(0, "a", "", &usage(value))).expect(200);
    }
    client.exchange(request(1, "a", "", &usage("1"))).expect(200);
    let lines = gateway.access_log(5);
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["reserved"].as_u64(), line["settled"].as_u64(), line["settlement"].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Some(100), Some(42), Some("measured")),
            (Some(100), Some(500), Some("capped")),
            (Some(100), Some(100), Some("missing")),
            (Some(100), Some(100), Some("unreadable")),
            (None, None, None),
        ]
    );
}

/// Its length is known, but a HEAD request has no body.
#[test]
fn a_response_to_head_has_no_value() {
    let backend = parrot();
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS, BYTES], &a_day(1_000), ""));
    for (route, cost) in [(0, 100), (1, 0)] {
        let response = with("", "");
        let mut client = Client::connect(gateway.addr());
        let name = format!("c{route}");
        let text =
            String::from_utf8(request(route, &name, "", &response)).unwrap().replacen("POST", "HEAD", 1);
        client.write(text);
        client.read_for("HEAD").expect(200);
        assert_eq!(used(&gateway, &name), cost);
    }
}

#[test]
fn duration_counts_milliseconds() {
    let backend = parrot();
    let costs = ["{ reserve = 1, settle = \"duration\" }"];
    let gateway = Gateway::start(&metered(&backend.url(), &costs, &a_day(1_000_000), ""));
    let mut client =
        begin(&gateway, 0, "a", "x-then: gate\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n|a");
    backend.wait_for(1);
    std::thread::sleep(std::time::Duration::from_millis(120));
    backend.open_gate();
    client.read().expect(200);
    assert!((120..30_000).contains(&used(&gateway, "a")));
}

/// Limits of one route have costs of their own, and shadow limits settle what they have charged.
#[test]
fn each_limit_settles_its_own_cost() {
    let backend = parrot();
    let other = "[limits.y]\nkey = \"header:x-client\"\nalgorithm = \"fixed-window\"\nrate = \"1000/day\"\n\
                 [limits.z]\nkey = \"header:x-client\"\nalgorithm = \"fixed-window\"\nrate = \"50/day\"\nmode = \"shadow\"\n";
    let limits = "limits = [\"x\", { name = \"y\", cost = { reserve = 5, settle = \"bytes\" } }, \"z\", { name = \"w\", cost = 2 }]";
    let fourth = "[limits.w]\nkey = \"header:x-client\"\nalgorithm = \"fixed-window\"\nrate = \"1000/day\"\n";
    let toml = metered(
        &backend.url(),
        &["{ reserve = 40, settle = \"header:x-cost\" }"],
        &a_day(1_000),
        &format!("{other}{fourth}"),
    )
    .replace("limits = [\"x\"]", limits);
    let gateway = Gateway::start(&toml);
    let of = |limit: &str| {
        let key = crate::harness::api::api(&gateway, &format!("limits/{limit}/keys/a"));
        key["policies"][0]["used"].as_u64().unwrap()
    };
    let mut client = Client::connect(gateway.addr());
    client.exchange(request(0, "a", "", &with("x-cost: 45\r\n", "abc"))).expect(200);
    assert_eq!(["x", "y", "z", "w"].map(of), [45, 3, 45, 2]);
    // The shadow limit has no room for another reservation, so it charges and settles nothing.
    client.exchange(request(0, "a", "", &with("x-cost: 1\r\n", "abcd"))).expect(200);
    assert_eq!(["x", "y", "z", "w"].map(of), [46, 7, 45, 4]);
}
