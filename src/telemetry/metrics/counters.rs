//! Groups of counters: of a route, a limit, a listener. One thread writes them, any thread may read.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use http::StatusCode;

use super::{
    AuthResult, ConnectionRejectReason, DecisionLabel, LimitVerdict, RequestOutcome, SettlementResult,
    StatusClass,
};
use crate::counter::{Counter, FineHistogram, FineTotal, Histogram, HistogramTotal, RequestTime};
use crate::limit::units::Micros;
use crate::upstream::{Failure, RetryReason};

/// The counters of a route. Aligned, like the others below, so that no two workers' counters share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RouteCounters {
    /// Requests that matched the route, in flight or not.
    pub(super) begun: Counter,
    pub(super) codes: StatusCounters,
    /// Durations of admitted requests without a delay by a leaky bucket. Those of the others are in `delayed`.
    latency: FineHistogram<RequestTime>,
    /// Durations of requests that were not admitted.
    rejected: Histogram<RequestTime>,
    /// Created by the first delayed request: most routes have none.
    delayed: OnceLock<Box<DelayCounters>>,
    /// Bytes of request bodies.
    pub(super) received: Counter,
    /// Bytes of response bodies.
    pub(super) sent: Counter,
    outcomes: [Counter; RequestOutcome::ALL.len()],
}

/// Durations of admitted requests delayed by a leaky bucket.
#[derive(Debug, Default)]
pub(super) struct DelayCounters {
    /// The whole duration, with the delay.
    duration: Histogram<RequestTime>,
    /// The duration without the delay.
    latency: FineHistogram<RequestTime>,
    /// The delay.
    delay: FineHistogram<RequestTime>,
}

impl RouteCounters {
    /// Only one thread may call this; see [`Counter::add`]. `delay` is the part of `duration` that a leaky bucket
    /// delayed the request.
    pub(super) fn record(&self, duration: Micros, delay: Micros, admitted: bool) {
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
    pub(super) fn add_durations(&self, total: &mut HistogramTotal<RequestTime>) {
        total.add_fine(&self.latency);
        total.add(&self.rejected);
        if let Some(delayed) = self.delayed.get() {
            total.add(&delayed.duration);
        }
    }

    /// The durations of admitted requests without delays, and the delays.
    pub(super) fn latencies(&self) -> (FineTotal<RequestTime>, FineTotal<RequestTime>) {
        let (mut latency, mut delay) = (FineTotal::default(), FineTotal::default());
        latency.add(&self.latency);
        if let Some(delayed) = self.delayed.get() {
            latency.add(&delayed.latency);
            delay.add(&delayed.delay);
        }
        (latency, delay)
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> u64 {
        // Those that ended are read first: see `ConnectionCounters::open`.
        let ended: u64 = self.outcomes.iter().map(Counter::get).sum();
        self.begun.get().saturating_sub(ended)
    }

    pub(super) fn outcome(&self, outcome: RequestOutcome) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.outcomes[outcome as usize]
    }
}

/// The counters of an upstream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct UpstreamCounters {
    pub(super) duration: FineHistogram<RequestTime>,
    failed: [Counter; Failure::ALL.len()],
    /// Failed attempts, including those that were retried.
    pub(super) failed_attempts: Counter,
    /// Attempts that were not retried since the retry budget was used up.
    pub(super) over_budget: Counter,
}

impl UpstreamCounters {
    pub(super) fn failed(&self, why: Failure) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.failed[why as usize]
    }
}

/// The counters of attempts at one server of an upstream.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ServerCounters {
    /// Times until the response head.
    pub(super) duration: FineHistogram<RequestTime>,
    classes: [Counter; StatusClass::ALL.len()],
    retried: [Counter; RetryReason::COUNT],
}

impl ServerCounters {
    pub(super) fn class(&self, class: StatusClass) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.classes[class as usize]
    }

    /// Attempts that were retried.
    pub(super) fn retried(&self, why: RetryReason) -> &Counter {
        &self.retried[why.index()]
    }
}

/// The counters of a limit's verdicts on a route.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct DecisionCounters {
    labels: [Counter; DecisionLabel::ALL.len()],
    /// The verdicts where the store could not be asked; the label then only says so.
    decided_locally: [Counter; LimitVerdict::ALL.len()],
}

