//! Splits bytes into lines, which have a bound.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// Bytes of a line that is read: 1 MiB.
pub const MAX_LINE: usize = 1 << 20;
/// Bytes read at once.
const PIECE: usize = 256 << 10;
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The lines of a source.
pub(super) struct LineSplitter {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of the line that was returned last.
    line: u64,
    /// The rest of a line that is too long is left out.
    is_skipping: bool,
    /// Lines were returned since the last read.
    has_returned_lines: bool,
    has_ended: bool,
}

/// What a source has next.
#[derive(Debug)]
pub(super) enum LineEvent {
    /// A line, without its end.
    Line(Range<usize>),
    /// The beginning of a line that is too long, or the last part of one.
    TooLong(Range<usize>),
    /// The log ended within a divided line, of which these are the parts so far.
    NoEnd(Range<usize>),
    /// No complete line is left of the bytes that were read. A caller that ends here loses none.
    Pending,
    /// No line is left.
    End,
    /// The source cannot be read further; the next event is the end.
    Fault(io::Error),
}

impl LineSplitter {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self {
            source,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            line: 0,
            is_skipping: false,
            has_returned_lines: false,
            has_ended: false,
        }
    }

    /// The number of the last line, from 1.
    pub(super) const fn line(&self) -> u64 {
        self.line
    }

    /// The bytes of a line, until the next event.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// The next event.
    pub(super) fn next(&mut self) -> LineEvent {
        let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
        match memchr::memchr(b'\n', rest) {
            Some(length) => {
                let range = self.start..self.start + length;
                self.start += length + 1;
                if std::mem::take(&mut self.is_skipping) { LineEvent::Pending } else { self.found(range) }
            }
            None if self.has_ended => {
                let range = self.start..self.end;
                self.start = self.end;
                if range.is_empty() || self.is_skipping { LineEvent::End } else { self.found(range) }
            }
            None if std::mem::take(&mut self.has_returned_lines) => LineEvent::Pending,
            None => self.fill(),
        }
    }

    fn found(&mut self, range: Range<usize>) -> LineEvent {
        self.has_returned_lines = true;
        self.line += 1;
        if range.len() > MAX_LINE {
            return LineEvent::TooLong(range);
        }
        let mut line = self.bytes(range.clone());
        let mut range = range.clone();
        if self.line == 1 && line.starts_with(MARK) {
            range.start += MARK.len();
            line = self.bytes(range.clone());
        }
        if line.ends_with(b"\r") {
            range.end -= 1;
        }
        LineEvent::Line(range)
    }

    /// Reads more after the bytes of a line that is not complete.
    fn fill(&mut self) -> LineEvent {
        if self.is_skipping {
            self.start = self.end;
        }
        let length = self.end - self.start;
        if length > MAX_LINE {
            self.is_skipping = true;
            self.line += 1;
            return LineEvent::TooLong(self.start..self.end);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, length);
        if self.buffer.len() - length < PIECE / 2 {
            self.buffer.resize(self.buffer.len() + PIECE, 0);
        }
        match self.source.read(self.buffer.get_mut(length..).unwrap_or_default()) {
            Ok(0) => self.has_ended = true,
            Ok(read) => {
                let read = self.end..self.end + read;
                self.end = read.end;
                if memchr::memchr(b'\n', self.bytes(read)).is_some() {
                    return self.next();
                }
            }
            Err(fault) if matches!(fault.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => (),
            Err(fault) => {
                (self.has_ended, self.start) = (true, self.end);
                return LineEvent::Fault(fault);
            }
        }
        LineEvent::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    /// Reads one to three bytes at a time.
    struct Trickle(Cursor<Vec<u8>>, usize);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1 % 3 + 1;
            let length = buffer.len().min(self.1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn lines(source: impl Read + Send + 'static) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut splitter = LineSplitter::new(Box::new(source));
        let mut found = Vec::new();
        loop {
            match splitter.next() {
                LineEvent::Line(range) => found.push((splitter.line(), Some(splitter.bytes(range).to_vec()))),
                LineEvent::TooLong(_) => found.push((splitter.line(), None)),
                LineEvent::NoEnd(_) | LineEvent::Pending | LineEvent::Fault(_) => (),
                LineEvent::End => return found,
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_in_bounded_memory() {
        let mut text = b"a\n".to_vec();
        text.extend(vec![b'x'; 10 << 20]);
        text.extend_from_slice(b"\nb");
        let mut splitter = LineSplitter::new(Box::new(Cursor::new(text.clone())));
        while !matches!(splitter.next(), LineEvent::End) {}
        assert!(splitter.buffer.len() <= MAX_LINE + 2 * PIECE);
        let found = lines(Cursor::new(text));
        assert_eq!(found, [(1, Some(b"a".to_vec())), (2, None), (3, Some(b"b".to_vec()))]);
    }

    #[test]
    fn a_caller_is_not_stopped_between_a_read_and_its_lines() {
        let mut splitter = LineSplitter::new(Box::new(Cursor::new(b"a\nb\nc".to_vec())));
        let events: Vec<&str> = std::iter::from_fn(|| match splitter.next() {
            LineEvent::Line(_) => Some("line"),
            LineEvent::Pending => Some("pending"),
            _ => None,
        })
        .collect();
        assert_eq!(events, ["line", "line", "pending", "pending", "line"]);
    }

    #[test]
    fn marks_and_line_ends_are_left_out() {
        let found = lines(Cursor::new("\u{feff}a\r\n\r\nb\r".as_bytes().to_vec()));
        let expected: [&[u8]; 3] = [b"a", b"", b"b"];
        assert_eq!(found, (1_u64..).zip(expected.map(|line| Some(line.to_vec()))).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_pieces(text in "[ab\n]{0,60}") {
            let expected: Vec<_> = (1_u64..).zip(text.lines().map(|line| Some(line.as_bytes().to_vec()))).collect();
            prop_assert_eq!(lines(Trickle(Cursor::new(text.clone().into_bytes()), 0)), expected.clone());
            prop_assert_eq!(lines(Cursor::new(text.into_bytes())), expected);
        }
    }
}
