//! `[admin]`.

use std::net::SocketAddr;

use super::admin_tokens;
use super::habits;
use super::limits::LimitDraft;
use super::server::socket_address;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::plan::Listener;
use crate::plan::admin::{Admin, Token};

/// Reads `[admin]`. `listeners` are the addresses of `[server]`. `None` if it has faults.
pub(super) fn read(
    mut table: ConfigTable<'_>,
    listeners: &[Listener],
    limits: &[LimitDraft],
) -> Option<Admin> {
    let listen = table.require("listen", "\"127.0.0.1:9900\"", |value| address(&value, listeners));
    let (given, listed) = (table.take("token_env"), table.take("tokens"));
    if let Some((address, span)) = listen
        && given.is_none()
        && listed.is_none()
        && is_reachable(address)
    {
        table.reader().fault(
            span,
            format!("`[admin]` listens on `{address}`, which others can reach, without a token"),
            "add `token_env = \"TOLLGATE_ADMIN_TOKEN\"` and put a secret into that variable, or listen on `127.0.0.1`",
        );
    }
    let token = given.and_then(|value| value.variable()).map(Token);
    let tokens = listed.map(|value| admin_tokens::read(&value, token.as_ref(), limits));
    table.finish().then_some(())?;
    listen.map(|(listen, _)| Admin { listen, token, tokens: tokens.unwrap_or_default() })
}

fn is_reachable(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
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
