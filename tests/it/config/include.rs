//! Configurations of several files.

use tollgate::config::NamedFile;

use crate::harness::config_folder::{ConfigFolder, SMALL, route_names};

fn route(name: &str) -> String {
    format!("[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"demo\"\n")
}

fn including(patterns: &str) -> String {
    format!("include = {patterns}\n{SMALL}")
}

#[test]
fn included_routes_follow_in_sorted_order() {
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &including("[\"routes/*.toml\", \"last.toml\"]")),
        ("routes/b.toml", &route("b")),
        ("routes/a.toml", &format!("include = \"more/a?.toml\"\n{}", route("a"))),
        ("routes/more/a1.toml", &route("a1")),
        ("routes/more/a10.toml", "= not read"),
        ("routes/.hidden.toml", "= not read"),
        ("routes/note.txt", "= not read"),
        ("routes/directory.toml/x.toml", "= not read"),
        ("last.toml", &route("last")),
    ]);
    let loaded = folder.load("gateway.toml").unwrap();
    assert_eq!(route_names(&loaded), ["main", "a", "a1", "b", "last"]);
    assert!(loaded.warnings.to_string().is_empty(), "{}", loaded.warnings);
}

#[test]
fn sections_of_all_files_are_joined() {
    let folder = ConfigFolder::new(&[
        (
            "gateway.toml",
            &format!("include = \"more.toml\"\n[server]\nvia = true\n{SMALL}limits = [\"l\"]\n"),
        ),
        (
            "more.toml",
            "[server]\nworkers = 3\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n",
        ),
    ]);
    let loaded = folder.load("gateway.toml").unwrap();
    assert!(loaded.plan.server.via && loaded.plan.server.workers == 3 && loaded.plan.limits.len() == 1);
}

#[test]
fn a_key_of_two_files_names_both_places() {
    let limit = "[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    let folder = ConfigFolder::new(&[
        (
            "gateway.toml",
            &format!(
                "include = \"a.toml\"\n[server]\nlisten = [{{ address = \"127.0.0.1:1\" }}]\n{limit}{SMALL}limits = [\"l\"]\n"
            ),
        ),
        ("a.toml", &format!("[server]\nlisten = [{{ address = \"127.0.0.1:2\" }}]\n\n{limit}")),
    ]);
    assert_eq!(
        folder.report("gateway.toml"),
        "\
error: `listen` of `[server]` stands in `gateway.toml:3` too
 --> a.toml:2:1
  |
2 | listen = [{ address = \"127.0.0.1:2\" }]
  | ^^^^^^
  = help: each key may stand in one file: leave one of the two out, or give one another name

error: `l` of `[limits]` stands in `gateway.toml:4` too
 --> a.toml:4:9
  |
4 | [limits.l]
  |         ^
  = help: each key may stand in one file: leave one of the two out, or give one another name
"
    );
}

#[test]
fn a_fault_is_shown_in_its_own_file() {
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &including("\"routes/*.toml\"")),
        ("routes/a.toml", "# ä\n\n[[routes]]\npath = \"/a\"\nupstream = \"dem\"\npassword = \"S3CR3T\"\n"),
    ]);
    assert_eq!(
        folder.report("gateway.toml"),
        "\
error: there is no upstream `dem`
 --> routes/a.toml:5:12
  |
5 | upstream = \"dem\"
  |            ^^^^^
  = help: did you mean `demo`? the only upstream is `demo`

error: unknown key `password` in `[[routes]]`
 --> routes/a.toml:6:1
  |
6 | password = ********
  | ^^^^^^^^
  = help: known here: `name`, `path`, `hosts`, `methods`, `headers`, `merge_slashes`, `upstream`, `cost`, `limits`, …
"
        .replace(
            "`name`, `path`, `hosts`, `methods`, `headers`, `merge_slashes`, `upstream`, `cost`, `limits`, …\n",
            folder.report("gateway.toml").rsplit("known here: ").next().unwrap()
        )
    );
    let findings = folder.load("gateway.toml").unwrap_err().findings();
    let place = |at: usize| (folder.relative(&findings[at].file), findings[at].line, findings[at].column);
    assert_eq!(place(0), ("routes/a.toml".to_owned(), 5, 12));
}