impl DecisionCounters {
    pub(super) fn of(&self, decision: DecisionLabel) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.labels[decision as usize]
    }

    pub(super) fn decided_locally(&self, word: LimitVerdict) -> &Counter {
        // As above.
        &self.decided_locally[word as usize]
    }
}

/// The counters of credentials.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct AuthCounters {
    results: [Counter; AuthResult::ALL.len()],
}

impl AuthCounters {
    pub(super) fn result(&self, result: AuthResult) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.results[result as usize]
    }
}

/// The counters of a limit's costs that were reserved and settled.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SettlementCounters {
    /// Units reserved.
    pub(super) reserved: Counter,
    /// Units charged afterwards, beyond the reservation.
    pub(super) charged: Counter,
    /// Units of the reservation that were given back.
    pub(super) refunded: Counter,
    results: [Counter; SettlementResult::ALL.len()],
}

impl SettlementCounters {
    pub(super) fn result(&self, result: SettlementResult) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.results[result as usize]
    }
}

/// The counters of connections to a listener.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct ConnectionCounters {
    pub(super) opened: Counter,
    pub(super) closed: Counter,
    rejected_connections: [Counter; ConnectionRejectReason::ALL.len()],
}

impl ConnectionCounters {
    pub(super) fn rejected_connections(&self, why: ConnectionRejectReason) -> &Counter {
        // The enum's discriminants count from 0, in the order of `ALL`.
        &self.rejected_connections[why as usize]
    }

    pub(super) fn open(&self) -> u64 {
        // `closed` is read first: a connection that opens and closes in between then counts as open, not as minus one.
        let closed = self.closed.get();
        self.opened.get().saturating_sub(closed)
    }
}

/// A counter for each status code that occurs. Most routes have two or three, so they are in a short list that is
/// searched from the front and extended by another list; there are 900 codes, so it ends.
#[derive(Debug, Default)]
pub(super) struct StatusCounters {
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
    /// Only one thread may call this; see [`Counter::add`].
    pub(super) fn count(&self, status: StatusCode) {
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

    pub(super) fn add_to(&self, totals: &mut BTreeMap<u16, u64>) {
        let mut next = Some(self);
        while let Some(list) = next {
            for slot in &list.slots {
                let (code, count) = (slot.code.load(Ordering::Relaxed), slot.count.get());
                if code != 0 {
                    *totals.entry(code).or_default() += count;
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
        let mut totals = BTreeMap::new();
        codes.add_to(&mut totals);
        assert_eq!(totals.len(), 900);
        assert!(totals.iter().all(|(code, count)| *count == u64::from(code % 3 + 1)));
    }

    #[test]
    fn a_failure_counts_under_its_own_label() {
        let exchanges = UpstreamCounters::default();
        for why in Failure::ALL {
            assert_eq!(exchanges.failed(why).get(), 0, "{why:?}");
            exchanges.failed(why).add(1);
        }
        let responses = ServerCounters::default();
        for why in RetryReason::all() {
            assert_eq!(responses.retried(why).get(), 0, "{why:?}");
            responses.retried(why).add(1);
        }
        for code in 100..1000 {
            responses.class(StatusClass::of(StatusCode::from_u16(code).unwrap())).add(1);
        }
        assert_eq!(StatusClass::ALL.map(|class| responses.class(class).get()), [100, 100, 100, 100, 500]);
    }

    #[test]
    fn a_decision_counts_under_its_own_label() {
        let decisions = DecisionCounters::default();
        for label in DecisionLabel::ALL {
            assert_eq!(decisions.of(label).get(), 0, "{label:?}");
            decisions.of(label).add(1);
        }
        for word in LimitVerdict::ALL {
            assert_eq!(decisions.decided_locally(word).get(), 0, "{word:?}");
            decisions.decided_locally(word).add(1);
        }
        let answers = RouteCounters::default();
        for outcome in RequestOutcome::ALL {
            assert_eq!(answers.outcome(outcome).get(), 0, "{outcome:?}");
            answers.outcome(outcome).add(1);
        }
    }
}
