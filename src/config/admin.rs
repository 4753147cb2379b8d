//! `[admin]`, and `[admin.tokens]`: further tokens of the admin listener, each with its rights.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;

use super::keys::{SOME, Schema, keys};
use super::limits::LimitDraft;
use super::name;
use super::remedies::{self, did_you_mean};
use super::report::{SourceSpan, quoted};
use super::server::ADDRESS;
use super::server::socket_address;
use super::table::ConfigTable;
use super::text::{Cursor, is_one_variable};
use super::tls;
use super::tls::server::Demand;
use super::value::{ConfigValue, Entry};
use crate::plan::admin::{Admin, AdminRights, AdminToken, Token};
use crate::plan::{Limit, Listener, ListenerTls};

keys! {
    /// Health, readiness and metrics, on a listener of their own. Default: off.
    pub(super) ADMIN: AdminKeys = "[admin]" {
        /// An address such as "127.0.0.1:9900". One that others can reach requires `token_env` or `tokens`.
        listen = Schema::Named(&ADDRESS), required "\"127.0.0.1:9900\"";
        /// The environment variable that holds the token for all but /healthz and /readyz. Default: no token.
        token_env = Schema::Name;
        /// Further tokens, by name, each with rights of its own. Requests without a token are then refused.
        tokens = Schema::Map((1, 64), &Schema::TextUpTo(256), &Schema::Table(&ADMIN_TOKEN));
        /// TLS there, with a certificate as in [[server.tls]]. Certificates of clients take the place of no token.
        /// false: none, and the network around it is trusted or encrypts by itself. Default: none.
        tls = Schema::Either(&[Schema::Table(&tls::server::CERTIFICATE), Schema::Flag]);
    }
}

keys! {
    /// A further token.
    pub(super) ADMIN_TOKEN: AdminTokenKeys = "[admin.tokens.NAME]" {
        /// The environment variable that holds the token.
        token_env = Schema::Name, required "\"BILLING_TOKEN\"";
        /// What a request with this token may do: "read", "operate" (read and change everything), "charge:LIMIT"
        /// (charge keys of that limit).
        may = Schema::Set(SOME, &Schema::Matching(r"^(read|operate|charge:.*)$")), required "[\"read\"]";
    }
}

/// Reads `[admin]`. `listeners` are the addresses of `[server]`. `None` if it has faults.
pub(super) fn read(
    mut table: ConfigTable<'_>,
    listeners: &[Listener],
    limits: &[LimitDraft],
) -> Option<Admin> {
    let listen = table.require(&ADMIN.listen, |value| address(&value, listeners));
    let (given, listed) = (table.take(&ADMIN.token_env), table.take(&ADMIN.tokens));
    let tls = table.take(&ADMIN.tls);
    if let Some((address, span)) = listen
        && is_reachable(address)
    {
        check_reachable(address, span, given.is_some() || listed.is_some(), tls.is_some(), &table);
    }
    let token = given.and_then(|value| value.variable()).map(Token);
    let tokens = listed.map(|value| read_tokens(&value, token.as_ref(), limits));
    let tls = tls.map_or(Some(None), |value| read_tls(&value));
    table.finish().then_some(())?;
    let (listen, _) = listen?;
    Some(Admin { listen, token, tokens: tokens.unwrap_or_default(), tls: tls? })
}

/// A listener that others can reach.
fn check_reachable(
    address: SocketAddr,
    span: SourceSpan,
    has_token: bool,
    has_tls: bool,
    table: &ConfigTable<'_>,
) {
    if !has_token {
        table.diagnostics().fault(
            span,
            format!("`[admin]` listens on `{address}`, which others can reach, without a token"),
            "add `token_env = \"TOLLGATE_ADMIN_TOKEN\"` and put a secret into that variable, or listen on `127.0.0.1`",
        );
    } else if !has_tls {
        table.diagnostics().warn(
            span,
            format!("`[admin]` listens on `{address}` without TLS: tokens cross the network in plain text"),
            "add `tls = { cert = \"admin.pem\", key = \"admin.key\" }` to `[admin]`, or `tls = false` if that network is trusted",
        );
    }
}

