//! Requests by route.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use http::StatusCode;

use super::WorkerMetrics;
use super::family::{Groups, families};
use super::totals::totals;
use crate::counter::{Counter, FineHistogram, FineTotal, Histogram, HistogramTotal, RequestTime};
use crate::labels::labels;
use crate::limit::units::Micros;
use crate::route::RouteIndex;

families! {
    // `all`: with the requests that matched no route.
    from (all: &Groups<'_, RouteCounters, 1>, matched: &Groups<'_, RouteCounters, 1>)

    Counter tollgate_requests_total{route, code} "Requests answered, by route and status code." always
        = by_key(all, |route, sums| route.codes.add_to(sums));
    Histogram tollgate_request_duration_seconds{route}
        "Time from the head of the request to the end of the response." always
        = durations(all, RouteCounters::add_durations);
    Counter tollgate_request_body_bytes_total{route} "Request body bytes received." always
        = sum(all, |route| route.received.get());
    Counter tollgate_response_body_bytes_total{route} "Response body bytes sent." always
        = sum(all, |route| route.sent.get());
    Counter tollgate_compression_input_bytes_total{route} "Response body bytes of upstreams that were compressed."
        = values(compressed(all, |counters| counters.bytes_in.get()));
    Counter tollgate_compression_output_bytes_total{route} "Response body bytes that these were compressed to."
        = values(compressed(all, |counters| counters.bytes_out.get()));
    Gauge tollgate_requests_in_flight{route}
        "Requests that matched the route, and whose response has not ended." always
        = sum(matched, RouteCounters::in_flight);
    Counter tollgate_mirrored_requests_total{route, result}
        "Requests to be copied to the mirror of their route, by what became of the copy."
        = used_by(matched, MirrorResult::ALL.map(MirrorResult::as_str), RouteCounters::mirrored);
}

totals! {
    /// Completed requests.
    #[derive(Clone, Debug, Default)]
    pub struct Answered of RouteCounters {
        /// In the order of [`RequestOutcome::ALL`].
        pub outcomes: [u64; RequestOutcome::ALL.len()] = |route| route.outcomes.each_ref().map(Counter::get),
        /// The durations of those that were admitted, without delays by leaky buckets.
        pub latency: FineTotal<RequestTime> = |route| {
            FineTotal::of(route.delayed().map(|delayed| &delayed.latency).chain([&route.latency]))
        },
        /// The delays of delayed requests.
        pub delay: FineTotal<RequestTime> = |route| FineTotal::of(route.delayed().map(|delayed| &delayed.delay)),
    }
}

labels! {
    /// The outcome of a request: exactly one of these.
    pub enum RequestOutcome {
        /// Forwarded at once and answered with less than 500, or redirected by the route.
        Admitted = "admitted",
        /// The same after a delay by a leaky bucket.
        Delayed = "delayed",
        /// Refused by a limit.
        Refused = "refused",
        /// Answered with a 5xx by the backend, answered with another error of the gateway's own, or truncated.
        Failed = "failed",
        /// Refused by the gateway or a service, since it has no valid credential: 401.
        Unauthenticated = "unauthenticated",
        /// Refused by the gateway or a service as not allowed: 403.
        Forbidden = "forbidden",
        /// Refused by the gateway, since its body is too large: 413.
        TooLarge = "too_large",
    }
}

labels! {
    /// What became of the copy of a request: exactly one of these.
    pub enum MirrorResult {
        /// The mirror answered with less than 500.
        Sent = "sent",
        /// The mirror answered with 500 or above.
        ServerError = "server_error",
        /// The mirror gave no answer.
        Failed = "failed",
        /// Not sent: too many copies of the worker are under way.
        Busy = "busy",
        /// Not sent: the circuit breaker of the mirror's copies is open.
        BreakerOpen = "breaker_open",
        /// Not sent: the body is longer than `max_body`.
        TooLong = "too_long",
        /// Not sent: the request's body had not ended when its response had.
        Incomplete = "incomplete",
        /// Not sent: copies hold too much of `max_buffered`.
        OverBudget = "over_budget",
        /// Not sent: such a request is never copied.
        Skipped = "skipped",
    }
}

