//! Keys, strings and comments of TOML.

use std::fmt::Write as _;

use crate::telemetry::terminal::safe_text;

/// The maximum number of characters of a comment.
const MAX_COMMENT: usize = 2_500;
/// The maximum number of characters of a line of a comment, without a word that is longer.
const LINE: usize = 118;

/// A bare key, where the name is one.
pub(super) fn key(name: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// A string that stands for this text in `gateway.toml`, where `${` begins a variable.
pub(super) fn string(text: &str) -> String {
    quoted(&text.replace("${", "$${"))
}

/// A basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a string cannot fail.
            control if control.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(control))),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// One text as a string, several as a list.
pub(super) fn one_or_list(texts: &[String]) -> String {
    if let [one] = texts { string(one) } else { list(texts) }
}

/// A list of strings.
pub(super) fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| string(text)).collect::<Vec<_>>().join(", "))
}

/// Lines of a comment, without characters that control a terminal.
pub(super) fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::from("#"));
    for word in safe_text(text, MAX_COMMENT).split(' ') {
        if line.len() > 1 && line.chars().count() + word.chars().count() >= LINE {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}
