//! Reads the sources and fails with a sentence when an import runs up, or when the house rules of files are broken.
//!
//! It looks at paths (`crate::x`, `super::x`), not at meaning: a macro that hides a path would hide it from this test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The layers from top to bottom. A module may import from the layers below its own, never from its own or above.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["serve"],
    &["config", "proxy", "admin"],
    &["explain"],
    &["shared"],
    &["telemetry"],
    &["upstream"],
    &["gateway"],
    &["route", "store", "http2"],
    &["clock", "socket", "counter", "aside"],
    &["limit", "http1"],
];

/// Long files hide more than one noun.
const MOST_LINES: usize = 500;

/// A module's name says what it is; these say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "manager", "misc"];

#[test]
fn imports_only_go_down() {
    let mut faults = Vec::new();
    for file in rust_files("src") {
        let (module, code) = (module_of(&file), code_of(&file));
        if module == "lib" {
            continue;
        }
        let own = layer_of(&module).unwrap_or_else(|| {
            panic!(
                "`{module}` has no layer: give it one in ARCHITECTURE.md, in src/lib.rs and in LAYERS here"
            )
        });
        for import in imports(&code, depth_of(&file)) {
            let Some(layer) = layer_of(&import) else { continue };
            if import != module && layer <= own {
                faults.push(format!(
                    "{} imports `{import}`, which does not lie below `{module}`: move what it needs down, or turn the call around",
                    file.display()
                ));
            }
        }
    }
    assert!(faults.is_empty(), "imports only go down:\n{}", faults.join("\n"));
}

#[test]
fn the_core_needs_nothing_but_std() {
    let manifest: toml::Table = read(Path::new("Cargo.toml")).parse().expect("Cargo.toml is TOML");
    let tables =
        ["dependencies", "dev-dependencies"].map(|table| manifest[table].as_table().expect("a table"));
    let crates: Vec<_> =
        tables.iter().flat_map(|table| table.keys()).map(|name| name.replace('-', "_")).collect();
    for file in rust_files("src").into_iter().filter(|file| module_of(file) == "limit") {
        if is_test_only(&file) {
            continue;
        }
        let code = code_of(&file);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for name in &crates {
            assert!(
                !starts_a_path(code, name),
                "{} uses the crate `{name}`, but the core is std only",
                file.display()
            );
        }
        for word in
            ["std::time::Instant", "SystemTime", "std::io", "std::net", "async fn", "println!", "std::thread"]
        {
            assert!(
                !code.contains(word),
                "{} uses `{word}`, but the core has no clock, no I/O, no async, no threads and no logging",
                file.display()
            );
        }
    }
}

#[test]
fn the_library_is_only_a_map() {
    let code = code_of(Path::new("src/lib.rs"));
    for word in ["fn ", "struct ", "enum ", "impl ", "macro_rules!"] {
        assert!(
            !code.contains(word),
            "src/lib.rs has `{word}…`, but it is only a map: give it a file of its own"
        );
    }
}

#[test]
fn every_module_on_the_map_has_a_layer_and_every_layer_a_module() {
    let code = code_of(Path::new("src/lib.rs"));
    let lines = code.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let listed: BTreeSet<_> = lines.chain(["main"]).collect();
    let layered: BTreeSet<_> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    assert_eq!(listed, layered, "src/lib.rs and LAYERS must name the same modules");
}

#[test]
fn files_are_short_and_named_for_what_they_are() {
    let files: Vec<_> = ["src", "tests", "benches"].into_iter().flat_map(rust_files).collect();
    assert!(files.len() > 20, "only {} files found", files.len());
    for file in files {
        let lines = read(&file).lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines: split it at its second noun", file.display());
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert!(!EMPTY_NAMES.contains(&stem), "{}: name it for what it holds", file.display());
    }
}

#[test]
fn the_reader_of_imports_sees_every_form() {
    let code = "use crate::{store::{Store, memory}, route};\nlet x = crate::clock::now();\nuse super::super::proxy::run;\nuse super::own;";
    assert_eq!(imports(code, 2), ["store", "route", "clock", "proxy"]);
    assert_eq!(
        strip_comments("use a; // crate::cli\n/// [`crate::cli`]\nlet url = \"http://x\";"),
        "use a; \n\nlet url = \"http:\n"
    );
    assert!(starts_a_path("use time::x;", "time") && !starts_a_path("use std::time::x;", "time"));
}

/// The top-level modules that `code` names by `crate::` or by climbing to the root with `super::`.
fn imports(code: &str, depth: usize) -> Vec<String> {
    let climb = "super::".repeat(depth);
    let roots = ["crate::", "tollgate::", climb.as_str()];
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        let root = roots.iter().find(|root| rest.starts_with(**root) && is_path_start(code, at));
        match root {
            Some(root) => {
                found.extend(first_segments(&rest[root.len()..]));
                at += root.len();
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    found
}

/// `a::b` gives `a`; `{a::b, c}` gives `a` and `c`.
fn first_segments(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else { return vec![identifier(rest)] };
    let (mut found, mut depth, mut fresh) = (Vec::new(), 0, true);
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' => fresh = depth == 0,
            char if fresh && char.is_alphabetic() => {
                found.push(identifier(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
}

/// Whether a path can begin at `at`: not inside a word, nor after `::`.
fn is_path_start(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|char: char| char.is_alphanumeric() || char == '_' || char == ':')
}

fn starts_a_path(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path).any(|(at, _)| is_path_start(code, at))
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// `src/store/memory.rs` belongs to `store`.
fn module_of(file: &Path) -> String {
    let below = file.strip_prefix("src").expect("a source file").with_extension("");
    below.iter().next().and_then(|name| name.to_str()).expect("a name").to_owned()
}

/// How many `super::` lead from a file's module to the root.
fn depth_of(file: &Path) -> usize {
    file.components().count() - 1
}

/// Whether its parent declares a file as `#[cfg(test)] mod NAME;`.
fn is_test_only(file: &Path) -> bool {
    let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let parent = file.parent().expect("a folder").with_extension("rs");
    parent.exists() && read(&parent).contains(&format!("#[cfg(test)]\nmod {name};"))
}

fn code_of(file: &Path) -> String {
    strip_comments(&read(file))
}

/// Cuts each line at `//`, also inside of strings: no path that matters follows there.
fn strip_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}

pub(crate) fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
}

/// All `.rs` files below a folder; none if there is no such folder.
pub(crate) fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
