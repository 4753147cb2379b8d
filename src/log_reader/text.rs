//! Text of a log line, decoded only where it is used.

/// Text as the line has it, with its escapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedText<'l> {
    raw: &'l [u8],
    escapes: Escapes,
}

/// How a server writes bytes that it does not write as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escapes {
    #[default]
    None,
    /// `\u00e9` of JSON, `\xHH` of Apache and nginx.
    Backslash,
    /// `#HH` of `HAProxy`.
    Hash,
}

impl<'l> LoggedText<'l> {
    /// Text without escapes.
    pub(super) const fn plain(raw: &'l [u8]) -> Self {
        Self { raw, escapes: Escapes::None }
    }

    /// Text in which each backslash begins an escape: of JSON (`\u00e9`), of Apache and nginx (`\xHH`).
    pub(super) const fn escaped(raw: &'l [u8]) -> Self {
        Self { raw, escapes: Escapes::Backslash }
    }

    /// Text in which each `#` begins the two hexadecimal digits of a byte.
    pub(super) const fn hash_escaped(raw: &'l [u8]) -> Self {
        Self { raw, escapes: Escapes::Hash }
    }

    /// A part of this text.
    pub(super) const fn part(self, raw: &'l [u8]) -> Self {
        Self { raw, escapes: self.escapes }
    }

    /// The bytes as the line has them.
    pub(super) const fn raw(self) -> &'l [u8] {
        self.raw
    }

    /// `None` for an empty text and for `-`, which most formats write for "unknown".
    pub(super) fn known(self) -> Option<Self> {
        (!self.raw.is_empty() && self.raw != b"-").then_some(self)
    }

    /// Appends the decoded bytes.
    pub(super) fn write_to(self, output: &mut Vec<u8>) {
        let mark = match self.escapes {
            Escapes::None => {
                output.extend_from_slice(self.raw);
                return;
            }
            Escapes::Backslash => b'\\',
            Escapes::Hash => b'#',
        };
        let mut rest = self.raw;
        while let Some(at) = memchr::memchr(mark, rest) {
            let (clean, escape) = rest.split_at(at);
            output.extend_from_slice(clean);
            let escape = escape.get(1..).unwrap_or_default();
            rest = match self.escapes {
                Escapes::Hash => hex_byte(b"#", escape, output),
                Escapes::None | Escapes::Backslash => backslash_escape(escape, output),
            };
        }
        output.extend_from_slice(rest);
    }

    /// Replaces `output` by the decoded text; bytes that are not UTF-8 become U+FFFD.
    pub(super) fn assign_to(self, output: &mut String) {
        output.clear();
        if self.escapes == Escapes::None
            && let Ok(text) = std::str::from_utf8(self.raw)
        {
            output.push_str(text);
            return;
        }
        let mut bytes = Vec::with_capacity(self.raw.len());
        self.write_to(&mut bytes);
        output.push_str(&String::from_utf8_lossy(&bytes));
    }
}

/// Appends what the escape stands for, of which `escape` begins after the backslash. Returns the bytes after it.
fn backslash_escape<'l>(escape: &'l [u8], output: &mut Vec<u8>) -> &'l [u8] {
    let Some((&kind, rest)) = escape.split_first() else {
        output.push(b'\\');
        return escape;
    };
    let byte = match kind {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'x' => return hex_byte(b"\\x", rest, output),
        b'u' => return unicode(rest, output),
        other => other,
    };
    output.push(byte);
    rest
}

/// Appends the byte of two digits, or the `mark` before them if they are none. Returns the bytes after it.
fn hex_byte<'l>(mark: &[u8], digits: &'l [u8], output: &mut Vec<u8>) -> &'l [u8] {
    match hex(digits, 2).and_then(|(value, rest)| Some((u8::try_from(value).ok()?, rest))) {
        Some((byte, rest)) => {
            output.push(byte);
            rest
        }
        None => {
            output.extend_from_slice(mark);
            digits
        }
    }
}

/// A character of the basic plane, or a pair of surrogates; a lone surrogate becomes U+FFFD.
fn unicode<'l>(digits: &'l [u8], output: &mut Vec<u8>) -> &'l [u8] {
    let Some((first, rest)) = hex(digits, 4) else {
        output.extend_from_slice(b"\\u");
        return digits;
    };
    let pair = || {
        let (low, after) = hex(rest.strip_prefix(b"\\u")?, 4)?;
        let is_pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&low);
        let code = 0x1_0000 + (first.wrapping_sub(0xd800) << 10) + low.wrapping_sub(0xdc00);
        is_pair.then(|| (char::from_u32(code), after))
    };
    let (character, after) = match char::from_u32(first) {
        Some(character) => (Some(character), rest),
        None => pair().unwrap_or((None, rest)),
    };
    let mut bytes = [0; 4];
    let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
    output.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
    after
}

/// The value of at most 4 hexadecimal digits.
fn hex(digits: &[u8], count: usize) -> Option<(u32, &[u8])> {
    let (digits, rest) = digits.split_at_checked(count)?;
    let value =
        digits.iter().try_fold(0_u32, |sum, &digit| Some(sum << 4 | char::from(digit).to_digit(16)?))?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(raw: &str) -> Vec<u8> {
        let mut output = Vec::new();
        LoggedText::escaped(raw.as_bytes()).write_to(&mut output);
        output
    }

    #[test]
    fn escapes_of_json_and_of_servers_are_decoded() {
        assert_eq!(decoded(r#"a\"b\\c\/d"#), br#"a"b\c/d"#);
        assert_eq!(decoded(r"\u00e9\ud83d\ude00\u000d"), "é😀\r".as_bytes());
        assert_eq!(decoded(r"\x16\x03\xFF"), [0x16, 3, 0xff]);
        assert_eq!(decoded(r"\n\t\r"), b"\n\t\r");
    }

    #[test]
    fn escapes_of_haproxy_are_decoded() {
        for (raw, expected) in
            [("/a#22#C3#a9#23", "/a\"é#"), (r"/a\x22", r"/a\x22"), ("#", "#"), ("#2", "#2"), ("#zz", "#zz")]
        {
            let mut output = Vec::new();
            LoggedText::hash_escaped(raw.as_bytes()).write_to(&mut output);
            assert_eq!(output, expected.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn faulty_escapes_are_kept_as_they_are() {
        assert_eq!(decoded(r"\xZZ"), br"\xZZ");
        assert_eq!(decoded(r"\u12"), br"\u12");
        assert_eq!(decoded("\\"), b"\\");
        assert_eq!(decoded(r"\ud83dx"), "\u{fffd}x".as_bytes());
    }

    #[test]
    fn a_string_takes_the_decoded_text() {
        let mut text = "old".to_owned();
        LoggedText::escaped(br"\xe9a").assign_to(&mut text);
        assert_eq!(text, "\u{fffd}a");
        LoggedText::plain("é".as_bytes()).assign_to(&mut text);
        assert_eq!(text, "é");
    }
}
