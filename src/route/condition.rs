//! Conditions of a route on values of the request: `headers`, `query`, `cookies`, `body`, `clients`, `country` and `not`.

mod of_body;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, Method, header};
use ipnet::{IpNet, Ipv4Net};

use super::content::BodyValue;
use super::locations::Country;
use super::path::PathMatching;
use super::pattern::{HostPattern, PathMatcher};
use super::value_index::{ValueIndex, lower_case};
pub use super::value_pattern::{ValuePattern, ValueRegex};
use super::{RouteRequest, cookie, query};
use crate::measure::JsonPointer;
pub use of_body::UndecidedCondition;
use of_body::holds_in_body;

/// A condition on a value of the request. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// On the values of a header.
    Header(HeaderName, ValuePatterns),
    /// On the decoded values of a parameter of the query.
    Query(Arc<str>, ValuePatterns),
    /// On the decoded values of a cookie, over all `cookie` headers.
    Cookie(Arc<str>, ValuePatterns),
    /// On a value of a JSON body.
    Body(Arc<JsonPointer>, ValuePatterns),
    /// The client's address is in one of these networks, which are disjoint.
    Clients(Arc<[IpNet]>),
    /// The client's address is in one of these countries, as far as that is known.
    Countries(Arc<[Country]>),
    /// The request came at a listener with one of these names.
    Listeners(Arc<[Box<str>]>),
    /// The condition does not hold.
    Not(Arc<Condition>),
    /// The method is one of these; GET includes HEAD. Stands inside [`Self::Not`] only, as the two below.
    Methods(Arc<[Method]>),
    /// One of these matches the host.
    Hosts(Arc<[HostPattern]>),
    /// The path matches, with duplicate slashes merged or not.
    Path(Arc<PathMatcher>, bool),
}

/// Patterns for the values of one header, cookie or parameter: any of them must match. Cheap to clone. `Display` writes
/// them as in the file, in a normal form: equal ones have equal texts, and different ones different texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValuePatterns(Arc<PatternList>);

#[derive(Debug)]
struct PatternList {
    /// In order, each once. If letters match in any case, in lower case.
    patterns: Vec<ValuePattern>,
    ignores_case: bool,
    /// Contains the same patterns; `None` if there are few.
    index: Option<Box<ValueIndex>>,
}

/// Shorter lists have no index: trying a few patterns is as fast.
const MIN_TO_INDEX: usize = 8;

/// Headers with values that mean the same in any case: names of protocols (RFC 9110 §7.8), options of a connection
/// (§7.6.1), codings (§8.4.1, §10.1.4, RFC 9112 §7) and media types (§8.3.1).
const CASELESS: [HeaderName; 8] = [
    header::UPGRADE,
    header::CONNECTION,
    header::ACCEPT_ENCODING,
    header::CONTENT_ENCODING,
    header::TE,
    header::TRANSFER_ENCODING,
    header::CONTENT_TYPE,
    header::ACCEPT,
];

/// In a normal form: equal conditions have equal texts, and different ones different texts.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name, values) => write!(f, "header {name}: {values}"),
            Self::Query(name, values) => write!(f, "query {name:?}: {values}"),
            Self::Cookie(name, values) => write!(f, "cookie {name}: {values}"),
            Self::Body(pointer, values) => write!(f, "body {pointer}: {values}"),
            Self::Clients(networks) => listed(f, "clients", networks),
            Self::Countries(countries) => listed(f, "country", countries),
            Self::Listeners(names) => listed(f, "listeners", names),
            Self::Not(inner) => write!(f, "not {inner}"),
            Self::Methods(methods) => listed(f, "methods", methods),
            Self::Hosts(hosts) => listed(f, "hosts", hosts),
            Self::Path(path, merge_slashes) => write!(f, "path {merge_slashes} {}", path.shape()),
        }
    }
}

fn listed<T: fmt::Display>(f: &mut fmt::Formatter<'_>, noun: &str, items: &[T]) -> fmt::Result {
    f.write_str(noun)?;
    items.iter().try_for_each(|item| write!(f, " {item}"))
}

impl Condition {
    /// The condition that one of these patterns matches the header.
    pub fn header(name: HeaderName, patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        let patterns = ValuePatterns::of_header(&name, patterns);
        Self::Header(name, patterns)
    }

    /// The condition that one of these patterns matches the parameter of the query with this decoded name.
    pub fn query(name: &str, patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        Self::Query(name.into(), ValuePatterns::new(patterns))
    }

    /// The condition that one of these patterns matches the cookie.
    pub fn cookie(name: &str, patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        Self::Cookie(name.into(), ValuePatterns::new(patterns))
    }

