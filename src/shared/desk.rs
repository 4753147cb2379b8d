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
use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::store::bans::{BanFault, Banned};
use crate::store::{Decisions, Unreachable};
use crate::telemetry::distinct::Union;
use crate::telemetry::talkers::Sketch;

/// Errands that wait on one desk; one more is not taken.
const MOST_WAITING: usize = 64;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that a worker is to do, and whom it tells.
#[derive(Debug)]
pub enum Errand {
    /// Something with one key of one limit.
    Key(KeyErrand, oneshot::Sender<Result<Decisions, Unreachable>>),
    /// A change of one key's counters. The answer is how many units were given back: see [`Counters::grant`](crate::store::Counters::grant).
    Change(KeyErrand<Change>, oneshot::Sender<Result<u64, Unreachable>>),
    /// A ban for so long, or its end.
    Ban(Banned, Option<Micros>, oneshot::Sender<Result<(), BanFault>>),
    /// Tells who asks of the limit of this name.
    Talkers(Arc<str>, oneshot::Sender<Vec<Sketch>>),
    /// Tells what these keys of the limit of this name are called, as far as they are known.
    Labels(Arc<str>, Arc<[Fingerprint]>, oneshot::Sender<Vec<(Fingerprint, String)>>),
    /// Tells which keys were refused in the last minute and hour, limit by limit.
    RefusedKeys(oneshot::Sender<Vec<(Arc<str>, [Union; 2])>>),
}

/// Something with one key of one limit, wherever its counters are.
#[derive(Clone)]
pub struct KeyErrand<D = Deed> {
    /// The plan that `limit` belongs to.
    pub gateway: Arc<Gateway>,
    /// Which limit.
    pub limit: LimitIndex,
    /// Whose counters; see [`Charge::owner`](crate::store::Charge::owner).
    pub owner: Fingerprint,
    /// What is to be done.
    pub deed: D,
}

/// What is to be done with a key's counters. The answer is one decision a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing: it is seen what a request of this cost would meet.
    Look(Cost),
    /// Nothing: it is seen what a request would meet that takes the whole allowance.
    LookAtWhole,
}

/// What is to become of a key's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They begin anew.
    Reset,
    /// So many units are given back.
    Grant(Cost),
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

impl<D: fmt::Debug> fmt::Debug for KeyErrand<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of limit {}", self.deed, self.limit.0)
    }
}
