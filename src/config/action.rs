//! What a route does with an admitted request: `upstream`, `redirect = { … }` or `respond`; and `strip_prefix`,
//! `rewrite`.

use http::StatusCode;

use super::content::RESPOND;
use super::keys::{Schema, keys};
use super::mirror::{self, MIRROR, MirrorDraft};
use super::name::Directory;
use super::report::{cut_for_help, quoted};
use super::split;
use super::split::SPLIT;
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use super::{content, endpoint, templates};
use crate::plan::action::{RedirectTo, RouteAction};
use crate::plan::target::{TargetFault, TargetTemplate};
use crate::plan::{PathEdit, Redirect, UpstreamIndex};
use crate::route::path::{Path, PathMatching};
use crate::route::pattern::PathMatcher;

keys! {
    /// What a route does with a request.
    pub(super) ACTION: ActionKeys = "action of a route" {
        /// "https": a request that came without TLS is sent there by 308, and charged nothing. A table instead of
        /// `upstream`: every request is redirected. Default: none.
        redirect = Schema::Either(&[Schema::Words(&["https"]), Schema::Table(&REDIRECT)]);
        /// The answer of the gateway itself, instead of `upstream`.
        respond = Schema::Table(&RESPOND);
        /// Whole segments that every path of the route begins with and the upstream does not see. Default: none.
        strip_prefix = Schema::Matching(r"^/.*[^/]$|\$\{");
        /// The path that the upstream gets instead: "/v2/{id}" with parts of `path`, {*} the rest. A query in it
        /// replaces the request's. Default: the path as sent.
        rewrite = Schema::Matching(r"^/|\$\{");
        /// Copies of some requests go to a further upstream, whose answers are dropped. Default: none.
        mirror = Schema::Table(&MIRROR);
        + SPLIT;
    }
}

keys! {
    /// Where every request is sent.
    pub(super) REDIRECT: RedirectKeys = "redirect" {
        /// A URL, or a path on the same host, with parts of `path`: "https://new.example.com/{*}". The query is
        /// kept unless it has one.
        to = Schema::Matching(r"^https?://|^/|\$\{"), required "\"https://new.example.com/{*}\"";
        /// 301, 302, 303, 307 or 308. Default 308.
        status = Schema::Numbers(&STATUSES);
    }
}

const REDIRECTS: [(&str, Redirect); 1] = [("https", Redirect::Https)];
/// The statuses of a redirect that keep its meaning (RFC 9110 §15.4).
const STATUSES: [u32; 5] = [301, 302, 303, 307, 308];

/// The keys of a route that say what it does.
pub(super) struct ActionDraft {
    pub(super) upstreams: Vec<UpstreamIndex>,
    /// `redirect = "https"`.
    pub(super) redirect: Option<Redirect>,
    pub(super) path_edit: Option<PathEdit>,
    pub(super) mirror: Option<MirrorDraft>,
    /// `None` if it has faults.
    pub(super) action: Option<RouteAction>,
}

