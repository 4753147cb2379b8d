//! `[admin]`, and `[admin.tokens]`: further tokens of the admin listener, each with its rights.

use std::net::SocketAddr;

use super::keys::{SOME, Schema, keys};
use super::limits::LimitDraft;
use super::name;
use super::remedies::{self, did_you_mean};
use super::report::{SourceSpan, quoted};
use super::server::ADDRESS;
use super::server::socket_address;
use super::table::ConfigTable;
use super::text::Cursor;
use super::value::{ConfigValue, Entry};
use crate::plan::admin::{Admin, AdminRights, AdminToken, Token};
use crate::plan::{Limit, Listener};

keys! {
    /// Health, readiness and metrics, on a listener of their own. Default: off.
    pub(super) ADMIN: AdminKeys = "[admin]" {
        /// An address such as "127.0.0.1:9900". One that others can reach requires `token_env` or `tokens`.
        listen = Schema::Named(&ADDRESS), required "\"127.0.0.1:9900\"";
        /// The environment variable that holds the token for all but /healthz and /readyz. Default: no token.
        token_env = Schema::Name;
        /// Further tokens, by name, each with rights of its own. Requests without a token are then refused.
        tokens = Schema::Map((1, 64), &Schema::TextUpTo(256), &Schema::Table(&ADMIN_TOKEN));
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
    if let Some((address, span)) = listen
        && given.is_none()
        && listed.is_none()
        && is_reachable(address)
    {
        table.diagnostics().fault(
            span,
            format!("`[admin]` listens on `{address}`, which others can reach, without a token"),
            "add `token_env = \"TOLLGATE_ADMIN_TOKEN\"` and put a secret into that variable, or listen on `127.0.0.1`",
        );
    }
    let token = given.and_then(|value| value.variable()).map(Token);
    let tokens = listed.map(|value| read_tokens(&value, token.as_ref(), limits));
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
