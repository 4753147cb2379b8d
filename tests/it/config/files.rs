//! The files of `tests/config`: what is right gives a plan, what is wrong gives exactly the report beside it.
//!
//! To accept a changed report, run the tests with `INSTA_UPDATE=always` and read the difference.

use std::path::Path;

use crate::harness::config::{FOLDER, SECRET, files, parse};
use tollgate::config::{self, Report};

/// A line without the end of a long list of known keys: `schema.rs` compares whole lists.
fn abridged(line: &str) -> String {
    const LONG: usize = 8;
    match line.split_once("known here: ").map(|(before, list)| (before, list.split(", ").collect::<Vec<_>>()))
    {
        Some((before, keys)) if keys.len() > LONG => {
            format!("{before}known here: {}, …", keys[..2].join(", "))
        }
        _ => line.to_owned(),
    }
}

/// Compares a report with the one that stands beside the file.
fn assert_report(folder: &str, file: &Path, report: &Report) {
    let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
    let text = report.to_string();
    assert!(!text.contains(SECRET), "{name} tells a secret:\n{text}");
    let text = text.lines().map(abridged).collect::<Vec<_>>().join("\n");
    insta::with_settings!({
        snapshot_path => Path::new(FOLDER).join(folder),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
}

#[test]
fn every_invalid_file_gives_its_report() {
    for (path, bytes) in files("invalid", "toml") {
        match parse(bytes) {
            Ok(_) => panic!("{} has no fault", path.display()),
            Err(report) => {
                assert!(report.errors() > 0, "{}", path.display());
                assert_report("invalid", &path, &report);
            }
        }
    }
}

#[test]
fn every_valid_file_gives_a_plan_and_its_warnings() {
    for (path, bytes) in files("valid", "toml") {
        let loaded = parse(bytes).unwrap_or_else(|report| panic!("{}:\n{report}", path.display()));
        assert_eq!(loaded.warnings.errors(), 0, "{}", path.display());
        if path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.starts_with("warnings")) {
            assert_report("valid", &path, &loaded.warnings);
        } else {
            assert_eq!(loaded.warnings.to_string(), "", "{}", path.display());
        }
    }
}

#[test]
fn every_report_belongs_to_a_file() {
    for folder in ["valid", "invalid"] {
        for (report, _) in files(folder, "snap") {
            assert!(report.with_extension("toml").exists(), "{} has no file", report.display());
        }
    }
}

#[test]
fn a_file_that_can_not_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let report = config::load(&folder.path().join("gateway.toml")).unwrap_err();
    assert!(report.to_string().contains("there is no such file"), "{report}");
    let report = config::load(folder.path()).unwrap_err();
    assert!(report.to_string().contains("there is no `*.toml` in"), "{report}");
}

#[test]
fn a_file_beyond_the_bound_is_refused_unread() {
    let report = parse(vec![b'#'; config::MAX_FILE_BYTES + 1]).unwrap_err();
    assert!(report.to_string().contains("larger than 16 MiB"), "{report}");
    let at_the_bound = parse(vec![b'#'; config::MAX_FILE_BYTES]).unwrap_err();
    assert!(at_the_bound.to_string().contains("the config file is empty"), "{at_the_bound}");
}

#[cfg(not(feature = "http3"))]
#[test]
fn a_build_without_http3_says_so() {
    let report = parse(
        "[server]\nlisten = [{ address = \"127.0.0.1:1\", http3 = true }]\n[[server.tls]]\n\
         cert = \"tests/config/certificates/server.pem\"\nkey = \"tests/config/certificates/server.key\"\n\
         [upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n",
    );
    let report = report.expect_err("a build without HTTP/3").to_string();
    assert!(report.contains("this build of tollgate has no HTTP/3"), "{report}");
}
