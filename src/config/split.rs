//! `upstream` of a route: the name of one, or a table of weights; and `upstream_key`.

use std::sync::Arc;

use super::keys::{SOME, Schema, keys};
use super::name::Directory;
use super::report::quoted;
use super::table::ConfigTable;
use super::value::{ConfigValue, Entry};
use super::{limits, remedies};
use crate::plan::action::RouteAction;
use crate::plan::split::UpstreamSplit;
use crate::plan::split_cookie::{SPLIT_COOKIE, SplitCookie};
use crate::plan::sticky::StickyKey;
use crate::plan::{Route, Upstream, UpstreamIndex};
use crate::route::key::{Key, Missing, Part, Repeated};

keys! {
    /// The upstream of a route, or several.
    pub(super) SPLIT: SplitKeys = "upstream of a route" {
        /// The name of the upstream that answers, or the weights of 2 to 16 of them; or give `redirect` or
        /// `respond`.
        upstream = Schema::Either(&[Schema::Name, Schema::Map((2, 16), &Schema::Text, &Schema::Whole(0, MAX_WEIGHT as u64))]), example "\"NAME\"";
        /// With several upstreams: requests with the same key go to the same one. Default: each request is drawn. Where
        /// the key names a cookie that a request lacks, the response sets a cookie of the gateway's own, which keeps the
        /// client at the upstream that was drawn.
        upstream_key = Schema::Either(&[Schema::Name, Schema::List(SOME, &Schema::Name)]);
    }
}

/// Upstreams of one route.
const MAX_UPSTREAMS: usize = 16;
const MAX_WEIGHT: u32 = 1_000_000;

/// `"blue"`, or `{ blue = 95, green = 5 }`.
pub(super) fn upstream(value: &ConfigValue<'_>, upstreams: &Directory<'_>) -> Option<RouteAction> {
    if !value.is_table() {
        let text = value.text()?;
        if let (false, Some(help)) = (upstreams.has(text.as_str()), remedies::upstream_url(text.written())) {
            value.fault(format!("there is no upstream {}", text.quoted()), help);
            return None;
        }
        return upstreams.find(&text).map(UpstreamIndex).map(RouteAction::Forward);
    }
    let entries = value.entries()?;
    if entries.len() < 2 || entries.len() > MAX_UPSTREAMS {
        let message = format!("a route is split between {} upstreams", entries.len());
        value.fault(message, format!("name 2 to {MAX_UPSTREAMS}, or one without a table"));
        return None;
    }
    let share = |entry: &Entry<'_>| {
        let weight = entry.value.count(0, MAX_WEIGHT);
        Some((UpstreamIndex(upstreams.find_key(entry)?), weight?))
    };
    let shares: Vec<_> = entries.iter().map(share).collect();
    let shares: Vec<_> = shares.into_iter().collect::<Option<_>>()?;
    if shares.iter().all(|(_, weight)| *weight == 0) {
        value.fault("no upstream gets any requests", "write a weight above 0 for one of them");
        return None;
    }
    Some(RouteAction::Split(Box::new(UpstreamSplit { shares, key: None, cookie: None })))
}

/// The same with `upstream_key`, which belongs to a split alone.
pub(super) fn with_key(table: &mut ConfigTable<'_>, action: Option<RouteAction>) -> Option<RouteAction> {
    let value = table.take(&SPLIT.upstream_key);
    match (action, value) {
        (Some(RouteAction::Split(mut split)), Some(value)) => {
            split.key = Some(key(parts(&value, "an `upstream_key`")?));
            Some(RouteAction::Split(split))
        }
        (Some(action), Some(value)) => {
            let help = "leave it out, or write `upstream = { blue = 95, green = 5 }`";
            value.fault("`upstream_key` has no effect without several upstreams", help);
            Some(action)
        }
        (action, _) => action,
    }
}

/// The key of these parts. A request without a cookie of the key is drawn; where another part is absent, the client's
/// address stands in.
fn key(parts: Vec<Part>) -> Key {
    let has_cookie = parts.iter().any(|part| matches!(part, Part::Cookie(_)));
    let missing = if has_cookie { Missing::Skip } else { Missing::Ip };
    Key { repeated: Some(Repeated::Join), missing, ..Key::new(parts) }
}

/// Gives the splits whose keys have a cookie the one that keeps clients at what was drawn for them. `key`: that of the
/// cookie's values.
pub(super) fn add_cookies(routes: &mut [Route], upstreams: &[Arc<Upstream>], key: Option<StickyKey>) {
    let splits = routes.iter_mut().filter_map(|route| match &mut route.action {
        RouteAction::Split(split) => Some(split),
        _ => None,
    });
    let mut shared = None;
    for split in splits {
        let is_of_cookie = |key: &Key| key.parts.iter().any(|part| matches!(part, Part::Cookie(_)));
        if split.key.as_ref().is_some_and(is_of_cookie) {
            let names = upstreams.iter().map(|upstream| &*upstream.name);
            let cookie = || key.map(|key| SplitCookie::new(&key, names));
            split.cookie = shared.get_or_insert_with(cookie).clone();
        }
    }
}

/// The parts of a key that chooses an upstream. `what` names the key in messages.
pub(super) fn parts(value: &ConfigValue<'_>, what: &str) -> Option<Vec<Part>> {
    let parts = limits::parts_before_upstream(value)?;
    if let Some(part) = parts.iter().find(|part| part.is_of_body()) {
        let message = format!("`{part}` cannot be {what}: the upstream is chosen before the body is read");
        value.fault(message, "name a header, a cookie or `ip`");
        return None;
    }
    if parts.iter().any(|part| matches!(part, Part::Cookie(name) if **name == *SPLIT_COOKIE)) {
        let message = format!("{} is the name of the cookie of splits", quoted(SPLIT_COOKIE));
        value.fault(message, "name a cookie of the application, such as `cookie:session`");
        return None;
    }
    Some(parts)
}
