//! Checks of consumers, keys, tiers and networks across sections.

use foldhash::{HashMap, HashMapExt as _};

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::limits::LimitDraft;
use super::report::{listed, quoted};
use super::routes::RouteDraft;
use crate::plan::Limit;
use crate::plan::auth::Auth;
use crate::route::exemptions::Exemption;
use crate::route::key::Part;

/// The maximum number of unknown tiers that are named. More are no tiers, but values of another column, perhaps keys.
const MAX_TIERS_NAMED: usize = 20;

/// Checks that failures are charged by address, that keys and tiers can occur, and that no network is both denied and
/// exempt.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    failures_count_addresses(draft, diagnostics);
    unused_auths(draft, diagnostics);
    for (at, limit) in draft.limits.iter().enumerate() {
        if let Some(sound) = &limit.limit {
            let users = || draft.routes.iter().filter(move |route| uses(route, at));
            consumer_is_never_known(limit, sound, users(), diagnostics);
            unknown_columns(limit, sound, users(), draft, diagnostics);
            claims_are_never_known(limit, sound, users(), draft, diagnostics);
            unknown_tiers(limit, sound, users(), draft, diagnostics);
            shared_tiers(limit, sound, users(), draft, diagnostics);
        }
    }
    for route in &draft.routes {
        denied_and_exempt(route, draft, diagnostics);
    }
}

fn uses(route: &RouteDraft, limit: usize) -> bool {
    route.uses.iter().any(|used| used.limit_use.limit.0 == limit)
}

/// A client that sends wrong keys has no other identity than its address.
fn failures_count_addresses(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    for auth in &draft.auths {
        let Some((limit, place)) = auth.failures else { continue };
        let limit = &draft.limits[limit.0];
        if limit.limit.as_ref().is_some_and(|limit| !matches!(&*limit.key.parts, [part] if part.is_address()))
        {
            let message = format!("limit {} of `failures` does not count by `ip` alone", quoted(&limit.name));
            diagnostics.fault(place, message, "name a limit with `key = \"ip\"`");
        }
        let holds_places =
            |limit: &Limit| limit.policies.iter().any(|policy| policy.algorithm.as_concurrency().is_some());
        if limit.limit.as_ref().is_some_and(holds_places) {
            let message = format!(
                "limit {} of `failures` counts requests in flight, and a failure is over at once",
                quoted(&limit.name)
            );
            diagnostics.fault(place, message, "name a limit with a rate, such as `token-bucket`");
        }
        let delays =
            |limit: &Limit| limit.policies.iter().any(|policy| policy.algorithm.name() == "leaky-bucket");
        if limit.limit.as_ref().is_some_and(delays) {
            let message =
                format!("limit {} of `failures` is a leaky bucket, which delays", quoted(&limit.name));
            diagnostics.fault(place, message, "name a limit with another algorithm, such as `token-bucket`");
        }
    }
}

fn unused_auths(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    // A route with errors, or a missing one, may use the names that seem unused.
    if diagnostics.is_incomplete()
        || draft.routes.is_empty()
        || draft.routes.iter().any(|route| route.route.is_none())
    {
        return;
    }
    for (at, auth) in draft.auths.iter().enumerate() {
        let names_it = |route: &RouteDraft| {
            let auth = route.route.as_ref().and_then(|route| route.auth.as_ref());
            auth.is_some_and(|auth| auth.auths.iter().any(|auth| auth.0 == at))
        };
        if !draft.routes.iter().any(names_it) {
            let message = format!("no route uses the auth {}", quoted(&auth.name));
            diagnostics.warn(auth.span, message, "name it as `auth` of a route, or leave it out");
        }
    }
}

