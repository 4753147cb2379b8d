//! Rows of CSV (RFC 4180), read strictly: behind a misplaced quote, the next rows would be part of one value.

use csv::{Reader, ReaderBuilder, StringRecord};
use memchr::{memchr, memchr_iter};

/// The rows of a text.
pub(super) struct CsvRows<'t> {
    text: &'t str,
    reader: Reader<&'t [u8]>,
    /// The start of the text that was not read yet, and its line.
    start: usize,
    line: u64,
}

/// A row that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlace {
    /// Its first line, counted from 1.
    pub(super) line: u64,
    /// Whether all quotes enclose whole values.
    pub(super) is_sound: bool,
}

impl<'t> CsvRows<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        Self { text, reader, start: 0, line: 1 }
    }

    /// Reads the values of the next row that is not empty.
    pub(super) fn read(&mut self, record: &mut StringRecord) -> Option<RowPlace> {
        // Memory can be read, the text is UTF-8, and rows may differ in length: nothing fails.
        if !self.reader.read_record(record).unwrap_or(false) {
            return None;
        }
        let end = usize::try_from(self.reader.position().byte()).unwrap_or(usize::MAX);
        let read = self.text.get(self.start..end).unwrap_or_default();
        // The line feed of the row before, and empty lines.
        let row = read.trim_start_matches(['\r', '\n']);
        let line = self.line + lines_in(&read[..read.len() - row.len()]);
        (self.start, self.line) = (end, line + lines_in(row));
        let row = row.trim_end_matches(['\r', '\n']).as_bytes();
        Some(RowPlace { line, is_sound: memchr(b'"', row).is_none() || is_well_quoted(row) })
    }
}

fn lines_in(text: &str) -> u64 {
    memchr_iter(b'\n', text.as_bytes()).count() as u64
}

/// Whether each value of a row is in quotes as a whole, or has none.
fn is_well_quoted(mut row: &[u8]) -> bool {
    loop {
        let rest = match row.strip_prefix(b"\"") {
            Some(quoted) => behind_quotes(quoted),
            None => {
                let (value, rest) = row.split_at(memchr(b',', row).unwrap_or(row.len()));
                (!value.contains(&b'"')).then_some(rest)
            }
        };
        match rest.map(<[u8]>::split_first) {
            Some(None) => return true,
            Some(Some((b',', next))) => row = next,
            Some(Some(_)) | None => return false,
        }
    }
}

/// The text behind the closing quote; `None` if there is none.
fn behind_quotes(mut quoted: &[u8]) -> Option<&[u8]> {
    loop {
        let rest = quoted.get(memchr(b'"', quoted)? + 1..)?;
        match rest.strip_prefix(b"\"") {
            Some(next) => quoted = next,
            None => return Some(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(u64, bool, Vec<String>)> {
        let (mut rows, mut record) = (CsvRows::new(text), StringRecord::new());
        let mut read = Vec::new();
        while let Some(RowPlace { line, is_sound }) = rows.read(&mut record) {
            read.push((line, is_sound, record.iter().map(str::to_owned).collect()));
        }
        read
    }

    #[test]
    fn a_row_has_the_number_of_its_first_line() {
        let lines = |text: &str| rows(text).iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(lines("a,b\nc,d\n"), [1, 2]);
        assert_eq!(lines("a,b\r\nc,d\r\n\r\n\r\ne,f"), [1, 2, 5]);
        assert_eq!(lines("\n\na,b\n\nc,\"d\ne\n\"\nf,g"), [3, 5, 8]);
        assert_eq!(lines(""), [0_u64; 0]);
    }

    #[test]
    fn quotes_enclose_whole_values() {
        for sound in ["a,b", "\"a\",\"b\"", "\"a\"\"b\",\"\"", "\"a,b\nc\",", ",,", "\"\"\"\"", "é,\"é\"\r\n"]
        {
            assert!(rows(sound)[0].1, "{sound}");
        }
        for broken in
            ["a\"b,c", "\"a", "\"a\"b,c", "a,\"b\n", " \"a\",b", "\"a\" ,b", "\"", "a,\"b\"\"", "\"a\"\""]
        {
            assert!(!rows(broken)[0].1, "{broken}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_swallows_no_row_silently() {
        let read = rows("key,name,note\nk1,a,\"oops\nk2,b,\"fine\"\nk3,c,x\n");
        assert!(read.iter().any(|row| !row.1), "{read:?}");
    }
}
