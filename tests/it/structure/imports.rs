//! Reads the sources and fails with a sentence when an import runs up, when files import each other in a ring, or when the house rules
//! of files are broken.
//!
//! It looks at paths (`crate::x`, `super::x`), not at meaning: a macro that hides a path would hide it from this test.

use crate::harness::sources::{read, rust_files};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// The layers from top to bottom. A module may import from the layers below its own, never from its own or above.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["serve"],
    &["config", "proxy", "admin"],
    &["suggest", "witness", "import", "policy_test"],
    &["explain", "replay"],
    &["shared"],
    &["telemetry"],
    &["upstream"],
    &["plan"],
    &["auth", "acme", "http3"],
    &["route", "store", "http2", "log_reader"],
    &["clock", "time_zones", "net", "counter", "boxed_cold", "labels", "admin_api", "rate_limit_service"],
    &["limit", "http1", "measure"],
];

/// The rooms of the proxy from top to bottom, likewise.
const PROXY_ROOMS: &[&str] =
    &["connection", "decisions", "decide", "forward", "answer", "record", "session", "worker"];

/// Long files hide more than one noun.
const MAX_LINES: usize = 500;

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
fn imports_of_the_rooms_of_the_proxy_only_go_down() {
    let floor_of = |room: &str| PROXY_ROOMS.iter().position(|known| *known == room);
    let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
    for file in rust_files("src/proxy") {
        let inside = file.strip_prefix("src/proxy").expect("a file of the proxy").with_extension("");
        let room = inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        if ["fixtures", "segmentation"].contains(&&*room) || is_test_only(&file) {
            continue;
        }
        let own = floor_of(&room).unwrap_or_else(|| {
            panic!("{} is in no room: give it one in src/proxy.rs and in PROXY_ROOMS here", file.display())
        });
        seen.insert(room);
        let code = without_tests(&code_of(&file));
        // The head of a room names another by `super`.
        let is_head = inside.components().count() == 1;
        let paths = ["crate::proxy::", "super::"].into_iter().take(1 + usize::from(is_head));
        let rooms = paths.flat_map(|path| code.split(path).skip(1));
        let rooms =
            rooms.map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or(""));
        for import in rooms {
            if floor_of(import).is_some_and(|floor| floor < own) {
                faults.push(format!("{} imports `{import}`, which is above its room", file.display()));
            }
        }
    }
    assert_eq!(seen.len(), PROXY_ROOMS.len(), "{seen:?}");
    assert!(faults.is_empty(), "imports only go down:\n{}", faults.join("\n"));
}

#[test]
fn files_of_a_room_form_no_ring() {
    let imports = imports_of_files();
    let (mut faults, mut told) = (Vec::new(), BTreeSet::new());
    for file in imports.keys() {
        if told.contains(file) {
            continue;
        }
        if let Some(ring) = ring_through(file, &imports) {
            faults.push(format!("{} → {file}", ring.join(" → ")));
            told.extend(ring);
        }
    }
    assert!(
        faults.is_empty(),
        "files form no ring: move the type or function that one of them needs of the other into the file where it belongs, below both, \
         or hand it over as an argument:\n{}",
        faults.join("\n")
    );
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
        let code = without_tests(&code_of(&file));
        for name in &crates {
            assert!(
                !starts_a_path(&code, name),
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
        assert!(lines <= MAX_LINES, "{} has {lines} lines: split it at its second noun", file.display());
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
    assert_eq!(paths("a::{b as c, d::{self, E}, f::*}, g"), ["a::b", "a::d::self", "a::d::E", "a::f"]);
    assert_eq!(
        without_tests("mod a;\n#[cfg(test)]\nmod b;\nmod c;\n#[cfg(test)]\nmod tests {\n    d();\n}\ne();"),
        "mod a;\nmod c;\ne();\n"
    );
}

#[test]
fn a_ring_is_found() {
    let files = ["a", "a::b", "a::b::c", "a::d", "e"].map(str::to_owned);
    let read = |code, module| imported_files(code, module, &files.iter().cloned().collect());
    assert_eq!(
        read("use super::d::{X, y};\nuse c::Z;\nuse super::W;", "a::b"),
        ["a::b::c", "a::d"].map(str::to_owned).into()
    );
    assert_eq!(
        read("use super::super::{d, own};\nlet x = crate::e::f();", "a::b::c"),
        ["a::d", "e"].map(str::to_owned).into()
    );
    let imports = [("a", vec!["b"]), ("b", vec!["c", "d"]), ("c", vec!["b"]), ("d", vec![])];
    let imports =
        imports.map(|(file, of)| (file.to_owned(), of.into_iter().map(str::to_owned).collect())).into();
    assert_eq!(ring_through("a", &imports), None, "it leads to a ring, but lies on none");
    assert_eq!(ring_through("b", &imports), Some(["b", "c"].map(str::to_owned).into()));
}

/// What each file of `src` imports of the others, by their modules; code of tests does not count.
fn imports_of_files() -> BTreeMap<String, BTreeSet<String>> {
    let files: Vec<_> = rust_files("src").into_iter().filter(|file| !lies_in_tests(file)).collect();
    let modules = files.iter().map(|file| path_of(file)).collect();
    let imported = |file: &PathBuf| {
        let module = path_of(file);
        let imports = imported_files(&without_tests(&code_of(file)), &module, &modules);
        (module, imports)
    };
    files.iter().map(imported).collect()
}

/// The shortest ring of imports from a file back to itself.
fn ring_through(file: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let (mut seen, mut ways) = (BTreeSet::new(), VecDeque::from([vec![file.to_owned()]]));
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
            if next == file {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back(way.iter().chain([next]).cloned().collect());
            }
        }
    }
    None
}

