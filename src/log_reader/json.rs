//! One JSON object on a line, read in a single pass. Nothing is copied: values are parts of the line.
//!
//! The grammar is checked as far as the structure needs it. Nested values are skipped as a whole, without recursion.

use std::ops::ControlFlow;

use super::text::LoggedText;

/// A value, as a part of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonValue<'l> {
    /// A string, without its quotes.
    Text(LoggedText<'l>),
    /// A number.
    Number(&'l [u8]),
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
    /// An object, with its braces.
    Object(&'l [u8]),
    /// An array, with its brackets.
    Array(&'l [u8]),
}

impl<'l> JsonValue<'l> {
    /// The text of a string or number: servers write numbers in quotes, too.
    pub(super) const fn text(self) -> Option<LoggedText<'l>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(digits) => Some(LoggedText::plain(digits)),
            _ => None,
        }
    }
}

/// Calls `each` with the raw key and the value of each member, until it breaks.
///
/// Returns `None` if the text is not a JSON object as far as it was read.
#[inline]
pub(super) fn members<'l>(
    object: &'l [u8],
    mut each: impl FnMut(&'l [u8], JsonValue<'l>) -> ControlFlow<()>,
) -> Option<()> {
    let mut rest = blanks(blanks(object).strip_prefix(b"{")?);
    if let [b'}', after @ ..] = rest {
        return blanks(after).is_empty().then_some(());
    }
    loop {
        let (key, after) = string(rest.strip_prefix(b"\"")?)?;
        let (value, after) = value(blanks(blanks(after).strip_prefix(b":")?))?;
        if each(key.raw(), value).is_break() {
            return Some(());
        }
        match blanks(after) {
            [b',', after @ ..] => rest = blanks(after),
            [b'}', after @ ..] => return blanks(after).is_empty().then_some(()),
            _ => return None,
        }
    }
}

/// The first element of an array that is a string.
pub(super) fn first_text(array: &[u8]) -> Option<LoggedText<'_>> {
    let rest = blanks(array.strip_prefix(b"[")?);
    string(rest.strip_prefix(b"\"")?).map(|(text, _)| text)
}

// Inlined: its result would be passed through memory, and read before it is there.
#[inline(always)]
fn value(bytes: &[u8]) -> Option<(JsonValue<'_>, &[u8])> {
    match bytes.first()? {
        b'"' => string(bytes.get(1..)?).map(|(text, rest)| (JsonValue::Text(text), rest)),
        b'n' => Some((JsonValue::Null, bytes.strip_prefix(b"null")?)),
        b't' => Some((JsonValue::Bool, bytes.strip_prefix(b"true")?)),
        b'f' => Some((JsonValue::Bool, bytes.strip_prefix(b"false")?)),
        b'{' => nested(bytes).map(|(inner, rest)| (JsonValue::Object(inner), rest)),
        b'[' => nested(bytes).map(|(inner, rest)| (JsonValue::Array(inner), rest)),
        b'-' | b'0'..=b'9' => {
            let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
            let length = bytes.iter().position(|byte| !is_part(byte))?;
            let (digits, rest) = bytes.split_at_checked(length)?;
            Some((JsonValue::Number(digits), rest))
        }
        _ => None,
    }
}

/// The string that begins after a quote, and what is after its end.
#[inline(always)]
fn string(bytes: &[u8]) -> Option<(LoggedText<'_>, &[u8])> {
    let (mut at, mut has_escapes) = (0, false);
    loop {
        at += quote_or_backslash(bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            let (raw, rest) = (bytes.get(..at)?, bytes.get(at + 1..)?);
            let text = if has_escapes { LoggedText::escaped(raw) } else { LoggedText::plain(raw) };
            return Some((text, rest));
        }
        has_escapes = true;
        at += 2;
    }
}

/// The index of the first quote or backslash. Most strings are short, so eight bytes at a time are compared in place.
#[inline(always)]
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
        if found != 0 {
            return Some(index * 8 + (found.trailing_zeros() / 8) as usize);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + at)
}

const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The top bit of the first byte that is zero, and perhaps of later ones.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & repeated(0x80)
}

/// The object or array that the bytes begin with, and what is after it.
fn nested(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match bytes.get(at)? {
            b'"' => {
                let (_, rest) = string(bytes.get(at + 1..)?)?;
                at = bytes.len() - rest.len();
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => (),
        }
        at += 1;
        if depth == 0 {
            return bytes.split_at_checked(at);
        }
    }
}

#[inline]
const fn blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        members(text.as_bytes(), |key, value| {
            found.push((String::from_utf8_lossy(key).into_owned(), format!("{value:?}")));
            ControlFlow::Continue(())
        })?;
        Some(found)
    }

    #[test]
    fn members_are_found_in_their_order() {
        let found = read(r#" {"a":"x\"y", "b" : -1.5e3,"c":{"d":["}"]},"e":[1,{"]":2}],"f":null,"g":true} "#);
        let keys: Vec<_> = found.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b", "c", "e", "f", "g"]);
        assert_eq!(read("{}"), Some(Vec::new()));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "{",
            "[]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":\"x}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_text_of_an_array_is_found() {
        assert_eq!(first_text(br#"["a","b"]"#), Some(LoggedText::plain(b"a")));
        assert_eq!(first_text(b"[]"), None);
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_read(map in prop::collection::btree_map("[a-z]{1,4}", ".{0,20}", 0..8)) {
            let text = serde_json::to_string(&map).unwrap();
            let mut found = std::collections::BTreeMap::new();
            let read = members(text.as_bytes(), |key, value| {
                let mut string = String::new();
                value.text().unwrap().assign_to(&mut string);
                found.insert(String::from_utf8_lossy(key).into_owned(), string);
                ControlFlow::Continue(())
            });
            prop_assert_eq!(read, Some(()));
            prop_assert_eq!(found, map);
            for cut in 0..text.len() {
                prop_assert_eq!(members(&text.as_bytes()[..cut], |_, _| ControlFlow::Continue(())), None);
            }
        }

        #[test]
        fn random_bytes_are_read_without_panic(bytes in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'"'), Just(b':'), Just(b'}'), Just(b']'), any::<u8>()], 0..60)) {
            let _ = members(&bytes, |_, _| ControlFlow::Continue(()));
        }
    }
}
