//! An issuer of tokens, whose public keys are fetched from its URL.
//!
//! The control thread fetches them: at the start, then every ten minutes, and at once for a token with an unknown `kid`,
//! but at most every 30 s. While the issuer is away, the last keys stay in force.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::fetch::{FetchError, ServiceTarget, get};
use super::jwt::{KeySet, KeySetFault};

/// The time between two fetches that nothing has asked for.
const EVERY: Duration = Duration::from_secs(600);
/// The least time between a fetch and one that an unknown `kid` asks for.
const AT_MOST_EVERY: Duration = Duration::from_secs(30);
/// The delay after a first failure; it doubles up to [`AT_MOST_EVERY`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a request waits for a fetch that it has asked for.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// An issuer and its keys.
#[derive(Debug)]
pub struct Issuer {
    url: ServiceTarget,
    keys: ArcSwap<Keys>,
    /// The number of fetches that have ended, well or not.
    fetches: watch::Sender<u64>,
    wanted: Arc<Notify>,
    last_asked: Mutex<Option<Asked>>,
}

/// A request that has asked for a fetch.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// The number of fetches that had ended then.
    fetches: u64,
}

/// The keys of an issuer at one time.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The keys; none before the first fetch.
    pub set: Arc<KeySet>,
    /// Grows when a key leaves.
    pub generation: u64,
}

/// Why the keys could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// There was no answer, or none of use.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The answer is no key set.
    #[error("the answer is of no use: {0}")]
    KeySet(#[from] KeySetFault),
}

impl Issuer {
    /// An issuer whose keys were not fetched yet.
    pub fn new(url: ServiceTarget) -> Self {
        Self {
            url,
            keys: ArcSwap::default(),
            fetches: watch::Sender::new(0),
            wanted: Arc::default(),
            last_asked: Mutex::new(None),
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

    /// Waits for new keys, because a token has an unknown `kid` or there are no keys yet. Returns whether there was a fetch:
    /// if the last one was less than 30 s ago, there is none.
    pub async fn refresh(&self, now: Instant) -> bool {
        let mut fetches = self.fetches.subscribe();
        {
            let ended = *fetches.borrow_and_update();
            let mut last = self.last_asked.lock();
            match *last {
                // The first fetch goes on.
                _ if ended == 0 => {}
                // Another request has asked, and its fetch goes on.
                Some(last) if last.fetches == ended && now < last.at + MAX_WAIT => {}
                Some(last) if now < last.at + AT_MOST_EVERY => return false,
                _ => {
                    *last = Some(Asked { at: now, fetches: ended });
                    self.wanted.notify_one();
                }
            }
        }
        matches!(timeout(MAX_WAIT, fetches.changed()).await, Ok(Ok(())))
    }

    /// Fetches the keys now.
    async fn fetch(&self) -> Result<(), IssuerError> {
        let body = get(&self.url).await?;
        let set = KeySet::parse(&body)?;
        let last = self.keys();
        let generation = last.generation + u64::from(!last.set.is_within(&set));
        self.keys.store(Arc::new(Keys { set: Arc::new(set), generation }));
        Ok(())
    }

    /// Fetches the keys again and again, until no plan uses the issuer.
    pub async fn keep_fetching(issuer: Weak<Self>) {
        let mut pause = FIRST_PAUSE;
        let mut is_away = false;
        loop {
            let Some(issuer) = issuer.upgrade() else { return };
            let fetched = issuer.fetch().await;
            match &fetched {
                Ok(()) if is_away => {
                    tracing::info!(url = %issuer.url(), "the keys of the issuer could be fetched again")
                }
                Ok(()) => {}
                Err(_) if is_away => {}
                Err(error) => {
                    let url = issuer.url();
                    tracing::warn!(%url, %error, "the keys of the issuer could not be fetched; the last ones stay in force");
                }
            }
            is_away = fetched.is_err();
            issuer.fetches.send_modify(|fetches| *fetches += 1);
            let rest = if is_away { pause } else { EVERY };
            pause = if is_away { (2 * pause).min(AT_MOST_EVERY) } else { FIRST_PAUSE };
            let wanted = Arc::clone(&issuer.wanted);
            drop(issuer);
            tokio::select! {
                () = sleep(rest) => {}
                () = wanted.notified() => {}
            }
        }
    }
}
