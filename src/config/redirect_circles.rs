//! Redirects that never end: `"/docs"` to `"/docs/"`, which are one path, or two routes that redirect to each other.

use http::{Method, StatusCode};

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::report::quoted;
use super::routes::RouteDraft;
use crate::plan::Route;
use crate::plan::action::{RedirectTo, RouteAction};
use crate::route::path::PathMatching;
use crate::route::pattern::bare_host;
use crate::route::{Conditions, RouteIndex, RouteRequest};
use crate::witness::{Reach, Witness, admitted, alternatives, clients_of};

/// The number of redirects that are followed.
const MAX_HOPS: usize = 10;
/// The number of routes of circles after which no further ones are looked for.
const MAX_TOLD: usize = 200;
/// The number of URLs of a circle that are shown.
const MAX_SHOWN: usize = 4;

/// Warns of routes whose redirects never end. `reached` are the routes that requests reach.
pub(super) fn check(
    draft: &FileDraft,
    reach: &Reach<'_>,
    reached: &[RouteIndex],
    diagnostics: &Diagnostics<'_>,
) {
    let (follower, mut told) = (Follower { draft, reach }, Vec::new());
    for index in reached {
        if told.len() >= MAX_TOLD {
            break;
        }
        let Some((draft, circle)) = follower.circle(*index) else { continue };
        if !circle.routes.iter().any(|route| told.contains(route)) {
            told.extend(&circle.routes);
            follower.warn(draft, &circle, diagnostics);
        }
    }
}

/// Follows redirects as a client does.
struct Follower<'c> {
    draft: &'c FileDraft,
    reach: &'c Reach<'c>,
}

/// Redirects that never end.
struct Circle {
    /// The routes that redirect.
    routes: Vec<RouteIndex>,
    /// The URLs in order, from that of the first request on.
    urls: Vec<String>,
    /// Whether the first redirect leads to `https://…`.
    leads_to_https: bool,
}

