//! The samples of the last 5 minutes, second by second.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::admin_api::servers::ServerReport;

/// The number of seconds that are kept.
pub(super) const KEPT: usize = 300;
/// The number of seconds that "now" stands for.
pub(super) const FRESH: usize = 10;

/// The lists of one route, limit or upstream by name, for example `admitted`. Each has a value for a second.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleLists(BTreeMap<String, Vec<Option<f64>>>);

/// All samples that the gateway has reported. The default has none.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleHistory {
    started: f64,
    config: String,
    /// The number of the newest second, once there is one.
    seq: Option<u64>,
    /// All requests.
    pub(super) all: SampleLists,
    /// The store of counters.
    pub(super) store: SampleLists,
    /// By route.
    pub(super) routes: BTreeMap<String, SampleLists>,
    /// By limit.
    pub(super) limits: BTreeMap<String, SampleLists>,
    /// By upstream.
    pub(super) upstreams: BTreeMap<String, SampleLists>,
    /// The servers of each upstream.
    pub(super) servers: BTreeMap<String, Vec<ServerReport>>,
}

impl SampleLists {
    /// The values of a list, the oldest first.
    pub(super) fn values(&self, name: &str) -> &[Option<f64>] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The newest value.
    pub(super) fn last(&self, name: &str) -> Option<f64> {
        self.values(name).last().copied().flatten()
    }

    /// The newest value that is not `null`.
    pub(super) fn last_known(&self, name: &str) -> Option<f64> {
        self.values(name).iter().rev().copied().flatten().next()
    }

    /// The newest value of the last 10 seconds that is not `null`.
    pub(super) fn fresh(&self, name: &str) -> Option<f64> {
        self.values(name).iter().rev().take(FRESH).copied().flatten().next()
    }

    /// The mean of the last 10 seconds; 0 without values.
    pub(super) fn lately(&self, name: &str) -> f64 {
        let values = self.values(name);
        let fresh = FRESH.min(values.len());
        self.sum(name, fresh) / fresh.max(1) as f64
    }

    /// The sum of the last `seconds`.
    pub(super) fn sum(&self, name: &str, seconds: usize) -> f64 {
        self.values(name).iter().rev().take(seconds).copied().flatten().sum()
    }

    /// Appends the lists of an object, `count` seconds long, to `before` seconds. An object inside adds its own lists.
    fn append(&mut self, object: &Map<String, Value>, before: usize, count: usize) {
        for (name, value) in object {
            match value {
                Value::Array(list) if name != "servers" => {
                    let known = self.0.entry(name.clone()).or_insert_with(|| vec![None; before]);
                    known.resize(before, None);
                    known.extend(list.iter().take(KEPT).map(Value::as_f64));
                }
                Value::Object(inner) => self.append(inner, before, count),
                _ => {}
            }
        }
        for list in self.0.values_mut() {
            list.resize(before + count, None);
        }
    }

    fn keep_last(&mut self) {
        for list in self.0.values_mut() {
            list.drain(..list.len().saturating_sub(KEPT));
        }
    }
}

impl SampleHistory {
    /// The `since` of the next request. `None`: all samples are needed.
    pub(super) fn since(&self) -> Option<u64> {
        self.seq
    }

    /// Adds the response to a request with [`Self::since`]. A response that does not continue the history replaces it if
    /// it has all samples; otherwise the history is dropped, and the next request asks for all.
    pub(super) fn add(&mut self, response: &Value) {
        let started = response.get("started").and_then(Value::as_f64).unwrap_or_default();
        let config = response.get("config").and_then(Value::as_str).unwrap_or_default();
        let number = |name| response.get(name).and_then(Value::as_u64).unwrap_or_default();
        let (seq, count) = (number("seq"), number("count"));
        let continues = |known: u64| {
            started.total_cmp(&self.started).is_eq()
                && config == self.config
                && known.checked_add(count) == Some(seq)
        };
        match self.seq {
            None => *self = Self { started, config: config.to_owned(), ..Self::default() },
            Some(known) if continues(known) => {}
            Some(_) => return *self = Self::default(),
        }
        self.seq = Some(seq);
        self.append(response, usize::try_from(count).unwrap_or(KEPT).min(KEPT));
    }

