//! The allowed sections of `gateway.toml`, read in the order in which they refer to each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::de::DeTable;

use super::diagnostics::Diagnostics;
use super::gather::INCLUDE;
use super::keys::{ANY, ConfigKey, ConfigSection as _, Custom, SOME, Schema, keys};
use super::name::Directory;
use super::report::SourceSpan;
use super::routes::{self, DeclaredNames};
use super::server::ServerDraft;
use super::sets::SETS;
use super::store::StoreDraft;
use super::table::ConfigTable;
use super::value::{ConfigValue, Entry};
use super::{
    acme, admin, auth, content, decisions, descriptors, limits, log, maps, route_limits, server, sets, store,
    trace, upstreams,
};
use crate::auth::method::AuthMethod;
use crate::plan::action::ErrorPages;
use crate::plan::admin::Admin;
use crate::plan::auth::{Auth, AuthIndex};
use crate::plan::decisions::DecisionService;
use crate::plan::log::Log;
use crate::plan::{Listener, Server, Trace};
use crate::route::claim::ClaimPath;
use crate::route::key::Part;

keys! {
    /// Routes match requests; limits bound them. `tollgate check` checks more than this schema: references
    /// between sections and between files, and costs that can never be admitted.
    pub(super) FILE: FileKeys = "tollgate's gateway.toml" {
        /// Further files, which are read as if they stood here: paths relative to this file, with `*` and `?` in
        /// the file's name.
        include = Schema::Either(&[Schema::Text, Schema::List(ANY, &Schema::Text)]);
        /// How clients are served.
        server = Schema::Table(&server::SERVER);
        /// Health, readiness and metrics, on a listener of their own. Default: off.
        admin = Schema::Table(&admin::ADMIN);
        /// Other proxies and applications ask here whether a request may pass. Default: off.
        decisions = Schema::Table(&decisions::DECISIONS);
        /// Certificates from an authority that speaks ACME (RFC 8555), for the names in `acme` of [[server.tls]].
        /// Default: none.
        acme = Schema::Table(&acme::ACME);
        /// Where counters live.
        store = Schema::Table(&store::STORE);
        /// What is logged: requests to standard output or to a file, the program's own doings to standard error.
        log = Schema::Table(&log::LOG);
        /// Traces of requests, told to a collector by OTLP over HTTP. Without this table nothing is traced.
        trace = Schema::Table(&trace::TRACE);
        /// Credentials that name consumers, by name. A route names them in `auth`.
        auth = Schema::Map(ANY, &Schema::TextUpTo(256), &Schema::Table(&auth::AUTH));
        /// The services behind the gateway, by name.
        upstreams = Schema::Map(ANY, &Schema::TextUpTo(256), &Schema::Named(&upstreams::WRITTEN));
        /// Limits, by name. The name is sent in responses: 1 to 64 letters, digits, `-`, `_` and `.`.
        limits = Schema::Map(ANY, &Schema::Matching(r"^[A-Za-z0-9_.-]{1,64}$"), &Schema::Table(&limits::LIMIT));
        /// Tiers by network or by another value of a request, by the name that `tier` of a limit gives.
        maps = Schema::Map(ANY, &Schema::TextUpTo(256), &Schema::Table(&maps::MAP));
        /// Bodies of errors that the gateway itself answers, by status (400 to 599). Default: a problem document
        /// (RFC 9457).
        errors = Schema::Map(ANY, &Schema::Matching(r"^[45][0-9][0-9]$"), &Schema::Table(&content::ERROR_PAGE));
        /// Keys that routes share, by the name that routes give in `use`.
        sets = Schema::Map(ANY, &Schema::TextUpTo(256), &Schema::Table(&sets::SET));
        /// Routes. Of all routes whose conditions hold, the most specific wins: host, path (exact, with parameters,
        /// regular expressions in file order, prefixes), methods, more conditions on values, then file order.
        routes = Schema::List(SOME, &Schema::Table(&routes::ROUTE));
        /// Limits of what other proxies ask about. Of the rules for a descriptor the one with the most values wins,
        /// then one with a domain, then the first in the file.
        descriptors = Schema::List(ANY, &Schema::Table(&descriptors::DESCRIPTOR));
    }
}

