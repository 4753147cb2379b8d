//! Folding: spellings of one path that backends commonly treat as the same.
//!
//! Many backends serve `/Login`, `/login/` and `/login;x` as `/login`. A limit that compares one spelling only is
//! bypassed by the others, so paths are compared *folded*:
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
pub(super) struct DotParameters;

/// A normalised path, folded. `None`: it equals its folded form, as most paths do.
///
/// # Errors
///
/// [`DotParameters`]
pub(super) fn fold(path: &str, merge_slashes: bool) -> Result<Option<String>, DotParameters> {
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
