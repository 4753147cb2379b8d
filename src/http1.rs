//! HTTP/1.1 messages as bytes (RFC 9110, RFC 9112): parses heads and finds the end of bodies. Pure: no sockets, no
//! waiting.
//!
//! Heads are parsed in place: a parsed head borrows the received bytes, and its fields are positions in them. So a
//! proxied head is copied once, from one socket's buffer to the other's, and nothing is allocated for it.
//!
//! For example, of `GET /a HTTP/1.1` and `host: b` the parser returns the target `/a`, one field and an empty body. A head
//! with `content-length` beside `transfer-encoding` is refused.
//!
//! Requests are parsed strictly, because any ambiguity enables request smuggling. Of responses only ambiguous ones are
//! refused, since the operator controls the backends.

// A dropped error once allowed request smuggling, so no error is dropped silently.
#![warn(clippy::let_underscore_must_use)]

pub mod chunks;
pub mod fields;
pub mod head_parser;
pub mod head_writer;
pub mod lines;
pub mod login;
pub mod mentioned;
pub mod name;
pub mod request;
pub mod response;
pub mod scanner;
pub mod syntax;
pub mod trailers;
