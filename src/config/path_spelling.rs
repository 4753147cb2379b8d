//! The `path` of a route, read for what no path of a request can be: each part of a regular expression that can never
//! match, and parameters in the form of other proxies.
//!
//! A path begins with `/`. It is percent-encoded and has no query. Escapes of letters, digits and `-._~` are decoded, and
//! duplicate slashes are merged before routes are looked for. So `~^login$`, `~^/login\?next=` and `~^/a//b$` match
//! nothing. What is found here is proven: a part is dead if each text that it matches has a byte, or a place, that no
//! path has.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::report::{cut_for_help, quoted};
use super::text::Cursor;
use crate::route::Conditions;
use crate::route::path::PathMatching;

/// Why no path has a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Dead {
    /// A path begins with `/`.
    Beginning,
    /// This byte is not sent in a path.
    Byte(u8),
    /// `//`, where duplicate slashes are merged.
    Slashes,
    /// An escape of this byte, which needs none.
    Escape(u8),
    /// An escape with lower-case digits, where case counts.
    LowerCase,
}

/// Reports what is dead in the path of a route: a fault if all of it is, a warning if a part is.
pub(super) fn check(path: &Cursor<'_>, conditions: &Conditions, matching: PathMatching) {
    if let Some(expression) = path.as_str().strip_prefix('~') {
        let language = Language { merge_slashes: conditions.merge_slashes, matching };
        language.check(path, expression);
    } else if let Some((segment, remedy)) = foreign_parameter(path.as_str()) {
        let message = format!("{} in {} is a text, not a parameter", shown(path, &segment), path.quoted());
        let help = format!("write `{}` for any one segment", cut_for_help(&remedy));
        path.diagnostics().warn(path.span(), message, help_of(path, help));
    }
}

/// A part of the path in back-ticks, unless it comes from a variable.
fn shown(path: &Cursor<'_>, part: &str) -> String {
    if path.as_str() == path.written() { quoted(part) } else { "a segment".to_owned() }
}

/// The remedy, unless it would show the text of a variable.
fn help_of(path: &Cursor<'_>, help: String) -> String {
    if path.as_str() == path.written() { help } else { "look at what the variable holds".to_owned() }
}

/// The first segment that other programs read as a parameter, and the path with such segments in our form.
pub(super) fn foreign_parameter(path: &str) -> Option<(String, String)> {
    let name = |segment: &str| {
        let braced = |begin, end| segment.strip_prefix(begin)?.strip_suffix(end);
        let name = segment
            .strip_prefix(':')
            .or_else(|| braced('<', '>').map(|inner| inner.rsplit(':').next().unwrap_or(inner)))
            .or_else(|| braced('[', ']').map(|inner| inner.trim_start_matches('.')))?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        (is_name && begins).then(|| name.to_owned())
    };
    let first = path.split('/').find(|segment| name(segment).is_some())?.to_owned();
    let ours = path.split('/').map(|segment| match name(segment) {
        Some(name) => format!("{{{name}}}"),
        None => segment.to_owned(),
    });
    Some((first, ours.collect::<Vec<_>>().join("/")))
}

/// The paths of requests as regular expressions see them.
#[derive(Clone, Copy)]
struct Language {
    merge_slashes: bool,
    matching: PathMatching,
}

/// What is known of a part.
struct PatternPart {
    is_alive: bool,
    /// Nothing of the path was passed before the next part, for certain.
    at_start: bool,
}

impl Language {
    fn check(self, path: &Cursor<'_>, expression: &str) {
        let (is_alive, found) = self.examine(expression);
        let Some(dead) = found.first() else { return };
        let is_shown = path.as_str() == path.written();
        let why = if is_shown { format!(": {}", dead.reason()) } else { String::new() };
        let help = help_of(path, self.remedy(dead, expression, is_alive));
        if is_alive {
            path.diagnostics().warn(
                path.span(),
                format!("a part of {} never matches{why}", path.quoted()),
                help,
            );
        } else {
            let message = format!("no request has a path that matches {}{why}", path.quoted());
            path.diagnostics().fault(path.span(), message, help);
        }
    }

    /// Whether a path may match, and what cannot, in the order of the expression.
    fn examine(self, expression: &str) -> (bool, Vec<Dead>) {
        let mut found = Vec::new();
        let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(expression);
        // An expression that cannot be parsed is a fault already.
        let is_alive = parsed.map_or(true, |hir| self.part(&hir, false, &mut found).is_alive);
        (is_alive, found)
    }

