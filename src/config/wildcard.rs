//! Names of files with `*` and `?`.

use std::io;
use std::path::{Path, PathBuf};

/// Whether a text has `*` or `?`.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// The files in the directory of `pattern` whose names match its last part, sorted by name. Subdirectories are left
/// out, and hidden files unless the pattern begins with a dot, too.
///
/// # Errors
///
/// The directory cannot be read. A directory that is not there has no files.
pub(super) fn matches(pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let wanted = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = match pattern.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let shown = name.to_string_lossy();
        let path = pattern.with_file_name(&name);
        if (!shown.starts_with('.') || wanted.starts_with('.')) && is_match(&wanted, &shown) && !path.is_dir()
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a name matches a pattern: `*` stands for any characters, `?` for one.
fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut position) = (0, 0);
    // Only the last `*` is ever widened, so the time is at most the product of the lengths.
    let mut star = None;
    while position < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == name[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                position = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_names() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", true),
            ("*.toml", "a.toml~", false),
            ("a?.toml", "ab.toml", true),
            ("a?.toml", "a.toml", false),
            ("?", "ä", true),
            ("*a*b", "xaxbxab", true),
            ("*a*b", "xaxbxa", false),
            ("", "", true),
            ("**", "", true),
            ("a", "", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
        let long = "a".repeat(5_000);
        assert!(!is_match(&format!("{}b", "*a".repeat(100)), &long));
    }
}
