//! Finds values of JSON texts (RFC 8259) by their pointers, while the texts stream past.
//!
//! A text may be a stream of documents: several documents in a row, such as a document a line, or a list of documents. A
//! pointer whose first token is not an index leads into each element of a list that is the whole text, as into a document.
//! In such a stream a document counts when it is complete.
//!
//! The state is the containers that a pointer leads into and that are open, and a value that is being read. On this way
//! the grammar is checked. A value beside the way is skipped: only its strings and brackets are read, so a fault inside
//! it stays unseen.

use smallvec::SmallVec;

use super::key_match::{KeyMatch, KeyRead, Tokens};
use super::number::NumberReader;
use super::pointer::PointerToken;
use super::swar::{Beside, find_quote};
use super::{BodySource, Reading};

/// A scan of one text: a JSON document or several.
#[derive(Debug)]
pub(super) struct JsonScanner {
    /// A bit for each source that this scanner looks for.
    own: u32,
    mode: ScanMode,
    expect: Expect,
    /// The sources on whose way the next value lies.
    next: u32,
    /// The sources that lead into each element of the open list, so that their tokens begin in an element.
    each: u32,
    progress: StreamProgress,
    /// A source that says by `true` that its document is the last one of the stream: its bit.
    terminal: u32,
    /// The open containers that a pointer leads into.
    way: SmallVec<[Container; 4]>,
    /// What the document or the element of a list has so far, a reading a source.
    current: SmallVec<[Reading; 4]>,
    /// What the last earlier one that had it had.
    earlier: SmallVec<[Reading; 4]>,
}

/// What is known of the documents of a text.
#[derive(Clone, Copy, Debug, Default)]
struct StreamProgress {
    /// The text is a stream by its content type, or a second document has begun.
    is_stream: bool,
    /// A document is complete.
    has_document: bool,
    /// The present document says that it is the last one, and the last complete document has said so.
    says_end: bool,
    is_at_end: bool,
}

#[derive(Clone, Copy, Debug)]
struct Container {
    is_object: bool,
    /// The sources whose pointers lead into it.
    sources: u32,
    /// The index of the next value in an array.
    index: u64,
}

/// What is being read.
#[derive(Debug)]
enum ScanMode {
    Structure,
    Key(KeyMatch),
    /// A string that is a value.
    Text {
        is_escaped: bool,
    },
    /// A number or a literal that no source asks for.
    Scalar,
    /// The number that these sources ask for.
    Number(NumberReader, u32),
    /// The rest of a literal, and what it means to these sources.
    Literal(&'static [u8], u32, Reading),
    Beside(Beside),
    /// The text is not JSON: nothing more is read.
    Fault,
}

/// What may stand next between values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// A document, or a byte order mark before the first.
    Text,
    Document,
    Value,
    /// A value, or the end of an array.
    FirstItem,
    Key,
    /// A key, or the end of an object.
    FirstKey,
    Colon,
    /// A comma, or the end of the container.
    Comma,
}

/// The tokens of all pointers at one depth.
struct TokensAt<'s> {
    sources: &'s [BodySource],
    depth: usize,
    /// The sources whose tokens begin one container deeper.
    each: u32,
}

impl TokensAt<'_> {
    /// How many tokens of a source lead to this depth.
    fn depth(&self, source: usize) -> Option<usize> {
        self.depth.checked_sub(usize::from(self.each & bit(source) != 0))
    }

    fn token(&self, source: usize) -> Option<&PointerToken> {
        self.sources.get(source)?.pointer().tokens().get(self.depth(source)?)
    }
}

impl Tokens for TokensAt<'_> {
    fn filter(&self, bits: u32, is_good: impl Fn(&[u8]) -> bool) -> u32 {
        filter(bits, |source| self.token(source).is_some_and(|token| is_good(&token.key)))
    }
}

/// The numbers of the bits that are set.
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        usize::try_from(lowest).ok()
    })
}

fn filter(bits: u32, is_good: impl Fn(usize) -> bool) -> u32 {
    ones(bits).filter(|source| is_good(*source)).fold(0, |good, source| good | bit(source))
}

