//! Blocks of fields (HPACK, RFC 7541), as far as it takes to see whether `:path` has a fragment.
//!
//! Nothing is decoded or kept but two bits for each entry of the dynamic table. It is the `h2` crate that refuses what is
//! malformed; here that may be read in any way, as the connection ends.

use super::frames::split;
use super::huffman::Huffman;

const PATH: &[u8] = b":path";
/// The same in Huffman code.
const PATH_IN_HUFFMAN: &[u8] = &[0xb9, 0x58, 0xd3, 0x3f];
/// Entries of the static table; those of the dynamic one stand behind, the newest first.
const STATIC: u64 = 61;

/// Reads the blocks of a connection in their order.
#[derive(Debug, Default)]
pub struct Paths {
    step: Step,
    number: Number,
    /// Bytes of the string still to come.
    left: u64,
    /// Of a name that may be `:path`, what is to come if it is.
    rest: Option<&'static [u8]>,
    /// Whether the field is kept in the dynamic table.
    kept: bool,
    /// Whether its name is `:path`.
    is_path: bool,
    /// Whether its value has a `#`.
    has_hash: bool,
    /// The value, if it is in Huffman code.
    huffman: Option<Huffman>,
    /// Whether some path of this block has a fragment.
    found: bool,
    /// Entries of the dynamic table whose name is `:path`, the newest lowest. There is no room for 128 of them in 4 KiB, and
    /// who refers to one that is not there any more loses the connection, so nothing need be taken out.
    paths: u128,
    /// Those of them with a fragment.
    fragments: u128,
}

/// What the next byte is.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// The first of a field.
    #[default]
    Field,
    /// The first of a string's length.
    Length(Text),
    /// One more of a number.
    Number(Meaning),
    /// One of a string.
    Text(Text),
}

#[derive(Clone, Copy, Debug)]
enum Text {
    Name,
    Value,
}

/// What a number says.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// Where the whole field stands in the tables.
    Field,
    /// Where its name stands; 0: nowhere.
    Name,
    /// How large the dynamic table may be.
    Room,
    /// How long a string is.
    Length(Text),
}

impl Paths {
    /// A block begins.
    pub fn begin(&mut self) {
        (self.step, self.found) = (Step::Field, false);
    }

    /// Whether a path of the block, as far as it has come, has a fragment.
    pub fn has_fragment(&self) -> bool {
        self.found
    }

    /// These bytes of the block come next.
    pub fn advance(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            if let Step::Text(text) = self.step {
                let most = usize::try_from(self.left).unwrap_or(usize::MAX);
                self.text(text, split(&mut bytes, most));
            } else {
                self.byte(*first);
                bytes = rest;
            }
        }
    }

    fn byte(&mut self, byte: u8) {
        match self.step {
            Step::Field => {
                let (meaning, mask) = match byte {
                    0x80.. => (Meaning::Field, 0x7f),
                    0x40.. => (Meaning::Name, 0x3f),
                    0x20.. => (Meaning::Room, 0x1f),
                    _ => (Meaning::Name, 0x0f),
                };
                self.kept = mask == 0x3f;
                self.begin_number(byte, mask, meaning);
            }
            Step::Length(text) => {
                let huffman = byte & 0x80 != 0;
                match text {
                    Text::Name => self.rest = Some(if huffman { PATH_IN_HUFFMAN } else { PATH }),
                    Text::Value => self.huffman = huffman.then(Huffman::default),
                }
                self.begin_number(byte, 0x7f, Meaning::Length(text));
            }
            Step::Number(meaning) => {
                if self.number.advance(byte) {
                    self.understand(meaning);
                }
            }
            Step::Text(_) => {}
        }
    }

    fn begin_number(&mut self, byte: u8, mask: u8, meaning: Meaning) {
        self.number = Number { value: u64::from(byte & mask), shift: 0 };
        if byte & mask == mask {
            self.step = Step::Number(meaning);
        } else {
            self.understand(meaning);
        }
    }

    fn understand(&mut self, meaning: Meaning) {
        let value = self.number.value;
        self.step = match meaning {
            Meaning::Field => {
                self.found |= stands(self.fragments, value);
                Step::Field
            }
            Meaning::Room => Step::Field,
            Meaning::Name if value == 0 => Step::Length(Text::Name),
            Meaning::Name => {
                self.is_path = matches!(value, 4 | 5) || stands(self.paths, value);
                Step::Length(Text::Value)
            }
            Meaning::Length(text) => {
                (self.left, self.has_hash) = (value, false);
                Step::Text(text)
            }
        };
        if let (Step::Text(text), 0) = (self.step, value) {
            self.end(text);
        }
    }

    fn text(&mut self, text: Text, here: &[u8]) {
        self.left -= here.len() as u64;
        match (text, &mut self.huffman) {
            (Text::Name, _) => self.rest = self.rest.and_then(|rest| rest.strip_prefix(here)),
            (Text::Value, _) if !self.is_path => {}
            (Text::Value, Some(huffman)) => self.has_hash |= huffman.has_hash(here, self.left == 0),
            (Text::Value, None) => self.has_hash |= memchr::memchr(b'#', here).is_some(),
        }
        if self.left == 0 {
            self.end(text);
        }
    }

    fn end(&mut self, text: Text) {
        self.step = match text {
            Text::Name => {
                self.is_path = self.rest == Some(&[]);
                Step::Length(Text::Value)
            }
            Text::Value => {
                self.found |= self.has_hash;
                if self.kept {
                    self.paths = self.paths << 1 | u128::from(self.is_path);
                    self.fragments = self.fragments << 1 | u128::from(self.has_hash);
                }
                Step::Field
            }
        };
    }
}

/// Whether what stands at this place of the tables is among these of the dynamic one.
fn stands(among: u128, at: u64) -> bool {
    let place = at.checked_sub(STATIC + 1).and_then(|place| u32::try_from(place).ok());
    place.and_then(|place| among.checked_shr(place)).is_some_and(|from| from & 1 == 1)
}

/// A number that begins in the low bits of a byte and goes on in further ones (RFC 7541 §5.1).
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    value: u64,
    shift: u32,
}

impl Number {
    /// One byte more. True: that was the last.
    fn advance(&mut self, byte: u8) -> bool {
        self.value = self.value.saturating_add(u64::from(byte & 0x7f) << self.shift);
        // More bytes than that are malformed.
        self.shift = (self.shift + 7).min(28);
        byte & 0x80 == 0
    }
}
