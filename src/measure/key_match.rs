//! A key of an object that is compared with tokens of pointers while it is read: nothing of it is stored.

use super::swar::find_quote;

/// Which tokens a key equals so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyMatch {
    /// A bit for each pointer whose token begins with what was read.
    equal: u32,
    /// The length of what was read, without escapes.
    length: usize,
    escape: Escape,
    /// A high surrogate that waits for its other half.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    Begun,
    Hex {
        digits: u8,
        value: u16,
    },
}

/// How a key goes on after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRead {
    /// Beyond these bytes.
    Open,
    /// It has ended after this number of bytes; with the pointers whose token it equals.
    Ended(usize, u32),
    /// It is malformed.
    Fault,
}

/// The tokens that a key is compared with: the bits of the pointers, and the token of each.
pub(super) trait Tokens {
    /// The bits of the pointers whose token satisfies a condition, among those of `bits`.
    fn filter(&self, bits: u32, is_good: impl Fn(&[u8]) -> bool) -> u32;
}

impl KeyMatch {
    /// A key that may be a token of these pointers.
    pub(super) fn new(candidates: u32) -> Self {
        Self { equal: candidates, ..Self::default() }
    }

    /// Reads the next bytes of the key, up to its final quote.
    pub(super) fn scan(&mut self, bytes: &[u8], tokens: &impl Tokens) -> KeyRead {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.escape {
                Escape::None if byte == b'"' => {
                    self.end_surrogate();
                    let length = self.length;
                    return KeyRead::Ended(at + 1, tokens.filter(self.equal, |token| token.len() == length));
                }
                Escape::None if byte == b'\\' => {
                    self.escape = Escape::Begun;
                    at += 1;
                }
                Escape::None => {
                    let rest = &bytes[at..];
                    let length = find_quote(rest).unwrap_or(rest.len());
                    self.end_surrogate();
                    self.compare(&rest[..length], tokens);
                    at += length;
                }
                Escape::Begun | Escape::Hex { .. } => {
                    if !self.read_escape(byte, tokens) {
                        return KeyRead::Fault;
                    }
                    at += 1;
                }
            }
        }
        KeyRead::Open
    }

    /// Reads a byte after `\`. Returns whether it may stand there.
    fn read_escape(&mut self, byte: u8, tokens: &impl Tokens) -> bool {
        if let Escape::Hex { digits, value } = self.escape {
            let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
            let Some(digit) = digit else { return false };
            let value = value << 4 | digit;
            if digits < 3 {
                self.escape = Escape::Hex { digits: digits + 1, value };
            } else {
                self.escape = Escape::None;
                self.unit(value, tokens);
            }
            return true;
        }
        self.escape = Escape::None;
        let plain = match byte {
            b'u' => {
                self.escape = Escape::Hex { digits: 0, value: 0 };
                return true;
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'"' | b'\\' | b'/' => byte,
            _ => return false,
        };
        self.end_surrogate();
        self.compare(&[plain], tokens);
        true
    }

    /// Reads a unit of UTF-16.
    fn unit(&mut self, unit: u16, tokens: &impl Tokens) {
        let high = self.high.take();
        let point = match (high, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                0x1_0000 + (u32::from(high - 0xd800) << 10) + u32::from(unit - 0xdc00)
            }
            (None, 0xd800..=0xdbff) => {
                self.high = Some(unit);
                return;
            }
            // A lone surrogate is not a character: the key is none that a pointer can name.
            (Some(_), _) => 0xd800,
            (None, unit) => unit.into(),
        };
        match char::from_u32(point) {
            Some(character) => self.compare(character.encode_utf8(&mut [0; 4]).as_bytes(), tokens),
            None => self.equal = 0,
        }
    }

    fn end_surrogate(&mut self) {
        if self.high.take().is_some() {
            self.equal = 0;
        }
    }

    fn compare(&mut self, bytes: &[u8], tokens: &impl Tokens) {
        if self.equal != 0 {
            let length = self.length;
            let goes_on = |token: &[u8]| token.get(length..).is_some_and(|rest| rest.starts_with(bytes));
            self.equal = tokens.filter(self.equal, goes_on);
            self.length += bytes.len();
        }
    }
}
