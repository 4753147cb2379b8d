//! Samples of the last requests that were refused or failed, with the key and the reason. Only few are kept, so that a
//! flood costs almost nothing.
//!
//! A worker asks [`RefusalSamples::admits`] before it writes any text; a kept sample is added under a lock that is
//! taken a few times a second.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::counter::Counter;
use crate::limit::units::{Fingerprint, Timestamp};
use crate::telemetry::history::seconds;

/// The number of samples kept.
const KEPT: usize = 200;
/// The number of samples kept of one second; beyond them only the first of each limit.
const A_SECOND: u64 = 20;
/// The number of limits distinguished for that. With more limits, some share their first sample.
const LIMITS: usize = 255;

/// A request that was refused or failed.
#[derive(Clone, Debug)]
pub struct SampledRefusal {
    /// When the request head was complete.
    pub time: Timestamp,
    /// As sent; `None` if no longer known, like the next two.
    pub method: Option<Method>,
    /// As routed.
    pub host: Option<String>,
    /// Without its query.
    pub path: Option<String>,
    /// The route's name.
    pub route: Option<Arc<str>>,
    /// The response's status.
    pub status: StatusCode,
    /// The client as identified.
    pub client: Option<IpAddr>,
    /// The limit that refused; `None`: no limit did.
    pub by: Option<RefusingLimit>,
    /// The server that failed it, as `UPSTREAM/HOST:PORT`; `None`: it was refused, or no longer known.
    pub server: Option<String>,
    /// The reason, as text.
    pub reason: Cow<'static, str>,
}

/// The refusing limit and the refused key.
#[derive(Clone, Debug)]
pub struct RefusingLimit {
    /// The limit's name.
    pub limit: Arc<str>,
    /// The key that was over the limit, and its text; `None`: a part of the key is missing.
    pub key: Option<(Fingerprint, String)>,
    /// The request's cost for that limit.
    pub cost: Option<u32>,
    /// Seconds; `None`: waiting does not help.
    pub retry_after: Option<u64>,
}

/// A kept sample.
#[derive(Debug)]
pub struct KeptRefusal {
    /// Counted from 1.
    pub seq: u64,
    /// The sample.
    pub refusal: SampledRefusal,
    /// The number of samples skipped before it.
    skipped: u64,
}

/// The last samples.
#[derive(Debug)]
pub struct RefusalSamples {
    /// The second, and in the lowest 8 bits the number of samples kept of it.
    spent: AtomicU64,
    /// The second in which a sample of this limit was kept last, by the limit's index; the last entry is for failures.
    /// A second has 32 bits here, which is enough until 2106, and for distinguishing it from the one before ever after.
    firsts: [AtomicU32; LIMITS + 1],
    /// The number of samples that each worker skipped: only its thread writes it.
    skipped: Vec<Skipped>,
    kept: Mutex<Last>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Skipped(Counter);

#[derive(Debug, Default)]
struct Last {
    /// Oldest first.
    kept: VecDeque<Arc<KeptRefusal>>,
    seq: u64,
}

/// The samples after a given one.
#[derive(Debug)]
pub struct RefusalPage {
    /// The number of the newest; 0: there is none.
    pub seq: u64,
    /// The number of samples skipped after the given one, else after the first of these.
    pub skipped: u64,
    /// Oldest first.
    pub refusals: Vec<Arc<KeptRefusal>>,
}

impl RefusalSamples {
    /// For this number of workers.
    pub fn new(workers: usize) -> Self {
        Self {
            spent: AtomicU64::new(0),
            firsts: std::array::from_fn(|_| AtomicU32::new(0)),
            skipped: (0..workers).map(|_| Skipped::default()).collect(),
            kept: Mutex::default(),
        }
    }

    /// Whether to keep a sample of a refusal by the limit at this index (`None`: of a failure) at this moment: 20 a
    /// second, and the first of each limit. Others are counted. Only the worker's own thread may call this.
    pub fn admits(&self, worker: usize, limit: Option<usize>, at: Timestamp) -> bool {
        let second = seconds(at);
        let first = &self.firsts[limit.map_or(LIMITS, |limit| limit % LIMITS)];
        // Cannot fail.
        let short = u32::try_from(second & u64::from(u32::MAX)).unwrap_or(0);
        if first.load(Ordering::Relaxed) != short && first.swap(short, Ordering::Relaxed) != short {
            self.spend(second);
            return true;
        }
        let kept = self.spend(second);
        if let (false, Some(Skipped(skipped))) = (kept, self.skipped.get(worker)) {
            skipped.add(1);
        }
        kept
    }