/// `Some(None)` for `false`, `None` if there are faults.
fn read_tls(value: &ConfigValue<'_>) -> Option<Option<ListenerTls>> {
    if !value.is_table() {
        let is_off = match value.written() {
            Some(written) if is_one_variable(written) => !value.boolean()?,
            _ => value.written_boolean() == Some(false),
        };
        let help = "write `tls = { cert = \"admin.pem\", key = \"admin.key\" }`, or leave it out";
        if value.written_boolean() == Some(true) {
            value.fault("`tls = true` names no certificate", help);
            return None;
        }
        return if is_off { Some(None) } else { value.mismatch("a table or `false`", help) };
    }
    let draft = tls::server::read_one(value, "`[admin.tls]`")?;
    if draft.demand == Some(Demand::Optional) {
        value.diagnostics().warn(
            value.span(),
            "`client_auth = \"optional\"` gives no access in `[admin]`: clients without a certificate are admitted, too",
            "write `\"required\"`, or leave `client_ca` out: tokens say what a client may do",
        );
    }
    // hyper serves this listener, with HTTP/1.1 only.
    let mut config = ServerConfig::clone(&draft.tls.config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(Some(ListenerTls { config: Arc::new(config), ..draft.tls }))
}

fn is_reachable(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn address(
    value: &ConfigValue<'_>,
    listeners: &[Listener],
) -> Option<(SocketAddr, super::report::SourceSpan)> {
    if let Some(help) = value.whole_text().and_then(remedies::admin_port) {
        return value.mismatch("a string", help);
    }
    let address = value.text()?.parse("an address with a port", socket_address)?;
    if address.port() != 0 && listeners.iter().any(|listener| listener.address == address) {
        let message = format!("`[admin]` listens on `{address}`, where `[server]` listens too");
        value.fault(message, "give the admin listener a port of its own, such as `127.0.0.1:9900`");
    }
    Some((address, value.span()))
}

/// The maximum number of tokens: each request is compared with all of them.
const MAX_TOKENS: usize = 64;
/// The rights in messages.
const RIGHTS: &str = "the rights are `read`, `operate` and `charge:LIMIT`";
const CHARGE: &str = "charge:";

/// Reads the table. `main` is the token of `[admin]`. Entries with faults are left out.
fn read_tokens(value: &ConfigValue<'_>, main: Option<&Token>, limits: &[LimitDraft]) -> Vec<AdminToken> {
    if !value.is_table() {
        let help =
            "each token stands below `[admin.tokens]`: `NAME = { token_env = \"…\", may = [\"read\"] }`";
        return value.mismatch("a table", help).unwrap_or_default();
    }
    let entries = value.entries().unwrap_or_default();
    if entries.is_empty() {
        let help = "add, for example, `monitoring = { token_env = \"MONITORING_TOKEN\", may = [\"read\"] }`, or leave it out";
        value.fault("`[admin.tokens]` has no token, so that every request would be refused", help);
    }
    if let Some(entry) = entries.get(MAX_TOKENS) {
        let message = format!("`[admin.tokens]` has {} tokens", entries.len());
        value.diagnostics().fault(entry.key_span, message, format!("{MAX_TOKENS} are the maximum"));
    }
    let mut tokens: Vec<AdminToken> = Vec::new();
    for entry in entries.iter().take(MAX_TOKENS) {
        if let Some((token, span)) = token(entry, limits) {
            not_unique(&token, span, main, &tokens, entry);
            tokens.push(token);
        }
    }
    tokens
}

/// One entry, and the place of its `token_env`.
fn token(entry: &Entry<'_>, limits: &[LimitDraft]) -> Option<(AdminToken, SourceSpan)> {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut table = entry.value.table(&quoted(&format!("[admin.tokens.{}]", entry.key)))?;
    let secret = table.require(&ADMIN_TOKEN.token_env, |value| Some((value.variable()?, value.span())));
    let rights = table.require(&ADMIN_TOKEN.may, |value| rights(&value, limits));
    table.finish().then_some(())?;
    let ((secret, span), rights) = (secret?, rights?);
    Some((AdminToken { name: entry.key.into(), token: Token(secret), rights }, span))
}

fn rights(value: &ConfigValue<'_>, limits: &[LimitDraft]) -> Option<AdminRights> {
    let mut rights = AdminRights::default();
    let mut seen = Vec::new();
    value.some_of(|item| {
        let text = item.text()?;
        if seen.iter().any(|known| known == text.as_str()) {
            item.fault(format!("{} stands in this list twice", text.quoted()), "leave one of the two out");
        }
        seen.push(text.as_str().to_owned());
        add(&mut rights, text, limits)
    })?;
    Some(rights)
}

fn add(rights: &mut AdminRights, text: Cursor<'_>, limits: &[LimitDraft]) -> Option<()> {
    match text.as_str() {
        "read" => rights.read = true,
        "operate" => rights.operate = true,
        word => match word.strip_prefix(CHARGE) {
            Some(limit) => {
                let limit = limit.to_owned();
                rights.charge.push(chargeable(text.with(limit), limits)?);
            }
            None => {
                let help = did_you_mean(word, ["read", "operate", CHARGE], RIGHTS);
                text.diagnostics().fault(text.span(), format!("there is no right {}", text.quoted()), help);
            }
        },
    }
    Some(())
}

/// The limit of a right to charge it.
fn chargeable(name: Cursor<'_>, limits: &[LimitDraft]) -> Option<Box<str>> {
    let (wanted, diagnostics) = (name.as_str(), name.diagnostics());
    match limits.iter().find(|limit| *limit.name == *wanted) {
        Some(limit) if limit.limit.as_ref().is_some_and(Limit::is_concurrency) => {
            let message =
                format!("limit {} counts requests in flight, which cannot be charged", quoted(wanted));
            diagnostics.fault(name.span(), message, "leave this right out, or name another limit");
            None
        }
        Some(_) => Some(wanted.into()),
        None if diagnostics.is_incomplete() => {
            let why = format!("limit {} may stand in a file that is not known", quoted(wanted));
            diagnostics.skip(name.span(), &why);
            None
        }
        None => {
            let names = limits.iter().map(|limit| &*limit.name);
            let help = did_you_mean(wanted, names, "name a limit of the file: `charge:NAME`");
            diagnostics.fault(name.span(), format!("there is no limit {} to charge", quoted(wanted)), help);
            None
        }
    }
}

/// Two tokens with one secret: the rights of a request would be those of one of them.
fn not_unique(
    token: &AdminToken,
    span: SourceSpan,
    main: Option<&Token>,
    others: &[AdminToken],
    entry: &Entry<'_>,
) {
    let same = |other: &Token| other.0.trim() == token.token.0.trim();
    let other = match main.filter(|main| same(main)) {
        Some(_) => Some("`[admin]` itself".to_owned()),
        None => others
            .iter()
            .find(|other| same(&other.token))
            .map(|other| format!("token {}", quoted(&other.name))),
    };
    if let Some(other) = other {
        let message = format!("token {} has the same secret as {other}", quoted(&token.name));
        entry.value.diagnostics().fault(span, message, "put a secret of its own into a variable of its own");
    }
}
