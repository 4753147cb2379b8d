//! `[[routes]]`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};

use super::action::{self, ActionDraft};
use super::auth::AuthDraft;
use super::compress;
use super::content::REJECT;
use super::cors::CORS;
use super::cost::{self, COST, CostDraft};
use super::diagnostics::Diagnostics;
use super::headers::{self, FIELD_NAMES, FIELDS, HeaderRule};
use super::keys::{ConfigKey, Custom, Schema, duration, flag, keys, size};
use super::mirror::MirrorDraft;
use super::name::{self, Directory};
use super::networks::ADDRESS_RULES;
use super::report::{SourceSpan, quoted};
use super::route_limits::{self, ROUTE_LIMITS, RouteLimit, ServerLimit};
use super::server::{self, MAX_SIZE, body_bound};
use super::set_names::{self, USE};
use super::split::SPLIT;
use super::table::ConfigTable;
use super::text::Cursor;
use super::units::size_in_words;
use super::value::ConfigValue;
use super::{auth, conditions, content, cors, networks, path_spelling, templates};
use crate::limit::fair_queue::Priority;
use crate::plan::action::RouteAction;
use crate::plan::auth::RouteAuth;
use crate::plan::compression::Compression;
use crate::plan::cors::Cors;
use crate::plan::cost::CostRule;
use crate::plan::template::HeaderTemplate;
use crate::plan::{BatchRule, HeaderEdits, LimitUse, Reject, Route, UpstreamIndex};
use crate::route::Conditions;
use crate::route::client::AddressRules;
use crate::route::content::DEFAULT_MAX_CONTENT;
use crate::route::path::PathMatching;

keys! {
    pub(super) ROUTE: RouteKeys = "[[routes]]" {
        /// What logs and metrics call it, 1 to 256 bytes, none twice. Default: the path.
        name = Schema::TextUpTo(256);
        /// "/a" exactly, "/a/{id}" any one segment, "/a/*" this and all below, "~^/v[0-9]+$" a regular expression.
        path = Schema::Matching(r"^[/~]|\$\{"), required "\"/*\"";
        + USE;
        + SETTINGS;
    }
}

keys! {
    /// The keys of a route that a set may have, too.
    pub(super) SETTINGS: SettingKeys = "settings of a route" {
        /// Units that a request spends: 0 (never charged) to 10^9, or a table that says where the number is.
        /// Default 1.
        cost = Schema::Named(&COST);
        /// From the request sent whole to the response head; then 504.
        timeout: Duration = duration() => Duration::from_secs(30);
        /// Silence inside a response body.
        read_timeout: Duration = duration() => Duration::from_secs(60);
        /// The longest time of a whole exchange, from the head of the request to the end of the response or tunnel:
        /// 504, or the response is cut. Default: no bound.
        max_duration: Duration = duration();
        /// How long an upgraded connection (WebSocket) may be silent in both directions; then it is closed.
        tunnel_timeout: Duration = duration() => Duration::from_secs(3600);
        /// The largest request body; a larger one is answered 413. 0: no bound. Default: that of [server].
        max_body_bytes: u64 = size(0, MAX_SIZE);
        /// The largest request body that keys `json:` and `form:` and costs are read from, at most a sixteenth of
        /// max_buffered; a larger one is answered 413, or as `unreadable` says.
        max_key_body: usize = size(1 << 10, 4 << 30) => DEFAULT_MAX_CONTENT;
        /// "each": a JSON list in the body is a batch of calls, up to 100, each of which is charged. Otherwise such
        /// a body is answered 400 where the route reads members of bodies.
        batch = Schema::Words(&["each"]);
        /// Fields that the upstream gets with these values, which may have {client} and other values of the
        /// request. Default: none.
        set_request_headers = Schema::Named(&FIELDS);
        /// Fields that the upstream does not get. Default: none.
        remove_request_headers = Schema::Named(&FIELD_NAMES);
        /// Fields that the client gets with these values, which may have {request_id} and other values of the
        /// request. Default: none.
        set_response_headers = Schema::Named(&FIELDS);
        /// Fields that the client does not get. Default: none.
        remove_response_headers = Schema::Named(&FIELD_NAMES);
        /// Which sites' scripts may read the answers. Preflights are answered here, never charged. Default: the
        /// backend's business.
        cors = Schema::Table(&CORS);
        /// Which responses of the upstream are compressed, and how; false: none. Default: as [server] says.
        compress = compress::EITHER;
        /// Whether the upstream gets the client's certificate in `client-cert` (RFC 9440). The field of a client is
        /// dropped.
        forward_client_cert: bool = flag() => false;
        /// How a refusal looks. Default: 429 with a problem+json body.
        reject = Schema::Table(&REJECT);
        /// Which requests that wait for a place are first. Each lower one that waits gets a place in ten; of
        /// "background", a tenth of the places stays free. Default "normal".
        priority = Schema::Words(&["high", "normal", "low", "background"]);
        + conditions::CONDITIONS;
        + action::ACTION;
        + route_limits::ROUTE_LIMITS;
        + auth::ROUTE_AUTH;
        + ADDRESS_RULES;
    }
}

