//! Patterns for values of headers, cookies and parameters, as written in the file.
//!
//! | written | matches a value that |
//! |---|---|
//! | `"text"` | is this |
//! | `"text*"`, `"*text"`, `"*text*"` | begins with it, ends with it, contains it |
//! | `"~regex"`, `"~*regex"` | the regular expression matches, with or without the case of letters |
//! | `true`, `"*"` | is there |
//! | `false` | is absent: there is none |
//!
//! A condition has [one or several](super::condition::ValuePatterns) of them. Long lists have an
//! [index](super::value_index).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};

use super::pattern::{MAX_COMPILED, MAX_REGEX, PatternFault, reason};

/// A pattern for a value. `Display` writes it as in the file, without quotes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValuePattern {
    /// Exactly this.
    Exact(Box<[u8]>),
    /// The value begins with this, which is not empty.
    Prefix(Box<[u8]>),
    /// The value ends with this, which is not empty.
    Suffix(Box<[u8]>),
    /// The value contains this, which is not empty.
    Contains(Box<[u8]>),
    /// The regular expression matches a part of the value.
    Regex(ValueRegex),
    /// There is a value; it may be empty.
    Present,
    /// There is none.
    Absent,
}

/// A regular expression for values, matched in linear time. Two are equal if they are written alike.
#[derive(Clone, Debug)]
pub struct ValueRegex {
    text: Box<str>,
    ignores_case: bool,
    regex: Regex,
}

impl ValuePattern {
    /// Parses a text as written in the file.
    ///
    /// # Errors
    ///
    /// A `*` inside a text; stars without a text; an empty, invalid or too large regular expression.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        Self::parse_with(text, &[])
    }

    /// As [`Self::parse`] for a text that is literal in these ranges: no character there has a meaning of its own.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; and a backslash of a regular expression before a literal range.
    pub fn parse_with(text: &str, literal: &[Range<usize>]) -> Result<Self, PatternFault> {
        let is_written = |at: usize| !literal.iter().any(|range| range.contains(&at));
        if text.starts_with('~') && is_written(0) {
            return ValueRegex::parse_with(text, literal).map(Self::Regex);
        }
        let bytes = text.as_bytes();
        let is = |at: usize, wanted: u8| bytes.get(at) == Some(&wanted) && is_written(at);
        let (mut plain, mut stars, mut at) = (Vec::with_capacity(bytes.len()), Vec::new(), 0);
        while let Some(&byte) = bytes.get(at) {
            if is(at, b'\\') && (is(at + 1, b'*') || is(at + 1, b'~')) {
                at += 1;
                plain.extend(bytes.get(at));
            } else if is(at, b'*') {
                stars.push(at);
            } else {
                plain.push(byte);
            }
            at += 1;
        }
        let last = bytes.len().saturating_sub(1);
        let plain: Box<[u8]> = plain.into();
        match stars.as_slice() {
            [] => Ok(Self::Exact(plain)),
            [0] if plain.is_empty() => Ok(Self::Present),
            [star] if *star == last => Ok(Self::Prefix(plain)),
            [0] => Ok(Self::Suffix(plain)),
            [0, star] if *star == last && !plain.is_empty() => Ok(Self::Contains(plain)),
            _ if plain.is_empty() => fault("the stars have no text between them", "write `*` for any value"),
            _ => fault(
                "a `*` inside a text has no meaning",
                "write it at the begin or the end; `\\\\*` for the character; or a regular expression such as \
                 `~^a.*b$`",
            ),
        }
    }

    /// Whether one value matches; letters in any case if the pattern is in lower case and the value is, too.
    #[inline]
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::Prefix(text) => value.starts_with(text),
            Self::Suffix(text) => value.ends_with(text),
            Self::Contains(text) => memchr::memmem::find(value, text).is_some(),
            Self::Regex(regex) => regex.is_match(value),
            Self::Present => true,
            Self::Absent => false,
        }
    }

    /// The pattern for letters in any case, for values in lower case.
    pub(super) fn without_case(self) -> Self {
        let lower = |text: Box<[u8]>| text.to_ascii_lowercase().into();
        match self {
            Self::Exact(text) => Self::Exact(lower(text)),
            Self::Prefix(text) => Self::Prefix(lower(text)),
            Self::Suffix(text) => Self::Suffix(lower(text)),
            Self::Contains(text) => Self::Contains(lower(text)),
            Self::Regex(regex) => Self::Regex(regex.without_case()),
            Self::Present | Self::Absent => self,
        }
    }
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("*"),
            Self::Absent => f.write_str("false"),
            Self::Regex(regex) => regex.fmt(f),
            // A star after a backslash would be the character.
            Self::Prefix(text) if text.ends_with(b"\\") => write!(f, "~^{}", in_regex(text)),
            Self::Contains(text) if text.ends_with(b"\\") => write!(f, "~{}", in_regex(text)),
            Self::Exact(text) => f.write_str(&escaped(text)),
            Self::Prefix(text) => write!(f, "{}*", escaped(text)),
            Self::Suffix(text) => write!(f, "*{}", escaped(text)),
            Self::Contains(text) => write!(f, "*{}*", escaped(text)),
        }
    }
}

