//! `[[routes]]`.

use std::sync::Arc;

use http::Method;

use super::auth::AuthDraft;
use super::conditions;
use super::cors;
use super::headers::{self, HeaderRule};
use super::name::{self, Directory};
use super::report::{SourceSpan, quoted};
use super::server::{body_bound, seconds};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use super::{auth, networks, reject};
use crate::limit::units::Cost;
use crate::plan::cors::Cors;
use crate::plan::{HeaderEdits, LimitIndex, LimitUse, Redirect, Route, UpstreamIndex};
use crate::route::Conditions;
use crate::route::folding::PathMatching;

const REDIRECTS: [(&str, Redirect); 1] = [("https", Redirect::Https)];

/// A route of the file.
pub(super) struct RouteDraft {
    pub(super) name: Arc<str>,
    /// The position of its name, or of the substitute for it.
    pub(super) span: SourceSpan,
    /// Whether it was given a name.
    pub(super) is_named: bool,
    /// `None` if they have faults.
    pub(super) conditions: Option<Conditions>,
    pub(super) upstream: Option<UpstreamIndex>,
    /// The limits it names, without undefined ones.
    pub(super) uses: Vec<RouteLimit>,
    /// `None` if it has faults.
    pub(super) route: Option<Route>,
}

/// A limit as a route names it.
pub(super) struct RouteLimit {
    pub(super) limit_use: LimitUse,
    pub(super) span: SourceSpan,
    /// The position of its cost: here, on the route, or (the default) none.
    pub(super) cost_span: Option<SourceSpan>,
}

/// The names that routes refer to.
pub(super) struct DeclaredNames<'a> {
    pub(super) limits: Directory<'a>,
    pub(super) upstreams: Directory<'a>,
    pub(super) auths: Directory<'a>,
    /// In the order of `auths`.
    pub(super) auth_drafts: &'a [AuthDraft],
    /// The bound on bodies that routes inherit.
    pub(super) max_body_bytes: Option<u64>,
    pub(super) path_matching: PathMatching,
}

/// A cost with its place.
#[derive(Clone, Copy)]
struct Charge {
    cost: Option<Cost>,
    span: Option<SourceSpan>,
}

/// Reads one of `[[routes]]`.
pub(super) fn read(value: &ConfigValue<'_>, around: &DeclaredNames<'_>) -> Option<RouteDraft> {
    let mut table = value.table("`[[routes]]`")?;
    let given_name = table.optional("name", |value| name_of(&value));
    let path = table.require("path", "\"/*\"", |value| value.text());
    let conditions = conditions::read(&mut table, path.as_ref());
    let upstream = table.require("upstream", "\"NAME\"", |value| around.upstreams.find(&value.text()?));
    let upstream = upstream.map(UpstreamIndex);
    let default_cost = Charge { cost: Some(Cost::ONE), span: None };
    let charge = table.or("cost", default_cost, |value| charge(&value));
    let uses = table.or("limits", Vec::new(), |value| uses(&value, charge, around));
    let methods = conditions.as_ref().map_or(&[][..], |conditions| &conditions.methods);
    let rest = rest(&mut table, path.as_ref(), methods, around);
    let is_sound = table.finish();

    let is_named = given_name.is_some();
    let by_path = || {
        path.as_ref().map_or((String::new(), value.span()), |path| (path.as_str().to_owned(), path.span()))
    };
    let (name, span) = given_name.unwrap_or_else(by_path);
    let name: Arc<str> = name.into();
    let route = match (is_sound, &conditions, upstream) {
        (true, Some(conditions), Some(upstream)) => {
            let limits = uses.iter().map(|used| used.limit_use).collect();
            Some(rest(Arc::clone(&name), conditions.clone(), upstream, charge.cost, limits))
        }
        _ => None,
    };
    Some(RouteDraft { name, span, is_named, conditions, upstream, uses, route })
}

fn name_of(value: &ConfigValue<'_>) -> Option<(String, SourceSpan)> {
    let text = value.text()?;
    name::check_label(text.as_str(), text.span(), text.reader());
    let span = text.span();
    Some((text.into_string(), span))
}

fn charge(value: &ConfigValue<'_>) -> Option<Charge> {
    let cost = Cost::new(value.count(0, Cost::MAX)?);
    Some(Charge { cost, span: Some(value.span()) })
}

fn uses(value: &ConfigValue<'_>, charge: Charge, around: &DeclaredNames<'_>) -> Option<Vec<RouteLimit>> {
    let mut uses: Vec<RouteLimit> = Vec::new();
    for item in value.list()? {
        let Some(used) = one_use(&item, charge, around) else { continue };
        if uses.iter().any(|other| other.limit_use.limit == used.limit_use.limit) {
            let message = "this route names the same limit twice";
            value.reader().fault(
                used.span,
                message,
                "leave one of the two out: a limit is charged once a request",
            );
            continue;
        }
        uses.push(used);
    }
    Some(uses)
}

