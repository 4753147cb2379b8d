//! The control thread's task that exports spans: a full batch at once, and fewer spans a second after the first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::encoding::encode;
use super::post::{CollectorConnection, ExportError};
use super::{BATCH, Batch, SpanQueueState, Spans};
use crate::plan::Trace;

/// The maximum time that a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often a batch is sent again if the collector's response allows it.
const MAX_RETRIES: u32 = 3;
/// The delay before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest delay that a collector may ask for. If it asks for more, the batch is dropped.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The task, to be finished before the process ends.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    closing: oneshot::Sender<()>,
}

impl Exporter {
    /// Begins to export the spans of `spans`. Needs a tokio runtime around it.
    pub fn start(spans: &Spans) -> Self {
        let (closing, closed) = oneshot::channel();
        let state = Arc::clone(&spans.state);
        let run = Run { state, closed: Some(closed), last: None, connection: None, away: false };
        Self { task: tokio::spawn(run.run()), closing }
    }

    /// Exports the waiting spans and ends the task. Gives up after `max_wait`. Returns whether all spans were exported
    /// or dropped by then.
    pub async fn finish(self, max_wait: Duration) -> bool {
        let Self { mut task, closing } = self;
        // If the channel is closed, the task has ended.
        let _ = closing.send(());
        let finished = timeout(max_wait, &mut task).await.is_ok();
        task.abort();
        finished
    }
}

struct Run {
    state: Arc<SpanQueueState>,
    /// `None` once the process ends.
    closed: Option<oneshot::Receiver<()>>,
    /// The collector of the last export, and the connection to it.
    last: Option<Arc<Trace>>,
    connection: Option<CollectorConnection>,
    /// The last export failed.
    away: bool,
}

impl Run {
    /// Sleeps while no span waits.
    async fn run(mut self) {
        let state = Arc::clone(&self.state);
        while self.closed.is_some() {
            self.until_closed(state.due.notified()).await;
            if state.len() < BATCH {
                let gathered = async {
                    tokio::select! {
                        () = sleep(GATHER) => {}
                        () = state.due.notified() => {}
                    }
                };
                self.until_closed(gathered).await;
            }
            while let Some(batch) = state.take() {
                self.export(batch).await;
            }
        }
    }

    /// Waits for `due`, or until the process ends. False if it does.
    async fn until_closed(&mut self, due: impl Future<Output = ()>) -> bool {
        let Some(closed) = &mut self.closed else { return false };
        tokio::select! {
            () = due => true,
            _ = closed => {
                self.closed = None;
                false
            }
        }
    }

    async fn export(&mut self, batch: Batch) {
        let (count, trace) = (batch.count(), Arc::clone(&batch.trace));
        let body = encode(&batch.spans, &trace.service_name).into();
        drop(batch);
        if self.last.as_ref() != Some(&trace) {
            (self.last, self.connection, self.away) = (Some(Arc::clone(&trace)), None, false);
        }
        let sent = self.send(&trace, body).await;
        self.state.counts.exported(sent.is_ok());
        self.state.counts.drop_spans(match sent {
            Ok(rejected) => rejected.min(count),
            Err(_) => count,
        });
        if sent.is_err() && self.state.is_left(&trace) {
            // The next collector is not to wait for this one.
            self.state.abandon(&trace);
        }
        self.tell(&trace, sent.err());
    }

    /// Sends a batch, several times if the collector asks for that. Returns the number of rejected spans.
    async fn send(&mut self, trace: &Trace, body: Bytes) -> Result<u64, ExportError> {
        let (mut retries, mut pause) = (0, FIRST_PAUSE);
        loop {
            let fault = match CollectorConnection::post(&mut self.connection, trace, body.clone()).await {
                Ok(rejected) => return Ok(rejected),
                Err(fault) => fault,
            };
            let ExportError::Busy(_, asked) = &fault else { return Err(fault) };
            let wait = asked.unwrap_or(pause);
            if retries == MAX_RETRIES || wait > MAX_PAUSE || self.state.is_left(trace) {
                return Err(fault);
            }
            if !self.until_closed(sleep(wait)).await {
                return Err(fault);
            }
            (retries, pause) = (retries + 1, pause * 2);
        }
    }

    /// Logs once that the collector is unavailable, and once that it is available again.
    fn tell(&mut self, trace: &Trace, fault: Option<ExportError>) {
        let was_away = std::mem::replace(&mut self.away, fault.is_some());
        match fault {
            Some(fault) if !was_away => tracing::warn!(
                "spans cannot be exported to {}: {fault}; they are dropped and counted in `tollgate_trace_spans_dropped_total`",
                trace.url()
            ),
            None if was_away => tracing::info!("spans are exported to {} again", trace.url()),
            _ => {}
        }
    }
}
