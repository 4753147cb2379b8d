//! Numbers and times as people read them.

use std::fmt::{self, Display, Formatter};

use time::OffsetDateTime;

use crate::limit::units::{Micros, Timestamp};

/// A number with its thousands apart: `12,480`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

/// A share: `0.40 %`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The part.
    pub part: u64,
    /// The whole.
    pub whole: u64,
}

/// A span of time in its largest fitting units: `2 h 5 min`, `1.5 s`.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Micros);

/// A moment to the second, in UTC: `2026-11-21 23:59:58`.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub Timestamp);

impl Share {
    /// The share as a number, 0 to 1; of nothing 0.
    #[expect(clippy::cast_precision_loss, reason = "a share needs a few digits")]
    pub fn value(self) -> f64 {
        if self.whole == 0 { 0.0 } else { self.part as f64 / self.whole as f64 }
    }
}

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let percent = self.value() * 100.0;
        let text = match () {
            () if self.part == 0 => "0 %".to_owned(),
            () if self.part == self.whole => "100 %".to_owned(),
            () if percent < 0.01 => "< 0.01 %".to_owned(),
            () if percent < 1.0 => format!("{percent:.2} %"),
            // Not all: 99.96 is not 100.
            () => format!("{:.1} %", percent.min(99.9)),
        };
        f.pad(&text)
    }
}

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let micros = self.0.0;
        let seconds = micros / 1_000_000;
        let two = |large: u64, name: &str, small: u64, other: &str| match small {
            0 => format!("{large} {name}"),
            _ => format!("{large} {name} {small} {other}"),
        };
        let text = match seconds {
            0 => format!("{} ms", micros.div_ceil(1_000)),
            1..60 => match micros % 1_000_000 / 100_000 {
                0 => format!("{seconds} s"),
                tenths => format!("{seconds}.{tenths} s"),
            },
            60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
            3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
            _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
        };
        f.pad(&text)
    }
}

impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0.0 / 1_000_000).unwrap_or_default();
        let utc = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (hour, minute, second) = utc.to_hms();
        let (year, month, day) = (utc.year(), u8::from(utc.month()), utc.day());
        f.pad(&format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let grouped = [0, 999, 1_000, 12_480, 3_100_000].map(|number| Grouped(number).to_string());
        assert_eq!(grouped, ["0", "999", "1,000", "12,480", "3,100,000"]);
        let shares = [(0, 0), (1, 100_000), (4, 1_000), (1, 8), (9_999, 10_000), (7, 7)];
        let shares = shares.map(|(part, whole)| Share { part, whole }.to_string());
        assert_eq!(shares, ["0 %", "< 0.01 %", "0.40 %", "12.5 %", "99.9 %", "100 %"]);
        let spans = [1, 900_000, 1_500_000, 61_000_000, 7_500_000_000, 90_000_000_000];
        let spans = spans.map(|micros| Span(Micros(micros)).to_string());
        assert_eq!(spans, ["1 ms", "900 ms", "1.5 s", "1 min 1 s", "2 h 5 min", "1 d 1 h"]);
        assert_eq!(Moment(Timestamp(1_000_000_000_999_999)).to_string(), "2001-09-09 01:46:40");
    }
}
