//! The meaning of a limit as text: `50 at once, then one every 100 ms`.

use std::fmt::{self, Display, Formatter};

use super::Algorithm;
use super::algorithms::each;
use super::limiter::Limiter as _;
use super::rate_params::WrittenRate;

impl Display for Algorithm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        each!(self, limit => limit.explain(f))
    }
}

/// A limit in the short form of the config file: `10/s, burst 50`.
#[derive(Clone, Copy, Debug)]
pub struct ShortDisplay<'a>(pub &'a Algorithm);

impl Algorithm {
    /// Its rate as in the file: `10/s`, `20/30s`, `10000/month`. `None`: it has none.
    pub fn written_rate(&self) -> Option<String> {
        let rate = self.rate()?;
        Some(match self.calendar() {
            Some(calendar) => format!("{}/{}", rate.count(), calendar.unit().word()),
            None => WrittenRate(rate).to_string(),
        })
    }
}

impl Display for ShortDisplay<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        each!(self.0, limit => limit.abridge(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Align;
    use crate::limit::rate_params::{DAY, HOUR, MINUTE, SECOND, Window};
    use crate::limit::units::{Cost, Micros, Rate};

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
            assert_eq!(ShortDisplay(&algorithm).to_string(), words);
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
            assert_eq!(Window(Micros(span)).to_string(), words);
        }
    }
}