impl Follower<'_> {
    fn route(&self, index: RouteIndex) -> Option<(&RouteDraft, &Route)> {
        let draft = self.draft.routes.get(index.0)?;
        Some((draft, draft.route.as_ref()?))
    }

    /// The redirects of a route's first witness, if those of all witnesses never end.
    fn circle(&self, index: RouteIndex) -> Option<(&RouteDraft, Circle)> {
        let (draft, route) = self.route(index)?;
        let RouteAction::Redirect(_) = route.action else { return None };
        let rules = [&route.addresses, &self.draft.server.addresses];
        let client = admitted(&rules, &[clients_of(&route.conditions)]).ok()??;
        let mut first: Option<Circle> = None;
        for alternative in alternatives(&route.conditions)? {
            let witnesses = self.reach.witnesses(index, alternative, None);
            for witness in witnesses.map(|witness| Witness { client, ..witness }) {
                if self.reach.find(&witness) == Some(index) {
                    let circle = self.follow(witness)?;
                    first.get_or_insert(circle);
                }
            }
        }
        Some((draft, first?))
    }

    fn warn(&self, draft: &RouteDraft, circle: &Circle, diagnostics: &Diagnostics<'_>) {
        let urls: Vec<_> = circle.urls.iter().take(MAX_SHOWN).map(|url| quoted(url)).collect();
        let more = if circle.urls.len() > MAX_SHOWN { " → …" } else { "" };
        let message =
            format!("route {} redirects in a circle: {}{more}", quoted(&draft.name), urls.join(" → "));
        let is_lenient = self.draft.server.path_matching == PathMatching::Lenient;
        let help = match circle.urls.as_slice() {
            [from, to, ..] if circle.leads_to_https && from == to => {
                "write `redirect = \"https\"` beside `upstream` to redirect requests without TLS alone"
            }
            [from, to, ..] if is_lenient && is_same_path(from, to) => {
                "case, a trailing slash and `;…` do not count in paths: name another path, or write \
                 `path_matching = \"strict\"` in [server]"
            }
            _ => {
                "redirect to a path that another route takes, or leave out what the target has from the conditions"
            }
        };
        diagnostics.warn(draft.places.redirect.unwrap_or(draft.span), message, help);
    }

    /// The redirects of a request, if they never end.
    fn follow(&self, mut request: Witness) -> Option<Circle> {
        let urls = vec![url_of(&request, &request.host)];
        let mut circle = Circle { routes: Vec::new(), urls, leads_to_https: false };
        let (first_host, mut seen) = (request.host.clone(), vec![key_of(&request)]);
        for _ in 0..MAX_HOPS {
            let index = self.reach.find(&request)?;
            let (_, route) = self.route(index)?;
            let RouteAction::Redirect(redirect) = &route.action else { return None };
            for rules in [&route.addresses, &self.draft.server.addresses] {
                let of_client = |seen: &RouteRequest<'_>| rules.check(seen.client).is_ok();
                request.ask(self.reach.reading(), of_client).filter(|is_admitted| *is_admitted)?;
            }
            let location = self.location(&request, &route.conditions, redirect)?;
            if circle.routes.is_empty() {
                circle.leads_to_https = location.starts_with("https://");
            }
            if !circle.routes.contains(&index) {
                circle.routes.push(index);
            }
            request = self.next(&request, &location, redirect)?;
            circle.urls.push(url_of(&request, &first_host));
            let key = key_of(&request);
            if seen.contains(&key) {
                return Some(circle);
            }
            seen.push(key);
        }
        Some(circle)
    }

    fn location(&self, request: &Witness, conditions: &Conditions, redirect: &RedirectTo) -> Option<String> {
        let Conditions { path, merge_slashes, .. } = conditions;
        request.ask(self.reach.reading(), |seen| {
            redirect.to.location(path, seen.path, *merge_slashes, seen.query)
        })
    }

    /// The client's next request. `None`: it may go elsewhere.
    fn next(&self, request: &Witness, location: &str, redirect: &RedirectTo) -> Option<Witness> {
        let mut next = request.clone();
        let target = match location.split_once("://") {
            Some((scheme, rest)) if redirect.to.has_host() => {
                let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                next.host = bare_host(authority).into_owned();
                self.is_served_here(scheme, authority).then_some(target)?
            }
            _ => location,
        };
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        next.path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        next.query = query.map(str::to_owned);
        // Browsers follow these with GET (RFC 9110 §15.4).
        let status = redirect.status;
        let becomes_get = status == StatusCode::SEE_OTHER && next.method != Method::HEAD
            || status.as_u16() <= 302 && next.method == Method::POST;
        if becomes_get {
            next.method = Method::GET;
        }
        if redirect.to.has_host() {
            // Another server may be meant by a host that no route names.
            let found = self.reach.find(&next)?;
            let (_, route) = self.route(found)?;
            (!route.conditions.hosts.is_empty()).then_some(())?;
        }
        Some(next)
    }

    /// Whether a URL's port is certainly one of the gateway's own, with no proxy in front.
    fn is_served_here(&self, scheme: &str, authority: &str) -> bool {
        let is_tls = scheme.eq_ignore_ascii_case("https");
        let digits = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        let port = digits.map_or(Some(if is_tls { 443 } else { 80 }), |digits| digits.parse().ok());
        let server = &self.draft.server;
        server.client.trusted_proxies.is_empty()
            && server.client_listeners().any(|own| own.tls == is_tls && Some(own.address.port()) == port)
    }
}

/// What two requests of one client have in common that are answered alike.
fn key_of(request: &Witness) -> (String, Method, String, Option<String>) {
    (request.host.clone(), request.method.clone(), request.path.clone(), request.query.clone())
}

/// The path and the query of a request, after its host unless that is the client's first.
fn url_of(request: &Witness, first_host: &str) -> String {
    let host = if request.host == first_host { "" } else { &request.host };
    match &request.query {
        Some(query) => format!("{host}{}?{query}", request.path),
        None => format!("{host}{}", request.path),
    }
}

/// Whether two paths are compared as one.
fn is_same_path(one: &str, other: &str) -> bool {
    one != other && one.trim_end_matches('/').eq_ignore_ascii_case(other.trim_end_matches('/'))
}
