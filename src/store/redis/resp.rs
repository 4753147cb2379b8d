//! The store's protocol (RESP2): commands as bytes, bytes as values. Pure: no socket, no time.
//!
//! A command is written directly into the send buffer. A script's reply, a list of integers, is read without an
//! allocation (up to two charges); other values may allocate. Malformed bytes are an error, never a panic, and all
//! sizes are bounded: a faulty server costs a connection. RESP3 is not supported: no `HELLO` asks for it.

use bytes::{BufMut as _, BytesMut};
use smallvec::SmallVec;

use super::server_error::ServerError;

/// The longest value, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The maximum number of values within a value.
const MAX_ELEMENTS: usize = 1 << 16;
/// The maximum depth of nested lists.
const MAX_DEPTH: usize = 8;

/// The integers of a reply: those of one or two charges need no allocation.
pub type Integers = SmallVec<[i64; 9]>;

/// A command that is being written.
#[derive(Debug)]
pub struct Command<'a> {
    out: &'a mut BytesMut,
    words: usize,
}

impl Command<'_> {
    /// Appends a whole command to `out`; `words` writes its arguments.
    pub fn write(out: &mut BytesMut, words: impl FnOnce(&mut Command<'_>)) {
        let start = out.len();
        let mut command = Command { out, words: 0 };
        words(&mut command);
        // The number of arguments is known only now, so the header is moved to the front. A wrong count given
        // beforehand would assign every later reply to another call.
        let (count, end) = (command.words, out.len());
        length(out, '*', count);
        let head = out.len() - end;
        if let Some(command) = out.get_mut(start..) {
            command.rotate_right(head);
        }
    }

    /// Writes one argument.
    pub fn word(&mut self, word: &[u8]) {
        self.parts(&[word]);
    }

    /// Writes one argument, joined from its parts.
    pub fn parts(&mut self, parts: &[&[u8]]) {
        self.words += 1;
        length(self.out, '$', parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.out.put_slice(part));
        self.out.put_slice(b"\r\n");
    }

    /// Writes one argument: a number in decimal digits.
    pub fn number(&mut self, number: u64) {
        self.word(itoa::Buffer::new().format(number).as_bytes());
    }
}

fn length(out: &mut BytesMut, kind: char, length: usize) {
    out.put_slice(&[kind as u8]);
    out.put_slice(itoa::Buffer::new().format(length).as_bytes());
    out.put_slice(b"\r\n");
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespValue {
    /// A list of only integers; also the empty list.
    Integers(Integers),
    /// An integer.
    Integer(i64),
    /// A simple or bulk string.
    Bytes(Box<[u8]>),
    /// A null string or null list.
    Nothing,
    /// Any other list.
    List(Vec<RespValue>),
    /// An error reply.
    Refused(ServerError),
}

/// Bytes that are not valid RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReply {
    /// A value begins with an unknown type byte.
    #[error("a value begins with byte {0}")]
    Mark(u8),
    /// A length or an integer is malformed, or too large.
    #[error("a number is none")]
    Number,
    /// A line or a string does not end where it should.
    #[error("a line has no end")]
    End,
    /// More than [`MAX_BYTES`] bytes or too many values in a value.
    #[error("an answer is too large")]
    TooLarge,
    /// An answer to nothing.
    #[error("unexpected reply: no command was pending")]
    Unasked,
}

