//! `tollgate import`: its output, its errors, and files that ought to break it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use tollgate::import::{ImportFile, MAX_FILE_BYTES, envoy_ratelimit};

use crate::harness::binary;
use crate::harness::descriptors::Descriptors;
use crate::harness::pages::root;

const FILE: &str = "\
domain: shop
descriptors:
  - key: generic_key
    value: search
    descriptors:
      - key: remote_address
        rate_limit: { unit: minute, requests_per_unit: 10, name: searches }
      - key: remote_address
        value: 192.0.2.1
  - key: path
    value: /api/*
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 5 }
";

const PRINTED: &str = r#"# Made by `tollgate import envoy-ratelimit` from shop.yaml: 2 limits, 3 descriptors.
# shop.yaml:10: `path: /api/*` cannot be written, since `match` has whole values or `*`: its limit, or a smaller one
# beside it, applies to all values of `path` without a rule of their own (let Envoy send a value that stands for
# these, such as a `generic_key`)

# shop.yaml:6
[limits.searches]
algorithm = "fixed-window"
key       = "descriptor:remote_address"
rate      = "10/min"

[[descriptors]]
domain = "shop"
match  = { generic_key = "search", remote_address = "*" }
limits = ["searches"]

# shop.yaml:8: no limit
[[descriptors]]
domain = "shop"
match  = { generic_key = "search", remote_address = "192.0.2.1" }
limits = []

# shop.yaml:10
[limits.shop-path-api]
algorithm = "fixed-window"
key       = "descriptor:path"
rate      = "5/s"
mode      = "shadow"

[[descriptors]]
domain = "shop"
match  = { path = "*" }
limits = ["shop-path-api"]
"#;

/// The command in a folder with these files, with `input` on standard input.
fn import(files: &[(&str, &[u8])], arguments: &[&str], input: &[u8]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("it can be written");
    }
    let mut child = Command::new(binary())
        .args([&["import", "envoy-ratelimit"], arguments].concat())
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that reads no input may have closed it.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What standard error says of a file that is refused.
#[track_caller]
fn refused(yaml: impl AsRef<[u8]>) -> String {
    let output = import(&[("a.yaml", yaml.as_ref())], &["a.yaml"], b"");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn tables_go_to_standard_output_and_differences_to_standard_error() {
    let output = import(&[("shop.yaml", FILE.as_bytes())], &["shop.yaml"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), PRINTED);
    assert_eq!(
        text(&output.stderr),
        "warning: `path: /api/*` cannot be written, since `match` has whole values or `*`: its limit, or a \
         smaller one beside it, applies to all values of `path` without a rule of their own\n  --> shop.yaml:10:5\n   |\n10 |   - key: path\n   |     \
         ^^^\n   = help: let Envoy send a value that stands for these, such as a `generic_key`\n"
    );
}

#[test]
fn standard_input_and_several_files_are_read_together() {
    let output = import(&[], &["-"], FILE.as_bytes());
    // The comment above the tables has other lines.
    let tables = |text: &str| text.split_once("\n\n").map(|(_, tables)| tables.to_owned());
    assert_eq!(tables(&text(&output.stdout)), tables(&PRINTED.replace("shop.yaml", "<stdin>")));
    let more = b"domain: shop\ndescriptors:\n- key: user\n  rate_limit: { unit: day, requests_per_unit: 7, name: searches }\n";
    let other = b"domain: other\n";
    let files = [("shop.yaml", FILE.as_bytes()), ("b.yaml", &more[..]), ("c.yaml", &other[..])];
    let output = import(&files, &["shop.yaml", "b.yaml", "c.yaml"], b"");
    let printed = text(&output.stdout);
    let descriptors = Descriptors::parse(&printed);
    assert_eq!(descriptors.limits.keys().collect::<Vec<_>>(), ["searches", "searches-2", "shop-path-api"]);
    assert!(printed.contains("# b.yaml:3\n[limits.searches-2]\n"), "{printed}");
    assert!(text(&output.stderr).contains("note: another file has the domain `shop`\n --> b.yaml:1:9\n"));
    for wrong in [&["shop.yaml", "shop.yaml"][..], &["missing.yaml"], &["."], &[]] {
        let output = import(&files, wrong, b"");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).starts_with("error: "), "{}", text(&output.stderr));
    }
}

#[test]
fn what_that_service_refuses_is_refused_with_the_line() {
    let rule = |rest: &str| format!("domain: d\ndescriptors:\n- key: a\n{rest}");
    let limit = |rest: &str| rule(&format!("  rate_limit: {{ {rest} }}\n"));
    for (yaml, line, message) in [
        (String::new(), 1, "the file is empty"),
        ("# only a comment\n".to_owned(), 1, "the file is empty"),
        ("descriptors: []\n".to_owned(), 1, "the file has no `domain`"),
        ("domain: ''\n".to_owned(), 1, "the file has no `domain`"),
        ("- a\n".to_owned(), 1, "the file is not a mapping"),
        ("domain: d\ndescriptors: 7\n".to_owned(), 2, "`descriptors` is not a list"),
        ("domain: d\ndescriptors: [7]\n".to_owned(), 2, "a rule is not a mapping"),
        ("domain: d\ndescriptors:\n- value: x\n".to_owned(), 3, "the rule has no `key`"),
        (rule("- key: a\n"), 4, "`a` is written twice"),
        (rule("  ratelimit: {}\n"), 4, "unknown key `ratelimit` in a rule"),
        (rule("  key: b\n"), 4, "the key `key` is written twice"),
        (rule("  ? [b]\n  : c\n"), 4, "a key is not a text"),
        (rule("  share_threshold: true\n"), 3, "`share_threshold` of a rule without `*`"),
        (rule("  shadow_mode: maybe\n"), 4, "this is neither true nor false"),
        (rule("  value: [x]\n"), 4, "this is not a text"),
        (limit("requests_per_unit: 1"), 4, "the limit has no `unit`"),
        (limit("unit: fortnight, requests_per_unit: 1"), 4, "`fortnight` is not a unit"),
        (limit("unit: minute, unlimited: true"), 4, "an unlimited rule has a `unit`"),
        (limit("unit: minute, requests_per_unit: -1"), 4, "this is not a whole number"),
        (limit("unit: minute, requests_per_unit: 1.5"), 4, "this is not a whole number"),
        (limit("unit: minute, requests_per_unit: '1'"), 4, "this is not a whole number"),
        (limit("unit: minute, requests_per_unit: 4294967296"), 4, "this is not a whole number"),
        (limit("unit: minute, name: x, replaces: [{ name: x }]"), 4, "the limit replaces itself"),
        (limit("unit: minute, replaces: [{}]"), 4, "`replaces` has an item without `name`"),
        (limit("unit: minute, replaces: x"), 4, "`replaces` is not a list"),
        ("apiVersion: v1\nkind: ConfigMap\n".to_owned(), 1, "this is an object of Kubernetes"),
        (
            rule(
                "  descriptors: [{ key: b, rate_limit: &l { unit: day } }]\n- key: b\n  descriptors: [{ key: a, rate_limit: *l }]\n",
            ),
            6,
            "rules for a, b and for b, a: `match` knows no order",
        ),
        (rule("\tvalue: x\n"), 4, "tab"),
        (rule("  value: \0\n"), 4, ""),
        (rule("  value: *none\n"), 4, "anchor"),
        (rule("  value: 'x\n"), 4, "unclosed quote"),
    ] {
        let said = refused(&yaml);
        assert!(said.contains(message), "{yaml:?}:\n{said}");
        assert!(said.contains(&format!("--> a.yaml:{line}:")), "{yaml:?}, line {line}:\n{said}");
    }
    let said = refused("domain: d\ndescriptors:\n- value: x\n- key: a\n  vaule: x\n- key: b*\n");
    assert_eq!(said.matches("error: ").count(), 3, "all of them at once:\n{said}");
    let said = refused(b"domain: d\ndescriptors:\n- key: \xff\n");
    assert!(said.contains("a.yaml:3: this is not UTF-8"), "{said}");
}

#[test]
fn files_that_grow_when_they_are_read_are_refused_within_bounds() {
    let lines = |line: &dyn Fn(usize) -> String, count| (0..count).map(line).collect::<String>();
    let laughs = lines(&|at| format!("- &a{} [{}]\n", at + 1, vec![format!("*a{at}"); 9].join(", ")), 60);
    let rules = lines(
        &|at| {
            format!(
                "- &r{} {{ key: k{at}, descriptors: [*r{at}, {{ key: x, descriptors: [*r{at}] }}] }}\n",
                at + 1
            )
        },
        60,
    );
    let merges = lines(&|at| format!("- &m{} {{ <<: [*m{at}, *m{at}, *m{at}] }}\n", at + 1), 60);
    let literals = |level: &str| {
        let values = lines(&|at| format!("{{ key: {level}, value: v{at}, descriptors: *next }}, "), 60);
        format!("[{values} {{ key: {level}, descriptors: *next }}]")
    };
    let levels = format!(
        "- {{ key: z, descriptors: &next [{{ key: q, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}] }}\n\
         - {{ key: y, descriptors: &next {} }}\n- {{ key: x, descriptors: &next {} }}\n",
        literals("a"),
        literals("b")
    );
    for (what, rest) in [
        ("aliases of aliases", format!("- &a0 [x]\n{laughs}")),
        ("rules of rules", format!("- &r0 {{ key: r }}\n{rules}")),
        ("merges of merges", format!("- &m0 {{ key: m }}\n{merges}")),
        ("combinations", levels),
        ("an alias inside of its anchor", "- &a { key: a, descriptors: [*a] }\n".to_owned()),
        ("values", "- {}\n".repeat(400_000)),
        ("brackets", format!("- {}\n", "[".repeat(100_000))),
        ("levels of blocks", lines(&|at| format!("{}- key: a\n", "  ".repeat(at)), 1_000)),
        ("question marks", format!("- {}\n", "? ".repeat(100_000))),
        ("anchors", lines(&|at| format!("- &a{at}\n"), 300_000)),
        ("one long text", format!("- '{}\n", "x".repeat(3 << 20))),
        ("bytes", format!("# {}\n", "x".repeat(MAX_FILE_BYTES))),
    ] {
        let said = refused(format!("domain: d\ndescriptors:\n{rest}"));
        assert!(said.contains("--> a.yaml:"), "{what}: {said}");
        assert!(said.len() < 100_000, "{what}: {} bytes are said", said.len());
    }
}

#[test]
fn a_long_file_is_imported() {
    let rule = |at| {
        format!("- {{ key: tenant, value: t{at}, rate_limit: {{ unit: minute, requests_per_unit: 5 }} }}\n")
    };
    let yaml = format!("domain: d\ndescriptors:\n{}", (0..10_000).map(rule).collect::<String>());
    let output = import(&[("a.yaml", yaml.as_bytes())], &["a.yaml"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(Descriptors::parse(&text(&output.stdout)).limits.len(), 10_000);
}

/// What stands in such files, good and bad.
const TOKENS: [&str; 44] = [
    "domain: d\n",
    "descriptors:\n",
    "- key: a\n",
    "  value: x\n",
    "  value: 'x*'\n",
    "  rate_limit:\n",
    "    unit: day\n",
    "    requests_per_unit: 3\n",
    "    unlimited: true\n",
    "  descriptors:\n",
    "  - key: b\n",
    "  shadow_mode: true\n",
    "    replaces: [{ name: n }]\n",
    "    name: n\n",
    "  share_threshold: yes\n",
    "---\n",
    "...\n",
    "&a ",
    "*a",
    "<<: ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "- ",
    "? ",
    "| \n",
    ">-\n",
    "'",
    "\"",
    "\\",
    "#",
    "%YAML 1.1\n",
    "!!str ",
    "\t",
    " ",
    "\n",
    "\r",
    "\0",
    "\u{feff}",
    "\u{85}",
    "é",
];

proptest! {
    #[test]
    fn any_text_is_imported_or_refused(tokens in prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..60)) {
        imports_or_says(&tokens.concat())?;
    }

    #[test]
    fn any_rules_are_imported_or_refused(tokens in prop::collection::vec(prop::sample::select(&TOKENS[..20]), 0..40)) {
        imports_or_says(&format!("domain: d\ndescriptors:\n- key: a\n{}", tokens.concat()))?;
    }

    #[test]
    fn any_names_are_quoted(domain in "\\PC{1,9}", key in "[^*]{1,9}", value in ".{0,9}", name in ".{0,70}") {
        let json = serde_json::json!({ "domain": domain, "descriptors": [
            { "key": key, "value": value, "rate_limit": { "unit": "day", "requests_per_unit": 1, "name": name } },
            { "key": key, "descriptors": [{ "key": key, "rate_limit": { "unit": "week", "requests_per_unit": 2 } }] },
        ]});
        imports_or_says(&json.to_string())?;
    }
}

fn imports_or_says(yaml: &str) -> Result<(), TestCaseError> {
    let imported =
        envoy_ratelimit::import(&[ImportFile { name: "a.yaml".to_owned(), text: yaml.to_owned() }]);
    let said = imported.report.render(true);
    match imported.toml {
        Some(toml) => drop(Descriptors::parse(&toml)),
        None => prop_assert!(said.contains("error"), "{said:?} of {yaml:?}"),
    }
    Ok(())
}

/// The files of `tests/migrate/envoy-ratelimit`, and the one above, are parts of a whole file: `tollgate check` admits it.
#[test]
fn what_is_printed_loads_as_a_part_of_a_file() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let examples = root().join("tests/migrate/envoy-ratelimit");
    let paths = std::fs::read_dir(examples).expect("it is there").map(|file| file.expect("listed").path());
    let yaml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let texts: Vec<_> = yaml.map(|path| std::fs::read_to_string(path).expect("it can be read")).collect();
    assert_eq!(texts.len(), 10);
    for text_of_file in texts.iter().map(String::as_str).chain([FILE]) {
        let printed = text(&import(&[], &["-"], text_of_file.as_bytes()).stdout);
        Descriptors::parse(&printed);
        let file = format!(
            "[decisions]\nlisten = \"127.0.0.1:0\"\n[[routes]]\npath = \"/*\"\nrespond = {{ status = 204 }}\n{printed}"
        );
        assert_eq!(check(folder.path(), &file), None, "{file}");
    }
}

/// What `tollgate check` says of a file with errors.
fn check(folder: &Path, file: &str) -> Option<String> {
    std::fs::write(folder.join("gateway.toml"), file).expect("it can be written");
    let output = Command::new(binary()).arg("check").current_dir(folder).output().expect("the binary starts");
    (!output.status.success()).then(|| text(&output.stderr))
}
