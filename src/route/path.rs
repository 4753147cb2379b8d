//! Path normalisation: the path that is matched is the path that is forwarded.
//!
//! Escapes come first: a percent-encoded unreserved character is decoded (so `%2e%2e` is `..`), any other escape stays
//! and gets upper-case hex digits (RFC 3986 §6.2.2.1 and §6.2.2.2). `%2F`, `%5C` and `%25` therefore stay, and nothing
//! is decoded twice. Then dot segments are removed (§5.2.4). Two forms result, because `//` and `..` interact:
//!
//! | raw | merged: `//` is `/`, before dot segments | kept: an empty segment is a segment |
//! |---|---|---|
//! | `/a//b` | `/a/b` | `/a//b` |
//! | `/a//../b` | `/b` | `/a/b` |
//! | `/a//../..` | a fault | a fault, though only the merged form leaves the root |
//!
//! Case, a trailing slash and `;` are kept; whether they count in comparisons is set by [`PathMatching`]. Characters
//! that are invalid in a URI but sent by clients (`{`, `|`, `"`, …) are forwarded unchanged, and are not equal to their
//! escapes.
//!
//! # Folding
//!
//! Spellings of one path that backends commonly treat as the same are equal when folded. Many backends serve `/Login`,
//! `/login/` and `/login;x` as `/login`. A limit that compares one spelling only is bypassed by the others, so paths
//! are compared *folded*:
//!
//! | written | folded | why |
//! |---|---|---|
//! | `/Login` | `/login` | ASCII letters are compared without case |
//! | `/login/` | `/login` | one trailing slash does not count |
//! | `/login;x/a;y=1` | `/login/a` | `;` begins the parameters of a segment (RFC 3986 §3.3) |
//! | `/a/;x/b` | `/a/b` | the remaining empty segment is removed where duplicate slashes are merged |
//! | `/login%3Bx` | `/login%3bx` | an escaped `;` belongs to the name |
//! | `/a/..;/b` | a fault | a backend that drops parameters first reads `/b`, another one `/a/..;/b` |
//!
//! Only comparisons are folded: a path is forwarded as it is spelled.

use std::borrow::Cow;

/// A normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// With duplicate slashes merged.
    merged: Form<'a>,
    /// With duplicate slashes kept, where that differs.
    kept: Option<Form<'a>>,
    matching: PathMatching,
}

/// A path as spelled and as compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form<'a> {
    spelled: Cow<'a, str>,
    /// Where that differs.
    folded: Option<String>,
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
    /// `.;x` or `..;x`, which some backends read as a dot segment (lenient matching only).
    #[error("the path contains a dot segment with parameters, such as `..;`")]
    DotParameters,
}

impl From<DotParameters> for PathFault {
    fn from(_: DotParameters) -> Self {
        Self::DotParameters
    }
}

impl<'a> Path<'a> {
    /// Normalises dot segments, duplicate slashes and percent-encoded unreserved characters (RFC 3986 §6.2.2). Borrows,
    /// after one scan, if nothing changes. `raw` has no query.
    ///
    /// # Errors
    ///
    /// A [`PathFault`] for any path that a backend might read differently from the gateway.
    pub fn parse(raw: &'a str, matching: PathMatching) -> Result<Self, PathFault> {
        let scan = scan(raw)?;
        let form = |spelled: Cow<'a, str>, merge_slashes| match matching {
            PathMatching::Lenient => {
                Ok::<_, PathFault>(Form { folded: fold(&spelled, merge_slashes)?, spelled })
            }
            PathMatching::Strict => Ok(Form { folded: None, spelled }),
        };
        if scan.is_normal {
            let spelled = Cow::Borrowed(raw);
            if scan.is_folded || matching == PathMatching::Strict {
                return Ok(Self { merged: Form { spelled, folded: None }, kept: None, matching });
            }
            let (merged, kept) = (form(spelled.clone(), true)?, form(spelled, false)?);
            return Ok(Self { kept: (kept != merged).then_some(kept), merged, matching });
        }
        let decoded = decode_unreserved(raw)?;
        let form =
            |merge_slashes| form(borrow_if_same(raw, resolve(&decoded, merge_slashes)?), merge_slashes);
        let (merged, kept) = (form(true)?, form(false)?);
        Ok(Self { kept: (kept != merged).then_some(kept), merged, matching })
    }

    /// The path in the form that a route with this `merge_slashes` forwards.
    pub fn form(&self, merge_slashes: bool) -> &str {
        &self.spelling(merge_slashes).spelled
    }

    /// The path in the form that a route with this `merge_slashes` matches.
    pub fn folded(&self, merge_slashes: bool) -> &str {
        let Form { spelled, folded } = self.spelling(merge_slashes);
        folded.as_deref().unwrap_or(spelled)
    }

    /// The path without the leading segments `prefix`, as forwarded with `strip_prefix`: always begins with `/`.
    /// Segments are compared as routes compare them. A prefix that ends inside a segment (`/se` of `/search`) does not
    /// apply, and the path stays whole.
    pub fn without_prefix(&self, prefix: &str, merge_slashes: bool) -> &str {
        let path = self.form(merge_slashes);
        let rest = match self.matching {
            PathMatching::Strict => path.strip_prefix(prefix),
            PathMatching::Lenient => after_folded(path, prefix, merge_slashes),
        };
        match rest {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// Whether paths are compared leniently.
    pub(super) fn is_lenient(&self) -> bool {
        self.matching == PathMatching::Lenient
    }

    /// The path without the parameters of its segments, as spelled otherwise; `None` if it has neither parameters nor a
    /// trailing slash, or they count. A trailing slash stays: see [`bare_spellings`].
    pub(super) fn bare(&self, merge_slashes: bool) -> Option<String> {
        let path = self.form(merge_slashes);
        let ends_with_slash = path.len() > 1 && path.ends_with('/');
        if self.matching == PathMatching::Strict || !ends_with_slash && !path.contains(';') {
            return None;
        }
        let mut bare = String::with_capacity(path.len());
        for name in path.split('/').skip(1).map(without_parameters) {
            if !(name.is_empty() && merge_slashes) {
                bare.push('/');
                bare.push_str(name);
            }
        }
        let last = path.rsplit('/').next().map(without_parameters);
        if last == Some("") && !bare.ends_with('/') {
            bare.push('/');
        }
        Some(bare)
    }

    fn spelling(&self, merge_slashes: bool) -> &Form<'a> {
        match &self.kept {
            Some(kept) if !merge_slashes => kept,
            _ => &self.merged,
        }
    }
}

