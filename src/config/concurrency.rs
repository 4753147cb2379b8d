//! The parameters of a concurrency limit, which has no rate.

use super::name;
use super::rated::{self, PARAMETERS, RATED, Rated, RatedLimit, RatedTier};
use super::report::quoted;
use super::table::ConfigTable;
use super::value::{ConfigValue, Entry};
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::units::{Cost, Micros};

/// The algorithm's name.
pub(super) const NAME: &str = "concurrency";

const OWN: [&str; 6] = ["max", "min", "ceiling", "queue", "max_wait", "share_by"];
/// Those of a tier.
const OWN_OF_TIERS: [&str; 4] = ["max", "queue", "max_wait", "weight"];
/// The default maximum wait of a request for a place.
const DEFAULT_MAX_WAIT: Micros = Micros::SECOND;
/// The default bounds of a maximum that is found.
const DEFAULT_BOUNDS: (u32, u32) = (4, 1_000);

/// The parameters, as far as they are written.
#[derive(Clone, Copy)]
struct Parameters {
    max: Option<Maximum>,
    queue: Option<u32>,
    max_wait: Option<Micros>,
}

/// How many requests may be in flight.
#[derive(Clone, Copy)]
enum Maximum {
    Written(Cost),
    /// Found between these.
    Found(Cost, Cost),
}

/// Reads the parameters of a limit and its tiers. `None` if there are faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<RatedLimit> {
    rated::refuse_foreign(table, NAME, &OWN);
    let max = table.require(&PARAMETERS.max, |value| maximum(&value));
    let max = bounded(table, max);
    let span = table.given("max_wait");
    let limit = Parameters { max, ..Parameters::read(table) };
    let tiers = table.optional(&RATED.tiers, |value| value.entries()).unwrap_or_default();
    if let (Some(span), None | Some(0), []) = (span, limit.queue, &*tiers)
        && !table.is_uncertain("queue")
    {
        table.diagnostics().warn(
            span,
            "`max_wait` has no effect without `queue`: no request waits",
            "write `queue`, the number of requests of a key that may wait, or leave `max_wait` out",
        );
    }
    let shares = table.given("share_by").is_some();
    let tiers: Vec<_> = tiers.iter().map(|entry| tier(entry, &limit, shares)).collect();
    Some(RatedLimit { rates: vec![limit.rated()?], tiers: tiers.into_iter().collect::<Option<_>>()? })
}

/// A number, or `"auto"`.
fn maximum(value: &ConfigValue<'_>) -> Option<Maximum> {
    if value.is_text() {
        let (min, ceiling) = DEFAULT_BOUNDS;
        return value.choice(&[("auto", Maximum::Found(Cost::new(min)?, Cost::new(ceiling)?))]);
    }
    let number = value.whole(1..=u64::from(Cost::MAX))?;
    Some(Maximum::Written(Cost::new(u32::try_from(number).ok()?)?))
}

/// The maximum within the bounds that the table has.
fn bounded(table: &mut ConfigTable<'_>, max: Option<Maximum>) -> Option<Maximum> {
    if max.is_none() || table.is_uncertain("max") {
        // Whether they bound anything is not known.
        table.get(&RATED.min);
        table.get(&RATED.ceiling);
        return max;
    }
    let Some(Maximum::Found(min, ceiling)) = max else {
        for bound in ["min", "ceiling"] {
            let message = format!("`{bound}` bounds a maximum that is found");
            table.misplaced(bound, &message, "write `max = \"auto\"`, or leave it out");
        }
        return max;
    };
    let span = table.given_value("ceiling").or(table.given_value("min"));
    let min = table.get(&RATED.min).and_then(Cost::new).unwrap_or(min);
    let ceiling = table.get(&RATED.ceiling).and_then(Cost::new).unwrap_or(ceiling);
    if let Some(span) = span.filter(|_| ceiling < min) {
        let (min, ceiling) = (min.units(), ceiling.units());
        let message = format!("`ceiling` ({ceiling}) is below `min` ({min})");
        table.diagnostics().fault(span, message, "write a `ceiling` of at least `min`");
    }
    Some(Maximum::Found(min, ceiling))
}

/// Reads a tier: what it does not write is the limit's.
fn tier(entry: &Entry<'_>, limit: &Parameters, shares: bool) -> Option<RatedTier> {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut table = entry.value.table(&quoted(&format!("[limits.*.tiers.{}]", entry.key)))?;
    if let Some(tier) = rated::unlimited(&mut table, entry.key) {
        return table.finish().then_some(tier);
    }
    for bound in ["min", "ceiling", "share_by"] {
        let message = format!("`{bound}` is that of the limit, for all its tiers");
        table.misplaced(bound, &message, "write it in the limit");
    }
    rated::refuse_foreign(&mut table, NAME, &OWN_OF_TIERS);
    let weight = rated::weight(&mut table, shares);
    let written = table.given_value("max");
    let max = table.optional(&PARAMETERS.max, |value| maximum(&value));
    if let (Some(span), Some(_)) = (written, max)
        && matches!((limit.max, max), (Some(Maximum::Found(..)), _) | (_, Some(Maximum::Found(..))))
    {
        let message = "a maximum that is found is that of all tiers";
        table.diagnostics().fault(span, message, "write `max` in the limit only");
    }
    let own = Parameters { max, ..Parameters::read(&mut table) };
    table.finish().then_some(())?;
    let tier = Parameters {
        max: own.max.or(limit.max),
        queue: own.queue.or(limit.queue),
        max_wait: own.max_wait.or(limit.max_wait),
    };
    Some(RatedTier { name: entry.key.to_owned(), rates: vec![tier.rated()?], weight })
}

impl Parameters {
    /// All but `max`.
    fn read(table: &mut ConfigTable<'_>) -> Self {
        let queue = table.get(&PARAMETERS.queue);
        let max_wait = table.get(&PARAMETERS.max_wait).map(micros);
        Self { max: None, queue, max_wait }
    }

    fn rated(&self) -> Option<Rated> {
        let (queue, max_wait) = (self.queue.unwrap_or(0), self.max_wait.unwrap_or(DEFAULT_MAX_WAIT));
        let algorithm = match self.max? {
            Maximum::Written(max) => Algorithm::concurrency(max, queue, max_wait),
            Maximum::Found(min, ceiling) => Algorithm::adaptive_concurrency(min, ceiling, queue, max_wait),
        };
        Some(Rated { rate: String::new(), algorithm })
    }
}
