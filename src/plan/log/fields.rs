//! The fields of a record, and the data of a request that they need.

use http::HeaderName;

use super::LogField;

/// The maximum number of header columns of each kind.
pub const MAX_HEADER_COLUMNS: usize = 32;

/// The fields of a record, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFields {
    columns: Box<[LogColumn]>,
    pub(super) needs_agent: bool,
    pub(super) needs_key: bool,
    request_headers: Box<[HeaderName]>,
    response_headers: Box<[HeaderName]>,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogColumn {
    /// One of the gateway's own.
    Field(LogField),
    /// `header:NAME`: a header of the client's request.
    RequestHeader(HeaderColumn),
    /// `response_header:NAME`: a header of the response to the client.
    ResponseHeader(HeaderColumn),
}

/// A header as a field.
#[derive(Clone, Debug)]
pub struct HeaderColumn {
    /// The field as the file writes it: `header:X-Tenant`.
    pub label: Box<str>,
    /// The header's name.
    pub name: HeaderName,
}

/// Two spellings of one name are one field.
impl PartialEq for HeaderColumn {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for HeaderColumn {}

impl LogFields {
    /// These columns, none of which is there twice.
    pub fn new(columns: impl IntoIterator<Item = LogColumn>) -> Self {
        let columns: Box<[_]> = columns.into_iter().collect();
        let has = |fields: &[LogField]| {
            let is_one =
                |column: &LogColumn| matches!(column, LogColumn::Field(field) if fields.contains(field));
            columns.iter().any(is_one)
        };
        let (needs_agent, needs_key) =
            (has(&[LogField::UserAgent, LogField::Referer]), has(&[LogField::Key]));
        let request = columns.iter().filter_map(|column| match column {
            LogColumn::RequestHeader(header) => Some(header.name.clone()),
            _ => None,
        });
        let response = columns.iter().filter_map(|column| match column {
            LogColumn::ResponseHeader(header) => Some(header.name.clone()),
            _ => None,
        });
        let (request_headers, response_headers) = (request.collect(), response.collect());
        Self { columns, needs_agent, needs_key, request_headers, response_headers }
    }

    /// These fields, without headers.
    pub fn of(fields: impl IntoIterator<Item = LogField>) -> Self {
        Self::new(fields.into_iter().map(LogColumn::Field))
    }

    /// The fields, in their order.
    pub fn columns(&self) -> &[LogColumn] {
        &self.columns
    }

    /// The headers of requests that are logged.
    pub fn request_headers(&self) -> &[HeaderName] {
        &self.request_headers
    }

    /// The headers of responses that are logged.
    pub fn response_headers(&self) -> &[HeaderName] {
        &self.response_headers
    }
}

/// Fields that are logged only where the file names them.
const NAMED_ONLY: [LogField; 5] =
    [LogField::TraceId, LogField::UserAgent, LogField::Referer, LogField::Protocol, LogField::Key];
/// Fields that are logged where a route settles costs, or the file names them.
const OF_SETTLED: [LogField; 3] = [LogField::Reserved, LogField::Settled, LogField::Settlement];

impl LogFields {
    /// The fields of a file that names none: with those of costs that are settled, and of limits in shadow.
    pub fn default_with(settled: bool, shadow: bool) -> Self {
        let is_default = |field: &LogField| {
            !NAMED_ONLY.contains(field)
                && (settled || !OF_SETTLED.contains(field))
                && (shadow || *field != LogField::Shadow)
        };
        Self::of(LogField::ALL.into_iter().filter(is_default))
    }

    /// All fields of files that name none.
    pub fn defaults() -> [Self; 4] {
        [(false, false), (true, false), (false, true), (true, true)]
            .map(|(settled, shadow)| Self::default_with(settled, shadow))
    }
}

/// The fields of a file that names none.
impl Default for LogFields {
    fn default() -> Self {
        Self::default_with(false, false)
    }
}

impl LogColumn {
    /// The name of the field in the file, and the key of the JSON object.
    pub fn label(&self) -> &str {
        match self {
            Self::Field(field) => field.as_str(),
            Self::RequestHeader(header) | Self::ResponseHeader(header) => &header.label,
        }
    }
}
