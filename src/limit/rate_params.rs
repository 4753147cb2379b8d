//! Rates and periods, as text and as in the file.

use std::fmt::{self, Display, Formatter};

use super::units::{Micros, Rate};

/// A rate as in the file: `10/s`, `20/30s`.
pub(super) struct WrittenRate(pub(super) Rate);

impl Display for WrittenRate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let period = self.0.period().0;
        let units = [(DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (1_000, "ms")];
        // Periods are whole milliseconds.
        let (unit, name) =
            units.into_iter().find(|(unit, _)| period.is_multiple_of(*unit)).unwrap_or((1, "us"));
        match period / unit {
            1 => write!(f, "{}/{name}", self.0.count()),
            several => write!(f, "{}/{several}{name}", self.0.count()),
        }
    }
}

/// Up to `burst` at once, and then the interval.
pub(super) fn burst(f: &mut Formatter<'_>, rate: Rate, burst: u32) -> fmt::Result {
    match burst {
        1 => Interval(rate).fmt(f),
        _ => write!(f, "{burst} at once, then {}", Interval(rate)),
    }
}

/// `one every 100 ms`, or `7 every minute` if the interval of one is not a whole number of µs.
pub(super) struct Interval(pub(super) Rate);

impl Display for Interval {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (period, count) = (self.0.period(), u64::from(self.0.count()));
        if period.0.is_multiple_of(count) {
            write!(f, "one every {}", PerUnit(Micros(period.0 / count)))
        } else {
            write!(f, "{count} every {}", PerUnit(period))
        }
    }
}

/// A span after `every`, `each` or `any`: `minute`, `100 ms`.
pub(super) struct PerUnit(pub(super) Micros);

impl Display for PerUnit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match single(self.0) {
            Some(unit) => f.write_str(unit),
            None => measured(f, self.0),
        }
    }
}

/// A span that stands alone: `a minute`, `100 ms`.
pub(super) struct Window(pub(super) Micros);

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match single(self.0) {
            Some("hour") => f.write_str("an hour"),
            Some(unit) => write!(f, "a {unit}"),
            None => measured(f, self.0),
        }
    }
}

pub(super) const SECOND: u64 = Micros::SECOND.0;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

fn single(span: Micros) -> Option<&'static str> {
    match span.0 {
        SECOND => Some("second"),
        MINUTE => Some("minute"),
        HOUR => Some("hour"),
        DAY => Some("day"),
        _ => None,
    }
}

/// The exact number of the largest unit without a fraction; below a minute, of the largest unit that is reached.
fn measured(f: &mut Formatter<'_>, Micros(span): Micros) -> fmt::Result {
    match span {
        0 => f.write_str("0 s"),
        _ if span.is_multiple_of(DAY) => write!(f, "{} days", span / DAY),
        _ if span.is_multiple_of(HOUR) => write!(f, "{} hours", span / HOUR),
        _ if span.is_multiple_of(MINUTE) => write!(f, "{} minutes", span / MINUTE),
        SECOND.. => decimal(f, span, SECOND, 6, "s"),
        1_000.. => decimal(f, span, 1_000, 3, "ms"),
        _ => write!(f, "{span} µs"),
    }
}

fn decimal(f: &mut Formatter<'_>, span: u64, unit: u64, digits: usize, name: &str) -> fmt::Result {
    let fraction = format!("{:0digits$}", span % unit);
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{} {name}", span / unit),
        fraction => write!(f, "{}.{fraction} {name}", span / unit),
    }
}
