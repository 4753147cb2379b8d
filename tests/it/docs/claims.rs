//! What the pages say of files that `tollgate check` refuses, warns about or accepts is asked.
//!
//! Each sentence with one of [`TRIGGERS`] has a row in `tests/docs/claims.toml`: a file that shows it, the test that holds
//! it, or the reason why it is no claim about the gateway. So no page says for long that something is lacking which is
//! there by now.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;

use crate::harness::binary;
use crate::harness::config_folder::ConfigFolder;
use crate::harness::pages::{Page, pages, root, test_exists};
use crate::harness::sources::{read, rust_files};

/// Words of sentences about what is lacking, or what is a fault of a file.
const TRIGGERS: [&str; 20] = [
    "not yet",
    "planned",
    "lacks",
    "lacking",
    "rejects",
    "is a fault",
    "are a fault",
    "are faults",
    "faults: a",
    "fault of the file",
    "faults of the file",
    "is a warning",
    "check` warns",
    "`check` therefore refuses",
    "refuses such a file",
    "refuses them as fields",
    "no equivalent",
    "exclude each other",
    "cannot be edited",
    "is not a fault",
];

/// Pages without rows here: README.md, the overview and the comparison have tests of their own, and releases are not about the gateway.
const ELSEWHERE: [&str; 5] =
    ["README.md", "docs/README.md", "docs/overview.md", "docs/compare.md", "docs/releasing.md"];

/// The heading of the lists of the pages about other proxies.
const NO_EQUIVALENT: &str = "What has no equivalent";

/// The begin of a file that has no upstreams of its own.
const BASE: &str =
    "[upstreams]\na = \"http://127.0.0.1:9001\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\n";

/// Files that the rows name.
const FILES: [(&str, &str); 3] = [
    ("keys.csv", "key,name,tier\nsecret-of-acme,acme,gold\n"),
    ("good.htpasswd", "ann:$2y$05$7vj7QFgRJvGSH4qdxKxFmOb5HE7D2oTU8YfyO7d4ScQK0B6qxzUua\n"),
    ("weak.htpasswd", "ann:$apr1$rOioh4Wh$bVD3DRwksETubcpEH90ww0\n"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    claim: Vec<Claim>,
    no_equivalent: Vec<NoEquivalent>,
    range: Vec<Range>,
    held: Vec<Held>,
}

/// A sentence, and the evidence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    page: String,
    words: String,
    file: Option<String>,
    fault: Option<String>,
    warning: Option<String>,
    test: Option<String>,
    no_claim: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoEquivalent {
    page: String,
    words: String,
    settings: Vec<String>,
}

/// A setting with `{}` in place of its value, and values at the edges of its range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    page: String,
    words: String,
    setting: String,
    good: Vec<String>,
    bad: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    page: String,
    words: String,
    test: String,
}

