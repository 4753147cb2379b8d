//! Durations, sizes and rates as users write them: `"250ms"`, `"1MiB"`, `"100/min"`.

use std::time::Duration;

use super::remedies::{self, did_you_mean};
use super::report::quoted;
use super::text::SyntaxError;
use super::value::ConfigValue;
use crate::limit::calendar::CalendarUnit;
use crate::limit::span::{self, NoSpan, TIME_UNITS, number_and_unit};
use crate::limit::units::{Cost, Micros, Rate};

/// The accepted names, each with other ones for the same unit.
const OTHER_TIME_UNITS: [(&str, &[&str]); 5] = [
    ("ms", &["msec", "millis", "milliseconds"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("min", &["m", "mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("day", &["d", "days", "D"]),
];
/// The units of size, in bytes.
const SIZE_UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
/// The accepted names, each with other ones for the same unit.
const OTHER_SIZE_UNITS: [(&str, &[&str]); 4] =
    [("B", &["b"]), ("KiB", &["k", "K", "KB", "kB"]), ("MiB", &["M", "MB"]), ("GiB", &["G", "GB"])];

const DURATION_HELP: &str = "write a whole number and a unit, such as `250ms`, `3s`, `15min`, `1h` or `1day`";
const SIZE_HELP: &str = "write a whole number and a unit, such as `512B`, `16KiB`, `1MiB` or `1GiB`";
const RATE_HELP: &str = "write a count, `/` and a period, such as `10/s`, `100/min`, `20/30s` or `1/250ms`";

/// Parses a duration from 1 ms to 366 days.
pub(super) fn duration(text: &str) -> Result<Duration, SyntaxError> {
    span(text).map(|span| Duration::from_micros(span.0))
}

/// Parses a size in bytes. A number without a unit is bytes.
pub(super) fn size(text: &str) -> Result<u64, SyntaxError> {
    let Some((number, unit)) = number_and_unit(text) else {
        return Err(SyntaxError::new(format!("{} is not a size", quoted(text)), SIZE_HELP));
    };
    let factor =
        if unit.is_empty() { 1 } else { unit_named(text, number, unit, &SIZE_UNITS, &OTHER_SIZE_UNITS)? };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| SyntaxError::new(format!("{} is more than can be counted", quoted(text)), SIZE_HELP))
}

/// Parses a rate: a count from 1 to 10^9 per period from 1 ms to 366 days. A period without a number is one of its
/// unit. A month and a year are those of a calendar; as a period they have their greatest length.
pub(super) fn rate(text: &str) -> Result<(Rate, Option<CalendarUnit>), SyntaxError> {
    let not_a_rate = || {
        let known = remedies::rate(text, usual_time_unit).filter(|written| rate(written).is_ok());
        let help = known.map_or_else(|| RATE_HELP.to_owned(), |written| format!("write `{written}`"));
        SyntaxError::new(format!("{} is not a rate", quoted(text)), help)
    };
    let (count, period) = text.split_once('/').ok_or_else(not_a_rate)?;
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) || period.is_empty() {
        return Err(not_a_rate());
    }
    let is_unit_alone = period.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_unit_alone {
        if let Some((unit, length)) = calendar_period(period) {
            return Ok((counted(text, count, length)?, unit));
        }
        unit_named(text, &format!("{count}/"), period, &TIME_UNITS, &OTHER_TIME_UNITS)?;
    }
    let period = if is_unit_alone { format!("1{period}") } else { period.to_owned() };
    let period = span(&period).map_err(|refusal| {
        let (_, unit) = number_and_unit(&period).unwrap_or_default();
        let help = match calendar_period(unit) {
            Some(_) => format!("`week`, `month` and `year` stand without a number: `{count}/{unit}`"),
            None => refusal.help,
        };
        SyntaxError::new(format!("in the rate {}: {}", quoted(text), refusal.message), help)
    })?;
    Ok((counted(text, count, period)?, None))
}

fn counted(text: &str, count: &str, period: Micros) -> Result<Rate, SyntaxError> {
    let count = count.parse().unwrap_or(u32::MAX);
    Rate::new(count, period).ok_or_else(|| {
        let message = format!("{} has a count outside the range", quoted(text));
        SyntaxError::new(message, format!("a rate's count is 1 to {}", Cost::MAX))
    })
}

/// The periods that are longer than a day: a week is seven days, and the others are of a calendar.
fn calendar_period(period: &str) -> Option<(Option<CalendarUnit>, Micros)> {
    let of = |unit: CalendarUnit| Some((Some(unit), unit.longest()));
    match period {
        "week" => Some((None, CalendarUnit::Week.longest())),
        "month" => of(CalendarUnit::Month(1)),
        "year" => of(CalendarUnit::Year),
        _ => None,
    }
}

impl ConfigValue<'_> {
    /// A duration from 1 ms to 366 days.
    pub(super) fn duration(&self) -> Option<Duration> {
        if !self.is_text() {
            let seconds = self.whole_text().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let seconds =
                seconds.filter(|text| !text.trim_matches('0').is_empty() && text.len() <= 9).unwrap_or("10");
            return self.mismatch("a duration", format!("write it in quotes, with a unit: `\"{seconds}s\"`"));
        }
        self.text()?.parse("a duration", duration)
    }

    /// A size in bytes from `min` to `max`: `"16KiB"`, or a number of bytes.
    pub(super) fn size(&self, min: u64, max: u64) -> Option<u64> {
        if self.is_whole() {
            return self.whole(min..=max);
        }
        if !self.is_text() {
            return self.mismatch("a size", "write it in quotes, with a unit: `\"1MiB\"`");
        }
        let text = self.text()?;
        let bytes = text.parse("a size", size)?;
        if !(min..=max).contains(&bytes) {
            self.fault(
                format!("{} cannot be {}", self.label(), text.quoted()),
                format!("the range is {} to {}", size_in_words(min), size_in_words(max)),
            );
            return None;
        }
        Some(bytes)
    }
}

/// Our name of a unit of time, however it is called elsewhere.
pub(super) fn usual_time_unit(unit: &str) -> Option<&'static str> {
    let ours = TIME_UNITS.iter().map(|(name, _)| *name).find(|name| *name == unit);
    ours.or_else(|| accepted_name(unit, &OTHER_TIME_UNITS))
}

