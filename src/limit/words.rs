//! What a limit means, in words: `50 at once, then one every 100 ms`.

use std::fmt::{self, Display, Formatter};

use super::units::{Micros, Rate};
use super::{Algorithm, Align};

impl Display for Algorithm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket(limit) => burst(f, limit.rate, limit.burst.units()),
            Self::Gcra(limit) => burst(f, limit.rate, limit.burst.units()),
            Self::LeakyBucket(limit) => {
                let (pace, wait) = (Pace(limit.rate), Span(limit.max_wait));
                write!(f, "{pace} in turn, up to {} waiting, at most {wait}", limit.queue.units())
            }
            Self::FixedWindow(limit) => {
                let align = match limit.align {
                    Align::Clock => "clock-aligned",
                    Align::FirstRequest => "from the first request",
                };
                write!(f, "{} in each {} ({align})", limit.rate.count(), Each(limit.rate.period()))
            }
            Self::SlidingWindow(limit) => {
                write!(f, "{} in any {}, weighted", limit.rate.count(), Each(limit.rate.period()))
            }
            Self::SlidingLog(limit) => {
                write!(f, "{} in any {}, exactly", limit.rate.count(), Each(limit.rate.period()))?;
                if let Some(spacing) = limit.spacing {
                    write!(f, ", at least {} apart", Span(spacing))?;
                }
                if limit.count_denied { f.write_str(", refused attempts count too") } else { Ok(()) }
            }
        }
    }
}

/// A limit as short as in the file: `10/s, burst 50`.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a>(pub &'a Algorithm);

impl Display for Short<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Algorithm::TokenBucket(limit) => {
                write!(f, "{}, burst {}", Written(limit.rate), limit.burst.units())
            }
            Algorithm::Gcra(limit) => write!(f, "{}, burst {}", Written(limit.rate), limit.burst.units()),
            Algorithm::LeakyBucket(limit) => {
                write!(f, "{}, queue {}", Written(limit.rate), limit.queue.units())
            }
            Algorithm::FixedWindow(limit) => Written(limit.rate).fmt(f),
            Algorithm::SlidingWindow(limit) => Written(limit.rate).fmt(f),
            Algorithm::SlidingLog(limit) => Written(limit.rate).fmt(f),
        }
    }
}

/// A rate as in the file: `10/s`, `20/30s`.
struct Written(Rate);

impl Display for Written {
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

fn burst(f: &mut Formatter<'_>, rate: Rate, burst: u32) -> fmt::Result {
    match burst {
        1 => Pace(rate).fmt(f),
        _ => write!(f, "{burst} at once, then {}", Pace(rate)),
    }
}

/// `one every 100 ms`, or `7 every minute` where one of them takes no whole number of µs.
struct Pace(Rate);

impl Display for Pace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (period, count) = (self.0.period(), u64::from(self.0.count()));
        if period.0.is_multiple_of(count) {
            write!(f, "one every {}", Each(Micros(period.0 / count)))
        } else {
            write!(f, "{count} every {}", Each(period))
        }
    }
}

/// A span after `every`, `each` or `any`: `minute`, `100 ms`.
struct Each(Micros);

impl Display for Each {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match single(self.0) {
            Some(unit) => f.write_str(unit),
            None => measured(f, self.0),
        }
    }
}

/// A span that stands alone: `a minute`, `100 ms`.
struct Span(Micros);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match single(self.0) {
            Some("hour") => f.write_str("an hour"),
            Some(unit) => write!(f, "a {unit}"),
            None => measured(f, self.0),
        }
    }
}

const SECOND: u64 = Micros::SECOND.0;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn single(span: Micros) -> Option<&'static str> {
    match span.0 {
        SECOND => Some("second"),
        MINUTE => Some("minute"),
        HOUR => Some("hour"),
        DAY => Some("day"),
        _ => None,
    }
}

