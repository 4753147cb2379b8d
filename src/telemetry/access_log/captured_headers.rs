//! The headers of a request and its response that the access log names.

use http::HeaderName;

/// The maximum number of bytes kept of all values of one header.
const MAX_VALUE: usize = 1_024;
/// The maximum number of bytes kept of all headers of a record: thousands of records may wait for a slow reader.
const MAX_TOTAL: usize = 8_192;

/// The message that a header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOrigin {
    /// The client's request.
    Request,
    /// The response to the client.
    Response,
}

/// Values by name: a reload may change the fields of the log between a request and its line.
#[derive(Clone, Debug, Default)]
pub struct CapturedHeaders {
    /// All values, one after the other.
    text: Vec<u8>,
    headers: Vec<CapturedHeader>,
}

#[derive(Clone, Debug)]
struct CapturedHeader {
    origin: HeaderOrigin,
    name: HeaderName,
    /// The range of its value in the text.
    start: usize,
    end: usize,
    /// The value was longer.
    is_cut: bool,
}

impl CapturedHeaders {
    /// Adds a header with its values, joined by `, ` and cut after 1,024 bytes, or fewer if the record is full. A header
    /// without a value is absent.
    pub fn add<'v>(
        &mut self,
        origin: HeaderOrigin,
        name: &HeaderName,
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        let start = self.text.len();
        let max = MAX_VALUE.min(MAX_TOTAL.saturating_sub(start));
        for (index, value) in values.enumerate() {
            let separator: &[u8] = if index > 0 { b", " } else { b"" };
            self.text.extend_from_slice(separator);
            // One byte more than is kept shows that the value is cut.
            self.text.extend_from_slice(value.get(..=max).unwrap_or(value));
            if self.text.len() - start > max {
                break;
            }
        }
        let end = self.text.len().min(start + max);
        let is_cut = end < self.text.len();
        self.text.truncate(end);
        self.headers.push(CapturedHeader { origin, name: name.clone(), start, end, is_cut });
    }

    /// The value of a header, and whether it is cut.
    pub(super) fn find(&self, origin: HeaderOrigin, name: &HeaderName) -> Option<(&[u8], bool)> {
        let mut found = self.headers.iter().filter(|header| header.origin == origin);
        let header = found.find(|header| header.name == *name)?;
        Some((self.text.get(header.start..header.end)?, header.is_cut))
    }

    /// Removes the headers of a response that is not sent after all.
    pub fn remove_response(&mut self) {
        self.headers.retain(|header| header.origin == HeaderOrigin::Request);
        self.text.truncate(self.headers.last().map_or(0, |last| last.end));
    }

    /// Removes all headers, but keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.headers.clear();
    }

    /// The bytes of memory of the values.
    pub fn capacity(&self) -> usize {
        self.text.capacity()
    }
}

/// A text as it is shown: its first bytes, without half a character at the end.
pub(super) fn shown(value: &[u8], is_cut: bool) -> String {
    let is_long = value.len() > MAX_VALUE;
    let bytes = if is_long { value.get(..MAX_VALUE).unwrap_or(value) } else { value };
    let whole = match std::str::from_utf8(bytes) {
        // Cut inside a character.
        Err(error) if error.error_len().is_none() && (is_cut || is_long) => error.valid_up_to(),
        _ => bytes.len(),
    };
    let mut text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or(bytes)).into_owned();
    if is_cut || is_long {
        text.push('…');
    }
    text
}