/// The values of `priority`.
const PRIORITIES: [(&str, Priority); 4] = [
    ("high", Priority::High),
    ("normal", Priority::Normal),
    ("low", Priority::Low),
    ("background", Priority::Background),
];

/// The values of `batch`.
const BATCHES: [(&str, BatchRule); 1] = [("each", BatchRule::Each)];

/// A route of the file.
pub(super) struct RouteDraft {
    pub(super) name: Arc<str>,
    /// The position of its name, or of the substitute for it.
    pub(super) span: SourceSpan,
    pub(super) places: RoutePlaces,
    /// Whether it was given a name.
    pub(super) is_named: bool,
    /// `None` if they have faults.
    pub(super) conditions: Option<Conditions>,
    pub(super) upstreams: Vec<UpstreamIndex>,
    /// Its `mirror`, if it has one without faults.
    pub(super) mirror: Option<MirrorDraft>,
    /// The limits it names, without undefined ones.
    pub(super) uses: Vec<RouteLimit>,
    /// Its `priority`, if it is given.
    pub(super) priority: Option<(Priority, SourceSpan)>,
    /// `None` if it has faults.
    pub(super) route: Option<Route>,
}

/// The places of a route's settings in the file, where they are given; of `deny` that of its value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoutePlaces {
    pub(super) path: Option<SourceSpan>,
    pub(super) hosts: Option<SourceSpan>,
    pub(super) methods: Option<SourceSpan>,
    pub(super) clients: Option<SourceSpan>,
    pub(super) allow: Option<SourceSpan>,
    pub(super) deny: Option<SourceSpan>,
    pub(super) redirect: Option<SourceSpan>,
    pub(super) max_key_body: Option<SourceSpan>,
    pub(super) batch: Option<SourceSpan>,
}

/// The names that routes refer to.
pub(super) struct DeclaredNames<'a> {
    pub(super) limits: Directory<'a>,
    /// The limits of every route.
    pub(super) server_limits: &'a [ServerLimit],
    pub(super) upstreams: Directory<'a>,
    pub(super) auths: Directory<'a>,
    /// In the order of `auths`.
    pub(super) auth_drafts: &'a [AuthDraft],
    /// The bound on bodies that routes inherit.
    pub(super) max_body_bytes: Option<u64>,
    /// `compress` of all routes.
    pub(super) compression: Option<&'a Arc<Compression>>,
    /// The headers of every response.
    pub(super) response_headers: &'a [(HeaderName, HeaderTemplate)],
    pub(super) path_matching: PathMatching,
    pub(super) listeners: Directory<'a>,
    pub(super) max_buffered: usize,
}

