//! The file of consumers: CSV (RFC 4180) with a header line, comment lines that begin with `#`, and `${NAME}` for the
//! environment variable NAME in any value. It holds secrets: no message shows a line of it.
//!
//! Its rows are read strictly: after a misplaced quote, the next rows would be part of one value.

use std::hash::BuildHasher as _;

use csv::{Reader, ReaderBuilder, StringRecord};
use foldhash::HashMap;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use memchr::{memchr, memchr_iter, memmem};
use rustix::rand::{GetRandomFlags, getrandom};

use super::named_file::MAX_TABLE_BYTES;
use super::redact::is_variable_name;
use super::report::OtherLine;
use super::summary::counted;
use super::text::{self, Cursor, NotExpanded};
use super::value::ConfigValue;
use crate::route::consumers::{Consumers, KeyForm, KeyTextFault, encoded};

/// The maximum length of a name or a tier as backends get it.
const MAX_ENCODED: usize = 256;
/// More columns than anything could use.
const MAX_COLUMNS: usize = 64;
/// The maximum number of keys.
const MAX_KEYS: usize = 20_000_000;

/// The consumers of a file, and the number of each tier's keys.
pub(super) struct ConsumersFile {
    pub(super) consumers: Consumers,
    pub(super) tiers: Vec<(String, usize)>,
    /// A hash of the file and of the variables in it.
    pub(super) version: [u8; 32],
}

/// Reads the file that `value` names. `None` if it has faults.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<ConsumersFile> {
    let path = value.text()?;
    let bytes = value.file_at(&path, MAX_TABLE_BYTES)?;
    let errors_before = value.diagnostics().errors();
    let file = CsvFile { value, path: &path };
    let read = file.read(&bytes);
    (value.diagnostics().errors() == errors_before).then_some(read).flatten()
}

struct CsvFile<'f, 'a> {
    value: &'f ConfigValue<'a>,
    path: &'f Cursor<'a>,
}

/// The indices of the columns with a meaning.
struct Columns {
    key: usize,
    name: usize,
    tier: Option<usize>,
    /// The number of columns.
    count: usize,
}

impl CsvFile<'_, '_> {
    fn fault(&self, line: u64, message: impl Into<String>, help: impl Into<String>) {
        let other = OtherLine { file: self.path.as_str().to_owned(), line };
        self.value.diagnostics().fault_in(self.value.span(), other, message, help);
    }

