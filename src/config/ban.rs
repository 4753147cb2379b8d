//! `ban` of a limit.

use std::time::Duration;

use super::diagnostics::Diagnostics;
use super::keys::{Schema, count, duration, keys};
use super::report::SourceSpan;
use super::value::ConfigValue;
use crate::clock::micros;
use crate::limit::Algorithm;
use crate::limit::ban::Ban;
use crate::limit::units::{Micros, Rate};
use crate::plan::{BanCounter, LimitBan, policy};
use crate::route::key::{Key, Missing, Part};
use crate::store::OnError;

keys! {
    /// After too many refusals of a key within a span, all its requests under this limit are refused for a time.
    /// Default: none.
    pub(super) BAN: BanKeys = "ban" {
        /// The refusals that begin a ban, 1 to 10,000.
        after: u32 = count(1, Ban::MAX_AFTER as u64), required "20";
        /// The span in which they come, such as "10min".
        within: Duration = duration(), required "\"10min\"";
        /// How long a ban lasts. Of a list (up to 8) each further ban takes the next. Forgotten ten times the
        /// longest after the last ban has ended.
        span as "for" = Schema::Either(&[Schema::Duration, Schema::List((1, 8), &Schema::Duration)]), required "\"1h\"";
    }
}

/// The `ban` of a limit, as written.
pub(super) struct BanDraft {
    algorithm: Algorithm,
    span: SourceSpan,
}

/// Reads `ban = { after = 20, within = "10min", for = "1h" }`.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<BanDraft> {
    let mut table = value.table("`ban`")?;
    let after = table.require(&BAN.after, |value| value.count(1, Ban::MAX_AFTER));
    let within = table.require(&BAN.within, |value| span(&value));
    let spans = table.require(&BAN.span, |value| spans(&value));
    table.finish().then_some(())?;
    let algorithm = Algorithm::ban(after?, within?, &spans?)?;
    Some(BanDraft { algorithm, span: value.span() })
}

impl BanDraft {
    /// The ban of the limit `name`, which counts by `key`.
    pub(super) fn of(
        self,
        name: &str,
        key: &Key,
        on_error: OnError,
        diagnostics: &Diagnostics<'_>,
    ) -> LimitBan {
        self.check(key, diagnostics);
        let counter = |index| {
            let (shared_key, params) = policy::counters(name, &self.algorithm, key, index, on_error);
            BanCounter { params, shared_key }
        };
        LimitBan { enforced: counter(0), in_shadow: counter(1), algorithm: self.algorithm }
    }

    /// A ban is of a client: of a key that all clients share, it would lock out all of them.
    fn check(&self, key: &Key, diagnostics: &Diagnostics<'_>) {
        let is_proven = |part: &Part| part.is_of_client() && !part.invented_by_client();
        if !key.parts.iter().any(Part::is_of_client) {
            diagnostics.fault(
                self.span,
                "a ban needs a key that tells clients apart: one client would lock out all others",
                "count by `ip` or `consumer`, or leave `ban` out",
            );
        } else if let Some(part) = key.parts.iter().find(|part| part.invented_by_client())
            && !key.parts.iter().any(is_proven)
        {
            diagnostics.warn(
                self.span,
                format!("any client can send the `{part}` of another client, and so lock that client out"),
                "count by `ip` or `consumer`, or add `ip` to the key",
            );
        }
        if key.may_be_missing() && key.missing == Missing::Shared && !key.parts.iter().any(Part::is_address) {
            diagnostics.warn(
                self.span,
                "all requests without the key share one counter (`missing = \"shared\"`): one ban locks all of them out",
                "write another `missing`, such as `\"ip\"`, or add `ip` to the key",
            );
        }
    }
}

/// One span or a list of them.
fn spans(value: &ConfigValue<'_>) -> Option<Vec<Micros>> {
    if !value.is_list() {
        return span(value).map(|span| vec![span]);
    }
    let mut spans = Vec::new();
    value.some_of(|item| {
        spans.push(span(&item)?);
        Some(())
    })?;
    if spans.len() > Ban::MAX_SPANS {
        value.fault("more spans than a ban may have", format!("name at most {}", Ban::MAX_SPANS));
        return None;
    }
    Some(spans)
}

/// A span has the range of a period.
fn span(value: &ConfigValue<'_>) -> Option<Micros> {
    let duration = value.duration()?;
    let range = [Rate::MIN_PERIOD, Rate::MAX_PERIOD].map(|span| Duration::from_micros(span.0));
    if !(range[0]..=range[1]).contains(&duration) {
        value.fault("a ban lasts 1 ms to 366 days", "write another span, such as `\"1h\"`");
        return None;
    }
    Some(micros(duration))
}
