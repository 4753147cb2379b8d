//! Targets with parts of the request's path: `rewrite = "/v2/{id}"`, `redirect = { to = "https://example.com/{*}" }`;
//! and the target of a request for its backend: base path, prefix or rewrite, and query.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{PathEdit, Plan, Route, UpstreamIndex};
use crate::http1::request::RequestHead;
use crate::route::credential::without_credentials;
use crate::route::path::{Path, PathMatching};
use crate::route::pattern::PathMatcher;

/// A target with parts of the request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTemplate {
    pieces: Vec<Piece>,
    /// It has a query of its own, so that the request's is dropped.
    has_query: bool,
    /// The [index](PathMatcher::capture) of the rest behind a prefix, `{*}`.
    rest: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The part of the path with this [index](PathMatcher::capture), as the client spelled it.
    Path(usize),
    /// The same in the query.
    Query(usize),
}

/// The fault of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetFault {
    /// The path has no part of this name.
    Unknown(String),
    /// A brace that belongs to no name.
    Brace,
    /// A part of the path stands before the path of the target.
    OutsidePath,
}

/// A rewritten path that a backend may read in another way than the gateway, since its parts form a dot segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousTarget;

/// Where the path begins in an absolute URL or a path.
fn path_start(text: &str) -> usize {
    let after_scheme = text.find("://").map_or(0, |at| at + 3);
    text[after_scheme..].find(['/', '?']).map_or(text.len(), |at| after_scheme + at)
}

impl TargetTemplate {
    /// Parses a target. Names in braces are those of `path`; `{*}` is the rest after a prefix.
    ///
    /// # Errors
    ///
    /// [`TargetFault`]
    pub fn parse(text: &str, path: &PathMatcher) -> Result<Self, TargetFault> {
        let (start, query) = (path_start(text), text.find('?'));
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(open) = text[at..].find(['{', '}']).map(|found| at + found) {
            let name = text[open..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, _) = name.filter(|(name, _)| !name.contains('{')).ok_or(TargetFault::Brace)?;
            let index = path.capture(name).ok_or_else(|| TargetFault::Unknown(name.to_owned()))?;
            if open < start {
                return Err(TargetFault::OutsidePath);
            }
            if open > at {
                pieces.push(Piece::Text(text[at..open].into()));
            }
            let in_query = query.is_some_and(|query| query < open);
            pieces.push(if in_query { Piece::Query(index) } else { Piece::Path(index) });
            at = open + name.len() + 2;
        }
        if at < text.len() {
            pieces.push(Piece::Text(text[at..].into()));
        }
        Ok(Self { pieces, has_query: query.is_some(), rest: path.capture("*") })
    }

    /// Whether it names a host: it is a URL and no path.
    pub fn has_host(&self) -> bool {
        !matches!(self.pieces.first(), Some(Piece::Text(text)) if text.starts_with('/'))
    }

    /// The target for a request with this path and query.
    fn expand(&self, matcher: &PathMatcher, path: &Path<'_>, merge_slashes: bool) -> String {
        let mut parts = SmallVec::<[String; 4]>::new();
        if self.pieces.iter().any(|piece| !matches!(piece, Piece::Text(_))) {
            matcher.captures(path, merge_slashes, |index, text| {
                parts.resize(parts.len().max(index + 1), String::new());
                text.clone_into(&mut parts[index]);
            });
        }
        let part = |index: usize| parts.get(index).map_or("", String::as_str);
        let mut target = String::new();
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => target.push_str(text),
                Piece::Path(_) if self.lacks_rest(at, part) && !has_final_slash(path, merge_slashes) => {
                    // `/a/{*}` of the prefix alone is `/a`, but a path is never empty.
                    if target.len() > path_start(&target) + 1 && target.ends_with('/') {
                        target.pop();
                    }
                }
                Piece::Path(index) => target.push_str(part(*index)),
                Piece::Query(index) => push_query_value(part(*index), &mut target),
            }
        }
        target
    }

    /// Whether the piece at this index is the rest, at the end of the path of the target, and empty.
    fn lacks_rest<'p>(&self, at: usize, part: impl Fn(usize) -> &'p str) -> bool {
        let is_rest = |piece: &Piece| matches!(piece, Piece::Path(index) if Some(*index) == self.rest && part(*index).is_empty());
        let is_last = match self.pieces.get(at + 1) {
            None => true,
            Some(Piece::Text(text)) => text.starts_with('?'),
            Some(_) => false,
        };
        is_last && self.pieces.get(at).is_some_and(is_rest)
    }

    /// Whether the path of the target is nothing but the rest, `/{*}`.
    fn is_rest_alone(&self) -> bool {
        match self.pieces.as_slice() {
            [Piece::Text(slash), Piece::Path(index), ..] => &**slash == "/" && Some(*index) == self.rest,
            _ => false,
        }
    }

    /// The path and query for the backend, and whether the query is the target's own.
    ///
    /// # Errors
    ///
    /// The path is not normal, or has an encoded dot segment that the request's path has not: parts that are harmless
    /// apart can form `..` together.
    pub fn rewrite(
        &self,
        matcher: &PathMatcher,
        path: &Path<'_>,
        merge_slashes: bool,
    ) -> Result<(String, bool), AmbiguousTarget> {
        let target = self.expand(matcher, path, merge_slashes);
        let alone = target.split('?').next().unwrap_or_default();
        let normal = Path::parse(alone, PathMatching::Strict).map_err(|_| AmbiguousTarget)?;
        if normal.form(false) != alone || normal.has_encoded_dots() && !path.has_encoded_dots() {
            return Err(AmbiguousTarget);
        }
        Ok((target, self.has_query))
    }

    /// The URL to redirect to, with the request's query unless the target has one. A path never begins with `//`, which
    /// would name another host.
    pub fn location(
        &self,
        matcher: &PathMatcher,
        path: &Path<'_>,
        merge_slashes: bool,
        query: Option<&str>,
    ) -> String {
        let mut location = self.expand(matcher, path, merge_slashes);
        if location.starts_with("//") {
            let rest = location.trim_start_matches('/').len();
            location.drain(..location.len() - rest - 1);
        }
        if let (Some(query), false) = (query, self.has_query) {
            location.extend(["?", query]);
        }
        location
    }
}

