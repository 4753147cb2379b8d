//! SECURITY.md and CONTRIBUTING.md: their paths, links, lines and variables.

use std::collections::BTreeSet;

use crate::harness::pages::root;
use crate::harness::sources::{read, rust_files};

const PAGES: [&str; 2] = ["CONTRIBUTING.md", "SECURITY.md"];
const MAX_LINES: usize = 150;
const MAX_LINE: usize = 120;

/// The words in code spans of a page.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// `src/limit/NAME.rs` stands for a file that is still to be written.
fn is_path(span: &str) -> bool {
    let is_plain = span.chars().all(|char| char.is_alphanumeric() || "/._-".contains(char));
    let is_file = [".rs", ".md", ".lua", ".toml", ".json", ".yaml", ".txt", ".trace", ".service"]
        .iter()
        .any(|ending| span.ends_with(ending));
    let in_folder = ["src/", "tests/", "docs/", "deploy/", "packaging/", ".ci/", "benches/"];
    is_plain && (is_file || in_folder.iter().any(|folder| span.starts_with(folder)))
}

#[test]
fn docs_of_the_project_name_paths_and_link_files_that_exist() {
    for page in PAGES {
        let text = read(&root().join(page));
        let (placeholders, paths): (Vec<_>, Vec<_>) = spans(&text)
            .filter(|span| is_path(span))
            .partition(|path| path.contains("NAME") || path.contains("ROOM"));
        for path in &paths {
            assert!(root().join(path).exists(), "{page} names {path}");
        }
        for path in placeholders {
            let folder = path.split("/NAME").next().and_then(|path| path.split("/ROOM").next());
            assert!(root().join(folder.expect("a part")).is_dir(), "{page} names {path}");
        }
        let links: Vec<_> =
            text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()).collect();
        for link in links.iter().filter(|link| !link.contains("://")) {
            assert!(root().join(link).exists(), "{page} links {link}");
        }
        assert!(paths.len() + links.len() > 5, "{page}: {paths:?}");
    }
}

#[test]
fn docs_of_the_project_are_short() {
    for page in PAGES {
        let text = read(&root().join(page));
        assert!(text.lines().count() <= MAX_LINES, "{page}");
        for line in text.lines().filter(|line| !line.starts_with('|')) {
            assert!(line.chars().count() <= MAX_LINE, "{page}: {line}");
        }
    }
}

/// Each variable that the tests read is described, and no other.
#[test]
fn docs_of_the_project_list_the_variables_of_the_tests() {
    let page = read(&root().join("CONTRIBUTING.md"));
    let described: BTreeSet<&str> = spans(&page)
        .filter(|span| span.starts_with("TOLLGATE_TEST_") || span.starts_with("TOLLGATE_FUZZ_"))
        .collect();
    let mut read_by_tests = BTreeSet::new();
    for file in rust_files("tests") {
        let code = read(&file);
        for start in ["env::var(\"", "env::var_os(\"", "cached_python(\"", "in_cache(\"", "number(\""] {
            let names = code.split(start).skip(1).filter_map(|rest| rest.split('"').next());
            let own =
                names.filter(|name| name.starts_with("TOLLGATE_TEST_") || name.starts_with("TOLLGATE_FUZZ_"));
            read_by_tests.extend(own.map(str::to_owned));
        }
    }
    assert_eq!(described, read_by_tests.iter().map(String::as_str).collect());
}
