//! `algorithm` and its parameters: one algorithm a rate.

use std::time::Duration;

use super::calendar::{CalendarRate, CalendarSettings};
use super::concurrency;
use super::diagnostics::Diagnostics;
use super::keys::{choice, keys};
use super::name;
use super::rated::{self, NAMES, PARAMETERS, RATED, Rated, RatedLimit, RatedTier, TIER, refuse_foreign};
use super::report::{SourceSpan, quoted};
use super::table::ConfigTable;
use super::units;
use super::value::{ConfigValue, Entry};
use crate::clock::micros;
use crate::labels::labels;
use crate::limit::Algorithm;
use crate::limit::calendar::CalendarUnit;
use crate::limit::units::{Cost, Micros, Rate};
use crate::store::MAX_CHARGES;

keys! {
    /// The algorithm of a limit.
    pub(super) ALGORITHM: AlgorithmKeys = "algorithm of a limit" {
        /// token-bucket: bursts pass, the average holds. gcra: evenly spaced. leaky-bucket: requests wait for their
        /// turn. fixed-window: a count that starts afresh. sliding-window: the last window counts in proportion.
        /// sliding-log: exact. concurrency: requests in flight.
        algorithm: Option<RatedAlgorithm> = choice(&ALGORITHMS), required "\"token-bucket\"";
    }
}

/// The default maximum delay of a request in a leaky bucket.
const DEFAULT_MAX_WAIT: Micros = Micros(10_000_000);

labels! {
    /// An algorithm with a rate.
    pub(super) enum RatedAlgorithm {
        TokenBucket = "token-bucket",
        Gcra = "gcra",
        LeakyBucket = "leaky-bucket",
        FixedWindow = "fixed-window",
        SlidingWindow = "sliding-window",
        SlidingLog = "sliding-log",
    }
}

/// The values of `algorithm`; `None` is that without a rate.
pub(super) const ALGORITHMS: [(&str, Option<RatedAlgorithm>); 7] = {
    let mut all = [(concurrency::NAME, None); 7];
    let mut at = 0;
    while at < RatedAlgorithm::WORDS.len() {
        all[at] = (RatedAlgorithm::WORDS[at].0, Some(RatedAlgorithm::WORDS[at].1));
        at += 1;
    }
    all
};

impl RatedAlgorithm {
    /// The names of the parameters that it takes.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::TokenBucket | Self::Gcra => &["rate", "burst"],
            Self::LeakyBucket => &["rate", "queue", "max_wait", "share_by"],
            Self::FixedWindow => &["rate", "align", "starts", "time_zone"],
            Self::SlidingWindow => &["rate"],
            Self::SlidingLog => &["rate", "spacing", "count_denied"],
        }
    }

    /// The names of the parameters that its tiers take.
    fn parameters_of_tiers(self) -> &'static [&'static str] {
        match self {
            Self::LeakyBucket => &["rate", "queue", "max_wait", "weight"],
            other => other.parameters(),
        }
    }
}

/// A rate of the file.
struct FileRate {
    text: String,
    rate: Rate,
    /// Of `/month` and `/year`.
    unit: Option<CalendarUnit>,
    span: SourceSpan,
}

impl FileRate {
    fn has_window_of(&self, other: &Self) -> bool {
        self.rate.period() == other.rate.period() && self.unit == other.unit
    }

    fn of_calendar(&self) -> CalendarRate<'_> {
        CalendarRate { text: &self.text, rate: self.rate, unit: self.unit, span: self.span }
    }
}

/// Reads the algorithm of a limit with its parameters and its tiers. `None` if there are faults.
pub(super) fn read(table: &mut ConfigTable<'_>) -> Option<RatedLimit> {
    let kind = table.require(&ALGORITHM.algorithm, |value| ALGORITHM.algorithm.value.read(&value));
    let Some(kind) = kind else {
        // Without it the other parameters cannot be interpreted, so only their names are registered.
        table.optional(&RATED.rate, |value| rates(&value));
        table.skip(&NAMES);
        table.skip(&["tiers"]);
        return None;
    };
    let Some(kind) = kind else {
        return concurrency::read(table);
    };
    refuse_foreign(table, kind.as_str(), kind.parameters());
    let rates = table.require(&RATED.rate, |value| rates(&value));
    let rates = rates.filter(|_| !table.is_uncertain("rate"));
    let parameters = Parameters::read(table, kind);
    let tiers = table.optional(&RATED.tiers, |value| value.entries()).unwrap_or_default();
    let shares = table.given("share_by").is_some();
    let tier = |entry| tier(entry, kind, (&parameters, shares), rates.as_deref());
    let tiers: Vec<_> = tiers.iter().map(tier).collect();
    let rates = rates?;
    let of_tiers = tiers.iter().flatten().flat_map(|(_, rates)| rates);
    let all = rates.iter().chain(of_tiers).map(FileRate::of_calendar);
    parameters.calendar.check(all, table.diagnostics());
    let rated = |written: &FileRate| {
        warn_of_month(kind, written, table.diagnostics());
        let algorithm = parameters.algorithm(kind, written, table.diagnostics())?;
        Some(Rated { algorithm, rate: written.text.clone() })
    };
    let rates: Vec<_> = rates.iter().map(rated).collect();
    let rates = rates.into_iter().collect::<Option<_>>()?;
    let tiers = tiers.into_iter().map(|tier| Some(tier?.0)).collect::<Option<_>>()?;
    Some(RatedLimit { rates, tiers })
}

