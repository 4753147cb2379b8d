//! Values of the API: the parameters of a query string, and times and durations in the API's format.

use std::str::FromStr;

use super::ApiError;
use crate::admin_api::operations::ListLength;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::{self, WallTime};

/// Of repeated parameters the first holds; unknown ones are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a>(pub(super) Option<&'a str>);

impl<'a> Query<'a> {
    /// The value without decoding: valid values need no escapes, except for the colons of a time.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        let pairs = self.0.unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(one, _)| *one == name).map(|(_, value)| value)
    }

    /// A number; `what` describes the valid ones.
    pub(super) fn number<T: FromStr>(self, name: &str, what: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| text.parse().map_err(|_| ApiError::bad(format!("`{name}` is {what}")));
        self.text(name).map(parse).transpose()
    }

    /// `top`: how many items the list of the response has.
    pub(super) fn top(self, ListLength { usual, most }: ListLength) -> Result<usize, ApiError> {
        let wrong = format!("a number from 1 to {most}");
        let top = self.number("top", &wrong)?.unwrap_or(usual);
        if (1..=most).contains(&top) { Ok(top) } else { Err(ApiError::bad(format!("`top` is {wrong}"))) }
    }
}

/// Seconds since 1970 UTC by the wall clock as it is set now, with three decimals.
pub(super) fn moment(at: Timestamp) -> f64 {
    wall_moment(wall_clock::system().wall_time(at))
}

/// The same of a moment by the wall clock.
pub(super) fn wall_moment(at: WallTime) -> f64 {
    thousandths(at.0 / 1_000)
}

/// Milliseconds, rounded up: a client that waits as long as this is not too early.
pub(super) fn span(span: Micros) -> u64 {
    span.0.div_ceil(1_000)
}

fn thousandths(milliseconds: u64) -> f64 {
    // Exact: both are below 2^53, and the quotient is the double that is printed with three decimals.
    milliseconds as f64 / 1_000.0
}
