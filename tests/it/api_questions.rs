//! What the tests of the admin API stand on.

use serde_json::Value;

use crate::harness::{Gateway, send};

/// Asks the API: `"POST limits/a/keys/b/ban"`. Status and answer.
pub(crate) fn ask(gateway: &Gateway, line: &str, body: &str) -> (u16, Value) {
    let (method, place) = line.split_once(' ').expect("a method and a place");
    let fields = if method == "POST" { "content-type: application/json\r\n" } else { "" };
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
