//! Exemptions from a limit.
//!
//! [`Exemptions`] are all those of one limit. A short list is tried one by one. A long list has an index: headers by
//! name and [value](super::value_index), networks as a [set](super::networks), paths as a [trie](super::trie). The keys
//! of the index come from the file, and a request only looks them up, so no client can make them collide.
//!
//! Not handled: thousands of different header names are looked up name by name.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use http::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::MatchedRequest;
use super::client::covers;
use super::condition::{ValuePattern, ValuePatterns};
use super::networks::Networks;
use super::part::KeyFault;
use super::pattern::PathPattern;
use super::trie::Trie;

/// An exemption from a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// Clients in this network (by address, not by prefix) that are identified.
    Ip(IpNet),
    /// Requests with a value of this header that the pattern matches.
    Header(HeaderName, ValuePatterns),
    /// Requests to this path.
    Path(PathPattern),
    /// Requests of the consumer with this name.
    Consumer(Box<str>),
}

impl Exemption {
    /// Parses `"ip:10.0.0.0/8"`, `"ip:10.0.0.1"`, `"header:x-internal=1"`, `"path:/health"` as written in the file. The
    /// value of a header is a [pattern](ValuePattern::parse). Bits of a network below its prefix are ignored.
    ///
    /// # Errors
    ///
    /// Any other form; a value that the named header or pattern cannot have.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        Self::parse_with(text, &[])
    }

    /// As [`Self::parse`] for a text that is literal in these ranges: no character of a header's value there has a
    /// meaning of its own.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn parse_with(text: &str, literal: &[Range<usize>]) -> Result<Self, KeyFault> {
        match text.split_once(':') {
            Some(("ip", network)) => parse_network(network),
            Some(("header", pair)) => parse_header(pair, text.len() - pair.len(), literal),
            Some(("path", pattern)) => match PathPattern::parse(pattern) {
                Ok(pattern) => Ok(Self::Path(pattern)),
                Err(fault) => Err(KeyFault { message: fault.message, help: fault.help }),
            },
            Some(("consumer", name)) if !name.is_empty() => Ok(Self::Consumer(name.into())),
            _ => KeyFault::new(
                // The text after `=` may be a secret.
                format!("`{}` is not an exemption", text.split_inclusive('=').next().unwrap_or_default()),
                "write `ip:10.0.0.0/8`, `header:x-internal=1`, `path:/health` or `consumer:NAME`",
            ),
        }
    }

    /// Whether the request is exempt. The matched route's form of the path counts, since that form is forwarded.
    pub fn holds(&self, matched: MatchedRequest<'_>) -> bool {
        let request = matched.request;
        match self {
            Self::Ip(network) => request.client.identified && covers(network, request.client.address),
            Self::Header(name, value) => value.match_any(request.headers.all(name).iter()),
            Self::Path(pattern) => pattern.matches(matched.path()),
            Self::Consumer(name) => request.consumer.is_some_and(|consumer| consumer.name() == &**name),
        }
    }
}

impl fmt::Display for Exemption {
    /// As written in the file, except a header's value: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(network) if network.prefix_len() == network.max_prefix_len() => {
                write!(f, "ip:{}", network.addr())
            }
            Self::Ip(network) => write!(f, "ip:{network}"),
            Self::Header(name, _) => write!(f, "header:{name}=…"),
            Self::Path(pattern) => write!(f, "path:{pattern}"),
            Self::Consumer(name) => write!(f, "consumer:{name}"),
        }
    }
}

fn parse_network(text: &str) -> Result<Exemption, KeyFault> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Exemption::Ip(address.to_canonical().into()));
    }
    match text.parse::<IpNet>() {
        Ok(network) => Ok(Exemption::Ip(network.trunc())),
        Err(_) => KeyFault::new(
            format!("`{text}` is neither an address nor a network"),
            "write an address (`ip:192.0.2.1`, `ip:2001:db8::1`) or a network (`ip:10.0.0.0/8`)",
        ),
    }
}

