//! The line of text of a record. No bytes of a client can end the line or the field.

use std::io::{self, Write};

use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use super::record::Record;
use super::timestamps::common_time;
use super::values::{FieldValue, protocol};
use crate::plan::log::LogFields;

/// All chosen fields are on every line: `null` if unknown or not applicable.
pub(super) fn json(batch: &mut Vec<u8>, record: &Record, fields: &LogFields) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(batch, Plain);
    let mut line = serializer.serialize_map(None)?;
    for column in fields.columns() {
        line.serialize_entry(column.label(), &FieldValue::of_column(column, record))?;
    }
    Ok(line.end()?)
}

/// Compact JSON without any control character: serde's own format leaves DEL, C1 and Unicode's line separators
/// unescaped, which some readers take for line ends and some terminals for commands.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) =
            rest.find(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}'))
        {
            let (clean, tail) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, clean)?;
            let mut chars = tail.chars();
            if let Some(char) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(char))?;
            }
            rest = chars.as_str();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// Apache's combined format: `client - - [time] "request" status bytes "referer" "user-agent"`.
pub(super) fn combined(batch: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    write!(batch, "{} - - [{}] \"", record.client, common_time(record.time))?;
    escape(batch, record.request.method.as_str().as_bytes());
    batch.push(b' ');
    escape(batch, record.request.path.as_bytes());
    write!(
        batch,
        " {}\" {} {} \"",
        protocol(record.request.version),
        record.response.status.as_u16(),
        record.response.bytes_out
    )?;
    escape(batch, or_dash(&record.request.referer));
    batch.extend_from_slice(b"\" \"");
    escape(batch, or_dash(&record.request.user_agent));
    batch.push(b'"');
    Ok(())
}

fn or_dash(value: &[u8]) -> &[u8] {
    if value.is_empty() { b"-" } else { value }
}

/// As Apache does: quotes and backslashes are escaped by a backslash, everything but printable ASCII as `\xHH`.
fn escape(batch: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => batch.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => batch.push(byte),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
                batch.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
            }
        }
    }
}
