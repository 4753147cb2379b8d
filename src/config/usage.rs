//! `usage` and `keep_windows` of a limit.

use super::diagnostics::Diagnostics;
use super::report::{SourceSpan, quoted};
use crate::limit::calendar::CalendarWindows;
use crate::plan::Limit;
use crate::route::key::Part;
use crate::store::usage::UsageSettings;

/// The settings as written.
#[derive(Clone, Copy)]
pub(super) struct UsageDraft {
    /// The place of `usage`; `None`: it is not written, or false.
    pub(super) usage: Option<SourceSpan>,
    pub(super) keep_windows: u8,
    /// The place of `keep_windows`.
    pub(super) kept: Option<SourceSpan>,
    /// `usage` is a variable whose value is not known.
    pub(super) is_uncertain: bool,
}

impl UsageDraft {
    /// The settings of the limit. `None`: it keeps no usage, or there are faults.
    pub(super) fn of(self, limit: &Limit, diagnostics: &Diagnostics<'_>) -> Option<UsageSettings> {
        if self.is_uncertain {
            return None;
        }
        let Some(span) = self.usage else {
            if let Some(span) = self.kept {
                let message = "`keep_windows` has no effect without `usage`";
                diagnostics.fault(span, message, "add `usage = true`, or leave it out");
            }
            return None;
        };
        let name = quoted(&limit.name);
        if limit.key.parts != [Part::Consumer] {
            let message = format!("`usage` keeps the names of consumers, and limit {name} has another key");
            diagnostics.fault(span, message, "write `key = \"consumer\"`, or leave `usage` out");
        }
        let windows = longest(limit);
        if windows.is_none() {
            let message = format!(
                "`usage` is kept by windows of the calendar, and limit {name} has no rate with these"
            );
            let help = "write `algorithm = \"fixed-window\"` and a rate such as \"100000/month\", or another \
                        one with `align = \"calendar\"`";
            diagnostics.fault(span, message, help);
        }
        Some(UsageSettings::new(&limit.name, windows?, self.keep_windows))
    }
}

/// The windows of its longest rate by the calendar.
fn longest(limit: &Limit) -> Option<CalendarWindows> {
    let calendars = limit.policies.iter().filter_map(|policy| policy.algorithm.calendar());
    calendars.max_by_key(|windows| windows.unit().longest())
}