    /// `at_start`: the part stands where a path begins.
    fn part(self, hir: &Hir, at_start: bool, found: &mut Vec<Dead>) -> PatternPart {
        match hir.kind() {
            HirKind::Empty => PatternPart { is_alive: true, at_start },
            HirKind::Look(Look::Start | Look::StartLF | Look::StartCRLF) => {
                PatternPart { is_alive: true, at_start: true }
            }
            HirKind::Look(Look::End | Look::EndLF | Look::EndCRLF) if at_start => {
                found.push(Dead::Beginning);
                PatternPart { is_alive: false, at_start: false }
            }
            HirKind::Look(_) => PatternPart { is_alive: true, at_start },
            HirKind::Literal(literal) => consumed(self.literal(&literal.0, at_start), found),
            HirKind::Class(class) => consumed(class_fault(class, at_start), found),
            HirKind::Capture(capture) => self.part(&capture.sub, at_start, found),
            HirKind::Repetition(repetition) => {
                let inner = self.part(&repetition.sub, at_start, found);
                // A part that cannot occur, and need not, is passed over.
                let is_skipped = repetition.min == 0 && !inner.is_alive;
                let is_alive = inner.is_alive || repetition.min == 0;
                PatternPart { is_alive, at_start: at_start && is_skipped }
            }
            HirKind::Concat(parts) => {
                let mut last = PatternPart { is_alive: true, at_start };
                for part in parts {
                    last = self.part(part, last.at_start, found);
                    if !last.is_alive {
                        break;
                    }
                }
                last
            }
            HirKind::Alternation(parts) => {
                let mut joined = PatternPart { is_alive: false, at_start: true };
                for part in parts.iter().map(|part| self.part(part, at_start, found)) {
                    joined.is_alive |= part.is_alive;
                    joined.at_start &= part.at_start || !part.is_alive;
                }
                joined
            }
        }
    }

    fn literal(self, text: &[u8], at_start: bool) -> Option<Dead> {
        if at_start && text.first() != Some(&b'/') {
            return Some(Dead::Beginning);
        }
        if let Some(byte) = text.iter().find(|byte| !is_of_path(**byte)) {
            return Some(Dead::Byte(*byte));
        }
        if self.merge_slashes && text.windows(2).any(|pair| pair == b"//") {
            return Some(Dead::Slashes);
        }
        let escapes = text.windows(3).filter_map(|window| match window {
            [b'%', high, low] => Some((hexadecimal(*high)? << 4 | hexadecimal(*low)?, [*high, *low])),
            _ => None,
        });
        escapes.into_iter().find_map(|(byte, digits)| {
            let has_lower = digits.iter().any(u8::is_ascii_lowercase);
            if is_unreserved(byte) {
                Some(Dead::Escape(byte))
            } else if has_lower && self.matching == PathMatching::Strict {
                Some(Dead::LowerCase)
            } else {
                None
            }
        })
    }

    /// The right spelling. One that is computed is shown only if no part of it is dead.
    fn remedy(self, dead: &Dead, expression: &str, is_alive: bool) -> String {
        let sound = |candidate: Option<String>| {
            let candidate = candidate.filter(|candidate| candidate != expression)?;
            let (is_alive, found) = self.examine(&candidate);
            (is_alive && found.is_empty()).then(|| cut_for_help(&candidate))
        };
        match dead {
            Dead::Beginning if expression.contains("//") => {
                "write the path alone, such as `~^/v[0-9]+/search$`: the host stands in `hosts`".to_owned()
            }
            Dead::Beginning => match sound(Some(with_slashes(expression))) {
                Some(right) => format!("write `~{right}`"),
                None => "let the expression begin with `^/`".to_owned(),
            },
            Dead::Byte(b'?') => match sound(before_query(expression)) {
                Some(right) if !is_alive => {
                    let name = query_name(expression).unwrap_or("NAME");
                    format!(
                        "write `~{right}`, and `query = {{ {name} = \"*\" }}` for a parameter of any value"
                    )
                }
                _ => "leave it out; `query = { NAME = \"VALUE\" }` compares a parameter".to_owned(),
            },
            Dead::Byte(byte) if byte.is_ascii() => format!("write `%{byte:02X}`, as requests carry it"),
            Dead::Byte(_) => "write each byte as requests carry it: `%C3%A9` for `é`".to_owned(),
            Dead::Slashes => match sound(Some(merged(expression))) {
                Some(right) => format!("write `~{right}`, or add `merge_slashes = false`"),
                None => "write one slash, or add `merge_slashes = false`".to_owned(),
            },
            Dead::Escape(byte) => {
                let letter = char::from(*byte);
                let right = if letter == '.' { "\\.".to_owned() } else { letter.to_string() };
                format!("write `{right}` for `%{byte:02X}`")
            }
            Dead::LowerCase => "write the digits of escapes in upper case, such as `%C3%A9`".to_owned(),
        }
    }
}

