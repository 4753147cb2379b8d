//! Lines that wait until no earlier one can come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;

use super::format::LineFormat;
use super::spill::{LineKey, SpilledRuns};

/// Bytes of memory that lines take before they are written to a temporary file: 64 MiB.
pub(super) const MAX_HELD: usize = 64 << 20;
/// A buffer that is larger is not kept for another line.
const MAX_SPARE: usize = 4 << 10;
/// Bytes that a line takes beside its text.
const OVERHEAD: usize = 64;

/// A line in memory: its key, its format, and the index of its text.
type HeldLine = (LineKey, u8, u32);

/// Lines in the order of their keys.
#[derive(Debug)]
pub(super) struct HeldLines {
    /// Lines that came in the order of their keys, which most lines of most logs do.
    in_order: VecDeque<HeldLine>,
    /// All others.
    others: BinaryHeap<Reverse<HeldLine>>,
    texts: Vec<Vec<u8>>,
    /// Indexes of texts that no line has.
    free: Vec<u32>,
    bytes: usize,
    max_bytes: usize,
    runs: SpilledRuns,
    /// A temporary file failed, so all lines stay in memory.
    is_memory_only: bool,
}

impl HeldLines {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            texts: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            max_bytes,
            runs: SpilledRuns::default(),
            is_memory_only: false,
        }
    }

    /// The first line.
    pub(super) fn peek(&self) -> Option<LineKey> {
        earlier(self.peek_memory(), self.runs.peek())
    }

    fn peek_memory(&self) -> Option<LineKey> {
        let in_order = self.in_order.front().map(|(key, ..)| *key);
        earlier(in_order, self.others.peek().map(|Reverse((key, ..))| *key))
    }

    fn pop_memory(&mut self) -> Option<HeldLine> {
        match (self.in_order.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) if other < first => {
                self.others.pop().map(|Reverse(line)| line)
            }
            (Some(_), _) => self.in_order.pop_front(),
            (None, _) => self.others.pop().map(|Reverse(line)| line),
        }
    }

    /// Adds a line.
    ///
    /// # Errors
    ///
    /// A temporary file cannot be written. The line is held nevertheless; the error comes once.
    pub(super) fn push(&mut self, key: LineKey, format: LineFormat, text: &[u8]) -> io::Result<()> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.texts.push(Vec::new());
            u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.texts.get_mut(index as usize) {
            slot.extend_from_slice(text);
        }
        self.bytes += text.len() + OVERHEAD;
        let line = (key, format as u8, index);
        match self.in_order.back().is_none_or(|(last, ..)| *last <= key) {
            true => self.in_order.push_back(line),
            false => self.others.push(Reverse(line)),
        }
        if self.bytes > self.max_bytes && !self.is_memory_only {
            return self.spill().inspect_err(|_| self.is_memory_only = true);
        }
        Ok(())
    }

    /// Takes the first line, whose text replaces `text`.
    ///
    /// # Errors
    ///
    /// A temporary file cannot be read.
    pub(super) fn pop(&mut self, text: &mut Vec<u8>) -> io::Result<Option<(LineKey, LineFormat)>> {
        let in_memory = self.peek_memory();
        let is_in_run = self.runs.peek().is_some_and(|key| in_memory.is_none_or(|other| key < other));
        if is_in_run {
            return self.runs.pop(text);
        }
        let Some((key, format, index)) = self.pop_memory() else { return Ok(None) };
        if let Some(slot) = self.texts.get_mut(index as usize) {
            std::mem::swap(slot, text);
        }
        self.bytes = self.bytes.saturating_sub(text.len() + OVERHEAD);
        self.release(index);
        let format = LineFormat::ALL.get(usize::from(format)).copied();
        Ok(format.map(|format| (key, format)))
    }

    fn release(&mut self, index: u32) {
        if let Some(slot) = self.texts.get_mut(index as usize) {
            slot.clear();
            if slot.capacity() > MAX_SPARE {
                *slot = Vec::new();
            }
        }
        self.free.push(index);
    }

    /// Writes all lines in memory to a temporary file.
    fn spill(&mut self) -> io::Result<()> {
        let others = self.others.iter().map(|Reverse(line)| line);
        let mut lines: Vec<_> = self.in_order.iter().chain(others).copied().collect();
        lines.sort_unstable();
        let texts = &self.texts;
        let rows = lines.iter().filter_map(|&(key, format, index)| {
            let format = LineFormat::ALL.get(usize::from(format))?;
            Some((key, *format, texts.get(index as usize)?.as_slice()))
        });
        self.runs.write(rows)?;
        self.in_order.clear();
        self.others.clear();
        self.free.clear();
        self.texts.clear();
        self.bytes = 0;
        Ok(())
    }
}

fn earlier(one: Option<LineKey>, other: Option<LineKey>) -> Option<LineKey> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::Timestamp;
    use crate::log_reader::request::LinePlace;

    proptest! {
        #[test]
        fn lines_come_in_order_however_little_memory_there_is(
            steps in prop::collection::vec(prop::option::weighted(0.7, (0_u64..50, 0_usize..100_000)), 0..60),
            max_bytes in prop_oneof![Just(0_usize), Just(1_000), Just(MAX_HELD)],
        ) {
            let mut held = HeldLines::new(max_bytes);
            let mut expected = std::collections::BTreeMap::new();
            let mut text = Vec::new();
            let mut pop = |held: &mut HeldLines, expected: &mut std::collections::BTreeMap<_, usize>| {
                let first = expected.pop_first();
                assert_eq!(held.peek(), first.map(|(key, _)| key));
                let found = held.pop(&mut text).unwrap();
                assert_eq!(found.map(|(key, format)| (key, format, text.len())), first.map(|(key, length)| (key, LineFormat::Caddy, length)));
                first.is_some()
            };
            for (line, step) in (1_u64..).zip(&steps) {
                match step {
                    Some((time, length)) => {
                        let key = LineKey { time: Timestamp(*time), place: LinePlace { file: 3, line } };
                        held.push(key, LineFormat::Caddy, &vec![b'x'; *length]).unwrap();
                        expected.insert(key, *length);
                    }
                    None => { pop(&mut held, &mut expected); }
                }
            }
            while pop(&mut held, &mut expected) {}
        }
    }
}