impl RequestOutcome {
    /// The refusals that are of no limit, in the order of the alphabet: further values of `decision` in
    /// `tollgate_decisions_total`.
    pub const REJECTIONS: [Self; 3] = [Self::Forbidden, Self::TooLarge, Self::Unauthenticated];
}

/// The counters of a route. Aligned, like those of other groups, so that no two workers' counters share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RouteCounters {
    /// Requests that matched the route, in flight or not.
    begun: Counter,
    codes: StatusCounters,
    /// Durations of admitted requests without a delay by a leaky bucket. Those of the others are in `delayed`.
    latency: FineHistogram<RequestTime>,
    /// Durations of requests that were not admitted.
    rejected: Histogram<RequestTime>,
    /// Created by the first delayed request: most routes have none.
    delayed: OnceLock<Box<DelayCounters>>,
    /// Bytes of request bodies.
    received: Counter,
    /// Bytes of response bodies.
    sent: Counter,
    /// Created by the first compressed response: most routes have none.
    compressed: OnceLock<Box<CompressionCounters>>,
    /// By [`RequestOutcome`], whose discriminants count from 0, like those of all such enums.
    pub(super) outcomes: [Counter; RequestOutcome::ALL.len()],
    /// By [`MirrorResult`]. Created by the first request to be copied.
    mirrored: OnceLock<Box<[Counter; MirrorResult::ALL.len()]>>,
}

/// Bodies of responses that were compressed.
#[derive(Debug, Default)]
struct CompressionCounters {
    /// Bytes as the backend sent them.
    bytes_in: Counter,
    /// Bytes after that.
    bytes_out: Counter,
}