impl Dead {
    fn reason(&self) -> String {
        match self {
            Self::Beginning => "a path begins with `/`".to_owned(),
            Self::Byte(b'?') => "a path has no `?`, since the query is not part of it".to_owned(),
            Self::Byte(b' ') => "a path has no blank, which is sent percent-encoded".to_owned(),
            Self::Byte(byte) if byte.is_ascii_graphic() => {
                format!("a path has no `{}`", char::from(*byte))
            }
            Self::Byte(_) => "a path is percent-encoded: it has visible ASCII characters alone".to_owned(),
            Self::Slashes => "duplicate slashes of a path are merged first".to_owned(),
            Self::Escape(_) => "escapes of letters, digits and `-._~` are decoded first".to_owned(),
            Self::LowerCase => "the digits of escapes are made upper case first".to_owned(),
        }
    }
}

/// A part that takes at least one byte.
fn consumed(fault: Option<Dead>, found: &mut Vec<Dead>) -> PatternPart {
    let is_alive = fault.is_none();
    found.extend(fault);
    PatternPart { is_alive, at_start: false }
}

fn class_fault(class: &Class, at_start: bool) -> Option<Dead> {
    let ranges: Vec<(u32, u32)> = match class {
        Class::Bytes(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
        Class::Unicode(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    };
    let has = |byte: u8| ranges.iter().any(|(start, end)| (*start..=*end).contains(&byte.into()));
    let first = u8::try_from(ranges.first()?.0).unwrap_or(u8::MAX);
    if at_start && !has(b'/') {
        Some(Dead::Beginning)
    } else if (0..=u8::MAX).any(|byte| is_of_path(byte) && has(byte)) {
        None
    } else {
        Some(Dead::Byte(if has(b'?') { b'?' } else { first }))
    }
}

/// Whether paths have this byte: see [`PathFault::Forbidden`](crate::route::path::PathFault::Forbidden).
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'?' | b'#')
}

/// Whether this byte is never escaped in a normalised path (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hexadecimal(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

/// With `/` after each `^` that stands for the beginning.
fn with_slashes(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len() + 1);
    let (mut is_escaped, mut in_class) = (false, false);
    let mut letters = expression.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(letter);
        if letter == '^' && !is_escaped && !in_class && letters.peek() != Some(&'/') {
            out.push('/');
        }
        match letter {
            '[' if !is_escaped => in_class = true,
            ']' if !is_escaped => in_class = false,
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    out
}

/// What stands before the first `\?`, to the end of a path. `None` if that is not a whole expression.
fn before_query(expression: &str) -> Option<String> {
    let (before, _) = expression.split_once("\\?")?;
    let is_whole = !before.is_empty() && !before.ends_with(['\\', '(', '|']);
    is_whole.then(|| format!("{before}$"))
}

/// The name of the parameter after `\?`.
fn query_name(expression: &str) -> Option<&str> {
    let (_, query) = expression.split_once("\\?")?;
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let end = query.bytes().position(|byte| !is_of_name(byte)).unwrap_or(query.len());
    let (name, rest) = query.split_at_checked(end)?;
    (!name.is_empty() && rest.starts_with('=')).then_some(name)
}

