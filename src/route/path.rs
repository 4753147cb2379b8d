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
//! | `/a/..;x/b` | `/a/..;x/b` | a dot segment with parameters keeps them: folding makes no dot segment |
//!
//! Only comparisons are folded: a path is forwarded as it is spelled.
//!
//! # Encoded dot segments
//!
//! Some backends make dot segments of what is none in a URI: they decode `%2F` before they resolve `..`, take `\` for a
//! separator, or drop parameters first. For them `/public/..%2Fadmin`, `/public/..%5Cadmin` and `/public/..;/admin` are
//! `/admin`. [`Path::has_encoded_dots`] finds such paths; [`EncodedDots`] says whether they are refused.

use std::borrow::Cow;

/// A normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// With duplicate slashes merged.
    merged: Form<'a>,
    /// With duplicate slashes kept, where that differs.
    kept: Option<Form<'a>>,
    matching: PathMatching,
    has_encoded_dots: bool,
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
}

impl<'a> Path<'a> {
    /// Normalises dot segments, duplicate slashes and percent-encoded unreserved characters (RFC 3986 §6.2.2). Borrows,
    /// after one scan, if nothing changes. `raw` has no query.
    ///
    /// # Errors
    ///
    /// A [`PathFault`] for a path that a backend might read differently from the gateway.
    pub fn parse(raw: &'a str, matching: PathMatching) -> Result<Self, PathFault> {
        let scan = scan(raw)?;
        let form = |spelled: Cow<'a, str>, merge_slashes| Form {
            folded: match matching {
                PathMatching::Lenient => fold(&spelled, merge_slashes),
                PathMatching::Strict => None,
            },
            spelled,
        };
        let (merged, kept, has_encoded_dots) = if scan.is_normal {
            if scan.is_folded {
                return Ok(Self::plain(raw, matching));
            }
            let spelled = Cow::Borrowed(raw);
            (form(spelled.clone(), true), form(spelled, false), has_encoded_dots(raw))
        } else {
            let decoded = decode_unreserved(raw)?;
            let form = |merge_slashes| {
                let spelled = borrow_if_same(raw, resolve(&decoded, merge_slashes)?);
                Ok::<_, PathFault>(form(spelled, merge_slashes))
            };
            (form(true)?, form(false)?, has_encoded_dots(&decoded))
        };
        Ok(Self { kept: (kept != merged).then_some(kept), merged, matching, has_encoded_dots })
    }

    /// The path that `raw` is, where it was parsed before and [is plain](Self::is_plain).
    #[inline]
    pub fn plain(raw: &'a str, matching: PathMatching) -> Self {
        let merged = Form { spelled: Cow::Borrowed(raw), folded: None };
        Self { merged, kept: None, matching, has_encoded_dots: false }
    }

    /// Whether all forms of the path are as it was spelled.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let Form { spelled, folded } = &self.merged;
        let is_spelled = matches!(spelled, Cow::Borrowed(_)) && folded.is_none();
        is_spelled && self.kept.is_none() && !self.has_encoded_dots
    }

    /// Whether a segment is a dot segment for backends that decode separators or drop parameters before they resolve
    /// dot segments: `..;x`, `..%2Fa`, `a%5C..`.
    pub fn has_encoded_dots(&self) -> bool {
        self.has_encoded_dots
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

    /// The path without the leading segments `prefix`, as forwarded with `strip_prefix`: it begins with `/`, or is empty if the
    /// prefix is all of the path. Segments are compared as routes compare them. A prefix that ends inside a segment (`/se` of `/search`) does not
    /// apply, and the path stays whole.
    pub fn without_prefix(&self, prefix: &str, merge_slashes: bool) -> &str {
        let path = self.form(merge_slashes);
        let rest = match self.matching {
            PathMatching::Strict => path.strip_prefix(prefix),
            PathMatching::Lenient => after_folded(path, prefix, merge_slashes),
        };
        match rest {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
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

/// What is done with a path that [has encoded dot segments](Path::has_encoded_dots).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedDots {
    /// It is refused with 400.
    #[default]
    Reject,
    /// It is matched and forwarded as it is spelled.
    Pass,
}

/// A normalised path, folded. `None`: it equals its folded form, as most paths do.
fn fold(path: &str, merge_slashes: bool) -> Option<String> {
    let ends_with_slash = path.len() > 1 && path.ends_with('/');
    if !ends_with_slash && !path.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b';') {
        return None;
    }
    let mut folded = String::with_capacity(path.len()); // each segment with its slash in front
    for segment in path.split('/').skip(1) {
        let name = without_parameters(segment);
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
    Some(folded)
}

/// A segment without the parameters that `;` begins. A dot segment keeps them, since it would become another one.
pub(super) fn without_parameters(segment: &str) -> &str {
    let name = memchr::memchr(b';', segment.as_bytes()).map_or(segment, |at| &segment[..at]);
    if is_dots(name) { segment } else { name }
}

fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Whether a path whose escapes are in normal form has a segment that is not a dot segment as it stands, and is one once
/// `%2F` and `%5C` separate and `;` (or `%3B`, which some gateways decode on the way) begins parameters.
fn has_encoded_dots(path: &str) -> bool {
    let is_encoded = |segment: &str| !is_dots(segment) && pieces(segment).any(is_dots);
    path.contains(['%', ';']) && path.split('/').any(is_encoded)
}

/// The names between the separators that a segment hides.
fn pieces(segment: &str) -> impl Iterator<Item = &str> {
    let separated = segment.split("%2F").flat_map(|piece| piece.split("%5C"));
    separated
        .map(|piece| piece.split("%3B").next().unwrap_or(piece))
        .map(|piece| piece.split(';').next().unwrap_or(piece))
}