/// A literal text as written in the file.
fn escaped(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace('*', "\\*").replace('~', "\\~")
}

fn in_regex(text: &[u8]) -> String {
    regex_syntax::escape(&String::from_utf8_lossy(text))
}

impl ValueRegex {
    /// Parses `~regex` or `~*regex`.
    fn parse_with(text: &str, literal: &[Range<usize>]) -> Result<Self, PatternFault> {
        let is_star_written = !literal.iter().any(|range| range.contains(&1));
        let ignores_case = text.starts_with("~*") && is_star_written;
        let start = if ignores_case { 2 } else { 1 };
        let (mut expression, mut at) = (String::with_capacity(text.len()), start);
        for range in literal {
            expression.push_str(text.get(at..range.start.max(at)).unwrap_or_default());
            let backslashes = expression.bytes().rev().take_while(|&byte| byte == b'\\').count();
            if backslashes % 2 == 1 {
                return fault(
                    "a backslash stands before a variable in a regular expression",
                    "leave it out: the variable's text is literal",
                );
            }
            let inside = text.get(range.start.max(start)..range.end).unwrap_or_default();
            expression.push_str(&regex_syntax::escape(inside));
            at = range.end.max(at);
        }
        expression.push_str(text.get(at..).unwrap_or_default());
        Self::new(&expression, ignores_case)
    }

    /// The regular expression `text`, which is matched with or without the case of letters.
    ///
    /// # Errors
    ///
    /// Text that is empty, too long or no regular expression; an expression that is too large.
    pub fn new(text: &str, ignores_case: bool) -> Result<Self, PatternFault> {
        if text.is_empty() {
            return fault(
                "the regular expression is empty",
                "write `*` for any value, or `\\\\~` for the character `~`",
            );
        }
        if text.starts_with(' ') {
            return fault(
                "no regular expression of tollgate begins with a blank",
                "leave the blank out: `~^text`, `~*text`",
            );
        }
        if text.len() > MAX_REGEX {
            return fault(
                format!("the regular expression is longer than {MAX_REGEX} bytes"),
                "divide it between the items of a list: `[\"~…\", \"~…\"]`",
            );
        }
        let regex = RegexBuilder::new(text)
            .unicode(false)
            .case_insensitive(ignores_case)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .build();
        match regex {
            Ok(regex) => Ok(Self { text: text.into(), ignores_case, regex }),
            Err(regex::Error::CompiledTooBig(_)) => fault(
                "the regular expression is too large",
                "write smaller repetitions, such as `[0-9]+` instead of `[0-9]{1,1000}`",
            ),
            // Without the expression: it may stand for a secret.
            Err(error) => fault(
                format!("this is not a regular expression: {}", reason(&error)),
                "the syntax is that of RE2: without backreferences and look-around; `\\\\~` begins a plain text",
            ),
        }
    }

    /// The expression without the `~` or `~*` before it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether letters match in any case.
    pub fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    pub(super) fn is_match(&self, value: &[u8]) -> bool {
        self.regex.is_match(value)
    }

    /// Texts in lower case: each value that matches contains one of them in some case. `None`: no such texts are known.
    pub(super) fn required_texts(&self) -> Option<Vec<Vec<u8>>> {
        let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&self.text);
        let mut texts = required(&parsed.ok()?)?;
        texts.iter_mut().for_each(|text| text.make_ascii_lowercase());
        Some(texts)
    }

    fn without_case(self) -> Self {
        // It was valid with the case, and is hardly larger without.
        Self::new(&self.text, true).unwrap_or(self)
    }

    fn identity(&self) -> (&str, bool) {
        (&self.text, self.ignores_case)
    }
}

/// More alternatives are not searched for.
const MAX_ALTERNATIVES: usize = 64;

/// Texts of which each match contains one: those whose shortest is longest.
fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    let shortest = |texts: &Vec<Vec<u8>>| texts.iter().map(Vec::len).min();
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().filter_map(required).max_by_key(shortest),
        HirKind::Alternation(parts) => {
            let parts = parts.iter().map(required).collect::<Option<Vec<_>>>()?;
            let texts = parts.concat();
            (texts.len() <= MAX_ALTERNATIVES).then_some(texts)
        }
        _ => None,
    }
}

impl PartialEq for ValueRegex {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ValueRegex {}

impl PartialOrd for ValueRegex {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ValueRegex {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for ValueRegex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Display for ValueRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{}{}", if self.ignores_case { "*" } else { "" }, self.text)
    }
}

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, PatternFault> {
    Err(PatternFault { message: message.into(), help: help.into() })
}