    /// Takes one of the second's samples, if one is left.
    fn spend(&self, second: u64) -> bool {
        let left = |spent: u64| match spent >> 8 {
            last if last < second => Some(second << 8 | 1),
            // A worker may be slightly behind: it takes from the present second.
            _ => (spent & 0xff < A_SECOND).then_some(spent + 1),
        };
        // Read first: in a flood no thread writes here.
        left(self.spent.load(Ordering::Relaxed)).is_some()
            && self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Keeps a sample that was admitted.
    pub fn keep(&self, refusal: SampledRefusal) {
        let mut last = self.kept.lock();
        last.seq += 1;
        let kept = KeptRefusal { seq: last.seq, refusal, skipped: self.skipped() };
        if last.kept.len() >= KEPT {
            last.kept.pop_front();
        }
        last.kept.push_back(Arc::new(kept));
    }

    /// The samples after the one of this number; all of them if that one is not kept, or none is named.
    pub fn since(&self, seq: Option<u64>) -> RefusalPage {
        let (seq, newest, kept) = {
            let last = self.kept.lock();
            (seq, last.seq, last.kept.iter().cloned().collect::<Vec<_>>())
        };
        let named = kept.iter().find(|kept| Some(kept.seq) == seq);
        let before = named.or(kept.first()).map_or(0, |kept| kept.skipped);
        let after = named.map_or(0, |kept| kept.seq);
        RefusalPage {
            seq: newest,
            skipped: self.skipped().saturating_sub(before),
            refusals: kept.into_iter().filter(|kept| kept.seq > after).collect(),
        }
    }

    fn skipped(&self) -> u64 {
        self.skipped.iter().map(|Skipped(counter)| counter.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> SampledRefusal {
        SampledRefusal {
            time: Timestamp(0),
            method: None,
            host: None,
            path: None,
            route: None,
            status: StatusCode::TOO_MANY_REQUESTS,
            client: None,
            by: None,
            server: None,
            reason: "for a test".into(),
        }
    }

    /// The number of samples kept of this many refusals by a limit in a second.
    fn kept(refusals: &RefusalSamples, limit: Option<usize>, second: u64, count: usize) -> usize {
        let at = Timestamp(second * 1_000_000);
        let admitted = (0..count).filter(|_| refusals.admits(0, limit, at));
        admitted.map(|_| refusals.keep(refusal())).count()
    }

    #[test]
    fn twenty_a_second_and_the_first_of_each_limit() {
        let refusals = RefusalSamples::new(1);
        assert_eq!(kept(&refusals, Some(0), 1_000, 10_000), 20);
        assert_eq!(kept(&refusals, Some(1), 1_000, 10_000), 1);
        assert_eq!(kept(&refusals, None, 1_000, 10_000), 1);
        assert_eq!(kept(&refusals, Some(0), 1_001, 5), 5);
        assert_eq!(kept(&refusals, Some(1), 1_001, 100), 15);
        let page = refusals.since(None);
        assert_eq!((page.seq, page.refusals.len()), (42, 42));
        assert_eq!(page.skipped, 3 * 10_000 + 105 - 42);
    }

    #[test]
    fn what_is_behind_one_is_told() {
        let refusals = RefusalSamples::new(1);
        assert_eq!(refusals.since(Some(7)).refusals.len(), 0);
        for second in 1..=30 {
            kept(&refusals, Some(0), second, 100);
        }
        let all = refusals.since(None);
        assert_eq!((all.seq, all.refusals.len()), (600, KEPT), "the last of them");
        let (first, last) = (all.refusals[0].seq, all.refusals[KEPT - 1].seq);
        assert_eq!((first, last), (401, 600));
        let some = refusals.since(Some(590));
        assert_eq!(
            some.refusals.iter().map(|kept| kept.seq).collect::<Vec<_>>(),
            (591..=600).collect::<Vec<_>>()
        );
        assert_eq!(refusals.since(Some(600)).refusals.len(), 0);
        for strange in [0, 5, 601, u64::MAX] {
            assert_eq!(refusals.since(Some(strange)).refusals.len(), KEPT, "{strange}");
        }
    }
}
