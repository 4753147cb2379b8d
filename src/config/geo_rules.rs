//! Checks that the countries and autonomous systems that the file asks about are known.

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::report::quoted;
use super::server;
use crate::route::condition::Condition;
use crate::route::key::Part;
use crate::route::locations::{Country, Locations};

const NAME_A_FILE: &str = "write `geo = { file = \"country.mmdb\" }` in `[server]`";

/// Checks limits, routes and texts that ask where clients are.
pub(super) fn check(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    if diagnostics.is_uncertain(server::TITLE, server::SERVER.geo.name) {
        return;
    }
    // A file with faults is named all the same.
    if draft.server.client.locations.is_none() && diagnostics.errors() > 0 {
        return;
    }
    let locations = draft.server.client.locations.as_deref();
    let has = |part: &Part| match part {
        Part::Country => locations.is_some_and(Locations::has_countries),
        Part::AutonomousSystem => locations.is_some_and(Locations::has_systems),
        _ => true,
    };
    let mut is_used = diagnostics.country_text().is_some();
    for limit in &draft.limits {
        let Some(sound) = &limit.limit else { continue };
        let of_shares = sound.share_by.iter().flat_map(|key| &key.parts);
        let of_tier = sound.mapped_tier.iter().map(|mapped| &mapped.part);
        let parts = sound.key.parts.iter().chain(of_shares).chain(of_tier);
        for part in parts.filter(|part| part.is_of_location()) {
            is_used = true;
            if !has(part) {
                let what =
                    if locations.is_some() { "which no file of `geo` has" } else { "which no file tells" };
                let message = format!("limit {} reads `{part}`, {what}", quoted(&limit.name));
                diagnostics.fault(limit.span, message, NAME_A_FILE);
            }
        }
    }
    for route in &draft.routes {
        let values = route.conditions.iter().flat_map(|conditions| &conditions.values);
        for country in values.flat_map(countries) {
            is_used = true;
            let message = match locations {
                Some(locations) if locations.has_country(*country) => continue,
                Some(locations) if locations.has_countries() => {
                    let message = format!("no address of `geo` is in {country}");
                    let help = "codes are those of ISO 3166-1, such as `GB` and `GR`";
                    diagnostics.warn(route.span, message, help);
                    continue;
                }
                _ => format!("route {} asks for a country, which no file tells", quoted(&route.name)),
            };
            diagnostics.fault(route.span, message, NAME_A_FILE);
            break;
        }
    }
    if let Some(span) = diagnostics.country_text()
        && !has(&Part::Country)
    {
        diagnostics.fault(
            span,
            "`{country}` is always empty: no file tells the countries of clients",
            NAME_A_FILE,
        );
    }
    if let Some(span) =
        draft.geo_place.filter(|_| !is_used && diagnostics.errors() == 0 && !diagnostics.is_incomplete())
    {
        let help = "use it: `key = \"country\"`, `country = [\"DE\"]` in a route, or `{country}` in a text";
        diagnostics.warn(span, "`geo` has no effect: nothing asks where clients are", help);
    }
}

fn countries(condition: &Condition) -> &[Country] {
    match condition {
        Condition::Countries(countries) => countries,
        Condition::Not(inner) => countries(inner),
        _ => &[],
    }
}
