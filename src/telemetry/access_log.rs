//! The access log: workers hand records over a bounded queue to a thread that writes them; when it is full they are dropped and counted.

mod line;
mod writer;

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use http::{Method, StatusCode, Version};

use crate::gateway::AccessLog;
use crate::limit::units::{Micros, Timestamp};

/// Records that wait to be written. A second of it is never waited for: the writer comes back every 10 ms.
const QUEUE: usize = 8_192;

/// One answered request.
#[derive(Clone, Debug)]
pub struct Record {
    /// When its head had come.
    pub time: Timestamp,
    /// The method as sent.
    pub method: Method,
    /// The protocol version.
    pub version: Version,
    /// The host as routed; empty if there was none.
    pub host: Box<str>,
    /// Path and query as sent.
    pub path: Box<str>,
    /// The matched route's name.
    pub route: Option<Arc<str>>,
    /// The answer's status.
    pub status: StatusCode,
    /// Request body bytes that came.
    pub bytes_in: u64,
    /// Response body bytes that went.
    pub bytes_out: u64,
    /// Head of the request to end of the response.
    pub duration: Micros,
    /// `NAME/HOST:PORT` of the server that answered last.
    pub upstream: Option<Box<str>>,
    /// Until its response head.
    pub upstream_duration: Option<Micros>,
    /// The client as identified.
    pub client: IpAddr,
    /// `x-request-id`.
    pub request_id: Box<str>,
    /// The limit that decided: the one that refused, or the tightest.
    pub limit: Option<Arc<str>>,
    /// What it said: the decision's label in metrics.
    pub decision: Option<&'static str>,
    /// What remains there.
    pub remaining: Option<u64>,
    /// What the request cost there.
    pub cost: Option<u32>,
    /// Why tollgate itself answered, in one word: `connect`, `timeout`, …
    pub error: Option<&'static str>,
    /// `referer` and `user-agent`, for the combined format.
    pub referer: Option<Box<[u8]>>,
    /// See `referer`.
    pub user_agent: Option<Box<[u8]>>,
}

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLogger {
    state: Arc<State>,
    queue: SyncSender<Message>,
}

/// The writing thread, to be finished before the process ends.
#[derive(Debug)]
pub struct AccessLogWriter {
    logger: AccessLogger,
    /// Never sends; it disconnects when the thread ends.
    ended: Receiver<()>,
}

/// What both ends see.
#[derive(Debug)]
struct State {
    /// An [`AccessLog`] as [`code`] writes it.
    mode: AtomicU8,
    dropped: AtomicU64,
    /// The writer ends once the queue is empty.
    closing: AtomicBool,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every message is a record; boxing it would cost an allocation"
)]
enum Message {
    Record(Record),
    /// Only wakes the writer, so that it sees [`State::closing`].
    Wake,
}

impl AccessLogger {
    /// A logger that wants no records and never will.
    pub fn disabled() -> Self {
        // The other end is gone, so whatever is sent all the same is dropped.
        Self::new(AccessLog::Off, 0).0
    }

    /// Starts the thread that writes to `output`. Fails if the system has no thread left.
    pub fn start(mode: AccessLog, output: impl Write + Send + 'static) -> io::Result<AccessLogWriter> {
        let (logger, queue) = Self::new(mode, QUEUE);
        let (alive, ended) = sync_channel(0);
        let state = Arc::clone(&logger.state);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer::run(&queue, &state, output);
            drop(alive);
        })?;
        Ok(AccessLogWriter { logger, ended })
    }

    fn new(mode: AccessLog, queue: usize) -> (Self, Receiver<Message>) {
        let (queue, receiver) = sync_channel(queue);
        let state = State {
            mode: AtomicU8::new(code(mode)),
            dropped: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        };
        (Self { state: Arc::new(state), queue }, receiver)
    }

    /// Whether records are wanted at all: without, workers make none.
    pub fn enabled(&self) -> bool {
        self.state.mode() != AccessLog::Off
    }

    /// Changes the format from now on; records that wait are written in the new one.
    pub fn set_mode(&self, mode: AccessLog) {
        self.state.mode.store(code(mode), Ordering::Relaxed);
    }

    /// Hands a record over; never blocks. It is dropped and counted if the queue is full.
    pub fn record(&self, record: Record) {
        if self.queue.try_send(Message::Record(record)).is_err() {
            self.state.drop_records(1);
        }
    }

    /// Records dropped so far, because the queue was full or the output failed.
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

impl AccessLogWriter {
    /// The workers' end.
    pub fn logger(&self) -> AccessLogger {
        self.logger.clone()
    }

    /// Writes what still waits and ends the thread. Gives up after `patience`, should the output be stuck; whether
    /// all is written.
    pub fn finish(self, patience: Duration) -> bool {
        self.logger.state.closing.store(true, Ordering::Release);
        // If the queue is full, the writer is awake.
        let _ = self.logger.queue.try_send(Message::Wake);
        self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl State {
    fn mode(&self) -> AccessLog {
        match self.mode.load(Ordering::Relaxed) {
            1 => AccessLog::Json,
            2 => AccessLog::Combined,
            _ => AccessLog::Off,
        }
    }

    fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

fn code(mode: AccessLog) -> u8 {
    match mode {
        AccessLog::Off => 0,
        AccessLog::Json => 1,
        AccessLog::Combined => 2,
    }
}