/// All sections of a file; those with errors are missing.
pub(super) struct FileDraft {
    pub(super) server: Server,
    pub(super) admin: Option<Admin>,
    pub(super) decisions: Option<DecisionService>,
    pub(super) acme: Option<acme::AcmeDraft>,
    /// Whether a certificate is to be ordered.
    pub(super) names_acme: bool,
    /// Whether the certificates of `[server]` have no faults, as far as there are some.
    pub(super) server_is_sound: bool,
    pub(super) store: StoreDraft,
    pub(super) log: Log,
    pub(super) trace: Option<Trace>,
    pub(super) maps: Vec<maps::MapDraft>,
    pub(super) limits: Vec<limits::LimitDraft>,
    pub(super) auths: Vec<auth::AuthDraft>,
    pub(super) upstreams: Vec<upstreams::UpstreamDraft>,
    pub(super) routes: Vec<routes::RouteDraft>,
    pub(super) descriptors: Vec<descriptors::DescriptorDraft>,
    pub(super) errors: ErrorPages,
    /// `connection_limits` of `[server]`.
    pub(super) connection_limits: Vec<route_limits::ServerLimit>,
    /// The place of `geo` of `[server]`.
    pub(super) geo_place: Option<SourceSpan>,
}

/// Reads all sections. Errors are reported to `diagnostics`.
pub(super) fn read<'a>(document: &'a DeTable<'a>, diagnostics: &'a Diagnostics<'a>) -> FileDraft {
    let mut file = ConfigTable::new("the file", SourceSpan::default(), document, diagnostics);
    // The files are gathered, and each route is its sets and itself.
    file.skip(&[INCLUDE, SETS]);
    let acme = file.take(&FILE.acme).map(|value| acme::read(&value));
    let server_draft = server::read(section(&mut file, &FILE.server, server::TITLE), acme.as_ref());
    let ServerDraft { mut server, max_body_bytes, compression, names_acme, server_is_sound, .. } =
        server_draft;
    let ServerDraft { limits: server_limits, connection_limits, geo_place, .. } = server_draft;
    // Its tokens name limits.
    let admin = file.take(&FILE.admin);
    let store = store::read(section(&mut file, &FILE.store, store::TITLE));
    let log_table = section(&mut file, &FILE.log, "`[log]`");
    let trace = file.optional(&FILE.trace, |value| value.table("`[trace]`")).and_then(trace::read);
    let upstreams: Vec<_> = entries(&mut file, &FILE.upstreams).iter().map(upstreams::read).collect();
    let maps: Vec<_> = entries(&mut file, &FILE.maps).iter().map(maps::read).collect();
    let limits: Vec<_> =
        entries(&mut file, &FILE.limits).iter().map(|entry| limits::read(entry, &store, &maps)).collect();
    let admin = admin.and_then(|value| value.table("`[admin]`"));
    let admin = admin.and_then(|table| admin::read(table, known_listeners(&server, diagnostics), &limits));
    let decisions = file.optional(&FILE.decisions, |value| value.table("`[decisions]`"));
    let (has_decisions, listeners) = (decisions.is_some(), known_listeners(&server, diagnostics));
    let decisions = decisions.and_then(|table| decisions::read(table, listeners, admin.as_ref()));
    server.listen.extend(decisions.as_ref().map(decisions::listener));
    let limit_names = || Directory::new("limit", limits.iter().map(|limit| &*limit.name));
    let (auth_entries, names, claims) =
        (entries(&mut file, &FILE.auth), limit_names(), counted_claims(&limits));
    let mut auths: Vec<_> = auth_entries.iter().map(|entry| auth::read(entry, &names, &claims)).collect();
    let log = log::read(log_table, &auths);
    let server_limits = server_limits.and_then(|value| route_limits::read_server(&value, &limit_names()));
    let connection_limits = connection_limits.map(|value| limits_of_connections(&value, &limit_names()));
    let around = DeclaredNames {
        limits: limit_names(),
        server_limits: &server_limits.unwrap_or_default(),
        auths: Directory::new("auth", auths.iter().map(|auth| &*auth.name)),
        auth_drafts: &auths,
        upstreams: Directory::new("upstream", upstreams.iter().map(|upstream| &*upstream.name)),
        max_body_bytes,
        compression: compression.as_ref(),
        response_headers: &server.response_headers,
        path_matching: server.path_matching,
        max_buffered: server.max_buffered,
        listeners: Directory::new(
            "listener",
            server.listen.iter().filter_map(|listener| listener.name.as_deref()),
        ),
    };
    let routes = routes(&mut file, &around, has_decisions);
    let descriptors =
        file.or(&FILE.descriptors, Vec::new(), |value| descriptors::read_all(&value, &around.limits));
    keep_claims(&mut auths, &routes);
    let errors = file.or(&FILE.errors, ErrorPages::default(), |value| content::errors(&value));
    file.finish();
    FileDraft {
        server,
        admin,
        decisions,
        acme,
        names_acme,
        server_is_sound,
        store,
        log,
        trace,
        maps,
        limits,
        auths,
        upstreams,
        routes,
        descriptors,
        errors,
        connection_limits: connection_limits.unwrap_or_default(),
        geo_place,
    }
}