    fn append(&mut self, response: &Value, count: usize) {
        let before = self.all.0.values().map(Vec::len).max().unwrap_or_default();
        let object = |name: &str| response.get(name).and_then(Value::as_object);
        let sections =
            [("routes", &mut self.routes), ("limits", &mut self.limits), ("upstreams", &mut self.upstreams)];
        for (section, lists) in sections {
            let entries = object(section);
            lists.retain(|name, _| entries.is_some_and(|entries| entries.contains_key(name)));
            for (name, entry) in entries.into_iter().flatten() {
                let Some(entry) = entry.as_object() else { continue };
                let lists = lists.entry(name.clone()).or_default();
                lists.append(entry, before, count);
                lists.keep_last();
            }
        }
        for (section, lists) in [("all", &mut self.all), ("store", &mut self.store)] {
            lists.append(object(section).unwrap_or(&Map::new()), before, count);
            lists.keep_last();
        }
        let servers = |entry: &Value| {
            let servers = entry.get("servers").cloned().unwrap_or_default();
            serde_json::from_value(servers).unwrap_or_default()
        };
        let upstreams = object("upstreams").into_iter().flatten();
        self.servers = upstreams.map(|(name, entry)| (name.clone(), servers(entry))).collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn response(seq: u64, admitted: &[u64]) -> Value {
        let server = ServerReport { server: "a:1".to_owned(), ..ServerReport::default() };
        json!({
            "started": 1.5, "config": "a", "seq": seq, "count": admitted.len(),
            "all": { "admitted": admitted, "p99_ms": admitted.iter().map(|_| Value::Null).collect::<Vec<_>>() },
            "upstreams": { "search": { "classes": { "2xx": admitted }, "servers": [server] } },
        })
    }

    #[test]
    fn a_response_that_continues_the_history_is_appended() {
        let mut history = SampleHistory::default();
        history.add(&response(10, &[1, 2]));
        assert_eq!(history.since(), Some(10));
        history.add(&response(11, &[4]));
        assert_eq!(history.all.values("admitted"), [Some(1.0), Some(2.0), Some(4.0)]);
        assert_eq!(history.upstreams["search"].last("2xx"), Some(4.0));
        assert_eq!(history.servers["search"][0].server, "a:1");
        assert_eq!((history.all.last("p99_ms"), history.all.last_known("admitted")), (None, Some(4.0)));
        assert_eq!((history.all.sum("admitted", 2), history.all.lately("none")), (6.0, 0.0));
        history.add(&response(13, &[4]));
        assert_eq!(history.since(), None, "a second is missing: the next request asks for all");
    }

    #[test]
    fn a_name_that_is_new_has_no_values_before() {
        let mut history = SampleHistory::default();
        history.add(&response(10, &[1, 2]));
        let mut more = response(11, &[4]);
        more["limits"] = json!({ "late": { "refused": [7] } });
        history.add(&more);
        assert_eq!(history.limits["late"].values("refused"), [None, None, Some(7.0)]);
    }

    #[test]
    fn five_minutes_are_kept() {
        let mut history = SampleHistory::default();
        history.add(&response(300, &[1; 300]));
        history.add(&response(310, &[2; 10]));
        assert_eq!(history.all.values("admitted").len(), KEPT);
        assert_eq!(history.all.lately("admitted"), 2.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A gateway may report anything: the history stays bounded.
        #[test]
        fn no_response_makes_it_grow_or_panic(rounds in prop::collection::vec((0..u64::MAX, 0..u64::MAX, 0..400usize), 1..6)) {
            let mut history = SampleHistory::default();
            for (seq, count, length) in rounds {
                let list = vec![1; length];
                history.add(&json!({ "seq": seq, "count": count, "all": { "admitted": list, "x": 3 }, "limits": [] }));
                prop_assert!(history.all.values("admitted").len() <= KEPT);
            }
        }
    }
}
