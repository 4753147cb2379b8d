//! The clients of a log, and which of them look like people.

use std::collections::HashMap;
use std::net::IpAddr;

use aho_corasick::AhoCorasick;
use foldhash::fast::RandomState;
use memchr::memmem;

use crate::limit::units::{Micros, Timestamp};
use crate::log_reader::request::LoggedRequest;

/// A longer gap between two requests is a pause: a person reads meanwhile.
const PAUSE: Ticks = Ticks::of_seconds(2);
/// After a longer gap a new visit begins.
const VISIT_GAP: Ticks = Ticks::of_seconds(30 * 60);
/// The longest visit of a person.
const MAX_VISIT: Ticks = Ticks::of_seconds(6 * 3_600);
/// The most requests of a person in the time of a log, for each day of it.
const MAX_REQUESTS_A_DAY: u64 = 1_000;
/// Of this many gaps a person makes at least one a pause.
const GAPS_PER_PAUSE: u32 = 50;
/// A user agent with one of these words says that it is a program.
const PROGRAMS: &[&str] = &[
    "bot",
    "crawl",
    "spider",
    "slurp",
    "curl",
    "wget",
    "python",
    "go-http-client",
    "java/",
    "okhttp",
    "libwww",
    "scrapy",
    "httpclient",
    "axios",
    "node-fetch",
    "monitor",
    "headless",
    "phantom",
    "ruby",
    "perl",
    "php/",
];

/// The rule by which a client looks like a person, as text.
pub const PERSON_RULE: &str = "a client looks like a person if it had at most 1,000 requests a day, made a pause of 2 s \
     or more for each 50 gaps (fewer need none), was never active for more than 6 hours without a pause of 30 minutes, and its user \
     agent does not name a program";

/// Counts by client.
#[derive(Debug)]
pub struct Clients {
    /// Finds [`PROGRAMS`], in any case. `None`: it cannot be built.
    programs: Option<AhoCorasick>,
    /// By address, as IPv6.
    clients: HashMap<[u8; 16], ClientCount, RandomState>,
    /// The time of the first request.
    start: Option<Timestamp>,
    end: Timestamp,
}

/// Sixteenths of a second since the first request: 8 years fit into 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Ticks(u32);

/// What is known of one client.
#[derive(Clone, Copy, Debug, Default)]
struct ClientCount {
    requests: u32,
    refused: u32,
    pauses: u32,
    last: Ticks,
    visit_began: Ticks,
    longest_visit: Ticks,
    is_program: bool,
}

/// A client with refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitClient {
    /// Its address.
    pub address: IpAddr,
    /// Its requests.
    pub requests: u32,
    /// Those that were refused.
    pub refused: u32,
    /// It looks like a person, by [`PERSON_RULE`].
    pub looks_like_a_person: bool,
}

impl Ticks {
    const fn of_seconds(seconds: u32) -> Self {
        Self(seconds * 16)
    }

    fn of(span: Micros) -> Self {
        Self(u32::try_from(span.0 / 62_500).unwrap_or(u32::MAX))
    }

    fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Default for Clients {
    fn default() -> Self {
        let programs = AhoCorasick::builder().ascii_case_insensitive(true).build(PROGRAMS).ok();
        Self { programs, clients: HashMap::default(), start: None, end: Timestamp(0) }
    }
}

impl Clients {
    /// Counts a request.
    pub fn count(&mut self, request: &LoggedRequest, refused: bool) {
        let start = *self.start.get_or_insert(request.time);
        self.end = self.end.max(request.time);
        let now = Ticks::of(request.time.since(start));
        let address = octets(request.client);
        let client = self.clients.entry(address).or_insert_with(|| ClientCount {
            last: now,
            visit_began: now,
            is_program: self
                .programs
                .as_ref()
                .is_some_and(|programs| names_a_program(programs, &request.head)),
            ..ClientCount::default()
        });
        let gap = now.since(client.last);
        if client.requests > 0 && gap >= PAUSE {
            client.pauses = client.pauses.saturating_add(1);
        }
        if gap >= VISIT_GAP {
            client.visit_began = now;
        }
        client.longest_visit = client.longest_visit.max(now.since(client.visit_began));
        client.last = client.last.max(now);
        client.requests = client.requests.saturating_add(1);
        client.refused = client.refused.saturating_add(u32::from(refused));
    }

