//! `[trace]`: spans of requests, exported to a collector.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

use super::Endpoint;
use super::log::Sample;

/// `[trace]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The collector, which receives spans by OTLP over HTTP.
    pub collector: Endpoint,
    /// The path at the collector.
    pub path: PathAndQuery,
    /// Headers of each export. They usually hold credentials, so `Debug` omits their values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The share of requests that begin a trace, of those without one.
    pub sample: Sample,
    /// The `service.name` of the spans.
    pub service_name: Arc<str>,
}

impl Trace {
    /// The collector's URL, without the headers.
    pub fn url(&self) -> String {
        let scheme = if self.collector.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.collector.authority, self.path)
    }
}
