//! An issuer of tokens, whose public keys are fetched from its URL.
//!
//! The control thread fetches them: at the start, then every ten minutes, and for a token with an unknown `kid`. Such a
//! token may be an attacker's, so two of these fetches begin at once, and then one every 10 s; others wait. A request whose
//! fetch waits is not told that its token is wrong. While the issuer is away, the last keys stay in force.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::fetch::{FetchError, ServiceTarget, get};
use super::jwt::{KeySet, KeySetFault};
use crate::clock::now;

/// The time between two fetches that nothing has asked for.
const EVERY: Duration = Duration::from_secs(600);
/// The time between two fetches that unknown `kid`s ask for, on average.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// How many of them may begin at once.
const ASKED_AT_ONCE: u32 = 2;
/// The delay after a first failure; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum delay after a failure.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a request waits for fetches that it has asked for.
pub const MAX_WAIT: Duration = Duration::from_secs(5);
/// The maximum number of `kid`s that are remembered after their keys have left.
const MAX_FORMER: usize = 256;

/// An issuer and its keys.
#[derive(Debug)]
pub struct Issuer {
    url: ServiceTarget,
    keys: ArcSwap<Keys>,
    schedule: Mutex<FetchSchedule>,
    /// The fetch that has ended last.
    ended: watch::Sender<EndedFetch>,
    /// A fetch is asked for.
    asked: Arc<Notify>,
}

/// Which fetches have begun, and when the next one may.
#[derive(Debug, Default)]
struct FetchSchedule {
    begun: u64,
    /// A fetch is asked for, and has not begun.
    is_asked: bool,
    /// When the fetches that were asked for are paid off, at one each [`ASKED_EVERY`].
    paid_off: Option<Instant>,
    /// When the next fetch begins that nothing asks for.
    regular: Option<Instant>,
}

/// A fetch that has ended.
#[derive(Clone, Copy, Debug, Default)]
struct EndedFetch {
    /// Counted from 1; 0: none has ended.
    number: u64,
    /// It has brought keys.
    is_good: bool,
}

/// What a request for newer keys has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// The keys are of a fetch that began after the request asked: the issuer has no others.
    Newest,
    /// The keys are of a fetch that had begun before: the request may ask once more.
    Newer,
    /// There are none. A fetch waits for its turn, fails, or takes long; the next one is due after this time.
    Waits(Duration),
}

/// The keys of an issuer at one time.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The keys; none before the first fetch.
    pub set: Arc<KeySet>,
    /// The `kid`s of keys that have left, the latest first.
    pub former: Arc<[Box<str>]>,
    /// Grows when a key leaves.
    pub generation: u64,
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// There was no answer, or none of use.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The answer is not a key set.
    #[error("the answer is of no use: {0}")]
    KeySet(#[from] KeySetFault),
}

impl Issuer {
    /// An issuer whose keys were not fetched yet.
    pub fn new(url: ServiceTarget) -> Self {
        Self {
            url,
            keys: ArcSwap::default(),
            schedule: Mutex::default(),
            ended: watch::Sender::default(),
            asked: Arc::default(),
        }
    }

    /// Where its keys are fetched: the URL, and the certificates that are trusted there.
    pub fn url(&self) -> &ServiceTarget {
        &self.url
    }

    /// The keys that were fetched last.
    pub fn keys(&self) -> Keys {
        Keys::clone(&self.keys.load())
    }

    /// See [`Keys::generation`].
    pub fn generation(&self) -> u64 {
        self.keys.load().generation
    }

    /// Asks for newer keys, because a token has an unknown `kid` or there are no keys yet, and waits for them until
    /// `until`. A fetch that may not begin yet is not waited for: it begins in its turn.
    pub async fn refresh(&self, until: Instant) -> Refresh {
        let mut ended = self.ended.subscribe();
        let (awaited, refresh) = {
            let last = ended.borrow_and_update().number;
            let (now, mut schedule) = (now(), self.schedule.lock());
            if schedule.begun > last {
                (schedule.begun, Refresh::Newer)
            } else {
                schedule.is_asked = true;
                self.asked.notify_one();
                let due = schedule.asked_due(now);
                if due > now {
                    return Refresh::Waits(schedule.next_due(now) - now);
                }
                (schedule.begun + 1, Refresh::Newest)
            }
        };
        let is_good = match timeout_at(until, ended.wait_for(|ended| ended.number >= awaited)).await {
            Ok(Ok(ended)) => ended.is_good,
            Ok(Err(_)) | Err(_) => false,
        };
        if is_good {
            return refresh;
        }
        let now = now();
        Refresh::Waits(self.schedule.lock().next_due(now) - now)
    }

    /// Fetches the keys now.
    async fn fetch(&self) -> Result<(), IssuerError> {
        let body = get(&self.url).await?;
        let set = KeySet::parse(&body)?;
        let last = self.keys();
        let generation = last.generation + u64::from(!last.set.is_within(&set));
        let left = last.set.key_ids().chain(last.former.iter().map(|id| &**id));
        let former = left.filter(|id| !set.has_id(id)).take(MAX_FORMER).map(Into::into).collect();
        self.keys.store(Arc::new(Keys { set: Arc::new(set), former, generation }));
        Ok(())
    }

