//! The format for a reader at a terminal: one aligned line a request.
//!
//! `12:00:01.123 429    0.4 ms 203.0.113.7     GET     shop.example/search?q=x limited by per-client`

use std::io::{self, Write as _};
use std::sync::LazyLock;

use super::record::Record;
use super::timestamps::utc;
use super::values::{FieldValue, milliseconds};
use crate::limit::units::Micros;
use crate::plan::log::{LogColumn, LogField, LogFields};
use crate::telemetry::metrics::DecisionLabel;
use crate::telemetry::terminal::safe_text;

/// The maximum number of characters of one field; the rest is cut off.
const MAX_CHARS: usize = 200;

/// The fields of files that name none.
static DEFAULTS: LazyLock<[LogFields; 4]> = LazyLock::new(LogFields::defaults);

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const CYAN: &str = "\u{1b}[36m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Writes the record without a line feed. Fields of the file that the line does not show anyway follow as `name=value`.
pub(super) fn write(
    batch: &mut Vec<u8>,
    record: &Record,
    fields: &LogFields,
    colour: bool,
) -> io::Result<()> {
    let paint = |code: &'static str| if colour { code } else { "" };
    let (dim, plain) = (paint(DIM), paint(PLAIN));
    let of_status = paint(match record.response.status.as_u16() {
        500.. => RED,
        400.. => YELLOW,
        300.. => CYAN,
        _ => GREEN,
    });
    let (hour, minute, second, millisecond) = utc(record.time).time().as_hms_milli();
    write!(batch, "{dim}{hour:02}:{minute:02}:{second:02}.{millisecond:03}{plain} ")?;
    write!(batch, "{of_status}{}{plain} {:>9} ", record.response.status.as_u16(), duration(record.duration))?;
    // Wide enough for IPv4; most methods are at most 7 letters long.
    write!(batch, "{:<15} {:<7} ", record.client.to_string(), safe(record.request.method.as_str()))?;
    write!(batch, "{}{}", safe(&record.request.host), safe(&record.request.path))?;
    if let Some(reason) = reason(record) {
        write!(batch, " {}{}{plain}", paint(YELLOW), safe(&reason))?;
    }
    let fields_are_default = DEFAULTS.contains(fields);
    for column in fields.columns().iter().filter(|column| is_extra(column, fields_are_default)) {
        let value = FieldValue::of_column(column, record);
        if !matches!(value, FieldValue::Absent) {
            write!(batch, " {dim}{}={plain}{}", column.label(), quoted(&value.to_string()))?;
        }
    }
    Ok(())
}

/// Why the response is not an ordinary one of the backend.
fn reason(record: &Record) -> Option<String> {
    let limit = &record.decision.limit;
    let decision = match record.decision.label {
        None | Some(DecisionLabel::Allowed) => None,
        Some(decision) => Some(format!("{} by {limit}", decision.as_str())),
    };
    match (decision, record.response.error) {
        (Some(decision), Some(error)) => Some(format!("{decision}, {error}")),
        (Some(decision), None) => Some(decision),
        (None, error) => error.map(str::to_owned),
    }
}

/// Whether the field follows as `name=value`. Of the default fields only the consumer, the settled cost and limits in
/// shadow do: the line would be too long.
fn is_extra(column: &LogColumn, fields_are_default: bool) -> bool {
    use LogField as F;
    match column {
        LogColumn::Field(field) if fields_are_default => {
            matches!(field, F::Consumer | F::Reserved | F::Settled | F::Settlement | F::Shadow)
        }
        LogColumn::Field(
            F::Time | F::Method | F::Host | F::Path | F::Status | F::DurationMs | F::Client | F::Limit,
        ) => false,
        LogColumn::Field(F::Decision | F::Error) => false,
        _ => true,
    }
}

/// `0.4 ms`, `12 ms`, `3.2 s`.
fn duration(span: Micros) -> String {
    let milliseconds = milliseconds(span);
    match span.0 {
        0..10_000 => format!("{milliseconds:.1} ms"),
        10_000..10_000_000 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1_000.0),
    }
}

/// The text without characters that control a terminal or reorder its line, cut after [`MAX_CHARS`] characters.
fn safe(text: &str) -> String {
    safe_text(text, MAX_CHARS)
}

/// The value, in quotes unless it is one plain word.
fn quoted(value: &str) -> String {
    let is_word = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '='));
    if is_word {
        safe(value)
    } else {
        format!("\"{}\"", safe(&value.replace('\\', "\\\\").replace('"', "\\\"")))
    }
}
