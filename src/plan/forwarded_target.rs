//! The target of a request for its backend: base path, prefix or rewrite, and query.

use std::borrow::Cow;

use super::target::AmbiguousTarget;
use super::{PathEdit, Plan, Route, UpstreamIndex};
use crate::http1::request::RequestHead;
use crate::route::credential::without_credentials;
use crate::route::path::Path;

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
        Ok(joined(base, &target, query.filter(|_| !has_query)))
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
    /// The path as the client spelled it, without the prefix that the route strips.
    fn stripped_path<'p>(&self, path: &'p Path<'_>) -> &'p str {
        let merge_slashes = self.conditions.merge_slashes;
        match &self.path_edit {
            Some(PathEdit::StripPrefix(prefix)) => path.without_prefix(prefix, merge_slashes),
            Some(PathEdit::Rewrite(_)) | None => path.form(merge_slashes),
        }
    }
}

fn joined(base: &str, path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => [base, path, "?", query].concat(),
        None => [base, path].concat(),
    }
}
