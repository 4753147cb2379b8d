//! What tests of settled costs stand on: a backend that answers with what the request's body says, and the units of a
//! key.

use crate::harness::gateways::api::api;
use crate::harness::{Backend, Client, Gateway, Next, eventually};

/// A backend that sends the body of each request as its response. With `x-then` it resets the connection behind that
/// (`reset`), closes it (`close`), waits for the test (`gate`) before it goes on with the second half, behind `|`.
pub(crate) fn parrot() -> Backend {
    Backend::start(|exchange| {
        let body = exchange.read_body();
        let then = exchange.field("x-then").unwrap_or_default();
        let (now, later) = match memchr::memchr(b'|', &body).filter(|_| then == "gate") {
            Some(at) => (&body[..at], &body[at + 1..]),
            None => (&body[..], &[][..]),
        };
        exchange.write(now);
        match &*then {
            "reset" => Next::Reset,
            "close" => Next::Close,
            "gate" => {
                exchange.wait_at_gate();
                exchange.write(later);
                // No response says that the connection ends, and the gateway may reuse it at once.
                Next::KeepAlive
            }
            _ => Next::KeepAlive,
        }
    })
}

/// A file with the routes `/0/*`, `/1/*`, … at these costs, which the limit `x` counts by the field `x-client`. `limit` has
/// the limit's numbers, `rest` further tables.
pub(crate) fn metered(url: &str, costs: &[&str], limit: &str, rest: &str) -> String {
    let mut toml = format!(
        "[upstreams]\napi = \"{url}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[limits.x]\nkey = \"header:x-client\"\n{limit}\n{rest}\n"
    );
    for (number, cost) in costs.iter().enumerate() {
        toml += &format!(
            "[[routes]]\nname = \"r{number}\"\npath = \"/{number}/*\"\nupstream = \"api\"\nlimits = [\"x\"]\ncost = {cost}\n"
        );
    }
    toml
}

/// A limit of this number of units a day.
pub(crate) fn a_day(units: u32) -> String {
    format!("algorithm = \"fixed-window\"\nalign = \"first-request\"\nrate = \"{units}/day\"")
}

/// A request of `client` to the route of this number, which is answered with `response`.
pub(crate) fn request(route: usize, client: &str, fields: &str, response: &[u8]) -> Vec<u8> {
    let length = response.len();
    let head = format!(
        "POST /{route}/ HTTP/1.1\r\nhost: test\r\nx-client: {client}\r\ncontent-length: {length}\r\n{fields}\r\n"
    );
    [head.as_bytes(), response].concat()
}

/// Sends such a request on a connection of its own.
pub(crate) fn begin(gateway: &Gateway, route: usize, client: &str, fields: &str, response: &[u8]) -> Client {
    let mut connection = Client::connect(gateway.addr());
    connection.write(request(route, client, fields, response));
    connection
}

/// A response with a body of JSON.
pub(crate) fn json(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The units in use by a client.
pub(crate) fn used(gateway: &Gateway, client: &str) -> u64 {
    let key = api(gateway, &format!("limits/x/keys/{client}"));
    key["policies"][0]["used"].as_u64().unwrap_or_else(|| panic!("{key}"))
}

/// Waits until a client uses this number of units.
#[track_caller]
pub(crate) fn comes_to_use(gateway: &Gateway, client: &str, units: u64) {
    eventually(&format!("{units} units in use by {client}"), || {
        (used(gateway, client) == units).then_some(())
    });
}
