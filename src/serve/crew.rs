//! The worker threads, and that none of them ends unnoticed.

use std::io;
use std::sync::Arc;
use std::thread::Builder;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::proxy::{self, Listeners};
use crate::shared::Shared;

/// All workers.
#[derive(Debug)]
pub(super) struct Crew {
    /// One message from each worker at most.
    ends: UnboundedReceiver<WorkerEnd>,
    left: usize,
}

/// A worker thread ended.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker} ended: {}", .outcome.describe())]
pub struct WorkerEnd {
    worker: usize,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// Told to drain, it has drained.
    Drained,
    Failed(io::Error),
    /// The panic's own message is on standard error already.
    Panicked,
}

impl Crew {
    /// Starts one thread for each list of listeners.
    pub(super) fn start(listeners: Vec<Listeners>, shared: &Arc<Shared>) -> io::Result<Self> {
        let (sender, ends) = unbounded_channel();
        let left = listeners.len();
        for (worker, listeners) in listeners.into_iter().enumerate() {
            let report = Report { worker, ends: sender.clone(), outcome: Outcome::Panicked };
            let shared = Arc::clone(shared);
            Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || report.send(proxy::run(worker, listeners, shared)))?;
        }
        Ok(Self { ends, left })
    }

    /// Waits until a worker ends. Before draining, none should. May be cancelled: an end is then told the next time.
    pub(super) async fn next_end(&mut self) -> WorkerEnd {
        let end = self.ends.recv().await;
        self.left = self.left.saturating_sub(1);
        // Every worker reports once, so the channel is closed only when all have.
        end.unwrap_or(WorkerEnd { worker: 0, outcome: Outcome::Drained })
    }

    /// Waits until all have drained; an error is the first that ended otherwise.
    pub(super) async fn all_drained(&mut self) -> Result<(), WorkerEnd> {
        while self.left > 0 {
            let end = self.next_end().await;
            if !matches!(end.outcome, Outcome::Drained) {
                return Err(end);
            }
        }
        Ok(())
    }
}

impl Outcome {
    fn describe(&self) -> String {
        match self {
            Self::Drained => "nobody had asked it to".to_owned(),
            Self::Failed(error) => error.to_string(),
            Self::Panicked => "it panicked".to_owned(),
        }
    }
}

/// Reports a worker's end when it is dropped, which a panic does too.
struct Report {
    worker: usize,
    ends: UnboundedSender<WorkerEnd>,
    outcome: Outcome,
}

impl Report {
    fn send(mut self, result: io::Result<()>) {
        self.outcome = result.map_or_else(Outcome::Failed, |()| Outcome::Drained);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Panicked);
        // The control thread is gone only when the process ends anyway.
        let _ = self.ends.send(WorkerEnd { worker: self.worker, outcome });
    }
}
