//! Sets of response statuses, such as `["5xx", "429"]`.

use http::StatusCode;

/// Some of the statuses 400 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet([u64; StatusSet::WORDS]);

impl StatusSet {
    /// The empty set.
    pub const NONE: Self = Self([0; Self::WORDS]);
    /// The statuses that it can contain.
    const RANGE: std::ops::Range<u16> = 400..600;
    const WORDS: usize = 4;

    /// Adds the status of a text (`502`) or a class (`5xx`). `None`: it is neither, or is below 400.
    pub fn add(&mut self, text: &str) -> Option<()> {
        let codes = match text {
            "4xx" => 400..500,
            "5xx" => 500..600,
            _ if text.len() == 3 => text.parse().ok().map(|code: u16| code..code + 1)?,
            _ => return None,
        };
        for code in codes {
            let (word, bit) = Self::place(code)?;
            self.0[word] |= bit;
        }
        Some(())
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
        [of(4), of(5)].concat()
    }

    fn place(code: u16) -> Option<(usize, u64)> {
        let index = usize::from(code.checked_sub(Self::RANGE.start)?);
        Self::RANGE.contains(&code).then_some((index / 64, 1 << (index % 64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_single_statuses() {
        let mut set = StatusSet::default();
        assert!(set.is_empty());
        for text in ["5xx", "429", "400", "499"] {
            assert_eq!(set.add(text), Some(()), "{text}");
        }
        assert_eq!(set.texts(), ["400", "429", "499", "5xx"]);
        let contains = |code| set.contains(StatusCode::from_u16(code).unwrap());
        assert_eq!(
            [399, 400, 401, 429, 499, 500, 599, 600, 999].map(contains),
            [false, true, false, true, true, true, true, false, false]
        );
        for text in ["", "6xx", "399", "600", "5x", "50", "0500", "-50", "+50", "timeout", "3xx", "5XX"] {
            assert_eq!(StatusSet::default().add(text), None, "{text}");
        }
    }
}
