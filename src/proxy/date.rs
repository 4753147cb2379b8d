//! The value of `date`, written once a second.

use std::time::{Duration, SystemTime};

use crate::limit::units::{Micros, Timestamp};

/// A second, and its text (RFC 9110 §5.6.7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Date {
    second: u64,
    text: [u8; 29],
}

impl Default for Date {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Date {
    /// The date of that moment: unchanged if it is in the same second.
    pub(super) fn at(self, now: Timestamp) -> Self {
        let second = now.0 / Micros::SECOND.0;
        if second == self.second { self } else { Self::of(second) }
    }

    pub(super) fn text(&self) -> [u8; 29] {
        self.text
    }

    fn of(second: u64) -> Self {
        let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        // This format always has this length.
        Self { second, text: text.as_bytes().first_chunk().copied().unwrap_or([b'0'; 29]) }
    }
}
