//! Numbers in the body of a request: what it reserves, and what it costs.

use crate::harness::metered::{a_day, metered, used};
use crate::harness::{Backend, Client, Gateway, Next, Response};

const TOKENS: &str =
    "{ reserve = { from = \"json:/max_tokens\", max = 400, missing = 100 }, settle = \"header:x-cost\" }";
const ROWS: &str = "{ from = \"json:/rows\", max = 50 }";
const STATUS: &str =
    "{ reserve = { from = \"header:x-reserve\", missing = 7 }, settle = \"status\", status = { 401 = 5 } }";

/// Answers with the `x-cost` of the request.
fn backend() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        let cost = exchange.field("x-cost").map(|cost| format!("x-cost: {cost}\r\n")).unwrap_or_default();
        exchange.write(format!("HTTP/1.1 200 OK\r\n{cost}content-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

fn post(gateway: &Gateway, route: usize, client: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    Client::connect(gateway.addr()).exchange(format!(
        "POST /{route}/ HTTP/1.1\r\nhost: test\r\nx-client: {client}\r\n{fields}content-length: {length}\r\n\r\n{body}"
    ))
}

#[test]
fn a_number_in_the_body_is_reserved() {
    let backend = backend();
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS, ROWS, STATUS], &a_day(1_000), ""));
    let json = "content-type: application/json\r\n";
    let large = format!("{{\"text\":\"{}\",\"max_tokens\":5}}", "x".repeat(70_000));
    for (number, (route, fields, body, cost)) in [
        (0, json, "{\"max_tokens\":50}", 50),
        (0, json, "{\"max_tokens\":50.2}", 51),
        (0, json, "{\"a\":[{\"max_tokens\":9}],\"max_tokens\":50}", 50),
        (0, json, "{\"max_tokens\":9999999999999999999999}", 400),
        (0, json, "{\"max_tokens\":0}", 1),
        (0, json, "{}", 100),
        (0, json, "{\"max_tokens\":null}", 100),
        (0, json, "{\"max_tokens\":-5}", 100),
        (0, json, "{\"max_tokens\":[5]}", 100),
        // Backends differ in which of them they take.
        (0, json, "{\"max_tokens\":5,\"max_tokens\":300}", 100),
        (0, json, "{\"max_tokens\":5,\"Max_Tokens\":300}", 100),
        (0, json, "{\"max_tokens\":5", 100),
        (0, json, "", 100),
        (0, json, &large, 100),
        (0, "content-type: text/plain\r\n", "{\"max_tokens\":50}", 100),
        (0, "content-type: application/json\r\ncontent-encoding: gzip\r\n", "{\"max_tokens\":50}", 100),
        // The response says what it was.
        (0, "content-type: application/json\r\nx-cost: 20\r\n", "{\"max_tokens\":50}", 20),
        (0, "content-type: application/json\r\nx-cost: 80\r\n", "{\"max_tokens\":50}", 80),
        (1, json, "{\"rows\":12}", 12),
        (1, json, "{}", 50),
        // A status that is not listed costs what was reserved.
        (2, "x-reserve: 9\r\n", "", 9),
        (2, "", "", 7),
    ]
    .into_iter()
    .enumerate()
    {
        let client = format!("c{number}");
        post(&gateway, route, &client, fields, body).expect(200);
        assert_eq!(backend.latest().body.len(), body.len(), "the whole body passes: row {number}");
        assert_eq!(used(&gateway, &client), cost, "row {number}: {route} {fields:?} {:.60}", body);
    }
}

#[test]
fn a_reservation_above_what_is_left_is_refused_and_told() {
    let backend = backend();
    let gateway = Gateway::start(&metered(&backend.url(), &[TOKENS], &a_day(120), ""));
    let json = "content-type: application/json\r\n";
    post(&gateway, 0, "a", json, "{\"max_tokens\":100}").expect(200);
    let refused = post(&gateway, 0, "a", json, "{\"max_tokens\":30}").expect(429);
    assert!(refused.text().contains("costs 30, 20 left"), "{}", refused.text());
    post(&gateway, 0, "a", json, "{\"max_tokens\":20}").expect(200);
    assert_eq!(used(&gateway, "a"), 120);
    assert_eq!(backend.requests().len(), 2);
    let log = gateway.access_log(3);
    let reserved: Vec<_> = log.iter().map(|line| line["reserved"].as_u64()).collect();
    assert_eq!(reserved, [Some(100), None, Some(20)]);
}