/// A limit by consumer on a route without `auth`: the consumer is missing from every request.
fn consumer_is_never_known<'d>(
    limit: &LimitDraft,
    sound: &Limit,
    mut users: impl Iterator<Item = &'d RouteDraft>,
    diagnostics: &Diagnostics<'_>,
) {
    let exempts = |exemption: &Exemption| matches!(exemption, Exemption::Consumer(_));
    let what = match () {
        () if sound.key.parts.iter().any(Part::is_of_consumer) => "counts by consumer",
        () if sound.exempt.iter().any(exempts) => "exempts a consumer",
        () => return,
    };
    let has_none = |route: &&RouteDraft| route.route.as_ref().is_some_and(|route| route.auth.is_none());
    if let Some(route) = users.find(has_none) {
        let message = format!(
            "limit {} {what}, but route {} has no `auth`, so none is ever known there",
            quoted(&limit.name),
            quoted(&route.name)
        );
        diagnostics.warn(
            limit.span,
            message,
            "add `auth = \"NAME\"` to the route, or name another limit there",
        );
    }
}

/// A column that no file on the limit's routes has.
fn unknown_columns<'d>(
    limit: &LimitDraft,
    sound: &Limit,
    users: impl Iterator<Item = &'d RouteDraft> + Clone,
    draft: &'d FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    for part in &sound.key.parts {
        let Part::ConsumerColumn(column) = part else { continue };
        let is_sound = || {
            let auths = draft.auths.iter().all(|auth| auth.auth.is_some());
            auths && users.clone().all(|route| route.route.is_some())
        };
        if diagnostics.unknown() > 0 && !is_sound() {
            continue;
        }
        let auths = || auths_of(users.clone(), draft);
        if auths().next().is_some()
            && !auths().any(|auth| auth.api_keys().is_some_and(|keys| keys.consumers.has_column(column)))
        {
            let message = format!(
                "limit {} counts by the column {}, which no file of consumers on its routes has",
                quoted(&limit.name),
                quoted(column)
            );
            let mut columns: Vec<&str> =
                auths().filter_map(Auth::api_keys).flat_map(|keys| keys.consumers.columns()).collect();
            columns.sort_unstable();
            columns.dedup();
            diagnostics.fault(limit.span, message, format!("the columns are {}", listed(columns)));
        }
    }
}

/// A limit by a claim where no auth on its routes has tokens.
fn claims_are_never_known<'d>(
    limit: &LimitDraft,
    sound: &Limit,
    users: impl Iterator<Item = &'d RouteDraft> + Clone,
    draft: &'d FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let Some(part) = sound.key.parts.iter().find(|part| matches!(part, Part::JwtClaim(_))) else { return };
    let mut auths = auths_of(users, draft).peekable();
    if auths.peek().is_some() && auths.all(|auth| auth.tokens().is_none()) {
        let message =
            format!("limit {} counts by `{part}`, but no auth on its routes has tokens", quoted(&limit.name));
        diagnostics.fault(
            limit.span,
            message,
            "name an auth with `type = \"jwt\"` on the route, or another key",
        );
    }
}

fn auths_of<'d>(
    users: impl Iterator<Item = &'d RouteDraft>,
    draft: &'d FileDraft,
) -> impl Iterator<Item = &'d Auth> {
    let named = users.filter_map(|route| route.route.as_ref()?.auth.as_ref()).flat_map(|auth| &auth.auths);
    named.filter_map(|auth| draft.auths.get(auth.0)?.auth.as_ref())
}

