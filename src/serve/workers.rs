//! The worker threads, and the detection of one that ends.

use std::io;
use std::thread::Builder;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::proxy::WorkerListeners;

/// All workers.
#[derive(Debug)]
pub(super) struct Workers {
    /// At most one message from each worker.
    ends: UnboundedReceiver<WorkerEnd>,
    /// The same, when a worker accepts connections.
    ups: UnboundedReceiver<()>,
    left: usize,
}

/// Called by a worker when it accepts connections.
#[derive(Debug)]
pub(super) struct ReadySignal(UnboundedSender<()>);

impl ReadySignal {
    pub(super) fn call(self) {
        // The control thread is gone only when the process ends anyway.
        let _ = self.0.send(());
    }
}

/// A worker thread ended.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker} ended: {}", .outcome.describe())]
pub struct WorkerEnd {
    worker: usize,
    outcome: WorkerOutcome,
}

#[derive(Debug)]
enum WorkerOutcome {
    /// The worker has drained, as it was told to.
    Drained,
    Failed(io::Error),
    /// The panic's own message is on standard error already.
    Panicked,
}

impl Workers {
    /// Starts one thread for each list of listeners, and `work` on it with the worker's number, its listeners and its
    /// ready signal.
    pub(super) fn start<W>(listeners: Vec<WorkerListeners>, work: W) -> io::Result<Self>
    where
        W: Fn(usize, WorkerListeners, ReadySignal) -> io::Result<()> + Clone + Send + 'static,
    {
        let (sender, ends) = unbounded_channel();
        let (up, ups) = unbounded_channel();
        let left = listeners.len();
        for (worker, listeners) in listeners.into_iter().enumerate() {
            let report = EndReport { worker, ends: sender.clone(), outcome: WorkerOutcome::Panicked };
            let (work, up) = (work.clone(), ReadySignal(up.clone()));
            Builder::new()
                .name(format!("worker-{worker}"))
                .spawn(move || report.send(work(worker, listeners, up)))?;
        }
        Ok(Self { ends, ups, left })
    }

    /// Waits until every worker accepts connections; an error is a worker that ended instead.
    pub(super) async fn all_up(&mut self) -> Result<(), WorkerEnd> {
        for _ in 0..self.left {
            tokio::select! {
                biased;
                Some(end) = self.ends.recv() => return Err(end),
                Some(()) = self.ups.recv() => {}
                // Every worker signals or ends.
                else => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until a worker ends. Before draining, none should. May be cancelled: the next call then returns the end.
    pub(super) async fn next_end(&mut self) -> WorkerEnd {
        let end = self.ends.recv().await;
        self.left = self.left.saturating_sub(1);
        // Every worker reports once, so the channel is closed only when all have.
        end.unwrap_or(WorkerEnd { worker: 0, outcome: WorkerOutcome::Drained })
    }

    /// Waits until all workers have drained; an error is the first one that ended otherwise.
    pub(super) async fn all_drained(&mut self) -> Result<(), WorkerEnd> {
        while self.left > 0 {
            let end = self.next_end().await;
            if !matches!(end.outcome, WorkerOutcome::Drained) {
                return Err(end);
            }
        }
        Ok(())
    }
}

impl WorkerOutcome {
    fn describe(&self) -> String {
        match self {
            Self::Drained => "it was not asked to".to_owned(),
            Self::Failed(error) => error.to_string(),
            Self::Panicked => "it panicked".to_owned(),
        }
    }
}

/// Reports a worker's end when it is dropped, also after a panic.
struct EndReport {
    worker: usize,
    ends: UnboundedSender<WorkerEnd>,
    outcome: WorkerOutcome,
}

impl EndReport {
    fn send(mut self, result: io::Result<()>) {
        self.outcome = result.map_or_else(WorkerOutcome::Failed, |()| WorkerOutcome::Drained);
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, WorkerOutcome::Panicked);
        // The control thread is gone only when the process ends anyway.
        let _ = self.ends.send(WorkerEnd { worker: self.worker, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(work: fn(usize) -> io::Result<()>) -> Workers {
        Workers::start(vec![WorkerListeners::default(), WorkerListeners::default()], move |worker, _, _| {
            work(worker)
        })
        .unwrap()
    }

    #[tokio::test]
    async fn all_have_drained_when_every_worker_has() {
        let mut workers = workers(|_| Ok(()));
        workers.all_drained().await.unwrap();
    }

    #[tokio::test]
    async fn a_wait_that_is_cancelled_loses_no_end() {
        let (ready, listeners) = (std::time::Duration::ZERO, vec![WorkerListeners::default()]);
        let (go, gone) = std::sync::mpsc::sync_channel(0);
        let gone = std::sync::Arc::new(std::sync::Mutex::new(gone));
        let mut workers =
            Workers::start(listeners, move |_, _, _| gone.lock().unwrap().recv().map_err(io::Error::other))
                .unwrap();
        assert!(tokio::time::timeout(ready, workers.next_end()).await.is_err());
        assert!(tokio::time::timeout(ready, workers.all_drained()).await.is_err(), "one still works");
        go.send(()).unwrap();
        workers.all_drained().await.unwrap();
    }

    #[tokio::test]
    async fn a_worker_that_fails_or_panics_is_named() {
        for (work, words) in [
            (
                (|worker| if worker == 1 { Err(io::Error::other("no memory")) } else { Ok(()) })
                    as fn(usize) -> _,
                "worker 1 ended: no memory",
            ),
            (
                |worker| if worker == 1 { panic!("a test's panic") } else { Ok(()) },
                "worker 1 ended: it panicked",
            ),
        ] {
            assert_eq!(workers(work).all_drained().await.unwrap_err().to_string(), words);
        }
    }
}
