//! What stands behind the upstreams of the pages.

use crate::harness::{Backend, Next};

/// The backend of an upstream of this name.
pub(super) fn backend(name: &'static str) -> Backend {
    if name == "authelia" { authelia() } else { named_backend(name) }
}

/// A backend that answers with its name, waits at its gate below `/export/`, and fails for what is `missing`.
pub(crate) fn named_backend(name: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.read_body();
        if exchange.target().contains("/export/") {
            exchange.wait_at_gate();
        }
        let (status, location) = match exchange.target() {
            target if target.contains("missing") => ("404 Not Found", ""),
            target if target.contains("failing") => ("500 Internal Server Error", ""),
            target if target.contains("moved") => ("302 Found", "location: /there?a=b\r\n"),
            _ => ("200 OK", ""),
        };
        let head = exchange.head.starts_with("HEAD ");
        let body = if head { "" } else { name };
        exchange.write(format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nx-powered-by: PHP/8\r\nserver: {name}\r\n{location}\r\n{body}",
            name.len()
        ));
        Next::KeepAlive
    })
}

/// Answers questions as Authelia does: a session passes, all else is sent to the log-in.
fn authelia() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        let head = exchange.head.to_lowercase();
        let header = |name: &str| {
            let lines = head.lines();
            let value = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).next();
            value.unwrap_or_default().to_owned()
        };
        let target = exchange.target().replace("%3A", ":").replace("%2F", "/");
        let answer = if !target.starts_with("/api/verify?rd=https://authelia.example.com") {
            "200 OK\r\nserver: authelia".to_owned()
        } else if header("cookie").contains("authelia_session=ann") {
            "200 OK\r\nremote-user: ann\r\nremote-groups: admins\r\nremote-name: Ann".to_owned()
        } else {
            let [scheme, host, uri, method] =
                ["proto", "host", "uri", "method"].map(|name| header(&format!("x-forwarded-{name}")));
            let back = format!("{scheme}://{host}{uri}&rm={}", method.to_uppercase());
            format!("302 Found\r\nlocation: https://authelia.example.com/?rd={back}")
        };
        exchange.write(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}