/// Reads one of `[[routes]]`.
pub(super) fn read(value: &ConfigValue<'_>, around: &DeclaredNames<'_>) -> Option<RouteDraft> {
    let mut table = value.table("`[[routes]]`")?;
    let given_name = table.optional(&ROUTE.name, |value| name_of(&value));
    let path = table.require(&ROUTE.path, |value| value.text());
    let matcher = path.as_ref().and_then(|text| conditions::path(text, around.path_matching));
    let conditions = conditions::read(&mut table, matcher.clone(), around.path_matching, &around.listeners);
    if let (Some(path), Some(conditions)) = (&path, &conditions) {
        path_spelling::check(path, conditions, around.path_matching);
    }
    let paths = (path.as_ref(), matcher.as_ref());
    let names = (&around.upstreams, &around.limits);
    let ActionDraft { upstreams, redirect, path_edit, mirror, action } =
        action::read(&mut table, paths, names, around.path_matching);
    // To look at what is left costs nothing.
    let tells_usage = matches!(&action, Some(RouteAction::Respond(response)) if !response.usage.is_empty());
    let default_cost = if tells_usage { CostDraft::FREE } else { CostDraft::DEFAULT };
    let cost = table.or(&SETTINGS.cost, default_cost, |value| cost::read(&value));
    let own =
        table.or(&ROUTE_LIMITS.limits, Vec::new(), |value| route_limits::uses(&value, &cost, &around.limits));
    let uses = route_limits::join(&mut table, around.server_limits, own, &cost);
    settles_nothing(action.as_ref(), &uses, table.diagnostics());
    let methods = conditions.as_ref().map_or(&[][..], |conditions| &conditions.methods);
    let places = RoutePlaces {
        path: path.as_ref().map(Cursor::span),
        hosts: table.given("hosts"),
        methods: table.given("methods"),
        clients: table.given("clients"),
        allow: table.given("allow"),
        deny: table.given_value("deny"),
        redirect: table.given("redirect"),
        max_key_body: table.given("max_key_body"),
        batch: table.given("batch"),
    };
    // The route is its sets and itself already.
    let sets = set_names::of_route(&mut table);
    if sets.is_empty() {
        waits_for_no_upstream(action.as_ref(), &table);
        has_no_limits(&uses, &table);
    }
    let priority_span = table.given("priority");
    let settings = RouteSettings::read(&mut table, methods, around);
    let is_sound = table.finish();

    let is_named = given_name.is_some();
    let by_path = || {
        path.as_ref().map_or((String::new(), value.span()), |path| (path.as_str().to_owned(), path.span()))
    };
    let (name, span) = given_name.unwrap_or_else(by_path);
    let name: Arc<str> = name.into();
    let route = match (is_sound, &conditions, action) {
        (true, Some(conditions), Some(action)) => {
            let limits = uses.iter().map(|used| used.limit_use.clone()).collect();
            let route = settings.into_route(Arc::clone(&name), conditions.clone(), action, cost.rule, limits);
            let mirror = mirror.as_ref().map(|draft| Box::new(draft.mirror.clone()));
            Some(Route { sets, redirect, path_edit, mirror, ..route })
        }
        _ => None,
    };
    let priority = route.as_ref().and_then(|route| Some((route.priority, priority_span?)));
    Some(RouteDraft { name, span, places, is_named, conditions, upstreams, mirror, uses, priority, route })
}

/// Keys about the exchange with an upstream on a route that answers itself. A set has them for other routes.
fn waits_for_no_upstream(action: Option<&RouteAction>, table: &ConfigTable<'_>) {
    if !matches!(action, Some(RouteAction::Respond(_) | RouteAction::Redirect(_))) {
        return;
    }
    let keys = [
        SETTINGS.timeout.name,
        SETTINGS.read_timeout.name,
        SETTINGS.tunnel_timeout.name,
        SETTINGS.compress.name,
        SETTINGS.set_request_headers.name,
        SETTINGS.remove_request_headers.name,
        SETTINGS.forward_client_cert.name,
        SPLIT.upstream_key.name,
    ];
    for key in keys {
        if let Some(span) = table.given(key) {
            let message = format!("`{key}` has no effect: the route has no `upstream`");
            table.diagnostics().warn(span, message, "leave it out");
        }
    }
}

