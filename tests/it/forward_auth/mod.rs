//! `[auth]` with `type = "forward"`: a service decides about requests, through the real binary.

mod cache;
mod forged;
mod protection;
mod same_request;
mod service;
mod sign_in;
mod story;

use crate::harness::{Backend, Gateway, Next, everything_to};

/// A service that admits each request, with these header lines in its answer.
fn admitting(lines: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.write(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

/// A gateway whose only route asks `door`. `rest` follows the keys of its auth.
fn guarded(backend: &Backend, door: &Backend, rest: &str) -> Gateway {
    Gateway::start(&everything_to(backend, &format!("auth = \"door\"\n{}", auth(door, rest))))
}

/// The auth of that gateway.
fn auth(door: &Backend, rest: &str) -> String {
    format!("[auth.door]\ntype = \"forward\"\nurl = \"{}/check\"\ntimeout = \"30s\"\n{rest}\n", door.url())
}
