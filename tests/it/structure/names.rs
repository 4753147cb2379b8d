//! A name tells one thing: no two public types of the crate have the same name, and no private type has that of a public one.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use crate::harness::sources::rust_files;

use super::imports::{code_of, without_tests};

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
    type_name(rest)
}

/// The name of the type that a line without visibility begins to define.
fn type_name(rest: &str) -> Option<&str> {
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    is_type.then(|| rest.split(|character: char| !character.is_alphanumeric() && character != '_').next())?
}

#[test]
fn no_two_public_types_have_one_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut private: Vec<(String, String)> = Vec::new();
    for file in rust_files("src") {
        // Files of tests, behind `#[cfg(test)]`.
        let is_of_tests = |part: &OsStr| {
            ["segmentation", "tests", "tests.rs", "oracle_tests.rs"].iter().any(|name| part == *name)
        };
        if file.components().any(|part| is_of_tests(part.as_os_str())) {
            continue;
        }
        let code = without_tests(&code_of(&file));
        for name in code.lines().filter_map(public_type) {
            files.entry(name.to_owned()).or_default().push(file.display().to_string());
        }
        // Not indented: those of functions are seen with them.
        let names = code.lines().filter(|line| !line.starts_with(' ')).filter_map(type_name);
        private.extend(names.map(|name| (name.to_owned(), file.display().to_string())));
    }
    assert!(
        files.len() > 300,
        "only {} public types were found: the test reads the wrong place",
        files.len()
    );
    let twice: Vec<_> =
        files.iter().filter(|(name, files)| files.len() > 1 && !FAMILIES.contains(&name.as_str())).collect();
    assert!(twice.is_empty(), "types that need names of their own: {twice:#?}");
    let hidden: Vec<_> = private.iter().filter(|(name, _)| files.contains_key(name)).collect();
    assert!(hidden.is_empty(), "private types with the name of a public one: {hidden:#?}");
    for family in FAMILIES {
        assert!(files.get(family).is_some_and(|files| files.len() > 1), "`{family}` is a family no more");
    }
}
