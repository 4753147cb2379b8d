//! Threads that verify credentials, so that a worker never computes a signature or a hash of a password.
//!
//! The queue is bounded. What finds it full is refused at once: its client is told to come again.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Threads with one queue, started for the first job.
#[derive(Debug)]
pub struct VerificationPool {
    threads: usize,
    waiting: usize,
    /// Added to the niceness of the threads.
    niceness: i32,
    queue: OnceLock<SyncSender<Job>>,
}

/// The niceness of threads that yield to the workers.
const BACKGROUND: i32 = 10;

/// The queue is full, or the system starts no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many credentials wait to be verified")]
pub struct QueueFull;

impl VerificationPool {
    /// A pool of `threads` threads; at most `waiting` jobs wait for one. The threads end with the pool.
    pub fn new(threads: usize, waiting: usize) -> Self {
        Self { threads, waiting, niceness: 0, queue: OnceLock::new() }
    }

    /// The same with threads that leave the processors to the workers where these need them: for jobs that take long.
    pub fn in_background(threads: usize, waiting: usize) -> Self {
        Self { niceness: BACKGROUND, ..Self::new(threads, waiting) }
    }

    /// Runs `job` on one of the threads.
    ///
    /// # Errors
    ///
    /// The queue is full.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueueFull> {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move || {
            // A client that has left needs no answer.
            if !sender.is_closed() {
                let _left = sender.send(job());
            }
        });
        match self.queue.get_or_init(|| self.start()).try_send(job) {
            Ok(()) => answer.await.map_err(|_| QueueFull),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(QueueFull),
        }
    }

    fn start(&self) -> SyncSender<Job> {
        let (queue, jobs) = sync_channel(self.waiting);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..self.threads.max(1) {
            let (jobs, niceness) = (Arc::clone(&jobs), self.niceness);
            let run = move || {
                // Linux applies it to the thread alone. Without it, the threads still work.
                if niceness > 0 {
                    let _ = rustix::process::nice(niceness);
                }
                serve(&jobs);
            };
            if let Err(error) = thread::Builder::new().name("verify".into()).spawn(run) {
                tracing::error!(%error, "no thread for the verification of credentials could be started");
            }
        }
        queue
    }
}

fn serve(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while the thread waits: the others wait for it instead.
        let job = jobs.lock().recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn jobs_run_on_threads_of_the_pool() {
        let pool = VerificationPool::new(2, 8);
        let name = pool.run(|| thread::current().name().map(str::to_owned)).await;
        assert_eq!(name, Ok(Some("verify".to_owned())));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let pool = Arc::new(VerificationPool::new(1, 1));
        let gate = Arc::new(Barrier::new(2));
        let (first, second) = (Arc::clone(&gate), Arc::clone(&gate));
        let running = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(move || {
                    first.wait();
                    first.wait();
                    1
                })
                .await
            }
        });
        tokio::task::yield_now().await;
        // The thread has taken the first job.
        second.wait();
        let waiting = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.run(|| 2).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(pool.run(|| 3).await, Err(QueueFull));
        gate.wait();
        assert_eq!((running.await.expect("no panic"), waiting.await.expect("no panic")), (Ok(1), Ok(2)));
    }
}