    /// The condition that one of these patterns matches the value at this pointer into the body.
    pub fn body(pointer: JsonPointer, patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        Self::Body(pointer.into(), ValuePatterns::new(patterns))
    }

    /// The condition that the client's address is in one of these networks.
    pub fn clients(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let canonical: Vec<_> = networks.into_iter().map(without_mapping).collect();
        Self::Clients(IpNet::aggregate(&canonical).into())
    }

    /// The condition that the client's address is in one of these countries.
    pub fn countries(countries: impl IntoIterator<Item = Country>) -> Self {
        // In a normal form.
        let mut countries: Vec<_> = countries.into_iter().collect();
        countries.sort_unstable();
        Self::Countries(countries.into())
    }

    /// The condition that the request came at a listener with one of these names.
    pub fn listeners(names: impl IntoIterator<Item = Box<str>>) -> Self {
        // In a normal form.
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        Self::Listeners(names.into())
    }

    /// The condition that this one does not hold.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::Not(Arc::new(self))
    }

    /// Whether the request satisfies the condition. A client that is not identified is in no network, since its address
    /// is that of a proxy, which many clients share. A condition that is [undecided](Self::undecided) holds.
    pub fn holds(&self, request: &RouteRequest<'_>) -> bool {
        match self {
            Self::Header(name, values) => values.match_any(request.headers.all(name).iter()),
            Self::Query(name, values) => {
                values.match_any(query::all(request.query.unwrap_or_default(), name))
            }
            Self::Cookie(name, values) => values.match_any(cookie::all(request.headers, name)),
            Self::Body(pointer, values) => holds_in_body(request.content, pointer, values),
            Self::Clients(networks) => {
                let client = request.client;
                client.identified && networks.iter().any(|network| network.contains(&client.address))
            }
            Self::Countries(countries) => {
                request.client.location.country.is_some_and(|country| countries.contains(&country))
            }
            Self::Listeners(names) => {
                request.listener.is_some_and(|listener| names.iter().any(|name| **name == *listener))
            }
            // A client that is not identified is neither inside of networks nor outside of them.
            Self::Not(inner) if matches!(**inner, Self::Clients(_)) => {
                request.client.identified && !inner.holds(request)
            }
            Self::Not(inner) => !inner.holds(request) || inner.undecided(request).is_some(),
            Self::Methods(methods) => methods.contains(request.method),
            Self::Hosts(hosts) => hosts.iter().any(|host| host.matches(request.host)),
            Self::Path(path, merge_slashes) => path.matches(request.path, *merge_slashes),
        }
    }

    /// Whether it depends on the client's address, the listener or the body, and not on the head of the request alone.
    pub(super) fn reads_connection(&self) -> bool {
        match self {
            Self::Clients(_) | Self::Countries(_) | Self::Listeners(_) | Self::Body(..) => true,
            Self::Not(inner) => inner.reads_connection(),
            Self::Header(..)
            | Self::Query(..)
            | Self::Cookie(..)
            | Self::Methods(_)
            | Self::Hosts(_)
            | Self::Path(..) => false,
        }
    }

    /// What it is about, in words.
    pub fn subject(&self) -> String {
        match self {
            Self::Header(name, _) => format!("the field `{name}`"),
            Self::Query(name, _) => format!("the parameter `{name}` of the query"),
            Self::Cookie(name, _) => format!("the cookie `{name}`"),
            Self::Body(pointer, _) => format!("the value `{pointer}` of the body"),
            Self::Clients(_) => "the client's network".to_owned(),
            Self::Countries(_) => "the client's country".to_owned(),
            Self::Listeners(_) => "the listener".to_owned(),
            Self::Not(inner) => inner.subject(),
            Self::Methods(_) => "the method".to_owned(),
            Self::Hosts(_) => "the host".to_owned(),
            Self::Path(..) => "the path".to_owned(),
        }
    }

    /// Its key in the file: `headers.x-internal`, `path`.
    pub fn key(&self) -> String {
        match self {
            Self::Header(name, _) => format!("headers.{name}"),
            Self::Query(name, _) => format!("query.{name}"),
            Self::Cookie(name, _) => format!("cookies.{name}"),
            Self::Body(pointer, _) => format!("body.{pointer}"),
            Self::Clients(_) => "clients".to_owned(),
            Self::Countries(_) => "country".to_owned(),
            Self::Listeners(_) => "listeners".to_owned(),
            Self::Not(_) => "not".to_owned(),
            Self::Methods(_) => "methods".to_owned(),
            Self::Hosts(_) => "hosts".to_owned(),
            Self::Path(..) => "path".to_owned(),
        }
    }

    /// What a request with it has: `` `x-beta` ``, `a client in 2 networks`. Of [`Self::Not`] what its condition says.
    pub fn words(&self) -> String {
        let value = |name: String, values: &ValuePatterns| {
            if values.iter().eq([&ValuePattern::Absent]) { format!("no {name}") } else { name }
        };
        let listed = |noun: &str, items: Vec<String>| format!("the {noun} {}", items.join(" or "));
        match self {
            Self::Header(name, values) => value(format!("`{name}`"), values),
            Self::Query(name, values) => value(format!("`?{name}`"), values),
            Self::Cookie(name, values) => value(format!("the cookie `{name}`"), values),
            Self::Body(pointer, values) => value(format!("`{pointer}` in the body"), values),
            Self::Clients(networks) => {
                let plural = if networks.len() == 1 { "" } else { "s" };
                format!("a client in {} network{plural}", networks.len())
            }
            Self::Countries(countries) => {
                listed("country", countries.iter().map(ToString::to_string).collect())
            }
            Self::Listeners(names) => {
                listed("listener", names.iter().map(|name| format!("`{name}`")).collect())
            }
            Self::Not(inner) => inner.words(),
            Self::Methods(methods) => listed("method", methods.iter().map(ToString::to_string).collect()),
            Self::Hosts(hosts) => listed("host", hosts.iter().map(ToString::to_string).collect()),
            Self::Path(path, _) => format!("the path {path}"),
        }
    }

    /// Why it holds: what it is about, and the reason. Without the value: it may be a secret of the file.
    pub fn reason(&self, request: &RouteRequest<'_>) -> (&'static str, String) {
        let value = |name: &str| match self.is_sent(request) {
            true => format!("`{name}` has a value that the route asks for"),
            false => format!("`{name}` is absent, as the route asks"),
        };
        match self {
            Self::Header(name, _) => ("field", value(name.as_str())),
            Self::Query(name, _) => ("query", value(name)),
            Self::Cookie(name, _) => ("cookie", value(name)),
            Self::Body(pointer, _) => ("body", value(pointer.as_str())),
            Self::Clients(_) => {
                ("client", format!("{} is in a network of the route", request.client.address))
            }
            Self::Countries(_) => {
                let country = request.client.location.country;
                let country = country.map(|country| country.to_string()).unwrap_or_default();
                ("country", format!("the client is in {country}"))
            }
            Self::Listeners(_) => ("listen", format!("`{}` is named", request.listener.unwrap_or_default())),
            Self::Not(inner) => ("not", format!("{} is not excluded", inner.subject())),
            Self::Methods(_) => ("method", format!("`{}` is named", request.method)),
            Self::Hosts(_) => ("host", format!("`{}` matches", request.host)),
            Self::Path(path, _) => ("path", format!("matches `{path}`")),
        }
    }

    /// Whether a request has a value that it is about.
    pub fn is_sent(&self, request: &RouteRequest<'_>) -> bool {
        match self {
            Self::Header(name, _) => request.headers.first(name).is_some(),
            Self::Query(name, _) => request.query_values(name).next().is_some(),
            Self::Cookie(name, _) => cookie::all(request.headers, name).next().is_some(),
            Self::Body(pointer, _) => request.content.member(pointer) != BodyValue::Missing,
            _ => true,
        }
    }

    /// The condition as requests are compared: with the path in its normal form.
    pub(super) fn folded(self, matching: PathMatching) -> Self {
        match self {
            Self::Not(inner) => Self::Not(Arc::new(Self::clone(&inner).folded(matching))),
            Self::Path(path, merge_slashes) => {
                let path = PathMatcher::clone(&path);
                let path = if merge_slashes { path.merged() } else { path };
                let is_lenient = matching == PathMatching::Lenient;
                let path = if is_lenient { path.folded(merge_slashes) } else { path };
                Self::Path(Arc::new(path), merge_slashes)
            }
            other => other,
        }
    }
}