    /// Whether there was a request of this client.
    pub fn has(&self, client: IpAddr) -> bool {
        self.clients.contains_key(&octets(client))
    }

    /// The number of clients.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The clients with refused requests, those with the most first.
    pub fn hit(&self) -> Vec<HitClient> {
        let days = self.days();
        let hit = self.clients.iter().filter(|(_, client)| client.refused > 0);
        let mut hit: Vec<_> = hit
            .map(|(address, client)| HitClient {
                address: IpAddr::from(*address).to_canonical(),
                requests: client.requests,
                refused: client.refused,
                looks_like_a_person: client.looks_like_a_person(days),
            })
            .collect();
        hit.sort_unstable_by(|a, b| b.refused.cmp(&a.refused).then(a.address.cmp(&b.address)));
        hit
    }

    /// The days that the log spans, begun ones too.
    fn days(&self) -> u64 {
        let span = self.start.map_or(Micros(0), |start| self.end.since(start));
        span.seconds_rounded_up().div_ceil(86_400).max(1)
    }
}

impl ClientCount {
    fn looks_like_a_person(&self, days: u64) -> bool {
        let gaps = self.requests.saturating_sub(1);
        u64::from(self.requests) <= MAX_REQUESTS_A_DAY.saturating_mul(days)
            && self.pauses >= gaps / GAPS_PER_PAUSE
            && self.longest_visit <= MAX_VISIT
            && !self.is_program
    }
}

impl HitClient {
    /// More than half of its requests are refused.
    pub fn loses_most(&self) -> bool {
        self.refused > self.requests / 2
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Whether the user agent in a request head names a program.
fn names_a_program(programs: &AhoCorasick, head: &[u8]) -> bool {
    const NAME: &[u8] = b"\r\nuser-agent: ";
    let Some(at) = memmem::find(head, NAME) else { return false };
    let value = head.get(at + NAME.len()..).unwrap_or_default();
    let length = memchr::memchr(b'\r', value).unwrap_or(value.len());
    value.get(..length).is_some_and(|value| programs.is_match(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(seconds: f64, agent: &str) -> LoggedRequest {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
        let time = Timestamp(1_000_000_000_000_000 + (seconds * 1e6) as u64);
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nuser-agent: {agent}\r\n\r\n").into_bytes();
        LoggedRequest { time, head, ..LoggedRequest::default() }
    }

    fn is_person(times: impl Iterator<Item = f64>, agent: &str) -> bool {
        let mut clients = Clients::default();
        times.for_each(|time| clients.count(&request(time, agent), true));
        clients.hit()[0].looks_like_a_person
    }

    #[test]
    fn a_person_pauses_between_pages() {
        let pages =
            (0..20).flat_map(|page| (0..15).map(move |asset| f64::from(page * 40) + f64::from(asset) / 10.0));
        assert!(is_person(pages.clone(), "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0"));
        assert!(!is_person(pages, "Googlebot/2.1"));
        assert!(is_person([0.0].into_iter(), ""));
    }

    #[test]
    fn a_program_does_not() {
        assert!(!is_person((0..900).map(|number| f64::from(number) / 5.0), "Mozilla/5.0"));
        assert!(!is_person((0..2_000).map(|number| f64::from(number) * 43.0), "Mozilla/5.0"));
        assert!(
            !is_person((0..800).map(|number| f64::from(number) * 60.0), "Mozilla/5.0"),
            "13 hours without a rest"
        );
    }
}
