//! `docs/security.md` names tests that there are.

use std::path::Path;

#[test]
fn each_test_on_the_page_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/security.md")).expect("the page is there");
    let names: Vec<&str> =
        page.split('`').filter(|word| word.contains("::") && !word.contains(' ')).collect();
    assert!(names.len() > 50, "the page names {} tests", names.len());
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