    fn read(&self, bytes: &[u8]) -> Option<ConsumersFile> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let text = self.text(bytes)?;
        let mut csv = CsvRows::new(text);
        let mut record = StringRecord::new();
        let Some(header) = csv.read(&mut record) else {
            let help = "begin it with a header line: `key,name,tier`";
            self.fault(1, "the file of consumers is empty", help);
            return None;
        };
        if !header.is_sound {
            self.misplaced_quote(header.line);
            return None;
        }
        let columns = self.columns(&record, header.line)?;
        let names = record
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != columns.key)
            .map(|(_, name)| name.trim().to_owned());
        let after_key = |at: usize| if at > columns.key { at - 1 } else { at };
        let mut secret = [0; 16];
        if getrandom(&mut secret, GetRandomFlags::empty()).is_err() {
            self.fault(1, "the system has no random numbers", "look at `/dev/urandom`");
            return None;
        }
        let has_variables = memmem::find(bytes, b"${").is_some();
        // A variable may hold a digest.
        let digests = has_variables || KeyForm::may_have_digests(bytes);
        let (name, tier) = (after_key(columns.name), columns.tier.map(after_key));
        let mut consumers = Consumers::new(names.collect(), name, tier, digests, secret);
        // A row has a comma or a line feed after each value, a key and a name.
        let count = memchr_iter(b'\n', bytes).count().min(bytes.len() / (columns.count + 2)).min(MAX_KEYS);
        consumers.reserve(count, bytes.len());
        let mut rows = Rows::new(count);
        let errors_before = self.value.diagnostics().errors();
        let mut version = blake3::Hasher::new();
        version.update(bytes);
        while let Some(row) = csv.read(&mut record) {
            if !row.is_sound {
                self.misplaced_quote(row.line);
            } else if record.get(columns.key).is_some_and(|key| key.trim_start().starts_with('#')) {
                let help =
                    "begin the line with `#` to leave the key out; else give out a key that begins otherwise";
                self.fault(row.line, "this key begins with `#`, as a comment line does", help);
            } else if !has_variables || self.fill_in(&mut record, row.line, &mut version) {
                self.row(&record, row.line, &columns, &mut consumers, &mut rows);
            }
        }
        // Where all lines are faulty, their faults say enough.
        if rows.lines.is_empty() && self.value.diagnostics().errors() == errors_before {
            let other = OtherLine { file: self.path.as_str().to_owned(), line: 1 };
            let help = "add a line for each key, or let requests without one pass: `auth_optional = true`";
            self.value.diagnostics().warn_in(self.value.span(), other, "the file names no consumer", help);
        }
        let mut tiers: Vec<_> = rows.tiers.into_iter().collect();
        tiers.sort();
        let version = version.finalize().into();
        Some(ConsumersFile { consumers: consumers.finish(rows.names.len()), tiers, version })
    }

    fn text<'b>(&self, bytes: &'b [u8]) -> Option<&'b str> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let line = memchr_iter(b'\n', &bytes[..error.valid_up_to()]).count() + 1;
                self.fault(line as u64, "this line is not UTF-8", "save the file as UTF-8");
                return None;
            }
        };
        // A comment line ends with a line feed, so that it would go on to the end of the file.
        if text.contains("\r#") && !text.contains('\n') {
            let help = "save the file with a line feed at the end of each line";
            self.fault(1, "the lines of this file end with a carriage return alone", help);
            return None;
        }
        Some(text)
    }

    /// Fills the environment in, and adds what was filled in to the hash of the file. Returns whether all values are
    /// known.
    fn fill_in(&self, record: &mut StringRecord, line: u64, version: &mut blake3::Hasher) -> bool {
        if !record.iter().any(|value| value.contains("${")) {
            return true;
        }
        let diagnostics = self.value.diagnostics();
        let expanded: Result<Vec<_>, _> = record
            .iter()
            .map(|value| text::expand(value, diagnostics.environment, &mut Vec::new()))
            .collect();
        let name = match expanded {
            Ok(values) => {
                for value in &values {
                    version.update(&value.len().to_le_bytes()).update(value.as_bytes());
                }
                *record = values.into();
                return true;
            }
            Err(NotExpanded::Unset(name)) => name,
            Err(NotExpanded::Syntax(_)) => {
                let help = "write `${NAME}` for a variable, or `$${` for the characters `${`";
                self.fault(line, "`${` in this line begins no variable", help);
                return false;
            }
        };
        // Text in place of a name may be a secret.
        let which = match is_variable_name(name) {
            true => format!("the environment variable `{name}`"),
            false => "an environment variable that this line names".to_owned(),
        };
        if diagnostics.is_without_environment() {
            diagnostics.skip(self.value.span(), &format!("{which} is not set"));
        } else {
            self.fault(line, format!("{which} is not set"), "set it before tollgate starts: `export NAME=…`");
        }
        false
    }

    /// The next rows may be part of this one, so that their keys would be unknown.
    fn misplaced_quote(&self, line: u64) {
        let help =
            "put a value with quotes or commas in quotes, all of it, and write each quote within it twice";
        self.fault(line, "a quote begins or ends within a value, or is not closed", help);
    }

    fn columns(&self, header: &StringRecord, line: u64) -> Option<Columns> {
        let mut known: Vec<&str> = Vec::new();
        let mut is_sound = header.len() <= MAX_COLUMNS;
        if !is_sound {
            self.fault(line, "the header line names too many columns", format!("name at most {MAX_COLUMNS}"));
        }
        for name in header.iter().take(MAX_COLUMNS).map(str::trim) {
            if known.contains(&name) || name.is_empty() {
                let fault = if name.is_empty() { "has no name" } else { "has the name of another" };
                let message = format!("column {} of the header line {fault}", known.len() + 1);
                self.fault(line, message, "give each column a name of its own");
                is_sound = false;
            }
            known.push(name);
        }
        let at = |name: &str| header.iter().position(|known| known.trim() == name);
        let is_written_so = |name: &str| {
            let name = |known: &str| known.trim().trim_end_matches(['s', 'S']).eq_ignore_ascii_case(name);
            header.iter().any(name)
        };
        for required in ["key", "name"].into_iter().filter(|required| at(required).is_none()) {
            let message = format!("the header line names no column `{required}`");
            let help = match is_written_so(required) {
                true => format!("write `{required}`, in lower case"),
                false => "begin the file with a header line such as `key,name,tier`".to_owned(),
            };
            self.fault(line, message, help);
            is_sound = false;
        }
        let (key, name, tier) = (at("key")?, at("name")?, at("tier"));
        if tier.is_none() && is_written_so("tier") {
            let other = OtherLine { file: self.path.as_str().to_owned(), line };
            let message = "the header line names no column `tier`, but one that is spelled in another way";
            let help = "write `tier`: without a column of this name no consumer has a tier";
            self.value.diagnostics().warn_in(self.value.span(), other, message, help);
        }
        is_sound.then_some(Columns { key, name, tier, count: header.len() })
    }

    /// Adds a row, or reports its first fault.
    fn row(
        &self,
        record: &StringRecord,
        line: u64,
        columns: &Columns,
        consumers: &mut Consumers,
        rows: &mut Rows,
    ) {
        if record.len() != columns.count {
            let (values, names) = (counted(record.len(), "value"), counted(columns.count, "column"));
            let message = format!("this line has {values}, the header line names {names}");
            return self.fault(line, message, "write a value for each column; an empty one is none");
        }
        if rows.lines.len() >= MAX_KEYS {
            if rows.lines.len() == MAX_KEYS {
                self.fault(line, "the file has too many keys", format!("keep to {MAX_KEYS}"));
            }
            return;
        }
        let value = |column: usize| record.get(column).unwrap_or_default().trim();
        let (key, name, tier) = (value(columns.key), value(columns.name), columns.tier.map_or("", value));
        if name.is_empty() {
            return self.fault(line, "the name is empty", "name the consumer that the key belongs to");
        }
        for (what, text) in [("name", name), ("tier", tier)] {
            if !can_be_sent(text) {
                let help =
                    format!("use at most {MAX_ENCODED} bytes, percent-encoded, without control characters");
                return self.fault(line, format!("this {what} cannot be sent to a backend"), help);
            }
        }
        let key = match KeyForm::parse(key) {
            Ok(key) => key,
            Err(fault) => return self.fault(line, fault.to_string(), help(fault)),
        };
        let line_of = |row: usize| rows.lines.get(row).copied().unwrap_or_default();
        let first = rows.first_of(name, consumers);
        if let Some(first) = first
            && let Some(other) = consumers.at(first)
            && other.tier().unwrap_or_default() != tier
        {
            let message = format!("this consumer has another tier in line {}", line_of(first));
            return self.fault(line, message, "write the same tier for all keys of a consumer");
        }
        let values = (0..columns.count).filter(|at| *at != columns.key).map(value);
        if let Err(row) = consumers.push(key, values) {
            let message = format!("this key stands in line {} too", line_of(row));
            return self.fault(line, message, "a key names one consumer: leave one of the two out");
        }
        if first.is_none() {
            rows.add_name(name, consumers);
        }
        rows.lines.push(line);
        if !tier.is_empty() {
            match rows.tiers.get_mut(tier) {
                Some(count) => *count += 1,
                None => _ = rows.tiers.insert(tier.to_owned(), 1),
            }
        }
    }
}

