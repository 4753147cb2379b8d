//! `GET samples`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::servers::ServerReport;

/// The last seconds: all lists have one item for each, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SampleList {
    /// When the process began to serve: numbers of another process mean other seconds.
    pub started: f64,
    /// A hash of the configuration's content.
    pub config: String,
    /// The number of the newest second: `since` of the next request.
    pub seq: u64,
    /// When that second began.
    pub time: u64,
    /// The number of seconds.
    pub count: u64,
    /// All requests.
    pub all: RequestSamples,
    /// By route, the busiest ones; `none`: requests without a route.
    pub routes: BTreeMap<String, RequestSamples>,
    /// By limit.
    pub limits: BTreeMap<String, LimitSamples>,
    /// By upstream.
    pub upstreams: BTreeMap<String, UpstreamSamples>,
    /// The store of counters.
    pub store: StoreSamples,
}

/// Values of consecutive seconds, which those of later seconds continue.
pub trait SecondLists: Default {
    /// Appends the values of `later`.
    fn add_seconds(&mut self, later: Self, span: SecondSpan);
}

/// How many seconds a history has, how many follow, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub struct SecondSpan {
    /// The seconds of the history.
    pub before: usize,
    /// Those that follow.
    pub later: usize,
    /// The most that are kept, the newest.
    pub kept: usize,
}

/// The item of a list: a count, or a number that is not known of each second.
pub trait SecondValue: Copy + Default {
    /// As a number, if it is known.
    fn number(self) -> Option<f64>;
}

impl SecondValue for u64 {
    fn number(self) -> Option<f64> {
        Some(self as f64)
    }
}

impl SecondValue for Option<f64> {
    fn number(self) -> Option<f64> {
        self
    }
}

impl<T: SecondValue> SecondLists for Vec<T> {
    /// A second without a value has the default, also where `later` is shorter or longer than it says.
    fn add_seconds(&mut self, later: Self, SecondSpan { before, later: count, kept }: SecondSpan) {
        self.resize(before, T::default());
        self.extend(later.into_iter().take(count));
        self.resize(before + count, T::default());
        self.drain(..self.len().saturating_sub(kept));
    }
}

impl<L: SecondLists> SecondLists for Option<L> {
    fn add_seconds(&mut self, later: Self, span: SecondSpan) {
        match later {
            Some(later) => self.get_or_insert_default().add_seconds(later, span),
            None => *self = None,
        }
    }
}

impl<L: SecondLists> SecondLists for BTreeMap<String, L> {
    /// A name that `later` does not have is gone.
    fn add_seconds(&mut self, later: Self, span: SecondSpan) {
        self.retain(|name, _| later.contains_key(name));
        for (name, later) in later {
            self.entry(name).or_default().add_seconds(later, span);
        }
    }
}

/// Only the present servers are told.
impl SecondLists for Vec<ServerReport> {
    fn add_seconds(&mut self, later: Self, _: SecondSpan) {
        *self = later;
    }
}

/// Types whose fields are lists.
macro_rules! second_lists {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$of:meta])* pub $list:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$of])* pub $list: $kind,)* }

        impl SecondLists for $name {
            fn add_seconds(&mut self, later: Self, span: SecondSpan) {
                $(self.$list.add_seconds(later.$list, span);)*
            }
        }
    )*};
}

second_lists! {
    /// Requests by their end, in the second of the end.
    pub struct RequestSamples {
        /// Forwarded at once.
        pub admitted: Vec<u64>,
        /// Forwarded after a wait in a queue.
        pub delayed: Vec<u64>,
        /// Refused, the next three included.
        pub refused: Vec<u64>,
        /// A 5xx, an error of the gateway, or aborted.
        pub failed: Vec<u64>,
        /// Without a valid credential: 401.
        pub unauthenticated: Vec<u64>,
        /// Not allowed: 403.
        pub forbidden: Vec<u64>,
        /// With too large a body: 413.
        pub too_large: Vec<u64>,
        /// The median of the durations of admitted requests, without delays.
        pub p50_ms: Vec<Option<f64>>,
        /// The 99th percentile of the same.
        pub p99_ms: Vec<Option<f64>>,
        /// The median of the delays.
        pub delay_p50_ms: Vec<Option<f64>>,
        /// The 99th percentile of the same.
        pub delay_p99_ms: Vec<Option<f64>>,
    }

    /// The refusals of a limit, and what it settles.
    pub struct LimitSamples {
        /// Refused requests, those in shadow included.
        pub refused: Vec<u64>,
        /// Of these: only counted.
        pub in_shadow: Vec<u64>,
        /// Settled requests; absent: the limit settles no costs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub settled: Option<Vec<u64>>,
        /// The units of these; likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub units: Option<Vec<u64>>,
        /// Requests in flight at the end of the second; absent: it is no concurrency limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub held: Option<Vec<u64>>,
        /// Requests that wait for a place; likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub waiting: Option<Vec<u64>>,
        /// What is found as the maximum of all its keys together; absent: it is written.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub found_max: Option<Vec<u64>>,
    }

    /// The attempts at an upstream.
    pub struct UpstreamSamples {
        /// With a response.
        pub answers: Vec<u64>,
        /// Without a response.
        pub failed: Vec<u64>,
        /// The median until the response head.
        pub p50_ms: Vec<Option<f64>>,
        /// The 99th percentile of the same.
        pub p99_ms: Vec<Option<f64>>,
        /// The servers that are up at the end of the second.
        pub up: Vec<u64>,
        /// The responses by the class of their status: `2xx`.
        pub classes: BTreeMap<String, Vec<u64>>,
        /// Attempts that were made again.
        pub retries: Vec<u64>,
        /// The present servers.
        pub servers: Vec<ServerReport>,
    }

    /// The store of counters.
    pub struct StoreSamples {
        /// The counters held.
        pub keys: Vec<u64>,
        /// Counters evicted.
        pub evictions: Vec<u64>,
        /// Requests that were decided without the shared store.
        pub errors: Vec<u64>,
        /// The median of a decision by the shared store.
        pub p50_ms: Vec<Option<f64>>,
        /// The 99th percentile of the same.
        pub p99_ms: Vec<Option<f64>>,
    }
}
