//! The `path` of a route: a pattern, or a regular expression.

use std::cmp::Ordering;
use std::fmt;

use super::super::path::{Path, PathMatching, without_parameters};
use super::{PathPattern, PathRegex, PatternFault, Segment};

/// The `path` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatcher {
    /// `/a`, `/a/{id}`, `/a/*`.
    Pattern(PathPattern),
    /// `~^/v[0-9]+$`.
    Regex(PathRegex),
}

/// The name of the rest of a path that a pattern with `/*` matches.
const REST: &str = "*";

impl PathMatcher {
    /// `/` alone.
    pub fn root() -> Self {
        Self::Pattern(PathPattern::root())
    }

    /// Parses a path as written in the file.
    ///
    /// # Errors
    ///
    /// As [`PathPattern::parse`] and [`PathRegex::parse`].
    pub fn parse(text: &str, matching: PathMatching) -> Result<Self, PatternFault> {
        match text.strip_prefix('~') {
            Some(expression) => PathRegex::parse(expression, matching).map(Self::Regex),
            None => PathPattern::parse(text).map(Self::Pattern),
        }
    }

    /// The index of the part of a path with this name: a parameter, `*` for the rest, or a group of a regular
    /// expression by name or number. Its text is given by [`Self::captures`].
    pub fn capture(&self, name: &str) -> Option<usize> {
        match self {
            Self::Pattern(pattern) if name == REST => {
                pattern.is_prefix().then(|| pattern.parameters().count())
            }
            Self::Pattern(pattern) => pattern.parameters().position(|parameter| parameter == name),
            Self::Regex(regex) => regex.group(name),
        }
    }

    /// The parts of a matching path, as the client spelled them, each with its index. The rest has no leading slash.
    pub fn captures<'p>(
        &self,
        path: &'p Path<'_>,
        merge_slashes: bool,
        mut capture: impl FnMut(usize, &str),
    ) {
        let spelled: &'p str = path.form(merge_slashes);
        let pattern = match self {
            Self::Regex(regex) => return regex.captures(path, merge_slashes, capture),
            Self::Pattern(pattern) => pattern,
        };
        // A segment of parameters alone does not count where duplicate slashes are merged: `/a/;x/b` is `/a/b`.
        let counts = |segment: &str| {
            !(path.is_lenient() && merge_slashes)
                || segment.is_empty()
                || !without_parameters(segment).is_empty()
        };
        let (mut rest, mut index) = (spelled, 0);
        for segment in pattern.segments() {
            let text = loop {
                let inner = rest.strip_prefix('/').unwrap_or_default();
                let end = memchr::memchr(b'/', inner.as_bytes()).unwrap_or(inner.len());
                let (text, after) = inner.split_at(end);
                rest = after;
                if counts(text) || rest.is_empty() {
                    break text;
                }
            };
            if let Segment::Parameter(_) = segment {
                capture(index, text);
                index += 1;
            }
        }
        if pattern.is_prefix() {
            capture(index, rest.strip_prefix('/').unwrap_or_default());
        }
    }

    /// Whether a path matches in the form of a route with this `merge_slashes`; a pattern is compared as
    /// [`Self::folded`].
    pub fn matches(&self, path: &Path<'_>, merge_slashes: bool) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.matches(path.folded(merge_slashes)),
            Self::Regex(regex) => {
                regex.matches(path.form(merge_slashes), path.bare(merge_slashes).as_deref())
            }
        }
    }

    /// Whether a path is spelled as it is written here.
    pub(in crate::route) fn is_spelled_as(&self, path: &Path<'_>, merge_slashes: bool) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.matches(path.form(merge_slashes)),
            Self::Regex(regex) => {
                regex.matches(path.form(merge_slashes), path.bare(merge_slashes).as_deref())
            }
        }
    }

    /// The more specific first: exact, with parameters, regular expressions, prefixes. Two regular expressions are
    /// `Equal`.
    pub(in crate::route) fn specificity(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Pattern(one), Self::Pattern(other)) => one.specificity(other),
            (Self::Regex(_), Self::Regex(_)) => Ordering::Equal,
            (Self::Regex(_), Self::Pattern(pattern)) if pattern.is_prefix() => Ordering::Less,
            (Self::Regex(_), Self::Pattern(_)) => Ordering::Greater,
            (Self::Pattern(_), Self::Regex(_)) => other.specificity(self).reverse(),
        }
    }

    /// A text that is equal for paths that match the same requests.
    pub(in crate::route) fn shape(&self) -> String {
        match self {
            Self::Pattern(pattern) => pattern.shape(),
            Self::Regex(regex) => regex.to_string(),
        }
    }

    /// For paths with duplicate slashes merged.
    #[must_use]
    pub(in crate::route) fn merged(self) -> Self {
        match self {
            Self::Pattern(pattern) => Self::Pattern(pattern.merged()),
            regex @ Self::Regex(_) => regex,
        }
    }

    /// For paths that are folded, as requests' are.
    #[must_use]
    pub(in crate::route) fn folded(&self, merge_slashes: bool) -> Self {
        match self {
            Self::Pattern(pattern) => Self::Pattern(pattern.folded(merge_slashes)),
            regex @ Self::Regex(_) => regex.clone(),
        }
    }

    /// Whether it is a regular expression.
    pub fn is_regex(&self) -> bool {
        matches!(self, Self::Regex(_))
    }

    /// The pattern; `None`: it is a regular expression.
    pub(in crate::route) fn pattern(&self) -> Option<&PathPattern> {
        match self {
            Self::Pattern(pattern) => Some(pattern),
            Self::Regex(_) => None,
        }
    }
}

impl fmt::Display for PathMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(pattern) => pattern.fmt(f),
            Self::Regex(regex) => regex.fmt(f),
        }
    }
}
