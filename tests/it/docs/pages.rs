//! The length of lines of the documentation, its words, its links and the length of its pages.

use crate::harness::pages::{Page, pages, root};

/// The longest line of prose, in characters.
const MAX_LINE: usize = 120;

/// Tables, lines with a long URL, and the comments between which pages are generated may be longer.
#[test]
fn docs_lines_of_prose_are_at_most_120_characters() {
    let mut long = Vec::new();
    for page in pages() {
        for (number, line) in page.prose() {
            let text = line.trim_start();
            let may_be_long = text.starts_with('|')
                || text.starts_with("<!--")
                || text.split_whitespace().any(|word| word.contains("://") && word.chars().count() > 80);
            if !may_be_long && line.chars().count() > MAX_LINE {
                long.push(format!("{}:{number}: {} characters", page.path, line.chars().count()));
            }
        }
    }
    assert!(long.is_empty(), "wrap these lines at {MAX_LINE}:\n{}", long.join("\n"));
}

#[test]
fn docs_name_the_subject_of_a_sentence() {
    let vague = ["whoever", "nobody", "somebody"];
    let mut found = Vec::new();
    for page in pages() {
        for (number, line) in page.prose() {
            // Names in code spans stay as they are.
            let lower = line.split('`').step_by(2).collect::<String>().to_lowercase();
            let words = lower.split(|char: char| !char.is_alphanumeric());
            let words = words.filter(|word| vague.contains(word));
            found.extend(words.map(|word| format!("{}:{number}: {word}", page.path)));
        }
    }
    assert!(found.is_empty(), "write the noun (client, worker, backend …) instead:\n{}", found.join("\n"));
}

#[test]
fn docs_links_lead_somewhere() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages() {
        let directory = root().join(&page.path).parent().expect("a directory").to_path_buf();
        for (number, line) in page.prose() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") {
                    continue;
                }
                links += 1;
                // A title may stand behind the target.
                let target = target.split(" \"").next().unwrap_or(target);
                let (file, section) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() { root().join(&page.path) } else { directory.join(file) };
                let text =
                    std::fs::read(&path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                let is_there = text.is_some_and(|text| {
                    section.is_empty() || Page { path: String::new(), text }.anchors().contains(section)
                }) || path.is_dir();
                if !is_there {
                    broken.push(format!("{}:{number}: {target}", page.path));
                }
            }
        }
    }
    assert!(links > 100, "{links} links were found");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn docs_pages_have_at_most_400_lines() {
    let long: Vec<_> = pages()
        .iter()
        .map(|page| (page.path.clone(), page.text.lines().count()))
        .filter(|(_, lines)| *lines > 400)
        .collect();
    assert!(long.is_empty(), "split these pages by task: {long:?}");
}