/// The spellings of a [bare](Path::bare) path that differ from `spelled`: without its trailing slash, and with it.
pub(super) fn bare_spellings<'b>(spelled: &str, bare: Option<&'b str>) -> impl Iterator<Item = &'b str> {
    let without_slash = bare.and_then(|bare| bare.strip_suffix('/').filter(|rest| !rest.is_empty()));
    without_slash.into_iter().chain(bare.filter(|bare| *bare != spelled))
}

/// The rest of `path` after the segments that equal, folded, those of `prefix`.
fn after_folded<'p>(path: &'p str, prefix: &str, merge_slashes: bool) -> Option<&'p str> {
    let mut rest = path;
    for wanted in prefix.split('/').skip(1).map(without_parameters) {
        loop {
            let inner = rest.strip_prefix('/')?;
            let (segment, after) =
                inner.split_at(memchr::memchr(b'/', inner.as_bytes()).unwrap_or(inner.len()));
            rest = after;
            match without_parameters(segment) {
                "" if merge_slashes && !segment.is_empty() => {}
                name if name.eq_ignore_ascii_case(wanted) => break,
                _ => return None,
            }
        }
    }
    Some(rest)
}

/// The results of one scan of a path; for nearly all paths they are complete. They may be `false` where `true` would be
/// right (`/.well-known` is normal), never the reverse.
struct Scan {
    /// The path is normalised, with duplicate slashes merged and with them kept.
    is_normal: bool,
    /// If it is normalised, it is folded too.
    is_folded: bool,
}

fn scan(raw: &str) -> Result<Scan, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::NotAbsolute);
    }
    let mut scan = Scan { is_normal: true, is_folded: !raw.ends_with('/') || raw.len() == 1 };
    let mut before = 0;
    for &byte in raw.as_bytes() {
        match byte {
            0..=b' ' | b'\\' | b'?' | b'#' | 0x7f.. => return Err(PathFault::Forbidden(byte)),
            b'%' => scan.is_normal = false,
            b'/' | b'.' if before == b'/' => scan.is_normal = false,
            b'A'..=b'Z' | b';' => scan.is_folded = false,
            _ => {}
        }
        before = byte;
    }
    Ok(scan)
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

/// The byte encoded by the two hexadecimal digits at the front of `piece`, and the rest.
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

/// Removes dot segments (RFC 3986 §5.2.4) and, with `merge_slashes`, empty segments except the last.
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

/// How the paths of routes are compared with those of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMatching {
    /// Folded: see the module.
    #[default]
    Lenient,
    /// Byte for byte, once normalised.
    Strict,
}

/// A segment is `.` or `..` without its parameters, such as `..;x`.
struct DotParameters;

/// A normalised path, folded. `None`: it equals its folded form, as most paths do.
///
/// # Errors
///
/// [`DotParameters`]
fn fold(path: &str, merge_slashes: bool) -> Result<Option<String>, DotParameters> {
    let ends_with_slash = path.len() > 1 && path.ends_with('/');
    if !ends_with_slash && !path.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b';') {
        return Ok(None);
    }
    let mut folded = String::with_capacity(path.len()); // each segment with its slash in front
    for segment in path.split('/').skip(1) {
        let name = without_parameters(segment);
        if name.len() < segment.len() && matches!(name, "." | "..") {
            return Err(DotParameters);
        }
        if name.is_empty() && merge_slashes {
            continue;
        }
        folded.push('/');
        folded.push_str(name);
    }
    if folded.len() > 1 && folded.ends_with('/') {
        folded.pop();
    }
    if folded.is_empty() {
        folded.push('/');
    }
    folded.make_ascii_lowercase();
    Ok(Some(folded))
}

/// A segment without the parameters that `;` begins.
pub(super) fn without_parameters(segment: &str) -> &str {
    memchr::memchr(b';', segment.as_bytes()).map_or(segment, |at| &segment[..at])
}
