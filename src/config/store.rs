//! `[store]`.

use super::table::Table;
use super::value::Value;
use crate::gateway::StoreSettings;
use crate::limit::units::Cost;

/// What a limit does when the store can not decide. The memory store always can, so this is only checked.
const ON_ERROR: [(&str, ()); 3] = [("local", ()), ("allow", ()), ("deny", ())];

/// Reads `[store]`.
pub(super) fn read(mut table: Table<'_>) -> StoreSettings {
    table.later("url_env", "url_env");
    table.later("snapshot", "snapshot");
    table.optional("backend", |value| backend(&value));
    // These three speak of a shared store; beside `memory` they are checked and wait for it.
    table.optional("url", |value| urls(&value));
    table.optional("timeout", |value| value.duration());
    table.optional("on_error", |value| on_error(&value));
    let max_keys = table.or("max_keys", 1_000_000, |value| usize::try_from(value.count(1, Cost::MAX)?).ok());
    table.finish();
    StoreSettings { max_keys }
}

/// `on_error`, of the store or of a limit.
pub(super) fn on_error(value: &Value<'_>) -> Option<()> {
    value.choice(&ON_ERROR)
}

fn backend(value: &Value<'_>) -> Option<()> {
    value.choice_now(&[("memory", ())], &["redis"])
}

fn urls(value: &Value<'_>) -> Option<()> {
    if value.is_list() {
        return value.some_of(|item| item.text().map(drop)).map(drop);
    }
    value.text().map(drop)
}
