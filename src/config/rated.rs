//! A limit's algorithms, one a rate, and what their parameters have in common.

use std::num::NonZeroU32;
use std::time::Duration;

use super::keys::{ANY, ConfigSection as _, NamedSchema, Schema, count, duration, flag, keys};
use super::report::listed;
use super::table::ConfigTable;
use crate::limit::Algorithm;
use crate::limit::units::Cost;

keys! {
    /// What algorithms have beside `rate`, in a limit and in its tiers.
    pub(super) PARAMETERS: ParameterKeys = "parameters of algorithms" {
        /// concurrency: requests in flight (by cost: places), 1 to 10^9; "auto": as many as the backend works on at
        /// the same time, found from its latency. Required there.
        max = MAX, example "20";
        /// token-bucket, gcra: units at once, 1 to 10^9. Default: the count of `rate` (token-bucket), 1 (gcra).
        burst: u32 = count(1, Cost::MAX as u64);
        /// leaky-bucket: units that may wait, 1 to 10^9. Default: the count of `rate`. concurrency: requests that
        /// may wait for a place, 0 to 10^9. Default 0.
        queue: u32 = count(0, Cost::MAX as u64);
        /// leaky-bucket: a request that would wait longer is refused at once. Default "10s". concurrency: a request
        /// that has waited so long is refused. Default "1s".
        max_wait: Duration = duration();
        /// sliding-log: the least distance between admitted requests. Default: none.
        spacing: Duration = duration();
        /// sliding-log: whether refused attempts count too. Default false.
        count_denied: bool = flag();
    }
}

keys! {
    /// What the limit gives consumers of this tier. A key that is not written here is as in the limit; a default
    /// follows from the tier's own rate.
    pub(super) TIER: TierKeys = "[limits.NAME.tiers.NAME]" {
        /// As in the limit; other periods and more rates have counters of their own.
        rate = RATES;
        /// Whether the limit does not apply to consumers of this tier. Then it has no other key.
        unlimited: bool = flag() => false;
        /// concurrency and leaky-bucket with `share_by`: the share of a key of this tier, by that of a key without a
        /// tier. Default 1.
        weight: u32 = count(1, 1_000);
        + PARAMETERS;
    }
}

keys! {
    /// What a limit has beside its algorithm.
    pub(super) RATED: RatedKeys = "rates of a limit" {
        /// COUNT/PERIOD: a count from 1 to 10^9, a period from 1 ms to 366 days. Of a list (up to 32) all must
        /// admit. Required, but by concurrency.
        rate = RATES, example "\"10/s\"";
        /// concurrency with `max = "auto"`: the least that is found. Default 4.
        min: u32 = count(1, Cost::MAX as u64);
        /// concurrency with `max = "auto"`: the most that is found. Default 1000.
        ceiling: u32 = count(1, Cost::MAX as u64);
        /// What the limit gives consumers of each tier, by name. A consumer that changes its tier keeps its
        /// counter. Default: none.
        tiers = Schema::Map(ANY, &Schema::TextUpTo(256), &Schema::Table(&TIER));
        + PARAMETERS;
    }
}

/// A rate in the schema.
static RATE: NamedSchema = NamedSchema {
    name: "rate",
    description: "\"10/s\", \"100/min\", \"20/30s\", \"1/250ms\".",
    schema: Schema::Matching(r"^[0-9]+/([0-9]*(ms|s|min|h|day)|week|month|year)$|\$\{"),
};
/// A maximum in the schema.
const MAX: Schema = Schema::Either(&[Schema::Words(&["auto"]), Schema::Whole(1, Cost::MAX as u64)]);
/// One rate or several, in the schema.
const RATES: Schema = Schema::Either(&[Schema::Named(&RATE), Schema::Set((1, 32), &Schema::Named(&RATE))]);

/// One rate of a limit, as written, with its algorithm.
pub(super) struct Rated {
    pub(super) rate: String,
    pub(super) algorithm: Algorithm,
}

/// The rates of a limit with its algorithm, and those of its tiers.
pub(super) struct RatedLimit {
    pub(super) rates: Vec<Rated>,
    pub(super) tiers: Vec<RatedTier>,
}

/// What a limit gives consumers of one tier.
pub(super) struct RatedTier {
    pub(super) name: String,
    /// None if it is unlimited.
    pub(super) rates: Vec<Rated>,
    /// Its share of what is divided.
    pub(super) weight: NonZeroU32,
}

/// Reads a tier that the limit does not apply to: it has no other key. `None`: the limit applies.
pub(super) fn unlimited(table: &mut ConfigTable<'_>, name: &str) -> Option<RatedTier> {
    if !table.value(&TIER.unlimited) {
        return None;
    }
    for key in TIER.keys().into_iter().filter(|key| key.name() != TIER.unlimited.key.name) {
        let message = format!("`{}` means nothing to a tier that is unlimited", key.name());
        table.misplaced(key.name(), &message, "leave one of the two out");
    }
    Some(RatedTier { name: name.to_owned(), rates: Vec::new(), weight: NonZeroU32::MIN })
}

/// Reads `weight` of a tier of a limit that divides something, or does not.
pub(super) fn weight(table: &mut ConfigTable<'_>, shares: bool) -> NonZeroU32 {
    if !shares {
        let message = "`weight` divides nothing: the limit has no `share_by`";
        table.misplaced("weight", message, "write `share_by` in the limit, or leave it out");
    }
    table.get(&TIER.weight).and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

/// All parameters.
pub(super) const NAMES: [&str; 14] = [
    "rate",
    "burst",
    "max",
    "min",
    "ceiling",
    "queue",
    "max_wait",
    "align",
    "starts",
    "time_zone",
    "spacing",
    "count_denied",
    "share_by",
    "weight",
];

/// Parameters of other algorithms are errors: they would have no effect.
pub(super) fn refuse_foreign(table: &mut ConfigTable<'_>, algorithm: &str, own: &[&str]) {
    let takes = listed(own.iter().copied());
    for parameter in NAMES.into_iter().filter(|parameter| !own.contains(parameter)) {
        let message = format!("`{parameter}` means nothing to `{algorithm}`");
        table.misplaced(parameter, &message, &format!("`{algorithm}` takes {takes}"));
    }
}
