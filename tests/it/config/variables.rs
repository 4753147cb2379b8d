//! Defaults of variables, and variables in place of numbers.

use tollgate::plan::Plan;
use tollgate::route::condition::{Condition, ValuePattern};

use crate::harness::config::parse;
use crate::harness::config_folder::SMALL;

fn plan(rest: &str) -> Plan {
    parse(format!("{rest}\n{SMALL}")).unwrap_or_else(|report| panic!("{report}")).plan
}

fn message(rest: &str) -> String {
    let report = parse(format!("{rest}\n{SMALL}")).unwrap_err();
    assert_eq!(report.errors(), 1, "{report}");
    report.findings()[0].message.clone()
}

#[test]
fn a_default_holds_for_what_is_not_set_or_empty() {
    let host = |server: &str| {
        let file =
            format!("[upstreams.x]\nservers = [\"{server}\"]\n[[routes]]\npath = \"/\"\nupstream = \"x\"\n");
        let plan = parse(file).unwrap_or_else(|report| panic!("{report}")).plan;
        plan.upstreams[0].endpoints()[0].authority.to_string()
    };
    assert_eq!(host("http://${HOST:-other}:1"), "backend.internal:1");
    assert_eq!(host("http://${UNSET:-other}:1"), "other:1");
    assert_eq!(host("http://${UNSET:-a:-b}:1".replace("a:-b", "a").as_str()), "a:1");
    assert_eq!(host("${UNSET:-http://a:2}"), "a:2");
    assert_eq!(host("http://a${UNSET:-}:1"), "a:1");
    assert!(parse(SMALL.replace("/main\"", "/${UN SET:-x}\"")).is_err());
}

#[test]
fn a_lone_variable_stands_for_a_number_or_a_boolean() {
    let plan = plan(
        "[server]\nworkers = \"${SECONDS}\"\nvia = \"${UNSET:-true}\"\nmax_body_bytes = \"${UNSET:-7}\"\n[log]\nsample = \"${UNSET:-0.5}\"\n",
    );
    assert!(plan.server.workers == 3 && plan.server.via);
    assert_eq!(plan.routes[0].max_body_bytes, Some(7));
    for (rest, expected) in [
        ("[server]\nworkers = \"3\"", "`workers` should be a whole number, but this is a string"),
        ("[server]\nworkers = \"0${SECONDS}\"", "`workers` should be a whole number, but this is a string"),
        ("[server]\nworkers = \"${HOST}\"", "`workers` should be a whole number, but `${HOST}` holds none"),
        ("[server]\nworkers = \"${UNSET:-9999}\"", "`workers` cannot be `${UNSET:-9999}`"),
        ("[server]\nvia = \"${SECONDS}\"", "`via` should be `true` or `false`, but `${SECONDS}` holds none"),
        ("[log]\nsample = \"${HOST}\"", "`sample` should be a number, but `${HOST}` holds none"),
        ("[log]\nsample = \"${UNSET:-2}\"", "`sample` cannot be `${UNSET:-2}`"),
        ("[server]\nworkers = \"${UNSET}\"", "the environment variable `UNSET` is not set"),
    ] {
        assert_eq!(message(rest), expected, "{rest}");
    }
}

/// The text of a variable is literal in a pattern, and never `true` or `false`.
#[test]
fn the_text_of_a_variable_has_no_pattern() {
    let text = |text: &str| text.as_bytes().into();
    for (written, expected) in [
        ("${STAR}", ValuePattern::Exact(text("a*"))),
        ("${STAR}*", ValuePattern::Prefix(text("a*"))),
        ("*${STAR}", ValuePattern::Suffix(text("a*"))),
        ("${UNSET:-*}", ValuePattern::Exact(text("*"))),
        ("${UNSET:-true}", ValuePattern::Exact(text("true"))),
        ("${UNSET:-~a}", ValuePattern::Exact(text("~a"))),
        ("$${HOST}*", ValuePattern::Prefix(text("${HOST}"))),
    ] {
        let file =
            SMALL.replace("[[routes]]\n", &format!("[[routes]]\nheaders = {{ x-a = \"{written}\" }}\n"));
        let environment = |name: &str| (name == "STAR").then(|| "a*".to_owned());
        let loaded = tollgate::config::parse(file.as_bytes(), "gateway.toml", &environment);
        let plan = loaded.unwrap_or_else(|report| panic!("{report}")).plan;
        let [Condition::Header(_, patterns)] = plan.routes[0].conditions.values.as_slice() else {
            panic!("one condition: {:?}", plan.routes[0].conditions)
        };
        assert!(patterns.iter().eq([&expected]), "{written}: {patterns}");
    }
}
