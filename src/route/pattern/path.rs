//! Path patterns: one path, one with parameters, or everything below a path.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use super::super::path::{Path, PathFault, PathMatching, without_parameters};
use super::{PatternFault, fault};

/// `/a` exact · `/a/{id}` one non-empty segment · `/a/*` this and all below: `/a`, `/a/`, `/a/b/c`; `/*` everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// The text between the slashes; the last is empty if the pattern ends with a slash.
    segments: Vec<Segment>,
    /// Whether the pattern ends with `/*`.
    below: bool,
}

/// The text between two slashes of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::route) enum Segment {
    /// Exactly this, normalised. May be empty.
    Literal(Box<str>),
    /// `{name}`: any non-empty segment.
    Parameter(Box<str>),
}

impl PathPattern {
    /// The maximum number of segments of a pattern, which bounds the depth of a lookup.
    pub const MAX_SEGMENTS: usize = 64;

    /// Parses a path pattern as written in the file. The pattern is normalised as requests are; its duplicate slashes
    /// are kept, for routes with `merge_slashes = false`.
    ///
    /// # Errors
    ///
    /// A pattern that no normalised path could match, and `*` or braces that are not a whole segment.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        Self::parse_plain(text).map_err(|found| not_a_regular_expression(text).unwrap_or(found))
    }

    fn parse_plain(text: &str) -> Result<Self, PatternFault> {
        let path = Path::parse(text, PathMatching::Strict).or_else(|cause| not_a_path(text, cause))?;
        let pattern = Self::of_normal(text, path.form(false))?;
        if pattern.clone().merged() != Self::of_normal(text, path.form(true))? {
            return fault(
                format!("`..` beside `//` in `{text}` has two meanings"),
                "write the path as it is after its dot segments are gone",
            );
        }
        pattern.check(text)?;
        Ok(pattern)
    }

    /// `/` alone.
    pub(super) fn root() -> Self {
        Self { segments: vec![Segment::Literal("".into())], below: false }
    }

    /// Whether a normalised path matches.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = path.split('/').skip(1);
        let here = self.segments.iter().all(|segment| rest.next().is_some_and(|text| segment.matches(text)));
        here && path.starts_with('/') && (self.below || rest.next().is_none())
    }

    /// The pattern for paths with duplicate slashes merged.
    #[must_use]
    pub(in crate::route) fn merged(mut self) -> Self {
        let trailing = if self.below { None } else { self.segments.pop() };
        self.segments.retain(|segment| !segment.is_empty());
        self.segments.extend(trailing);
        self
    }

    /// The pattern for paths that are folded, as requests' are.
    #[must_use]
    pub(in crate::route) fn folded(&self, merge_slashes: bool) -> Self {
        let mut segments: Vec<_> = self.segments.iter().map(Segment::folded).collect();
        if merge_slashes {
            segments.retain(|segment| !segment.is_empty());
        } else if !self.below && segments.len() > 1 && segments.last().is_some_and(Segment::is_empty) {
            segments.pop();
        }
        if segments.is_empty() && !self.below {
            segments.push(Segment::Literal("".into()));
        }
        Self { segments, below: self.below }
    }

    /// For each literal with letters: its index, and a path that the pattern matches unless the case of those letters
    /// counts.
    pub(in crate::route) fn other_spellings(&self) -> impl Iterator<Item = (usize, String)> {
        let swapped = |segment: &Segment| match segment {
            Segment::Literal(literal) => {
                let other = literal.chars().map(|letter| match letter {
                    'a'..='z' => letter.to_ascii_uppercase(),
                    _ => letter.to_ascii_lowercase(),
                });
                Some(Segment::Literal(other.collect::<String>().into())).filter(|other| other != segment)
            }
            Segment::Parameter(_) => None,
        };
        self.segments.iter().enumerate().filter_map(move |(index, segment)| {
            let mut other = Self { segments: self.segments.clone(), below: false };
            other.segments[index] = swapped(segment)?;
            Some((index, other.shape()))
        })
    }

    /// Whether the segment at this index is a parameter.
    pub(in crate::route) fn has_parameter_at(&self, index: usize) -> bool {
        self.segments.get(index).is_some_and(Segment::is_parameter)
    }

    /// The more specific pattern first: exact, then with parameters, then prefixes; of one kind the longest (exact
    /// ones that match one path differ in length only by `//`); then segment by segment from the left, a literal
    /// before a parameter. Two patterns that are `Equal` and match a path in common match the same paths.
    pub(in crate::route) fn specificity(&self, other: &Self) -> Ordering {
        let rank = |pattern: &Self| {
            let parameters = !pattern.below && pattern.kinds().any(|parameter| parameter);
            (pattern.below, parameters, Reverse(pattern.segments.len()))
        };
        rank(self).cmp(&rank(other)).then_with(|| self.kinds().cmp(other.kinds()))
    }

    /// The pattern without the names of its parameters: equal for patterns that match the same paths.
    pub(in crate::route) fn shape(&self) -> String {
        self.written(|_| "{}".into())
    }

    /// The segments in front of `/*`, or all of them.
    pub(in crate::route) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether the pattern ends with `/*`.
    pub(in crate::route) fn is_prefix(&self) -> bool {
        self.below
    }

    /// The names of the parameters, from the left.
    pub(in crate::route) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::name)
    }

    /// For each segment, whether it is a parameter.
    fn kinds(&self) -> impl Iterator<Item = bool> {
        self.segments.iter().map(Segment::is_parameter)
    }

    fn of_normal(text: &str, path: &str) -> Result<Self, PatternFault> {
        let (path, below) = path.strip_suffix("/*").map_or((path, false), |path| (path, true));
        let segments = path.split('/').skip(1).map(|segment| Segment::parse(text, segment));
        Ok(Self { segments: segments.collect::<Result<_, _>>()?, below })
    }

    fn written(&self, parameter: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            text.push('/');
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Parameter(name) => text.push_str(&parameter(name)),
            }
        }
        if self.below {
            text.push_str("/*");
        }
        text
    }

    fn check(&self, text: &str) -> Result<(), PatternFault> {
        if self.segments.len() > Self::MAX_SEGMENTS {
            return fault(
                format!("the path pattern has {} segments", self.segments.len()),
                format!("write at most {}, and `/*` for what is below", Self::MAX_SEGMENTS),
            );
        }
        let mut names: Vec<_> = self.segments.iter().filter_map(Segment::name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => fault(
                format!("the parameter `{{{}}}` stands twice in `{text}`", pair[0]),
                "give each parameter its own name",
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(|name| format!("{{{name}}}")))
    }
}

