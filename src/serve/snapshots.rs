//! Snapshots: the counters in memory are read from their file at the start, and written to it from then on.
//!
//! A thread of its own writes them. It rests again and again, so that workers wait for no processor.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ServeError;
use super::takeover::{Asking, OfferedCounters, Predecessor};
use crate::clock::Clock;
use crate::limit::units::Timestamp;
use crate::limit::wall_clock;
use crate::plan::{Plan, SnapshotSettings};
use crate::route::key::KeySecret;
use crate::shared::Shared;
use crate::store::Store;
use crate::store::snapshot::{self, KnownLists, RestoredCounters, Snapshot, SnapshotTime};
use crate::time_zones;

/// How often the thread looks whether a snapshot is due.
const TICK: Duration = Duration::from_secs(1);
/// How long it rests in between.
const REST: Duration = Duration::from_micros(500);
/// How long the end of the process, or a takeover, waits for a snapshot that is being written.
const LAST_WRITE: Duration = Duration::from_secs(4);

/// The counters of an earlier process, and the clock that counts on from there.
#[derive(Debug)]
pub(super) struct EarlierCounters {
    pub(super) clock: Clock,
    source: CounterSource,
}

/// Where counters come from.
#[derive(Debug)]
enum CounterSource {
    /// They begin at 0.
    Nowhere,
    /// The file of a process that has ended.
    File(Snapshot),
    /// The process that is taken over.
    Predecessor(OfferedCounters),
    /// The shared store, and what the process that is taken over knows of it.
    Shared(KnownLists),
}

impl EarlierCounters {
    /// Asks the process that is taken over, or reads the plan's file. One that cannot be used is logged: the counters begin
    /// at 0.
    pub(super) fn read(plan: &Plan, predecessor: Option<&Predecessor>) -> Self {
        if let Some(predecessor) = predecessor {
            if plan.store.shared.is_some() {
                let (clock, source) = match predecessor.lists() {
                    Some((clock, lists)) => (clock, CounterSource::Shared(lists)),
                    None => (Clock::system(), CounterSource::Nowhere),
                };
                return Self { clock, source };
            }
            if let Some(offered) = predecessor.counters() {
                return Self { clock: offered.resume_clock(), source: CounterSource::Predecessor(offered) };
            }
            let process = predecessor.process;
            tracing::info!(
                "process {process} hands no counters over: it shares them, or is of an older version"
            );
        }
        let clock = Clock::system();
        let begin = |clock| Self { clock, source: CounterSource::Nowhere };
        let Some(SnapshotSettings { file, .. }) = &plan.store.snapshot else { return begin(clock) };
        let read = Snapshot::read(file).and_then(|snapshot| {
            let Some(snapshot) = snapshot else { return Ok(None) };
            let resumed_at = snapshot.resumed_at(clock.wall_now())?;
            Ok(Some((snapshot, resumed_at)))
        });
        match read {
            Ok(Some((snapshot, resumed_at))) => {
                let clock = Clock::system_from(resumed_at);
                wall_clock::system().resume(snapshot.wall_clock());
                // The wall clock may have been set back since the file was written.
                let _ = clock.follow(wall_clock::system());
                Self { clock, source: CounterSource::File(snapshot) }
            }
            Ok(None) => {
                tracing::info!("no counters in {} yet: it is written from now on", file.display());
                begin(clock)
            }
            Err(fault) => {
                tracing::warn!("the counters in {} are not used, and begin at 0: {fault}", file.display());
                begin(clock)
            }
        }
    }

    /// The secret that the keys of the counters are named by; a new one where there are no counters.
    pub(super) fn secret(
        &self,
        new: impl FnOnce() -> Result<[u8; 16], ServeError>,
    ) -> Result<KeySecret, ServeError> {
        Ok(KeySecret::Process(match &self.source {
            CounterSource::Nowhere | CounterSource::Shared(_) => new()?,
            CounterSource::File(snapshot) => snapshot.secret(),
            CounterSource::Predecessor(offered) => offered.secret(),
        }))
    }

    /// Whether bans and overrides are known without the shared store that keeps them.
    pub(super) fn knows_lists(&self) -> bool {
        matches!(self.source, CounterSource::Shared(_))
    }

    /// Puts the counters into the store, in which no policy is registered yet. A process that hands them over asks this one
    /// from now on.
    pub(super) fn restore(self, store: &Store, plan: &Plan) -> (Clock, Option<Asking>) {
        let Self { clock, source } = self;
        match (source, &plan.store.snapshot) {
            (CounterSource::Predecessor(offered), _) => match offered.take(store, || clock.now()) {
                Ok((RestoredCounters { counters, dropped, bans }, asking)) => {
                    let places = asking.places();
                    tracing::info!(
                        counters,
                        dropped,
                        bans,
                        places,
                        "the counters of the process before count on"
                    );
                    return (clock, Some(asking));
                }
                Err(error) => {
                    tracing::warn!(
                        "the counters of the process before are not used, and begin at 0: {error}"
                    );
                }
            },
            (CounterSource::File(snapshot), Some(SnapshotSettings { file, .. })) => {
                let (secret, is_last) = (snapshot.secret(), snapshot.is_last());
                let keeps_usage = plan.limits.iter().any(|limit| limit.usage.is_some());
                let path = file;
                let file = file.display();
                match snapshot.restore(store, clock.now(), time_zones::named) {
                    Ok(RestoredCounters { counters, dropped, bans }) => {
                        tracing::info!(counters, dropped, bans, "the counters in {file} count on");
                        if is_last && keeps_usage {
                            replace_last(path, store, secret, &clock);
                        }
                    }
                    Err(fault) => {
                        tracing::warn!("the counters in {file} are not used, and begin at 0: {fault}");
                    }
                }
            }
            (CounterSource::Shared(lists), _) => {
                lists.restore(store, clock.now(), wall_clock::system().wall_time(clock.now()));
            }
            (CounterSource::Nowhere | CounterSource::File(_), _) => {}
        }
        (clock, None)
    }
}

