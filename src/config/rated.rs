//! A limit's algorithms, one a rate, and what their parameters have in common.

use super::report::listed;
use super::table::ConfigTable;
use super::value::ConfigValue;
use crate::limit::Algorithm;
use crate::limit::units::Cost;

/// One rate of a limit, as written, with its algorithm.
pub(super) struct Rated {
    pub(super) rate: String,
    pub(super) algorithm: Algorithm,
}

/// The rates of a limit with its algorithm, and those of its tiers.
pub(super) struct RatedLimit {
    pub(super) rates: Vec<Rated>,
    /// By name.
    pub(super) tiers: Vec<(String, Vec<Rated>)>,
}

/// All parameters.
pub(super) const PARAMETERS: [&str; 10] =
    ["rate", "burst", "max", "queue", "max_wait", "align", "starts", "time_zone", "spacing", "count_denied"];

/// Parameters of other algorithms are errors: they would have no effect.
pub(super) fn refuse_foreign(table: &mut ConfigTable<'_>, algorithm: &str, own: &[&str]) {
    let takes = listed(own.iter().copied());
    for parameter in PARAMETERS.into_iter().filter(|parameter| !own.contains(parameter)) {
        let message = format!("`{parameter}` means nothing to `{algorithm}`");
        table.misplaced(parameter, &message, &format!("`{algorithm}` takes {takes}"));
    }
}

/// A count of units.
pub(super) fn units(value: &ConfigValue<'_>) -> Option<Cost> {
    Cost::new(value.count(1, Cost::MAX)?)
}
