//! What stands behind the `?` of a question.

use std::str::FromStr;

use super::ApiError;

/// Of what is there twice, the first holds; what is not known is ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a>(pub(super) Option<&'a str>);

impl<'a> Query<'a> {
    /// As it stands there: what is asked for needs no escapes.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        let pairs = self.0.unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(one, _)| *one == name).map(|(_, value)| value)
    }

    /// A number; `what` says which ones there are.
    pub(super) fn number<T: FromStr>(self, name: &str, what: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| text.parse().map_err(|_| ApiError::bad(format!("`{name}` is {what}")));
        self.text(name).map(parse).transpose()
    }
}
