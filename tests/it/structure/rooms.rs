//! The order of `tests/it`: a folder for each subject, shared code in `harness/`, and no test module that imports another.

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::sources::{read, rust_files};

const ROOT: &str = "tests/it";

/// The names of the entries of a folder, `.rs` left out.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()));
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

/// The folders with tests.
fn rooms() -> BTreeSet<String> {
    let mut rooms = names_in(Path::new(ROOT));
    assert!(rooms.remove("main") && rooms.remove("harness"), "{ROOT} has main.rs and harness/");
    rooms
}

/// The other test modules that a file of `room` names.
fn imported(code: &str, room: &str, rooms: &BTreeSet<String>, siblings: &BTreeSet<String>) -> Vec<String> {
    let code: String = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let by_room = rooms.iter().map(|other| format!("crate::{other}::"));
    let by_sibling = siblings.iter().map(|other| format!("super::{other}::"));
    let within = [format!("crate::{room};"), "super::super::".to_owned(), "crate::{".to_owned()];
    by_room.chain(by_sibling).chain(within).filter(|path| names(&code, path)).collect()
}

/// Whether the code has this path, which does not only end a longer one.
fn names(code: &str, path: &str) -> bool {
    code.match_indices(path)
        .any(|(at, _)| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

#[test]
fn no_test_module_imports_another() {
    let (rooms, mut faults) = (rooms(), Vec::new());
    // The files of `structure` hold code as text.
    for room in rooms.iter().filter(|room| *room != "structure") {
        let folder = Path::new(ROOT).join(room);
        let siblings = names_in(&folder);
        for file in rust_files(&folder.display().to_string()) {
            for path in imported(&read(&file), room, &rooms, &siblings) {
                faults.push(format!("{}: `{path}`", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "move what tests share into {ROOT}/harness/:\n{}", faults.join("\n"));
}

#[test]
fn an_import_of_another_test_module_is_found() {
    let set = |names: [&str; 2]| names.map(str::to_owned).into();
    let find = |code| imported(code, "tls", &set(["tls", "route"]), &set(["alpn", "reload"]));
    assert_eq!(find("use crate::route::table::Row;"), ["crate::route::"]);
    assert_eq!(find("let row = super::alpn::row();"), ["super::alpn::"]);
    for good in [
        "use crate::harness::Gateway;",
        "// crate::route::table",
        "super::plays(1)",
        "use tollgate::route::Key;",
    ] {
        assert_eq!(find(good), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn every_file_is_part_of_the_tests() {
    let main = read(&Path::new(ROOT).join("main.rs"));
    for room in rooms() {
        assert!(main.contains(&format!("\nmod {room};\n")), "main.rs lacks `mod {room};`");
        let folder = Path::new(ROOT).join(&room);
        let list = read(&folder.join("mod.rs"));
        for name in names_in(&folder).into_iter().filter(|name| name != "mod") {
            assert!(
                list.contains(&format!("\nmod {name};\n")),
                "{}/mod.rs lacks `mod {name};`",
                folder.display()
            );
        }
    }
}
