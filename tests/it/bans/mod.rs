//! Bans after many refusals, in memory, through the real binary.

mod automatic;
mod before_auth;
mod beside;

use crate::harness::api::api;
use crate::harness::{Gateway, Response, get_with};

/// A limit `x` by the field `x-client`: two requests, and none in the time of a test.
const TWO: &str = "algorithm = \"token-bucket\"\nrate = \"1/366day\"\nburst = 2\n";

fn start(limit: &str, ban: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstreams]\napi = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[routes]]\nname = \"all\"\npath = \"/*\"\n\
         upstream = \"api\"\nlimits = [\"x\"]\n[limits.x]\nkey = \"header:x-client\"\n{limit}\nban = {ban}\n"
    ))
}

fn ask(gateway: &Gateway, client: &str) -> Response {
    get_with(gateway.addr(), "/", &format!("x-client: {client}\r\n"))
}

/// What a client meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Admitted,
    /// By the limit.
    Refused,
    /// For another number of seconds.
    Banned(u64),
}

fn meet(gateway: &Gateway, client: &str) -> Met {
    let response = ask(gateway, client);
    match (response.status, response.banned_for()) {
        (200, None) => Met::Admitted,
        (429, None) => Met::Refused,
        (429, Some(rest)) => Met::Banned(rest),
        _ => panic!("{}", response.head),
    }
}

fn is_ban(met: Met) -> bool {
    matches!(met, Met::Banned(_))
}

/// How many bans there are.
fn bans(gateway: &Gateway) -> u64 {
    api(gateway, "bans")["total"].as_u64().expect("a number")
}