/// Reads a tier, and the rates that it writes itself: what it does not write is the limit's. `limit` are the rates of the
/// limit, if they are sound.
fn tier(
    entry: &Entry<'_>,
    kind: RatedAlgorithm,
    (inherited, shares): (&Parameters, bool),
    limit: Option<&[FileRate]>,
) -> Option<(RatedTier, Vec<FileRate>)> {
    name::check_label(entry.key, entry.key_span, entry.value.diagnostics());
    let mut table = entry.value.table(&quoted(&format!("[limits.*.tiers.{}]", entry.key)))?;
    if let Some(tier) = rated::unlimited(&mut table, entry.key) {
        return table.finish().then_some((tier, Vec::new()));
    }
    refuse_foreign(&mut table, kind.as_str(), kind.parameters_of_tiers());
    let own = table.optional(&TIER.rate, |value| rates(&value));
    let parameters = Parameters::read(&mut table, kind).or(inherited);
    let weight = rated::weight(&mut table, shares || kind != RatedAlgorithm::LeakyBucket);
    for key in ["align", "starts", "time_zone"] {
        if let Some(span) = table.given(key) {
            let message = format!("all tiers of a limit have one `{key}`");
            table.diagnostics().fault(span, message, "write it in the limit itself");
        }
    }
    table.finish().then_some(())?;
    let limit = limit?;
    let own = own.unwrap_or_default();
    let rates = if own.is_empty() { limit } else { &own };
    let is_other = |rate: &&FileRate| !limit.iter().any(|own| own.has_window_of(rate));
    if kind == RatedAlgorithm::LeakyBucket
        && shares
        && let Some(rate) = rates.iter().find(is_other)
    {
        let message =
            format!("the rate {} has another period than the one that is divided", quoted(&rate.text));
        let help = "give all tiers of a limit with `share_by` its period";
        entry.value.diagnostics().fault(rate.span, message, help);
    }
    let diagnostics = entry.value.diagnostics();
    own.iter().for_each(|written| warn_of_month(kind, written, diagnostics));
    let rated = |written: &FileRate| {
        let algorithm = parameters.algorithm(kind, written, diagnostics)?;
        Some(Rated { rate: written.text.clone(), algorithm })
    };
    let rates = rates.iter().map(rated).collect::<Option<_>>()?;
    Some((RatedTier { name: entry.key.to_owned(), rates, weight }, own))
}

/// A period that users write for a month, which it is not.
fn warn_of_month(kind: RatedAlgorithm, written: &FileRate, diagnostics: &Diagnostics<'_>) {
    const DAY: u64 = 86_400_000_000;
    let Micros(period) = written.rate.period();
    let days = period / DAY;
    if written.unit.is_some()
        || !period.is_multiple_of(DAY)
        || !((28..=31).contains(&days) || days > 31 && days.is_multiple_of(30))
    {
        return;
    }
    let meaning = match kind {
        RatedAlgorithm::FixedWindow | RatedAlgorithm::SlidingWindow => {
            format!("a window of {days} days, counted from 1 January 1970")
        }
        _ => format!("a period of {days} days"),
    };
    let message = format!("{} is not a month: it is {meaning}", quoted(&written.text));
    diagnostics.warn(
        written.span,
        message,
        "write `/month` in a `fixed-window` for the months of the calendar",
    );
}

/// The parameters beside `rate`, as far as they are written.
#[derive(Clone, Copy, Default)]
struct Parameters {
    /// `burst` or `queue`.
    units: Option<Cost>,
    max_wait: Option<Micros>,
    calendar: CalendarSettings,
    spacing: Option<Micros>,
    count_denied: Option<bool>,
}

impl Parameters {
    fn read(table: &mut ConfigTable<'_>, kind: RatedAlgorithm) -> Self {
        let mut written = Self::default();
        match kind {
            RatedAlgorithm::TokenBucket | RatedAlgorithm::Gcra => {
                written.units = table.get(&PARAMETERS.burst).and_then(Cost::new)
            }
            RatedAlgorithm::LeakyBucket => {
                written.units =
                    table.optional(&PARAMETERS.queue, |value| Cost::new(value.count(1, Cost::MAX)?));
                written.max_wait = table.get(&PARAMETERS.max_wait).map(micros);
            }
            RatedAlgorithm::FixedWindow => written.calendar = CalendarSettings::read(table),
            RatedAlgorithm::SlidingWindow => {}
            RatedAlgorithm::SlidingLog => {
                written.spacing = table.get(&PARAMETERS.spacing).map(micros);
                written.count_denied = table.get(&PARAMETERS.count_denied);
            }
        }
        written
    }

