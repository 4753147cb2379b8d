//! Reports to the letter: the example of the house's own design, and what keeps a report readable.

use crate::harness::config::parse;

/// Lines before the part of a file that a test is about.
fn after_lines(count: usize, rest: &str) -> String {
    format!("{}{rest}", "#\n".repeat(count))
}

#[test]
fn a_cost_that_can_never_pass_is_reported_to_the_letter() {
    let file = after_lines(
        15,
        "[upstreams]\ndemo = \"builtin:echo\"\n\n[limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\n\
         rate = \"10/s\"\nburst = 50\n\n[[routes]]\nname = \"search\"\npath = \"/search/*\"\nupstream = \"demo\"\n\
         limits = [\"per-client\"]\n\ncost = 60\n",
    );
    let expected = "\
error: route `search` costs 60, but limit `per-client` holds only 50, so every request would be refused
  --> gateway.toml:31:8
   |
31 | cost = 60
   |        ^^
   = help: raise `burst` of `per-client` to 60 or more, or lower the cost
";
    assert_eq!(parse(file).unwrap_err().to_string(), expected);
}

#[test]
fn faults_beyond_a_hundred_are_only_counted() {
    let unknown: String = (0..150).map(|number| format!("key{number} = 1\n")).collect();
    let report = parse(unknown).unwrap_err();
    assert_eq!(report.errors(), 151);
    let text = report.to_string();
    assert_eq!(text.matches("error: ").count(), 100);
    assert!(text.ends_with("\nand 51 more that are not shown\n"), "{text}");
}

#[test]
fn a_long_line_is_not_shown_whole_for_each_of_its_faults() {
    let items = "1, ".repeat(100_000);
    let report = parse(format!("routes = [{items}]\n")).unwrap_err();
    assert_eq!(report.errors(), 100_000);
    assert!(report.to_string().len() < 200_000, "{}", report.to_string().len());
}

#[test]
fn a_long_text_is_not_repeated_whole() {
    let long = "x".repeat(1_000_000);
    for line in
        ["path = \"/", "hosts = [\"!", "name = \"", "methods = [\"", "strip_prefix = \"", "limits = [\""]
    {
        let end = if line.contains('[') { "\"]" } else { "\"" };
        let file = format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\nupstream = \"demo\"\n{line}{long}/*{end}\n"
        );
        if let Err(report) = parse(file) {
            assert!(report.to_string().len() < 10_000, "{line}");
        }
    }
}

#[test]
fn nothing_in_a_file_can_steer_the_terminal() {
    let escape = "\\u001b[31m\\u0007\\u009b";
    for (place, raw) in [("path", "/{}"), ("name", "{}"), ("upstream", "{}"), ("strip_prefix", "/{}")] {
        let value = raw.replace("{}", escape);
        let report = parse(format!("[[routes]]\n{place} = \"{value}\"\n\"{escape}\" = 1\n")).unwrap_err();
        let shown = report.to_string();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    }
    for kind in ["upstreams", "limits"] {
        let report = parse(format!(
            "[{kind}.\"{escape}\"]\nkey = \"{escape}\"\nexempt = [\"{escape}\", \"header:{escape}\"]\n"
        ));
        let shown = report.unwrap_err().to_string();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    }
}

#[test]
fn colours_are_shown_only_if_asked_for() {
    let report = parse("nonsense = 1\n").unwrap_err();
    assert!(report.render(true).contains('\u{1b}'));
    assert!(!report.render(false).contains('\u{1b}'));
}

/// A report may end up in a log.
#[test]
fn secrets_are_shown_in_no_report() {
    let route = "[upstreams]\na = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\nlimits = [\"l\"]\n\
                 [limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    for text in [
        format!("{route}exempt = [\"header:x-internal=S3CR3T\"]"),
        format!("{route}exempt = [\"heder:x-internal=S3CR3T\"]"),
        format!("{route}[store]\nbackend = \"redis\"\nurl = \"user:S3CR3T@10.0.0.1:6379\""),
        format!("{route}[store]\nbackend = \"redis\"\nurl = \"10.0.0.1:6379/S3CR3T@\""),
        format!("{route}[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"s3-S3CR3T\""),
        format!("{route}[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"s3S3CR3T\""),
        format!("{route}[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"s3S3CR3T\nx = 1"),
        route.replace("builtin:echo", "http://u:S3CR3T@"),
        route.replace("builtin:echo", "u:S3CR3T@h:1"),
    ] {
        let report = parse(&text).map_or_else(|report| report, |loaded| loaded.warnings).render(false);
        assert!(!report.is_empty(), "nothing is wrong with\n{text}");
        assert!(!report.contains("S3CR3T"), "{report}");
    }
}
