//! One of the logs that a reader merges.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::format::LineFormat;
use super::line_times::{LatestTime, LeastTimes};
use super::options::LogInput;
use super::problems::LogFault;
use super::source::{self, InputKind};
use super::whole_lines::WholeLines;
use crate::limit::units::{Micros, Timestamp};

/// A log and how far it has been read.
pub(super) struct OpenLog {
    input: LogInput,
    kind: InputKind,
    /// Of a file, after the first pass.
    pub(super) least: LeastTimes,
    /// The format of its first readable line.
    pub(super) format: Option<LineFormat>,
    pub(super) latest: LatestTime,
    lines: Option<WholeLines>,
    has_ended: bool,
    /// Bytes read of it in this phase.
    read: Arc<AtomicU64>,
}

impl OpenLog {
    /// # Errors
    ///
    /// There is no such file, or it is a directory.
    pub(super) fn new(input: LogInput) -> Result<Self, LogFault> {
        let kind = InputKind::of(&input)?;
        Ok(Self {
            input,
            kind,
            least: LeastTimes::default(),
            format: None,
            latest: LatestTime::default(),
            lines: None,
            has_ended: false,
            read: Arc::default(),
        })
    }

    /// Its length in bytes; `None`: a stream.
    pub(super) const fn length(&self) -> Option<u64> {
        self.kind.length
    }

    /// Bytes read in this phase.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Its lines, from the first one on.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub(super) fn open_lines(&self) -> io::Result<WholeLines> {
        self.read.store(0, Ordering::Relaxed);
        source::open(&self.input, self.kind, Arc::clone(&self.read)).map(WholeLines::new)
    }

    /// Prepares the second pass.
    pub(super) fn rewind(&mut self) {
        self.read.store(0, Ordering::Relaxed);
        self.format = None;
        self.latest = LatestTime::default();
    }

    /// Takes the lines of the second pass, which are opened when they are needed. [`Self::put_back`] follows.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub(super) fn take_lines(&mut self) -> io::Result<WholeLines> {
        match self.lines.take() {
            Some(lines) => Ok(lines),
            None => self.open_lines(),
        }
    }

    /// Puts the lines back.
    pub(super) fn put_back(&mut self, lines: WholeLines) {
        self.lines = Some(lines);
    }

    /// Ends it, and frees its buffers.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.lines = None;
    }

    /// The least time that can still come, as far as it is known; `None`: it has ended.
    pub(super) fn least_to_come(&self, reorder: Micros) -> Option<Timestamp> {
        if self.has_ended {
            return None;
        }
        if self.kind.length.is_none() {
            let latest = self.latest.latest().unwrap_or_default();
            return Some(Timestamp(latest.0.saturating_sub(reorder.0)));
        }
        Some(self.least.after(self.lines.as_ref().map_or(0, WholeLines::line)))
    }
}
