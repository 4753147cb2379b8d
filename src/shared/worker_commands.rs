//! What the admin listener has workers do: only they have connections to a shared store, and what each has seen is its own.
//!
//! It lies on a worker's sender between requests, and is answered from there: the request path knows nothing of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::plan::{LimitIndex, Plan};
use crate::store::bans::{BanFault, Banned};
use crate::store::{Decisions, Unreachable};
use crate::telemetry::hyperloglog::HyperLogLogUnion;
use crate::telemetry::top_keys::Sketch;

/// Errands that wait on one sender; one more is not taken.
const MOST_WAITING: usize = 64;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that a worker is to do, and whom it tells.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Something with one key of one limit.
    Key(KeyCommand, oneshot::Sender<Result<Decisions, Unreachable>>),
    /// A change of one key's counters. The answer is how many units were given back: see [`Counters::grant`](crate::store::Counters::grant).
    Change(KeyCommand<Change>, oneshot::Sender<Result<u64, Unreachable>>),
    /// A ban for so long, or its end.
    Ban(Banned, Option<Micros>, oneshot::Sender<Result<(), BanFault>>),
    /// Tells who asks of the limit of this name.
    Talkers(Arc<str>, oneshot::Sender<Vec<Sketch>>),
    /// Tells what these keys of the limit of this name are called, as far as they are known.
    Labels(Arc<str>, Arc<[Fingerprint]>, oneshot::Sender<Vec<(Fingerprint, String)>>),
    /// Tells which keys were refused in the last minute and hour, limit by limit.
    RefusedKeys(oneshot::Sender<Vec<(Arc<str>, [HyperLogLogUnion; 2])>>),
}

/// Something with one key of one limit, wherever its counters are.
#[derive(Clone)]
pub struct KeyCommand<D = KeyOperation> {
    /// The plan that `limit` belongs to.
    pub gateway: Arc<Plan>,
    /// Which limit.
    pub limit: LimitIndex,
    /// Whose counters; see [`Charge::owner`](crate::store::Charge::owner).
    pub owner: Fingerprint,
    /// What is to be done.
    pub deed: D,
}

/// What is to be done with a key's counters. The answer is one decision a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOperation {
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
pub type CommandReceiver = mpsc::Receiver<WorkerCommand>;

/// The senders of all workers.
#[derive(Debug)]
pub struct WorkerCommands {
    senders: Vec<mpsc::Sender<WorkerCommand>>,
    /// Until its worker has taken it.
    inboxes: Mutex<Vec<Option<CommandReceiver>>>,
}

impl WorkerCommands {
    /// One for each of so many workers.
    pub fn new(workers: usize) -> Self {
        let (senders, inboxes) =
            (0..workers).map(|_| mpsc::channel(MOST_WAITING)).unzip::<_, _, Vec<_>, Vec<_>>();
        Self { senders, inboxes: Mutex::new(inboxes.into_iter().map(Some).collect()) }
    }

    /// What the worker with this number is to do: for that worker, once.
    pub fn inbox(&self, worker: usize) -> Option<CommandReceiver> {
        self.inboxes.lock().get_mut(worker)?.take()
    }

    /// Has one worker, whichever it is, do something. `None`: none has, in time.
    pub async fn ask_one<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> WorkerCommand) -> Option<T> {
        ask(self.senders.first()?, command).await
    }

    /// Has all workers do something. Those that do not answer in time are left out.
    pub async fn ask_all<T>(&self, command: impl Fn(oneshot::Sender<T>) -> WorkerCommand) -> Vec<T> {
        let mut answers = Vec::new();
        for sender in &self.senders {
            answers.extend(ask(sender, &command).await);
        }
        answers
    }
}

async fn ask<T>(
    sender: &mpsc::Sender<WorkerCommand>,
    command: impl FnOnce(oneshot::Sender<T>) -> WorkerCommand,
) -> Option<T> {
    let (tell, told) = oneshot::channel();
    sender.try_send(command(tell)).ok()?;
    timeout(PATIENCE, told).await.ok()?.ok()
}

impl<D: fmt::Debug> fmt::Debug for KeyCommand<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of limit {}", self.deed, self.limit.0)
    }
}