fn merged(expression: &str) -> String {
    let mut out = expression.to_owned();
    while out.contains("//") {
        out = out.replace("//", "/");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Language = Language { merge_slashes: true, matching: PathMatching::Lenient };

    fn examined(expression: &str) -> (bool, Option<Dead>) {
        let (is_alive, found) = USUAL.examine(expression);
        (is_alive, found.into_iter().next())
    }

    #[test]
    fn expressions_that_can_match_are_alive_in_all_parts() {
        for alive in [
            "^/login$",
            "login",
            "login$",
            ".*",
            "^.*$",
            "^/?login$",
            "^(/a|/b)$",
            "(?i)^/A",
            "^[^?#]*$",
            "^/a[/?]?",
            "^\\S+$",
            "^/caf%C3%A9$",
            "^/caf%c3%a9$",
            "^/a%2Fb$",
            "/$",
            "^/a/{1,3}b",
            "^(?:/[a-z]+)+/?$",
            "",
            "^",
            "\\.php$",
        ] {
            assert_eq!(examined(alive), (true, None), "{alive}");
        }
    }

    #[test]
    fn expressions_that_match_no_path_are_dead() {
        for (dead, why) in [
            ("^login$", Dead::Beginning),
            ("^(login|signup)$", Dead::Beginning),
            ("^https?://a/b", Dead::Beginning),
            ("^[a-z]+/x", Dead::Beginning),
            ("^$", Dead::Beginning),
            ("^(?:www\\.)?login$", Dead::Beginning),
            ("^/login\\?next=", Dead::Byte(b'?')),
            ("^/a b$", Dead::Byte(b' ')),
            ("^/a\\s", Dead::Byte(b'\t')),
            ("^/a#b", Dead::Byte(b'#')),
            ("^/a\\\\b", Dead::Byte(b'\\')),
            ("^/\\xE9", Dead::Byte(0xe9)),
            ("^/a//b$", Dead::Slashes),
            ("^/%7Euser", Dead::Escape(b'~')),
            ("^/a\\.b%2e", Dead::Escape(b'.')),
        ] {
            assert_eq!(examined(dead), (false, Some(why)), "{dead}");
        }
        let strict = Language { merge_slashes: false, matching: PathMatching::Strict };
        assert_eq!(strict.examine("^/caf%c3"), (false, vec![Dead::LowerCase]));
        assert_eq!(strict.examine("^/a//b$"), (true, vec![]));
    }

    #[test]
    fn parts_that_never_match_are_found_beside_others() {
        for (partial, why) in [
            ("^/login(\\?.*)?$", Dead::Byte(b'?')),
            ("^/(a b|c)$", Dead::Byte(b' ')),
            ("^(?:/login|login)/x$", Dead::Beginning),
        ] {
            assert_eq!(examined(partial), (true, Some(why)), "{partial}");
        }
    }

    #[test]
    fn a_remedy_has_no_dead_part() {
        let remedy = |expression: &str| {
            let (is_alive, found) = USUAL.examine(expression);
            USUAL.remedy(&found[0], expression, is_alive)
        };
        for (expression, right) in [
            ("^login$", "write `~^/login$`"),
            ("^(login|sign-up)$", "write `~^/(login|sign-up)$`"),
            ("^a|^b", "write `~^/a|^/b`"),
            ("^$", "write `~^/$`"),
            (
                "^https?://a/b",
                "write the path alone, such as `~^/v[0-9]+/search$`: the host stands in `hosts`",
            ),
            (
                "^/login\\?next=/home",
                "write `~^/login$`, and `query = { next = \"*\" }` for a parameter of any value",
            ),
            ("^/login(\\?.*)?$", "leave it out; `query = { NAME = \"VALUE\" }` compares a parameter"),
            ("^/a//b$", "write `~^/a/b$`, or add `merge_slashes = false`"),
            ("^/a b$", "write `%20`, as requests carry it"),
            ("^/%7Euser", "write `~` for `%7E`"),
        ] {
            assert_eq!(remedy(expression), right, "{expression}");
        }
    }

    #[test]
    fn parameters_of_other_programs_are_found() {
        let found = |path: &str| foreign_parameter(path).map(|(segment, right)| format!("{segment} {right}"));
        for (path, expected) in [
            ("/u/:id", Some(":id /u/{id}")),
            ("/u/:id/posts/:post", Some(":id /u/{id}/posts/{post}")),
            ("/u/<int:id>", Some("<int:id> /u/{id}")),
            ("/u/<id>", Some("<id> /u/{id}")),
            ("/u/[id]", Some("[id] /u/{id}")),
            ("/u/{id}", None),
            ("/v1/projects:batch", None),
            ("/u/:", None),
            ("/u/:0", None),
            ("/*", None),
        ] {
            assert_eq!(found(path).as_deref(), expected, "{path}");
        }
    }
}
