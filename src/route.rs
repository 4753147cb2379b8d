//! Routing: the route of a request, and the keys that its limits count by.
//!
//! A route is a set of conditions, and the most specific route whose conditions a request meets is its route. A key is a
//! list of parts that are found in the request. For example, `GET /api/users/7` goes to `/api/*` and not to `/*`. With
//! `key = "ip"` it counts with all requests of its address, and with `key = ["header:x-api-key", "path"]` with those that
//! have the same API key and the same path. `table` finds the route, and [`key`] makes a fingerprint of 128 bits of the
//! parts, so that no value of a client is stored.

mod candidates;
pub mod claim;
pub mod client;
pub mod condition;
pub mod consumers;
pub mod content;
pub mod cookie;
pub mod credential;
pub mod descriptor;
pub mod exemptions;
mod folding;
pub mod guarded_headers;
pub mod identity;
pub mod key;
pub mod locations;
pub mod mask;
pub mod network_prefixes;
pub mod networks;
mod part;
mod part_value;
pub mod path;
pub mod pattern;
mod query;
mod regex_index;
mod secret;
mod table;
pub mod tier_map;
mod trie;
mod value_index;
mod value_pattern;

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::sync::Arc;

use http::{HeaderName, Method};

use crate::http1::fields::Fields;
use crate::http1::request::Body;
use crate::measure::JsonPointer;
use crate::net::client_certificate::ClientCertificate;
use client::ClientAddress;
use condition::Condition;
use consumers::Consumer;
use content::RequestContent;
use path::Path;
use pattern::{HostPattern, PathMatcher};
pub use table::RouteTable;

/// A route's index in the file, and in [`crate::plan::Plan::routes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteIndex(pub usize);

/// The request as routing and keys see it: as the client sent it, before anything is stripped.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    /// The method, case-sensitive.
    pub method: &'a Method,
    /// The host in the form of [`pattern::bare_host`]: lower case, without port and final dot. May be empty (HTTP/1.0
    /// without Host).
    pub host: &'a str,
    /// The path, normalised.
    pub path: &'a Path<'a>,
    /// The query without its `?`, as sent.
    pub query: Option<&'a str>,
    /// The fields as sent.
    pub headers: Fields<'a>,
    /// The framing of the body.
    pub body: Body,
    /// The client's address.
    pub client: ClientAddress,
    /// The client's certificate; `None` without one.
    pub certificate: Option<&'a ClientCertificate>,
    /// The name of the listener that it came at, if that has one.
    pub listener: Option<&'a str>,
    /// Its body, where the route reads it.
    pub content: &'a RequestContent,
    /// The consumer that the request's credential names; `None`: it is anonymous, or not authenticated yet.
    pub consumer: Option<Consumer<'a>>,
    /// The name of the upstream that it goes to, where a limit counts by it.
    pub upstream: Option<&'a str>,
}

/// A request, with what keys and exemptions depend on of the route that it matched.
#[derive(Clone, Copy, Debug)]
pub struct MatchedRequest<'a> {
    /// The request.
    pub request: &'a RouteRequest<'a>,
    /// The route's name.
    pub route: &'a str,
    /// The route's form of the path.
    pub merge_slashes: bool,
}

impl MatchedRequest<'_> {
    /// The path as the route forwards it.
    pub fn path(&self) -> &str {
        self.request.path.form(self.merge_slashes)
    }
}

impl<'a> RouteRequest<'a> {
    /// The request, matched by a route of this name with this form of the path.
    #[inline]
    pub fn matched_by(&'a self, route: &'a str, merge_slashes: bool) -> MatchedRequest<'a> {
        MatchedRequest { request: self, route, merge_slashes }
    }

    /// Whether it stands for a descriptor, about which another proxy asks.
    pub fn is_descriptor(&self) -> bool {
        matches!(self.content, RequestContent::Descriptor(_))
    }

    /// The decoded values of a parameter of the query.
    pub fn query_values(&self, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        self.query.into_iter().flat_map(move |query| query::all(query, name))
    }
}

/// The conditions of a route: it matches when all of these hold.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Any of these; empty: any host.
    pub hosts: Vec<HostPattern>,
    /// The path.
    pub path: PathMatcher,
    /// Any of these, as written; GET includes HEAD unless a route that fits the same request names HEAD. Empty: any
    /// method.
    pub methods: Vec<Method>,
    /// All of these; empty: any.
    pub values: Vec<Condition>,
    /// Whether `//` counts as `/`.
    pub merge_slashes: bool,
}

/// Why a route did not match, or that it did; as text through `Display`. Of several reasons the first in the order of
/// these variants is given: a route with any other reason than `Path` has the
/// request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// This is the route.
    Chosen,
    /// All conditions hold, but that route takes precedence.
    LessSpecific(RouteIndex, Criterion),
    /// The path differs.
    Path,
    /// None of its hosts is the request's.
    Host,
    /// The method is not among the route's.
    Method,
    /// This field is absent or differs.
    Header(HeaderName),
    /// This parameter of the query is absent or differs.
    Query(Arc<str>),
    /// This cookie is absent or differs.
    Cookie(Arc<str>),
    /// This value of the body is absent or differs.
    Body(Arc<JsonPointer>),
    /// The client is in none of its networks.
    Client,
    /// The client is in none of its countries.
    Country,
    /// The request came at another listener.
    Listener,
    /// This condition holds, which must not.
    Excluded(Arc<Condition>),
}

