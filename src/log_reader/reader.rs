//! Returns the requests of several logs in the order of their times.

use std::fmt::{self, Debug, Formatter};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use super::decoder::{LeftOut, LineDecoder};
use super::fields::KnownFields;
use super::held::{HeldLines, MAX_HELD};
use super::input::OpenLog;
use super::line_times::TimeStep;
use super::lines::LineEvent;
use super::options::{LogCounts, LogOptions, LogPhase, LogProgress, LogWatch};
use super::problems::{LogFault, LogProblems, ProblemKind};
use super::request::{LinePlace, LoggedRequest};
use super::spill::LineKey;
use crate::limit::units::{Micros, Timestamp};

/// Lines that are taken from memory or from a temporary file between two calls of `watch`.
const WATCH_LINES: u64 = 1_024;

/// Reads the requests of access logs in the order of their arrival; ties in the order of files and lines.
pub struct LogReader<'w> {
    logs: Vec<OpenLog>,
    /// The logs that have lines left.
    active: Vec<usize>,
    held: HeldLines,
    decoder: LineDecoder,
    reorder: Micros,
    /// The text of the line that was taken last.
    text: Vec<u8>,
    phase: LogPhase,
    lines: u64,
    /// Lines taken from those that are held.
    taken: u64,
    watch: LogWatch<'w>,
    is_interrupted: bool,
}

/// Reads one line by itself; the inputs of the options do not count.
///
/// # Errors
///
/// The line has no request, or is outside of the window of the options (`None`).
pub fn read_line(line: &[u8], options: &LogOptions) -> Result<LoggedRequest, Option<ProblemKind>> {
    let mut decoder = LineDecoder::new(options);
    let dated = decoder.date(line, &mut None).map_err(|left_out| match left_out {
        LeftOut::Problem(kind) => Some(kind),
        LeftOut::Empty => Some(ProblemKind::NotReadable),
        LeftOut::Outside(_) => None,
    })?;
    let key = LineKey { time: dated.time, place: LinePlace { file: 0, line: 1 } };
    match decoder.decode(line, key, dated.format) {
        true => Ok(decoder.request),
        false => Err(decoder.problems.iter().map(|(kind, ..)| kind).next()),
    }
}

impl<'w> LogReader<'w> {
    /// Opens the logs and reads the times of files. `watch` is called every few hundred kilobytes, here and while
    /// requests are read; `Break` ends reading.
    ///
    /// # Errors
    ///
    /// A file is missing, is a directory or may not be read.
    pub fn open(
        options: LogOptions,
        watch: impl FnMut(LogProgress) -> ControlFlow<()> + 'w,
    ) -> Result<Self, LogFault> {
        Self::open_bounded(options, MAX_HELD, watch)
    }

    /// As [`Self::open`], with this many bytes for lines that wait for earlier ones; more are sorted in a temporary file.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`].
    pub fn open_bounded(
        options: LogOptions,
        max_held: usize,
        watch: impl FnMut(LogProgress) -> ControlFlow<()> + 'w,
    ) -> Result<Self, LogFault> {
        let decoder = LineDecoder::new(&options);
        let logs = options.inputs.into_iter().map(OpenLog::new).collect::<Result<Vec<_>, _>>()?;
        let mut reader = Self {
            active: (0..logs.len()).collect(),
            logs,
            held: HeldLines::new(max_held),
            decoder,
            reorder: options.reorder,
            text: Vec::new(),
            phase: LogPhase::Times,
            lines: 0,
            taken: 0,
            watch: Box::new(watch),
            is_interrupted: false,
        };
        for index in 0..reader.logs.len() {
            reader.read_times(index)?;
        }
        reader.logs.iter_mut().for_each(OpenLog::rewind);
        (reader.phase, reader.lines) = (LogPhase::Requests, 0);
        Ok(reader)
    }