impl Segment {
    fn parse(pattern: &str, text: &str) -> Result<Self, PatternFault> {
        if text.contains('*') {
            return fault(
                format!("`*` in `{pattern}` is not the whole last segment"),
                "write `/*` at the end for this and all below, or `{name}` for any one segment",
            );
        }
        if !text.contains(['{', '}']) {
            return Ok(Self::Literal(text.into()));
        }
        match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(name) if is_name(name) => Ok(Self::Parameter(name.into())),
            Some(name) if !name.contains(['{', '}']) => fault(
                format!("`{name}` in `{pattern}` is not a parameter's name"),
                "write letters, digits, `_` and `-`, as in `{user_id}`",
            ),
            _ => fault(
                format!("`{text}` in `{pattern}` is not a whole parameter"),
                "a parameter is a whole segment, as in `/users/{id}`; a brace itself is `%7B` or `%7D`",
            ),
        }
    }

    fn folded(&self) -> Self {
        match self {
            Self::Literal(literal) => Self::Literal(without_parameters(literal).to_ascii_lowercase().into()),
            Self::Parameter(name) => Self::Parameter(name.clone()),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => text == &**literal,
            Self::Parameter(_) => !text.is_empty(),
        }
    }

    fn is_parameter(&self) -> bool {
        self.name().is_some()
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Literal(literal) if literal.is_empty())
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Literal(_) => None,
            Self::Parameter(name) => Some(name),
        }
    }
}

fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.bytes().all(known)
}

/// The fault of a text that is not a pattern, but looks like a regular expression.
fn not_a_regular_expression(text: &str) -> Option<PatternFault> {
    let begins = text.starts_with(['^', '~']);
    let has_signs =
        [".*", ".+", "[0-9]", "[a-z]", "[^/]", "\\d", "\\w"].iter().any(|sign| text.contains(sign));
    (begins || has_signs).then(|| PatternFault {
        message: format!("`{text}` is a regular expression, which begins with `~`"),
        help: format!(
            "write `~^{}`, or `/a/{{id}}` for any one segment, or `/a/*` for `/a` and all below",
            text.trim_start_matches('^')
        ),
    })
}

fn not_a_path<T>(text: &str, cause: PathFault) -> Result<T, PatternFault> {
    let help = match cause {
        PathFault::NotAbsolute => format!("write `/{text}`"),
        PathFault::Forbidden(b'?' | b'#') => "write the path alone: a query is not part of it".into(),
        PathFault::Forbidden(_) => "write it as requests carry it, percent-encoded: a blank is `%20`".into(),
        PathFault::BadEscape => "write `%25` for the percent sign itself".into(),
        PathFault::Nul => "leave it away: a request with `%00` is refused before routing".into(),
        PathFault::AboveRoot => "write the path as it is after its dot segments are gone".into(),
    };
    fault(format!("`{text}` is not a path pattern: {cause}"), help)
}
