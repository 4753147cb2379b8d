//! The query string of an API request.

use std::str::FromStr;

use super::ApiError;

/// Of repeated parameters the first holds; unknown ones are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a>(pub(super) Option<&'a str>);

impl<'a> Query<'a> {
    /// The value without decoding: valid values need no escapes.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        let pairs = self.0.unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(one, _)| *one == name).map(|(_, value)| value)
    }

    /// A number; `what` describes the valid ones.
    pub(super) fn number<T: FromStr>(self, name: &str, what: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| text.parse().map_err(|_| ApiError::bad(format!("`{name}` is {what}")));
        self.text(name).map(parse).transpose()
    }

    /// `top`: how many are returned, at most `most`; `usual` if it is not given.
    pub(super) fn top(self, usual: usize, most: usize) -> Result<usize, ApiError> {
        let wrong = format!("a number from 1 to {most}");
        let top = self.number("top", &wrong)?.unwrap_or(usual);
        if (1..=most).contains(&top) { Ok(top) } else { Err(ApiError::bad(format!("`top` is {wrong}"))) }
    }
}