/// Parses `NAME=VALUE`, which begins at `start` of a text that is literal in these ranges.
fn parse_header(pair: &str, start: usize, literal: &[Range<usize>]) -> Result<Exemption, KeyFault> {
    let Some((name, value)) = pair.split_once('=').filter(|(_, value)| !value.is_empty()) else {
        return KeyFault::new(
            format!("`header:{pair}` has no value"),
            format!("write the value that exempts: `header:{}=secret`", pair.trim_end_matches('=')),
        );
    };
    let is_possible = HeaderValue::from_str(value).is_ok() && value.trim_ascii() == value;
    let Some(name) = HeaderName::try_from(name).ok().filter(|_| is_possible) else {
        return KeyFault::new(
            // The value may be a secret.
            format!("no request can carry the header `{name}` with this value"),
            "write a field's name and value without blanks around them, as in `header:x-internal=1`",
        );
    };
    let value_start = start + pair.len() - value.len();
    let in_value =
        |range: &Range<usize>| range.start.saturating_sub(value_start)..range.end.saturating_sub(value_start);
    let literal: Vec<_> = literal.iter().map(in_value).filter(|range| !range.is_empty()).collect();
    match ValuePattern::parse_with(value, &literal) {
        Ok(pattern) => {
            let patterns = ValuePatterns::of_header(&name, [pattern]);
            Ok(Exemption::Header(name, patterns))
        }
        Err(fault) => Err(KeyFault { message: fault.message, help: fault.help }),
    }
}

/// Shorter lists have no index: trying a few exemptions is as fast.
const MIN_TO_INDEX: usize = 8;

/// The exemptions of one limit.
#[derive(Clone, Debug, Default)]
pub struct Exemptions {
    /// In file order.
    all: Vec<Exemption>,
    /// Holds the same exemptions.
    index: Option<Arc<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    headers: Vec<(HeaderName, ValuePatterns)>,
    networks: Networks,
    /// All of one rank: the first match ends the walk.
    paths: Trie,
    consumers: HashSet<Box<str>>,
}

impl Exemptions {
    /// A set of these exemptions, in file order.
    pub fn new(all: Vec<Exemption>) -> Self {
        let index = (all.len() >= MIN_TO_INDEX).then(|| Arc::new(Index::new(&all)));
        Self { all, index }
    }

    /// In file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Exemption> {
        self.all.iter()
    }

    /// Whether the request is exempt, by [`Exemption::holds`] of any. No allocation.
    pub fn hold(&self, matched: MatchedRequest<'_>) -> bool {
        match &self.index {
            None => self.all.iter().any(|exemption| exemption.holds(matched)),
            Some(index) => index.holds(matched),
        }
    }

    /// The first one that applies, for display: all are tried one by one.
    pub fn first(&self, matched: MatchedRequest<'_>) -> Option<&Exemption> {
        self.all.iter().find(|exemption| exemption.holds(matched))
    }
}

impl Index {
    fn new(all: &[Exemption]) -> Self {
        let mut headers: HashMap<&HeaderName, Vec<ValuePattern>> = HashMap::new();
        let mut networks = Vec::new();
        let mut paths = Trie::default();
        let mut consumers = HashSet::new();
        for exemption in all {
            match exemption {
                Exemption::Ip(network) => networks.push(*network),
                Exemption::Header(name, value) => {
                    headers.entry(name).or_default().extend(value.iter().cloned());
                }
                Exemption::Path(pattern) => paths.insert(pattern, 0, &[]),
                Exemption::Consumer(name) => _ = consumers.insert(name.clone()),
            }
        }
        let of_header =
            |(name, values): (&HeaderName, Vec<_>)| (name.clone(), ValuePatterns::of_header(name, values));
        let headers = headers.into_iter().map(of_header).collect();
        Self { headers, networks: networks.into_iter().collect(), paths, consumers }
    }

    fn holds(&self, matched: MatchedRequest<'_>) -> bool {
        let request = matched.request;
        let client = request.client;
        let carried =
            |(name, values): &(HeaderName, ValuePatterns)| values.match_any(request.headers.all(name).iter());
        self.headers.iter().any(carried)
            || client.identified && self.networks.contain(client.address)
            || self.paths.matches(matched.path())
            || request.consumer.is_some_and(|consumer| self.consumers.contains(consumer.name()))
    }
}
