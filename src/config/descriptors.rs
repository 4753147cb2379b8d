//! `[[descriptors]]`: the limits of what other proxies ask about.

use super::keys::{ANY, Length, Schema, count, flag, keys};
use super::name::Directory;
use super::report::{SourceSpan, quoted};
use super::text::Cursor;
use super::value::{ConfigValue, Entry};
use crate::limit::units::Cost;
use crate::plan::cost::CostRule;
use crate::plan::descriptors::{DescriptorRule, EntryPattern, MAX_ENTRIES};
use crate::plan::{LimitIndex, LimitUse, Route};
use crate::route::RouteIndex;

keys! {
    /// Limits of what other proxies ask about. Of the rules for a descriptor the one with the most values wins, then
    /// one with a domain, then the first in the file.
    pub(super) DESCRIPTOR: DescriptorKeys = "[[descriptors]]" {
        /// The domain that the other proxy names. Default: any.
        domain = Schema::TextUpTo(256);
        /// Every entry of the descriptors that the rule is for: { generic_key = "search", remote_address = "*" },
        /// where "*" is any value and "\\*" is that text; where a name comes twice, a list of ["NAME", "VALUE"].
        matches as "match" = Schema::Either(&[
            Schema::Map(NUMBER_OF_ENTRIES, &Schema::TextUpTo(256), &Schema::Text),
            Schema::List(NUMBER_OF_ENTRIES, &Schema::List((2, 2), &Schema::Text)),
        ]), required "{ generic_key = \"search\" }";
        /// Limits that must all admit a call, by name, none twice. Default: none.
        limits = Schema::List(ANY, &Schema::Text);
        /// Units of a call, 1 to 10^9; times the `hits_addend` that the other proxy sends.
        cost: u32 = count(1, Cost::MAX as u64) => 1;
        /// Whether calls report what has happened (Envoy's `apply_on_stream_done`): they are always charged, if
        /// necessary into debt, and answered OK.
        report: bool = flag() => false;
        /// Whether the numbers that a descriptor brings (`limit`) apply in place of those of its limit. Without it
        /// they are not looked at.
        overrides as "override": bool = flag() => false;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const NUMBER_OF_ENTRIES: Length = (1, MAX_ENTRIES as u32);

/// Characters of a rule's name in logs and metrics.
const MAX_NAME: usize = 200;

/// A rule of the file.
pub(super) struct DescriptorDraft {
    /// Its name in logs and metrics.
    pub(super) name: String,
    pub(super) span: SourceSpan,
    /// The limits that it names, without undefined ones.
    pub(super) uses: Vec<(LimitIndex, SourceSpan)>,
    /// `None` if it has faults. The index of its route is set later.
    pub(super) rule: Option<DescriptorRule>,
}

/// Reads one of `[[descriptors]]`.
pub(super) fn read(value: &ConfigValue<'_>, limits: &Directory<'_>) -> Option<DescriptorDraft> {
    let mut table = value.table("`[[descriptors]]`")?;
    let domain = table.optional(&DESCRIPTOR.domain, |value| domain(&value));
    let entries = table.require(&DESCRIPTOR.matches, |value| entries(&value));
    let uses = table.or(&DESCRIPTOR.limits, Vec::new(), |value| uses(&value, limits));
    let cost = table.value(&DESCRIPTOR.cost);
    let report = table.value(&DESCRIPTOR.report);
    let overrides = table.value(&DESCRIPTOR.overrides);
    let is_sound = table.finish();
    let span = value.span();
    let Some(entries) = entries.filter(|_| is_sound) else {
        return Some(DescriptorDraft { name: String::new(), span, uses, rule: None });
    };
    let name = name_of(domain.as_deref(), &entries);
    let (route, cost) = (RouteIndex(0), Cost::new(cost).unwrap_or(Cost::ONE));
    let rule = DescriptorRule { domain, entries, route, cost, report, overrides };
    Some(DescriptorDraft { name, span, uses, rule: Some(rule) })
}

fn domain(value: &ConfigValue<'_>) -> Option<Box<str>> {
    let text = value.text()?;
    if text.as_str().is_empty() {
        text.diagnostics().fault(
            text.span(),
            "`domain` is empty",
            "leave it out: then the rule is for any domain",
        );
        return None;
    }
    Some(text.into_string().into())
}

/// `match`: a table, or a list of pairs.
fn entries(value: &ConfigValue<'_>) -> Option<Vec<EntryPattern>> {
    let (written, entries): (usize, Vec<_>) = if value.is_list() {
        let items = value.list()?;
        (items.len(), items.iter().filter_map(pair).collect())
    } else if value.is_table() {
        let entries = value.entries()?;
        let pattern = |entry: &Entry<'_>| pattern(entry.key.to_owned(), &entry.value);
        (entries.len(), entries.iter().filter_map(pattern).collect())
    } else {
        return value.mismatch("a table", "write `{ generic_key = \"search\", remote_address = \"*\" }`");
    };
    if written == 0 {
        let message = "`match` names no entry, and a descriptor without one is never limited";
        value.fault(message, "name at least one");
    }
    if written > MAX_ENTRIES {
        value.fault(format!("`match` has {written} entries"), format!("{MAX_ENTRIES} are the maximum"));
    }
    (written == entries.len()).then_some(entries)
}

/// `["generic_key", "search"]`.
fn pair(value: &ConfigValue<'_>) -> Option<EntryPattern> {
    let items = value.list()?;
    let [name, text] = items.as_slice() else {
        value.fault("each entry is a name and a value", "write `[\"generic_key\", \"search\"]`");
        return None;
    };
    pattern(name.text()?.into_string(), text)
}

fn pattern(name: String, value: &ConfigValue<'_>) -> Option<EntryPattern> {
    let text = value.text()?;
    if name.is_empty() {
        value
            .fault("an entry of `match` has an empty name", "write its name: `{ generic_key = \"search\" }`");
        return None;
    }
    Some(EntryPattern { name: name.into(), value: value_of(text)? })
}

/// `"*"` is any value, and `\*` at the end that character. Text of variables is literal.
fn value_of(text: Cursor<'_>) -> Option<Option<Box<str>>> {
    if !text.variables().is_empty() {
        return Some(Some(text.into_string().into()));
    }
    match text.as_str() {
        "*" => Some(None),
        written => match written.strip_suffix('*') {
            Some(begin) => match begin.strip_suffix('\\') {
                Some(begin) => Some(Some(format!("{begin}*").into())),
                None => {
                    let message = format!("{} is neither one value nor any", text.quoted());
                    let help = format!(
                        "write `\"*\"` for any value, or {} for this one",
                        quoted(&format!("{begin}\\\\*"))
                    );
                    text.diagnostics().fault(text.span(), message, help);
                    None
                }
            },
            None => Some(Some(text.into_string().into())),
        },
    }
}

fn uses(value: &ConfigValue<'_>, limits: &Directory<'_>) -> Option<Vec<(LimitIndex, SourceSpan)>> {
    let mut uses: Vec<(LimitIndex, SourceSpan)> = Vec::new();
    for item in value.list()? {
        let Some(limit) = item.text().and_then(|name| limits.find(&name)).map(LimitIndex) else { continue };
        if uses.iter().any(|(other, _)| *other == limit) {
            item.fault("`limits` names the same limit twice", "leave one of the two out");
            continue;
        }
        uses.push((limit, item.span()));
    }
    Some(uses)
}

/// `shop/generic_key=search,remote_address=*`; without a domain `*/…`.
fn name_of(domain: Option<&str>, entries: &[EntryPattern]) -> String {
    let value = |value: Option<&str>| match value {
        None => "*".to_owned(),
        Some("*") => "\\*".to_owned(),
        Some(value) => value.to_owned(),
    };
    let entry = |entry: &EntryPattern| format!("{}={}", entry.name, value(entry.value.as_deref()));
    let entries: Vec<_> = entries.iter().map(entry).collect();
    let name = format!("{}/{}", domain.unwrap_or("*"), entries.join(","));
    let shown = name.chars().map(|character| if character.is_control() { '?' } else { character });
    shown.take(MAX_NAME).collect()
}

/// The rules, each with its route, whose indices begin here.
pub(super) fn finish(
    drafts: Vec<DescriptorDraft>,
    first: usize,
) -> Option<(Vec<DescriptorRule>, Vec<Route>)> {
    let mut rules = Vec::with_capacity(drafts.len());
    let mut routes = Vec::with_capacity(drafts.len());
    for DescriptorDraft { name, uses, rule, .. } in drafts {
        let rule = rule?;
        let cost = CostRule::Fixed(rule.cost);
        let limits = uses.into_iter().map(|(limit, _)| LimitUse { limit, cost: cost.clone() }).collect();
        rules.push(DescriptorRule { route: RouteIndex(first + routes.len()), ..rule });
        routes.push(Route::of_calls(name.into(), cost, limits));
    }
    Some((rules, routes))
}

/// Reads `[[descriptors]]`.
pub(super) fn read_all(value: &ConfigValue<'_>, limits: &Directory<'_>) -> Option<Vec<DescriptorDraft>> {
    if !value.is_list() {
        return value
            .mismatch("a list", "each rule stands below a header with two brackets: `[[descriptors]]`");
    }
    value.each(|item| read(&item, limits))
}
