//! README and the tour, followed from top to bottom on a clean machine, where a command finds only what the page has made.

use crate::harness::newcomer::{CLONE, Newcomer};
use crate::harness::pages::{Page, pages};

/// Attempts: a gateway that is asked a second too late admits one request more, and the machine may be busy.
const ATTEMPTS: usize = 4;
/// The lines of one screen, or little more.
const FIRST_SCREEN: usize = 65;

fn page(path: &str) -> Page {
    pages().into_iter().find(|page| page.path == path).expect("the page is there")
}

/// Follows the page, until nothing differs from what it says.
#[track_caller]
fn follow(path: &str, before: impl Fn(&Newcomer), after: impl Fn(&Newcomer)) {
    let page = page(path);
    let mut faults = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut newcomer = Newcomer::new();
        before(&newcomer);
        faults = newcomer.follow(&page);
        if faults.is_empty() {
            after(&newcomer);
            return;
        }
    }
    panic!("\n{}", faults.join("\n\n"));
}

/// The program is the one that the page's own line has put into the PATH.
fn finds_what_make_run_built(newcomer: &Newcomer) {
    let (found, _) = newcomer.run("command -v tollgate");
    assert!(found.trim_end().ends_with("/home/tollgate/target/try/tollgate"), "{found}");
}

#[test]
fn every_block_of_readme_works_on_a_clean_machine() {
    let none = |newcomer: &Newcomer| {
        let (found, is_found) = newcomer.run("command -v tollgate");
        assert!(!is_found, "before the first block there is no program, but: {found}");
    };
    follow("README.md", none, |newcomer| {
        finds_what_make_run_built(newcomer);
        newcomer.service_was_reached();
    });
}

#[test]
fn every_block_of_the_tour_works_in_a_clone() {
    let clone = |newcomer: &Newcomer| assert!(newcomer.run(CLONE).1, "README's first command");
    follow("docs/tour.md", clone, finds_what_make_run_built);
}

/// A reader has seen a refusal and the dashboard before the first scrolling.
#[test]
fn the_first_screen_of_readme_ends_with_a_refusal_and_the_dashboard() {
    let page = page("README.md");
    let screen: Vec<_> = page.text.lines().take(FIRST_SCREEN).collect();
    for part in ["make run", "make test", "HTTP/1.1 429 Too Many Requests", "](docs/pictures/"] {
        assert!(
            screen.iter().any(|line| line.contains(part)),
            "not in the first {FIRST_SCREEN} lines: {part}"
        );
    }
    let blocks = page.blocks();
    let file = blocks.iter().find(|block| block.info.starts_with("toml")).expect("a file");
    let lines = file.text.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 11, "the file for one's own service has {lines} lines");
}
