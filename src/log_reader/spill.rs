//! Sorted runs of lines in a temporary file without a name, for logs whose disorder does not fit into memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::os::unix::fs::FileExt;

use super::format::LineFormat;
use super::request::LinePlace;
use crate::limit::units::Timestamp;

/// Bytes of a run that are read at once.
const PIECE: usize = 32 << 10;
/// Bytes before the text of a line: time, file, line, format, length.
const HEADER: usize = 8 + 4 + 8 + 1 + 4;

/// The place of a line in the order of all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    pub(super) time: Timestamp,
    pub(super) place: LinePlace,
}

/// Runs that are merged as they are read.
#[derive(Debug, Default)]
pub(super) struct SpilledRuns {
    /// Opened with the first run.
    file: Option<File>,
    runs: Vec<Run>,
    /// The first line of each run that has one.
    heads: BinaryHeap<Reverse<(LineKey, usize)>>,
}

/// What is left of a run.
#[derive(Debug)]
struct Run {
    /// Where the bytes after the buffer begin in the file, and where the run ends.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer that have been read.
    read: usize,
}

impl SpilledRuns {
    /// Writes lines, which are sorted, as a run.
    ///
    /// # Errors
    ///
    /// The temporary file cannot be written or read; the lines are not among the runs.
    pub(super) fn write<'l>(
        &mut self,
        lines: impl Iterator<Item = (LineKey, LineFormat, &'l [u8])>,
    ) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        let start = file.seek(io::SeekFrom::End(0))?;
        let mut writer = BufWriter::with_capacity(PIECE, &file);
        for (key, format, text) in lines {
            let length = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
            writer.write_all(&key.time.0.to_le_bytes())?;
            writer.write_all(&key.place.file.to_le_bytes())?;
            writer.write_all(&key.place.line.to_le_bytes())?;
            writer.write_all(&[format as u8])?;
            writer.write_all(&length.to_le_bytes())?;
            writer.write_all(text)?;
        }
        writer.flush()?;
        drop(writer);
        let end = file.stream_position()?;
        let mut run = Run { at: start, end, buffer: Vec::new(), read: 0 };
        if let Some(head) = run.head(&file)? {
            self.heads.push(Reverse((head, self.runs.len())));
            self.runs.push(run);
        }
        self.file = Some(file);
        Ok(())
    }

    /// The first line of all runs.
    pub(super) fn peek(&self) -> Option<LineKey> {
        self.heads.peek().map(|Reverse((key, _))| *key)
    }

    /// Takes the first line, whose text replaces `text`.
    ///
    /// # Errors
    ///
    /// The temporary file cannot be read: the run is given up.
    pub(super) fn pop(&mut self, text: &mut Vec<u8>) -> io::Result<Option<(LineKey, LineFormat)>> {
        let Some(Reverse((key, index))) = self.heads.pop() else { return Ok(None) };
        let (Some(file), Some(run)) = (&self.file, self.runs.get_mut(index)) else { return Ok(None) };
        let format = run.take(file, text)?;
        if let Some(next) = run.head(file)? {
            self.heads.push(Reverse((next, index)));
        } else {
            run.buffer = Vec::new();
        }
        if self.heads.is_empty() {
            // The space on the disk is free again.
            (self.file, self.runs) = (None, Vec::new());
        }
        Ok(Some((key, format)))
    }
}

impl Run {
    /// The key of the first line that is left.
    fn head(&mut self, file: &File) -> io::Result<Option<LineKey>> {
        if self.read == self.buffer.len() && self.at == self.end {
            return Ok(None);
        }
        let header = self.header(file)?;
        let (time, place) = (number(header.get(..8)), number(header.get(8..12)));
        let place =
            LinePlace { file: u32::try_from(place).unwrap_or(u32::MAX), line: number(header.get(12..20)) };
        Ok(Some(LineKey { time: Timestamp(time), place }))
    }

    fn take(&mut self, file: &File, text: &mut Vec<u8>) -> io::Result<LineFormat> {
        let header = self.header(file)?;
        let format = header.get(20).and_then(|format| LineFormat::ALL.get(usize::from(*format)));
        let format = *format.ok_or(ErrorKind::InvalidData)?;
        let length = usize::try_from(number(header.get(21..))).map_err(|_| ErrorKind::InvalidData)?;
        text.clear();
        text.extend_from_slice(self.bytes(file, HEADER + length)?.get(HEADER..).unwrap_or_default());
        self.read += HEADER + length;
        Ok(format)
    }

    fn header(&mut self, file: &File) -> io::Result<&[u8]> {
        self.bytes(file, HEADER)
    }

    /// The next bytes, which are read from the file unless they are in the buffer.
    fn bytes(&mut self, file: &File, count: usize) -> io::Result<&[u8]> {
        let left = self.buffer.len() - self.read;
        if left < count {
            self.buffer.drain(..self.read);
            self.read = 0;
            let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let more = PIECE.max(count - left).min(rest);
            self.buffer.resize(left + more, 0);
            file.read_exact_at(self.buffer.get_mut(left..).unwrap_or_default(), self.at)?;
            self.at += more as u64;
        }
        self.buffer.get(self.read..self.read + count).ok_or(ErrorKind::UnexpectedEof.into())
    }
}

/// The number of these bytes, at most eight, of which the lowest is the first.
fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.unwrap_or_default().iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
