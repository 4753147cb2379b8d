//! Witnesses: requests that ought to reach a route, and the proof that none does.
//!
//! A file may be valid and yet have a route that no request reaches: `~^/api/` before it takes all requests of `/api/*`,
//! or `~^login$` matches no path, since paths begin with `/`. A [`Witness`] is a request made from the route's own
//! conditions: a text that its regular expression matches, a value of a header, an address of a network, a method. A
//! route that a witness reaches is alive, which settles nearly all routes with one look-up. Where 16 differing ones all
//! go elsewhere, [`Reach`] looks for a proof: that no normalised path matches, or that the routes which took the
//! witnesses take every request of this one. A path for which that is not so is a further witness. Without a proof
//! nothing is said.

mod automaton;
mod reach;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use http::{HeaderName, Method, header};
use ipnet::IpNet;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassBytes, Hir, HirKind};

use crate::http1::fields::{FieldSpan, Fields};
use crate::http1::request::Body;
use crate::measure::JsonPointer;
use crate::route::client::{AddressRules, ClientAddress, ClientRule};
use crate::route::condition::{Condition, ValuePattern, ValuePatterns};
use crate::route::content::{JsonMembers, RequestContent};
use crate::route::locations::{ClientLocation, Country};
use crate::route::networks::Networks;
use crate::route::path::{EncodedDots, Path, PathMatching};
use crate::route::pattern::{HostPattern, PathMatcher, PathPattern};
use crate::route::{Conditions, RouteRequest};

pub use automaton::PathRule;
pub use reach::{Reach, Reachability};

/// The number of witnesses of a route before a proof is looked for.
pub const WITNESSES: usize = 16;
/// The maximum number of combinations of a route's hosts, methods and networks.
const MAX_ALTERNATIVES: usize = 128;
/// The maximum number of addresses that are tried.
const MAX_ADDRESSES: usize = 4_096;
/// Maximum bytes of a text that a regular expression matches.
const MAX_TEXT: usize = 512;
/// Maximum repetitions beyond those that an expression demands.
const MAX_MORE: u32 = 2;
/// The methods of requests to routes that list none.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, Method::HEAD];

/// How paths of requests are read.
#[derive(Clone, Copy, Debug)]
pub struct PathReading {
    /// How they are compared with those of routes.
    pub matching: PathMatching,
    /// What is done with encoded dot segments.
    pub encoded_dots: EncodedDots,
}

/// A request that owns what a [`RouteRequest`] borrows.
#[derive(Clone, Debug)]
pub struct Witness {
    /// Its method.
    pub method: Method,
    /// Its host as routes compare it.
    pub host: String,
    /// Its path as sent.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Its headers.
    pub headers: Vec<(HeaderName, Vec<u8>)>,
    /// Its client, which is identified.
    pub client: IpAddr,
    /// The country of its client.
    pub country: Option<Country>,
    /// The name of its listener.
    pub listener: Option<Box<str>>,
    /// The values of its body.
    pub content: RequestContent,
}

/// One of the alternatives that the conditions of a route list.
#[derive(Clone, Copy, Debug)]
pub struct Alternative<'c> {
    /// `None`: any host.
    pub host: Option<&'c HostPattern>,
    /// `None`: any method.
    pub method: Option<&'c Method>,
    /// `None`: any client.
    pub network: Option<IpNet>,
}

