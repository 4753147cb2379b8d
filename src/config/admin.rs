//! `[admin]`.

use std::net::SocketAddr;

use super::habits;
use super::server::socket_address;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::plan::{Admin, Listener, Token};

/// Reads `[admin]`. `listeners` are the addresses of `[server]`. `None` if it has faults.
pub(super) fn read(mut table: ConfigTable<'_>, listeners: &[Listener]) -> Option<Admin> {
    let listen = table.require("listen", "\"127.0.0.1:9900\"", |value| address(&value, listeners));
    let given = table.take("token_env");
    if let Some((address, span)) = listen
        && given.is_none()
        && !address.ip().to_canonical().is_loopback()
    {
        table.reader().fault(
            span,
            format!("`[admin]` listens on `{address}`, which others can reach, without a token"),
            "add `token_env = \"TOLLGATE_ADMIN_TOKEN\"` and put a secret into that variable, or listen on `127.0.0.1`",
        );
    }
    let token = given.and_then(|value| token(&value));
    table.finish().then_some(())?;
    listen.map(|(listen, _)| Admin { listen, token })
}

fn address(
    value: &ConfigValue<'_>,
    listeners: &[Listener],
) -> Option<(SocketAddr, super::report::SourceSpan)> {
    if let Some(help) = value.whole_text().and_then(habits::admin_port) {
        return value.mismatch("a string", help);
    }
    let address = value.text()?.parse("an address with a port", socket_address)?;
    if address.port() != 0 && listeners.iter().any(|listener| listener.address == address) {
        let message = format!("`[admin]` listens on `{address}`, where `[server]` listens too");
        value.fault(message, "give the admin listener a port of its own, such as `127.0.0.1:9900`");
    }
    Some((address, value.span()))
}

/// The token in the environment variable that `value` names.
fn token(value: &ConfigValue<'_>) -> Option<Token> {
    value.variable().map(Token)
}
