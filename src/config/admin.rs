//! `[admin]`.

use std::net::SocketAddr;

use super::habits;
use super::server::socket_address;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::plan::{Admin, Listener, Token};

/// Reads `[admin]`. `taken` are the addresses of `[server]`. `None` if it has faults.
pub(super) fn read(mut table: ConfigTable<'_>, taken: &[Listener]) -> Option<Admin> {
    let listen = table.require("listen", "\"127.0.0.1:9900\"", |value| address(&value, taken));
    let given = table.take("token_env");
    if let Some((address, place)) = listen
        && given.is_none()
        && !address.ip().to_canonical().is_loopback()
    {
        table.reader().fault(
            place,
            format!("`[admin]` listens on `{address}`, which others can reach, without a token"),
            "add `token_env = \"TOLLGATE_ADMIN_TOKEN\"` and put a secret into that variable, or listen on `127.0.0.1`",
        );
    }
    let token = given.and_then(|value| token(&value));
    table.finish().then_some(())?;
    listen.map(|(listen, _)| Admin { listen, token })
}

fn address(value: &ConfigValue<'_>, taken: &[Listener]) -> Option<(SocketAddr, super::report::SourceSpan)> {
    if let Some(help) = value.whole_text().and_then(habits::admin_port) {
        return value.mismatch("a string", help);
    }
    let address = value.text()?.parse("an address with a port", socket_address)?;
    if address.port() != 0 && taken.iter().any(|listener| listener.address == address) {
        let message = format!("`[admin]` listens on `{address}`, where `[server]` listens too");
        value.fault(message, "give the admin listener a port of its own, such as `127.0.0.1:9900`");
    }
    Some((address, value.place()))
}

/// The token in the environment variable that `value` names.
fn token(value: &ConfigValue<'_>) -> Option<Token> {
    value.variable().map(Token)
}