/// The criterion that decides between two matching routes: the first of these in which they differ. As text, about the
/// winning one, through `Display`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Exact, wildcard (the longer suffix first), any.
    Host,
    /// Exact, parameters, regular expression, longest prefix.
    Path,
    /// Methods given.
    Methods,
    /// More conditions on headers, query, cookies and clients, or of `not`.
    Values,
    /// The path is spelled as the request's.
    Spelling,
    /// File order.
    Order,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "its host is more specific",
            Self::Path => "its path is more specific",
            Self::Methods => "it names methods",
            Self::Values => "it has more conditions on values",
            Self::Spelling => "its path is spelled as the request's",
            Self::Order => "it stands earlier in the file",
        })
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("matches"),
            Self::LessSpecific(_, criterion) => write!(f, "matches too, but another route wins: {criterion}"),
            Self::Path => f.write_str("the path differs"),
            Self::Host => f.write_str("the host differs"),
            Self::Method => f.write_str("the method differs"),
            Self::Header(name) => write!(f, "the field `{name}` is absent or differs"),
            Self::Query(name) => write!(f, "the parameter `{name}` of the query is absent or differs"),
            Self::Cookie(name) => write!(f, "the cookie `{name}` is absent or differs"),
            Self::Body(pointer) => write!(f, "the value `{pointer}` of the body is absent or differs"),
            Self::Client => f.write_str("the client is in none of its networks"),
            Self::Country => f.write_str("the client is in none of its countries"),
            Self::Listener => f.write_str("the request comes at another listener"),
            Self::Excluded(condition) => write!(f, "`not` excludes {}", condition.subject()),
        }
    }
}

impl Conditions {
    /// The more specific first, without hosts: by path, methods given, number of conditions on values. Of two regular
    /// expressions none is: they are tried in file order.
    fn specificity(&self, other: &Self) -> Ordering {
        let rest = |route: &Self| (route.methods.is_empty(), Reverse(route.count_of_values()));
        let rest = || if self.path.is_regex() { Ordering::Equal } else { rest(self).cmp(&rest(other)) };
        self.path.specificity(&other.path).then_with(rest)
    }

    /// The criterion by which this route, for a request with this host, takes precedence over `other`, which matches
    /// too.
    fn wins_by(&self, other: &Self, host: &str) -> Criterion {
        match (self.closest_host(host) == other.closest_host(host), self.path.specificity(&other.path)) {
            (false, _) => Criterion::Host,
            (true, Ordering::Less | Ordering::Greater) => Criterion::Path,
            _ if self.path.is_regex() => Criterion::Order,
            _ if self.methods.is_empty() != other.methods.is_empty() => Criterion::Methods,
            _ if self.count_of_values() != other.count_of_values() => Criterion::Values,
            _ => Criterion::Order,
        }
    }

    /// The specificity of the route's hosts for this one.
    fn closest_host(&self, host: &str) -> Option<impl Ord + use<>> {
        let matching = self.hosts.iter().filter(|pattern| pattern.matches(host));
        matching.map(HostPattern::specificity).max()
    }

    /// The first condition that does not hold.
    fn mismatch(&self, request: &RouteRequest<'_>) -> Option<Match> {
        if !self.path.matches(request.path, self.merge_slashes) {
            return Some(Match::Path);
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|host| host.matches(request.host)) {
            return Some(Match::Host);
        }
        if !self.takes(request.method) {
            return Some(Match::Method);
        }
        let missing = self.values.iter().find(|condition| !condition.holds(request));
        missing.map(|condition| match condition {
            Condition::Header(name, _) => Match::Header(name.clone()),
            Condition::Query(name, _) => Match::Query(Arc::clone(name)),
            Condition::Cookie(name, _) => Match::Cookie(Arc::clone(name)),
            Condition::Body(pointer, _) => Match::Body(Arc::clone(pointer)),
            Condition::Clients(_) => Match::Client,
            Condition::Countries(_) => Match::Country,
            Condition::Listeners(_) => Match::Listener,
            Condition::Not(inner) => Match::Excluded(Arc::clone(inner)),
            // These stand inside `not` only.
            Condition::Methods(_) => Match::Method,
            Condition::Hosts(_) => Match::Host,
            Condition::Path(..) => Match::Path,
        })
    }

    /// The number of conditions on values in the order of routes: each header and parameter is one; all networks of
    /// clients, all cookies, and all of `not` are one each.
    fn count_of_values(&self) -> usize {
        let (mut count, mut has_cookies, mut has_not) = (0, false, false);
        for condition in &self.values {
            match condition {
                Condition::Cookie(..) => has_cookies = true,
                Condition::Not(_) => has_not = true,
                _ => count += 1,
            }
        }
        count + usize::from(has_cookies) + usize::from(has_not)
    }

    /// Whether the conditions on values hold.
    fn has_values_of(&self, request: &RouteRequest<'_>) -> bool {
        self.values.iter().all(|condition| condition.holds(request))
    }

    /// Whether the method is among the route's.
    fn takes(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// Whether hosts and methods include all of `other`'s, where both list some or neither does.
    fn includes(&self, other: &Self) -> bool {
        other.hosts.iter().all(|host| self.hosts.contains(host))
            && other.methods.iter().all(|method| self.methods.contains(method))
    }
}
