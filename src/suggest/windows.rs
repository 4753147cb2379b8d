//! The windows in which peaks are measured.

use crate::limit::units::Micros;

/// The number of windows.
pub const WINDOW_COUNT: usize = 7;

/// The windows, shortest first.
pub const WINDOWS: [PeakWindow; WINDOW_COUNT] = [
    PeakWindow { seconds: 1, name: "s" },
    PeakWindow { seconds: 10, name: "10s" },
    PeakWindow { seconds: 60, name: "min" },
    PeakWindow { seconds: 600, name: "10min" },
    PeakWindow { seconds: 3_600, name: "h" },
    PeakWindow { seconds: 21_600, name: "6h" },
    PeakWindow { seconds: 86_400, name: "day" },
];

/// The peaks of one key in [`WINDOWS`], in units.
pub type WindowPeaks = [u32; WINDOW_COUNT];

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakWindow {
    seconds: u32,
    /// The period of a rate as the config file has it: `s`, `10s`, … `day`.
    pub name: &'static str,
}

impl PeakWindow {
    /// The length.
    pub const fn span(self) -> Micros {
        Micros(self.seconds as u64 * 1_000_000)
    }

    /// The length in seconds.
    pub const fn seconds(self) -> f64 {
        self.seconds as f64
    }

    /// The length with its number: `1 s`, `10 min`, `1 day`.
    pub fn described(self) -> String {
        let unit = self.name.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let number = self.name.trim_end_matches(unit);
        format!("{} {unit}", if number.is_empty() { "1" } else { number })
    }
}

/// The number of [`WINDOWS`] that requests over `span` can judge: those of which the span covers nine tenths, since a
/// day's log begins and ends with a request; at least one.
pub fn judged(span: Micros) -> usize {
    WINDOWS.iter().filter(|window| span.0 >= window.span().0 / 10 * 9).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_judged_that_the_span_covers() {
        assert_eq!(judged(Micros(0)), 1);
        assert_eq!(judged(Micros(59_000_000)), 3);
        assert_eq!(judged(Micros(86_000_000_000)), 7);
        assert_eq!(WINDOWS[3].described(), "10 min");
        assert_eq!(WINDOWS[6].described(), "1 day");
    }
}
