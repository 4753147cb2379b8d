//! `[sets.NAME]`: keys that routes share, and the `use` that names them.
//!
//! A route is read as one table: the sets that `[server]` uses, those of the route from left to right, and the route itself.
//! The later one wins, but for lists of what is added (`limits`, `deny`, the names of removed headers), which are joined,
//! and for headers that are set, which are merged. All other code sees the joined table alone, where each value has its
//! position in the file.

use std::collections::HashSet;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::diagnostics::Diagnostics;
use super::keys::{ConfigSection as _, keys};
use super::name::{self, Directory};
use super::report::{SourceSpan, quoted};
use super::routes::SETTINGS;
use super::set_names::uses;
use super::table::ConfigTable;
use super::value::ConfigValue;

keys! {
    /// Keys of the routes that name this set in `use`: all but `name`, `path` and `use`.
    pub(super) SET: SetKeys = "[sets.NAME]" {
        + SETTINGS;
    }
}

/// The key of the file.
pub(super) const SETS: &str = "sets";
/// Lists of which each table adds its own.
const JOINED: [&str; 5] = ["limits", "deny", "remove_request_headers", "remove_response_headers", "use"];
/// Tables of headers, each of which has the value of the last one.
const MERGED: [&str; 2] = ["set_request_headers", "set_response_headers"];

type Value<'a> = Spanned<DeValue<'a>>;

/// A set of the file.
struct RouteSet<'d, 'a> {
    name: &'d str,
    span: SourceSpan,
    /// Its known keys.
    keys: DeTable<'a>,
}

/// Replaces each route of the file by its sets and itself as one table. Errors are reported.
pub(super) fn apply(file: &mut DeTable<'_>, diagnostics: &Diagnostics<'_>) {
    let defined = file.remove(SETS);
    let sets = defined.as_ref().map_or_else(Vec::new, |value| read(value, diagnostics));
    let names = Directory::new("set", sets.iter().map(|set| set.name));
    let mut used = HashSet::<usize>::new();
    let server = file.get("server").and_then(|server| server.get_ref().as_table());
    let of_server = server.map_or_else(Vec::new, |server| uses(server, &names, diagnostics));
    used.extend(&of_server);
    // So each route tells all of its sets.
    let server_use = server.and_then(|server| server.get_key_value("use"));
    let server_use = server_use.map(|(key, value)| (key.clone(), value.clone()));
    if let Some(DeValue::Array(routes)) = file.get_mut("routes").map(Spanned::get_mut) {
        for route in routes.iter_mut() {
            let DeValue::Table(route) = route.get_mut() else { continue };
            let own = uses(route, &names, diagnostics);
            used.extend(&own);
            let mut all = server_use.iter().cloned().collect::<DeTable<'_>>();
            for set in of_server.iter().chain(&own) {
                add(&mut all, sets[*set].keys.clone());
            }
            if !all.is_empty() {
                add(&mut all, std::mem::take(route));
                *route = all;
            }
        }
    }
    // What is not known may use it.
    if diagnostics.unknown() == 0 && !diagnostics.is_incomplete() {
        for (_, set) in sets.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
            let message = format!("no route uses the set {}", quoted(set.name));
            diagnostics.warn(
                set.span,
                message,
                "name it in `use` of a route or of `[server]`, or leave it out",
            );
        }
    }
}

fn read<'d, 'a>(value: &'d Value<'a>, diagnostics: &Diagnostics<'_>) -> Vec<RouteSet<'d, 'a>> {
    let Some(sets) = value.get_ref().as_table() else {
        _ = ConfigValue::of_key(SETS, value, diagnostics).entries();
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, value) in sets {
        let (span, name) = (name.span().into(), name.get_ref().as_ref());
        name::check_label(name, span, diagnostics);
        let title = format!("`[sets.{name}]`");
        if let Some(table) = ConfigValue::of_key(name, value, diagnostics).table(&title) {
            check(table);
        }
        let known: Vec<_> = SET.keys().iter().map(|key| key.name()).collect();
        let keys = value.get_ref().as_table().into_iter().flatten();
        let keys = keys.filter(|(key, _)| known.contains(&key.get_ref().as_ref()));
        all.push(RouteSet {
            name,
            span,
            keys: keys.map(|(key, value)| (key.clone(), value.clone())).collect(),
        });
    }
    all
}

/// Reports keys that no set has.
fn check(mut table: ConfigTable<'_>) {
    for key in SET.keys() {
        table.skip(&[key.name()]);
    }
    table.misplaced("path", "a set has no `path`: each route has its own", "leave it out");
    table.misplaced("name", "the name of a set is in its header", "leave it out");
    table.misplaced("use", "a set uses no other sets", "name both sets in `use` of the route");
    table.finish();
}

/// Adds the keys of a later table.
fn add<'a>(all: &mut DeTable<'a>, later: DeTable<'a>) {
    for (key, value) in later {
        let name: &str = key.get_ref();
        let (is_joined, is_merged) = (JOINED.contains(&name), MERGED.contains(&name));
        match (all.get_mut(name).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Array(before)), DeValue::Array(items)) if is_joined => {
                join(
                    before,
                    items,
                    if name.starts_with("remove") { str::eq_ignore_ascii_case } else { str::eq },
                );
            }
            (Some(DeValue::Table(before)), DeValue::Table(fields)) if is_merged => merge(before, fields),
            _ => {
                // The key, too, has the position of its value.
                all.remove(name);
                all.insert(key, value);
            }
        }
    }
}

/// Adds items. One with the name of an item before takes its place: a limit with its cost.
fn join<'a>(before: &mut DeArray<'a>, items: &DeArray<'a>, is_equal: fn(&str, &str) -> bool) {
    let count = before.len();
    for item in items.iter() {
        let is_same = |other: &Value<'_>| {
            name_of(item).zip(name_of(other)).is_some_and(|(one, other)| is_equal(one, other))
        };
        match before.iter_mut().take(count).find(|other| is_same(other)) {
            Some(same) => *same = item.clone(),
            None => before.push(item.clone()),
        }
    }
}

/// What an item of a list names: itself, or its `name`.
fn name_of<'v>(item: &'v Value<'_>) -> Option<&'v str> {
    let item = item.get_ref();
    item.as_str().or_else(|| item.as_table()?.get("name")?.get_ref().as_str())
}

/// Adds headers, whose names have no letter case.
fn merge<'a>(before: &mut DeTable<'a>, fields: &DeTable<'a>) {
    let is_set = |name: &str| fields.keys().any(|other| other.get_ref().eq_ignore_ascii_case(name));
    let all = std::mem::take(before);
    before.extend(all.into_iter().filter(|(name, _)| !is_set(name.get_ref())));
    before.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
}
