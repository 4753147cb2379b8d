//! Paths as regular expressions: `~^/v[0-9]+/search$`.

use std::collections::BTreeSet;
use std::{fmt, iter};

use regex::bytes::{Captures, Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};

use super::super::path::{Path, PathMatching, bare_spellings};
use super::{PatternFault, fault};

/// Maximum bytes of an expression as written.
pub(in crate::route) const MAX_REGEX: usize = 1_024;
/// Maximum bytes of a compiled expression.
pub(in crate::route) const MAX_COMPILED: usize = 1 << 18;

/// A regular expression that is matched against paths in linear time. Where paths are compared leniently, letters match
/// in any case, and a path matches with or without its trailing slash and the parameters of its segments.
#[derive(Clone, Debug)]
pub struct PathRegex {
    text: Box<str>,
    regex: Regex,
    /// A text that every matching path contains, in lower case where case does not count.
    literal: Box<[u8]>,
}

impl PathRegex {
    /// Parses the expression that follows the `~`.
    ///
    /// # Errors
    ///
    /// Text that is not a regular expression, that is not ASCII, or that is too large. Backreferences and look-around do not exist: they
    /// cannot be matched in linear time.
    pub fn parse(text: &str, matching: PathMatching) -> Result<Self, PatternFault> {
        if text.len() > MAX_REGEX {
            return fault(
                format!("the regular expression is longer than {MAX_REGEX} bytes"),
                "divide it between several routes",
            );
        }
        if text.starts_with([' ', '*']) {
            return fault(
                format!("`~{text}` is not a regular expression of tollgate: none begins with a blank or `*`"),
                format!(
                    "write `~{}`; case does not count unless `path_matching` is \"strict\"",
                    text.trim_start_matches([' ', '*'])
                ),
            );
        }
        if text.is_empty() {
            return fault("the regular expression is empty", "write `path = \"/*\"` for every path");
        }
        if !text.is_ascii() {
            return fault(
                format!("`~{text}` has characters that no path has: paths are percent-encoded"),
                format!("write {}", percent_encoded(text)),
            );
        }
        let ignores_case = matching == PathMatching::Lenient;
        let regex = RegexBuilder::new(text)
            .unicode(false)
            .case_insensitive(ignores_case)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .build();
        match regex {
            Ok(regex) => Ok(Self { literal: literal(text, ignores_case), text: text.into(), regex }),
            Err(regex::Error::CompiledTooBig(_)) => fault(
                format!("the regular expression `{text}` is too large"),
                "write smaller repetitions, such as `[0-9]+` instead of `[0-9]{1,1000}`",
            ),
            Err(error) => fault(
                format!("`{text}` is not a regular expression: {}", reason(&error)),
                "the syntax is that of RE2: without backreferences and look-around",
            ),
        }
    }

    /// Whether the path matches: as spelled, or in its [bare](Path::bare) form with or without trailing slash.
    pub(in crate::route) fn matches(&self, spelled: &str, bare: Option<&str>) -> bool {
        let is_match = |path: &str| self.regex.is_match(path.as_bytes());
        is_match(spelled) || bare_spellings(spelled, bare).any(is_match)
    }

    /// The texts of the groups of the first match, each with its index; that of an absent group is empty.
    pub(in crate::route) fn captures(
        &self,
        path: &Path<'_>,
        merge_slashes: bool,
        group: impl FnMut(usize, &str),
    ) {
        let (spelled, bare) = (path.form(merge_slashes), path.bare(merge_slashes));
        let mut spellings = iter::once(spelled).chain(bare_spellings(spelled, bare.as_deref()));
        if let Some(captures) = spellings.find_map(|path| self.regex.captures(path.as_bytes())) {
            put_groups(&captures, group);
        }
    }

    /// The index of a group: by its name, or its number from 1 on.
    pub(in crate::route) fn group(&self, name: &str) -> Option<usize> {
        let number = name.parse().ok().filter(|number| (1..self.regex.captures_len()).contains(number));
        let named = || self.regex.capture_names().position(|found| found == Some(name));
        number.or_else(named)?.checked_sub(1)
    }

    /// A text that every matching path contains: in lower case where case does not count. Empty if there is none.
    pub(in crate::route) fn literal(&self) -> &[u8] {
        &self.literal
    }
}

impl PartialEq for PathRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathRegex {}

impl fmt::Display for PathRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{}", self.text)
    }
}

fn put_groups(captures: &Captures<'_>, mut group: impl FnMut(usize, &str)) {
    for (index, found) in captures.iter().skip(1).enumerate() {
        let text = found.map(|found| std::str::from_utf8(found.as_bytes()).unwrap_or_default());
        group(index, text.unwrap_or_default());
    }
}

/// The expression with other characters as requests carry them, in back-ticks: `` `~^/caf%C3%A9$` ``. Of a class, its
/// characters as alternatives.
fn percent_encoded(text: &str) -> String {
    let encoded = |letter: char| {
        let mut bytes = [0; 4];
        letter.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect::<String>()
    };
    let (mut out, mut in_class, mut is_escaped) = (String::from("`~"), false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ' '..='~' => out.push(letter),
            _ if in_class => {
                let others: BTreeSet<_> = text.chars().filter(|letter| !letter.is_ascii()).collect();
                let all = others.into_iter().take(3).map(encoded).collect::<Vec<_>>().join("|");
                return format!("`(?:{all})` in place of the class: each character as requests carry it");
            }
            _ => {
                if is_escaped {
                    out.pop();
                }
                let is_repeated = matches!(letters.peek(), Some('*' | '+' | '?' | '{'));
                let code = encoded(letter);
                out.push_str(&if is_repeated { format!("(?:{code})") } else { code });
            }
        }
        in_class = letter == '[' && !is_escaped || in_class && (letter != ']' || is_escaped);
        is_escaped = letter == '\\' && !is_escaped;
    }
    out.push('`');
    out
}

/// The last line of the library's message names the fault.
pub(in crate::route) fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim().trim_start_matches("error: ").to_owned()
}

/// The longest text that every match contains.
fn literal(text: &str, ignores_case: bool) -> Box<[u8]> {
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    let mut longest = Vec::new();
    if let Ok(hir) = parsed {
        required(&hir, &mut longest);
    }
    if ignores_case {
        longest.make_ascii_lowercase();
    }
    longest.into()
}

fn required(hir: &Hir, longest: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Literal(literal) if literal.0.len() > longest.len() => *longest = literal.0.to_vec(),
        HirKind::Capture(capture) => required(&capture.sub, longest),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub, longest),
        HirKind::Concat(parts) => parts.iter().for_each(|part| required(part, longest)),
        _ => {}
    }
}
