//! The allowed sections of `gateway.toml`, read in the order in which they refer to each other.

use std::collections::BTreeSet;

use toml::de::DeTable;

use super::diagnostics::Diagnostics;
use super::gather::INCLUDE;
use super::name::Directory;
use super::report::SourceSpan;
use super::routes::{self, DeclaredNames};
use super::server::ServerDraft;
use super::table::ConfigTable;
use super::value::{ConfigValue, Entry};
use super::{admin, auth, content, limits, log, route_limits, server, store, trace, upstreams};
use crate::plan::action::ErrorPages;
use crate::plan::admin::Admin;
use crate::plan::log::Log;
use crate::plan::{Server, StoreSettings, Trace};
use crate::route::key::Part;

/// All sections of a file; those with errors are missing.
pub(super) struct FileDraft {
    pub(super) server: Server,
    pub(super) admin: Option<Admin>,
    pub(super) store: StoreSettings,
    pub(super) log: Log,
    pub(super) trace: Option<Trace>,
    pub(super) limits: Vec<limits::LimitDraft>,
    pub(super) auths: Vec<auth::AuthDraft>,
    pub(super) upstreams: Vec<upstreams::UpstreamDraft>,
    pub(super) routes: Vec<routes::RouteDraft>,
    pub(super) errors: ErrorPages,
}

/// The keys of the file.
const SECTIONS: [&str; 11] =
    [INCLUDE, "server", "admin", "store", "log", "trace", "upstreams", "limits", "auth", "routes", "errors"];

/// An empty table, for a missing section: all its keys have their defaults.
static NOTHING: std::sync::LazyLock<DeTable<'static>> = std::sync::LazyLock::new(DeTable::new);

/// Reads all sections. Errors are reported to `diagnostics`.
pub(super) fn read<'a>(document: &'a DeTable<'a>, diagnostics: &'a Diagnostics<'a>) -> FileDraft {
    let mut file = ConfigTable::new("the file", SourceSpan::default(), document, diagnostics);
    file.skip(&[INCLUDE]);
    let ServerDraft { server, max_body_bytes, limits: server_limits } =
        server::read(section(&mut file, "server", server::TITLE));
    // Its tokens name limits.
    let admin = file.take("admin");
    let (store, on_error) = store::read(section(&mut file, "store", store::TITLE));
    let log_table = section(&mut file, "log", "`[log]`");
    let trace = file.optional("trace", |value| value.table("`[trace]`")).and_then(trace::read);
    let upstreams: Vec<_> = entries(&mut file, "upstreams").iter().map(upstreams::read).collect();
    let limits: Vec<_> =
        entries(&mut file, "limits").iter().map(|entry| limits::read(entry, on_error)).collect();
    let admin = admin.and_then(|value| value.table("`[admin]`")).and_then(|table| {
        // An unknown address may be any.
        let is_unknown = diagnostics.is_uncertain(server::TITLE, "listen");
        admin::read(table, if is_unknown { &[] } else { &server.listen }, &limits)
    });
    let limit_names = || Directory::new("limit", limits.iter().map(|limit| &*limit.name));
    let (auth_entries, names) = (entries(&mut file, "auth"), limit_names());
    let claims = counted_claims(&limits);
    let auths: Vec<_> = auth_entries.iter().map(|entry| auth::read(entry, &names, &claims)).collect();
    let log = log::read(log_table, &auths);
    let server_limits = server_limits.and_then(|value| route_limits::read_server(&value, &limit_names()));
    let around = DeclaredNames {
        limits: limit_names(),
        server_limits: &server_limits.unwrap_or_default(),
        auths: Directory::new("auth", auths.iter().map(|auth| &*auth.name)),
        auth_drafts: &auths,
        upstreams: Directory::new("upstream", upstreams.iter().map(|upstream| &*upstream.name)),
        max_body_bytes,
        path_matching: server.path_matching,
    };
    let routes = routes(&mut file, &around);
    let errors = file.or("errors", ErrorPages::default(), |value| content::errors(&value));
    file.finish();
    FileDraft { server, admin, store, log, trace, limits, auths, upstreams, routes, errors }
}

fn section<'a>(file: &mut ConfigTable<'a>, key: &'static str, title: &str) -> ConfigTable<'a> {
    let diagnostics = file.diagnostics();
    file.optional(key, |value| value.table(title))
        .unwrap_or_else(|| ConfigTable::new(title, SourceSpan::default(), &NOTHING, diagnostics))
}

fn entries<'a>(file: &mut ConfigTable<'a>, key: &'static str) -> Vec<Entry<'a>> {
    let help = format!("each stands below its own header: `[{key}.NAME]`");
    let given =
        file.optional(
            key,
            |value| if value.is_table() { value.entries() } else { value.mismatch("a table", help) },
        );
    // `[limit.NAME]` is an error, but its name is not missing elsewhere.
    let mistyped = file.mistyped(key, &SECTIONS).into_iter().filter(ConfigValue::is_table);
    let mistyped = mistyped.filter_map(|value| value.entries()).flatten();
    // `[limit]` without a name has keys of a limit, which are no names.
    let is_url = |value: &ConfigValue<'_>| value.written().is_some_and(|text| text.contains(':'));
    let mistyped =
        mistyped.filter(|entry| entry.value.is_table() || key == "upstreams" && is_url(&entry.value));
    given.unwrap_or_default().into_iter().chain(mistyped).collect()
}

/// The claims of tokens by which limits count.
fn counted_claims(limits: &[limits::LimitDraft]) -> Vec<Box<str>> {
    let parts = limits.iter().filter_map(|draft| draft.limit.as_ref()).flat_map(|limit| &limit.key.parts);
    let claims = parts.filter_map(|part| match part {
        Part::JwtClaim(claim) => Some(claim.as_str().into()),
        _ => None,
    });
    claims.collect::<BTreeSet<_>>().into_iter().collect()
}

fn routes(file: &mut ConfigTable<'_>, around: &DeclaredNames<'_>) -> Vec<routes::RouteDraft> {
    let given: Vec<_> = file.take("routes").into_iter().chain(file.mistyped("routes", &SECTIONS)).collect();
    if given.is_empty() {
        if file.diagnostics().is_incomplete() {
            return Vec::new();
        }
        file.diagnostics().fault(
            SourceSpan::default(),
            "there are no routes, so every request would be answered 404",
            "add one: `[[routes]]` with `path = \"/*\"` and `upstream = \"NAME\"`",
        );
        return Vec::new();
    }
    given.iter().filter_map(|value| read_routes(value, around)).flatten().collect()
}

fn read_routes(value: &ConfigValue<'_>, around: &DeclaredNames<'_>) -> Option<Vec<routes::RouteDraft>> {
    if !value.is_list() {
        return value.mismatch("a list", "each route stands below a header with two brackets: `[[routes]]`");
    }
    value.some_of(|item| routes::read(&item, around))
}
