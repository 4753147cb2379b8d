//! What the admin listener has workers do: only they have connections to a shared store, and what each has seen is its own.
//!
//! It lies on a worker's desk between requests, and is answered from there: the request path knows nothing of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::gateway::{Gateway, LimitIndex};
use crate::limit::units::{Cost, Fingerprint};
use crate::store::{Decisions, Unreachable};

/// Errands that wait on one desk; one more is not taken.
const MOST_WAITING: usize = 64;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that a worker is to do, and whom it tells.
#[derive(Debug)]
pub enum Errand {
    /// Something with one key of one limit.
    Key(KeyErrand, oneshot::Sender<Result<Decisions, Unreachable>>),
}

/// Something with one key of one limit, wherever its counters are.
#[derive(Clone)]
pub struct KeyErrand {
    /// The plan that `limit` belongs to.
    pub gateway: Arc<Gateway>,
    /// Which limit.
    pub limit: LimitIndex,
    /// Whose counters; see [`Charge::owner`](crate::store::Charge::owner).
    pub owner: Fingerprint,
    /// What is to be done.
    pub deed: Deed,
}

/// What is to be done with a key's counters. The answer is one decision a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing: it is seen what a request of this cost would meet.
    Look(Cost),
    /// Nothing: it is seen what a request would meet that takes the whole allowance.
    LookAtWhole,
}

/// What one worker is to do.
pub type Inbox = mpsc::Receiver<Errand>;

/// The desks of all workers.
#[derive(Debug)]
pub struct Desks {
    desks: Vec<mpsc::Sender<Errand>>,
    /// Until its worker has taken it.
    inboxes: Mutex<Vec<Option<Inbox>>>,
}

impl Desks {
    /// One for each of so many workers.
    pub fn new(workers: usize) -> Self {
        let (desks, inboxes) =
            (0..workers).map(|_| mpsc::channel(MOST_WAITING)).unzip::<_, _, Vec<_>, Vec<_>>();
        Self { desks, inboxes: Mutex::new(inboxes.into_iter().map(Some).collect()) }
    }

    /// What the worker with this number is to do: for that worker, once.
    pub fn inbox(&self, worker: usize) -> Option<Inbox> {
        self.inboxes.lock().get_mut(worker)?.take()
    }

    /// Has one worker, whichever it is, do something. `None`: none has, in time.
    pub async fn ask_one<T>(&self, errand: impl FnOnce(oneshot::Sender<T>) -> Errand) -> Option<T> {
        ask(self.desks.first()?, errand).await
    }

    /// Has all workers do something. Those that do not answer in time are left out.
    pub async fn ask_all<T>(&self, errand: impl Fn(oneshot::Sender<T>) -> Errand) -> Vec<T> {
        let mut answers = Vec::new();
        for desk in &self.desks {
            answers.extend(ask(desk, &errand).await);
        }
        answers
    }
}

async fn ask<T>(desk: &mpsc::Sender<Errand>, errand: impl FnOnce(oneshot::Sender<T>) -> Errand) -> Option<T> {
    let (tell, told) = oneshot::channel();
    desk.try_send(errand(tell)).ok()?;
    timeout(PATIENCE, told).await.ok()?.ok()
}

impl fmt::Debug for KeyErrand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of limit {}", self.deed, self.limit.0)
    }
}