/// Writes counters that were read from the last snapshot of a process: after a crash the file must not say that nothing
/// was recorded after it.
fn replace_last(path: &Path, store: &Store, secret: [u8; 16], clock: &Clock) {
    let wall_clock = wall_clock::system().copy();
    let now = SnapshotTime { at: clock.now(), wall_clock, is_last: false };
    if let Err(error) = snapshot::write(path, store, secret, &now, || {}) {
        let file = path.display();
        tracing::warn!(
            "the counters cannot be written to {file}: usage that a crash loses is not told of: {error}"
        );
    }
}

/// The snapshot at the end of the process.
#[derive(Clone, Copy, Debug)]
struct LastSnapshot {
    /// All requests have ended, so that nothing is recorded afterwards.
    is_complete: bool,
}

/// The thread that writes the counters.
#[derive(Debug)]
pub(super) struct SnapshotWriter {
    /// Whether to write them once more.
    end: Sender<Option<LastSnapshot>>,
    ended: oneshot::Receiver<()>,
    is_left: bool,
}

impl SnapshotWriter {
    /// Starts the thread.
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, ServeError> {
        let (end, asked) = channel();
        let (done, ended) = oneshot::channel();
        let write = move || {
            SnapshotThread { failed: false, written: shared.clock.now(), shared }.run(&asked);
            // The control thread is gone only when the process ends anyway.
            let _ = done.send(());
        };
        Builder::new()
            .name("snapshots".to_owned())
            .spawn(write)
            .map_err(|error| ServeError::System("start the thread of the snapshots", error))?;
        Ok(Self { end, ended, is_left: false })
    }

    /// Leaves the file to another process: it is not written after this.
    pub(super) async fn leave(&mut self) {
        self.is_left = true;
        self.end(None).await;
    }

    /// Writes the counters for the last time, unless the file is another process's. `is_complete`: all requests have ended.
    pub(super) async fn finish(mut self, is_complete: bool) {
        if !self.is_left {
            self.end(Some(LastSnapshot { is_complete })).await;
        }
    }

    async fn end(&mut self, write: Option<LastSnapshot>) {
        // The thread is gone, or ends.
        let _ = self.end.send(write);
        if timeout(LAST_WRITE, &mut self.ended).await.is_err() {
            tracing::warn!("the counters could not be written within {LAST_WRITE:?}");
        }
    }
}

struct SnapshotThread {
    shared: Arc<Shared>,
    /// When the counters were last written, or should have been.
    written: Timestamp,
    /// Whether the last write failed, which was logged.
    failed: bool,
}

impl SnapshotThread {
    fn run(mut self, asked: &Receiver<Option<LastSnapshot>>) {
        loop {
            match asked.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => self.write(None),
                Ok(Some(last)) => return self.write(Some(last)),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes the counters to the file of the present plan, if it has one: the last time, or once the interval is over.
    fn write(&mut self, last: Option<LastSnapshot>) {
        let waits = last.is_none();
        let plan = self.shared.plan.load();
        let Some(SnapshotSettings { file, interval }) = &plan.store.snapshot else { return };
        let now = SnapshotTime {
            at: self.shared.clock.now(),
            wall_clock: wall_clock::system().copy(),
            is_last: last.is_some_and(|last| last.is_complete),
        };
        if waits && now.at.since(self.written) < *interval {
            return;
        }
        self.written = now.at;
        let KeySecret::Process(secret) = self.shared.secret else { return };
        let rest = || {
            // The last one is waited for.
            if waits {
                std::thread::sleep(REST);
            }
        };
        let written = snapshot::write(file, &self.shared.store, secret, &now, rest);
        let (failed, file) = (written.is_err(), file.display());
        self.shared.metrics.wrote_snapshot(!failed);
        match written {
            Ok(counters) if self.failed => tracing::info!("{counters} counters are written to {file} again"),
            Ok(counters) => tracing::debug!("{counters} counters are written to {file}"),
            Err(error) if self.failed => tracing::debug!("the counters cannot be written to {file}: {error}"),
            Err(error) => {
                let interval = Duration::from_micros(interval.0);
                tracing::warn!(
                    "the counters cannot be written to {file}, which is tried again every {interval:?}: {error}"
                );
            }
        }
        self.failed = failed;
    }
}
