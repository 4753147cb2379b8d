//! `[decisions]`: the listener where other proxies and applications ask.

use std::net::SocketAddr;

use super::keys::{Schema, keys};
use super::report::SourceSpan;
use super::server::{ADDRESS, socket_address};
use super::table::ConfigTable;
use super::tls;
use super::tls::server::Demand;
use super::value::ConfigValue;
use crate::plan::admin::{Admin, Token};
use crate::plan::decisions::DecisionService;
use crate::plan::{Listener, ListenerRole};

keys! {
    /// Other proxies and applications ask here whether a request may pass. Default: off.
    pub(super) DECISIONS: DecisionsKeys = "[decisions]" {
        /// An address such as "127.0.0.1:9901". One that others can reach requires `token_env`, or `client_ca` of
        /// `tls`.
        listen = Schema::Named(&ADDRESS), required "\"127.0.0.1:9901\"";
        /// The environment variable that holds the token of each call: sent as `x-tollgate-token`, or as the first
        /// segment of the path. Default: no token.
        token_env = Schema::Name;
        /// TLS there, with a certificate as in [[server.tls]]. Default: none.
        tls = Schema::Table(&tls::server::CERTIFICATE);
    }
}

/// Reads `[decisions]`. `listeners` are those of `[server]`. `None` if it has faults.
pub(super) fn read(
    mut table: ConfigTable<'_>,
    listeners: &[Listener],
    admin: Option<&Admin>,
) -> Option<DecisionService> {
    let listen = table.require(&DECISIONS.listen, |value| address(&value, listeners, admin));
    let token = table.take(&DECISIONS.token_env);
    let tls = table.take(&DECISIONS.tls);
    let given = (token.is_some(), tls.is_some());
    let token = token.and_then(|value| value.variable()).map(Token);
    let tls = tls.and_then(|value| tls::server::read_one(&value, "`[decisions.tls]`"));
    if let Some((address, span)) = listen {
        let demand = tls.as_ref().and_then(|tls| tls.demand);
        // What is faulty is not missing.
        let is_known = given == (token.is_some(), tls.is_some());
        if is_known && token.is_none() {
            check_open(address, span, demand, &table);
        }
    }
    let is_sound = table.finish() && given == (token.is_some(), tls.is_some());
    let (listen, _) = listen.filter(|_| is_sound)?;
    let certificate_suffices = tls.as_ref().is_some_and(|tls| tls.demand == Some(Demand::Optional));
    Some(DecisionService { listen, token, tls: tls.map(|tls| tls.tls), certificate_suffices })
}

/// A listener without a token that others can reach.
fn check_open(address: SocketAddr, span: SourceSpan, demand: Option<Demand>, table: &ConfigTable<'_>) {
    let is_private = address.ip().to_canonical().is_loopback();
    let message = match demand {
        Some(Demand::Required) => return,
        Some(Demand::Optional) => {
            "`[decisions]` also answers clients without a certificate, and has no token".to_owned()
        }
        None if is_private => return,
        None => {
            format!("`[decisions]` listens on `{address}`, which others can reach, without a token")
        }
    };
    table.diagnostics().fault(
        span,
        message,
        "add `token_env = \"TOLLGATE_DECISIONS_TOKEN\"` and put a secret into that variable, or ask for certificates: `tls = { cert = …, key = …, client_ca = … }`",
    );
}

fn address(
    value: &ConfigValue<'_>,
    listeners: &[Listener],
    admin: Option<&Admin>,
) -> Option<(SocketAddr, SourceSpan)> {
    let address = value.text()?.parse("an address with a port", socket_address)?;
    let other = match () {
        () if address.port() == 0 => None,
        () if listeners.iter().any(|listener| listener.address == address) => Some("[server]"),
        () if admin.is_some_and(|admin| admin.listen == address) => Some("[admin]"),
        () => None,
    };
    if let Some(other) = other {
        let message = format!("`[decisions]` listens on `{address}`, where `{other}` listens too");
        value.fault(message, "give it a port of its own, such as `127.0.0.1:9901`");
    }
    Some((address, value.span()))
}

/// The listener of these decisions.
pub(super) fn listener(decisions: &DecisionService) -> Listener {
    Listener {
        name: None,
        address: decisions.listen,
        tls: decisions.tls.is_some(),
        http3: false,
        proxy_protocol: false,
        role: ListenerRole::Decisions,
    }
}
