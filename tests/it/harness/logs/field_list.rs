//! Fields that are not part of a head: added one by one.

use http::{HeaderName, HeaderValue};
use tollgate::http1::fields::{FieldSpan, Fields};

/// Fields in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldList {
    text: Vec<u8>,
    spans: Vec<FieldSpan>,
}

impl FieldList {
    /// Adds a field after the others.
    pub(crate) fn push(&mut self, name: &HeaderName, value: &[u8]) {
        let (name, at) = (name.as_str().as_bytes(), self.text.len());
        let span = FieldSpan::new(at, name, at + name.len(), value);
        self.spans.push(span.expect("a value below 64 KiB"));
        self.text.extend([name, value].concat());
    }

    /// The fields added.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields::new(&self.text, &self.spans)
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for FieldList {
    fn from_iter<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(fields: I) -> Self {
        let mut list = Self::default();
        fields.into_iter().for_each(|(name, value)| list.push(&name, value.as_bytes()));
        list
    }
}