/// Reads them. `path` is the route's, as written and as parsed.
pub(super) fn read(
    table: &mut ConfigTable<'_>,
    path: (Option<&Cursor<'_>>, Option<&PathMatcher>),
    (upstreams, limits): (&Directory<'_>, &Directory<'_>),
    matching: PathMatching,
) -> ActionDraft {
    let upstream_given = table.given("upstream");
    let upstream = table.optional(&SPLIT.upstream, |value| split::upstream(&value, upstreams));
    let upstream = split::with_key(table, upstream);
    let redirect_value = table.take(&ACTION.redirect);
    let (mut redirect, mut redirect_to, mut has_target) = (None, None, false);
    if let Some(value) = &redirect_value {
        if value.is_table() {
            redirect_to = Some(redirect_table(value, path.1));
        } else {
            (redirect, has_target) = redirect_word(value);
        }
    }
    let respond_value = table.take(&ACTION.respond);
    let respond = respond_value.as_ref().map(|value| content::respond(value, limits));
    let path_edit = path_edit(table, path, matching, upstream_given.is_some());
    let mirror =
        table.optional(&ACTION.mirror, |value| mirror::read(&value, upstreams, upstream_given.is_some()));
    let others = usize::from(upstream_given.is_some()) + usize::from(redirect_to.is_some());
    if let (Some(value), true) = (&respond_value, others > 0) {
        value.fault(
            "`respond` stands beside another answer",
            "keep one of `upstream`, `redirect = { … }` and `respond`",
        );
    } else if let (Some(value), 2) = (&redirect_value, others) {
        let help = "leave one of the two out; `redirect = \"https\"` may stand beside `upstream`";
        value.fault("`redirect = { … }` stands beside `upstream`", help);
    } else if others == 0 && respond_value.is_none() && !has_target {
        table.missing(SPLIT.upstream.name, SPLIT.upstream.example);
    }
    let named = upstream.as_ref().map(RouteAction::upstreams).unwrap_or_default();
    let action = match (upstream, redirect_to, respond) {
        (Some(forwarding), None, None) => Some(forwarding),
        (None, Some(redirect), None) => redirect.map(Box::new).map(RouteAction::Redirect),
        (None, None, Some(respond)) => respond.map(Box::new).map(RouteAction::Respond),
        _ => None,
    };
    ActionDraft { upstreams: named, redirect, path_edit, mirror, action }
}

fn path_edit(
    table: &mut ConfigTable<'_>,
    (written, path): (Option<&Cursor<'_>>, Option<&PathMatcher>),
    matching: PathMatching,
    forwards: bool,
) -> Option<PathEdit> {
    let (strip, rewrite) = (table.take(&ACTION.strip_prefix), table.take(&ACTION.rewrite));
    if let (Some(_), Some(rewrite)) = (&strip, &rewrite) {
        rewrite.fault(
            "`rewrite` stands beside `strip_prefix`",
            "leave one of the two out: `rewrite` gives the whole path",
        );
    }
    if let (false, Some(edit)) = (forwards, strip.as_ref().or(rewrite.as_ref())) {
        let message = format!("{} has no effect: the route has no `upstream`", edit.label());
        edit.fault(message, "leave it out");
    }
    if let Some(rewrite) = rewrite {
        let (text, path) = (rewrite.text()?, path?);
        templates::variables(&rewrite);
        templates::groups(&text);
        return text.parse("a path", |text| rewrite_target(text, path)).map(PathEdit::Rewrite);
    }
    let pattern = written.filter(|_| !path.is_some_and(|path| matches!(path, PathMatcher::Regex(_))));
    let prefix =
        strip?.text()?.parse("a prefix", |text| prefix(text, pattern.map(Cursor::as_str), matching))?;
    Some(PathEdit::StripPrefix(prefix))
}

/// `"https"`, and whether this is a target or a status instead, which stand in a table.
fn redirect_word(value: &ConfigValue<'_>) -> (Option<Redirect>, bool) {
    if let Some(status) = value.whole_text().filter(|text| text.len() == 3) {
        let help = format!("write `redirect = {{ to = \"https://www.example.com\", status = {status} }}`");
        return (value.mismatch("`\"https\"` or a table", help), true);
    }
    let written = value.written().unwrap_or_default();
    if !["https://", "http://", "/"].iter().any(|start| written.starts_with(start)) {
        return (value.choice(&REDIRECTS), false);
    }
    let target = ["$request_uri", "$uri", "{uri}"]
        .into_iter()
        .fold(written.to_owned(), |target, variable| target.replace(variable, "/{*}"));
    let rest = match target.contains("{*}") {
        true => "",
        false => "; where `path` ends with `/*`, `{*}` in it is the rest of the path",
    };
    let help = format!("write `redirect = {{ to = \"{}\" }}`{rest}", cut_for_help(&target));
    value.fault(format!("`redirect` cannot be {}", quoted(written)), help);
    (None, true)
}

/// `{ to = "https://new.example.com/{*}", status = 308 }`.
fn redirect_table(value: &ConfigValue<'_>, path: Option<&PathMatcher>) -> Option<RedirectTo> {
    let mut table = value.table("`redirect`")?;
    let to = table.require(&REDIRECT.to, |value| {
        let (text, path) = (value.text()?, path?);
        templates::variables(&value);
        templates::groups(&text);
        text.parse("a URL", |text| redirect_target(text, path))
    });
    let status = table.or(&REDIRECT.status, Some(StatusCode::PERMANENT_REDIRECT), |value| {
        let code = value.count(300, 399)?;
        if !STATUSES.contains(&code) {
            value.fault(format!("{code} is not the status of a redirect"), "write 301, 302, 303, 307 or 308");
            return None;
        }
        Some(u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok()))
    });
    table.finish().then_some(RedirectTo { to: to?, status: status? })
}

/// A URL, or a path on the same host.
fn redirect_target(text: &str, path: &PathMatcher) -> Result<TargetTemplate, SyntaxError> {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let authority = authority.map(|rest| &rest[..rest.find(['/', '?']).unwrap_or(rest.len())]);
    let help = "write a URL, as `https://new.example.com/{*}`, or a path on the same host, as `/new/{*}`";
    let is_url = match authority {
        Some(authority) => authority.contains('{') || endpoint::authority(authority, 443).is_ok(),
        None => text.starts_with('/') && !text.starts_with("//"),
    };
    if !is_url || !is_visible(text) {
        return Err(SyntaxError::new(format!("{} is not a URL to redirect to", quoted(text)), help));
    }
    target(text, path)
}

/// A path, with a query if it replaces the request's.
fn rewrite_target(text: &str, path: &PathMatcher) -> Result<TargetTemplate, SyntaxError> {
    let alone = text.split('?').next().unwrap_or_default();
    let help = "write the path as a backend gets it, such as `/v2/{id}`";
    if !text.starts_with('/') || !is_visible(text) {
        return Err(SyntaxError::new(format!("{} is not a path to forward", quoted(text)), help));
    }
    let target = target(text, path)?;
    // Names are letters, so a segment stays one.
    let plain = alone.replace(['{', '}', '*'], "x");
    if Path::parse(&plain, PathMatching::Strict)
        .is_ok_and(|normal| normal.form(false) == plain && !normal.has_encoded_dots())
    {
        return Ok(target);
    }
    let help = "leave out dot segments, and decode letters that need no escape";
    Err(SyntaxError::new(format!("{} is not a normalised path", quoted(text)), help))
}

fn target(text: &str, path: &PathMatcher) -> Result<TargetTemplate, SyntaxError> {
    TargetTemplate::parse(text, path).map_err(|fault| match fault {
        TargetFault::Unknown(name) if name == "*" => SyntaxError::new(
            format!("`{{*}}` stands for the rest of the path, but {} has none", quoted(&path.to_string())),
            "end `path` with `/*`, or name a group of the regular expression",
        ),
        TargetFault::Unknown(name) => SyntaxError::new(
            format!("`path` has no part {}", quoted(&format!("{{{name}}}"))),
            format!("name a part of {}", quoted(&path.to_string())),
        ),
        TargetFault::Brace => SyntaxError::new(
            format!("a brace in {} belongs to no name", quoted(text)),
            "write `{name}` for a part of the path; a brace itself is `%7B` or `%7D`",
        ),
        TargetFault::OutsidePath => SyntaxError::new(
            format!("{} has a part of the path before its own path", quoted(text)),
            "write the host itself: a client must not choose it",
        ),
    })
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\\\"<>".contains(&byte))
}

/// Parses a prefix of whole segments that some path of the route can begin with. (Others are forwarded whole.)
fn prefix(text: &str, path: Option<&str>, matching: PathMatching) -> Result<Box<str>, SyntaxError> {
    let is_whole = text.starts_with('/') && text.len() > 1 && !text.ends_with('/');
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"{}*?#%\\".contains(&byte));
    if !is_whole || !is_plain {
        let message = format!("{} cannot be stripped", quoted(text));
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
