//! Durations as users write them: `250ms`, `15min`, `1day`.

use super::units::{Micros, Rate};

/// The units of time, in milliseconds.
pub const TIME_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("day", 86_400_000)];

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSpan {
    /// It is not a whole number with a unit.
    Form,
    /// Its unit is none of [`TIME_UNITS`].
    Unit,
    /// It is below 1 ms or above 366 days.
    Range,
}

/// Reads a duration from 1 ms to 366 days.
///
/// # Errors
///
/// See [`NoSpan`].
pub fn read(text: &str) -> Result<Micros, NoSpan> {
    let (number, unit) = number_and_unit(text).filter(|(_, unit)| !unit.is_empty()).ok_or(NoSpan::Form)?;
    let (_, factor) = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or(NoSpan::Unit)?;
    let span = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor * 1_000));
    let span = span.filter(|span| (1_000..=Rate::MAX_PERIOD.0).contains(span));
    span.map(Micros).ok_or(NoSpan::Range)
}

/// Splits `15min` into `15` and `min`. `None` if it does not begin with a digit or goes on after the unit.
pub fn number_and_unit(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let is_split = !number.is_empty() && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_split.then_some((number, unit))
}