    /// These, or where they are not written the other ones.
    fn or(self, other: &Self) -> Self {
        Self {
            units: self.units.or(other.units),
            max_wait: self.max_wait.or(other.max_wait),
            calendar: self.calendar.or(other.calendar),
            spacing: self.spacing.or(other.spacing),
            count_denied: self.count_denied.or(other.count_denied),
        }
    }

    /// The algorithm for a rate. `None` if there are faults.
    fn algorithm(
        &self,
        kind: RatedAlgorithm,
        written: &FileRate,
        diagnostics: &Diagnostics<'_>,
    ) -> Option<Algorithm> {
        let rate = written.rate;
        if kind != RatedAlgorithm::FixedWindow
            && let Some(unit) = written.unit
        {
            let message = format!(
                "{} is of the calendar, which `{}` does not know",
                quoted(&written.text),
                kind.as_str()
            );
            let help = format!("write `algorithm = \"fixed-window\"`, or days instead of a {}", unit.word());
            diagnostics.fault(written.span, message, help);
            return None;
        }
        Some(match kind {
            RatedAlgorithm::TokenBucket => {
                Algorithm::token_bucket(rate, self.units.unwrap_or(count_of(rate)))
            }
            RatedAlgorithm::Gcra => Algorithm::gcra(rate, self.units.unwrap_or(Cost::ONE)),
            RatedAlgorithm::LeakyBucket => {
                let max_wait = self.max_wait.unwrap_or(DEFAULT_MAX_WAIT);
                can_wait(written, max_wait, diagnostics);
                Algorithm::leaky_bucket(rate, self.units.unwrap_or(count_of(rate)), max_wait)
            }
            RatedAlgorithm::FixedWindow => {
                Algorithm::fixed_window(rate, self.calendar.align(&written.of_calendar(), diagnostics)?)
            }
            RatedAlgorithm::SlidingWindow => Algorithm::sliding_window(rate),
            RatedAlgorithm::SlidingLog => {
                Algorithm::sliding_log(rate, self.spacing, self.count_denied.unwrap_or(false))
            }
        })
    }
}

/// Warns of a leaky bucket that no request can wait in.
fn can_wait(written: &FileRate, max_wait: Micros, diagnostics: &Diagnostics<'_>) {
    let interval = Duration::from_micros(written.rate.period().0) / written.rate.count();
    let max_wait = Duration::from_micros(max_wait.0);
    if max_wait < interval {
        let rate = quoted(&written.text);
        let message = format!(
            "no request waits: at {rate} one leaves every {interval:?}, but `max_wait` is {max_wait:?}"
        );
        let help = "write a longer `max_wait`, or `algorithm = \"gcra\"`, which never lets a request wait";
        diagnostics.warn(written.span, message, help);
    }
}

/// A rate's count as a burst or a queue.
fn count_of(rate: Rate) -> Cost {
    // A rate's count has the range of a cost.
    Cost::new(rate.count()).unwrap_or(Cost::ONE)
}

/// One rate or a list of them; none twice.
fn rates(value: &ConfigValue<'_>) -> Option<Vec<FileRate>> {
    if !value.is_list() {
        return one_rate(value).map(|rate| vec![rate]);
    }
    let mut rates: Vec<FileRate> = Vec::new();
    value.some_of(|item| {
        let written = one_rate(&item)?;
        if let Some(other) =
            rates.iter().find(|other| other.rate == written.rate && other.unit == written.unit)
        {
            item.fault(
                format!("the rates {} and {} are the same", quoted(&other.text), quoted(&written.text)),
                "leave one of the two out",
            );
        } else if let Some(other) =
            rates.iter().find(|other| other.has_window_of(&written) && other.rate != written.rate)
        {
            let (lower, higher) =
                if other.rate.count() < written.rate.count() { (other, &written) } else { (&written, other) };
            value.diagnostics().warn(
                higher.span,
                format!("the rate {} never decides: {} is lower", quoted(&higher.text), quoted(&lower.text)),
                "leave it out, or give it another period",
            );
        }
        rates.push(written);
        Some(())
    })?;
    if rates.len() > MAX_CHARGES {
        value.fault("more rates than a limit may have", format!("name at most {MAX_CHARGES}"));
    }
    Some(rates)
}

fn one_rate(value: &ConfigValue<'_>) -> Option<FileRate> {
    if !value.is_text() {
        return value.mismatch("a rate", "write it in quotes, with its period: `\"10/s\"`");
    }
    let text = value.text()?;
    let (rate, unit) = text.parse("a rate", units::rate)?;
    Some(FileRate { text: text.into_string(), rate, unit, span: value.span() })
}
