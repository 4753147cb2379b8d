//! How the body of a response holds its values, by its content type.

/// The form of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFormat {
    /// One document, or a list of documents.
    #[default]
    Document,
    /// A stream of documents, one a line: NDJSON, JSON Lines.
    Lines,
    /// An event stream.
    Events,
}

/// The content types of lines of JSON.
const LINES: [&str; 7] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonl",
    "application/jsonlines",
    "application/x-jsonlines",
    "application/stream+json",
];

impl BodyFormat {
    /// By the value of `content-type`, empty if there is none.
    #[must_use]
    pub fn of(content_type: &[u8]) -> Self {
        let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let is = |name: &str| media_type.eq_ignore_ascii_case(name.as_bytes());
        match media_type {
            _ if is("text/event-stream") => Self::Events,
            _ if LINES.into_iter().any(is) => Self::Lines,
            _ => Self::Document,
        }
    }
}
