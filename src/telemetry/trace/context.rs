//! Trace context: the `traceparent` header of W3C Trace Context, level 2.

use std::fmt;

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
/// The known flags.
const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The id of a trace; never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span in its trace; never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A request's position in a trace, as passed from one participant to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The span that the request was sent by.
    pub span: SpanId,
    /// Whether it is recorded.
    pub sampled: bool,
    /// Whether the trace's id is random enough for sampling decisions; the flag is passed on unchanged.
    pub random: bool,
}

impl TraceId {
    /// `None` if all are zero.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// As they are sent, the highest first.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// `None` if all are zero.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// As they are sent, the highest first.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Context {
    /// Reads the value of a `traceparent`. `None` if it is malformed: then a new trace begins.
    ///
    /// Fields that a later version appends are ignored.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let [version] = number(known.get(..2)?)?;
        let has_good_end = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let dashes = [2, 35, 52].iter().all(|index| known.get(*index) == Some(&b'-'));
        if !has_good_end || !dashes {
            return None;
        }
        let [flags] = number(known.get(53..)?)?;
        Some(Self {
            trace: TraceId::new(number(known.get(3..35)?)?)?,
            span: SpanId::new(number(known.get(36..52)?)?)?,
            sampled: flags & SAMPLED != 0,
            random: flags & RANDOM != 0,
        })
    }

    /// The same as the value of a `traceparent`, of version 00.
    pub fn text(&self) -> [u8; LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let (flags, trace, span) = (self.flags(), self.trace.0, self.span.0);
        let (indices, bytes) = ([3, 36, 53], [trace.as_slice(), span.as_slice(), &[flags]]);
        for (index, bytes) in indices.into_iter().zip(bytes) {
            for (digits, byte) in text[index..].chunks_exact_mut(2).zip(bytes) {
                digits[0] = DIGITS[usize::from(byte >> 4)];
                digits[1] = DIGITS[usize::from(byte & 0xf)];
            }
        }
        text
    }

    /// The flags, without unknown ones (§3.2.2.5).
    pub fn flags(&self) -> u8 {
        (u8::from(self.sampled) * SAMPLED) | (u8::from(self.random) * RANDOM)
    }
}

/// Bytes from lower-case digits, two each.
fn number<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = [*pair.first()?, *pair.get(1)?];
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
