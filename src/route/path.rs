//! Path normalisation: what is matched is what is forwarded.
//!
//! Escapes come first: a percent-encoded unreserved character is decoded (so `%2e%2e` is `..`), any other escape
//! stays and gets upper-case hex digits (RFC 3986 §6.2.2.1 and §6.2.2.2). `%2F`, `%5C` and `%25` therefore stay what
//! they are, and nothing is decoded twice. Then dot segments go (§5.2.4). Two forms result, because `//` and `..`
//! interact:
//!
//! | raw | merged: `//` is `/`, before dot segments | kept: an empty segment is a segment |
//! |---|---|---|
//! | `/a//b` | `/a/b` | `/a//b` |
//! | `/a//../b` | `/b` | `/a/b` |
//! | `/a//../..` | a fault | a fault, though only the merged form leaves the root |
//!
//! Case, a trailing slash and `;` are significant. Characters that a URI may not hold but clients send (`{`, `|`,
//! `"`, …) are passed as they are, and are not equal to their escapes.

use std::borrow::Cow;

/// A normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// With duplicate slashes merged.
    merged: Cow<'a, str>,
    /// With duplicate slashes kept, where that differs.
    kept: Option<Cow<'a, str>>,
}

/// Why a path is refused with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Does not begin with `/`.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    /// A backslash, a control, a blank, a byte above 127, or a `?` or `#` that would end the path.
    #[error("the path contains the byte {0:#04x}, which must be percent-encoded")]
    Forbidden(u8),
    /// `%` without two hexadecimal digits.
    #[error("the path contains a `%` that is not followed by two hexadecimal digits")]
    BadEscape,
    /// `%00`.
    #[error("the path contains `%00`")]
    Nul,
    /// More `..` than there are segments before it.
    #[error("the path leads above the root with `..`")]
    AboveRoot,
}

impl<'a> Path<'a> {
    /// Normalises dot segments, duplicate slashes and percent-encoded unreserved characters (RFC 3986 §6.2.2).
    /// Borrows, after one scan, when there is nothing to do. `raw` has no query.
    ///
    /// # Errors
    /// A [`PathFault`] for whatever a backend might read in another way than we do.
    pub fn parse(raw: &'a str) -> Result<Self, PathFault> {
        if is_normal(raw)? {
            return Ok(Self { merged: Cow::Borrowed(raw), kept: None });
        }
        let decoded = decode_unreserved(raw)?;
        let merged = resolve(&decoded, true)?;
        let kept = resolve(&decoded, false)?;
        let kept = (kept != merged).then(|| borrow_if_same(raw, kept));
        Ok(Self { merged: borrow_if_same(raw, merged), kept })
    }

    /// The path in the form that a route with this `merge_slashes` matches and forwards.
    pub fn form(&self, merge_slashes: bool) -> &str {
        match &self.kept {
            Some(kept) if !merge_slashes => kept,
            _ => &self.merged,
        }
    }

    /// The same path, on its own.
    pub fn into_owned(self) -> Path<'static> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        Path { merged: own(self.merged), kept: self.kept.map(own) }
    }
}

/// `path` without the leading segments `prefix`, as `strip_prefix` forwards it: always begins with `/`. A prefix that
/// ends inside a segment (`/se` of `/search`) does not apply, and the path stays whole.
pub fn without_prefix<'p>(path: &'p str, prefix: &str) -> &'p str {
    match path.strip_prefix(prefix.strip_suffix('/').unwrap_or(prefix)) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Whether the path is its own normal form in both forms, as nearly every path is. May say `false` of one that is
/// (`/.well-known`), never `true` of one that is not.
fn is_normal(raw: &str) -> Result<bool, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::NotAbsolute);
    }
    let mut normal = true;
    let mut before = 0;
    for &byte in raw.as_bytes() {
        match byte {
            0..=b' ' | b'\\' | b'?' | b'#' | 0x7f.. => return Err(PathFault::Forbidden(byte)),
            b'%' => normal = false,
            b'/' | b'.' if before == b'/' => normal = false,
            _ => {}
        }
        before = byte;
    }
    Ok(normal)
}

/// Decodes escapes of unreserved characters, and writes the hex digits of all others in upper case.
fn decode_unreserved(raw: &str) -> Result<String, PathFault> {
    let mut pieces = raw.split('%');
    let mut decoded = String::with_capacity(raw.len());
    decoded.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (byte, rest) = escape(piece).ok_or(PathFault::BadEscape)?;
        match byte {
            0 => return Err(PathFault::Nul),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => decoded.push(byte.into()),
            _ => push_escape(&mut decoded, byte),
        }
        decoded.push_str(rest);
    }
    Ok(decoded)
}

/// The byte that the two hexadecimal digits at the front of `piece` stand for, and what follows them.
fn escape(piece: &str) -> Option<(u8, &str)> {
    let (digits, rest) = piece.split_at_checked(2)?;
    let digits_only = digits.bytes().all(|digit| digit.is_ascii_hexdigit()); // from_str_radix takes `+f`
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| digits_only)?;
    Some((byte, rest))
}

fn push_escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(DIGITS[usize::from(byte >> 4)].into());
    text.push(DIGITS[usize::from(byte & 15)].into());
}

/// Removes dot segments (RFC 3986 §5.2.4) and, with `merge_slashes`, empty segments but for the last.
fn resolve(path: &str, merge_slashes: bool) -> Result<String, PathFault> {
    let mut resolved = String::with_capacity(path.len()); // each segment with its slash in front
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." if last => resolved.push('/'),
            "." => {}
            ".." => {
                let parent = resolved.rfind('/').ok_or(PathFault::AboveRoot)?;
                resolved.truncate(parent + usize::from(last));
            }
            "" if merge_slashes && !last => {}
            _ => {
                resolved.push('/');
                resolved.push_str(segment);
            }
        }
    }
    Ok(resolved)
}

fn borrow_if_same(raw: &str, normal: String) -> Cow<'_, str> {
    if normal == raw { Cow::Borrowed(raw) } else { Cow::Owned(normal) }
}
