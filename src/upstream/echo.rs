//! `builtin:echo`: answers by itself with the request as a backend would have seen it, for trying things out.

use std::fmt::Write as _;

use bytes::Bytes;
use http::request::Parts;

/// The text that answers a request. Field values that are not text are shown escaped.
pub fn echo(request: &Parts) -> Bytes {
    let mut text = format!("{} {} HTTP/1.1\n", request.method, request.uri);
    for (name, value) in &request.headers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}: {}", value.as_bytes().escape_ascii());
    }
    text.into()
}