/// The bit of a source; none for those that are not looked for.
fn bit(source: usize) -> u32 {
    u32::try_from(source).ok().and_then(|source| 1_u32.checked_shl(source)).unwrap_or(0)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl JsonScanner {
    /// Looks for the sources of `own`, among `count`.
    pub(super) fn new(own: u32, count: usize) -> Self {
        Self {
            own,
            mode: ScanMode::Structure,
            expect: Expect::Text,
            next: own,
            each: 0,
            progress: StreamProgress::default(),
            terminal: 0,
            way: SmallVec::new(),
            current: SmallVec::from_elem(Reading::Absent, count),
            earlier: SmallVec::from_elem(Reading::Absent, count),
        }
    }

    /// The text is a stream of documents. In the last one this source is `true`.
    pub(super) fn read_stream(&mut self, terminal: Option<usize>) {
        self.progress.is_stream = true;
        self.terminal = terminal.map_or(0, bit);
    }

    /// Begins another text.
    pub(super) fn restart(&mut self) {
        self.mode = ScanMode::Structure;
        self.expect = Expect::Document;
        self.next = self.own;
        self.each = 0;
        self.progress = StreamProgress::default();
        self.way.clear();
        self.current.fill(Reading::Absent);
        self.earlier.fill(Reading::Absent);
    }

    /// Reads the next bytes.
    pub(super) fn scan(&mut self, sources: &[BodySource], mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let length = match &mut self.mode {
                ScanMode::Structure => self.scan_structure(sources, bytes),
                ScanMode::Key(_) => self.scan_key(sources, bytes),
                ScanMode::Text { .. } => self.scan_text(bytes),
                ScanMode::Beside(beside) => match beside.scan(bytes) {
                    Some(length) => {
                        self.mode = ScanMode::Structure;
                        self.end_value();
                        length
                    }
                    None => return,
                },
                ScanMode::Scalar => self.scan_scalar(bytes),
                ScanMode::Number(..) => self.scan_number(bytes),
                ScanMode::Literal(..) => self.scan_literal(bytes),
                ScanMode::Fault => return,
            };
            bytes = bytes.get(length..).unwrap_or_default();
        }
    }

    /// The text has ended: a number that is a whole document needs no byte after it.
    pub(super) fn end(&mut self) {
        if self.way.is_empty() && matches!(self.mode, ScanMode::Number(..)) {
            self.scan_number(b" ");
        }
    }

    /// What the text has had so far for a source: of a stream, what its complete documents have had.
    pub(super) fn reading(&self, source: usize) -> Reading {
        let found = |readings: &[Reading]| {
            readings.get(source).copied().filter(|reading| *reading != Reading::Absent)
        };
        let is_one = !self.progress.is_stream && self.each & bit(source) == 0;
        let current = if is_one { found(&self.current) } else { None };
        current.or_else(|| found(&self.earlier)).unwrap_or_default()
    }

    /// Whether the text is a stream of documents, and another one may follow.
    pub(super) fn awaits_document(&self) -> bool {
        self.each != 0 || self.progress.is_stream && !self.is_at_end()
    }

    /// Whether the last document was complete and said that it is the last one.
    pub(super) fn is_at_end(&self) -> bool {
        self.progress.is_at_end
    }

    /// Whether the text is not JSON.
    pub(super) fn is_faulty(&self) -> bool {
        matches!(self.mode, ScanMode::Fault)
    }

    /// Reads between values. Returns how many bytes it took.
    fn scan_structure(&mut self, sources: &[BodySource], bytes: &[u8]) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            if is_space(byte) {
                continue;
            }
            match (self.expect, byte) {
                (Expect::Comma, b',') => self.begin_next(sources),
                (Expect::Colon, b':') => self.expect = Expect::Value,
                (Expect::Key | Expect::FirstKey, b'"') => {
                    let candidates = self.way.last().map_or(0, |open| open.sources);
                    self.mode = ScanMode::Key(KeyMatch::new(candidates));
                    return at + 1;
                }
                (Expect::Comma | Expect::FirstKey, b'}') => self.close(true),
                (Expect::Comma | Expect::FirstItem, b']') => self.close(false),
                (Expect::Text, 0xef) => {
                    self.expect = Expect::Document;
                    self.mode = ScanMode::Literal(b"\xbb\xbf", 0, Reading::Absent);
                }
                (Expect::Text | Expect::Document | Expect::Value | Expect::FirstItem, byte) => {
                    self.begin_value(sources, byte);
                }
                _ => self.mode = ScanMode::Fault,
            }
            match self.mode {
                ScanMode::Structure => {}
                // Its first byte is part of the number.
                ScanMode::Number(..) => return at,
                _ => return at + 1,
            }
        }
        bytes.len()
    }

    fn begin_value(&mut self, sources: &[BodySource], byte: u8) {
        if self.way.is_empty() {
            self.begin_document();
        }
        let tokens = TokensAt { sources, depth: self.way.len(), each: self.each };
        let ends = |source: usize| {
            let length = sources.get(source).map(|source| source.pointer().tokens().len());
            length.is_some() && length == tokens.depth(source)
        };
        let targets = filter(self.next, ends);
        let onward = self.next & !targets;
        match byte {
            b'{' | b'[' => {
                self.set(targets, Reading::Unreadable);
                if onward == 0 {
                    self.mode = ScanMode::Beside(Beside::new());
                } else {
                    self.open(sources, byte == b'{', onward);
                }
            }
            b'"' => {
                self.set(targets, Reading::Unreadable);
                self.mode = ScanMode::Text { is_escaped: false };
            }
            b'-' | b'0'..=b'9' if targets != 0 => {
                self.mode = ScanMode::Number(NumberReader::default(), targets)
            }
            b't' if targets != 0 => {
                self.progress.says_end |= targets & self.terminal != 0;
                self.mode = ScanMode::Literal(b"rue", targets, Reading::Unreadable);
            }
            b'f' if targets != 0 => self.mode = ScanMode::Literal(b"alse", targets, Reading::Unreadable),
            b'n' if targets != 0 => self.mode = ScanMode::Literal(b"ull", targets, Reading::Absent),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => self.mode = ScanMode::Scalar,
            _ => self.mode = ScanMode::Fault,
        }
    }

    /// A document begins, or what stands in its place.
    fn begin_document(&mut self) {
        self.progress.is_stream |= self.progress.has_document;
        self.progress.is_at_end = false;
    }

    /// Opens a container that pointers lead into.
    fn open(&mut self, sources: &[BodySource], is_object: bool, onward: u32) {
        if self.way.is_empty() && !is_object {
            let tokens = TokensAt { sources, depth: 0, each: 0 };
            self.each =
                filter(onward, |source| tokens.token(source).is_some_and(|token| token.index.is_none()));
        }
        self.way.push(Container { is_object, sources: onward, index: 0 });
        self.expect = if is_object { Expect::FirstKey } else { Expect::FirstItem };
        self.choose_item(sources);
    }

    /// Behind a comma.
    fn begin_next(&mut self, sources: &[BodySource]) {
        let Some(open) = self.way.last_mut() else { return };
        open.index = open.index.saturating_add(1);
        self.expect = if open.is_object { Expect::Key } else { Expect::Value };
        self.choose_item(sources);
    }

    /// Notes on which ways the next item of an array lies.
    fn choose_item(&mut self, sources: &[BodySource]) {
        let depth = self.way.len().saturating_sub(1);
        if let Some(open) = self.way.last().filter(|open| !open.is_object) {
            let tokens = TokensAt { sources, depth, each: self.each };
            let is_next = |token: &PointerToken| token.index == Some(open.index);
            self.next = filter(open.sources, |source| tokens.token(source).is_some_and(is_next));
            if depth == 0 {
                self.next |= self.each;
            }
        }
    }

    fn close(&mut self, is_object: bool) {
        match self.way.pop() {
            Some(open) if open.is_object == is_object => self.end_value(),
            _ => self.mode = ScanMode::Fault,
        }
    }

    /// A value has ended.
    fn end_value(&mut self) {
        if !self.way.is_empty() {
            self.expect = Expect::Comma;
            if self.each != 0 && self.way.len() == 1 {
                self.keep(self.each);
            }
            return;
        }
        self.expect = Expect::Document;
        self.next = self.own;
        self.each = 0;
        self.keep(self.own);
        self.progress.has_document = true;
        self.progress.is_at_end = std::mem::take(&mut self.progress.says_end);
    }

    /// Keeps what a document or an element has had for these sources.
    fn keep(&mut self, sources: u32) {
        for source in ones(sources) {
            if let (Some(current), Some(earlier)) =
                (self.current.get_mut(source), self.earlier.get_mut(source))
                && *current != Reading::Absent
            {
                *earlier = std::mem::take(current);
            }
        }
    }

    fn set(&mut self, sources: u32, reading: Reading) {
        for source in ones(sources) {
            if let Some(current) = self.current.get_mut(source) {
                *current = reading;
            }
        }
    }

    fn scan_key(&mut self, sources: &[BodySource], bytes: &[u8]) -> usize {
        let ScanMode::Key(key) = &mut self.mode else { return 0 };
        let tokens = TokensAt { sources, depth: self.way.len().saturating_sub(1), each: self.each };
        match key.scan(bytes, &tokens) {
            KeyRead::Open => bytes.len(),
            KeyRead::Ended(length, matches) => {
                self.next = matches;
                // Of a repeated key the last value counts, and what it lacks is absent.
                self.set(matches, Reading::Absent);
                self.progress.says_end &= matches & self.terminal == 0;
                self.expect = Expect::Colon;
                self.mode = ScanMode::Structure;
                length
            }
            KeyRead::Fault => {
                self.mode = ScanMode::Fault;
                bytes.len()
            }
        }
    }

    fn scan_text(&mut self, bytes: &[u8]) -> usize {
        let ScanMode::Text { is_escaped } = &mut self.mode else { return 0 };
        let mut at = usize::from(std::mem::take(is_escaped));
        while let Some(rest) = bytes.get(at..) {
            let Some(length) = find_quote(rest) else { break };
            at += length + 1;
            if rest[length] == b'"' {
                self.mode = ScanMode::Structure;
                self.end_value();
                return at;
            }
            // The byte after the backslash.
            at += 1;
        }
        *is_escaped = at > bytes.len();
        bytes.len()
    }

    fn scan_scalar(&mut self, bytes: &[u8]) -> usize {
        let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        bytes.iter().position(|byte| !belongs(byte)).map_or(bytes.len(), |length| {
            self.mode = ScanMode::Structure;
            self.end_value();
            length
        })
    }

    fn scan_number(&mut self, bytes: &[u8]) -> usize {
        let ScanMode::Number(number, targets) = &mut self.mode else { return 0 };
        let length = number.scan(bytes);
        let Some(&after) = bytes.get(length) else { return length };
        let is_whole = is_space(after) || matches!(after, b',' | b']' | b'}');
        let (reading, targets) = (number.reading().filter(|_| is_whole), *targets);
        self.mode = if reading.is_some() { ScanMode::Structure } else { ScanMode::Fault };
        if let Some(reading) = reading {
            self.set(targets, reading);
            self.end_value();
        }
        length
    }

    fn scan_literal(&mut self, bytes: &[u8]) -> usize {
        let ScanMode::Literal(rest, targets, reading) = &mut self.mode else { return 0 };
        let length = rest.len().min(bytes.len());
        let (now, later) = rest.split_at(length);
        if !bytes.starts_with(now) {
            self.mode = ScanMode::Fault;
            return bytes.len();
        }
        *rest = later;
        if later.is_empty() {
            let (targets, reading) = (*targets, *reading);
            self.mode = ScanMode::Structure;
            // A byte order mark has no targets.
            if targets != 0 {
                self.set(targets, reading);
                self.end_value();
            }
        }
        length
    }
}
