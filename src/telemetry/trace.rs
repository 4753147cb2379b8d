//! Traces: workers pass finished requests through a bounded queue to a task of the control thread that exports them by
//! OTLP. When the queue is full, requests are dropped and counted.

pub mod context;
mod encoding;
pub mod exporter;
mod post;
pub mod span;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::plan::Trace;
use span::RequestSpan;

/// The capacity of the queue, in requests. Each takes some hundred bytes, and never more than about 10 KiB.
const QUEUE: usize = 4_096;
/// The maximum number of requests in one export: at most twice as many spans.
const BATCH: usize = 256;

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    state: Arc<SpanQueueState>,
}

/// State shared by both ends.
#[derive(Debug, Default)]
struct SpanQueueState {
    waiting: Mutex<VecDeque<Box<RequestSpan>>>,
    /// Notified when a batch begins or is full.
    due: Notify,
    counts: SpanCounts,
}

/// Requests exported together.
#[derive(Debug)]
struct Batch {
    /// The destination.
    trace: Arc<Trace>,
    spans: Vec<RequestSpan>,
}

/// Counts of exported and dropped spans, for `/metrics`.
#[derive(Debug, Default)]
pub struct SpanCounts {
    dropped: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl SpanCounts {
    /// Spans dropped: the queue was full, or an export failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Batches that the collector accepted.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// Batches that were dropped.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn drop_spans(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn exported(&self, accepted: bool) {
        let counter = if accepted { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Spans {
    /// Queues a request; never waits for the collector. The request is dropped and counted if the queue is full.
    pub fn record(&self, span: Box<RequestSpan>) {
        let state = &*self.state;
        if let Err(refused) = state.put(span) {
            state.counts.drop_spans(refused.count());
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> &SpanCounts {
        &self.state.counts
    }
}

impl SpanQueueState {
    /// Returns the span if there is no room.
    fn put(&self, span: Box<RequestSpan>) -> Result<(), Box<RequestSpan>> {
        let waiting = {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= QUEUE {
                return Err(span);
            }
            waiting.push_back(span);
            waiting.len()
        };
        // Twice a batch: waking a thread costs more than all the rest.
        if waiting == 1 || waiting % BATCH == 0 {
            self.due.notify_one();
        }
        Ok(())
    }

    /// The number of waiting requests.
    fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// The next batch, if any request waits: requests with the same collector.
    fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let trace = Arc::clone(&waiting.front()?.trace);
        let count = waiting.iter().take(BATCH).take_while(|span| span.trace == trace).count();
        let spans = waiting.drain(..count).map(|span| *span).collect();
        if waiting.is_empty() {
            // Frees the memory of a burst.
            waiting.shrink_to(BATCH);
        }
        Some(Batch { trace, spans })
    }

    /// Whether the newest request has another collector: a reload changed it.
    fn is_left(&self, trace: &Trace) -> bool {
        self.waiting.lock().back().is_some_and(|last| *last.trace != *trace)
    }

    /// Drops the waiting requests of a collector that is no longer in use.
    fn abandon(&self, trace: &Trace) {
        let mut waiting = self.waiting.lock();
        while let Some(span) = waiting.pop_front_if(|span| *span.trace == *trace) {
            self.counts.drop_spans(span.count());
        }
    }
}

impl Batch {
    /// The number of spans.
    fn count(&self) -> u64 {
        self.spans.iter().map(RequestSpan::count).sum()
    }
}