/// Keys about limits on a route without any. Used-up `failures` of an auth refuse by `reject`, too.
fn has_no_limits(uses: &[RouteLimit], table: &ConfigTable<'_>) {
    let is_unknown = table.diagnostics().is_uncertain(server::TITLE, ROUTE_LIMITS.limits.name);
    if !uses.is_empty() || table.given(ROUTE_LIMITS.limits.name).is_some() || is_unknown {
        return;
    }
    let reject =
        table.given(SETTINGS.reject.name).filter(|_| table.given(auth::ROUTE_AUTH.auth.name).is_none());
    let cost = table.given(SETTINGS.cost.name);
    for (key, span) in [(SETTINGS.cost.name, cost), (SETTINGS.reject.name, reject)] {
        if let Some(span) = span {
            let message = format!("`{key}` has no effect: the route has no limits");
            table.diagnostics().warn(span, message, "add `limits = [\"NAME\"]`, or leave it out");
        }
    }
}

fn name_of(value: &ConfigValue<'_>) -> Option<(String, SourceSpan)> {
    let text = value.text()?;
    name::check_label(text.as_str(), text.span(), text.diagnostics());
    let span = text.span();
    Some((text.into_string(), span))
}

/// Other gateways order routes by a number of this name.
fn priority(value: &ConfigValue<'_>) -> Option<Priority> {
    if !value.is_text() {
        let help = "leave it out: of routes the most specific one wins";
        value.fault("`priority` is no number: it says whose requests are first to get a place", help);
        return None;
    }
    value.choice(&PRIORITIES)
}

/// A cost that is settled by the response of a backend, on a route without one.
fn settles_nothing(action: Option<&RouteAction>, uses: &[RouteLimit], diagnostics: &Diagnostics<'_>) {
    let Some(RouteAction::Redirect(_) | RouteAction::Respond(_)) = action else { return };
    let settled = uses.iter().find(|used| used.limit_use.cost.settled().is_some());
    if let Some(used) = settled {
        let message = "`settle` waits for the response of a backend, but this route answers itself";
        diagnostics.fault(used.cost_span.unwrap_or(used.span), message, "write the cost as a number");
    }
}

/// The keys of a route that refer to no other section.
struct RouteSettings {
    timeout: Duration,
    read_timeout: Duration,
    tunnel_timeout: Duration,
    max_duration: Option<Duration>,
    max_body_bytes: Option<u64>,
    max_key_body: usize,
    batch: BatchRule,
    forward_client_cert: bool,
    request_headers: HeaderEdits,
    response_headers: HeaderEdits,
    cors: Option<Box<Cors>>,
    compression: Option<Arc<Compression>>,
    reject: Option<Arc<Reject>>,
    addresses: AddressRules,
    auth: Option<RouteAuth>,
    priority: Priority,
}

impl RouteSettings {
    fn read(table: &mut ConfigTable<'_>, methods: &[Method], around: &DeclaredNames<'_>) -> Self {
        let request = (&SETTINGS.set_request_headers, &SETTINGS.remove_request_headers);
        let response = (&SETTINGS.set_response_headers, &SETTINGS.remove_response_headers);
        let mut response_headers = edits(table, response, headers::framing);
        Self {
            cors: table.optional(&SETTINGS.cors, |value| cors_of(&value, methods, &response_headers)),
            compression: compression(table, around, &response_headers),
            response_headers: {
                response_headers.set_others(around.response_headers);
                response_headers
            },
            timeout: table.value(&SETTINGS.timeout),
            read_timeout: table.value(&SETTINGS.read_timeout),
            tunnel_timeout: table.value(&SETTINGS.tunnel_timeout),
            max_duration: max_duration(table),
            max_body_bytes: table.get(&SETTINGS.max_body_bytes).map_or(around.max_body_bytes, body_bound),
            request_headers: edits(table, request, headers::framing_or_host),
            max_key_body: table
                .or_default(&SETTINGS.max_key_body, |value| key_body(&value, around.max_buffered)),
            batch: table.or(&SETTINGS.batch, BatchRule::default(), |value| value.choice(&BATCHES)),
            forward_client_cert: table.value(&SETTINGS.forward_client_cert),
            reject: table.optional(&SETTINGS.reject, |value| content::reject(&value)),
            addresses: networks::rules(table),
            auth: auth::of_route(table, &around.auths, around.auth_drafts),
            priority: table.or(&SETTINGS.priority, Priority::Normal, |value| priority(&value)),
        }
    }

