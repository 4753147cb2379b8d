//! Event streams (WHATWG HTML, 9.2): the data of each event is a JSON text, which is scanned line by line as it arrives.

use super::json::JsonScanner;
use super::terminal_events::{EventMatch, TerminalEvents};
use super::{BodySource, Reading};
use smallvec::SmallVec;

/// A scan of one stream.
#[derive(Debug)]
pub(super) struct SseScanner {
    json: JsonScanner,
    line: Line,
    /// Whether the last byte was the CR of a line's end: an LF that follows belongs to it.
    after_cr: bool,
    /// Whether the event has a line of data.
    has_data: bool,
    /// What the last event that had it had, a reading a source.
    found: SmallVec<[Reading; 4]>,
    /// The events at which the scan ends.
    ends: TerminalEvents,
    /// Which of them the present event may be, by its name and by its data.
    name: EventMatch,
    data: EventMatch,
    has_ended: bool,
}

/// What was read of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// This number of bytes of a byte order mark that begins the stream.
    Mark(u8),
    /// This number of bytes of the name `data`.
    Name(u8),
    /// The name and the colon of data.
    Colon,
    Data,
    /// This number of bytes of the name `event`.
    EventName(u8),
    /// The name and the colon of an event's name.
    EventColon,
    Event,
    /// A comment, or another field.
    Other,
}

const MARK: &[u8] = b"\xef\xbb\xbf";
const NAME: &[u8] = b"data";
const EVENT_NAME: &[u8] = b"event";

impl SseScanner {
    /// Looks for the sources of `own`, among `count`.
    pub(super) fn new(own: u32, count: usize) -> Self {
        Self {
            json: JsonScanner::new(own, count),
            line: Line::Mark(0),
            after_cr: false,
            has_data: false,
            found: SmallVec::from_elem(Reading::Absent, count),
            ends: TerminalEvents::default(),
            name: EventMatch::default(),
            data: EventMatch::default(),
            has_ended: false,
        }
    }

    /// Ends the scan after the first of these events.
    pub(super) fn end_at(&mut self, events: TerminalEvents) {
        self.ends = events;
    }

    /// Whether a terminal event is complete.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The same, or the data of the present event is that of a terminal one so far.
    pub(super) fn is_at_end(&self) -> bool {
        self.has_ended || self.has_data && self.data.is_whole(&self.ends)
    }

    /// What the last complete event that had it had for a source.
    pub(super) fn reading(&self, source: usize) -> Reading {
        self.found.get(source).copied().unwrap_or_default()
    }

    /// Reads the next bytes.
    pub(super) fn scan(&mut self, sources: &[BodySource], mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.has_ended {
                return;
            }
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = rest;
                continue;
            }
            if matches!(first, b'\r' | b'\n') {
                self.after_cr = first == b'\r';
                self.end_line(sources);
                bytes = rest;
                continue;
            }
            bytes = match self.line {
                Line::Mark(_) | Line::Name(_) | Line::Colon | Line::EventName(_) | Line::EventColon => {
                    self.scan_name(sources, first, bytes, rest)
                }
                Line::Data | Line::Event | Line::Other => {
                    let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
                    let (line, after) = bytes.split_at(end);
                    match self.line {
                        Line::Data => {
                            self.data.read(&self.ends, line);
                            self.json.scan(sources, line);
                        }
                        Line::Event => self.name.read(&self.ends, line),
                        _ => {}
                    }
                    after
                }
            };
        }
    }

    /// Reads a byte before the value of a line. Returns what comes next.
    fn scan_name<'b>(
        &mut self,
        sources: &[BodySource],
        byte: u8,
        bytes: &'b [u8],
        rest: &'b [u8],
    ) -> &'b [u8] {
        let is_next = |text: &[u8], at: u8| text.get(usize::from(at)) == Some(&byte);
        match self.line {
            Line::Mark(at) if is_next(MARK, at) => {
                self.line = if at == 2 { Line::Name(0) } else { Line::Mark(at + 1) };
                rest
            }
            Line::Mark(0) => {
                self.line = Line::Name(0);
                bytes
            }
            Line::Name(at) if is_next(NAME, at) => {
                self.line = Line::Name(at + 1);
                rest
            }
            Line::Name(0) | Line::EventName(_) if is_next(EVENT_NAME, self.event_name_read()) => {
                self.line = Line::EventName(self.event_name_read() + 1);
                rest
            }
            Line::Name(4) if byte == b':' => {
                self.line = Line::Colon;
                self.begin_data(sources);
                rest
            }
            Line::EventName(5) if byte == b':' => {
                self.line = Line::EventColon;
                self.name = EventMatch::begin();
                rest
            }
            // One space after the colon is not part of the value.
            Line::Colon => {
                self.line = Line::Data;
                if byte == b' ' { rest } else { bytes }
            }
            Line::EventColon => {
                self.line = Line::Event;
                if byte == b' ' { rest } else { bytes }
            }
            _ => {
                self.line = Line::Other;
                bytes
            }
        }
    }

    /// How many bytes of the name `event` the line has.
    fn event_name_read(&self) -> u8 {
        if let Line::EventName(at) = self.line { at } else { 0 }
    }

    /// Lines of data are joined by a line feed.
    fn begin_data(&mut self, sources: &[BodySource]) {
        if std::mem::replace(&mut self.has_data, true) {
            self.data.read(&self.ends, b"\n");
            self.json.scan(sources, b"\n");
        } else {
            self.data = EventMatch::begin();
        }
    }

    fn end_line(&mut self, sources: &[BodySource]) {
        match self.line {
            Line::Mark(0) | Line::Name(0) => self.end_event(),
            // `data` without a colon is a line of data that is empty.
            Line::Name(4) => self.begin_data(sources),
            // Of several names the last one counts, also if it is empty.
            Line::EventName(5) => self.name = EventMatch::begin(),
            _ => {}
        }
        self.line = Line::Name(0);
    }

    /// An event is complete. Data that is not JSON, such as `[DONE]`, has what stood before the fault.
    fn end_event(&mut self) {
        self.has_ended = self.is_at_end() || self.name.is_whole(&self.ends);
        self.name = EventMatch::default();
        if std::mem::take(&mut self.has_data) {
            self.json.end();
            for (source, found) in self.found.iter_mut().enumerate() {
                let reading = self.json.reading(source);
                if reading != Reading::Absent {
                    *found = reading;
                }
            }
            self.json.restart();
        }
    }
}