impl ValuePatterns {
    /// These patterns; letters match in their case.
    pub fn new(patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        Self::with_case(patterns.into_iter().collect(), false)
    }

    /// These patterns for a header; letters match in any case if its values mean the same in any case.
    pub fn of_header(name: &HeaderName, patterns: impl IntoIterator<Item = ValuePattern>) -> Self {
        let ignores_case = CASELESS.contains(name);
        let patterns = patterns.into_iter();
        match ignores_case {
            true => Self::with_case(patterns.map(ValuePattern::without_case).collect(), true),
            false => Self::with_case(patterns.collect(), false),
        }
    }

    fn with_case(mut patterns: Vec<ValuePattern>, ignores_case: bool) -> Self {
        patterns.sort_unstable();
        patterns.dedup();
        let index = (patterns.len() >= MIN_TO_INDEX).then(|| ValueIndex::new(&patterns, ignores_case).into());
        Self(Arc::new(PatternList { patterns, ignores_case, index }))
    }

    /// In order, each once; in lower case if letters match in any case.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ValuePattern> {
        self.0.patterns.iter()
    }

    /// Whether letters match in any case.
    pub fn ignores_case(&self) -> bool {
        self.0.ignores_case
    }

    /// Whether any pattern matches, where these are all values that a request has. Allocates only for values of more
    /// than 256 bytes whose case does not count.
    #[inline]
    pub(super) fn match_any<V: AsRef<[u8]>>(&self, mut values: impl Iterator<Item = V>) -> bool {
        let PatternList { patterns, ignores_case, index } = &*self.0;
        if let Some(index) = index {
            return index.find(values, |_| true);
        }
        let mut is_absent = true;
        let is_found = values.any(|value| {
            is_absent = false;
            match ignores_case {
                true => match_in_lower_case(patterns, value.as_ref()),
                false => patterns.iter().any(|pattern| pattern.matches(value.as_ref())),
            }
        });
        is_found || is_absent && patterns.contains(&ValuePattern::Absent)
    }
}