    /// The route with these settings and the keys that refer to other sections.
    fn into_route(
        self,
        name: Arc<str>,
        conditions: Conditions,
        action: RouteAction,
        cost: CostRule,
        limits: Vec<LimitUse>,
    ) -> Route {
        let Self { timeout, read_timeout, tunnel_timeout, max_duration, max_body_bytes, .. } = self;
        let Self { forward_client_cert, max_key_body, batch, .. } = self;
        let Self { request_headers, response_headers, cors, compression, .. } = self;
        let Self { reject, addresses, auth, priority, .. } = self;
        Route {
            name,
            sets: Vec::new(),
            conditions,
            action,
            cost,
            limits,
            timeout,
            read_timeout,
            tunnel_timeout,
            max_duration,
            max_body_bytes,
            path_edit: None,
            mirror: None,
            request_headers,
            response_headers,
            redirect: None,
            cors,
            compression,
            reject,
            addresses,
            forward_client_cert,
            auth,
            batch,
            reads_body: false,
            max_key_body,
            json_pointers: Vec::new(),
            limits_before_auth: false,
            counts_by_upstream: false,
            priority,
        }
    }
}

/// `max_key_body`: a client that holds a sixteenth of all that is held loses no request to others.
fn key_body(value: &ConfigValue<'_>, max_buffered: usize) -> Option<usize> {
    let bytes = SETTINGS.max_key_body.value.read(value)?;
    if bytes > max_buffered / 16 {
        let most = size_in_words(max_buffered as u64 / 16);
        let message = format!("`max_key_body` is more than a sixteenth of `max_buffered`, {most}");
        value.fault(message, "write a larger `max_buffered` in [server], or at most that");
        return None;
    }
    Some(bytes)
}

/// `max_duration`: shorter than each time-out that is given, it would leave this without effect.
fn max_duration(table: &mut ConfigTable<'_>) -> Option<Duration> {
    let bound = table.get(&SETTINGS.max_duration)?;
    for key in [&SETTINGS.timeout, &SETTINGS.read_timeout, &SETTINGS.tunnel_timeout] {
        if let Some(span) = table.given(key.name)
            && table.value(key) >= bound
        {
            let message = format!("`{}` has no effect: `max_duration` is not longer", key.name);
            table.diagnostics().warn(span, message, "leave it out, or write a longer `max_duration`");
        }
    }
    Some(bound)
}

/// `cors`, which must be the only setting of its headers: browsers accept neither of two.
fn cors_of(value: &ConfigValue<'_>, methods: &[Method], edits: &HeaderEdits) -> Option<Box<Cors>> {
    let twice = edits.set.iter().find(|(name, _)| name.as_str().starts_with("access-control-"));
    if let Some((name, _)) = twice {
        let message = format!("`set_response_headers` names {} beside `cors`", quoted(name.as_str()));
        value.fault(message, "leave one of the two out: `cors` sets this field itself");
    }
    cors::read(value, methods).map(Box::new)
}

/// `compress` of the route, else that of all routes.
fn compression(
    table: &mut ConfigTable<'_>,
    around: &DeclaredNames<'_>,
    edits: &HeaderEdits,
) -> Option<Arc<Compression>> {
    let own = table.optional(&SETTINGS.compress, |value| {
        let own = compress::read(&value)?;
        own.iter().for_each(|_| compress::check_edits(&value, edits));
        Some(own.map(Arc::new))
    });
    own.unwrap_or_else(|| around.compression.cloned())
}

fn edits(
    table: &mut ConfigTable<'_>,
    (set, remove): (&ConfigKey<Custom>, &ConfigKey<Custom>),
    objection: HeaderRule,
) -> HeaderEdits {
    let value_of = |value: &ConfigValue<'_>| {
        if value.written() == Some("") {
            let message = format!("`{}` sets a header to an empty value, and does not remove it", set.name);
            value.diagnostics().warn(
                value.span(),
                message,
                format!("to remove it, name it in `{}`", remove.name),
            );
        }
        templates::header(value)
    };
    HeaderEdits {
        set: table.or(set, Vec::new(), |value| headers::fields_with(&value, objection, value_of)),
        remove: table.or(remove, Vec::new(), |value| headers::names(&value, objection)),
    }
}
