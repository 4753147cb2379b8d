//! The thread that writes the access log.

use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::{Message, QUEUE, State, line};

/// How long records gather before they are written together. In between nobody waits on the queue, so handing a
/// record over wakes no thread; it is also the longest that a line is held back.
const GATHER: Duration = Duration::from_millis(10);

/// Writes until the queue's other end is gone, or until it is empty once the log is closing.
pub(super) fn run(queue: &Receiver<Message>, state: &State, output: impl Write) {
    let mut output = Lines { output, torn: false, told: false };
    let mut batch = Vec::new();
    loop {
        // Read before the queue is emptied: what was sent before closing is then written below.
        let closing = state.closing.load(Ordering::Acquire);
        if !closing {
            let Ok(first) = queue.recv() else { return };
            append(&mut batch, first, state);
            std::thread::sleep(GATHER);
        }
        for message in queue.try_iter().take(QUEUE) {
            append(&mut batch, message, state);
        }
        output.write(&batch, state);
        if closing {
            return;
        }
        batch.clear();
    }
}

fn append(batch: &mut Vec<u8>, message: Message, state: &State) {
    if let Message::Record(record) = message {
        line::append(batch, &record, state.mode());
    }
}

/// An output that takes whole lines.
struct Lines<W> {
    output: W,
    /// The last write ended inside a line.
    torn: bool,
    /// The program log was told of lost lines.
    told: bool,
}

impl<W: Write> Lines<W> {
    /// Writes all lines of `batch`; those that the output does not take are dropped and counted.
    fn write(&mut self, batch: &[u8], state: &State) {
        if self.torn && self.write_all(b"\n").is_ok() {
            self.torn = false;
        }
        if let Err((written, error)) = self.write_all(batch) {
            self.torn |= written.checked_sub(1).is_some_and(|last| batch[last] != b'\n');
            let lost = batch[written..].iter().filter(|byte| **byte == b'\n').count();
            state.drop_records(u64::try_from(lost).unwrap_or(u64::MAX));
            self.tell(&format!("the access log cannot be written: {error}"));
        }
        if state.dropped.load(Ordering::Relaxed) > 0 {
            self.tell("the output of the access log is too slow");
        }
    }

    /// As [`Write::write_all`], then flushed; an error comes with the number of bytes that were written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, std::io::Error)> {
        let mut written = 0;
        while written < bytes.len() {
            match self.output.write(&bytes[written..]) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        self.output.flush().map_err(|error| (written, error))
    }

    /// Says once that lines are lost; the metric counts them.
    fn tell(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!("{reason}; lines are dropped and counted in `tollgate_access_log_dropped_total`");
        }
    }
}
