//! The pages of the documentation as text: their blocks, their prose and their anchors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the repository is.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A Markdown file.
pub(crate) struct Page {
    /// Its path inside the repository.
    pub(crate) path: String,
    /// The whole file.
    pub(crate) text: String,
}

/// A fenced block of a page.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The page's path inside the repository.
    pub(crate) page: String,
    /// The line of the opening fence, from 1.
    pub(crate) line: usize,
    /// The text behind the opening fence.
    pub(crate) info: String,
    /// The lines between the fences, less the indentation of the opening one.
    pub(crate) text: String,
}

impl Block {
    /// `docs/guide.md:12`.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// README.md and each Markdown file under docs/.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = vec![root().join("README.md")];
    collect(&root().join("docs"), &mut paths);
    paths.sort();
    let page = |path: PathBuf| Page {
        text: std::fs::read_to_string(&path).expect("the page can be read"),
        path: path.strip_prefix(root()).expect("it is inside").display().to_string(),
    };
    paths.into_iter().map(page).collect()
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

impl Page {
    /// All fenced blocks, in order.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(Block, usize)> = None;
        for (index, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(info)) => {
                    let block = Block {
                        page: self.path.clone(),
                        line: index + 1,
                        info: info.trim().to_owned(),
                        text: String::new(),
                    };
                    open = Some((block, line.len() - line.trim_start().len()));
                }
                (Some(_), Some("")) => blocks.extend(open.take().map(|(block, _)| block)),
                (Some((block, indentation)), _) => {
                    let kept = line.get(*indentation..).unwrap_or_else(|| line.trim_start());
                    block.text.push_str(kept);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        blocks
    }

    /// The lines outside of blocks, with their numbers from 1.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                lines.push((index + 1, line));
            }
        }
        lines
    }

    /// What `#…` can name here: headings, and `<a id="…">`.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let prose = self.prose();
        let headings = prose.iter().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line));
        let ids = self.text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        headings.chain(ids.map(str::to_owned)).collect()
    }
}

/// Whether there is a test of this name: `room::file::test`, or `src/file.rs::test`.
pub(crate) fn test_exists(name: &str) -> bool {
    let Some((file, test)) = name.rsplit_once("::") else { return false };
    let path = if file.starts_with("src/") {
        file.to_owned()
    } else {
        format!("tests/it/{}.rs", file.replace("::", "/"))
    };
    let code = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
    code.contains(&format!("fn {test}("))
        || file == "fuzz::parsers" && root().join(format!("fuzz/fuzz_targets/{test}.rs")).exists()
}

/// How a heading is linked to.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|char| char.is_alphanumeric() || matches!(char, '-' | '_')).collect()
}

/// Whether a line of expected output is the printed line; `…` stands for any characters.
pub(crate) fn line_matches(expected: &str, printed: &str) -> bool {
    match expected.split_once('…') {
        None => expected == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(index, _)| index)
                .chain([rest.len()])
                .any(|index| line_matches(after, &rest[index..]))
        }),
    }
}
