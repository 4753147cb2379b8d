//! Requests whose path has a fragment (`/a#b`), which no client may send (RFC 9113 §8.3.1). The `http` crate cuts it off
//! before anybody could see it, so it is looked for in the frames.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::frames::{Frame, Part, split};
use super::hpack::Paths;

const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Bytes that say on what a stream depends.
const DEPENDENCY: usize = 5;
/// Streams that are noted at once. No more than 120 can wait to be taken up.
const MOST: usize = 128;

/// Reads along as a client's frames pass.
#[derive(Debug, Default)]
pub struct Fragments {
    paths: Paths,
    /// The payload begins with the length of its padding.
    padded: bool,
    /// Bytes of the payload before its fields.
    before: usize,
    /// Bytes of fields in the payload.
    left: usize,
    /// The stream of the last request.
    newest: u32,
    /// Whether the block begins a request; else it is trailers.
    begins: bool,
}

impl Fragments {
    /// This comes next. Gives the stream of a request that has a fragment once its head is whole.
    pub fn see(&mut self, part: &Part<'_>) -> Option<u32> {
        match part {
            Part::Begin(frame) => self.begin(frame),
            Part::Payload(bytes) => self.payload(bytes),
            Part::End(frame) if frame.ends_fields() => {
                return (self.begins && self.paths.has_fragment()).then_some(self.newest);
            }
            Part::End(_) => {}
        }
        None
    }

    fn begin(&mut self, frame: &Frame) {
        let flags = if frame.begins_fields() { frame.flags } else { 0 };
        self.padded = flags & PADDED != 0;
        self.before = if flags & PRIORITY != 0 { DEPENDENCY } else { 0 };
        self.left = if frame.carries_fields() { frame.length.saturating_sub(self.before) } else { 0 };
        if frame.begins_fields() {
            self.paths.begin();
            // Streams are numbered upwards (RFC 9113 §5.1.1).
            self.begins = frame.stream > self.newest;
            self.newest = self.newest.max(frame.stream);
        }
    }

    fn payload(&mut self, mut bytes: &[u8]) {
        if self.padded
            && let [padding, rest @ ..] = bytes
        {
            self.padded = false;
            self.left = self.left.saturating_sub(1 + usize::from(*padding));
            bytes = rest;
        }
        self.before -= split(&mut bytes, self.before).len();
        let here = split(&mut bytes, self.left);
        self.left -= here.len();
        self.paths.advance(here);
    }
}

/// Streams that are not to be served.
#[derive(Debug, Default)]
pub struct Noted {
    /// Those that were not taken up yet, in the order in which they came.
    streams: RefCell<VecDeque<u32>>,
    overflown: Cell<bool>,
}

impl Noted {
    /// Another one; its number is above those before.
    pub fn note(&self, stream: u32) {
        let mut streams = self.streams.borrow_mut();
        if streams.len() < MOST {
            streams.push_back(stream);
        } else {
            self.overflown.set(true);
        }
    }

    /// Whether this stream, which is taken up now, is not to be served. Those before it are forgotten: they never will be.
    pub fn has(&self, stream: u32) -> bool {
        let mut streams = self.streams.borrow_mut();
        while streams.pop_front_if(|front| *front < stream).is_some() {}
        streams.front() == Some(&stream) || self.is_flood()
    }

    /// Whether there were more of them than could be noted: no other stream is to be served, either.
    pub fn is_flood(&self) -> bool {
        self.overflown.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_noted_until_they_or_later_ones_are_taken_up() {
        let noted = Noted::default();
        assert!(!noted.has(1));
        [3, 5, 9].into_iter().for_each(|stream| noted.note(stream));
        let found: Vec<_> = [1, 3, 7, 9, 11].into_iter().filter(|stream| noted.has(*stream)).collect();
        assert_eq!(found, [3, 9]);
        assert!(!noted.is_flood() && noted.streams.borrow().is_empty());
    }

    #[test]
    fn beyond_the_bound_nothing_is_served() {
        let noted = Noted::default();
        (0..).take(MOST).for_each(|number| noted.note(number * 2 + 1));
        assert!(!noted.is_flood() && !noted.has(0));
        noted.note(1001);
        assert!(noted.is_flood() && noted.has(1003) && noted.has(1001));
    }
}
