//! Joins the lines that a container runtime divided: it writes at most 16 KiB of a line at once.

use std::io::Read;
use std::ops::Range;

use super::lines::{LineEvent, LineSplitter, MAX_LINE};
use super::prefix::{ContainerStream, container_line};

/// The lines of a source, of which those of containers are whole.
pub(super) struct WholeLines {
    lines: LineSplitter,
    output: Parts,
    error: Parts,
    /// The stream whose parts are the line that was returned last.
    joined: Option<ContainerStream>,
}

/// The parts so far of a line, without their prefixes.
#[derive(Default)]
struct Parts {
    text: Vec<u8>,
    is_too_long: bool,
}

impl WholeLines {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        let lines = LineSplitter::new(source);
        Self { lines, output: Parts::default(), error: Parts::default(), joined: None }
    }

    /// The number of the last line, from 1. That of a joined line is the number of its last part.
    pub(super) const fn line(&self) -> u64 {
        self.lines.line()
    }

    /// The bytes of a line, until the next event.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        match self.joined {
            Some(ContainerStream::Output) => self.output.text.get(range).unwrap_or_default(),
            Some(ContainerStream::Error) => self.error.text.get(range).unwrap_or_default(),
            None => self.lines.bytes(range),
        }
    }

    /// The next event.
    pub(super) fn next(&mut self) -> LineEvent {
        if let Some(stream) = self.joined.take() {
            self.parts(stream).text.clear();
        }
        match self.lines.next() {
            LineEvent::Line(range) => self.join(range),
            LineEvent::End => self.end(),
            event => event,
        }
    }

    fn join(&mut self, range: Range<usize>) -> LineEvent {
        let Some(line) = container_line(self.lines.bytes(range.clone())) else {
            return LineEvent::Line(range);
        };
        let parts = match line.stream {
            ContainerStream::Output => &mut self.output,
            ContainerStream::Error => &mut self.error,
        };
        if !line.is_part && parts.text.is_empty() && !parts.is_too_long {
            return LineEvent::Line(range);
        }
        parts.add(line.text);
        if line.is_part {
            return LineEvent::Pending;
        }
        match std::mem::take(&mut parts.is_too_long) {
            true => LineEvent::TooLong(range),
            false => self.returned(line.stream, LineEvent::Line),
        }
    }

    /// Parts whose last one is missing come before the end.
    fn end(&mut self) -> LineEvent {
        for stream in [ContainerStream::Output, ContainerStream::Error] {
            let parts = self.parts(stream);
            if std::mem::take(&mut parts.is_too_long) || !parts.text.is_empty() {
                return self.returned(stream, LineEvent::NoEnd);
            }
        }
        LineEvent::End
    }

    fn returned(&mut self, stream: ContainerStream, event: fn(Range<usize>) -> LineEvent) -> LineEvent {
        let length = self.parts(stream).text.len();
        self.joined = Some(stream);
        event(0..length)
    }

    const fn parts(&mut self, stream: ContainerStream) -> &mut Parts {
        match stream {
            ContainerStream::Output => &mut self.output,
            ContainerStream::Error => &mut self.error,
        }
    }
}

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.is_too_long |= self.text.len() + part.len() > MAX_LINE;
        if self.is_too_long {
            self.text = Vec::new();
        } else {
            self.text.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Each line with its number; of a line that is left out, why.
    fn read(text: &str) -> Vec<(u64, Result<String, &'static str>)> {
        let mut lines = WholeLines::new(Box::new(Cursor::new(text.as_bytes().to_vec())));
        let mut found = Vec::new();
        loop {
            let line = match lines.next() {
                LineEvent::Line(range) => Ok(String::from_utf8(lines.bytes(range).to_vec()).unwrap()),
                LineEvent::TooLong(_) => Err("too long"),
                LineEvent::NoEnd(range) => Err(if range.is_empty() { "no end, too long" } else { "no end" }),
                LineEvent::Pending | LineEvent::Fault(_) => continue,
                LineEvent::End => return found,
            };
            found.push((lines.line(), line));
        }
    }

    const TIME: &str = "2026-11-27T15:00:00.123456789Z";

    #[test]
    fn parts_are_joined_within_their_stream() {
        let text = format!(
            "{TIME} stdout P a\n{TIME} stderr P x\nb\n{TIME} stdout P:tag  b\n{TIME} stdout F c\n{TIME} stdout F d\n{TIME} stderr F y\n"
        );
        let whole = format!("{TIME} stdout F d");
        let expected = [(3, "b"), (5, "a bc"), (6, &*whole), (7, "xy")];
        assert_eq!(read(&text), expected.map(|(line, text)| (line, Ok(text.to_owned()))));
    }

    #[test]
    fn parts_without_an_end_are_no_line() {
        let text = format!("{TIME} stderr P x\n{TIME} stdout P a\n{TIME} stdout P b");
        assert_eq!(read(&text), [(3, Err("no end")), (3, Err("no end"))]);
    }

    #[test]
    fn joined_lines_have_the_bound_of_lines() {
        let part = format!("{TIME} stdout P {}\n", "x".repeat(16 << 10));
        let text = format!("{}{TIME} stdout F y\n{TIME} stdout F z\n", part.repeat(65));
        assert_eq!(read(&text), [(66, Err("too long")), (67, Ok(format!("{TIME} stdout F z")))]);
        assert_eq!(read(&part.repeat(100)), [(100, Err("no end, too long"))]);
        let (_, line) = read(&format!("{}{TIME} stdout F \n", part.repeat(64))).remove(0);
        assert_eq!(line.unwrap().len(), MAX_LINE);
    }
}