/// A consumer with a tier that a limit with tiers does not have gets what the limit gives all others.
fn unknown_tiers<'d>(
    limit: &LimitDraft,
    sound: &Limit,
    users: impl Iterator<Item = &'d RouteDraft>,
    draft: &'d FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    if sound.tiers.is_empty() || sound.mapped_tier.is_some() {
        return;
    }
    let mut known: Vec<&str> = auths_of(users, draft).map(|auth| &*auth.name).collect();
    known.sort_unstable();
    known.dedup();
    for auth in draft.auths.iter().filter(|auth| known.contains(&&*auth.name)) {
        let is_unknown = |tier: &&(String, usize)| sound.tier(Some(&tier.0)).is_none();
        let unknown = auth.tiers.iter().filter(is_unknown).count();
        if unknown > MAX_TIERS_NAMED {
            let message = format!(
                "auth {} has {unknown} tiers that limit {} does not have: the limit's own rate applies to them",
                quoted(&auth.name),
                quoted(&limit.name)
            );
            diagnostics.warn(
                limit.span,
                message,
                "look at the header line of the file: `tier` may be another column",
            );
            continue;
        }
        for (tier, keys) in auth.tiers.iter().filter(is_unknown) {
            let keys = super::summary::counted(*keys, "key");
            let message = format!(
                "limit {} has no tier {}, the tier of {keys} of auth {}: the limit's own rate applies to them",
                quoted(&limit.name),
                quoted(tier),
                quoted(&auth.name)
            );
            let help = format!("add `[limits.{}.tiers.{tier}]`; an empty one changes nothing", limit.name);
            diagnostics.warn(limit.span, message, help);
        }
    }
}

/// Consumers of different tiers with a common counter: each request converts it to the rate of its own tier, so that it
/// drains at the rate of whichever tier was last.
fn shared_tiers<'d>(
    limit: &LimitDraft,
    sound: &Limit,
    users: impl Iterator<Item = &'d RouteDraft>,
    draft: &'d FileDraft,
    diagnostics: &Diagnostics<'_>,
) {
    let mut auths: Vec<_> = auths_of(users, draft).collect();
    auths.sort_unstable_by_key(|auth| &*auth.name);
    auths.dedup_by_key(|auth| &*auth.name);
    let mut parts = sound.key.parts.iter().filter(|part| part.is_of_consumer());
    let part = match (parts.next(), parts.next()) {
        // A file has one tier for each name.
        (Some(Part::Consumer), _) | (_, Some(Part::Consumer)) if auths.len() < 2 => return,
        // Together they may tell all tiers apart.
        (Some(_), Some(_)) => return,
        (part, _) => part,
    };
    // Places are not converted: each tier has its own maximum of the same places, and its weight.
    if sound.tiers.is_empty() || sound.mapped_tier.is_some() || sound.is_concurrency() {
        return;
    }
    let mut tiers = HashMap::new();
    for consumer in auths.iter().flat_map(|auth| auth.consumers()) {
        let shared = match part {
            Some(Part::Consumer) => Some(consumer.name()),
            Some(Part::ConsumerColumn(column)) => consumer.column(column),
            _ => Some(""),
        };
        let Some(shared) = shared else { continue };
        let (tier, first) = *tiers.entry(shared).or_insert_with(|| (sound.tier(consumer.tier()), consumer));
        if tier != sound.tier(consumer.tier()) {
            let (first, second) = (quoted(first.name()), quoted(consumer.name()));
            let consumers = match first == second {
                true => format!("consumer {first} of several auths has different tiers"),
                false => format!("consumers {first} and {second} have different tiers"),
            };
            let message = format!("{consumers}, but one counter of limit {}", quoted(&limit.name));
            let help = "the counter takes the rate of the tier that was last: count by `consumer`, or give both one tier";
            return diagnostics.warn(limit.span, message, help);
        }
    }
}

/// A network that is exempt from a limit, and denied: the denial wins.
fn denied_and_exempt(route: &RouteDraft, draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let own = route.route.as_ref().and_then(|route| route.addresses.deny.as_ref());
    let denied = [draft.server.addresses.deny.as_ref(), own];
    for used in &route.uses {
        let Some(limit) = &draft.limits[used.limit_use.limit.0].limit else { continue };
        for exemption in limit.exempt.iter() {
            let Exemption::Ip(network) = exemption else { continue };
            if denied.iter().flatten().any(|deny| deny.overlap(*network)) {
                let message = format!(
                    "`{exemption}` is exempt from limit {}, but `deny` refuses some of its requests to route {}",
                    quoted(&limit.name),
                    quoted(&route.name)
                );
                diagnostics.warn(used.span, message, "`deny` wins: leave the network out of one of the two");
                break;
            }
        }
    }
}
