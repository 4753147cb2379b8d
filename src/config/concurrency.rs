//! The parameters of a concurrency limit, which has no rate.

use super::name;
use super::rated::{self, PARAMETERS, RATED, Rated, RatedLimit};
use super::report::quoted;
use super::table::ConfigTable;
use super::value::Entry;
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::units::{Cost, Micros};

/// The algorithm's name.
pub(super) const NAME: &str = "concurrency";

const OWN: [&str; 3] = ["max", "queue", "max_wait"];
/// The default maximum wait of a request for a place.
const DEFAULT_MAX_WAIT: Micros = Micros::SECOND;

/// The parameters, as far as they are written.
#[derive(Clone, Copy)]
struct Parameters {
    max: Option<Cost>,
    queue: Option<u32>,
    max_wait: Option<Micros>,
}

/// Reads the parameters of a limit and its tiers. `None` if there are faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<RatedLimit> {
    rated::refuse_foreign(table, NAME, &OWN);
    let max = table.require(&PARAMETERS.max, |value| Cost::new(PARAMETERS.max.value.read(&value)?));
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
    let tiers: Vec<_> = tiers.iter().map(|entry| tier(entry, &limit)).collect();
    Some(RatedLimit { rates: vec![limit.rated()?], tiers: tiers.into_iter().collect::<Option<_>>()? })
}

/// Reads a tier: what it does not write is the limit's.
fn tier(entry: &Entry<'_>, limit: &Parameters) -> Option<(String, Vec<Rated>)> {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut table = entry.value.table(&quoted(&format!("[limits.*.tiers.{}]", entry.key)))?;
    rated::refuse_foreign(&mut table, NAME, &OWN);
    let max = table.get(&PARAMETERS.max).and_then(Cost::new);
    let own = Parameters { max, ..Parameters::read(&mut table) };
    table.finish().then_some(())?;
    let tier = Parameters {
        max: own.max.or(limit.max),
        queue: own.queue.or(limit.queue),
        max_wait: own.max_wait.or(limit.max_wait),
    };
    Some((entry.key.to_owned(), vec![tier.rated()?]))
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
        let algorithm = Algorithm::concurrency(self.max?, queue, max_wait);
        Some(Rated { rate: String::new(), algorithm })
    }
}
