//! Which rule a request falls under, and whose allowance it spends.

pub mod client;
pub mod key;
pub mod path;
pub mod pattern;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use client::Client;
use path::Path;
use pattern::{HostPattern, PathPattern};

/// A route's place in the file, and in [`crate::gateway::Gateway::routes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteIndex(pub usize);

/// What routing and keys may look at: the request as the client sent it, before anything is stripped.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method, case-sensitive.
    pub method: &'a Method,
    /// The host: lower case, without port and final dot. May be empty (HTTP/1.0 without Host).
    pub host: &'a str,
    /// The path, normalised.
    pub path: &'a Path<'a>,
    /// The query without its `?`, as sent.
    pub query: Option<&'a str>,
    /// The fields as sent.
    pub headers: &'a HeaderMap,
    /// Who asks.
    pub client: Client,
}

/// When a route matches: all of these hold.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Any of these; empty: any host.
    pub hosts: Vec<HostPattern>,
    /// The path.
    pub path: PathPattern,
    /// Any of these; empty: any method.
    pub methods: Vec<Method>,
    /// All of these, each equal to one of the field's values; empty: any.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether `//` counts as `/`.
    pub merge_slashes: bool,
}

/// Why a route did not match, or that it did; in words through `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// This is the route.
    Chosen,
    /// All conditions hold, but that route is more specific.
    LessSpecific(RouteIndex),
    /// None of its hosts is the request's.
    Host,
    /// The path differs.
    Path,
    /// The method is not among the route's.
    Method,
    /// This field is absent or differs.
    Header(HeaderName),
}

/// All routes, compiled for lookup.
#[derive(Debug)]
pub struct RouteTable {}

impl RouteTable {
    /// Compiles the routes; their order breaks ties.
    pub fn new(_routes: Vec<Conditions>) -> Self {
        Self {}
    }

    /// The most specific route of those whose conditions all hold: host (exact, wildcard, any), then path (exact,
    /// parameter, longest prefix), then methods given, then more headers, then file order.
    pub fn find(&self, _request: &Request<'_>) -> Option<RouteIndex> {
        None
    }

    /// For every route in file order: why it did or did not match.
    pub fn explain(&self, _request: &Request<'_>) -> Vec<Match> {
        Vec::new()
    }

    /// Routes that no request can reach, each with the route that takes all of theirs.
    pub fn unreachable(&self) -> Vec<(RouteIndex, RouteIndex)> {
        Vec::new()
    }
}