fn one_use(value: &ConfigValue<'_>, route_charge: Charge, around: &DeclaredNames<'_>) -> Option<RouteLimit> {
    let (limit, charge) = if value.is_text() {
        (around.limits.find(&value.text()?), route_charge)
    } else {
        let mut table = value.table_beside_text("an item of `limits`")?;
        let limit = table.require("name", "\"NAME\"", |value| around.limits.find(&value.text()?));
        let charge = table.or("cost", route_charge, |value| charge(&value));
        table.finish();
        (limit, charge)
    };
    let limit_use = LimitUse { limit: LimitIndex(limit?), cost: charge.cost };
    Some(RouteLimit { limit_use, span: value.span(), cost_span: charge.span })
}

/// Reads the keys of a route that refer to no other section. Returns the route with the other ones.
fn rest(
    table: &mut ConfigTable<'_>,
    path: Option<&Cursor<'_>>,
    methods: &[Method],
    around: &DeclaredNames<'_>,
) -> impl FnOnce(Arc<str>, Conditions, UpstreamIndex, Option<Cost>, Vec<LimitUse>) -> Route + use<> {
    let request = ("set_request_headers", "remove_request_headers");
    let response = ("set_response_headers", "remove_response_headers");
    let response_headers = edits(table, response, headers::framing);
    let cors = table.optional("cors", |value| cors_of(&value, methods, &response_headers));
    let timeout = seconds(table, "timeout", 30);
    let read_timeout = seconds(table, "read_timeout", 60);
    let tunnel_timeout = seconds(table, "tunnel_timeout", 3600);
    let max_body_bytes = table.or("max_body_bytes", around.max_body_bytes, |value| body_bound(&value));
    let strip_prefix = table.optional("strip_prefix", |value| {
        value.text()?.parse("a prefix", |text| prefix(text, path.map(Cursor::as_str), around.path_matching))
    });
    let request_headers = edits(table, request, headers::framing_or_host);
    let redirect = table.optional("redirect", |value| value.choice(&REDIRECTS));
    let reject = table.optional("reject", |value| reject::read(&value));
    let addresses = networks::rules(table);
    let auth = auth::of_route(table, &around.auths, around.auth_drafts);
    move |name, conditions, upstream, cost, limits| Route {
        name,
        conditions,
        upstream,
        cost,
        limits,
        timeout,
        read_timeout,
        tunnel_timeout,
        max_body_bytes,
        strip_prefix,
        request_headers,
        response_headers,
        redirect,
        cors,
        reject,
        addresses,
        auth,
    }
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

fn edits(
    table: &mut ConfigTable<'_>,
    (set, remove): (&'static str, &'static str),
    objection: HeaderRule,
) -> HeaderEdits {
    HeaderEdits {
        set: table.or(set, Vec::new(), |value| headers::fields(&value, objection)),
        remove: table.or(remove, Vec::new(), |value| headers::names(&value, objection)),
    }
}

/// Parses a prefix of whole segments that some path of the route can begin with. (Others are forwarded whole.)
fn prefix(text: &str, path: Option<&str>, matching: PathMatching) -> Result<Box<str>, SyntaxError> {
    let is_whole = text.starts_with('/') && text.len() > 1 && !text.ends_with('/');
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}*?#%\\".contains(&byte));
    if !is_whole || !is_plain {
        let message = format!("{} can not be stripped", quoted(text));
        return Err(SyntaxError::new(message, "write whole segments, such as `/search` or `/api/v1`"));
    }
    match path {
        Some(path) if !may_begin(path, text, matching) => {
            let message = format!("no path of this route begins with {}", quoted(text));
            Err(SyntaxError::new(message, format!("strip a part of `path`, which is {}", quoted(path))))
        }
        _ => Ok(text.into()),
    }
}

/// Whether a path that matches `pattern` can begin with the segments of `prefix`.
fn may_begin(pattern: &str, prefix: &str, matching: PathMatching) -> bool {
    let is_same = |known: &str, segment: &str| match matching {
        PathMatching::Lenient => known.eq_ignore_ascii_case(segment),
        PathMatching::Strict => known == segment,
    };
    let mut pattern = pattern.split('/').skip(1);
    for segment in prefix.split('/').skip(1) {
        match pattern.next() {
            Some("*") => return true,
            Some(known) if is_same(known, segment) || known.starts_with('{') => {}
            _ => return false,
        }
    }
    true
}
