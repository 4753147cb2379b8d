//! The line before a chunk's data: `chunk-size [ chunk-ext ] CRLF` (RFC 9112 §7.1, §7.1.1).
//!
//! Extensions are ignored and never forwarded, but they are parsed by the grammar: a parser that skips them differently
//! finds the data elsewhere.

use super::super::syntax::is_token;

/// Maximum hexadecimal digits of a size, leading zeros included: below 2^60, which no body reaches and no sum
/// overflows.
const MAX_DIGITS: u8 = 15;

/// Whether blanks between a size and the end of its line are accepted. The grammar has none there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// In requests: a parser that refuses them sees another message.
    Refused,
    /// In responses: some servers pad the size to a fixed width.
    Read,
}

/// A line being parsed, byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeLine {
    /// The chunk's size, by the digits so far.
    pub(super) size: u64,
    position: Position,
}

/// The position of the next byte in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Among the digits; their number so far.
    Digits(u8),
    /// Among blanks after the size.
    AfterSize,
    /// Where the name of an extension begins, or blanks before it.
    NameStart,
    /// In the name.
    Name,
    /// Among blanks after the name.
    AfterName,
    /// After `=`, or blanks after that.
    ValueStart,
    /// In a value that is a token.
    Token,
    /// In a value that is a quoted string.
    Quoted,
    /// Behind a backslash in a quoted string.
    QuotedPair,
    /// Behind the closing quote.
    QuoteEnd,
    /// Among blanks after a value: only another extension may follow.
    AfterValue,
}

impl SizeLine {
    /// The beginning of a line.
    pub(super) const START: Self = Self { size: 0, position: Position::Digits(0) };

    /// Consumes the next byte, which is not CR. `None`: the line is malformed.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        use Position as P;
        let blank = matches!(byte, b' ' | b'\t');
        let position = match (self.position, byte) {
            (P::Digits(digits), byte) if byte.is_ascii_hexdigit() => return self.digit(digits, byte),
            (P::Digits(1..) | P::AfterSize, _) if blank => P::AfterSize,
            (P::NameStart, _) if blank => P::NameStart,
            (P::NameStart | P::Name, byte) if is_token(byte) => P::Name,
            (P::Name | P::AfterName, _) if blank => P::AfterName,
            (P::Name | P::AfterName, b'=') => P::ValueStart,
            (P::ValueStart, _) if blank => P::ValueStart,
            (P::ValueStart, b'"') | (P::QuotedPair, b'\t' | b' '..=b'~' | 0x80..) => P::Quoted,
            (P::ValueStart | P::Token, byte) if is_token(byte) => P::Token,
            (P::Quoted, b'"') => P::QuoteEnd,
            (P::Quoted, b'\\') => P::QuotedPair,
            (P::Quoted, b'\t' | b' '..=b'~' | 0x80..) => P::Quoted,
            (P::Token | P::QuoteEnd | P::AfterValue, _) if blank => P::AfterValue,
            (
                P::Digits(1..)
                | P::AfterSize
                | P::Name
                | P::AfterName
                | P::Token
                | P::QuoteEnd
                | P::AfterValue,
                b';',
            ) => P::NameStart,
            _ => return None,
        };
        Some(Self { position, ..self })
    }

    /// Whether the line may end here.
    pub(super) fn may_end(self, padding: Padding) -> bool {
        match self.position {
            Position::Digits(digits) => digits > 0,
            Position::AfterSize => padding == Padding::Read,
            Position::Name | Position::Token | Position::QuoteEnd => true,
            Position::NameStart
            | Position::AfterName
            | Position::ValueStart
            | Position::Quoted
            | Position::QuotedPair
            | Position::AfterValue => false,
        }
    }

    fn digit(self, digits: u8, byte: u8) -> Option<Self> {
        let digit = char::from(byte).to_digit(16)?;
        let position = Position::Digits(digits + 1);
        (digits < MAX_DIGITS).then_some(Self { size: self.size * 16 + u64::from(digit), position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size in a line without its CR LF, if it is valid.
    fn read(line: &str, padding: Padding) -> Option<u64> {
        let read = line.bytes().try_fold(SizeLine::START, SizeLine::next)?;
        read.may_end(padding).then_some(read.size)
    }

    #[test]
    fn extensions_are_read_by_the_grammar() {
        for good in [
            "2",
            "02",
            "2;x",
            "2;x;y",
            "2 ;x",
            "2\t ; \tx",
            "2;x=y",
            "2;x = y",
            "2;x=\"\"",
            "2;x=\"a b\\\"c;=\"",
            "2;x=\"\\\\\" ; y=1",
            "2;x ;y",
            "2;x=\"\u{e9}\"",
        ] {
            assert_eq!(read(good, Padding::Refused), Some(2), "{good:?}");
            assert_eq!(read(good, Padding::Read), Some(2), "{good:?}");
        }
        for bad in [
            "",
            ";x",
            "g",
            "-2",
            "+2",
            "0x2",
            " 2",
            "2;",
            "2 x",
            "2;;x",
            "2; ",
            "2;=x",
            "2;x=",
            "2;x=;y",
            "2;x y",
            "2;x=y z",
            "2;x=\"y",
            "2;x=\"y\\",
            "2;x=\"y\"z",
            "2;x=\"\u{1}\"",
            "2;x(y)",
            "2;x ",
            "2;x=y ",
            "2\u{b};x",
            "2\n",
            "2;x=\"\n\"",
            "2_0",
            "2,2",
        ] {
            assert_eq!(read(bad, Padding::Refused), None, "{bad:?}");
            assert_eq!(read(bad, Padding::Read), None, "{bad:?}");
        }
    }

    #[test]
    fn padding_is_read_in_responses_only() {
        for padded in ["2 ", "2\t", "2      "] {
            assert_eq!(read(padded, Padding::Refused), None, "{padded:?}");
            assert_eq!(read(padded, Padding::Read), Some(2), "{padded:?}");
        }
    }

    #[test]
    fn a_size_has_at_most_15_digits() {
        assert_eq!(read("fffffffffffffff", Padding::Refused), Some((1 << 60) - 1));
        assert_eq!(read("000000000000002", Padding::Refused), Some(2));
        assert_eq!(read("0000000000000000", Padding::Refused), None);
        assert_eq!(read("1000000000000000", Padding::Refused), None);
    }
}
