//! `algorithm` and its parameters: one algorithm a rate.

use super::diagnostics::Diagnostics;
use super::report::{SourceSpan, listed, quoted};
use super::table::ConfigTable;
use super::units;
use super::value::ConfigValue;
use crate::clock::micros;
use crate::labels::labels;
use crate::limit::units::{Cost, Micros, Rate};
use crate::limit::{Algorithm, Align};
use crate::store::MAX_CHARGES;

/// The default maximum delay of a request in a leaky bucket.
const DEFAULT_MAX_WAIT: Micros = Micros(10_000_000);

/// One rate of a limit, as written, with its algorithm.
pub(super) struct Rated {
    pub(super) rate: String,
    pub(super) algorithm: Algorithm,
}

labels! {
    enum Kind {
        TokenBucket = "token-bucket",
        Gcra = "gcra",
        LeakyBucket = "leaky-bucket",
        FixedWindow = "fixed-window",
        SlidingWindow = "sliding-window",
        SlidingLog = "sliding-log",
    }
}

const ALIGN: [(&str, Align); 2] = [("clock", Align::Clock), ("first-request", Align::FirstRequest)];
/// All parameters but `rate`, which every algorithm takes.
const PARAMETERS: [&str; 6] = ["burst", "queue", "max_wait", "align", "spacing", "count_denied"];

impl Kind {
    /// The [`PARAMETERS`] that it takes.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::TokenBucket | Self::Gcra => &["burst"],
            Self::LeakyBucket => &["queue", "max_wait"],
            Self::FixedWindow => &["align"],
            Self::SlidingWindow => &[],
            Self::SlidingLog => &["spacing", "count_denied"],
        }
    }
}

/// Reads the algorithm of a limit with its parameters. `None` if there are faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<Vec<Rated>> {
    let kind = table
        .require("algorithm", "\"token-bucket\"", |value| value.choice_now(&Kind::WORDS, &["concurrency"]));
    let Some(kind) = kind else {
        // Without it the other parameters cannot be interpreted, so only their names are registered.
        table.optional("rate", |value| rates(&value));
        table.ignore("max");
        table.skip(&PARAMETERS);
        return None;
    };
    refuse_foreign(table, kind);
    let rates = table.require("rate", "\"10/s\"", |value| rates(&value));
    let with = algorithm_maker(table, kind);
    let rated = |(written, rate, span): (String, Rate, SourceSpan)| {
        warn_of_month(kind, &written, rate, span, table.reader());
        Rated { rate: written, algorithm: with(rate) }
    };
    Some(rates?.into_iter().map(rated).collect())
}

/// A period that users write for a month, which it is not.
fn warn_of_month(kind: Kind, written: &str, rate: Rate, span: SourceSpan, reader: &Diagnostics<'_>) {
    const DAY: u64 = 86_400_000_000;
    let Micros(period) = rate.period();
    let days = period / DAY;
    if !period.is_multiple_of(DAY) || !((28..=31).contains(&days) || days > 31 && days.is_multiple_of(30)) {
        return;
    }
    let meaning = match kind {
        Kind::FixedWindow | Kind::SlidingWindow => {
            format!("a window of {days} days, counted from 1 January 1970")
        }
        _ => format!("a period of {days} days"),
    };
    let message = format!("{} is not a month: it is {meaning}", quoted(written));
    reader.warn(span, message, "`/month` is not available in this version of tollgate");
}

/// Parameters of other algorithms are errors: they would have no effect.
fn refuse_foreign(table: &mut ConfigTable<'_>, kind: Kind) {
    let own = kind.parameters();
    let takes = listed(["rate"].into_iter().chain(own.iter().copied()));
    for parameter in PARAMETERS.into_iter().filter(|parameter| !own.contains(parameter)) {
        let message = format!("`{parameter}` means nothing to `{}`", kind.as_str());
        table.misplaced(parameter, &message, &format!("`{}` takes {takes}", kind.as_str()));
    }
}

/// Reads the parameters beside `rate`. Returns a function that makes the algorithm for a rate.
fn algorithm_maker(table: &mut ConfigTable<'_>, kind: Kind) -> Box<dyn Fn(Rate) -> Algorithm> {
    match kind {
        Kind::TokenBucket => {
            let burst = table.optional("burst", |value| units(&value));
            Box::new(move |rate| Algorithm::token_bucket(rate, burst.unwrap_or(count_of(rate))))
        }
        Kind::Gcra => {
            let burst = table.or("burst", Cost::ONE, |value| units(&value));
            Box::new(move |rate| Algorithm::gcra(rate, burst))
        }
        Kind::LeakyBucket => {
            let queue = table.optional("queue", |value| units(&value));
            let max_wait = table.or("max_wait", DEFAULT_MAX_WAIT, |value| value.duration().map(micros));
            Box::new(move |rate| Algorithm::leaky_bucket(rate, queue.unwrap_or(count_of(rate)), max_wait))
        }
        Kind::FixedWindow => {
            let align = table.or("align", Align::Clock, |value| value.choice(&ALIGN));
            Box::new(move |rate| Algorithm::fixed_window(rate, align))
        }
        Kind::SlidingWindow => Box::new(Algorithm::sliding_window),
        Kind::SlidingLog => {
            let spacing = table.optional("spacing", |value| value.duration().map(micros));
            let count_denied = table.or("count_denied", false, |value| value.boolean());
            Box::new(move |rate| Algorithm::sliding_log(rate, spacing, count_denied))
        }
    }
}

/// A rate's count as a burst or a queue.
fn count_of(rate: Rate) -> Cost {
    // A rate's count has the range of a cost.
    Cost::new(rate.count()).unwrap_or(Cost::ONE)
}

fn units(value: &ConfigValue<'_>) -> Option<Cost> {
    Cost::new(value.count(1, Cost::MAX)?)
}

/// One rate or a list of them; none twice.
fn rates(value: &ConfigValue<'_>) -> Option<Vec<(String, Rate, SourceSpan)>> {
    if !value.is_list() {
        return one_rate(value).map(|rate| vec![rate]);
    }
    let mut rates: Vec<(String, Rate, SourceSpan)> = Vec::new();
    value.some_of(|item| {
        let (written, rate, span) = one_rate(&item)?;
        if let Some((other, ..)) = rates.iter().find(|(_, other, _)| *other == rate) {
            item.fault(
                format!("the rates {} and {} are the same", quoted(other), quoted(&written)),
                "leave one of the two out",
            );
        }
        rates.push((written, rate, span));
        Some(())
    })?;
    if rates.len() > MAX_CHARGES {
        value.fault("more rates than a limit may have", format!("name at most {MAX_CHARGES}"));
    }
    Some(rates)
}

fn one_rate(value: &ConfigValue<'_>) -> Option<(String, Rate, SourceSpan)> {
    if !value.is_text() {
        return value.mismatch("a rate", "write it in quotes, with its period: `\"10/s\"`");
    }
    let text = value.text()?;
    let rate = text.parse("a rate", units::rate)?;
    Some((text.into_string(), rate, value.span()))
}