    /// The next request. `None`: there is none, or `watch` ended reading and the lines that were held are returned.
    #[expect(
        clippy::should_implement_trait,
        reason = "the request is lent, so that its memory is used again"
    )]
    pub fn next(&mut self) -> Option<&LoggedRequest> {
        loop {
            let to_come = if self.is_interrupted { None } else { self.least_to_come() };
            let is_next = |key: LineKey| {
                to_come.is_none_or(|(time, index)| (key.time, key.place.file as usize) <= (time, index))
            };
            match (self.held.peek().is_some_and(is_next), to_come) {
                (true, _) => {
                    if self.take_held() {
                        return Some(&self.decoder.request);
                    }
                }
                (false, Some((_, index))) => self.read_line(index),
                (false, None) => return None,
            }
        }
    }

    /// What could not be read so far.
    pub const fn problems(&self) -> &LogProblems {
        &self.decoder.problems
    }

    /// Which fields the logs have had so far.
    pub const fn known(&self) -> &KnownFields {
        &self.decoder.known
    }

    /// Lines and requests so far.
    pub const fn counts(&self) -> LogCounts {
        self.decoder.counts
    }

    /// Whether `watch` ended reading.
    pub const fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// How far it is.
    pub fn progress(&self) -> LogProgress {
        LogProgress {
            phase: self.phase,
            bytes_read: self.logs.iter().map(OpenLog::bytes_read).sum(),
            bytes_total: self.logs.iter().map(OpenLog::length).sum(),
            lines: self.lines,
        }
    }

    fn call_watch(&mut self) {
        let progress = self.progress();
        if (self.watch)(progress).is_break() {
            self.is_interrupted = true;
        }
    }

    /// The first pass of a file.
    fn read_times(&mut self, index: usize) -> Result<(), LogFault> {
        let Some(log) = self.logs.get_mut(index).filter(|log| log.length().is_some()) else { return Ok(()) };
        let name = self.decoder.name(index).to_owned();
        let mut lines = log.open_lines().map_err(|fault| {
            LogFault::new(format!("cannot open `{name}`: {fault}"), "check the path and its permissions")
        })?;
        while !self.is_interrupted {
            let Some(log) = self.logs.get_mut(index) else { return Ok(()) };
            let is_filled = match lines.next() {
                LineEvent::Line(range) => {
                    self.lines += 1;
                    if let Ok(dated) = self.decoder.date(lines.bytes(range), &mut log.format) {
                        log.least.note(lines.line(), dated.time);
                    }
                    false
                }
                LineEvent::TooLong(_) | LineEvent::NoEnd(_) | LineEvent::Pending => true,
                // The second pass counts the fault.
                LineEvent::Fault(_) | LineEvent::End => {
                    log.least.finish();
                    return Ok(());
                }
            };
            if is_filled {
                self.call_watch();
            }
        }
        Ok(())
    }

    /// The least time that can still come, and the log from which it comes; of several, the first.
    fn least_to_come(&mut self) -> Option<(Timestamp, usize)> {
        let mut least = None;
        let (logs, reorder) = (&self.logs, self.reorder);
        self.active.retain(|&index| {
            let to_come = logs.get(index).and_then(|log| log.least_to_come(reorder));
            if let Some(time) = to_come
                && least.is_none_or(|other| (time, index) < other)
            {
                least = Some((time, index));
            }
            to_come.is_some()
        });
        least
    }

    /// Takes the first of the held lines. Returns whether it has a request.
    fn take_held(&mut self) -> bool {
        self.taken += 1;
        if self.taken.is_multiple_of(WATCH_LINES) {
            self.call_watch();
        }
        match self.held.pop(&mut self.text) {
            Ok(Some((key, format))) => self.decoder.decode(&self.text, key, format),
            Ok(None) => false,
            Err(fault) => {
                self.note_fault(ProblemKind::TemporaryFile, LinePlace::default(), &fault);
                false
            }
        }
    }

    /// Reads the next line of a log.
    fn read_line(&mut self, index: usize) {
        let Some(log) = self.logs.get_mut(index) else { return };
        let mut place = LinePlace { file: u32::try_from(index).unwrap_or(u32::MAX), line: 0 };
        let mut lines = match log.take_lines() {
            Ok(lines) => lines,
            Err(fault) => return self.end_log(place, Some(&fault)),
        };
        let event = lines.next();
        place.line = lines.line();
        match event {
            LineEvent::Line(range) => self.hold(index, place, lines.bytes(range)),
            LineEvent::TooLong(range) => self.leave_out(ProblemKind::TooLong, place, lines.bytes(range)),
            LineEvent::NoEnd(range) => self.leave_out(ProblemKind::NoEnd, place, lines.bytes(range)),
            LineEvent::Pending => self.call_watch(),
            LineEvent::Fault(fault) => return self.end_log(place, Some(&fault)),
            LineEvent::End => return self.end_log(place, None),
        }
        if let Some(log) = self.logs.get_mut(index) {
            log.put_back(lines);
        }
    }

    fn leave_out(&mut self, kind: ProblemKind, place: LinePlace, text: &[u8]) {
        self.lines += 1;
        self.decoder.counts.lines += 1;
        self.decoder.note(kind, place, text);
        self.call_watch();
    }

    fn end_log(&mut self, place: LinePlace, fault: Option<&io::Error>) {
        if let Some(log) = self.logs.get_mut(place.file as usize) {
            log.end();
        }
        if let Some(fault) = fault {
            let kind = match fault.kind() {
                ErrorKind::UnexpectedEof => ProblemKind::EndsEarly,
                ErrorKind::InvalidData | ErrorKind::InvalidInput => ProblemKind::Damaged,
                _ => ProblemKind::ReadError,
            };
            self.note_fault(kind, place, fault);
        }
    }

    /// Holds a line until nothing earlier can come.
    fn hold(&mut self, index: usize, place: LinePlace, line: &[u8]) {
        self.lines += 1;
        let Some(log) = self.logs.get_mut(index) else { return };
        let decoder = &mut self.decoder;
        let result = decoder.date(line, &mut log.format);
        decoder.counts.lines += u64::from(result != Err(LeftOut::Empty));
        let dated = match result {
            Ok(dated) => dated,
            Err(LeftOut::Empty) => return,
            Err(LeftOut::Outside(time)) => return decoder.counts.leave_out(time),
            Err(LeftOut::Problem(kind)) => return decoder.note(kind, place, line),
        };
        decoder.counts.other_format += u64::from(log.format.is_some_and(|format| format != dated.format));
        let step = log.latest.note(dated.time, || decoder.end(line, dated));
        decoder.counts.out_of_order += u64::from(matches!(step, TimeStep::Earlier | TimeStep::JumpBack));
        if matches!(step, TimeStep::JumpBack | TimeStep::AfterOutlier) {
            decoder.note(ProblemKind::ClockJump, place, line);
        }
        if let Err(fault) = self.held.push(LineKey { time: dated.time, place }, dated.format, line) {
            self.note_fault(ProblemKind::TemporaryFile, place, &fault);
        }
    }

    fn note_fault(&mut self, kind: ProblemKind, place: LinePlace, fault: &io::Error) {
        self.decoder.note(kind, place, fault.to_string().as_bytes());
    }
}

impl Debug for LogReader<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogReader").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
