//! Options of limits, through the real binary: network prefixes, trials, jitter, limits of the server, calendars,
//! limits of connections.

mod before_auth;
mod calendars;
mod connection_limits;
mod jitter;
mod maps;
mod max_keys;
mod prefixes;
mod server_limits;
mod trials;

use crate::harness::{Gateway, Response, get_with};

/// A gateway with these lines in `[server]`, and the text of limits and routes; its upstream is `api`.
fn start(server: &str, rest: &str) -> Gateway {
    Gateway::start(&format!(
        "[server]\n{server}\n[upstreams]\napi = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{rest}"
    ))
}

/// A route for everything, with the limit `x`.
const ROUTE: &str = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"x\"]\n";

fn ask(gateway: &Gateway, headers: &str) -> Response {
    get_with(gateway.addr(), "/", headers)
}
