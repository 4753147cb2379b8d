//! The pages about security and `SECURITY.md` name tests that there are.

use std::path::Path;

use crate::harness::pages::test_exists;

#[test]
fn each_test_on_the_pages_exists() {
    each_test_exists("docs/security.md", 50);
    each_test_exists("docs/security-administration.md", 15);
    each_test_exists("docs/security-credentials.md", 50);
    each_test_exists("docs/http3.md", 10);
    each_test_exists("SECURITY.md", 15);
}

fn each_test_exists(page: &str, least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join(page)).expect("the page is there");
    let names: Vec<&str> =
        text.split('`').filter(|word| word.contains("::") && !word.contains(' ')).collect();
    assert!(names.len() > least, "{page} names {} tests", names.len());
    for name in names.into_iter().filter(|name| *name != "room::file::test") {
        assert!(test_exists(name), "{page} names `{name}`, which is not a test");
    }
}
