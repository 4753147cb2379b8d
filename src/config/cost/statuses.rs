//! `status`: units by status.

use http::StatusCode;

use crate::config::report::quoted;
use crate::config::value::{ConfigValue, Entry};
use crate::limit::units::Cost;
use crate::plan::cost::StatusCosts;

/// `status = { 401 = 5, "2xx" = 0 }`.
pub(super) fn statuses(value: &ConfigValue<'_>) -> Option<StatusCosts> {
    const EXAMPLE: &str = "write units by status: `{ 401 = 5, \"2xx\" = 0 }`";
    if !value.is_table() {
        return value.mismatch("a table", EXAMPLE);
    }
    let entries = value.entries()?;
    if entries.is_empty() {
        value.fault("`status` names no status, so that each costs `reserve`", EXAMPLE);
        return None;
    }
    let mut costs = StatusCosts::default();
    let read = entries.into_iter().map(|entry| status_cost(&entry, &mut costs));
    // All of them, so that each faulty one is reported.
    let are_sound = read.filter(Option::is_none).count() == 0;
    are_sound.then_some(costs)
}

fn status_cost(Entry { key, key_span, value: units }: &Entry<'_>, costs: &mut StatusCosts) -> Option<()> {
    let class = key.strip_suffix("xx").and_then(|class| class.parse::<usize>().ok());
    let class = class.and_then(|class| costs.classes.get_mut(class.checked_sub(1)?));
    match (class, status(key)) {
        (Some(class), _) => *class = Some(units.count(0, Cost::MAX)?),
        (None, Some(status)) => costs.exact.push((status, units.count(0, Cost::MAX)?)),
        (None, None) => {
            let message = format!("{} is neither a status nor a class", quoted(key));
            units.diagnostics().fault(
                *key_span,
                message,
                "write a status such as 401, or a class such as \"4xx\"",
            );
            return None;
        }
    }
    Some(())
}

fn status(text: &str) -> Option<StatusCode> {
    let is_plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let status = is_plain.then(|| StatusCode::from_bytes(text.as_bytes()).ok()).flatten()?;
    (status.as_u16() < 600).then_some(status)
}