/// The listeners whose addresses are known: an unknown one may be any.
fn known_listeners<'s>(server: &'s Server, diagnostics: &Diagnostics<'_>) -> &'s [Listener] {
    match diagnostics.is_uncertain(server::TITLE, server::SERVER.listen.name) {
        true => &[],
        false => &server.listen,
    }
}

/// `connection_limits` of `[server]`, with a note if some name is unknown.
fn limits_of_connections(value: &ConfigValue<'_>, names: &Directory<'_>) -> Vec<route_limits::ServerLimit> {
    let diagnostics = value.diagnostics();
    let unknown = diagnostics.unknown();
    let limits = route_limits::read_of_connections(value, names);
    if diagnostics.unknown() > unknown {
        diagnostics.set_uncertain(server::TITLE, server::SERVER.connection_limits.name);
    }
    limits.unwrap_or_default()
}

/// A section. Where something else stands in its place, which is a fault, it has its defaults.
fn section<'a>(file: &mut ConfigTable<'a>, key: &ConfigKey<Custom>, title: &str) -> ConfigTable<'a> {
    let diagnostics = file.diagnostics();
    file.section(key, title).unwrap_or_else(|| ConfigTable::empty(title, SourceSpan::default(), diagnostics))
}

/// The names of all sections.
fn section_names() -> Vec<&'static str> {
    FILE.keys().iter().map(|key| key.name()).collect()
}

fn entries<'a>(file: &mut ConfigTable<'a>, key: &ConfigKey<Custom>) -> Vec<Entry<'a>> {
    let help = format!("each stands below its own header: `[{}.NAME]`", key.name);
    let given =
        file.optional(
            key,
            |value| if value.is_table() { value.entries() } else { value.mismatch("a table", help) },
        );
    // `[limit.NAME]` is an error, but its name is not missing elsewhere.
    let mistyped = file.mistyped(key.name, &section_names()).into_iter().filter(ConfigValue::is_table);
    let mistyped = mistyped.filter_map(|value| value.entries()).flatten();
    // `[limit]` without a name has keys of a limit, which are no names.
    let is_url = |value: &ConfigValue<'_>| value.written().is_some_and(|text| text.contains(':'));
    let mistyped = mistyped
        .filter(|entry| entry.value.is_table() || key.name == FILE.upstreams.name && is_url(&entry.value));
    given.unwrap_or_default().into_iter().chain(mistyped).collect()
}

/// The claims of tokens by which limits count.
fn counted_claims(limits: &[limits::LimitDraft]) -> Vec<ClaimPath> {
    let parts = limits.iter().filter_map(|draft| draft.limit.as_ref()).flat_map(|limit| &limit.key.parts);
    let claims = parts.filter_map(|part| match part {
        Part::JwtClaim(claim) => Some((claim.as_str(), claim)),
        _ => None,
    });
    claims.collect::<BTreeMap<_, _>>().into_values().cloned().collect()
}

/// Adds to each auth with tokens which values of claims its routes require: no others are kept of a verified token.
fn keep_claims(auths: &mut [auth::AuthDraft], routes: &[routes::RouteDraft]) {
    let used: Vec<_> = routes.iter().filter_map(|route| route.route.as_ref()?.auth.as_ref()).collect();
    for (index, draft) in auths.iter_mut().enumerate() {
        let Some(Auth { method: AuthMethod::Tokens(tokens), .. }) = &mut draft.auth else { continue };
        // It was read a moment ago, and is this draft's alone.
        let Some(tokens) = Arc::get_mut(tokens) else { continue };
        let mut required = BTreeMap::new();
        for auth in used.iter().filter(|auth| auth.auths.contains(&AuthIndex(index))) {
            for requirement in &auth.requirements {
                let Some(claim) = requirement.attribute.claim() else { continue };
                required.extend(requirement.any_of.iter().map(|wanted| ((claim.as_str(), wanted), claim)));
            }
        }
        let pairs = required.into_iter().map(|((_, wanted), claim)| (claim.clone(), wanted.clone()));
        tokens.claims.required = pairs.collect();
    }
}

/// A gateway that only decides for others needs none.
fn routes(
    file: &mut ConfigTable<'_>,
    around: &DeclaredNames<'_>,
    has_decisions: bool,
) -> Vec<routes::RouteDraft> {
    let given: Vec<_> = file
        .take(&FILE.routes)
        .into_iter()
        .chain(file.mistyped(FILE.routes.name, &section_names()))
        .collect();
    if given.is_empty() {
        if has_decisions || file.diagnostics().is_incomplete() {
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
