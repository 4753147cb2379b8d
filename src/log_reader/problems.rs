//! What could not be read, counted by its reason; and the fault for which logs cannot be read at all.

use thiserror::Error;

use super::request::LinePlace;
use crate::labels::labels;

/// Characters of a line that a report shows.
const EXCERPT: usize = 80;

labels! {
    /// Why a line was left out, or what else was wrong with a log.
    pub enum ProblemKind {
        /// The format does not read the line.
        NotReadable = "not a line of this format",
        /// The line has no time, or one that cannot be read.
        NoTime = "no readable time",
        /// A time before 1990 or from 2100 on.
        TimeOutOfRange = "the time is before 1990 or after 2099",
        /// The line has no request that a client could send.
        NoRequest = "no request",
        /// The line has no address of a client.
        NoClient = "no client address",
        /// The line is longer than [`MAX_LINE`](super::lines::MAX_LINE).
        TooLong = "longer than 1 MiB",
        /// The log ends within a line that a container runtime divided.
        NoEnd = "a divided line whose end is missing",
        /// The line has a NUL byte.
        Binary = "binary data",
        /// The time jumps against those of the lines around it. The line is used.
        ClockJump = "the time jumps",
        /// Compressed data that breaks off. The lines before are used.
        EndsEarly = "the compressed data ends early",
        /// Compressed data with a fault. The lines before are used.
        Damaged = "the compressed data is damaged",
        /// The file cannot be read further. The lines before are used.
        ReadError = "the file cannot be read further",
        /// A temporary file for sorting cannot be written or read.
        TemporaryFile = "a temporary file for sorting failed",
    }
}

/// The first problem of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstProblem {
    /// The name of the file.
    pub file: String,
    /// The line.
    pub place: LinePlace,
    /// The beginning of the line, escaped, or the message of the system; at most 80 characters.
    pub text: String,
}

/// Problems by kind.
#[derive(Clone, Debug, Default)]
pub struct LogProblems {
    rows: Vec<(ProblemKind, u64, FirstProblem)>,
}

impl LogProblems {
    /// Each kind that occurred, with its count and the first one in the order of files and lines.
    pub fn iter(&self) -> impl Iterator<Item = (ProblemKind, u64, &FirstProblem)> {
        self.rows.iter().map(|(kind, count, first)| (*kind, *count, first))
    }

    /// How often a kind occurred.
    pub fn count(&self, kind: ProblemKind) -> u64 {
        self.rows.iter().find(|row| row.0 == kind).map_or(0, |row| row.1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines that were left out.
    pub fn skipped_lines(&self) -> u64 {
        self.iter().filter(|(kind, ..)| kind.leaves_out_line()).map(|(_, count, _)| count).sum()
    }

    /// Counts a problem of a line that begins with this text.
    pub(super) fn add(&mut self, kind: ProblemKind, file: &str, place: LinePlace, text: &[u8]) {
        let first = || FirstProblem { file: file.to_owned(), place, text: excerpt(text) };
        match self.rows.iter_mut().find(|row| row.0 == kind) {
            Some((_, count, earliest)) => {
                *count += 1;
                // Lines are judged in the order of time, too.
                if place < earliest.place {
                    *earliest = first();
                }
            }
            None => self.rows.push((kind, 1, first())),
        }
    }
}

impl ProblemKind {
    /// Whether the line is not among the requests.
    pub const fn leaves_out_line(self) -> bool {
        !matches!(
            self,
            Self::ClockJump | Self::EndsEarly | Self::Damaged | Self::ReadError | Self::TemporaryFile
        )
    }
}

/// The beginning of a text, safe for any terminal.
fn excerpt(text: &[u8]) -> String {
    let mut shown: String = String::from_utf8_lossy(text.get(..4 * EXCERPT).unwrap_or(text))
        .chars()
        .flat_map(|character| {
            let is_plain = !character.is_control() && !is_format(character);
            let plain = is_plain.then_some(character);
            let escaped = (!is_plain).then(|| character.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .take(EXCERPT)
        .collect();
    if text.len() > EXCERPT && shown.pop().is_some() {
        shown.push('…');
    }
    shown
}

/// Characters without a glyph that reorder or hide text.
const fn is_format(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Why logs cannot be read at all: what is wrong, and the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what}; {remedy}")]
pub struct LogFault {
    /// What is wrong, and where.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl LogFault {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_escaped() {
        assert_eq!(excerpt(b"\x1b[31mred"), "\\u{1b}[31mred");
        assert_eq!(excerpt("ü".as_bytes()), "ü");
        assert_eq!(excerpt(&[b'a'; 100]).chars().count(), EXCERPT);
    }

    #[test]
    fn the_first_of_a_kind_is_that_of_the_first_line() {
        let mut problems = LogProblems::default();
        let place = |line| LinePlace { file: 0, line };
        problems.add(ProblemKind::NoTime, "a", place(7), b"seven");
        problems.add(ProblemKind::NoTime, "a", place(3), b"three");
        problems.add(ProblemKind::ClockJump, "a", place(4), b"four");
        let rows: Vec<_> =
            problems.iter().map(|(kind, count, first)| (kind, count, first.place.line)).collect();
        assert_eq!(rows, [(ProblemKind::NoTime, 2, 3), (ProblemKind::ClockJump, 1, 4)]);
        assert_eq!(problems.skipped_lines(), 2);
    }
}
