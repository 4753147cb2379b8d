//! The access log: workers pass records through a bounded queue to a thread that writes them. When the queue is full,
//! records are dropped and counted.

mod captured_headers;
mod line;
mod output;
mod pretty;
mod record;
mod timestamps;
mod values;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::plan::log::AccessLog;

pub use captured_headers::{CapturedHeaders, HeaderOrigin};
pub use output::{Output, OutputStyle};
pub use record::{
    Record, RecordedConsumer, RecordedDecision, RecordedRequest, RecordedResponse, RecordedUpstream,
};
pub use timestamps::rfc3339;

/// The capacity of the queue, in records. It need not hold a second's records: the writer returns every 10 ms.
const QUEUE: usize = 8_192;

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLogger {
    state: Arc<LogQueueState>,
    queue: SyncSender<Message>,
}

/// The writing thread, to be finished before the process ends.
#[derive(Debug)]
pub struct AccessLogWriter {
    logger: AccessLogger,
    /// Never sends; it is disconnected when the thread ends.
    ended: Receiver<()>,
}

/// State shared by both ends.
#[derive(Debug, Default)]
struct LogQueueState {
    /// A change that found the queue full.
    overdue: Mutex<Option<Change>>,
    dropped: AtomicU64,
    /// The writer ends once the queue is empty.
    closing: AtomicBool,
}

/// A change of the writer's format or output.
#[derive(Debug)]
struct Change {
    form: Option<AccessLog>,
    output: Option<Output>,
}

impl Change {
    /// This change, with the parts of an earlier one that it does not replace.
    fn after(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(Self { form, output }) => Self { form: self.form.or(form), output: self.output.or(output) },
            None => self,
        }
    }
}

#[derive(Debug)]
enum Message {
    Record(Box<Record>),
    /// Applies to the records after it.
    Change(Box<Change>),
    /// Only wakes the writer, so that it sees [`State::closing`].
    Wake,
}

impl AccessLogger {
    /// A logger that never writes.
    #[cfg(test)]
    pub(crate) fn disabled() -> Self {
        // The other end is closed, so all records are dropped.
        Self::new(0).0
    }

    /// Starts the thread that writes to `output`. Fails if the system has no thread left.
    pub fn start(form: AccessLog, output: Output) -> io::Result<AccessLogWriter> {
        let (logger, queue) = Self::new(QUEUE);
        let (alive, ended) = sync_channel(0);
        let state = Arc::clone(&logger.state);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer::run(&queue, &state, form, output);
            drop(alive);
        })?;
        Ok(AccessLogWriter { logger, ended })
    }

    fn new(queue: usize) -> (Self, Receiver<Message>) {
        let (queue, receiver) = sync_channel(queue);
        (Self { state: Arc::default(), queue }, receiver)
    }

    /// Changes the format, and the output if it is given. Records queued before are written as before, unless the queue
    /// is full.
    pub fn change(&self, form: AccessLog, output: Option<Output>) {
        self.order(Change { form: Some(form), output });
    }

    /// Changes the output. Records queued before are still written to the old one, unless the queue is full.
    pub fn redirect(&self, output: Output) {
        self.order(Change { form: None, output: Some(output) });
    }

    /// Queues a record; never blocks. It is dropped and counted if the queue is full.
    pub fn record(&self, record: impl Into<Box<Record>>) {
        if self.queue.try_send(Message::Record(record.into())).is_err() {
            self.state.drop_records(1);
        }
    }

    /// Records dropped so far, because the queue was full or the output failed.
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }

    fn order(&self, change: Change) {
        let mut overdue = self.state.overdue.lock();
        let change = Box::new(change.after(overdue.take()));
        if let Err(TrySendError::Full(Message::Change(change))) = self.queue.try_send(Message::Change(change))
        {
            *overdue = Some(*change);
        }
    }
}

impl AccessLogWriter {
    /// The workers' end.
    pub fn logger(&self) -> AccessLogger {
        self.logger.clone()
    }

    /// Writes the waiting records and ends the thread. Gives up after `timeout`, if the output is stuck. Returns
    /// whether all records were written.
    pub fn finish(self, timeout: Duration) -> bool {
        self.logger.state.closing.store(true, Ordering::Release);
        // If the queue is full, the writer is awake.
        let _ = self.logger.queue.try_send(Message::Wake);
        self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

impl LogQueueState {
    fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}
