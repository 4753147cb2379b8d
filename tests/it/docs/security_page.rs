//! The pages about security and `SECURITY.md` name tests that there are.

use std::path::Path;

#[test]
fn each_test_on_the_pages_exists() {
    each_test_exists("docs/security.md", 50);
    each_test_exists("docs/security-administration.md", 15);
    each_test_exists("SECURITY.md", 15);
}

fn each_test_exists(page: &str, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(page)).expect("the page is there");
    let names: Vec<&str> =
        text.split('`').filter(|word| word.contains("::") && !word.contains(' ')).collect();
    assert!(names.len() > least, "{page} names {} tests", names.len());
    for name in names.into_iter().filter(|name| *name != "room::file::test") {
        let (file, test) = name.rsplit_once("::").expect("it has one");
        let path = if file.starts_with("src/") {
            file.to_owned()
        } else {
            format!("tests/it/{}.rs", file.replace("::", "/"))
        };
        let code = std::fs::read_to_string(root.join(&path))
            .unwrap_or_else(|error| panic!("{name}: {path}: {error}"));
        let is_there = code.contains(&format!("fn {test}("))
            || file == "fuzz::parsers" && root.join(format!("fuzz/fuzz_targets/{test}.rs")).exists();
        assert!(is_there, "{path} has no test `{test}`");
    }
}