#[test]
fn syntax_errors_of_all_files_are_reported_together() {
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &including("[\"a.toml\", \"b.toml\", \"c.toml\", \"d.toml\"]")),
        ("a.toml", "x ="),
        ("b.toml", "\n[unclosed"),
    ]);
    folder.write("c.toml", b"# \xff");
    folder.write("d.toml", "unknown = 1");
    let lines = folder.load("gateway.toml").unwrap_err().error_lines();
    let places: Vec<String> = lines
        .iter()
        .map(|line| folder.relative(line).splitn(3, ':').take(2).collect::<Vec<_>>().join(":"))
        .collect();
    assert_eq!(places, ["a.toml:1", "b.toml:2", "c.toml:1"], "{lines:?}");
}

#[test]
fn faults_of_include_have_a_place_and_a_remedy() {
    for (pattern, expected) in [
        ("\"missing.toml\"", "cannot read `missing.toml`: there is no such file"),
        ("\"sub\"", "cannot read `sub`: it is a directory"),
        ("\"*/a.toml\"", "`*/a.toml` has `*` or `?` in the name of a directory"),
        ("\"\"", "`` names no file"),
        (
            "[\"a.toml\", \"./a.toml\"]",
            "the file `./a.toml` is included twice: `gateway.toml:1` includes it too",
        ),
        (
            "[\"a.toml\", \"link.toml\"]",
            "the file `link.toml` is included twice: `gateway.toml:1` includes it too",
        ),
        ("7", "`include` should be a string"),
        ("\"${UNSET_VARIABLE_X}\"", "the environment variable `UNSET_VARIABLE_X` is not set"),
        ("\"gateway.toml\"", "files include each other in a circle: `gateway.toml` → `gateway.toml`"),
        ("\"b.toml\"", "files include each other in a circle: `b.toml` → `c.toml` → `b.toml`"),
    ] {
        let folder = ConfigFolder::new(&[
            ("gateway.toml", &including(pattern)),
            ("sub/x.toml", ""),
            ("a.toml", ""),
            ("b.toml", "include = \"c.toml\""),
            ("c.toml", "include = \"b.toml\""),
        ]);
        std::os::unix::fs::symlink("a.toml", folder.path("link.toml")).unwrap();
        let report = folder.load("gateway.toml").unwrap_err();
        assert_eq!(report.errors(), 1, "{report}");
        let text = folder.relative(&report.to_string());
        assert!(text.contains(expected), "{pattern}: {text}");
        assert!(text.contains("help: ") && text.contains(".toml:1:"), "{text}");
    }
}

#[test]
fn a_pattern_without_a_match_is_a_warning() {
    let folder = ConfigFolder::new(&[("gateway.toml", &including("[\"none/*.toml\"]"))]);
    let loaded = folder.load("gateway.toml").unwrap();
    assert_eq!(
        folder.relative(&loaded.warnings.warning_lines().join("\n")),
        "gateway.toml:1:12: no file matches `none/*.toml`"
    );
}

#[test]
fn depth_number_and_size_are_bounded() {
    let folder = ConfigFolder::new(&[("gateway.toml", &including("\"d1.toml\""))]);
    (1..=16).for_each(|at| folder.write(&format!("d{at}.toml"), format!("include = \"d{}.toml\"", at + 1)));
    let text = folder.report("gateway.toml");
    assert!(text.contains("`d16.toml` is included through more than 16 files"), "{text}");
    let folder = ConfigFolder::new(&[("gateway.toml", &including("\"m/*.toml\""))]);
    (0..1_005).for_each(|at| folder.write(&format!("m/{at}.toml"), ""));
    assert!(folder.report("gateway.toml").contains("the configuration has more than 1000 files"));
    let folder = ConfigFolder::new(&[("gateway.toml", &including("\"l*.toml\""))]);
    (0..3).for_each(|at| folder.write(&format!("l{at}.toml"), "#".repeat(7 << 20)));
    let text = folder.report("gateway.toml");
    assert!(text.contains("cannot read `l2.toml`: the configuration is larger than 16 MiB"), "{text}");
}

