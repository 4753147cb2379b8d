//! What the tests of the admin API stand on.

use serde_json::Value;

use crate::harness::{Gateway, eventually, send};

/// Asks the API: `"POST limits/a/keys/b/ban"`. Status and answer.
pub(crate) fn ask(gateway: &Gateway, line: &str, body: &str) -> (u16, Value) {
    ask_with(gateway, line, "", body)
}

/// The same with further fields (`"idempotency-key: a\r\n"`).
pub(crate) fn ask_with(gateway: &Gateway, line: &str, more: &str, body: &str) -> (u16, Value) {
    let (method, place) = line.split_once(' ').expect("a method and a place");
    let kind = if ["POST", "PUT"].contains(&method) { "content-type: application/json\r\n" } else { "" };
    let fields = format!("{kind}{more}");
    let request = format!(
        "{method} /api/v1/{place} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = send(gateway.admin_addr(), request);
    let value =
        serde_json::from_str(&response.text()).unwrap_or_else(|fault| panic!("{fault}: {}", response.text()));
    (response.status, value)
}

/// The same, which must go well.
#[track_caller]
pub(crate) fn good(gateway: &Gateway, line: &str, body: &str) -> Value {
    let (status, value) = ask(gateway, line, body);
    assert_eq!(status, 200, "{line}: {value}");
    value
}

/// The answer of the admin API, which is good.
pub(crate) fn api(gateway: &Gateway, path: &str) -> Value {
    gateway.admin(&format!("/api/v1/{path}")).expect(200).json()
}

/// The sum of a list of numbers.
pub(crate) fn sum(list: &Value) -> u64 {
    list.as_array().unwrap_or_else(|| panic!("{list} is not a list")).iter().filter_map(Value::as_u64).sum()
}

/// What may become of a request.
pub(crate) const FATES: [&str; 4] = ["admitted", "delayed", "refused", "failed"];

/// The samples, as soon as that many requests ended by them.
pub(crate) fn samples_with(gateway: &Gateway, requests: u64) -> Value {
    eventually(&format!("{requests} requests in the samples"), || {
        let samples = api(gateway, "samples");
        let told: u64 = FATES.iter().map(|fate| sum(&samples["all"][fate])).sum();
        assert!(told <= requests, "{told} are told of {requests}");
        (told == requests).then_some(samples)
    })
}
