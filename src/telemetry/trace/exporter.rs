//! The task of the control thread that exports what waits: a batch as soon as there is one, and whatever there is once a
//! second.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::encoding::encode;
use super::post::{Fault, Link};
use super::span::Span;
use super::{Spans, State};
use crate::gateway::trace::Trace;

/// The longest that a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often a batch is sent again to a collector that says it may be.
const MAX_RETRIES: u32 = 3;
/// Before the first of them; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause that a collector may ask for. One that asks for more does not get the batch.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// What waits has so long to go to a collector that is no more to be used.
const LAST: Duration = Duration::from_secs(5);

/// The task, to be finished before the process ends.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    closing: oneshot::Sender<()>,
}

impl Exporter {
    /// Begins to export what `spans` takes. Needs a tokio runtime around it.
    pub fn start(spans: &Spans) -> Self {
        let (closing, closed) = oneshot::channel();
        let state = Arc::clone(&spans.state);
        let settings = state.settings.subscribe();
        let closed = Some(closed);
        let run = Run { state, settings, closed, over: false, link: None, away: false, open: 0 };
        Self { task: tokio::spawn(run.run()), closing }
    }

    /// Exports what still waits and ends the task. Gives up after `patience`; whether all is exported, or was given up one
    /// by one.
    pub async fn finish(self, patience: Duration) -> bool {
        let Self { mut task, closing } = self;
        // If nobody hears it, the task has ended.
        let _ = closing.send(());
        let finished = timeout(patience, &mut task).await.is_ok();
        task.abort();
        finished
    }
}

struct Run {
    state: Arc<State>,
    settings: watch::Receiver<Option<Arc<Trace>>>,
    /// `None` once the process ends.
    closed: Option<oneshot::Receiver<()>>,
    /// Another collector is to be used, or none, or the process ends.
    over: bool,
    /// The connection to the collector.
    link: Option<Link>,
    /// The last export failed.
    away: bool,
    /// Spans of which nobody knows yet whether they will be taken.
    open: u64,
}

impl Run {
    async fn run(mut self) {
        while self.closed.is_some() {
            let settings = self.settings.borrow_and_update().clone();
            (self.over, self.link, self.away) = (false, None, false);
            match settings {
                Some(trace) => self.serve(&trace).await,
                None => self.interrupted().await,
            }
        }
    }

    /// Waits until the file says something else, or the process ends.
    async fn interrupted(&mut self) {
        if let Some(closed) = &mut self.closed {
            let ended = tokio::select! {
                changed = self.settings.changed() => changed.is_err(),
                _ = closed => true,
            };
            if ended {
                self.closed = None;
            }
        }
        self.over = true;
    }

    /// Exports to one collector until another is to be used or the process ends; then what waits, too.
    async fn serve(&mut self, trace: &Trace) {
        let state = Arc::clone(&self.state);
        while !self.over {
            tokio::select! {
                () = sleep(GATHER) => {}
                () = state.full.notified() => {}
                () = self.interrupted() => break,
            }
            while !self.over && !self.settings.has_changed().unwrap_or(true) && self.export_next(trace).await
            {
            }
        }
        let rest = async { while self.export_next(trace).await {} };
        if timeout(LAST, rest).await.is_err() {
            state.counts.drop_spans(self.open);
        }
        if self.settings.borrow().is_none() {
            // What came late, or was not taken in time, is nobody's.
            while let Some(batch) = state.take() {
                state.counts.drop_spans(spans_of(&batch));
            }
        }
    }

    /// Exports a batch. False if nothing waits.
    async fn export_next(&mut self, trace: &Trace) -> bool {
        let Some(batch) = self.state.take() else { return false };
        let count = spans_of(&batch);
        let body = encode(&batch, &trace.service_name).into();
        drop(batch);
        self.open = count;
        let sent = self.send(trace, body).await;
        self.open = 0;
        self.state.counts.exported(sent.is_ok());
        self.state.counts.drop_spans(match sent {
            Ok(rejected) => rejected.min(count),
            Err(_) => count,
        });
        self.tell(trace, sent.err());
        true
    }

    /// Sends a batch, several times if the collector asks for that. How many spans it rejects.
    async fn send(&mut self, trace: &Trace, body: Bytes) -> Result<u64, Fault> {
        let (mut retries, mut pause) = (0, FIRST_PAUSE);
        loop {
            let fault = match Link::post(&mut self.link, trace, body.clone()).await {
                Ok(rejected) => return Ok(rejected),
                Err(fault) => fault,
            };
            let Fault::Busy(_, asked) = &fault else { return Err(fault) };
            let wait = asked.unwrap_or(pause);
            if retries == MAX_RETRIES || wait > MAX_PAUSE || !self.rest(wait).await {
                return Err(fault);
            }
            (retries, pause) = (retries + 1, pause * 2);
        }
    }

    /// False where there is no time to wait.
    async fn rest(&mut self, pause: Duration) -> bool {
        if !self.over {
            tokio::select! {
                () = sleep(pause) => {}
                () = self.interrupted() => {}
            }
        }
        !self.over
    }

    /// Says once that the collector is away, and once that it is back.
    fn tell(&mut self, trace: &Trace, fault: Option<Fault>) {
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

fn spans_of(batch: &[Box<Span>]) -> u64 {
    batch.iter().map(|span| span.count()).sum()
}
