//! Traces: workers hand finished requests over a bounded queue to a task of the control thread that exports them by
//! OTLP; when it is full they are dropped and counted.

pub mod context;
mod encoding;
pub mod exporter;
mod message;
mod post;
pub mod span;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::gateway::trace::Trace;
use span::Span;

/// Requests that wait to be exported. Each takes some hundred bytes, and never more than about 10 KiB.
const QUEUE: usize = 4_096;
/// Requests that are exported together: twice as many spans at most.
const BATCH: usize = 256;

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spans {
    state: Arc<State>,
}

/// What both ends see.
#[derive(Debug)]
struct State {
    waiting: Mutex<VecDeque<Box<Span>>>,
    /// A batch waits.
    full: Notify,
    /// What the plan in force says. `None`: nothing is traced.
    settings: watch::Sender<Option<Arc<Trace>>>,
    counts: Counts,
}

/// What became of spans, for `/metrics`.
#[derive(Debug, Default)]
pub struct Counts {
    dropped: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Spans that nobody was told of: the queue was full, or an export failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Batches that the collector took.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// Batches that were given up.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn drop_spans(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn exported(&self, taken: bool) {
        let counter = if taken { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Spans {
    /// A queue that takes spans if `settings` say where they go.
    pub fn new(settings: Option<Arc<Trace>>) -> Self {
        let state = State {
            waiting: Mutex::default(),
            full: Notify::new(),
            settings: watch::Sender::new(settings),
            counts: Counts::default(),
        };
        Self { state: Arc::new(state) }
    }

    /// Hands a request over; never waits for the collector. It is dropped and counted if the queue is full, or if nothing
    /// is traced any more.
    pub fn record(&self, span: Box<Span>) {
        let state = &*self.state;
        let refused = if state.settings.borrow().is_some() { state.put(span) } else { Some(span) };
        if let Some(refused) = refused {
            state.counts.drop_spans(refused.count());
        }
    }

    /// Does from now on what another plan says. What waits still goes where it was to go.
    pub fn adopt(&self, settings: Option<&Arc<Trace>>) {
        self.state.settings.send_if_modified(|last| {
            let differs = last.as_ref() != settings;
            if differs {
                *last = settings.cloned();
            }
            differs
        });
    }

    /// What became of spans so far.
    pub fn counts(&self) -> &Counts {
        &self.state.counts
    }
}

impl State {
    /// Gives the span back if there is no room.
    fn put(&self, span: Box<Span>) -> Option<Box<Span>> {
        let waiting = {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= QUEUE {
                return Some(span);
            }
            waiting.push_back(span);
            waiting.len()
        };
        // Once a batch: to wake a thread costs more than all the rest.
        if waiting % BATCH == 0 {
            self.full.notify_one();
        }
        None
    }

    /// The next batch, if anything waits.
    fn take(&self) -> Option<Box<[Box<Span>]>> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH);
        let batch: Box<[_]> = waiting.drain(..count).collect();
        if waiting.is_empty() {
            // What a burst has taken is given back.
            waiting.shrink_to(BATCH);
        }
        (count > 0).then_some(batch)
    }
}
