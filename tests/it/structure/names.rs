//! A name tells one thing: no two public types of the crate have the same name.

use std::collections::BTreeMap;

use crate::harness::sources::rust_files;

use super::imports::code_of;

/// Families that their module paths tell apart.
const FAMILIES: [&str; 1] = [
    // Of each algorithm, and of any.
    "State",
];

/// The name of the public type that a line begins to define.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest =
        rest.strip_prefix('(').map_or(Some(rest), |inner| inner.split_once(')').map(|(_, rest)| rest))?;
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    is_type.then(|| rest.split(|character: char| !character.is_alphanumeric() && character != '_').next())?
}

#[test]
fn no_two_public_types_have_one_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files("src") {
        // Files of tests, behind `#[cfg(test)]`.
        if file.components().any(|part| part.as_os_str() == "segmentation" || part.as_os_str() == "tests") {
            continue;
        }
        for name in code_of(&file).lines().filter_map(public_type) {
            files.entry(name.to_owned()).or_default().push(file.display().to_string());
        }
    }
    assert!(
        files.len() > 300,
        "only {} public types were found: the test reads the wrong place",
        files.len()
    );
    let twice: Vec<_> =
        files.iter().filter(|(name, files)| files.len() > 1 && !FAMILIES.contains(&name.as_str())).collect();
    assert!(twice.is_empty(), "types that need names of their own: {twice:#?}");
    for family in FAMILIES {
        assert!(files.get(family).is_some_and(|files| files.len() > 1), "`{family}` is a family no more");
    }
}