/// The exact number of the largest unit that leaves no fraction; below the minute, of the largest unit that is reached.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::units::Cost;

    fn rate(count: u32, period: u64) -> Rate {
        Rate::new(count, Micros(period)).unwrap()
    }

    fn cost(units: u32) -> Cost {
        Cost::new(units).unwrap()
    }

    #[test]
    fn limits_in_words() {
        let seconds = Micros(10 * SECOND);
        for (algorithm, words) in [
            (Algorithm::token_bucket(rate(10, SECOND), cost(50)), "50 at once, then one every 100 ms"),
            (Algorithm::token_bucket(rate(1, SECOND), cost(5)), "5 at once, then one every second"),
            (Algorithm::token_bucket(rate(3, SECOND), cost(3)), "3 at once, then 3 every second"),
            (Algorithm::token_bucket(rate(1_000_000, DAY), cost(1)), "one every 86.4 ms"),
            (Algorithm::gcra(rate(10, SECOND), cost(1)), "one every 100 ms"),
            (Algorithm::gcra(rate(20, 30 * SECOND), cost(2)), "2 at once, then one every 1.5 s"),
            (Algorithm::gcra(rate(7, MINUTE), cost(1)), "7 every minute"),
            (
                Algorithm::leaky_bucket(rate(10, SECOND), cost(5), seconds),
                "one every 100 ms in turn, up to 5 waiting, at most 10 s",
            ),
            (
                Algorithm::leaky_bucket(rate(1, MINUTE), cost(5), Micros(HOUR)),
                "one every minute in turn, up to 5 waiting, at most an hour",
            ),
            (
                Algorithm::fixed_window(rate(100_000, MINUTE), Align::Clock),
                "100000 in each minute (clock-aligned)",
            ),
            (
                Algorithm::fixed_window(rate(5, HOUR), Align::FirstRequest),
                "5 in each hour (from the first request)",
            ),
            (Algorithm::sliding_window(rate(100, MINUTE)), "100 in any minute, weighted"),
            (Algorithm::sliding_log(rate(100, MINUTE), None, false), "100 in any minute, exactly"),
            (
                Algorithm::sliding_log(rate(9, DAY), Some(Micros(SECOND)), true),
                "9 in any day, exactly, at least a second apart, refused attempts count too",
            ),
        ] {
            assert_eq!(algorithm.to_string(), words);
        }
    }

    #[test]
    fn limits_as_in_the_file() {
        let seconds = Micros(10 * SECOND);
        for (algorithm, words) in [
            (Algorithm::token_bucket(rate(10, SECOND), cost(50)), "10/s, burst 50"),
            (Algorithm::gcra(rate(20, 30 * SECOND), cost(1)), "20/30s, burst 1"),
            (Algorithm::leaky_bucket(rate(1, 250_000), cost(5), seconds), "1/250ms, queue 5"),
            (Algorithm::fixed_window(rate(100_000, MINUTE), Align::Clock), "100000/min"),
            (Algorithm::sliding_window(rate(1_000, HOUR)), "1000/h"),
            (Algorithm::sliding_log(rate(9, 2 * DAY), None, false), "9/2day"),
        ] {
            assert_eq!(Short(&algorithm).to_string(), words);
        }
    }

    #[test]
    fn spans_in_words() {
        for (span, words) in [
            (1, "1 µs"),
            (250, "250 µs"),
            (1_000, "1 ms"),
            (1_500, "1.5 ms"),
            (86_400, "86.4 ms"),
            (100_000, "100 ms"),
            (SECOND, "a second"),
            (1_500_000, "1.5 s"),
            (1_000_001, "1.000001 s"),
            (90 * SECOND, "90 s"),
            (MINUTE, "a minute"),
            (2 * MINUTE, "2 minutes"),
            (HOUR, "an hour"),
            (36 * HOUR, "36 hours"),
            (DAY, "a day"),
            (366 * DAY, "366 days"),
            (0, "0 s"),
        ] {
            assert_eq!(Span(Micros(span)).to_string(), words);
        }
    }
}
