//! What the gateway reported last, as one value.

use super::display::{key, plain, share, whole};
use super::samples::{FRESH, SampleHistory, SampleNumbers as _};
use crate::admin_api::bans::BanList;
use crate::admin_api::fleet::FleetReport;
use crate::admin_api::keys::{KeyList, KeyState};
use crate::admin_api::limits::LimitReport;
use crate::admin_api::refusals::{RefusalList, RefusalReport};
use crate::admin_api::routes::RouteReport;
use crate::admin_api::samples::RequestSamples;
use crate::admin_api::status::StatusReport;

/// The number of refusals that are kept.
const MAX_REFUSALS: usize = 200;

/// A list of the samples.
type SampleOf = fn(&RequestSamples) -> &[u64];

/// Refusals that are of no limit: the list of samples, words, and the status.
pub(super) const REJECTIONS: [(SampleOf, &str, u16); 3] = [
    (|all| &all.unauthenticated, "no valid credential (401)", 401),
    (|all| &all.forbidden, "not allowed (403)", 403),
    (|all| &all.too_large, "body too large (413)", 413),
];
/// The seconds of a minute.
const MINUTE: usize = 60;

/// Refusals that no limit on requests made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rejection {
    /// Why.
    pub(super) words: String,
    /// Refusals a second, of late.
    pub(super) now: f64,
    /// Refusals in the last minute.
    pub(super) minute: u64,
    /// Their client, if it is one: `, all from 192.0.2.7`.
    pub(super) client: String,
}

/// All responses of a round of requests. The default is that of a gateway that has not responded yet.
#[derive(Clone, Debug, Default)]
pub(super) struct GatewaySnapshot {
    pub(super) status: StatusReport,
    pub(super) samples: SampleHistory,
    pub(super) limits: Vec<LimitReport>,
    /// The keys of one limit; none without limits.
    pub(super) keys: Option<KeyList>,
    pub(super) bans: BanList,
    pub(super) routes: Vec<RouteReport>,
    pub(super) fleet: FleetReport,
    pub(super) refusals: RefusalLog,
    /// Several gateways, each at a URL; empty: there is one.
    pub(super) gateways: Vec<GatewayState>,
    /// The key that the operator looks at.
    pub(super) look: Option<KeyState>,
}

/// The reason why a request has no useful response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// No response.
    Away(String),
    /// A response with another status than 200, and its reason.
    Refused(u16, String),
}

/// One of several gateways.
#[derive(Clone, Debug)]
pub(super) struct GatewayState {
    pub(super) address: String,
    /// The other views show it.
    pub(super) shown: bool,
    pub(super) status: Result<StatusReport, ReadError>,
    pub(super) samples: SampleHistory,
}

impl GatewayState {
    /// Nothing is read yet.
    pub(super) fn new(address: String) -> Self {
        let status = Err(ReadError::Away(String::new()));
        Self { address, shown: false, status, samples: SampleHistory::default() }
    }
}

/// The last refused and failed requests, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalLog {
    started: f64,
    seq: Option<u64>,
    /// Requests that are not listed.
    pub(super) skipped: u64,
    pub(super) list: Vec<RefusalReport>,
}

impl RefusalLog {
    /// The `since` of the next request.
    pub(super) fn since(&self) -> Option<u64> {
        self.seq
    }

    /// Adds the response to a request with [`Self::since`]. The response of another process replaces all.
    pub(super) fn add(&mut self, response: RefusalList) {
        if response.started.total_cmp(&self.started).is_ne() {
            *self = Self { started: response.started, ..Self::default() };
        }
        let seq = self.seq;
        let news = response.refusals.into_iter().filter(|one| seq.is_none_or(|seq| one.seq > seq));
        self.list.extend(news);
        self.list.drain(..self.list.len().saturating_sub(MAX_REFUSALS));
        self.seq = Some(response.seq);
        self.skipped = response.skipped;
    }
}

impl GatewaySnapshot {
    /// Refusals a second of a limit, of late, without those that were only counted.
    pub(super) fn refused_lately(&self, limit: &str) -> f64 {
        let lists = self.samples.limits.get(limit);
        lists.map(|lists| lists.refused.lately() - lists.in_shadow.lately()).unwrap_or_default()
    }

    /// The limit of this name.
    pub(super) fn limit(&self, name: &str) -> Option<&LimitReport> {
        self.limits.iter().find(|limit| limit.name == name)
    }

    /// The enforced limit that refuses most: now, else in the last minute.
    pub(super) fn worst_limit(&self) -> Option<&LimitReport> {
        let weight = |limit: &LimitReport| (self.refused_lately(&limit.name), limit.minute.enforced());
        let refusing = |limit: &&LimitReport| !limit.is_shadow() && weight(limit) > (0.0, 0);
        let order = |one: &&LimitReport, other: &&LimitReport| {
            let (one, other) = (weight(one), weight(other));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        };
        self.limits.iter().filter(refusing).max_by(order)
    }

    /// The refusals that are of no limit, or of a limit on wrong credentials, if these are the most: now, else in the last
    /// minute. None: those of another limit are.
    pub(super) fn worst_rejection(&self) -> Option<Rejection> {
        let limit = self.worst_limit();
        let of_limit =
            limit.map_or((0.0, 0), |limit| (self.refused_lately(&limit.name), limit.minute.enforced()));
        let first = self.rejections().into_iter().next().filter(|one| (one.now, one.minute) > of_limit);
        first.or_else(|| {
            let words = limit?.failures.clone()?;
            let client = self.suspect_words(limit?);
            Some(Rejection { words, now: of_limit.0, minute: of_limit.1, client })
        })
    }

