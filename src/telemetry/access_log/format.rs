//! The line of a record in the format of the log.

use super::line::{self, Record};
use super::output::OutputStyle;
use super::pretty;
use crate::plan::log::AccessLog;

/// Appends the record and a line feed; nothing if the log is off.
pub(super) fn append(batch: &mut Vec<u8>, record: &Record, form: &AccessLog, style: OutputStyle) {
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
