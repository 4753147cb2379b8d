//! `use`: the sets of a route or, in `[server]`, of every route.

use std::sync::Arc;

use toml::de::DeTable;

use super::diagnostics::Diagnostics;
use super::keys::{ANY, Schema, keys};
use super::name::Directory;
use super::table::ConfigTable;
use super::value::ConfigValue;

keys! {
    /// The sets of a route, or of every route.
    pub(super) USE: UseKeys = "use" {
        /// Sets by name, from left to right: a later one wins, and the keys of a route win over all. Of `limits`,
        /// `deny` and headers each adds its own. Default: none.
        sets as "use" = Schema::List(ANY, &Schema::Text);
    }
}

/// The names of the sets of a route that was read with them: their faults were told then.
pub(super) fn of_route(table: &mut ConfigTable<'_>) -> Vec<Arc<str>> {
    let is_faulty = table.diagnostics().errors() > 0;
    let names = table.take(&USE.sets).filter(|_| !is_faulty);
    names.and_then(|value| value.each(|item| Some(item.text()?.as_str().into()))).unwrap_or_default()
}

/// The sets that a table names, by index.
pub(super) fn uses(table: &DeTable<'_>, names: &Directory<'_>, diagnostics: &Diagnostics<'_>) -> Vec<usize> {
    let Some(value) = table.get(USE.sets.name) else { return Vec::new() };
    let mut found = Vec::new();
    for item in ConfigValue::of_key(USE.sets.name, value, diagnostics).list().unwrap_or_default() {
        let Some(set) = item.text().and_then(|name| names.find(&name)) else { continue };
        if found.contains(&set) {
            item.fault("`use` names the same set twice", "leave one of the two out");
            continue;
        }
        found.push(set);
    }
    found
}
