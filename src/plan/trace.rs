//! `[trace]`: which requests are traced, and who is told of them.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

use super::Endpoint;
use super::log::Sample;

/// `[trace]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Who takes the spans, by OTLP over HTTP.
    pub collector: Endpoint,
    /// Where it takes them.
    pub path: PathAndQuery,
    /// Fields that each export carries: who we are, as a rule, so their values do not show in `Debug`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many requests begin a trace, of those that do not belong to one.
    pub sample: Sample,
    /// The `service.name` of the spans.
    pub service_name: Arc<str>,
}

impl Trace {
    /// The collector as a person writes it, without the fields.
    pub fn url(&self) -> String {
        let scheme = if self.collector.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.collector.authority, self.path)
    }
}
