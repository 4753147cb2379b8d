//! Settings that no request ever meets: warnings about routes, conditions, exemptions and redirects, each found with
//! [witness requests](crate::witness).
//!
//! Nothing is said without a proof, so a warning is never a guess. A file with faults is not looked at.

use ipnet::IpNet;

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::limits::LimitDraft;
use super::redirect_circles;
use super::report::{SourceSpan, listed, quoted};
use super::routes::RouteDraft;
use crate::plan::Route;
use crate::route::client::AddressRules;
use crate::route::exemptions::Exemption;
use crate::route::key::Part;
use crate::route::pattern::PathPattern;
use crate::route::{Match, RouteIndex, RouteTable};
use crate::witness::{
    Alternative, PathReading, PathRule, Reach, Reachability, admitted, alternatives, clients_of,
    refused_networks,
};

/// The maximum number of routes of a limit whose exemptions are looked at.
const MAX_USERS: usize = 64;
/// The maximum number of networks of an `allow` that are looked at one by one.
const MAX_ALLOWED: usize = 256;

/// Warns of settings that no request meets. `table` is that of all routes.
pub(super) fn check(draft: &FileDraft, table: &RouteTable, diagnostics: &Diagnostics<'_>) {
    let routes = draft.routes.iter().map(|draft| Some((draft, draft.route.as_ref()?)));
    let Some(routes) = routes.collect::<Option<Vec<_>>>() else { return };
    let conditions = routes.iter().map(|(_, route)| &route.conditions).collect();
    let reading =
        PathReading { matching: draft.server.path_matching, encoded_dots: draft.server.encoded_dots };
    let reach = Reach::new(table, conditions, reading);
    let mut checker = WitnessCheck { draft, routes, table, reach, diagnostics };
    let all = 0..checker.routes.len();
    let reached: Vec<_> = all.map(|index| checker.route(RouteIndex(index))).collect();
    let reached: Vec<_> =
        reached.iter().zip(0..).filter(|(is, _)| **is).map(|(_, at)| RouteIndex(at)).collect();
    for route in &reached {
        checker.addresses(*route);
    }
    let mut users = vec![Vec::new(); draft.limits.len()];
    for route in &reached {
        let limits = checker.routes[route.0].0.uses.iter().map(|used| used.limit_use.limit.0);
        limits.for_each(|limit| users[limit].push(*route));
    }
    // Failures of other routes may be charged to these, too.
    draft.auths.iter().filter_map(|auth| auth.failures).for_each(|(limit, _)| users[limit.0].clear());
    for (limit, users) in draft.limits.iter().zip(&users).filter(|(_, users)| !users.is_empty()) {
        checker.exemptions(limit, users);
        checker.body_keys(limit);
    }
    redirect_circles::check(draft, &checker.reach, &reached, diagnostics);
}

/// The checks of one file.
struct WitnessCheck<'c> {
    draft: &'c FileDraft,
    routes: Vec<(&'c RouteDraft, &'c Route)>,
    table: &'c RouteTable,
    reach: Reach<'c>,
    diagnostics: &'c Diagnostics<'c>,
}