fn help(fault: KeyTextFault) -> &'static str {
    match fault {
        KeyTextFault::NotSent => "write the key, or `sha256:` and its hash",
        KeyTextFault::Short => "give out a longer one, at random: `openssl rand -hex 20` makes a good key",
        KeyTextFault::Digest => "write 64 hexadecimal digits after it: `printf %s KEY | sha256sum`",
        KeyTextFault::OtherHash => {
            "write the key itself, or `sha256:` and the digits that `printf %s KEY | sha256sum` prints"
        }
    }
}

/// What is known of the rows so far.
struct Rows {
    /// The line of each row.
    lines: Vec<u64>,
    /// The first row of each name, by the name.
    names: HashTable<u32>,
    hasher: RandomState,
    /// The number of keys of each tier.
    tiers: HashMap<String, usize>,
}

impl Rows {
    /// With room for this many.
    fn new(count: usize) -> Self {
        Self {
            lines: Vec::with_capacity(count),
            names: HashTable::with_capacity(count),
            hasher: RandomState::default(),
            tiers: HashMap::default(),
        }
    }

    /// The first row of this name, if it has one.
    fn first_of(&self, name: &str, consumers: &Consumers) -> Option<usize> {
        let is_it = |row: &u32| name_of(*row, consumers) == name;
        self.names.find(self.hasher.hash_one(name), is_it).map(|row| *row as usize)
    }

