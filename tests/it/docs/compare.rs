//! docs/compare.md: each `yes` of tollgate leads to a test, and what is `not yet` is refused as planned.

use crate::harness::pages::root;

const TITLE: &str = "| | tollgate | nginx | HAProxy | Envoy | Traefik | Caddy | Kong | APISIX |";

/// What a cell of another proxy may say.
const WORDS: [&str; 7] = ["yes", "part", "module", "service", "paid", "no", "–"];

fn page() -> String {
    std::fs::read_to_string(root().join("docs/compare.md")).expect("the page is there")
}

/// The cells of each row that names a feature.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let rows =
        page.lines().skip_while(|line| *line != TITLE).skip(2).take_while(|line| line.starts_with('|'));
    let rows = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| !cells[0].starts_with("**")).collect()
}

/// The file and the name of the test of `[yes](FILE "NAME")`.
fn test_of(cell: &str) -> Option<(&str, &str)> {
    let (file, name) = cell.strip_prefix("[yes](../")?.strip_suffix("\")")?.split_once(" \"")?;
    Some((file, name))
}

#[test]
fn each_yes_of_tollgate_leads_to_a_test() {
    let page = page();
    let (rows, mut faults, mut tests) = (rows(&page), Vec::new(), 0);
    for cells in &rows {
        let (feature, ours) = (cells[0], cells[1]);
        if ["no", "not yet"].contains(&ours) {
            continue;
        }
        let Some((file, name)) = test_of(ours) else {
            faults.push(format!("{feature}: `{ours}` is no link to a test"));
            continue;
        };
        tests += 1;
        let code = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        // The function and its attribute, with a document or another attribute between them.
        let before = code.split(&format!("fn {name}()")).next().filter(|before| before.len() < code.len());
        let is_test = before.is_some_and(|before| {
            let since = before.rsplit("#[test]").next().unwrap_or(before);
            since.len() < before.len() && !since.contains("fn ")
        });
        if !is_test {
            faults.push(format!("{feature}: {file} has no test `{name}`"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tests > 50, "{tests} tests were found");
}

#[test]
fn the_other_proxies_have_a_word_in_each_row() {
    let page = page();
    let rows = rows(&page);
    assert!(rows.len() > 60, "{} rows were found", rows.len());
    for cells in rows {
        assert_eq!(cells.len(), 9, "{}: a cell for each proxy", cells[0]);
        for cell in &cells[2..] {
            assert!(WORDS.contains(cell), "{}: `{cell}` is none of {WORDS:?}", cells[0]);
        }
    }
}

/// README.md lists the same features under `Not yet`, and has no such section without one.
#[test]
fn what_is_not_yet_there_is_planned() {
    let page = page();
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let planned = readme.split("## Not yet").nth(1).and_then(|rest| rest.split("\n## ").next());
    let planned = planned.unwrap_or_default().lines().filter(|line| line.starts_with("- ")).count();
    let not_yet = rows(&page).iter().filter(|cells| cells[1] == "not yet").count();
    assert_eq!(not_yet, planned, "rows with `not yet`, and items of README.md");
}