#[test]
fn a_name_of_a_file_controls_no_terminal() {
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &including("\"*\\u001b*.toml\"")),
        ("a\u{1b}[31m.toml", "x = 1"),
    ]);
    let text = folder.report("gateway.toml");
    assert!(text.contains(" --> a␣[31m.toml:1:1") && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn many_keys_of_two_files_are_found_in_time() {
    let many: String = (0..50_000).map(|at| format!("k{at} = 1\n")).collect();
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &format!("include = \"b.toml\"\n[limits]\n{many}")),
        ("b.toml", &format!("[limits]\n{many}")),
    ]);
    let report = folder.load("gateway.toml").unwrap_err();
    assert!(report.errors() > 50_000, "{}", report.errors());
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let folder = ConfigFolder::new(&[("gateway.toml", &including("\"/dev/zero\""))]);
    assert!(folder.report("gateway.toml").contains("it is not a regular file"));
}

#[test]
fn paths_are_relative_to_their_own_file() {
    let auth = "[auth.a]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"consumers.csv\"\n";
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &format!("include = \"sub/a.toml\"\n{SMALL}auth = \"a\"\n")),
        ("sub/a.toml", auth),
        ("sub/consumers.csv", "key,name\nkey-of-n,n\n"),
    ]);
    let loaded = folder.load("gateway.toml").unwrap();
    let files: Vec<_> =
        loaded.files.iter().map(|file| folder.relative(&file.path.display().to_string())).collect();
    assert_eq!(files, ["gateway.toml", "sub/a.toml", "sub/consumers.csv"]);
    folder.write("sub/consumers.csv", "key,name\nk\n");
    let findings = folder.load("gateway.toml").unwrap_err().findings();
    assert_eq!((folder.relative(&findings[0].file), findings[0].line), ("sub/consumers.csv".to_owned(), 2));
}

#[test]
fn a_directory_is_read_in_the_order_of_names() {
    let folder = ConfigFolder::new(&[
        ("d/20.toml", &route("b")),
        ("d/10.toml", SMALL),
        ("d/.x.toml", "= not read"),
        ("d/sub/x.toml", "= not read"),
        ("d/readme.md", "= not read"),
    ]);
    assert_eq!(route_names(&folder.load("d").unwrap()), ["main", "b"]);
    folder.write("d/05.toml", "include = \"20.toml\"");
    let text = folder.report("d");
    assert!(text.contains("the file `d/20.toml` is included twice: it is read without `include`"), "{text}");
    let empty = ConfigFolder::new(&[]);
    assert_eq!(
        empty.report(""),
        "error: there is no `*.toml` in `DIR`\n  = help: name a file with `-c FILE`, or put one there\n"
    );
}

#[test]
fn the_version_is_of_all_files() {
    let folder = ConfigFolder::new(&[("gateway.toml", SMALL), ("d/1.toml", SMALL), ("d/2.toml", "# a")]);
    let version = |path: &str| folder.load(path).unwrap().version;
    let mut alone = blake3_of(SMALL);
    alone.truncate(8);
    assert_eq!(version("gateway.toml"), alone, "one file has the hash of its text");
    let before = version("d");
    folder.write("d/2.toml", "# b");
    assert_ne!(version("d"), before);
}

fn blake3_of(text: &str) -> String {
    tollgate::config::parse(text.as_bytes(), "any.toml", &|_| None).unwrap().version
}

#[test]
fn files_that_come_go_or_change_are_seen() {
    let folder =
        ConfigFolder::new(&[("gateway.toml", &including("\"r/*.toml\"")), ("r/a.toml", &route("a"))]);
    let files = folder.load("gateway.toml").unwrap().files;
    let changed = || files.iter().filter(|file| NamedFile::again(file) != **file).count();
    assert_eq!(changed(), 0);
    folder.write("r/b.toml", "");
    assert_eq!(changed(), 1, "another file matches");
    std::fs::remove_file(folder.path("r/b.toml")).unwrap();
    assert_eq!(changed(), 0);
    folder.write("r/a.toml", route("b"));
    assert_eq!(changed(), 1, "an included file changed");
    std::fs::remove_file(folder.path("r/a.toml")).unwrap();
    assert_eq!(changed(), 2, "and is gone");
    folder.write("gateway.toml", "= not TOML");
    let faulty = folder.load("gateway.toml").unwrap_err();
    assert_eq!(faulty.files().len(), 1, "a faulty file is watched, too");
}
