//! Numbers of JSON as whole units, exactly: without floating point, in a state that does not grow with the text.

use super::Reading;

/// Significant digits that are kept: one more than [`u64::MAX`] has.
const KEPT: i64 = 21;
/// Beyond any exponent that the digits of a body could make up for.
const MAX_EXPONENT: i64 = 1 << 60;

/// Reads the value of a header, a trailer or a query parameter: a number as JSON has it, without sign, with optional
/// whitespace around it.
#[must_use]
pub fn number(text: &[u8]) -> Reading {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Reading::Absent;
    }
    let mut reader = NumberReader::default();
    let is_whole = reader.scan(text) == text.len();
    if is_whole && text[0] != b'-' {
        reader.reading().unwrap_or(Reading::Unreadable)
    } else {
        Reading::Unreadable
    }
}

/// A number that is read while it arrives. Its value is `0.DIGITS * 10^scale * 10^exponent`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NumberReader {
    part: NumberPart,
    is_negative: bool,
    /// The first significant digits as a number, and how many they are.
    digits: u128,
    count: i64,
    /// Whether a digit after these is not zero.
    has_more: bool,
    scale: i64,
    exponent: i64,
    exponent_is_negative: bool,
}

/// What was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NumberPart {
    #[default]
    Nothing,
    Minus,
    /// A zero that begins the number: no digit may follow.
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl NumberReader {
    /// Reads the bytes that belong to the number. Returns how many they are.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> usize {
        bytes.iter().position(|byte| !self.read(*byte)).unwrap_or(bytes.len())
    }

    /// Reads a byte. Returns whether it belongs to the number.
    fn read(&mut self, byte: u8) -> bool {
        let part = match (self.part, byte) {
            (NumberPart::Nothing, b'-') => NumberPart::Minus,
            (NumberPart::Nothing | NumberPart::Minus, b'0') => NumberPart::Zero,
            (NumberPart::Nothing | NumberPart::Minus, b'1'..=b'9') | (NumberPart::Integer, b'0'..=b'9') => {
                NumberPart::Integer
            }
            (NumberPart::Zero | NumberPart::Integer, b'.') => NumberPart::Point,
            (NumberPart::Point | NumberPart::Fraction, b'0'..=b'9') => NumberPart::Fraction,
            (NumberPart::Zero | NumberPart::Integer | NumberPart::Fraction, b'e' | b'E') => NumberPart::E,
            (NumberPart::E, b'+' | b'-') => NumberPart::Sign,
            (NumberPart::E | NumberPart::Sign | NumberPart::Exponent, b'0'..=b'9') => NumberPart::Exponent,
            _ => return false,
        };
        match part {
            NumberPart::Minus => self.is_negative = true,
            NumberPart::Integer => {
                self.scale += 1;
                self.digit(byte);
            }
            NumberPart::Fraction if self.count == 0 && byte == b'0' => self.scale -= 1,
            NumberPart::Fraction => self.digit(byte),
            NumberPart::Sign => self.exponent_is_negative = byte == b'-',
            NumberPart::Exponent => {
                self.exponent = (self.exponent * 10 + i64::from(byte - b'0')).min(MAX_EXPONENT / 10);
            }
            NumberPart::Nothing | NumberPart::Zero | NumberPart::Point | NumberPart::E => {}
        }
        self.part = part;
        true
    }

    /// Appends a significant digit.
    fn digit(&mut self, byte: u8) {
        let digit = byte - b'0';
        if self.count < KEPT {
            self.digits = self.digits * 10 + u128::from(digit);
            self.count += 1;
        } else {
            self.has_more |= digit != 0;
        }
    }

    /// The value; `None` if the number ends where none may end.
    pub(super) fn reading(&self) -> Option<Reading> {
        if !matches!(
            self.part,
            NumberPart::Zero | NumberPart::Integer | NumberPart::Fraction | NumberPart::Exponent
        ) {
            return None;
        }
        let units = self.units();
        Some(if self.is_negative && units > 0 { Reading::Unreadable } else { Reading::Value(units) })
    }

    /// The absolute value, rounded up.
    fn units(&self) -> u64 {
        if self.digits == 0 {
            return 0;
        }
        let exponent = if self.exponent_is_negative { -self.exponent } else { self.exponent };
        // The number of digits before the point.
        let whole = self.scale.saturating_add(exponent);
        if whole <= 0 {
            return 1;
        }
        if whole >= KEPT {
            return u64::MAX;
        }
        let shift = |places: i64| 10_u128.pow(u32::try_from(places).unwrap_or(0));
        let units = if self.count <= whole {
            self.digits * shift(whole - self.count)
        } else {
            let (divisor, digits) = (shift(self.count - whole), self.digits);
            let is_rounded = self.has_more || !digits.is_multiple_of(divisor);
            digits / divisor + u128::from(is_rounded)
        };
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_rounded_up() {
        let value = Reading::Value;
        let rows: &[(&str, Reading)] = &[
            ("0", value(0)),
            ("1.0", value(1)),
            ("1.2", value(2)),
            ("12e2", value(1200)),
            ("1e400", value(u64::MAX)),
            ("1e-9", value(1)),
            ("0.0", value(0)),
            ("0e99999999999999999999", value(0)),
            ("1e99999999999999999999", value(u64::MAX)),
            ("1E-99999999999999999999", value(1)),
            ("0.0000012e6", value(2)),
            ("0.000001e+6", value(1)),
            ("1234.5678e3", value(1_234_568)),
            ("18446744073709551615", value(u64::MAX)),
            ("18446744073709551614", value(u64::MAX - 1)),
            ("18446744073709551613.00000000000000000000000000000000000001", value(u64::MAX - 1)),
            ("18446744073709551613.00000000000000000000000000000000000000", value(u64::MAX - 2)),
            ("18446744073709551616", value(u64::MAX)),
            ("184467440737095516149e-1", value(u64::MAX)),
            (" 12\t", value(12)),
            ("", Reading::Absent),
            (" \t", Reading::Absent),
        ];
        for (text, expected) in rows {
            assert_eq!(number(text.as_bytes()), *expected, "{text}");
        }
        for text in
            ["-1", "-0", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "1 2", "NaN", "\"1\"", "1,5", "null"]
        {
            assert_eq!(number(text.as_bytes()), Reading::Unreadable, "{text}");
        }
        let zeros = "0".repeat(5_000);
        assert_eq!(number(format!("1{zeros}e-5000").as_bytes()), value(1));
        assert_eq!(number(format!("0.{zeros}1e5001").as_bytes()), value(1));
        assert_eq!(number(format!("1{zeros}1e-5000").as_bytes()), value(11));
    }
}