fn has_final_slash(path: &Path<'_>, merge_slashes: bool) -> bool {
    path.form(merge_slashes).ends_with('/')
}

/// A part of a path as the value of a parameter: it cannot begin another one.
fn push_query_value(text: &str, query: &mut String) {
    for character in text.chars() {
        match character {
            '&' => query.push_str("%26"),
            '=' => query.push_str("%3D"),
            '+' => query.push_str("%2B"),
            ';' => query.push_str("%3B"),
            '?' => query.push_str("%3F"),
            other => query.push(other),
        }
    }
}

impl Plan {
    /// The path and query for the backend, in origin-form: as the client spelled the path, after the route's edits.
    ///
    /// # Errors
    ///
    /// Parts of the path form a dot segment together once they are rewritten.
    pub(super) fn forwarded_target<'r>(
        &self,
        (route, upstream): (&Route, UpstreamIndex),
        head: &RequestHead<'r>,
        path: &Path<'_>,
    ) -> Result<Cow<'r, str>, AmbiguousTarget> {
        let query = self.forwarded_query(route, head.target.query);
        let base = self.upstream(upstream).base_path.as_deref().unwrap_or_default();
        if let Some(PathEdit::Rewrite(_)) = route.path_edit {
            return self.target(route, upstream, path, query.as_deref()).map(Cow::Owned);
        }
        let path = route.stripped_path(path);
        // A query that held nothing but credentials is gone, which is a change, too.
        let has_whole_query = match &query {
            Some(query) => matches!(query, Cow::Borrowed(_)),
            None => head.target.query.is_none(),
        };
        let is_same =
            base.is_empty() && has_whole_query && head.target.authority.is_none() && head.target.path == path;
        Ok(if is_same { head.target.text.into() } else { joined(base, path, query.as_deref()).into() })
    }

    /// The same for any path and query.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn target(
        &self,
        route: &Route,
        upstream: UpstreamIndex,
        path: &Path<'_>,
        query: Option<&str>,
    ) -> Result<String, AmbiguousTarget> {
        let base = self.upstream(upstream).base_path.as_deref().unwrap_or_default();
        let Some(PathEdit::Rewrite(template)) = &route.path_edit else {
            return Ok(joined(base, route.stripped_path(path), query));
        };
        let conditions = &route.conditions;
        let (target, has_query) = template.rewrite(&conditions.path, path, conditions.merge_slashes)?;
        let target = match target.strip_prefix('/') {
            // The base path alone.
            Some(rest)
                if !base.is_empty()
                    && (rest.is_empty() || rest.starts_with('?'))
                    && template.is_rest_alone()
                    && !has_final_slash(path, conditions.merge_slashes) =>
            {
                rest
            }
            _ => &target,
        };
        Ok(joined(base, target, query.filter(|_| !has_query)))
    }

    /// The query without the credentials that the route does not forward.
    pub(super) fn forwarded_query<'r>(&self, route: &Route, query: Option<&'r str>) -> Option<Cow<'r, str>> {
        let query = query?;
        if let Some(auth) = &route.auth
            && !auth.forwards_credentials
            && let Some(rest) =
                without_credentials(query, auth.auths.iter().map(|auth| &self.auth(*auth).source))
        {
            return (!rest.is_empty()).then(|| rest.into());
        }
        Some(query.into())
    }
}

