//! Commands of the admin listener to workers: only workers have connections to a shared store, and each worker has key
//! statistics of its own.
//!
//! A command waits in a worker's queue and is executed between requests: the request path does not check for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::limit::units::{Cost, Fingerprint, Micros};
use crate::plan::{LimitIndex, Plan, TierIndex};
use crate::store::bans::{BanFault, Banned};
use crate::store::fleet::FleetView;
use crate::store::overrides::{KeyOfLimit, KeyOverride, OverrideFault};
use crate::store::usage::{SharedUsage, UsageSettings, UsageSpan};
use crate::store::{KeyOperation, OperationFault, OperationResult, Unreachable};
use crate::telemetry::hyperloglog::HyperLogLogUnion;
use crate::telemetry::top_keys::Sketch;

/// The maximum number of commands in one queue; more are not accepted.
const MAX_WAITING: usize = 64;
/// How long all workers may take to end what they are doing: longer than for a result, since much depends on it.
const PASS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a result is waited for.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A command to a worker, with the channel for its result.
#[derive(Debug)]
pub enum WorkerCommand {
    /// An operation on one key of one limit.
    Key(KeyCommand, oneshot::Sender<Result<OperationResult, OperationFault>>),
    /// A ban for this time, or the end of one.
    Ban(Banned, Option<Micros>, oneshot::Sender<Result<(), BanFault>>),
    /// An override of a key, or the end of one. The result is whether it changes something.
    Override(KeyOfLimit, Option<KeyOverride>, oneshot::Sender<Result<bool, OverrideFault>>),
    /// Reads the gateways that share the store; `None` if it is not shared.
    Fleet(oneshot::Sender<Result<Option<FleetView>, Unreachable>>),
    /// Reads the usage of a limit in the other processes that share the store; `None` if it is not shared.
    Usage(UsageSettings, UsageSpan, oneshot::Sender<Result<Option<SharedUsage>, Unreachable>>),
    /// Resets the counters of bans that a reload has ended.
    EndBans(EndedBanKeys),
    /// Returns once nothing else is being done.
    Pass(oneshot::Sender<()>),
    /// Returns the top keys of the limit of this name.
    Talkers(Arc<str>, LimitKeys, oneshot::Sender<Vec<Sketch>>),
    /// Returns the texts of these keys of the limit of this name, as far as they are known.
    Labels(Arc<str>, LimitKeys, Arc<[Fingerprint]>, oneshot::Sender<Vec<(Fingerprint, String)>>),
    /// Returns the keys refused in the last minute and hour, limit by limit.
    RefusedKeys(oneshot::Sender<Vec<(Arc<str>, [HyperLogLogUnion; 2])>>),
}

/// Which keys of a limit are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKeys {
    /// Those that have counters: of `key`.
    Counted,
    /// Those among which its places are divided: of `share_by`.
    Shares,
}

/// An operation on one key of one limit, wherever its counters are.
#[derive(Clone)]
pub struct KeyCommand {
    /// The plan that `limit` belongs to.
    pub plan: Arc<Plan>,
    /// The limit.
    pub limit: LimitIndex,
    /// The tier of the consumer, if the key names one.
    pub tier: Option<TierIndex>,
    /// The owner of the counters; see [`Charge::owner`](crate::store::Charge::owner).
    pub key_hash: Fingerprint,
    /// The cost of a request that is looked at; `None`: the whole allowance.
    pub cost: Option<Cost>,
    /// The operation.
    pub operation: KeyOperation,
    /// Whether only the counters of this process are asked, as while the shared store is unavailable.
    pub in_process: bool,
}

/// The keys of a limit whose automatic bans a reload has ended.
#[derive(Clone)]
pub struct EndedBanKeys {
    /// The plan that `limit` belongs to.
    pub plan: Arc<Plan>,
    /// The limit.
    pub limit: LimitIndex,
    /// Whether the bans began in shadow.
    pub in_shadow: bool,
    /// The keys.
    pub key_hashes: Vec<Fingerprint>,
}

/// The queue of one worker's commands.
pub type CommandReceiver = mpsc::Receiver<WorkerCommand>;

/// The queues of all workers.
#[derive(Debug)]
pub struct WorkerCommands {
    senders: Vec<mpsc::Sender<WorkerCommand>>,
    /// Each receiver until its worker takes it.
    inboxes: Mutex<Vec<Option<CommandReceiver>>>,
}

impl WorkerCommands {
    /// One queue for each of the workers.
    pub fn new(workers: usize) -> Self {
        let (senders, inboxes) =
            (0..workers).map(|_| mpsc::channel(MAX_WAITING)).unzip::<_, _, Vec<_>, Vec<_>>();
        Self { senders, inboxes: Mutex::new(inboxes.into_iter().map(Some).collect()) }
    }

    /// The queue of the worker with this number: for that worker, once.
    pub fn inbox(&self, worker: usize) -> Option<CommandReceiver> {
        self.inboxes.lock().get_mut(worker)?.take()
    }

    /// Has one worker, any of them, execute a command. `None`: none has, in time.
    pub async fn ask_one<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> WorkerCommand) -> Option<T> {
        ask(self.senders.first()?, command).await
    }

    /// Has one worker, any of them, execute a command without a result. False: its queue is full.
    pub fn tell_one(&self, command: WorkerCommand) -> bool {
        self.senders.first().is_some_and(|sender| sender.try_send(command).is_ok())
    }

    /// Has one worker execute an operation on the counters of a key.
    ///
    /// # Errors
    ///
    /// See [`OperationFault`].
    pub async fn execute(&self, command: KeyCommand) -> Result<OperationResult, OperationFault> {
        let result = self.ask_one(|reply| WorkerCommand::Key(command, reply)).await;
        result.unwrap_or(Err(Unreachable.into()))
    }

    /// Waits until each worker has ended what it was doing at this moment. False: not all have, in time.
    pub async fn all_pass(&self) -> bool {
        let all = async {
            for sender in &self.senders {
                let (reply, replied) = oneshot::channel();
                // A worker that has ended decides nothing more.
                if sender.send(WorkerCommand::Pass(reply)).await.is_ok() && replied.await.is_err() {
                    return false;
                }
            }
            true
        };
        timeout(PASS_TIMEOUT, all).await.unwrap_or(false)
    }

    /// Has all workers execute a command. Those that do not answer in time are left out.
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
    let (reply, replied) = oneshot::channel();
    sender.try_send(command(reply)).ok()?;
    timeout(TIMEOUT, replied).await.ok()?.ok()
}

impl fmt::Debug for EndedBanKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys of limit {}", self.key_hashes.len(), self.limit.0)
    }
}

impl fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of limit {}", self.operation, self.limit.0)
    }
}
