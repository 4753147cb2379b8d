//! README's claims: what it says is lacking, `tollgate check` rejects; what it says works, `check` accepts; and figures
//! are those of the benchmarks.

use std::fs;
use std::process::Command;

use crate::harness::binary;
use crate::harness::pages::{Page, pages, root};

/// Words that say that something is missing.
const LACKING: [&str; 6] = ["lack", "not yet", "published yet", "reject", "planned", "unsupported"];

/// What is missing by README: the start of the sentence or list item, and files that `check` rejects for it, each with
/// the fault. A file is [`SMALL`] with these lines; keys go into its route.
const LACKS: &[(&str, &[(&str, &str)])] = &[
    (
        "TCP and UDP proxying",
        &[
            ("[upstreams.other]\nservers = [\"tcp://127.0.0.1:1\"]", "`tcp://127.0.0.1:1` is not the URL"),
            ("[upstreams.other]\nservers = [\"udp://127.0.0.1:1\"]", "`udp://127.0.0.1:1` is not the URL"),
            (
                "[server]\nlisten = [{ address = \"127.0.0.1:1\", protocol = \"tcp\" }]",
                "unknown key `protocol`",
            ),
        ],
    ),
    (
        "A cache",
        &[
            ("cache = true", "unknown key `cache`"),
            ("[cache]\nsize = \"1GiB\"", "unknown key `cache`"),
            ("[upstreams.other]\ncache = \"10s\"", "unknown key `cache`"),
        ],
    ),
    (
        "Static files",
        &[
            ("root = \"/srv/www\"", "unknown key `root`"),
            ("files = \"/srv/www\"", "unknown key `files`"),
            ("respond = { file = \"index.html\" }", "unknown key `file`"),
        ],
    ),
    (
        "Scripts and plugins",
        &[
            ("script = \"a.lua\"", "unknown key `script`"),
            ("wasm = \"a.wasm\"", "unknown key `wasm`"),
            ("[plugins.a]\nfile = \"a.so\"", "unknown key `plugins`"),
        ],
    ),
    (
        "Service discovery and control planes",
        &[
            ("[upstreams.other]\nservers = [\"xds://127.0.0.1:1\"]", "`xds://127.0.0.1:1` is not the URL"),
            ("[upstreams.other]\nservers = [\"docker://web\"]", "`docker://web` is not the URL"),
            (
                "[admin]\nlisten = \"127.0.0.1:1\"\ntokens.a = { token_env = \"SECRET\", may = [\"configure\"] }",
                "there is no right `configure`",
            ),
        ],
    ),
    (
        "A web application firewall",
        &[("waf = true", "unknown key `waf`"), ("[waf]\nrules = \"a\"", "unknown key `waf`")],
    ),
    // `check` cannot be asked: these are not about the file.
    ("Other systems than Linux", &[]),
    ("Nothing is published yet", &[]),
    ("These are not published yet", &[]),
];

/// What works by README, by its words, and a file that `check` accepts: [`SMALL`] with these lines.
const WORKS: &[(&str, &str)] = &[
    (
        "API keys",
        "auth = \"a\"\n[auth.a]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"",
    ),
    ("JWT", "auth = \"a\"\n[auth.a]\ntype = \"jwt\"\nsecret_env = \"SECRET\""),
    ("claims of JWT", "auth = \"a\"\n[auth.a]\ntype = \"jwt\"\nsecret_env = \"SECRET\"\ntier = \"plan\""),
    ("Passwords", "auth = \"a\"\n[auth.a]\ntype = \"basic\"\nfile = \"users.htpasswd\""),
    ("Forward auth", "auth = \"a\"\n[auth.a]\ntype = \"forward\"\nurl = \"http://127.0.0.1:1/\""),
    (
        "headers of forward auth",
        "auth = \"a\"\n[auth.a]\ntype = \"forward\"\nurl = \"http://127.0.0.1:1/\"\n\
         name = \"header:x-user\"\ntier = \"header:x-plan\"",
    ),
    (
        "weights",
        "[upstreams.a]\nservers = [\"http://127.0.0.1:1\", { url = \"http://127.0.0.1:2\", weight = 2 }]",
    ),
    (
        "circuit breakers",
        "[upstreams.a]\nservers = [\"http://127.0.0.1:1\"]\n\
         breaker = { failures = 0.5, requests = 20, for = \"10s\" }",
    ),
    ("health checks", "[upstreams.a]\nservers = [\"http://127.0.0.1:1\"]\nhealth = { path = \"/\" }"),
    ("Redis or Valkey", "[store]\nbackend = \"redis\"\nurl = \"redis://127.0.0.1:1\""),
];

const SMALL: &str = "upstreams.demo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n";

fn readme() -> Page {
    pages().into_iter().find(|page| page.path == "README.md").expect("it is there")
}

/// The pages that say what tollgate does and lacks as a whole: README, the page beside other proxies, and the list of
/// pages.
fn first_pages() -> Page {
    let pages = pages();
    let text = |path: &str| pages.iter().find(|page| page.path == path).expect("it is there").text.as_str();
    let text = ["README.md", "docs/overview.md", "docs/README.md"].map(text).join("\n");
    Page { path: "README.md".to_owned(), text }
}

/// The paragraphs and list items of a page outside of blocks, tables, headings and comments; each as one line.
fn paragraphs(page: &Page) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for (_, line) in page.prose() {
        let is_item = line.starts_with("- ");
        if line.is_empty() || is_item || line.starts_with(['|', '#', '<', '!']) {
            paragraphs.push(String::new());
        }
        if !line.starts_with(['|', '#', '<', '!'])
            && let Some(last) = paragraphs.last_mut()
        {
            *last += &format!(" {}", line.trim());
        }
    }
    paragraphs.into_iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