/// Which of `modules` the code of `module` imports. Those that it lies below do not count.
fn imported_files(code: &str, module: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(|char: char| char.is_alphabetic()) {
        if !is_path_start(code, at) || !identifier_ends_in_path(&code[at..]) {
            continue;
        }
        let named = paths(&code[at..]).into_iter().filter_map(|path| file_at(&path, module, modules));
        found.extend(named.filter(|file| file != module && !module.starts_with(&format!("{file}::"))));
    }
    found
}

fn identifier_ends_in_path(text: &str) -> bool {
    text[identifier(text).len()..].starts_with("::")
}

/// The file that a path leads to from `module`; `None` if it leads out of `src`.
fn file_at(path: &str, module: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut segments = path.split("::").peekable();
    let mut base: Vec<&str> = module.split("::").collect();
    match segments.peek() {
        Some(&"crate") => base.clear(),
        Some(&("self" | "super")) => {}
        Some(child) if modules.contains(&format!("{module}::{child}")) => {}
        _ => return None,
    }
    let mut file = None;
    for segment in segments {
        match segment {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            name => base.push(name),
        }
        file = modules.get(&base.join("::")).or(file);
    }
    file.cloned()
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
                let first = |path: String| identifier(&path);
                found.extend(paths(&rest[root.len()..]).into_iter().map(first));
                at += root.len();
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    found.dedup();
    found
}

/// The paths that begin here: `a::b` gives itself; `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    read_paths("", text, &mut found);
    found
}

/// Reads what stands behind `prefix`. Returns what stands behind that.
fn read_paths<'t>(prefix: &str, text: &'t str, found: &mut Vec<String>) -> &'t str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|char: char| char == ',' || char.is_whitespace());
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or_default();
            }
            let behind = read_paths(prefix, rest, found);
            // Behind a name there may be `as other`.
            rest = &behind[behind.find([',', '}']).unwrap_or(behind.len())..];
        }
    }
    let name = identifier(text);
    let rest = &text[name.len()..];
    let path = format!("{prefix}{name}");
    match rest.strip_prefix("::") {
        Some(rest) if rest.starts_with(|char: char| char == '{' || char.is_alphabetic() || char == '_') => {
            read_paths(&format!("{path}::"), rest, found)
        }
        _ => {
            found.push(path.trim_end_matches("::").to_owned());
            rest
        }
    }
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

/// `src/store/memory.rs` is the module `store::memory`.
fn path_of(file: &Path) -> String {
    let below = file.strip_prefix("src").expect("a source file").with_extension("");
    let names: Vec<_> = below.iter().map(|name| name.to_str().expect("a name")).collect();
    names.join("::")
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

/// Whether a file, or one that it lies below, is for tests only.
fn lies_in_tests(file: &Path) -> bool {
    let folders = file.ancestors().skip(1).take_while(|folder| *folder != Path::new("src"));
    is_test_only(file) || folders.map(|folder| folder.with_extension("rs")).any(|file| is_test_only(&file))
}

/// Leaves out items under `#[cfg(test)]`, each up to the line that closes it, as rustfmt sets it.
pub(super) fn without_tests(code: &str) -> String {
    let (mut kept, mut lines) = (String::new(), code.lines());
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let is_last = |line: &&str| {
            let own = line.strip_prefix(indent).filter(|own| !own.starts_with(char::is_whitespace));
            own.is_some_and(|own| own.trim_end().ends_with([';', '}']))
        };
        lines.by_ref().find(is_last);
    }
    kept
}

pub(crate) fn code_of(file: &Path) -> String {
    strip_comments(&read(file))
}

/// Cuts each line at `//`, also inside of strings: no path that matters follows there.
fn strip_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
}