/// A duration as a user would write it: in seconds up to a minute.
pub(super) fn duration_in_words(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    let units = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let fits = |(_, length): &(&str, u128)| {
        milliseconds.is_multiple_of(*length) && (*length != 60_000 || milliseconds > 60_000)
    };
    let (unit, length) = units.into_iter().find(fits).unwrap_or(("ms", 1));
    format!("{}{unit}", milliseconds / length)
}

/// A size as a user would write it.
pub(super) fn size_in_words(bytes: u64) -> String {
    let fits = |factor: u64| bytes > 0 && bytes.is_multiple_of(factor);
    let (unit, factor) = SIZE_UNITS.into_iter().rev().find(|(_, factor)| fits(*factor)).unwrap_or(("B", 1));
    format!("{}{unit}", bytes / factor)
}

fn span(text: &str) -> Result<Micros, SyntaxError> {
    span::read(text).map_err(|fault| {
        let (number, unit) = number_and_unit(text).unwrap_or_default();
        match (fault, unit_named(text, number, unit, &TIME_UNITS, &OTHER_TIME_UNITS)) {
            (NoSpan::Form, _) => {
                SyntaxError::new(format!("{} is not a duration", quoted(text)), DURATION_HELP)
            }
            (NoSpan::Unit, Err(refusal)) => refusal,
            _ => SyntaxError::new(
                format!("{} is outside the range", quoted(text)),
                "a duration is 1 ms to 366 days",
            ),
        }
    })
}

fn accepted_name(unit: &str, others: &[(&'static str, &[&str])]) -> Option<&'static str> {
    others.iter().find(|(_, names)| names.contains(&unit)).map(|(ours, _)| *ours)
}

fn unit_named(
    text: &str,
    number: &str,
    unit: &str,
    units: &[(&str, u64)],
    others: &[(&'static str, &[&str])],
) -> Result<u64, SyntaxError> {
    if let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) {
        return Ok(*factor);
    }
    let names = units.iter().map(|(name, _)| *name);
    let known = format!("the units are {}", super::report::listed(names.clone()));
    let help = match accepted_name(unit, others) {
        Some(ours) => format!("did you mean `{number}{ours}`? {known}"),
        None => did_you_mean(unit, names, &known),
    };
    Err(SyntaxError::new(format!("{} has the unknown unit {}", quoted(text), quoted(unit)), help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_other_proxies_are_translated() {
        for (text, expected) in [
            ("10r/s", "write `10/s`"),
            ("10 r/m", "write `10/min`"),
            ("10 per second", "write `10/s`"),
            ("100 requests per minute", "write `100/min`"),
            ("0.5/s", "write `1/2s`"),
            ("2.5/s", "write `5/2s`"),
            ("0.5/10s", "write `1/20s`"),
            ("10 / s", "write `10/s`"),
            ("0.0/s", RATE_HELP),
            ("-1/s", RATE_HELP),
            ("ten/s", RATE_HELP),
            ("10", RATE_HELP),
            ("1/2week", "`week`, `month` and `year` stand without a number: `1/week`"),
            ("10/3month", "`week`, `month` and `year` stand without a number: `10/month`"),
        ] {
            assert_eq!(rate(text).unwrap_err().help, expected, "{text}");
        }
    }
}