/// The sentences that say that something is missing, and the items of lists below such a sentence.
fn lacks_of(page: &Page) -> Vec<String> {
    let says = |text: &str| LACKING.iter().any(|word| text.to_lowercase().contains(word));
    let (mut found, mut is_list) = (Vec::new(), false);
    for paragraph in paragraphs(page) {
        let (item, text) = match paragraph.strip_prefix("- ") {
            Some(item) => (true, item),
            None => (false, paragraph.as_str()),
        };
        if item && is_list {
            found.push(text.to_owned());
            continue;
        }
        let mut sentences: Vec<_> = text.split(". ").filter(|sentence| says(sentence)).collect();
        if !item {
            is_list = sentences.pop_if(|last| last.trim_end_matches('*').ends_with(':')).is_some();
        }
        found.extend(sentences.into_iter().map(str::to_owned));
    }
    found
}

/// Whether `tollgate check` accepts the small file with these lines, and what it says.
fn check(lines: &str) -> (bool, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for block in pages().iter().flat_map(Page::blocks) {
        if let Some(file) = block.info.strip_prefix("text saved as ") {
            fs::write(directory.path().join(file), block.text).expect("it can be written");
        }
    }
    fs::write(directory.path().join("gateway.toml"), format!("{SMALL}{lines}\n")).expect("it can be written");
    let mut command = Command::new(binary());
    command.arg("check").current_dir(directory.path()).env("NO_COLOR", "1");
    let output = command.env("SECRET", "s".repeat(32)).output().expect("the binary starts");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_readme_lacks_is_rejected_by_check() {
    let said = lacks_of(&first_pages());
    let mut faults = Vec::new();
    for sentence in &said {
        if !LACKS.iter().any(|(start, _)| sentence.trim_start_matches("**").starts_with(start)) {
            faults.push(format!("README says `{sentence}`: add a row to LACKS that asks `check`"));
        }
    }
    for (start, files) in LACKS {
        if !said.iter().any(|sentence| sentence.trim_start_matches("**").starts_with(start)) {
            faults.push(format!("README does not say any more: `{start}`"));
        }
        for (lines, fault) in *files {
            let (is_good, told) = check(lines);
            if is_good || !told.lines().any(|line| line.starts_with("error: ") && line.contains(fault)) {
                faults.push(format!("README: `{start}` is lacking, but of\n{lines}\n`check` says\n{told}"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
}

#[test]
fn what_readme_says_works_is_accepted_by_check() {
    let page = first_pages();
    for (words, lines) in WORKS {
        assert!(page.text.contains(words), "README does not speak of {words}");
        let (is_good, said) = check(lines);
        assert!(is_good, "README says that {words} works, and `check` of\n{lines}\nsays {said}");
        let denied = lacks_of(&page).into_iter().find(|sentence| sentence.contains(words));
        assert_eq!(denied, None, "works and lacks: {words}");
    }
    let (is_good, said) = check("");
    assert!(is_good, "{said}");
}

#[test]
fn a_sentence_that_says_what_is_missing_is_found() {
    let text = "# a\nIt works. B is not\nyet there. C.\n\nX lacks. **It lacks:**\n\n- D: no.\n- E\n  and F.\n\nG.\n\n- H works.\n";
    let page = Page { path: String::new(), text: text.to_owned() };
    assert_eq!(lacks_of(&page), ["B is not yet there", "X lacks", "D: no.", "E and F."]);
}

/// The rows of tables, as cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn figures_of_readme_are_those_of_the_benchmarks() {
    let page = readme();
    let (before, rest) = page.text.split_once("<!-- from docs/benchmarks.md -->").expect("the figures");
    let (quoted, after) =
        rest.split_once("<!-- /from docs/benchmarks.md -->").expect("the end of the figures");
    let benchmarks = fs::read_to_string(root().join("docs/benchmarks.md")).expect("the page");
    let benchmarks = rows(&benchmarks);
    let quoted = rows(quoted);
    let (titles, quoted) = quoted.split_first().expect("a table");
    let all = benchmarks.iter().find(|row| row[0] == titles[0]).expect("the table of all traffic");
    let column = |title: &&str| all.iter().position(|other| other == title).expect("the column");
    let columns: Vec<usize> = titles.iter().map(column).collect();
    assert!(quoted.len() > 3, "{quoted:?}");
    for row in quoted.iter().skip(1) {
        let measured = benchmarks.iter().find(|other| other[0] == row[0] && other.len() == all.len());
        let measured = measured.unwrap_or_else(|| panic!("docs/benchmarks.md has no `{}`", row[0]));
        let expected: Vec<&str> = columns.iter().map(|&column| measured[column]).collect();
        assert_eq!(*row, expected);
    }
    // A ratio elsewhere on the page would be compared with nothing.
    let words = before.split_whitespace().chain(after.split_whitespace());
    let mut ratios = words.filter(|word| {
        let word = word.trim_end_matches(['.', ',', ';', ':', ')']);
        word.split_once('.').is_some_and(|(whole, part)| {
            whole.len() == 1
                && part.len() == 2
                && [whole, part].iter().all(|half| half.bytes().all(|byte| byte.is_ascii_digit()))
        })
    });
    assert_eq!(ratios.find(|word| *word != "1.95"), None, "quote it in the table from docs/benchmarks.md");
}