/// The expected answer of `tollgate check`.
#[derive(Clone, Copy, Debug)]
enum Answer<'a> {
    /// A fault with these words.
    Fault(&'a str),
    /// A warning with these words, and no fault.
    Warning(&'a str),
    /// Neither.
    Good,
    /// No fault; there may be warnings.
    Accepted,
}

fn rows() -> Rows {
    let text = std::fs::read_to_string(root().join("tests/docs/claims.toml")).expect("it is there");
    toml::from_str(&text).expect("its rows have these fields")
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

#[test]
fn docs_sentences_about_what_is_lacking_have_rows() {
    let claims = rows().claim;
    let (mut found, mut faults) = (BTreeSet::new(), Vec::new());
    for page in pages().iter().filter(|page| !ELSEWHERE.contains(&page.path.as_str())) {
        for sentence in sentences(page) {
            let lower = sentence.to_lowercase();
            if sentence.contains(NO_EQUIVALENT) || !TRIGGERS.iter().any(|words| lower.contains(words)) {
                continue;
            }
            let row = claims.iter().find(|row| row.page == page.path && sentence.contains(&row.words));
            match row {
                Some(row) => drop(found.insert((&row.page, &row.words))),
                None => faults.push(format!("{} has a sentence without a row: {sentence}", page.path)),
            }
        }
    }
    let gone = claims.iter().filter(|row| !found.contains(&(&row.page, &row.words)));
    faults.extend(gone.map(|row| format!("{} has no such sentence with a trigger: {}", row.page, row.words)));
    assert_none(&faults);
}

#[test]
fn docs_claims_are_what_check_says() {
    let mut faults = Vec::new();
    for row in rows().claim {
        let fault = match (&row.file, &row.test, &row.no_claim) {
            (Some(file), None, None) => {
                let answer = match (&row.fault, &row.warning) {
                    (Some(words), None) => Answer::Fault(words),
                    (None, Some(words)) => Answer::Warning(words),
                    _ => Answer::Good,
                };
                difference(file, answer)
            }
            (None, Some(test), None) => (!test_exists(test)).then(|| format!("there is no test `{test}`")),
            (None, None, Some(_)) => None,
            _ => Some("a row has one of `file`, `test` and `no_claim`".to_owned()),
        };
        faults.extend(fault.map(|fault| format!("{}: {}\n{fault}", row.page, row.words)));
    }
    assert_none(&faults);
}

#[test]
fn docs_of_other_proxies_know_what_has_no_equivalent() {
    let rows = rows().no_equivalent;
    let mut faults = Vec::new();
    for page in pages().iter().filter(|page| page.path.starts_with("docs/migrate/")) {
        let Some((_, section)) = page.text.split_once(&format!("\n## {NO_EQUIVALENT}\n")) else { continue };
        for item in section.split("\n- ").skip(1) {
            let item = item.split_whitespace().collect::<Vec<_>>().join(" ");
            match rows.iter().find(|row| row.page == page.path && item.starts_with(&row.words)) {
                Some(row) => faults.extend(row.settings.iter().filter_map(|setting| {
                    let fault = difference(setting, Answer::Fault("error"))?;
                    Some(format!("{}: {}\n{fault}", page.path, row.words))
                })),
                None => faults.push(format!("{}: this item has no row: {item}", page.path)),
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn docs_ranges_are_those_of_check() {
    let mut faults = Vec::new();
    for Range { page, words, setting, good, bad } in rows().range {
        assert_says(&page, &words);
        let good = good.iter().map(|value| (value, Answer::Accepted));
        let answers = good.chain(bad.iter().map(|value| (value, Answer::Fault("error"))));
        faults.extend(answers.filter_map(|(value, answer)| {
            Some(format!("{page}: {words}\n{}", difference(&setting.replace("{}", value), answer)?))
        }));
    }
    assert_none(&faults);
}

#[track_caller]
fn assert_says(page: &str, words: &str) {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(words), "{page} does not say: {words}");
}

#[test]
fn docs_sentences_that_tests_hold_are_there() {
    for row in rows().held {
        assert_says(&row.page, &row.words);
        assert!(test_exists(&row.test), "{}: {}: there is no test `{}`", row.page, row.words, row.test);
    }
}

#[test]
fn a_directory_without_a_file_is_a_fault() {
    let folder = ConfigFolder::new(&[("some/other.txt", "")]);
    let output = Command::new(binary()).args(["check", "-c"]).arg(folder.path("some")).output();
    let output = output.expect("the binary starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_connection_serves_any_number_of_requests() {
    let folder = ConfigFolder::new(&[("gateway.toml", BASE)]);
    let loaded = folder.load("gateway.toml").expect("it is good");
    assert_eq!(loaded.plan.server.max_requests_per_connection, None);
}

/// clippy sees a lock of a thread that is held across an `await` (`await_holding_lock`), but not one of a task.
#[test]
fn locks_of_tasks_are_those_that_the_map_names() {
    let with_lock = |file: &std::path::PathBuf| {
        let code = read(file);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let imports = code.lines().filter(|line| line.contains("tokio::sync"));
        imports.into_iter().any(|line| line.contains("Mutex") || line.contains("RwLock"))
    };
    let is_test = |file: &std::path::PathBuf| file.to_string_lossy().contains("/tests/");
    let files = rust_files("src").into_iter().filter(|file| !is_test(file));
    let files: Vec<_> = files.filter(with_lock).map(|file| file.display().to_string()).collect();
    let known = ["src/auth/password_lanes.rs", "src/store/memory/release_queues.rs", "src/upstream/http2.rs"];
    assert_eq!(files.into_iter().collect::<BTreeSet<_>>(), known.map(str::to_owned).into());
}

#[test]
fn each_type_of_auth_is_known() {
    let bound = "failures = \"f\"\n[limits.f]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"1/s\"";
    let types = [
        "api-key\"\nfrom = \"bearer\"\nfile = \"keys.csv\"",
        "jwt\"\njwks = \"https://idp.example.com/keys\"\nissuer = \"a\"\naudience = \"b\"",
        "basic\"\nfile = \"good.htpasswd\"",
        "forward\"\nurl = \"http://127.0.0.1:1\"",
    ];
    for auth in types {
        let file = format!("auth = \"a\"\n[auth.a]\n{bound}\n");
        let file = file.replace("failures", &format!("type = \"{auth}\nfailures"));
        assert_eq!(difference(&file, Answer::Good), None);
    }
    assert_eq!(difference("auth = \"a\"\n[auth.a]\ntype = \"ldap\"", Answer::Fault("ldap")), None);
}

/// A page names a method that no route can have only where it says that the answer is 405. An extended CONNECT (RFC 8441)
/// is a GET to routes.
#[test]
fn docs_name_methods_that_routes_can_have() {
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert_eq!(difference(&format!("methods = [\"{method}\"]"), Answer::Good), None);
    }
    for method in ["TRACE", "CONNECT"] {
        assert_eq!(difference(&format!("methods = [\"{method}\"]"), Answer::Fault("405")), None);
        for page in pages() {
            for sentence in sentences(&page) {
                let mut words = sentence.split(|char: char| !char.is_alphanumeric() && char != '_');
                assert!(
                    !words.any(|word| word == method)
                        || sentence.contains("405")
                        || sentence.contains("xtended CONNECT"),
                    "{}: {sentence}",
                    page.path
                );
            }
        }
    }
}

/// What `tollgate check` says of the file, if it is not the expected answer.
fn difference(text: &str, expected: Answer<'_>) -> Option<String> {
    let text = if text.contains("[upstreams]") { text.to_owned() } else { format!("{BASE}{text}\n") };
    let folder = ConfigFolder::new(&FILES);
    folder.write("gateway.toml", &text);
    let mut command = Command::new(binary());
    let output = command.arg("check").current_dir(folder.path("")).env("NO_COLOR", "1").output();
    let output = output.expect("the binary starts");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let (good, warns) = (output.status.success(), said.contains("warning: "));
    let agrees = match expected {
        Answer::Fault(words) => output.status.code() == Some(2) && said.contains(words),
        Answer::Warning(words) => good && warns && said.contains(words),
        Answer::Good => good && !warns,
        Answer::Accepted => good,
    };
    (!agrees).then(|| format!("{expected:?} is expected, but `tollgate check` says\n{said}--- of\n{text}"))
}

/// The sentences of a page's prose, with single spaces. An item of a list and a row of a table begin a new one.
fn sentences(page: &Page) -> Vec<String> {
    let mut items: Vec<String> = vec![String::new()];
    let mut last = 0;
    for (number, line) in page.prose() {
        let line = line.trim();
        let is_numbered = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let begins = line.is_empty() || number > last + 1 || is_numbered;
        if begins || ["- ", "|", "#"].iter().any(|sign| line.starts_with(sign)) {
            items.push(String::new());
        }
        if let Some(item) = items.last_mut() {
            item.push_str(line);
            item.push(' ');
        }
        last = number;
    }
    let sentences = items.iter().flat_map(|item| item.split_inclusive(". "));
    sentences.map(|sentence| sentence.trim().to_owned()).collect()
}
