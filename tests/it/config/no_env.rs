//! A check without the environment: what depends on a variable or a file that is not there is unknown, not wrong.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::harness::config::{environment, files};
use crate::harness::config_folder::{ConfigFolder, SMALL};

const LIMIT: &str = "[limits.l]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"5/s\"\n";

/// The report without the environment, and the number of things that were not checked.
fn checked(toml: &str) -> (String, usize, bool) {
    let folder = ConfigFolder::new(&[("gateway.toml", toml)]);
    let checked = folder.check("gateway.toml");
    let report = folder.relative(&checked.report.to_string());
    (report, checked.report.skipped_lines().len(), checked.plan.is_some())
}

#[test]
fn unknown_values_have_no_follow_up_faults() {
    for rest in [
        "[server]\nlisten = [\"${NO_1}\"]\n[admin]\nlisten = \"127.0.0.1:8080\"",
        "[server]\nlisten = [\"${NO_1}\"]\n[upstreams.x]\nservers = [\"http://127.0.0.1:8080\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[server]\nlisten = [{ address = \"127.0.0.1:1\", proxy_protocol = true }]\ntrusted_proxies = [\"${NO_1}\"]",
        "[server]\nclient_ip = \"x-forwarded-for\"\ntrusted_proxies = [\"${NO_1}\"]",
        "[server]\nworkers = \"${NO_1}\"\n[upstreams.x]\nservers = [\"http://127.0.0.1:9001\"]\nprotocol = \"http2\"\nmax_connections = 1\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[server]\npath_matching = \"${NO_1}\"\n[[routes]]\npath = \"/A\"\nupstream = \"demo\"\n[[routes]]\npath = \"/a\"\nupstream = \"demo\"",
        "[[server.tls]]\ncert = \"missing.pem\"\nkey = \"missing.key\"\nclient_ca = \"ca.pem\"\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nlimits = [\"t\"]\n[limits.t]\nalgorithm = \"gcra\"\nkey = [\"tls:subject\", \"ip\"]\nrate = \"1/s\"",
        "[upstreams.x]\nservers = [\"${NO_1}\"]\nbalance = \"${NO_2}\"\nhash_key = \"ip\"\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[upstreams.x]\nservers = [\"http://a\", \"${NO_1}\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[[routes]]\npath = \"/x\"\nupstream = \"${NO_1}\"\n[upstreams.unused]\nservers = [\"http://a\"]",
        "[[routes]]\nname = \"${NO_1}\"\npath = \"/x\"\nhosts = [\"a\"]\nupstream = \"demo\"\n[[routes]]\nname = \"${NO_2}\"\npath = \"/x\"\nhosts = [\"b\"]\nupstream = \"demo\"",
        "[[routes]]\npath = \"/${NO_1}\"\nupstream = \"demo\"\nstrip_prefix = \"/x\"",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nlimits = [\"${NO_1}\"]\n[limits.u]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nauth = \"${NO_1}\"\nauth_optional = true",
        "[auth.a]\ntype = \"api-key\"\nfrom = \"header:x\"\nfile = \"missing.csv\"\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nauth = \"a\"\nlimits = [\"c\"]\n[limits.c]\nalgorithm = \"gcra\"\nkey = \"consumer:plan\"\nrate = \"1/s\"",
        "[[routes]]\npath = \"/${NO_1}\"\nupstream = \"demo\"\nrewrite = \"/x/{id}/{*}\"",
        "[[routes]]\npath = \"${NO_1}\"\nredirect = { to = \"https://a.test/{1}\" }",
        "[[routes]]\npath = \"/x/{id}\"\nupstream = \"demo\"\nrewrite = \"${NO_1}\"",
        "[[routes]]\npath = \"~${NO_1}\"\nupstream = \"demo\"\nstrip_prefix = \"/x\"",
        "[[routes]]\npath = \"/x\"\nupstream = \"${NO_1}\"\nrewrite = \"/y\"",
        "[[routes]]\npath = \"/x\"\nredirect = \"${NO_1}\"\nupstream = \"demo\"",
        "[[routes]]\npath = \"/x\"\nredirect = { to = \"${NO_1}\", status = \"${NO_2}\" }",
        "[[routes]]\npath = \"/x\"\nrespond = { status = \"${NO_1}\", body = \"a\" }",
        "[[routes]]\npath = \"/x\"\nrespond = { status = 204, body = \"${NO_1}\" }",
        "[[routes]]\npath = \"/x\"\nrespond = { body_file = \"missing.html\" }",
        "[[routes]]\npath = \"/x\"\nrespond = { body_file = \"${NO_1}\", content_type = \"${NO_2}\" }",
        "[[routes]]\npath = \"/x\"\nrespond = { headers = { x-a = \"${NO_1}\" } }",
        "[errors]\n404 = { body = \"${NO_1}\" }\n502 = { body_file = \"missing.html\" }",
        "[errors]\n404 = { body = \"x {path}\", content_type = \"${NO_1}\" }",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nquery = { page = \"${NO_1}\" }\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nquery = { page = \"1\" }",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nclients = [\"10.0.0.0/8\", \"${NO_1}\"]\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nclients = [\"10.0.0.0/8\"]",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nheaders = { x-a = \"${NO_1}\" }\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nheaders = { x-a = \"b*\" }",
        "[upstreams.x]\nservers = [\"http://a/base\", \"http://b/${NO_1}\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[upstreams.x]\nservers = [\"http://a/base\", \"${NO_1}\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"",
        "[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nset_response_headers = { x-a = \"{${NO_1}}\" }",
        "[admin]\nlisten = \"0.0.0.0:9900\"\ntls = false\ntoken_env = \"NO_1\"",
        "[store]\nbackend = \"redis\"\nurl_env = \"NO_1\"",
        "[store]\nbackend = \"redis\"\nurl = \"${NO_1}\"",
        "[store]\nmax_keys = \"${NO_1}\"\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nlimits = [\"s\"]\n[limits.s]\nalgorithm = \"sliding-log\"\nkey = \"ip\"\nrate = \"2000000/day\"",
        "[log]\naccess = \"${NO_1}\"\nfields = [\"path\"]\nfile = \"/no/such/folder/x.log\"",
        "[limits.q]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 2\nqueue = \"${NO_1}\"\nmax_wait = \"1s\"\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nlimits = [\"q\"]",
        "[limits.q]\nalgorithm = \"${NO_1}\"\nkey = \"ip\"\nrate = \"1/s\"\nburst = 3\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\ncost = 9\nlimits = [\"q\"]",
        "[limits.q]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = [\"1/s\", \"${NO_1}\"]\n[limits.q.tiers.gold]\nrate = [\"2/s\", \"9/min\"]\n[[routes]]\npath = \"/x\"\nupstream = \"demo\"\nlimits = [\"q\"]",
        "[upstreams.x]\nservers = [\"http://a\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"\ncost = { reserve = 1, settle = \"${NO_1}\", status = { 401 = 5 }, max = 9 }\nlimits = [\"l\"]\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"100/s\"",
        "[upstreams.x]\nservers = [\"http://a\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"\ncost = { reserve = 5, settle = [\"bytes\", \"json:${NO_1}\"], min = 3, max = \"${NO_2}\" }\nlimits = [\"l\"]\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"100/s\"",
        "[upstreams.x]\nservers = [\"http://a\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"\ncost = { reserve = \"${NO_1}\", settle = \"status\", status = { 401 = \"${NO_2}\" }, missing = \"${NO_3}\" }\nlimits = [\"l\"]\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"100/s\"",
        "[upstreams.x]\nservers = [\"http://a\"]\n[[routes]]\npath = \"/x\"\nupstream = \"x\"\ncost = { from = \"${NO_1}\", per = \"${NO_2}\", min = 5, max = \"${NO_3}\", missing = \"${NO_4}\" }\nlimits = [\"l\"]\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"100/s\"",
        "[[routes]]\npath = \"/x\"\nrespond = { status = 204 }\nlimits = [\"l\"]\ncost = { reserve = 1, settle = \"${NO_1}\" }\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"",
    ] {
        let (report, skipped, planned) = checked(&format!("{SMALL}{rest}\n"));
        assert!(report.is_empty() && skipped > 0 && !planned, "{rest}\n{skipped} {report}");
    }
}

#[test]
fn an_unknown_burst_or_cost_decides_nothing() {
    for (burst, cost) in [("burst = \"${NO_1}\"", "cost = 60"), ("burst = 5", "cost = \"${NO_1}\"")] {
        let route = format!("limits = [\"l\"]\n{cost}\n");
        let (report, skipped, _) = checked(&format!("{SMALL}{route}{LIMIT}{burst}\n"));
        assert_eq!((report.as_str(), skipped), ("", 1));
    }
    let uses = "cost = 60\nlimits = [{ name = \"l\", cost = \"${NO_1}\" }]\n";
    let (report, skipped, _) = checked(&format!("{SMALL}{uses}{LIMIT}"));
    assert_eq!((report.as_str(), skipped), ("", 1));
}

#[test]
fn what_is_known_is_checked_nevertheless() {
    let (report, skipped, _) = checked(&format!(
        "{SMALL}limits = [\"l\"]\ncost = 60\n{LIMIT}[upstreams.x]\nservers = [\"http://${{NO_1}}\"]\n\
         [[routes]]\npath = \"/x\"\nupstream = \"nowhere\"\n"
    ));
    assert!(report.contains("costs 60") && report.contains("`nowhere`") && skipped == 1, "{report}");
    // A default, and a variable that is set, are no unknown values.
    let (report, skipped, planned) = checked(&format!("{SMALL}[server]\nworkers = \"${{NO_1:-2}}\"\n"));
    assert_eq!((report.as_str(), skipped, planned), ("", 0, true));
    let (report, ..) = checked(&format!("{SMALL}[server]\nworkers = \"${{PATH}}\"\n"));
    assert!(report.contains("`workers` should be a whole number"), "{report}");
}

#[test]
fn an_unknown_include_may_define_any_name() {
    let toml =
        "include = \"${NO_1}/more.toml\"\n[limits.l]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/s\"\n";
    assert_eq!(checked(toml).0, "");
    let (report, skipped, _) =
        checked(&format!("{toml}[[routes]]\npath = \"/\"\nupstream = \"elsewhere\"\nlimits = [\"other\"]\n"));
    assert_eq!((report.as_str(), skipped), ("", 3));
    let (report, ..) = checked("include = \"missing.toml\"\n");
    assert!(
        report.contains("there is no such file"),
        "an included file belongs to the configuration: {report}"
    );
}

#[test]
fn what_was_not_checked_is_named_with_its_place() {
    let folder =
        ConfigFolder::new(&[("gateway.toml", &format!("{SMALL}[server]\nworkers = \"${{NO_1}}\"\n"))]);
    let lines = folder.check("gateway.toml").report.skipped_lines();
    assert_eq!(
        lines.iter().map(|line| folder.relative(line)).collect::<Vec<_>>(),
        ["gateway.toml:8:11: the environment variable `NO_1` is not set"]
    );
}

#[test]
fn variables_in_a_file_of_consumers_need_not_be_set() {
    let auth = "[auth.a]\ntype = \"api-key\"\nfrom = \"header:x\"\nfile = \"consumers.csv\"\n";
    let csv = "key,name\n${NO_1},a\n${NO_1},b\nkey-of-c,${NO_2:-c}\n";
    let folder = ConfigFolder::new(&[
        ("gateway.toml", &format!("{SMALL}auth = \"a\"\n{auth}")),
        ("consumers.csv", csv),
    ]);
    let checked = folder.check("gateway.toml");
    assert_eq!(checked.report.to_string(), "");
    let lines = checked.report.skipped_lines();
    assert_eq!(
        lines.iter().map(|line| folder.relative(line)).collect::<Vec<_>>(),
        ["gateway.toml:11:8: the environment variable `NO_1` is not set"]
    );
    let report = folder.load("gateway.toml").unwrap_err();
    assert_eq!(
        report.error_lines(),
        [2, 3].map(|line| format!("consumers.csv:{line}: the environment variable `NO_1` is not set"))
    );
}

/// The places of all numbers, booleans and strings of a file.
fn scalars(table: &DeTable<'_>) -> Vec<Range<usize>> {
    fn add(value: &Spanned<DeValue<'_>>, all: &mut Vec<Range<usize>>) {
        match value.get_ref() {
            DeValue::Array(items) => items.iter().for_each(|item| add(item, all)),
            DeValue::Table(table) => table.values().for_each(|value| add(value, all)),
            _ => all.push(value.span()),
        }
    }
    let mut all = Vec::new();
    table.values().for_each(|value| add(value, &mut all));
    all
}

/// In every good file, each value in turn is unknown.
#[test]
fn no_unknown_value_makes_a_good_file_faulty() {
    let folder = ConfigFolder::new(&[]);
    std::os::unix::fs::symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), folder.path("tests")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, bytes) in files("valid", "toml") {
        let mut text =
            String::from_utf8_lossy(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes)).into_owned();
        for name in ["SECRET", "EMPTY", "FIELDS", "HOST", "REDIS_URL", "SECONDS"] {
            let value = environment(name).expect("it is set");
            text = text.replace(&format!("${{{name}}}"), &value);
        }
        let messages = |toml: &str| -> Vec<String> {
            folder.write("gateway.toml", toml);
            folder
                .check("gateway.toml")
                .report
                .findings()
                .into_iter()
                .map(|finding| finding.message)
                .collect()
        };
        let before = messages(&text);
        for place in scalars(DeTable::parse(&text).expect("TOML").get_ref()) {
            let unknown = [&text[..place.start], "\"${NO_SUCH_3}\"", &text[place.end..]].concat();
            let new = messages(&unknown).into_iter().filter(|message| {
                // Of several routes one is left to warn of.
                !before.contains(message) && !message.starts_with("a client can invent the key")
            });
            let of = format!("{} without `{}`", path.display(), &text[place]);
            wrong.extend(new.map(|message| format!("{of}: {message}")));
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 300, "{count}");
}