impl Route {
    /// The path as the client spelled it, without the prefix that the route strips; empty if that is all of it.
    fn stripped_path<'p>(&self, path: &'p Path<'_>) -> &'p str {
        let merge_slashes = self.conditions.merge_slashes;
        match &self.path_edit {
            Some(PathEdit::StripPrefix(prefix)) => path.without_prefix(prefix, merge_slashes),
            Some(PathEdit::Rewrite(_)) | None => path.form(merge_slashes),
        }
    }
}

/// A path is never empty: without a base path the root stands for one that is.
fn joined(base: &str, path: &str, query: Option<&str>) -> String {
    let path = if base.is_empty() && path.is_empty() { "/" } else { path };
    match query {
        Some(query) => [base, path, "?", query].concat(),
        None => [base, path].concat(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Paths that the parts are taken from, and whether duplicate slashes are merged.
    const MATCHERS: [(&str, bool); 7] = [
        ("~^/(.)x(.)(.*)$", true),
        ("~^(.*)/([^/]*)$", false),
        ("~(.?)(.?)(.?)$", true),
        ("/{1}/{2}/{3}", true),
        ("/{1}/{2}/{3}", false),
        ("/{1}/*", true),
        ("/{1}/*", false),
    ];

    fn target() -> impl Strategy<Value = String> {
        let piece = ["{1}", "{2}", "{3}", "{*}", "/", "a", ".", "?", "&b=", "%2F", "=", ";"];
        let piece = prop::sample::select(piece.to_vec());
        let start = prop::sample::select(vec!["/", "/v2/", "https://a.test/", "http://a.test"]);
        (start, prop::collection::vec(piece, 0..6))
            .prop_map(|(start, pieces)| start.to_owned() + &pieces.concat())
    }

    fn path() -> impl Strategy<Value = String> {
        "(/(\\.x\\.|x|\\.|a&b=c|\\+;=|%2[fF]|%2e|@|\\{1\\}|)){1,6}".prop_filter("a fault", |path| {
            [PathMatching::Lenient, PathMatching::Strict].iter().all(|how| Path::parse(path, *how).is_ok())
        })
    }

    fn query_of(text: &str) -> Option<&str> {
        text.split_once('?').map(|(_, query)| query)
    }

    /// Of bytes that separate parameters.
    fn separators(query: Option<&str>) -> usize {
        query.unwrap_or_default().bytes().filter(|byte| b"&;=+?".contains(byte)).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// A rewritten path is absolute and normal, and a part adds no parameter; a location stays on its host.
        #[test]
        fn no_part_leaves_its_place(text in target(), path in path(), query in prop::option::of("[a-c=&?]{0,4}")) {
            for (pattern, merge_slashes) in MATCHERS {
                for matching in [PathMatching::Lenient, PathMatching::Strict] {
                    let matcher = PathMatcher::parse(pattern, matching).unwrap();
                    let path = Path::parse(&path, matching).unwrap();
                    let Ok(template) = TargetTemplate::parse(&text, &matcher) else { continue };
                    let location = template.location(&matcher, &path, merge_slashes, query.as_deref());
                    prop_assert!(!location.starts_with("//") && !location.starts_with("/\\"), "{}", location);
                    let has_query = text.contains('?');
                    let expected = if has_query { query_of(&text) } else { query.as_deref() };
                    prop_assert_eq!(separators(query_of(&location)), separators(expected), "{}", location);
                    let host = text.split_inclusive('/').take(3).collect::<String>();
                    if template.has_host() {
                        let host = host.split(['?', '{']).next().unwrap_or_default().trim_end_matches('/');
                        prop_assert!(location.starts_with(host), "{} of {}", location, text);
                        continue;
                    }
                    let Ok((target, own_query)) = template.rewrite(&matcher, &path, merge_slashes) else { continue };
                    prop_assert_eq!(own_query, has_query);
                    let alone = target.split('?').next().unwrap_or_default();
                    let normal = Path::parse(alone, PathMatching::Strict).unwrap();
                    prop_assert!(target.starts_with('/') && normal.form(false) == alone, "{}", target);
                    prop_assert!(!normal.has_encoded_dots() || path.has_encoded_dots(), "{}", target);
                    prop_assert_eq!(separators(query_of(&target)), separators(query_of(&text)), "{}", target);
                }
            }
        }
    }

    #[test]
    fn a_part_before_the_path_is_a_fault() {
        let matcher = PathMatcher::parse("/{host}/*", PathMatching::Lenient).unwrap();
        for text in ["https://{host}/", "https://{host}", "https://a.{host}.test/{*}", "{host}://a.test/"] {
            assert_eq!(TargetTemplate::parse(text, &matcher), Err(TargetFault::OutsidePath), "{text}");
        }
        for text in ["/{host", "/host}", "/{{host}}", "/{}"] {
            assert!(TargetTemplate::parse(text, &matcher).is_err(), "{text}");
        }
    }
}
