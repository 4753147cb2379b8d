//! The addresses of the project: the repository names none, and what an owner publishes gets those of `packaging/owner`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::sources::read;
use crate::harness::tools;

const URL: &str = "https://git.example.com/gateways/tollgate";
const GUIDE: &str = "https://git.example.com/gateways/tollgate/blob/HEAD/docs/guide.md";
const MAINTAINER: &str = "Ann Example <ann@example.com>";

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// A file such as `packaging/owner`, with these values.
fn owner(directory: &Path, repository: &str, maintainer: &str) -> PathBuf {
    let file = directory.join("owner");
    fs::write(&file, format!("# Addresses\nrepository={repository}\nmaintainer={maintainer}\n"))
        .expect("it can be written");
    file
}

/// What the command prints with this file of an owner.
#[track_caller]
fn printed(command: &mut Command, owner: &Path) -> String {
    let output =
        command.env("TOLLGATE_OWNER", owner).current_dir(repository("")).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

fn script(name: &str) -> Command {
    Command::new(repository("packaging").join(name))
}

#[test]
fn addresses_are_the_owners() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [of, nobody] = [[URL, MAINTAINER], [""; 2]];
    let fields = [("repository", URL), ("documentation", GUIDE), ("maintainer", MAINTAINER)];
    for (field, expected) in fields {
        let file = owner(directory.path(), of[0], of[1]);
        assert_eq!(printed(script("address").arg(field), &file), expected);
        let file = owner(directory.path(), nobody[0], nobody[1]);
        assert_eq!(printed(script("address").arg(field), &file), "");
    }
    let guide = GUIDE.rsplit("/HEAD/").next().expect("a path");
    assert!(repository(guide).exists(), "{guide}");
    assert_eq!(script("address").arg("page").output().expect("it starts").status.code(), Some(2));
    let own = read(&repository("packaging/owner"));
    assert!(own.contains("\nrepository=") && own.contains("\nmaintainer="), "{own}");
}

/// The files of the checkout, but those that a build or git makes.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let is_made = [".git", "dist", "target"].iter().any(|name| path.ends_with(name));
        match path.symlink_metadata().expect("it is there").file_type() {
            _ if is_made => {}
            kind if kind.is_dir() => files(&path, found),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

/// An address that the project does not own leads nowhere, or to a stranger.
#[test]
fn only_the_owners_file_has_an_address_of_the_project() {
    let mut checkout = Vec::new();
    files(&repository(""), &mut checkout);
    assert!(checkout.len() > 500, "{} files", checkout.len());
    let hosts = ["github.com/", "githubusercontent.com/", "ghcr.io/", "docker.io/", "crates.io/", "docs.rs/"];
    let is_address = |word: &str| {
        let is_placeholder = word.contains("OWNER/");
        !is_placeholder && word.contains("tollgate") && hosts.iter().any(|host| word.contains(host))
    };
    for file in checkout.iter().filter(|file| !file.ends_with("packaging/owner")) {
        // Pictures are no text.
        let Ok(text) = fs::read_to_string(file) else { continue };
        let mut words = text.split(|char: char| !(char.is_alphanumeric() || "-_./".contains(char)));
        let address = words.find(|word| is_address(word));
        assert_eq!(address, None, "{}", file.display());
    }
}

#[test]
fn the_package_for_a_registry_gets_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (manifest, own) = (directory.path().join("Cargo.toml"), read(&repository("Cargo.toml")));
    fs::write(&manifest, &own).expect("it can be written");
    let nobody = owner(directory.path(), "", "");
    let refused = script("crate-addresses").arg(&manifest).env("TOLLGATE_OWNER", nobody).output();
    assert!(!refused.expect("it starts").status.success() && read(&manifest) == own);
    printed(script("crate-addresses").arg(&manifest), &owner(directory.path(), URL, MAINTAINER));
    let mut filled: toml::Table = read(&manifest).parse().expect("TOML");
    let package = filled["package"].as_table_mut().expect("a table");
    for (key, expected) in [("repository", URL), ("homepage", URL), ("documentation", GUIDE)] {
        assert_eq!(package.remove(key), Some(expected.into()), "{key}");
    }
    assert_eq!(filled, own.parse().expect("TOML"));
}

#[test]
fn the_list_of_crates_gets_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let code = "import json, runpy; print(json.dumps(runpy.run_path('packaging/sbom')['addresses']()))";
    let list = |of: &Path| printed(tools::python(&[]).args(["-B", "-c", code]), of);
    let references = list(&owner(directory.path(), URL, MAINTAINER));
    let expected =
        serde_json::json!([{ "type": "vcs", "url": URL }, { "type": "documentation", "url": GUIDE }]);
    assert_eq!(references.parse::<serde_json::Value>().expect("JSON"), expected);
    assert_eq!(list(&owner(directory.path(), "", "")), "[]");
}

/// The fields of the Debian package, and its copyright file.
fn package_of(repository: &str, maintainer: &str) -> (String, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let of = owner(directory.path(), repository, maintainer);
    // The fields do not depend on the program, and a small one is packed in no time.
    printed(script("deb").arg("/bin/true").arg(directory.path()).env("TOLLGATE_VERSION", "1.0"), &of);
    let package = directory.path().join("tollgate_1.0-1_amd64.deb");
    let control = printed(tools::needed("dpkg-deb").arg("--field").arg(&package), &of);
    printed(tools::needed("dpkg-deb").arg("--extract").arg(&package).arg(directory.path()), &of);
    (control, read(&directory.path().join("usr/share/doc/tollgate/copyright")))
}

#[test]
fn the_debian_package_gets_them() {
    let (control, copyright) = package_of(URL, MAINTAINER);
    for line in [format!("Maintainer: {MAINTAINER}"), format!("Homepage: {URL}")] {
        assert!(control.lines().any(|found| found == line), "{line}: {control}");
    }
    assert!(copyright.contains(&format!("\nSource: {URL}\n")), "{copyright}");
    let (control, copyright) = package_of("", "");
    assert!(control.contains("\nMaintainer: ") && !control.contains("Homepage"), "{control}");
    assert!(!copyright.contains("Source:"), "{copyright}");
    let left =
        ["@REPOSITORY@", "@MAINTAINER@"].iter().find(|name| (control.clone() + &copyright).contains(**name));
    assert_eq!(left, None);
}

#[test]
fn the_release_workflow_needs_them_and_labels_the_image() {
    let workflow = read(&repository(".github/workflows/release.yml"));
    for part in [
        "test \"$(packaging/address repository)\" = \"$GITHUB_SERVER_URL/$GITHUB_REPOSITORY\"",
        "--label \"org.opencontainers.image.source=$(packaging/address repository)\"",
        "--label \"org.opencontainers.image.documentation=$(packaging/address documentation)\"",
        "run: packaging/crate-addresses\n",
    ] {
        assert!(workflow.contains(part), "{part}");
    }
}