impl Witness {
    /// Asks about the request as routes see it. `None`: its path is refused before a route is looked for.
    pub fn ask<T>(&self, reading: PathReading, ask: impl FnOnce(&RouteRequest<'_>) -> T) -> Option<T> {
        let path = Path::parse(&self.path, reading.matching).ok()?;
        if path.has_encoded_dots() && reading.encoded_dots == EncodedDots::Reject {
            return None;
        }
        let (mut head, mut spans) = (Vec::new(), Vec::new());
        for (name, value) in &self.headers {
            let at = head.len();
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            spans.push(FieldSpan::new(at, name.as_str().as_bytes(), head.len(), value)?);
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        Some(ask(&RouteRequest {
            method: &self.method,
            host: &self.host,
            path: &path,
            query: self.query.as_deref(),
            headers: Fields::new(&head, &spans),
            body: Body::EMPTY,
            client: ClientAddress {
                location: ClientLocation { country: self.country, ..ClientLocation::default() },
                ..ClientRule::default().client(self.client)
            },
            certificate: None,
            listener: self.listener.as_deref(),
            content: &self.content,
            consumer: None,
            upstream: None,
        }))
    }

    /// A request for `path` that satisfies the other conditions in this alternative. Different ones for different
    /// numbers of the attempt. `None`: no value for a condition is found.
    fn new(
        (conditions, alternative): (&Conditions, Alternative<'_>),
        path: String,
        attempt: usize,
        random: &mut Rng,
    ) -> Option<Self> {
        let method = alternative.method.unwrap_or(&METHODS[attempt % METHODS.len()]).clone();
        let host = match alternative.host {
            Some(HostPattern::Exact(name)) => name.to_string(),
            Some(HostPattern::Below(suffix)) => format!("{}{suffix}", word(random)),
            None => format!("{}.invalid", word(random)),
        };
        let client = alternative
            .network
            .map_or(Ipv4Addr::new(192, 0, 2, 1).into(), |network| address_of(network, attempt));
        let mut witness = Self {
            method,
            host,
            path,
            query: None,
            headers: Vec::new(),
            client,
            country: None,
            listener: None,
            content: RequestContent::Unknown,
        };
        let mut members = Vec::new();
        for condition in &conditions.values {
            if let Condition::Body(pointer, patterns) = condition {
                let value = value_of(patterns, attempt, random)?;
                members.extend(value.map(|value| (JsonPointer::clone(pointer), value)));
            }
        }
        if !members.is_empty() {
            witness.content = RequestContent::Json(JsonMembers::of_texts(members));
        }
        for condition in &conditions.values {
            witness.satisfy(condition, attempt, random)?;
        }
        Some(witness)
    }

    fn satisfy(&mut self, condition: &Condition, attempt: usize, random: &mut Rng) -> Option<()> {
        match condition {
            Condition::Header(name, patterns) => {
                if let Some(value) = value_of(patterns, attempt, random)? {
                    self.headers.push((name.clone(), value));
                }
            }
            Condition::Query(name, patterns) => {
                if let Some(value) = value_of(patterns, attempt, random)? {
                    let query = self.query.get_or_insert_default();
                    query.push_str(if query.is_empty() { "" } else { "&" });
                    query.extend([escaped(name.as_bytes()), "=".into(), escaped(&value)]);
                }
            }
            Condition::Cookie(name, patterns) => {
                if let Some(value) = value_of(patterns, attempt, random)? {
                    self.headers.push((header::COOKIE, format!("{name}={}", escaped(&value)).into_bytes()));
                }
            }
            // Other values and hosts are unlikely to be excluded, and attempts differ in methods.
            Condition::Not(inner) => {
                let (Condition::Header(_, patterns)
                | Condition::Query(_, patterns)
                | Condition::Cookie(_, patterns)) = &**inner
                else {
                    return Some(());
                };
                let present = |name: HeaderName| Condition::header(name, [ValuePattern::Present]);
                if patterns.iter().any(|pattern| *pattern == ValuePattern::Absent) {
                    let wanted = match &**inner {
                        Condition::Header(name, _) => present(name.clone()),
                        Condition::Query(name, _) => Condition::query(name, [ValuePattern::Present]),
                        Condition::Cookie(name, _) => Condition::cookie(name, [ValuePattern::Present]),
                        _ => return None,
                    };
                    self.satisfy(&wanted, attempt, random)?;
                }
            }
            Condition::Listeners(names) => {
                self.listener = names.get(attempt % names.len().max(1)).cloned();
            }
            Condition::Countries(countries) => {
                self.country = countries.get(attempt % countries.len().max(1)).copied();
            }
            // Those of a body are made together.
            Condition::Body(..)
            | Condition::Clients(_)
            | Condition::Methods(_)
            | Condition::Hosts(_)
            | Condition::Path(..) => {}
        }
        Some(())
    }
}

/// A value that the patterns match; `Some(None)`: they match a request without one. `None`: none is found.
fn value_of(patterns: &ValuePatterns, attempt: usize, random: &mut Rng) -> Option<Option<Vec<u8>>> {
    let pattern = patterns.iter().nth(attempt % patterns.iter().len().max(1))?;
    let word = word(random).into_bytes();
    Some(Some(match pattern {
        ValuePattern::Exact(value) => value.to_vec(),
        ValuePattern::Prefix(text) => [&**text, &*word].concat(),
        ValuePattern::Suffix(text) => [&*word, &**text].concat(),
        ValuePattern::Contains(text) => [&*word, &**text, &*word].concat(),
        ValuePattern::Regex(regex) => text_of(&parsed(regex.text())?, random)?.into_bytes(),
        ValuePattern::Present => word,
        ValuePattern::Absent => return Some(None),
    }))
}

/// The alternatives that the conditions list, the first of each list first. `None`: too many.
pub fn alternatives(conditions: &Conditions) -> Option<Vec<Alternative<'_>>> {
    let hosts = some_or_none(conditions.hosts.iter());
    let methods = some_or_none(conditions.methods.iter());
    let networks = some_or_none(clients_of(conditions).iter().copied());
    if hosts.len().saturating_mul(methods.len()).saturating_mul(networks.len()) > MAX_ALTERNATIVES {
        return None;
    }
    let of_host = |host| methods.iter().map(move |method| (host, *method));
    let pairs = hosts.iter().flat_map(|host| of_host(*host));
    let of_pair =
        |(host, method)| networks.iter().map(move |network| Alternative { host, method, network: *network });
    Some(pairs.flat_map(of_pair).collect())
}

/// The networks of `clients`; empty: any client.
pub fn clients_of(conditions: &Conditions) -> &[IpNet] {
    let networks = conditions.values.iter().find_map(|condition| match condition {
        Condition::Clients(networks) => Some(&**networks),
        _ => None,
    });
    networks.unwrap_or_default()
}

/// The items, or `None` alone if there are none.
fn some_or_none<T>(items: impl Iterator<Item = T>) -> Vec<Option<T>> {
    let found: Vec<_> = items.map(Some).collect();
    if found.is_empty() { vec![None] } else { found }
}

/// What paths of witnesses are made from.
enum PathSource<'c> {
    Pattern(&'c PathPattern),
    Expression(&'c Conditions, Hir),
}

impl<'c> PathSource<'c> {
    fn new(conditions: &'c Conditions) -> Option<Self> {
        match &conditions.path {
            PathMatcher::Pattern(pattern) => Some(Self::Pattern(pattern)),
            PathMatcher::Regex(regex) => {
                let text = regex.to_string();
                Some(Self::Expression(conditions, parsed(text.strip_prefix('~')?)?))
            }
        }
    }

    /// A path that is matched; different ones for different numbers of the attempt. `None`: none is found.
    fn path(&self, reading: PathReading, attempt: usize, random: &mut Rng) -> Option<String> {
        let (conditions, expression) = match self {
            Self::Pattern(pattern) => return Some(path_of_pattern(pattern, attempt, random)),
            Self::Expression(conditions, expression) => (conditions, expression),
        };
        let text = text_of(expression, random)?;
        let is_matched = |path: &String| {
            let path = Path::parse(path, reading.matching);
            path.is_ok_and(|path| conditions.path.matches(&path, conditions.merge_slashes))
        };
        [text.clone(), format!("/{text}"), format!("/{}{text}", word(random))].into_iter().find(is_matched)
    }
}

fn path_of_pattern(pattern: &PathPattern, attempt: usize, random: &mut Rng) -> String {
    let text = pattern.to_string();
    let (front, is_prefix) = text.strip_suffix("/*").map_or((&*text, false), |front| (front, true));
    let mut path = String::new();
    for segment in front.split('/').skip(1) {
        path.push('/');
        match segment.starts_with('{') {
            true if attempt % 2 == 1 => path.push_str(&random.u32(1..100_000).to_string()),
            true => path.push_str(&word_of(attempt, random)),
            false => path.push_str(segment),
        }
    }
    for _ in 0..if is_prefix { [2, 1, 3, 0][attempt % 4] } else { 0 } {
        path.push('/');
        path.push_str(&word_of(attempt, random));
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

/// A word that is hardly a part of any pattern; the first one may be shown.
fn word_of(attempt: usize, random: &mut Rng) -> String {
    if attempt == 0 { "example".to_owned() } else { word(random) }
}

/// A word that is hardly a part of any pattern.
fn word(random: &mut Rng) -> String {
    (0..6).map(|_| random.lowercase()).collect()
}

/// The first addresses of a network, one after the other, from the second on.
fn address_of(network: IpNet, attempt: usize) -> IpAddr {
    let offset = u32::try_from(attempt + 1).unwrap_or(1);
    let next = match network.network() {
        IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().wrapping_add(offset))),
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(first.to_bits().wrapping_add(offset.into()))),
    };
    if network.contains(&next) { next } else { network.network() }
}

/// A text that decodes to these bytes.
fn escaped(bytes: &[u8]) -> String {
    percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Parses an expression as routes have it.
fn parsed(expression: &str) -> Option<Hir> {
    ParserBuilder::new().unicode(false).utf8(false).build().parse(expression).ok()
}

/// A text that the expression may match; different ones each time. It is only likely to match: assertions such as `\b`
/// are not looked at. `None`: it is long, or no text.
fn text_of(expression: &Hir, random: &mut Rng) -> Option<String> {
    let mut text = Vec::new();
    write_text(expression, random, &mut text)?;
    String::from_utf8(text).ok()
}

fn write_text(hir: &Hir, random: &mut Rng, text: &mut Vec<u8>) -> Option<()> {
    if text.len() > MAX_TEXT {
        return None;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.extend_from_slice(&literal.0),
        HirKind::Class(Class::Bytes(class)) => text.push(byte_of(class, random)?),
        HirKind::Class(Class::Unicode(class)) => {
            let first = class.iter().next()?.start();
            text.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
        }
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(u32::MAX).min(repetition.min.saturating_add(MAX_MORE));
            for _ in 0..random.u32(repetition.min..=most) {
                write_text(&repetition.sub, random, text)?;
            }
        }
        HirKind::Capture(capture) => write_text(&capture.sub, random, text)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write_text(part, random, text))?,
        HirKind::Alternation(branches) => {
            write_text(branches.get(random.usize(..branches.len()))?, random, text)?
        }
    }
    Some(())
}

/// A byte of the class: a letter or a digit if it has one, else one that paths may contain.
fn byte_of(class: &ClassBytes, random: &mut Rng) -> Option<u8> {
    let is_in = |byte: &u8| class.iter().any(|range| (range.start()..=range.end()).contains(byte));
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let seldom = |byte: &u8| byte.is_ascii_graphic() && !b"?#\\%/".contains(byte);
    let mut found: Vec<u8> = (0..=127).filter(|byte| plain(byte) && is_in(byte)).collect();
    if found.is_empty() {
        found = (0..=127).filter(|byte| seldom(byte) && is_in(byte)).collect();
    }
    if found.is_empty() {
        return class.iter().next().map(|range| range.start());
    }
    found.get(random.usize(..found.len())).copied()
}

/// A client whom all rules admit and all of `within` contain. An empty set in `within` contains every address.
/// `Ok(None)`: certainly no client.
///
/// # Errors
///
/// The sets are too large to find out.
pub fn admitted(rules: &[&AddressRules], within: &[&[IpNet]]) -> Result<Option<IpAddr>, TooManyNetworks> {
    let sets = || rules.iter().flat_map(|rules| [&rules.allow, &rules.deny]).flatten();
    let count: usize = sets().map(|set| set.len()).chain(within.iter().map(|nets| nets.len())).sum();
    if count > MAX_ADDRESSES {
        return Err(TooManyNetworks);
    }
    // Where addresses are admitted, the first of them begins a network, or follows one that is denied.
    let anywhere = [IpAddr::from([0, 0, 0, 0]), IpAddr::from([0; 16])];
    let wanted = within.iter().flat_map(|nets| nets.iter().copied());
    let listed = wanted.chain(sets().flat_map(|set| set.iter()));
    let edges = listed.flat_map(|network| [Some(network.network()), after(network)]).flatten();
    let usual = [IpAddr::from([192, 0, 2, 1])];
    let mut candidates = usual.into_iter().chain(edges).chain(anywhere);
    Ok(candidates.find(|address| {
        let client = ClientRule::default().client(*address);
        rules.iter().all(|rules| rules.check(client).is_ok())
            && within
                .iter()
                .all(|nets| nets.is_empty() || nets.iter().any(|net| net.contains(&client.address)))
    }))
}

/// Sets of networks are too large to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyNetworks;

/// The address after a network.
fn after(network: IpNet) -> Option<IpAddr> {
    match network.broadcast() {
        IpAddr::V4(last) => last.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(last) => last.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// The networks of `allow` of these rules that contain no admitted client, beside the `others`.
pub fn refused_networks(rules: &AddressRules, others: &[&AddressRules], clients: &[IpNet]) -> Vec<IpNet> {
    let all: Vec<_> = [rules].into_iter().chain(others.iter().copied()).collect();
    let allowed = rules.allow.iter().flat_map(|allow: &std::sync::Arc<Networks>| allow.iter());
    allowed.filter(|network| admitted(&all, &[&[*network], clients]) == Ok(None)).collect()
}
