//! Sets of response statuses, such as `["5xx", "429"]`.

use std::ops::{Range, RangeInclusive};

use http::StatusCode;

/// Some of the statuses 200 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet([u64; StatusSet::WORDS]);

impl StatusSet {
    /// The empty set.
    pub const NONE: Self = Self([0; Self::WORDS]);
    /// The statuses that it can contain.
    const RANGE: Range<u16> = 200..600;
    const WORDS: usize = 7;

    /// All statuses of these classes; `2..=3` are 2xx and 3xx.
    pub fn of_classes(classes: RangeInclusive<u16>) -> Self {
        let mut set = Self::NONE;
        for class in classes {
            set.extend(class * 100..class * 100 + 100);
        }
        set
    }

    /// Adds the status of a text (`502`) or a class (`5xx`). `None`: it is neither, or is below `min`.
    pub fn add(&mut self, text: &str, min: u16) -> Option<()> {
        let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let codes = match (text.strip_suffix("xx"), is_number) {
            (Some(class @ ("2" | "3" | "4" | "5")), _) => {
                let class: u16 = class.parse().ok()?;
                class * 100..class * 100 + 100
            }
            (_, true) => text.parse().ok().map(|code: u16| code..code + 1)?,
            _ => return None,
        };
        if codes.start < min || !Self::RANGE.contains(&codes.start) {
            return None;
        }
        self.extend(codes);
        Some(())
    }

    fn extend(&mut self, codes: Range<u16>) {
        for (word, bit) in codes.filter_map(Self::place) {
            self.0[word] |= bit;
        }
    }

    /// Whether it contains the status.
    #[inline]
    pub fn contains(&self, status: StatusCode) -> bool {
        Self::place(status.as_u16()).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// Whether it contains none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The texts that [`Self::add`] takes: a class where it contains all of it.
    pub fn texts(&self) -> Vec<String> {
        let of = |class: u16| {
            let codes = class * 100..(class + 1) * 100;
            let contained =
                codes.filter(|code| StatusCode::from_u16(*code).is_ok_and(|code| self.contains(code)));
            let contained: Vec<_> = contained.map(|code| code.to_string()).collect();
            if contained.len() == 100 { vec![format!("{class}xx")] } else { contained }
        };
        (2..=5).flat_map(of).collect()
    }

    fn place(code: u16) -> Option<(usize, u64)> {
        let index = usize::from(code.checked_sub(Self::RANGE.start)?);
        Self::RANGE.contains(&code).then_some((index / 64, 1 << (index % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(set: &StatusSet, code: u16) -> bool {
        set.contains(StatusCode::from_u16(code).unwrap())
    }

    #[test]
    fn classes_and_single_statuses() {
        let mut set = StatusSet::default();
        assert!(set.is_empty());
        for text in ["5xx", "429", "400", "499"] {
            assert_eq!(set.add(text, 400), Some(()), "{text}");
        }
        assert_eq!(set.texts(), ["400", "429", "499", "5xx"]);
        assert_eq!(
            [200, 399, 400, 401, 429, 499, 500, 599, 600, 999].map(|code| contains(&set, code)),
            [false, false, true, false, true, true, true, true, false, false]
        );
        for text in ["", "6xx", "399", "600", "5x", "50", "0500", "-50", "+50", "timeout", "3xx", "5XX"] {
            assert_eq!(StatusSet::default().add(text, 400), None, "{text}");
        }
    }

    #[test]
    fn good_statuses() {
        let mut set = StatusSet::default();
        for text in ["2xx", "304", "401"] {
            assert_eq!(set.add(text, 200), Some(()), "{text}");
        }
        assert_eq!(set.texts(), ["2xx", "304", "401"]);
        for text in ["1xx", "101", "199", "600", "+20", "xx", "20x"] {
            assert_eq!(set.add(text, 200), None, "{text}");
        }
        let default = StatusSet::of_classes(2..=3);
        assert_eq!(default.texts(), ["2xx", "3xx"]);
        assert_eq!([199, 200, 399, 400].map(|code| contains(&default, code)), [false, true, true, false]);
    }
}
