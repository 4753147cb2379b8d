//! The samples of the last 5 minutes, second by second.

use std::collections::BTreeMap;

use crate::admin_api::samples::{
    LimitSamples, RequestSamples, SampleList, SecondLists as _, SecondSpan, SecondValue, StoreSamples,
    UpstreamSamples,
};

/// The number of seconds that are kept.
pub(super) const KEPT: usize = 300;
/// The number of seconds that "now" stands for.
pub(super) const FRESH: usize = 10;

/// What the views tell of a list of seconds.
pub(super) trait SampleNumbers {
    /// The numbers, the newest first.
    fn numbers(&self) -> impl Iterator<Item = Option<f64>>;

    /// The newest number.
    fn newest(&self) -> Option<f64> {
        self.numbers().next().flatten()
    }

    /// The newest number that is known.
    fn newest_known(&self) -> Option<f64> {
        self.numbers().flatten().next()
    }

    /// The newest number of the last 10 seconds that is known.
    fn fresh(&self) -> Option<f64> {
        self.numbers().take(FRESH).flatten().next()
    }

    /// The mean of the last 10 seconds; 0 without numbers.
    fn lately(&self) -> f64 {
        let seconds = self.numbers().take(FRESH).count();
        self.sum(seconds) / seconds.max(1) as f64
    }

    /// The sum of the last `seconds`.
    fn sum(&self, seconds: usize) -> f64 {
        self.numbers().take(seconds).flatten().sum()
    }
}

impl<T: SecondValue> SampleNumbers for [T] {
    fn numbers(&self) -> impl Iterator<Item = Option<f64>> {
        self.iter().rev().map(|value| value.number())
    }
}

/// The lists of all requests: each counts in one of them.
pub(super) fn outcomes(samples: &RequestSamples) -> [&[u64]; 4] {
    [&samples.admitted, &samples.delayed, &samples.refused, &samples.failed]
}

/// The responses of a class of statuses a second, of late.
pub(super) fn class_lately(samples: &UpstreamSamples, class: &str) -> f64 {
    samples.classes.get(class).map_or(0.0, |list| list.lately())
}

/// All samples that the gateway has reported. The default has none.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleHistory {
    started: f64,
    config: String,
    /// The number of the newest second, once there is one.
    seq: Option<u64>,
    /// The number of seconds.
    count: usize,
    /// All requests.
    pub(super) all: RequestSamples,
    /// The store of counters.
    pub(super) store: StoreSamples,
    /// By route.
    pub(super) routes: BTreeMap<String, RequestSamples>,
    /// By limit.
    pub(super) limits: BTreeMap<String, LimitSamples>,
    /// By upstream.
    pub(super) upstreams: BTreeMap<String, UpstreamSamples>,
}

impl SampleHistory {
    /// The `since` of the next request. `None`: all samples are needed.
    pub(super) fn since(&self) -> Option<u64> {
        self.seq
    }

    /// Adds the response to a request with [`Self::since`]. A response that does not continue the history replaces it if
    /// it has all samples; otherwise the history is dropped, and the next request asks for all.
    pub(super) fn add(&mut self, response: SampleList) {
        let SampleList { started, config, seq, time: _, count, all, routes, limits, upstreams, store } =
            response;
        let continues = |known: u64| {
            started.total_cmp(&self.started).is_eq()
                && config == self.config
                && known.checked_add(count) == Some(seq)
        };
        match self.seq {
            None => *self = Self { started, config, ..Self::default() },
            Some(known) if continues(known) => {}
            Some(_) => return *self = Self::default(),
        }
        let later = usize::try_from(count).unwrap_or(KEPT).min(KEPT);
        let span = SecondSpan { before: self.count, later, kept: KEPT };
        self.seq = Some(seq);
        self.count = (self.count + later).min(KEPT);
        self.all.add_seconds(all, span);
        self.routes.add_seconds(routes, span);
        self.limits.add_seconds(limits, span);
        self.upstreams.add_seconds(upstreams, span);
        self.store.add_seconds(store, span);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::admin_api::servers::ServerReport;

    fn response(seq: u64, admitted: &[u64]) -> SampleList {
        let server = ServerReport { server: "a:1".to_owned(), ..ServerReport::default() };
        let upstream = UpstreamSamples {
            classes: [("2xx".to_owned(), admitted.to_vec())].into(),
            servers: vec![server],
            ..UpstreamSamples::default()
        };
        SampleList {
            started: 1.5,
            config: "a".to_owned(),
            seq,
            count: admitted.len() as u64,
            all: RequestSamples {
                admitted: admitted.to_vec(),
                p99_ms: vec![None; admitted.len()],
                ..RequestSamples::default()
            },
            upstreams: [("search".to_owned(), upstream)].into(),
            ..SampleList::default()
        }
    }

    #[test]
    fn a_response_that_continues_the_history_is_appended() {
        let mut history = SampleHistory::default();
        history.add(response(10, &[1, 2]));
        assert_eq!(history.since(), Some(10));
        history.add(response(11, &[4]));
        assert_eq!(history.all.admitted, [1, 2, 4]);
        assert_eq!(history.upstreams["search"].classes["2xx"], [1, 2, 4]);
        assert_eq!(history.upstreams["search"].servers[0].server, "a:1");
        assert_eq!((history.all.p99_ms.newest(), history.all.admitted.newest_known()), (None, Some(4.0)));
        assert_eq!((history.all.admitted.sum(2), history.all.refused.lately()), (6.0, 0.0));
        history.add(response(13, &[4]));
        assert_eq!(history.since(), None, "a second is missing: the next request asks for all");
    }

    #[test]
    fn a_name_that_is_new_has_no_requests_before() {
        let mut history = SampleHistory::default();
        history.add(response(10, &[1, 2]));
        let late = LimitSamples { refused: vec![7], ..LimitSamples::default() };
        history.add(SampleList { limits: [("late".to_owned(), late)].into(), ..response(11, &[4]) });
        assert_eq!(history.limits["late"].refused, [0, 0, 7]);
        history.add(response(12, &[4]));
        assert!(history.limits.is_empty(), "a name that is not told is gone");
    }

    #[test]
    fn five_minutes_are_kept() {
        let mut history = SampleHistory::default();
        history.add(response(300, &[1; 300]));
        history.add(response(310, &[2; 10]));
        assert_eq!(history.all.admitted.len(), KEPT);
        assert_eq!(history.all.admitted.lately(), 2.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A gateway may report anything: the history stays bounded.
        #[test]
        fn no_response_makes_it_grow_or_panic(rounds in prop::collection::vec((0..u64::MAX, 0..u64::MAX, 0..400usize), 1..6)) {
            let mut history = SampleHistory::default();
            for (seq, count, length) in rounds {
                history.add(SampleList { count, ..response(seq, &vec![1; length]) });
                prop_assert!(history.all.admitted.len() <= KEPT);
            }
        }
    }
}