    /// Fetches the keys again and again, until no plan uses the issuer.
    pub async fn keep_fetching(issuer: Weak<Self>) {
        let mut pause = FIRST_PAUSE;
        let mut is_away = false;
        let mut is_asked = false;
        loop {
            let Some(fetching) = issuer.upgrade() else { return };
            let number = fetching.schedule.lock().begin(is_asked, now());
            let fetched = fetching.fetch().await;
            fetching.log(&fetched, is_away);
            is_away = fetched.is_err();
            let rest = if is_away { pause } else { EVERY };
            pause = if is_away { (2 * pause).min(MAX_PAUSE) } else { FIRST_PAUSE };
            fetching.schedule.lock().regular = Some(now() + rest);
            fetching.ended.send_replace(EndedFetch { number, is_good: !is_away });
            drop(fetching);
            is_asked = Self::wait(&issuer).await;
        }
    }

    /// Logs the begin and the end of a time in which the keys cannot be fetched.
    fn log(&self, fetched: &Result<(), IssuerError>, was_away: bool) {
        let url = &self.url;
        match fetched {
            Ok(()) if was_away => tracing::info!(%url, "the keys of the issuer could be fetched again"),
            Err(error) if !was_away => {
                tracing::warn!(%url, %error, "the keys of the issuer could not be fetched; the last ones stay in force");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Waits until the next fetch is due. Returns whether it was asked for.
    async fn wait(issuer: &Weak<Self>) -> bool {
        loop {
            let Some(waiting) = issuer.upgrade() else { return false };
            let (now, asked) = (now(), Arc::clone(&waiting.asked));
            let (due, is_asked) = {
                let schedule = waiting.schedule.lock();
                let due = schedule.next_due(now);
                (due, schedule.is_asked && schedule.asked_due(now) <= due)
            };
            drop(waiting);
            if due <= now {
                return is_asked;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = asked.notified() => {}
            }
        }
    }
}

impl FetchSchedule {
    /// When the next fetch may begin that is asked for: `now` or later.
    fn asked_due(&self, now: Instant) -> Instant {
        let ahead = ASKED_EVERY * (ASKED_AT_ONCE - 1);
        let due = self.paid_off.and_then(|paid_off| paid_off.checked_sub(ahead));
        due.map_or(now, |due| due.max(now))
    }

    /// When the next fetch begins: `now` or later.
    fn next_due(&self, now: Instant) -> Instant {
        let regular = self.regular.unwrap_or(now).max(now);
        if self.is_asked { self.asked_due(now).min(regular) } else { regular }
    }

    /// Begins a fetch, and returns its number. One that nothing has asked for serves the requests that wait as well.
    fn begin(&mut self, is_asked: bool, now: Instant) -> u64 {
        if is_asked {
            let paid_off = self.paid_off.map_or(now, |paid_off| paid_off.max(now));
            self.paid_off = Some(paid_off + ASKED_EVERY);
        }
        self.is_asked = false;
        self.begun += 1;
        self.begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever asks, and however often: the bound holds in each span, and no request waits longer than it was told.
    #[test]
    fn fetches_that_are_asked_for_are_bounded() {
        let start = now();
        let mut schedule = FetchSchedule::default();
        let mut begun = Vec::new();
        for tenth in 0..3_000 {
            let now = start + Duration::from_millis(100 * tenth);
            let due = schedule.asked_due(now);
            assert!(due - now <= ASKED_EVERY, "{:?}", due - now);
            if due == now {
                schedule.begin(true, now);
                begun.push(now);
            }
        }
        assert_eq!(begun.len(), 31, "two at once, then one every 10 s in five minutes");
        assert_eq!(begun[1] - begun[0], Duration::from_millis(100), "the second one waits for nothing");
        for (index, first) in begun.iter().enumerate() {
            let within = begun[index..].iter().take_while(|at| **at - *first < Duration::from_secs(30));
            assert!(within.count() <= 5);
        }
    }

    #[test]
    fn a_regular_fetch_costs_nothing_and_serves_what_was_asked() {
        let start = now();
        let mut schedule = FetchSchedule { is_asked: true, ..FetchSchedule::default() };
        for number in 1..=10 {
            assert_eq!(schedule.begin(false, start), number);
            assert!(!schedule.is_asked);
            assert_eq!(schedule.asked_due(start), start);
        }
        schedule.regular = Some(start + EVERY);
        assert_eq!(schedule.next_due(start), start + EVERY);
        schedule.is_asked = true;
        assert_eq!(schedule.next_due(start), start);
        schedule.begin(true, start);
        schedule.begin(true, start);
        schedule.is_asked = true;
        assert_eq!(schedule.next_due(start), start + ASKED_EVERY);
        schedule.regular = Some(start + FIRST_PAUSE);
        assert_eq!(schedule.next_due(start), start + FIRST_PAUSE, "the sooner one");
    }
}