impl WitnessCheck<'_> {
    /// Warns of a route that no request reaches, and of its hosts, methods and clients for which none does. Returns
    /// whether a request may reach it.
    fn route(&mut self, index: RouteIndex) -> bool {
        let (draft, route) = self.routes[index.0];
        let Some(alternatives) = alternatives(&route.conditions) else { return true };
        let mut takers = Vec::with_capacity(alternatives.len());
        for alternative in &alternatives {
            takers.push(match self.reach.reachability(index, *alternative, None) {
                Reachability::Never(takers) => Some(Lost { takers, is_excluded: false }),
                Reachability::Excluded => Some(Lost { takers: Vec::new(), is_excluded: true }),
                Reachability::Reached(_) | Reachability::Unknown => None,
            });
        }
        let lost: Option<Vec<_>> = takers.iter().cloned().collect();
        match lost.map(Lost::joined) {
            Some(lost) if lost.takers.is_empty() && !lost.is_excluded => self.matches_no_path(index),
            Some(lost) => {
                let help = match lost.takers.is_empty() {
                    true => "leave a condition of `not` out, or this route".to_owned(),
                    false => self.precedence(index, &alternatives),
                };
                let by = self.lost_to(&lost, "all its requests");
                let message = format!("route {} can never match: {by}", quoted(&draft.name));
                self.diagnostics.warn(draft.span, message, help);
            }
            None => {
                self.conditions(index, &alternatives, &takers);
                return true;
            }
        }
        false
    }

    /// Warns of single hosts, methods and networks. `takers` are those of each alternative; `None`: requests may reach
    /// it.
    fn conditions(&self, index: RouteIndex, all: &[Alternative<'_>], takers: &[Option<Lost>]) {
        let places = &self.routes[index.0].0.places;
        self.taken_items(index, places.hosts, (all, takers), |one| {
            one.host.map(|host| format!("for the host {}", quoted(&host.to_string())))
        });
        self.taken_items(index, places.methods, (all, takers), |one| {
            one.method.map(|method| format!("with the method {}", quoted(method.as_str())))
        });
        self.taken_items(index, places.clients, (all, takers), |one| {
            one.network.map(|network| format!("of clients in {}", quoted(&network.to_string())))
        });
    }

    fn taken_items(
        &self,
        index: RouteIndex,
        place: Option<SourceSpan>,
        (all, takers): (&[Alternative<'_>], &[Option<Lost>]),
        words: impl Fn(&Alternative<'_>) -> Option<String>,
    ) {
        let draft = self.routes[index.0].0;
        let mut items: Vec<_> = all.iter().filter_map(&words).collect();
        items.dedup();
        let mut seen: Vec<String> = Vec::new();
        for item in items {
            if seen.contains(&item) {
                continue;
            }
            let of_item = all.iter().zip(takers).filter(|(one, _)| words(one).as_ref() == Some(&item));
            let lost: Option<Vec<_>> = of_item.map(|(_, lost)| lost.clone()).collect();
            if let Some(lost) = lost {
                let by = self.lost_to(&Lost::joined(lost), "all of them");
                let message = format!("route {} gets no request {item}: {by}", quoted(&draft.name));
                let help = "leave this one out here, or give one of the routes other conditions";
                self.diagnostics.warn(place.unwrap_or(draft.span), message, help);
            }
            seen.push(item);
        }
    }

    /// A route whose path is that of no request.
    fn matches_no_path(&mut self, index: RouteIndex) {
        let (draft, route) = self.routes[index.0];
        // One fault is told once.
        let mut places = draft.places.path.into_iter().chain([draft.span]);
        if places.any(|place| self.diagnostics.has_finding_at(place)) {
            return;
        }
        let help = match self.reach.broken_rule(index) {
            Some(PathRule::BeginsWithSlash) => "a path begins with `/`: write it after `^`",
            Some(PathRule::EndsBeforeQuery) => {
                "the query is not part of the path: `query = { NAME = \"VALUE\" }` is a condition on it"
            }
            Some(PathRule::MergesSlashes) => {
                "`//` counts as `/` before paths are compared: write one `/`, or add `merge_slashes = false`"
            }
            Some(PathRule::IsEncoded) => {
                "blanks, backslashes and characters beyond ASCII are percent-encoded in paths: a blank is `%20`"
            }
            Some(PathRule::DecodesEscapes) => {
                "escapes of letters, digits, `-`, `.`, `_` and `~` are decoded before paths are compared, and others have \
                 capitals: write `a` for `%61`, and `%2F` for `%2f`"
            }
            Some(PathRule::ResolvesDots) => {
                "dot segments are resolved before paths are compared: write the path without `.` and `..`"
            }
            Some(PathRule::HasNoEncodedDots) => {
                "requests with an encoded dot segment are answered with 400: `encoded_dots = \"pass\"` in [server] lets \
                 them through"
            }
            None => "write it as it is matched: a path begins with `/`, has no query, and is percent-encoded",
        };
        let path = quoted(&route.conditions.path.to_string());
        let message =
            format!("route {} can never match: no request has a path like {path}", quoted(&draft.name));
        self.diagnostics.warn(draft.places.path.unwrap_or(draft.span), message, help);
    }

    fn lost_to(&self, lost: &Lost, what: &str) -> String {
        let names: Vec<&str> = lost.takers.iter().map(|taker| &*self.routes[taker.0].0.name).collect();
        let by = match names.as_slice() {
            [] => return format!("its `not` excludes {what}"),
            [one] => format!("route {} takes {what}", quoted(one)),
            several => format!("routes {} together take {what}", listed(several.iter().copied())),
        };
        if lost.is_excluded { format!("{by} that its `not` leaves") } else { by }
    }

    /// Why others come first.
    fn precedence(&self, index: RouteIndex, alternatives: &[Alternative<'_>]) -> String {
        let first = alternatives.first().into_iter();
        let mut witnesses = first.flat_map(|first| self.reach.witnesses(index, *first, None));
        let criterion = witnesses.find_map(|witness| {
            let told = witness.ask(self.reach.reading(), |request| self.table.explain(request))?;
            match told.get(index.0) {
                Some(Match::LessSpecific(taker, criterion)) => Some((*taker, *criterion)),
                _ => None,
            }
        });
        let remedy = "give one of them other conditions, or leave this route out";
        match criterion {
            Some((taker, criterion)) => {
                format!("{} wins since {criterion}: {remedy}", quoted(&self.routes[taker.0].0.name))
            }
            None => remedy.to_owned(),
        }
    }

    /// Warns where `clients`, `allow` and `deny` admit no client, or none of a network of `allow`.
    fn addresses(&self, index: RouteIndex) {
        let (draft, route) = self.routes[index.0];
        let (own, server) = (&route.addresses, &self.draft.server.addresses);
        let clients = clients_of(&route.conditions);
        if own.allow.is_none() && clients.is_empty() {
            return;
        }
        // One fault is told once.
        if draft.places.deny.is_some_and(|place| self.diagnostics.has_finding_at(place)) {
            return;
        }
        let place = draft.places.allow.or(draft.places.clients).unwrap_or(draft.span);
        let remedy =
            "`deny` goes before `allow`: take the networks that are meant out of the one that refuses them";
        if admitted(&[own, server], &[clients]) == Ok(None) {
            let given = [
                (!clients.is_empty()).then_some("`clients`"),
                own.allow.as_ref().map(|_| "`allow`"),
                own.deny.as_ref().map(|_| "`deny`"),
                (!server.is_empty()).then_some("`[server]`"),
            ];
            let given: Vec<_> = given.into_iter().flatten().collect();
            let message = format!(
                "route {} refuses all its requests: {} together admit no client",
                quoted(&draft.name),
                given.join(" and ")
            );
            self.diagnostics.warn(place, message, remedy);
            return;
        }
        if own.allow.as_ref().is_none_or(|allow| allow.len() > MAX_ALLOWED) {
            return;
        }
        for network in refused_networks(own, &[server], clients) {
            let denies = AddressRules { allow: None, deny: own.deny.clone() };
            let refuses = |rules: &AddressRules| admitted(&[rules], &[&[network]]) == Ok(None);
            let why = match () {
                () if refuses(&denies) => "`deny` of the route refuses them all",
                () if refuses(server) => "`[server]` refuses them all",
                () if admitted(&[], &[&[network], clients]) == Ok(None) => "`clients` has none of them",
                () => "other rules refuse them all",
            };
            let message = format!(
                "`allow` of route {} names {}, but admits no client of it: {why}",
                quoted(&draft.name),
                quoted(&shown(network))
            );
            self.diagnostics.warn(place, message, remedy);
        }
    }

    /// Warns of exemptions that no request charged to the limit meets. `users` are its routes.
    fn exemptions(&mut self, limit: &LimitDraft, users: &[RouteIndex]) {
        let Some(sound) = limit.limit.as_ref().filter(|_| users.len() <= MAX_USERS) else { return };
        for (exemption, place) in sound.exempt.iter().zip(&limit.places.exempt) {
            // One fault is told once.
            if matches!(exemption, Exemption::Path(_)) && self.diagnostics.has_finding_at(*place) {
                continue;
            }
            let why = match exemption {
                Exemption::Ip(network) if self.exempts_nobody(*network, users) => {
                    "no route that uses it admits a client of this network".to_owned()
                }
                Exemption::Path(pattern) => match self.exempts_no_path(pattern, users) {
                    Some(takers) if takers.is_empty() => "no route that uses it has such a path".to_owned(),
                    Some(takers) => {
                        let lost = Lost { takers, is_excluded: false };
                        let verb = if lost.takers.len() == 1 { "does" } else { "do" };
                        format!("{}, and {verb} not use it", self.lost_to(&lost, "all of them"))
                    }
                    None => continue,
                },
                _ => continue,
            };
            let message = format!(
                "limit {} exempts `{exemption}`, but no such request is charged to it: {why}",
                quoted(&limit.name)
            );
            let help = "leave the exemption out, or name the limit in `limits` of the route that is meant";
            self.diagnostics.warn(*place, message, help);
        }
    }

    /// Whether no route of the limit admits a client of the network. Networks that are denied are told of elsewhere.
    fn exempts_nobody(&self, network: IpNet, users: &[RouteIndex]) -> bool {
        let server = &self.draft.server.addresses;
        let denies = |rules: &AddressRules| rules.deny.as_ref().is_some_and(|deny| deny.overlap(network));
        let is_mapped = matches!(network, IpNet::V6(v6) if v6.network().to_ipv4_mapped().is_some());
        let mut rules = users.iter().map(|user| &self.routes[user.0].1.addresses);
        if is_mapped || denies(server) || rules.any(denies) {
            return false;
        }
        users.iter().all(|user| {
            let route = self.routes[user.0].1;
            admitted(&[&route.addresses, server], &[clients_of(&route.conditions), &[network]]) == Ok(None)
        })
    }

    /// The routes that take all requests of the pattern from those of the limit; `None`: not all of them.
    fn exempts_no_path(&mut self, pattern: &PathPattern, users: &[RouteIndex]) -> Option<Vec<RouteIndex>> {
        let mut takers = Vec::new();
        for user in users {
            for alternative in alternatives(&self.routes[user.0].1.conditions)? {
                match self.reach.reachability(*user, alternative, Some(pattern)) {
                    Reachability::Never(found) => takers.extend(found),
                    Reachability::Excluded => {}
                    Reachability::Reached(_) | Reachability::Unknown => return None,
                }
            }
        }
        let takers = joined(takers);
        // A taker with the limit has been asked itself.
        Some(takers.into_iter().filter(|taker| !users.contains(taker)).collect())
    }

    /// Warns of a key that needs a body of two types at once.
    fn body_keys(&self, limit: &LimitDraft) {
        let Some(sound) = &limit.limit else { return };
        let part = |is: fn(&Part) -> bool| sound.key.parts.iter().find(|part| is(part));
        let json = part(|part| matches!(part, Part::JsonMember(_)));
        let form = part(|part| matches!(part, Part::FormField(_)));
        if let (Some(json), Some(form)) = (json, form) {
            let message = format!(
                "limit {} counts by `{json}` and `{form}`, but no body is JSON and a form at once",
                quoted(&limit.name)
            );
            let help =
                "write two limits, each on a route for one type of bodies, or leave one of the two out";
            self.diagnostics.warn(limit.span, message, help);
        }
    }
}

/// The requests that a route does not get.
#[derive(Clone, Debug)]
struct Lost {
    takers: Vec<RouteIndex>,
    /// Whether its `not` excludes some.
    is_excluded: bool,
}

impl Lost {
    fn joined(all: Vec<Self>) -> Self {
        let is_excluded = all.iter().any(|lost| lost.is_excluded);
        Self { takers: joined(all.into_iter().flat_map(|lost| lost.takers)), is_excluded }
    }
}

/// Each route once, in file order.
fn joined(routes: impl IntoIterator<Item = RouteIndex>) -> Vec<RouteIndex> {
    let mut routes: Vec<_> = routes.into_iter().collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

fn shown(network: IpNet) -> String {
    let is_address = network.prefix_len() == network.max_prefix_len();
    if is_address { network.addr().to_string() } else { network.to_string() }
}
