//! The columns of a line of text: words between blanks, and text in quotes or brackets.

use super::text::LoggedText;

/// Takes the next word from the text.
pub(super) fn word<'l>(rest: &mut &'l [u8]) -> LoggedText<'l> {
    let text = blanks(rest);
    let length = memchr::memchr(b' ', text).unwrap_or(text.len());
    let (word, after) = text.split_at(length);
    *rest = after;
    LoggedText::plain(word)
}

/// The text without the blanks that it begins with.
pub(super) const fn blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// The text in quotes, in which a backslash begins an escape, and what is after it.
pub(super) fn quoted(text: &[u8]) -> Option<(LoggedText<'_>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let (mut at, mut has_escapes) = (0, false);
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            let (raw, rest) = (text.get(..at)?, text.get(at + 1..)?);
            let text = if has_escapes { LoggedText::escaped(raw) } else { LoggedText::plain(raw) };
            return Some((text, rest));
        }
        has_escapes = true;
        at += 2;
    }
}

/// Takes the next column from the text: a text in quotes, or else a word.
pub(super) fn column<'l>(rest: &mut &'l [u8]) -> LoggedText<'l> {
    match quoted(blanks(rest)) {
        Some((text, after)) => {
            *rest = after;
            text
        }
        None => word(rest),
    }
}

/// The text in brackets, with which the text begins, and what is after them.
pub(super) fn bracketed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"[")?;
    let (inner, rest) = text.split_at_checked(memchr::memchr(b']', text)?)?;
    Some((inner, rest.get(1..)?))
}