/// A function of its own, since its buffer is large.
#[inline(never)]
fn match_in_lower_case(patterns: &[ValuePattern], value: &[u8]) -> bool {
    let value = lower_case(value);
    patterns.iter().any(|pattern| pattern.matches(&value))
}

impl PartialEq for PatternList {
    fn eq(&self, other: &Self) -> bool {
        self.ignores_case == other.ignores_case && self.patterns == other.patterns
    }
}

impl Eq for PatternList {}

impl Hash for PatternList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.patterns.hash(state);
    }
}

impl fmt::Display for ValuePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |pattern: &ValuePattern| match pattern {
            ValuePattern::Present => "true".to_owned(),
            ValuePattern::Absent => "false".to_owned(),
            text => format!("{:?}", text.to_string()),
        };
        let shown: Vec<_> = self.0.patterns.iter().map(shown).collect();
        match shown.as_slice() {
            [only] => f.write_str(only),
            all => write!(f, "[{}]", all.join(", ")),
        }
    }
}

/// A network in IPv4-mapped form as the network of IPv4 that it is.
fn without_mapping(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    let prefix = v6.prefix_len().checked_sub(96);
    let mapped = v6.network().to_ipv4_mapped().zip(prefix);
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}

/// The bytes by which an index finds a network: its [kind](network_kind), then its first address.
pub(super) fn network_key(network: IpNet) -> [u8; 17] {
    let mut key = [0; 17];
    key[0] = network_kind(network);
    match network.network() {
        IpAddr::V4(v4) => key[1..5].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key[1..].copy_from_slice(&v6.octets()),
    }
    key
}

/// The family and prefix of a network as one byte: 0 to 32 for IPv4, 64 to 192 for IPv6.
pub(super) fn network_kind(network: IpNet) -> u8 {
    match network {
        IpNet::V4(v4) => v4.prefix_len(),
        IpNet::V6(v6) => IPV6 + v6.prefix_len(),
    }
}

/// The network of this kind that contains the address; `None` if the address is of the other family.
pub(super) fn network_of(address: IpAddr, kind: u8) -> Option<IpNet> {
    let prefix = if address.is_ipv4() { kind } else { kind.checked_sub(IPV6)? };
    Some(IpNet::new(address, prefix).ok()?.trunc())
}

const IPV6: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_found_by_their_keys() {
        let networks =
            ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.7/32", "::/0", "2001:db8::/32", "2001:db8::7/128"];
        for network in networks {
            let network: IpNet = network.parse().unwrap();
            let found = network_of(network.broadcast(), network_kind(network)).unwrap();
            assert_eq!(network_key(found), network_key(network));
        }
        let v4: IpNet = "10.0.0.0/8".parse().unwrap();
        assert_eq!(network_of("2001:db8::1".parse().unwrap(), network_kind(v4)), None);
        let v6: IpNet = "2001:db8::/32".parse().unwrap();
        assert_eq!(network_of("10.1.2.3".parse().unwrap(), network_kind(v6)), None);
    }

    #[test]
    fn networks_that_touch_are_one() {
        let networks =
            ["::ffff:10.0.0.0/105", "10.128.0.0/9", "10.1.0.0/16"].map(|text| text.parse().unwrap());
        assert_eq!(Condition::clients(networks), Condition::Clients(["10.0.0.0/8".parse().unwrap()].into()));
    }
}
