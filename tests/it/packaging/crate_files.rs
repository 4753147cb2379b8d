//! The package for crates.io: what is in it, what its manifest says, and which compiler it wants.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::sources::{read, rust_files};

const MAX_FILES: usize = 900;

/// Of the compressed package.
const MAX_BYTES: u64 = 1_750_000;

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// What cargo prints on standard output, without the network.
#[track_caller]
fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    let output = command.args(arguments).arg("--offline").current_dir(repository("")).output();
    let output = output.expect("cargo starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn package() -> toml::Table {
    let manifest: toml::Table = read(&repository("Cargo.toml")).parse().expect("Cargo.toml is TOML");
    manifest["package"].as_table().expect("a table").clone()
}

/// The modules that a file declares for tests only, as paths without an ending.
fn modules_of_tests(file: &Path) -> Vec<PathBuf> {
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main") => file.parent().expect("a folder").to_path_buf(),
        _ => file.with_extension(""),
    };
    let code = read(&repository(&file.display().to_string()));
    let after = code.split("#[cfg(test)]\nmod ").skip(1);
    let names = after.filter_map(|rest| rest.lines().next()?.strip_suffix(';'));
    names.map(|name| folder.join(name)).collect()
}

#[test]
fn the_package_holds_the_program_and_none_of_its_tests() {
    let listed = cargo(&["package", "--list", "--allow-dirty"]);
    let files: Vec<&str> = listed.lines().collect();
    assert!(files.len() <= MAX_FILES, "{} files", files.len());
    let sources = rust_files("src");
    let of_tests: Vec<PathBuf> = sources.iter().flat_map(|file| modules_of_tests(file)).collect();
    assert!(of_tests.len() > 5, "{of_tests:?}");
    for source in sources {
        let is_test = source.ancestors().any(|path| of_tests.contains(&path.with_extension("")));
        let is_packed = files.iter().any(|file| Path::new(file) == source);
        assert!(
            is_packed != is_test,
            "{}: `include` of Cargo.toml lists what the program needs",
            source.display()
        );
    }
    for file in files.iter().filter(|file| !file.starts_with("src/")) {
        let known = ["Cargo.toml", "Cargo.toml.orig", "Cargo.lock", ".cargo_vcs_info.json", "README.md"];
        assert!(known.contains(file) || file.starts_with("LICENSE-") || *file == "CHANGELOG.md", "{file}");
    }
    assert!(
        ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.lock"].iter().all(|file| files.contains(file))
    );
}

#[test]
fn the_package_is_small_and_names_no_target_that_it_lacks() {
    let target = tempfile::tempdir().expect("a temporary directory");
    let folder = target.path().display().to_string();
    cargo(&["package", "--no-verify", "--allow-dirty", "--locked", "--quiet", "--target-dir", &folder]);
    let name = format!("tollgate-{}", package()["version"].as_str().expect("text"));
    let archive = target.path().join("package").join(format!("{name}.crate"));
    let bytes = archive.metadata().expect("the package").len();
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    let mut tar = Command::new("tar");
    let output =
        tar.arg("xzOf").arg(&archive).arg(format!("{name}/Cargo.toml")).output().expect("tar starts");
    let manifest: toml::Table = String::from_utf8_lossy(&output.stdout).parse().expect("TOML");
    assert!(manifest.contains_key("lib") && manifest["bin"].as_array().is_some_and(|list| list.len() == 1));
    assert!(["test", "bench", "example"].iter().all(|kind| !manifest.contains_key(*kind)));
}

#[test]
fn the_manifest_says_what_a_registry_shows() {
    let package = package();
    let text =
        |key: &str| package.get(key).and_then(toml::Value::as_str).unwrap_or_else(|| panic!("no {key}"));
    assert!(repository(text("readme")).exists());
    assert!(text("license") == "MIT OR Apache-2.0" && text("description").len() < 200);
    assert!(package["keywords"].as_array().expect("a list").len() <= 5);
    // The owner's: `packaging::owner`.
    for key in ["repository", "homepage", "documentation"] {
        assert!(!package.contains_key(key), "{key}");
    }
}

/// The compiler is new enough for all crates of the program, and all places name the same one.
#[test]
fn one_minimum_version_of_rust_holds_everywhere() {
    let package = package();
    let own = package["rust-version"].as_str().expect("text");
    let of = |text: &str| text.split('.').filter_map(|part| part.parse::<u64>().ok()).collect::<Vec<_>>();
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let arguments = [&["metadata", "--locked", "--format-version=1"][..], &platform].concat();
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).expect("JSON");
    let crates = metadata["packages"].as_array().expect("a list");
    let stated: Vec<_> = crates.iter().filter(|found| found["rust_version"].is_string()).collect();
    assert!(stated.len() > 100, "{} crates state a version", stated.len());
    for found in stated {
        let wanted = found["rust_version"].as_str().expect("text");
        assert!(of(wanted) <= of(own), "{} wants Rust {wanted}, Cargo.toml says {own}", found["name"]);
    }
    for place in ["README.md", "CONTRIBUTING.md", "Dockerfile", ".github/workflows/ci.yml"] {
        assert!(read(&repository(place)).contains(own), "{place} does not name Rust {own}");
    }
}