/// Reads the value at the front of `bytes`, and returns it with its length; `None` while it is incomplete.
///
/// # Errors
///
/// The bytes can never become a valid value.
pub fn read(bytes: &[u8]) -> Result<Option<(RespValue, usize)>, MalformedReply> {
    let mut cursor = ReplyCursor { bytes, at: 0, elements: 0 };
    match cursor.value(0) {
        Ok(value) => Ok(Some((value, cursor.at))),
        Err(Stop::More) if bytes.len() < MAX_BYTES => Ok(None),
        Err(Stop::More) => Err(MalformedReply::TooLarge),
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

/// Why a value cannot be read.
enum Stop {
    /// It is incomplete.
    More,
    Malformed(MalformedReply),
}

impl From<MalformedReply> for Stop {
    fn from(malformed: MalformedReply) -> Self {
        Self::Malformed(malformed)
    }
}

struct ReplyCursor<'a> {
    bytes: &'a [u8],
    at: usize,
    elements: usize,
}

impl<'a> ReplyCursor<'a> {
    fn value(&mut self, depth: usize) -> Result<RespValue, Stop> {
        self.count()?;
        if depth > MAX_DEPTH {
            return Err(MalformedReply::TooLarge.into());
        }
        let mark = *self.bytes.get(self.at).ok_or(Stop::More)?;
        if !matches!(mark, b':' | b'*' | b'$' | b'+' | b'-') {
            return Err(MalformedReply::Mark(mark).into());
        }
        self.at += 1;
        let line = self.line()?;
        match mark {
            b'+' => Ok(RespValue::Bytes(line.into())),
            b'-' => Ok(RespValue::Refused(ServerError::read(line))),
            b':' => Ok(RespValue::Integer(integer(line)?)),
            b'$' => Ok(amount(line)?.map_or(Ok(None), |length| self.bytes(length).map(Some))?.into()),
            _ => amount(line)?.map_or(Ok(RespValue::Nothing), |count| self.list(count, depth)),
        }
    }

    /// A list of `count` values; integers for as long as all of them are integers.
    fn list(&mut self, count: usize, depth: usize) -> Result<RespValue, Stop> {
        let mut integers = Integers::new();
        while integers.len() < count {
            match self.integer_ahead()? {
                Some(integer) => integers.push(integer),
                None => return self.mixed_list(integers, count, depth),
            }
        }
        Ok(RespValue::Integers(integers))
    }

    /// The next value, if it is an integer.
    fn integer_ahead(&mut self) -> Result<Option<i64>, Stop> {
        if *self.bytes.get(self.at).ok_or(Stop::More)? != b':' {
            return Ok(None);
        }
        self.count()?;
        self.at += 1;
        Ok(Some(integer(self.line()?)?))
    }

    /// A list that begins with `integers`.
    fn mixed_list(&mut self, integers: Integers, count: usize, depth: usize) -> Result<RespValue, Stop> {
        let mut list: Vec<_> = integers.into_iter().map(RespValue::Integer).collect();
        while list.len() < count {
            list.push(self.value(depth + 1)?);
        }
        Ok(RespValue::List(list))
    }

    fn count(&mut self) -> Result<(), MalformedReply> {
        self.elements += 1;
        if self.elements > MAX_ELEMENTS { Err(MalformedReply::TooLarge) } else { Ok(()) }
    }

    /// The bytes up to the next line end, which is skipped.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = memchr::memchr(b'\r', rest).ok_or(Stop::More)?;
        match rest.get(end + 1) {
            None => Err(Stop::More),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(rest.get(..end).unwrap_or_default())
            }
            Some(_) => Err(MalformedReply::End.into()),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (Some(bytes), Some(end)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Err(Stop::More);
        };
        if end != b"\r\n" {
            return Err(MalformedReply::End.into());
        }
        self.at += length + 2;
        Ok(bytes)
    }
}

impl From<Option<&[u8]>> for RespValue {
    fn from(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Nothing, |bytes| Self::Bytes(bytes.into()))
    }
}

/// A length; `None` for -1, which means null.
fn amount(line: &[u8]) -> Result<Option<usize>, MalformedReply> {
    match integer(line)? {
        -1 => Ok(None),
        number => match usize::try_from(number).map_err(|_| MalformedReply::Number)? {
            number if number > MAX_BYTES => Err(MalformedReply::TooLarge),
            number => Ok(Some(number)),
        },
    }
}

fn integer(line: &[u8]) -> Result<i64, MalformedReply> {
    // `parse` would accept a plus sign, too.
    let text = std::str::from_utf8(line).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok()).ok_or(MalformedReply::Number)
}

#[cfg(test)]
mod tests;
