//! Calls in JSON bodies, such as those of MCP: routes that are found by the body, batches, and refusals that repeat a value
//! of the call; through the real binary.

mod batches;
mod refusals;
mod routes;

use crate::harness::{Client, Gateway, Response};

/// Sends a call to `/mcp`.
fn call(gateway: &Gateway, body: &str) -> Response {
    post(gateway, "content-type: application/json\r\n", body)
}

fn post(gateway: &Gateway, fields: &str, body: &str) -> Response {
    let length = body.len();
    let head = format!("POST /mcp HTTP/1.1\r\nhost: a\r\n{fields}content-length: {length}\r\n\r\n");
    Client::connect(gateway.addr()).exchange(head + body)
}

/// A call of a tool.
fn tool(name: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#)
}
