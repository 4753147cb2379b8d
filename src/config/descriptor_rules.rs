//! Checks the rules of `[[descriptors]]` with the limits that they name.

use std::collections::HashMap;

use super::diagnostics::Diagnostics;
use super::file::FileDraft;
use super::limits::LimitDraft;
use super::report::{SourceSpan, quoted};
use crate::plan::Limit;
use crate::plan::descriptors::{DescriptorRule, EntryPattern};
use crate::route::key::Part;
use crate::store::MAX_CHARGES;

/// Checks the rules with the limits that they name, and gives each a name of its own.
pub(super) fn check(draft: &mut FileDraft, diagnostics: &Diagnostics<'_>) {
    tell_names_apart(draft);
    let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
    for (index, one) in draft.descriptors.iter().enumerate() {
        let Some(rule) = &one.rule else { continue };
        if let Some(first) = seen.insert(identity(rule), index) {
            let other = quoted(&draft.descriptors[first].name);
            let message =
                format!("this rule never applies: {other}, earlier in the file, is for the same descriptors");
            diagnostics.fault(one.span, message, "leave one of the two out, or give it other values");
        }
        let mut charges = 0;
        for (limit, span) in &one.uses {
            let Some(limit) = &draft.limits[limit.0].limit else { continue };
            check_use((rule, limit), *span, diagnostics);
            charges += limit.policies.len();
        }
        // Limits whose names or settings are not known are not counted.
        let is_one = one.uses.len() == 1 && charges <= 1;
        if rule.overrides && !is_one && (one.uses.len() > 1 || charges > 1 || !diagnostics.is_incomplete()) {
            let message = "`override` is for one limit with one rate";
            let help = "name that limit alone in `limits`, or leave `override` out";
            diagnostics.fault(one.span, message, help);
        }
        if charges > MAX_CHARGES {
            let message = format!("a call is charged to {charges} rates at once");
            diagnostics.fault(
                one.span,
                message,
                format!("name limits with at most {MAX_CHARGES} rates in all"),
            );
        }
    }
    if let (None, Some(first)) = (&draft.decisions, draft.descriptors.first())
        && diagnostics.errors() == 0
        && !diagnostics.is_incomplete()
    {
        let help = "add `[decisions]` with `listen = \"127.0.0.1:9901\"`";
        diagnostics.warn(first.span, "`[[descriptors]]` has no effect: nobody can ask", help);
    }
    only_of_descriptors(draft, diagnostics);
}

/// Names that were cut, and are equal.
fn tell_names_apart(draft: &mut FileDraft) {
    let mut names: HashMap<String, usize> = HashMap::new();
    for one in &mut draft.descriptors {
        let count = names.entry(one.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            one.name = format!("{} #{count}", one.name);
        }
    }
}

/// Equal for rules that are for the same descriptors.
fn identity(rule: &DescriptorRule) -> Vec<String> {
    let mut entries: Vec<&EntryPattern> = rule.entries.iter().collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let entries = entries.into_iter().map(|entry| format!("{:?}", (&entry.name, &entry.value)));
    [format!("{:?}", rule.domain)].into_iter().chain(entries).collect()
}

/// Checks a limit that a rule names.
fn check_use((rule, limit): (&DescriptorRule, &Limit), span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    let name = quoted(&limit.name);
    if !limit.can_be_asked() {
        let algorithm = limit.policies.first().map_or("", |policy| policy.algorithm.name());
        let why = match algorithm {
            "leaky-bucket" => "the other proxy would have to delay the request",
            _ => "nobody tells when the request ends",
        };
        let message =
            format!("limit {name} cannot decide for others: it is of the algorithm `{algorithm}`, and {why}");
        diagnostics.fault(span, message, "use another algorithm, such as `token-bucket`");
        return;
    }
    let has = |wanted: &str| rule.entries.iter().any(|entry| *entry.name == *wanted);
    for part in &limit.key.parts {
        let message = match part.descriptor() {
            Some(wanted) if has(wanted) => continue,
            Some(wanted) => {
                format!("limit {name} counts by `{part}`, but `match` has no entry {}", quoted(wanted))
            }
            None if part.is_of_descriptors() => continue,
            None => format!("limit {name} counts by `{part}`, which no descriptor has"),
        };
        let names: Vec<_> = rule.entries.iter().map(|entry| format!("`descriptor:{}`", entry.name)).collect();
        let help = format!("count by {}, or by `global`", names.join(", "));
        diagnostics.fault(span, message, help);
    }
    if limit.exempt.iter().len() > 0 {
        let message = format!(
            "`exempt` of limit {name} has no effect here: it is about requests, not about descriptors"
        );
        diagnostics.warn(span, message, "leave it out, or use a limit of its own for descriptors");
    }
    let smallest = limit.all_policies().map(|policy| policy.algorithm.max_cost()).min().unwrap_or_default();
    if u64::from(rule.cost.units()) > smallest && !rule.report && !rule.overrides {
        let message = format!(
            "a call costs {}, but limit {name} holds only {smallest}, so every call would be refused",
            rule.cost.units()
        );
        diagnostics.fault(span, message, "lower `cost`, or raise the numbers of the limit");
    }
}

/// Keys by descriptors where there are requests.
fn only_of_descriptors(draft: &FileDraft, diagnostics: &Diagnostics<'_>) {
    let of_routes = draft.routes.iter().flat_map(|route| &route.uses);
    let of_routes = of_routes.map(|used| (used.limit_use.limit, used.span));
    let of_failures = draft.auths.iter().filter_map(|auth| auth.failures);
    for (limit, span) in of_routes.chain(of_failures) {
        let part = |limit: &LimitDraft| {
            let parts = &limit.limit.as_ref()?.key.parts;
            parts.iter().find(|part| part.descriptor().is_some()).map(Part::to_string)
        };
        let limit = &draft.limits[limit.0];
        if let Some(part) = part(limit) {
            let message = format!("limit {} counts by `{part}`, which no request has", quoted(&limit.name));
            diagnostics.fault(
                span,
                message,
                "name it in `limits` of `[[descriptors]]`, and another limit here",
            );
        }
    }
}