/// Sums for the routes that have compressed responses.
fn compressed<'g>(
    routes: &'g Groups<'_, RouteCounters, 1>,
    read: impl Fn(&CompressionCounters) -> u64 + 'g,
) -> impl Iterator<Item = ([&'g str; 1], u64)> + 'g {
    routes.iter().filter_map(move |(labels, group)| {
        let counters = group.iter().filter_map(|route| route.compressed.get());
        counters.map(|counters| read(counters)).reduce(|sum, more| sum + more).map(|sum| (*labels, sum))
    })
}

/// Durations of admitted requests delayed by a leaky bucket.
#[derive(Debug, Default)]
struct DelayCounters {
    /// The whole duration, with the delay.
    duration: Histogram<RequestTime>,
    /// The duration without the delay.
    latency: FineHistogram<RequestTime>,
    /// The delay.
    delay: FineHistogram<RequestTime>,
}

impl WorkerMetrics {
    /// Counts a request that has matched this route. It is in flight until [`Self::outcome`].
    pub fn begun(&self, route: RouteIndex) {
        self.route(Some(route)).begun.add(1);
    }

    /// Counts a response; `route` is `None` if no route matched or none was looked up. `delay` is the part of
    /// `duration` that a leaky bucket delayed the request. `admitted`: the gateway refused it in no way, so that its
    /// duration is one of those that percentiles are told of.
    pub fn request(
        &self,
        route: Option<RouteIndex>,
        status: StatusCode,
        duration: Micros,
        delay: Micros,
        admitted: bool,
    ) {
        let route = self.route(route);
        route.codes.count(status);
        route.record(duration, delay, admitted);
    }

    /// Counts the body bytes received and sent with a request; see [`Self::request`].
    pub fn bodies(&self, route: Option<RouteIndex>, received: u64, sent: u64) {
        let route = self.route(route);
        route.received.add(received);
        route.sent.add(sent);
    }

    /// Counts the body of a response that was compressed: bytes before and after.
    pub fn compressed(&self, route: Option<RouteIndex>, bytes_in: u64, bytes_out: u64) {
        let counters = self.route(route).compressed.get_or_init(Box::default);
        counters.bytes_in.add(bytes_in);
        counters.bytes_out.add(bytes_out);
    }

    /// Counts the outcome of a request; see [`Self::request`].
    pub fn outcome(&self, route: Option<RouteIndex>, outcome: RequestOutcome) {
        self.route(route).outcomes[outcome as usize].add(1);
    }

    /// Counts a request to be copied; see [`Self::request`].
    pub fn mirrored(&self, route: Option<RouteIndex>, result: MirrorResult) {
        self.route(route).mirrored.get_or_init(Box::default)[result as usize].add(1);
    }

    fn route(&self, route: Option<RouteIndex>) -> &RouteCounters {
        let routes = &self.series.routes;
        route.map_or_else(|| routes.of_none(), |route| routes.at(route.0))
    }
}

impl RouteCounters {
    fn record(&self, duration: Micros, delay: Micros, admitted: bool) {
        match delay {
            _ if !admitted => self.rejected.record(duration),
            Micros(0) => self.latency.record(duration),
            delay => {
                let delayed = self.delayed.get_or_init(Box::default);
                let delay = delay.min(duration);
                delayed.duration.record(duration);
                delayed.latency.record(Micros(duration.0 - delay.0));
                delayed.delay.record(delay);
            }
        }
    }

    /// Adds the durations of all requests, with their delays.
    fn add_durations(&self, total: &mut HistogramTotal<RequestTime>) {
        total.add_fine(&self.latency);
        total.add(&self.rejected);
        self.delayed().for_each(|delayed| total.add(&delayed.duration));
    }

    fn delayed(&self) -> impl Iterator<Item = &DelayCounters> {
        self.delayed.get().map(Box::as_ref).into_iter()
    }

    fn mirrored(&self) -> &[Counter] {
        self.mirrored.get().map_or(&[], |counters| &counters[..])
    }

    fn in_flight(&self) -> u64 {
        // Those that ended are read first: a request that begins and ends in between then counts as in flight, not as
        // minus one.
        let ended: u64 = self.outcomes.iter().map(Counter::get).sum();
        self.begun.get().saturating_sub(ended)
    }
}

/// A counter for each status code that occurs. Most routes have two or three, so they are in a short list that is
/// searched from the front and extended by another list; there are 900 codes, so it ends.
#[derive(Debug, Default)]
struct StatusCounters {
    slots: [CodeSlot; 5],
    more: OnceLock<Box<Self>>,
}

#[derive(Debug, Default)]
struct CodeSlot {
    /// 0 while it is free.
    code: AtomicU16,
    count: Counter,
}

impl StatusCounters {
    fn count(&self, status: StatusCode) {
        let mut list = self;
        loop {
            for slot in &list.slots {
                let code = slot.code.load(Ordering::Relaxed);
                if code == 0 {
                    slot.code.store(status.as_u16(), Ordering::Relaxed);
                }
                if code == 0 || code == status.as_u16() {
                    return slot.count.add(1);
                }
            }
            list = list.more.get_or_init(Box::default);
        }
    }

    fn add_to(&self, sums: &mut BTreeMap<u16, u64>) {
        let mut next = Some(self);
        while let Some(list) = next {
            for slot in &list.slots {
                let (code, count) = (slot.code.load(Ordering::Relaxed), slot.count.get());
                if code != 0 {
                    *sums.entry(code).or_default() += count;
                }
            }
            next = list.more.get().map(Box::as_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_count() {
        let codes = StatusCounters::default();
        for code in 100..1000 {
            for _ in 0..code % 3 + 1 {
                codes.count(StatusCode::from_u16(code).unwrap());
            }
        }
        let mut sums = BTreeMap::new();
        codes.add_to(&mut sums);
        assert_eq!(sums.len(), 900);
        assert!(sums.iter().all(|(code, count)| *count == u64::from(code % 3 + 1)));
    }
}