    /// Adds the name of the next row, which is the last of `consumers`.
    fn add_name(&mut self, name: &str, consumers: &Consumers) {
        // There are far fewer rows than 2^32.
        let row = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        let hasher = &self.hasher;
        let hash_of = |row: &u32| hasher.hash_one(name_of(*row, consumers));
        self.names.insert_unique(hasher.hash_one(name), row, hash_of);
    }
}

fn name_of(row: u32, consumers: &Consumers) -> &str {
    consumers.at(row as usize).map_or("", |consumer| consumer.name())
}

/// Whether backends can get this as a name or a tier.
fn can_be_sent(text: &str) -> bool {
    encoded(text).len() <= MAX_ENCODED && !has_control(text)
}

fn has_control(text: &str) -> bool {
    if text.is_ascii() {
        text.bytes().any(|byte| byte.is_ascii_control())
    } else {
        text.chars().any(char::is_control)
    }
}

/// The rows of a text.
struct CsvRows<'t> {
    text: &'t str,
    reader: Reader<&'t [u8]>,
    /// The start of the text that was not read yet, and its line.
    start: usize,
    line: u64,
}

/// A row that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPlace {
    /// Its first line, counted from 1.
    line: u64,
    /// Whether all quotes enclose whole values.
    is_sound: bool,
}

impl<'t> CsvRows<'t> {
    fn new(text: &'t str) -> Self {
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .from_reader(text.as_bytes());
        Self { text, reader, start: 0, line: 1 }
    }

    /// Reads the values of the next row that is not empty.
    fn read(&mut self, record: &mut StringRecord) -> Option<RowPlace> {
        // Memory can be read, the text is UTF-8, and rows may differ in length: nothing fails.
        if !self.reader.read_record(record).unwrap_or(false) {
            return None;
        }
        let end = usize::try_from(self.reader.position().byte()).unwrap_or(usize::MAX);
        let read = self.text.get(self.start..end).unwrap_or_default();
        let row = behind_comments(read);
        // The reader takes a comment without a line feed at the end of the file for a row.
        if row.is_empty() {
            return None;
        }
        let line = self.line + lines_in(&read[..read.len() - row.len()]);
        (self.start, self.line) = (end, line + lines_in(row));
        let row = row.trim_end_matches(['\r', '\n']).as_bytes();
        Some(RowPlace { line, is_sound: memchr(b'"', row).is_none() || is_well_quoted(row) })
    }
}

/// The row after the line feed of the row before, empty lines and comment lines.
fn behind_comments(mut read: &str) -> &str {
    loop {
        read = read.trim_start_matches(['\r', '\n']);
        match read.strip_prefix('#').map(|comment| memchr(b'\n', comment.as_bytes())) {
            Some(Some(end)) => read = read.get(end + 2..).unwrap_or_default(),
            Some(None) => return "",
            None => return read,
        }
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

/// The text after the closing quote; `None` if there is none.
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
