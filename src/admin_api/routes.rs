//! `GET routes`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All routes, in the order of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteList {
    /// The routes.
    pub routes: Vec<RouteReport>,
}

/// A route. The values of its conditions are left out: they may be secrets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteReport {
    /// Its name.
    pub name: String,
    /// Patterns of hosts; empty: all.
    pub hosts: Vec<String>,
    /// The pattern of paths.
    pub path: String,
    /// Empty: all.
    pub methods: Vec<String>,
    /// Names of headers.
    pub headers: Vec<String>,
    /// Names of parameters of the query.
    pub query: Vec<String>,
    /// Names of cookies.
    pub cookies: Vec<String>,
    /// JSON pointers into the body.
    pub body: Vec<String>,
    /// Networks of clients.
    pub clients: Vec<String>,
    /// Countries of clients.
    pub countries: Vec<String>,
    /// Names of listeners.
    pub listeners: Vec<String>,
    /// What excluded conditions are about: `headers.x-internal`, `path`.
    pub not: Vec<String>,
    /// The upstream, if there is only one.
    pub upstream: Option<String>,
    /// The weights of several upstreams, by name.
    pub split: Option<BTreeMap<String, u32>>,
    /// The copies of its requests for another upstream.
    pub mirror: Option<RouteMirrorReport>,
    /// The status that the gateway itself answers with.
    pub answer: Option<u16>,
    /// The least cost of a request.
    pub cost: u32,
    /// How a cost is found that is not the same for each request.
    pub cost_rule: Option<String>,
    /// The names of what authenticates requests.
    pub auth: Vec<String>,
    /// Its limits.
    pub limits: Vec<RouteLimitReport>,
}

/// The mirror of a route.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteMirrorReport {
    /// The upstream that gets the copies.
    pub upstream: String,
    /// The share of callers whose requests are copied, from 0 to 1.
    pub share: f64,
    /// The parts of the key that tells callers apart.
    pub key: Vec<String>,
    /// The longest body that is copied, in bytes.
    pub max_body: u64,
}

/// A limit of a route.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteLimitReport {
    /// Its name.
    pub name: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// The least cost of a request there.
    pub cost: u32,
    /// How a cost is found that is not the same for each request.
    pub cost_rule: Option<String>,
}
