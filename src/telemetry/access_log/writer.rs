//! The thread that writes the access log, and the line of a record in the format of the log.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::line;
use super::output::{LostRecords, Output, OutputStyle};
use super::record::Record;
use super::{Change, LogQueueState, Message, QUEUE, pretty};
use crate::plan::log::AccessLog;

/// How long records are collected before they are written together. Meanwhile the thread does not wait on the queue, so
/// queueing a record wakes no thread; it is also the longest delay of a line.
const GATHER: Duration = Duration::from_millis(10);

/// Writes until the queue's other end is closed, or until the queue is empty once the log is closing.
pub(super) fn run(queue: &Receiver<Message>, state: &LogQueueState, form: AccessLog, output: Output) {
    let mut writer = Writer { form, output, reported: false, reported_dropped: 0 };
    let mut batch = Vec::new();
    loop {
        // Read before the queue is emptied: records sent before closing are then written below.
        let closing = state.closing.load(Ordering::Acquire);
        let first = if closing {
            None
        } else {
            let Ok(first) = queue.recv() else { return };
            std::thread::sleep(GATHER);
            Some(first)
        };
        for message in first.into_iter().chain(queue.try_iter().take(QUEUE)) {
            match message {
                Message::Record(record) => {
                    append(&mut batch, &record, &writer.form, writer.output.style());
                }
                Message::Change(change) => {
                    writer.write(&mut batch, state);
                    writer.adopt(*change, state);
                }
                Message::Wake => {}
            }
        }
        writer.write(&mut batch, state);
        if closing {
            return;
        }
        let overdue = state.overdue.lock().take();
        if let Some(change) = overdue {
            writer.adopt(change, state);
        }
    }
}

/// The present format and output.
struct Writer {
    form: AccessLog,
    output: Output,
    /// A loss of lines by this output was logged.
    reported: bool,
    /// The number of dropped records when this output was opened.
    reported_dropped: u64,
}

impl Writer {
    /// Changes format or output. Lines stay whole: each goes to one output.
    fn adopt(&mut self, Change { form, output }: Change, state: &LogQueueState) {
        if let Some(form) = form {
            self.form = form;
        }
        if let Some(output) = output {
            self.output = output;
            (self.reported, self.reported_dropped) = (false, state.dropped.load(Ordering::Relaxed));
            tracing::info!("the access log is now written to {}", self.output.name());
        }
    }

    /// Writes and removes all lines of `batch`; lines that cannot be written are dropped and counted.
    fn write(&mut self, batch: &mut Vec<u8>, state: &LogQueueState) {
        if let Err(LostRecords { lines, error }) = self.output.write(batch) {
            // The log has the reason before the metric has the count.
            self.tell(&format!("the access log cannot be written to {}: {error}", self.output.name()));
            state.drop_records(lines);
        }
        if state.dropped.load(Ordering::Relaxed) > self.reported_dropped {
            self.tell("the output of the access log is too slow");
        }
        batch.clear();
    }

    /// Logs once that lines are lost; the metric counts them.
    fn tell(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.reported, true) {
            tracing::warn!("{reason}; lines are dropped and counted in `tollgate_access_log_dropped_total`");
        }
    }
}

/// Appends the record and a line feed; nothing if the log is off.
fn append(batch: &mut Vec<u8>, record: &Record, form: &AccessLog, style: OutputStyle) {
    let start = batch.len();
    let written = match form {
        AccessLog::Off => return,
        AccessLog::Auto(fields) if style.terminal => pretty::write(batch, record, fields, style.colour),
        AccessLog::Pretty(fields) => pretty::write(batch, record, fields, style.colour),
        AccessLog::Json(fields) | AccessLog::Auto(fields) => line::json(batch, record, fields),
        AccessLog::Combined => line::combined(batch, record),
    };
    match written {
        Ok(()) => batch.push(b'\n'),
        // Writing a record to memory cannot fail; if it did, half a line would be worse than none.
        Err(_) => batch.truncate(start),
    }
}
