//! Usage as CSV (RFC 4180), for invoices and spreadsheets.
//!
//! A spreadsheet takes a field that begins with `=` for a formula, also within quotes, and a consumer may have chosen its
//! name. Such a name gets `'` in front, as do names that begin with `'` or `(`: without the first `'`, each is the name
//! again. Requests without a consumer have an empty name, and consumers without a row of their own [`OTHER`].

use std::fmt::Write as _;

use super::text;
use crate::store::usage::{RowConsumer, UsageRow, UsageSpan};

/// In place of a name. No name is written like that.
const OTHER: &str = "(other)";

/// The table, with its header.
pub(super) fn write(rows: &[UsageRow], span: UsageSpan) -> String {
    let (begin, end) = (text(span.begin), text(span.end));
    let mut table = String::from("consumer,units,requests,window_begin,window_end\r\n");
    for UsageRow { consumer, totals } in rows {
        match consumer {
            RowConsumer::Named(name) => field(&mut table, name),
            RowConsumer::Anonymous => {}
            RowConsumer::Other => table.push_str(OTHER),
        }
        // A string takes everything.
        let _ = write!(table, ",{},{},{begin},{end}\r\n", totals.units, totals.requests);
    }
    table
}

/// Writes a name: in quotes, unless all its characters are letters, digits, or `-`, `_`, `.`, `@`.
fn field(table: &mut String, name: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let escape = if name.starts_with(is_formula) { "'" } else { "" };
    if escape.is_empty() && !name.is_empty() && name.bytes().all(is_plain) {
        table.push_str(name);
        return;
    }
    table.push('"');
    table.push_str(escape);
    table.push_str(&name.replace('"', "\"\""));
    table.push('"');
}

/// Whether a name that begins so gets `'` in front. Spreadsheets read the wide forms as the narrow ones.
fn is_formula(first: char) -> bool {
    "=+-@\t\r\n'(＝＋－＠".contains(first)
}