    /// The refusals of each kind that are of no limit; those of the last minute, the most first.
    pub(super) fn rejections(&self) -> Vec<Rejection> {
        let all = &self.samples.all;
        let one = |&(list, words, status): &(SampleOf, &str, u16)| {
            let now = list(all).lately();
            let client = self.sampled_client(status, if now > 0.0 { FRESH } else { MINUTE });
            Rejection { words: words.to_owned(), now, minute: whole(list(all).sum(MINUTE)), client }
        };
        let mut found: Vec<_> = REJECTIONS.iter().map(one).filter(|one| one.minute > 0).collect();
        found.sort_by(|one, other| other.now.total_cmp(&one.now).then(other.minute.cmp(&one.minute)));
        found
    }

    /// `, all from 192.0.2.7`: by the key with most refusals of the limit.
    fn suspect_words(&self, limit: &LimitReport) -> String {
        let keys = self.keys.as_ref().filter(|keys| keys.limit == limit.name);
        let first = keys.and_then(|keys| Some((keys, keys.keys.iter().max_by_key(|one| one.refused)?)));
        match first {
            Some((keys, one)) if one.refused > 0 && one.refused == keys.refused => {
                format!(", all from {}", key(one.key.as_deref(), &one.id))
            }
            Some((keys, one)) if one.refused > 0 => {
                let part = share(one.refused, keys.refused);
                format!(", {part} from {}", key(one.key.as_deref(), &one.id))
            }
            _ => String::new(),
        }
    }

    /// The same by the samples of refusals with this status in the last seconds.
    fn sampled_client(&self, status: u16, seconds: usize) -> String {
        let since = self.status.time - seconds as f64;
        let is_it = |one: &&RefusalReport| one.limit.is_none() && one.status == status && one.time >= since;
        let mut clients =
            self.refusals.list.iter().filter(is_it).map(|one| one.client.as_deref().unwrap_or_default());
        match clients.next() {
            Some(first) if clients.all(|client| client == first) => {
                let all = if self.refusals.skipped == 0 { "all" } else { "nearly all" };
                format!(", {all} from {}", plain(first))
            }
            _ => String::new(),
        }
    }

    /// Limits that refused requests first; among equals, enforced limits first, since only these affect clients.
    pub(super) fn limits_in_order(&self) -> Vec<&LimitReport> {
        let mut limits: Vec<_> = self.limits.iter().collect();
        let quiet = |limit: &LimitReport| limit.minute.refused == 0 && limit.hour.refused == 0;
        let refused = |limit: &LimitReport| (limit.minute.refused, limit.hour.refused);
        limits.sort_by_key(|limit| (quiet(limit), limit.is_shadow(), std::cmp::Reverse(refused(limit))));
        limits
    }

    /// The limit whose keys are listed: the chosen one, else the one that refuses most, else the first.
    pub(super) fn listed_limit(&self, chosen: Option<&str>) -> Option<&str> {
        let chosen = chosen.and_then(|name| self.limit(name));
        let first = || self.limits_in_order().first().copied();
        chosen.or_else(|| self.worst_limit()).or_else(first).map(|limit| limit.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_api::limits::VerdictReport;

    fn limit(name: &str, mode: &str, refused: u64) -> LimitReport {
        LimitReport {
            name: name.to_owned(),
            mode: mode.to_owned(),
            minute: VerdictReport { refused, ..VerdictReport::default() },
            ..LimitReport::default()
        }
    }

    fn refusals(started: f64, seqs: &[u64]) -> RefusalList {
        let one = |&seq: &u64| RefusalReport { seq, ..RefusalReport::default() };
        let seq = seqs.last().copied().unwrap_or_default();
        RefusalList { started, seq, skipped: 0, refusals: seqs.iter().map(one).collect() }
    }

    #[test]
    fn the_limit_that_refuses_most_is_listed_unless_one_is_chosen() {
        let limits =
            vec![limit("quiet", "enforce", 0), limit("shadow", "shadow", 9), limit("hot", "enforce", 3)];
        let snapshot = GatewaySnapshot { limits, ..GatewaySnapshot::default() };
        assert_eq!(snapshot.listed_limit(None), Some("hot"));
        assert_eq!(snapshot.listed_limit(Some("quiet")), Some("quiet"));
        assert_eq!(snapshot.listed_limit(Some("gone")), Some("hot"));
        let order: Vec<_> = snapshot.limits_in_order().iter().map(|limit| limit.name.as_str()).collect();
        assert_eq!(order, ["hot", "shadow", "quiet"]);
        assert_eq!(GatewaySnapshot::default().listed_limit(Some("any")), None);
    }

    #[test]
    fn refusals_are_added_once_and_those_of_another_process_replace_all() {
        let mut log = RefusalLog::default();
        log.add(refusals(1.0, &[1, 2]));
        log.add(refusals(1.0, &[2, 3]));
        assert_eq!(log.list.iter().map(|one| one.seq).collect::<Vec<_>>(), [1, 2, 3]);
        log.add(refusals(2.0, &[1]));
        assert_eq!((log.list.len(), log.since()), (1, Some(1)));
        let many: Vec<u64> = (2..400).collect();
        log.add(refusals(2.0, &many));
        assert_eq!(log.list.len(), MAX_REFUSALS);
    }
}
