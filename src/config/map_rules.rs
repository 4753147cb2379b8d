//! Checks of maps and of the limits that use them.

use std::sync::Arc;

use super::diagnostics::Diagnostics;
use super::limits::LimitDraft;
use super::maps::MapDraft;
use super::report::quoted;
use crate::route::key::Part;

/// Checks maps against the limits that use them.
pub(super) fn check(maps: &[MapDraft], limits: &[LimitDraft], diagnostics: &Diagnostics<'_>) {
    for draft in maps {
        let Some(map) = &draft.map else { continue };
        let uses = limits.iter().filter_map(|limit| {
            let sound = limit.limit.as_ref()?;
            let mapped = sound.mapped_tier.as_ref()?;
            Arc::ptr_eq(&mapped.map, map).then_some((limit, sound, mapped))
        });
        if uses.clone().next().is_none() {
            // A limit with faults may use it.
            if diagnostics.unknown() == 0 && limits.iter().all(|limit| limit.limit.is_some()) {
                let message = format!("no limit uses the map {}", quoted(&draft.name));
                let help = format!("write `tier = \"map:{}(ip)\"` in a limit, or leave it out", draft.name);
                diagnostics.warn(draft.span, message, help);
            }
            continue;
        }
        if let Some(other) = &draft.first_other
            && uses.clone().all(|(_, _, mapped)| mapped.part == Part::Ip)
        {
            let message = "this line begins with neither an address nor a network";
            let help = "write, for example, `192.0.2.0/24,partner`";
            diagnostics.fault_in(draft.span, other.clone(), message, help);
        }
        for (limit, sound, _) in uses {
            for tier in map.tiers().filter(|tier| sound.tier(Some(tier)).is_none()) {
                let message = format!(
                    "limit {} has no tier {} of map {}: the limit's own rate applies",
                    quoted(&limit.name),
                    quoted(tier),
                    quoted(&draft.name)
                );
                let help =
                    format!("add `[limits.{}.tiers.{tier}]`; an empty one changes nothing", limit.name);
                diagnostics.warn(limit.span, message, help);
            }
        }
    }
}
