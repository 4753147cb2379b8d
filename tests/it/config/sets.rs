//! `[sets.NAME]` and `use`: routes that are written with sets are those that are written out.

use tollgate::plan::Route;

use crate::harness::config::parse;

const BEGIN: &str = "[upstreams]\nshop = \"http://127.0.0.1:9001\"\ndemo = \"builtin:echo\"\n\
    [limits.a]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\nburst = 10\n\
    [limits.b]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"20/s\"\nburst = 20\n";

/// The routes of a file.
fn routes(server: &str, rest: &str) -> Vec<String> {
    let file = format!("[server]\n{server}\n{BEGIN}{rest}");
    let loaded = parse(&file).unwrap_or_else(|report| panic!("{report}"));
    // A route tells of its sets, and is otherwise the one that is written out.
    let without = |route: &Route| format!("{:?}", Route { sets: Vec::new(), ..route.clone() });
    loaded.plan.taking_routes().map(without).collect()
}

#[track_caller]
fn same(server: &str, with_sets: &str, written_out: &str) {
    assert_eq!(routes(server, with_sets), routes("", written_out));
}

#[test]
fn a_route_has_the_keys_of_its_sets_and_its_own_win() {
    same(
        "",
        "[sets.web]\nupstream = \"demo\"\ntimeout = \"5s\"\nmethods = [\"GET\"]\n\
         [sets.slow]\ntimeout = \"50s\"\n\
         [[routes]]\npath = \"/a\"\nuse = [\"web\", \"slow\"]\n\
         [[routes]]\npath = \"/b\"\nuse = [\"slow\", \"web\"]\nmethods = [\"PUT\"]\n\
         [[routes]]\npath = \"/c\"\nupstream = \"shop\"\n",
        "[[routes]]\npath = \"/a\"\nupstream = \"demo\"\ntimeout = \"50s\"\nmethods = [\"GET\"]\n\
         [[routes]]\npath = \"/b\"\nupstream = \"demo\"\ntimeout = \"5s\"\nmethods = [\"PUT\"]\n\
         [[routes]]\npath = \"/c\"\nupstream = \"shop\"\n",
    );
}

/// The sets of the server come first, each once.
#[test]
fn a_route_tells_of_its_sets() {
    let sets = |route: &str| {
        let file = format!(
            "[server]\nuse = [\"all\", \"web\"]\n{BEGIN}[sets.all]\ntimeout = \"5s\"\n[sets.web]\nmax_body_bytes = 0\n\
             [sets.slow]\nread_timeout = \"50s\"\n[[routes]]\npath = \"/x\"\nupstream = \"shop\"\nuse = [\"slow\"]\n{route}"
        );
        let loaded = parse(&file).unwrap_or_else(|report| panic!("{report}"));
        loaded.plan.taking_routes().last().expect("a route").sets.join(" ")
    };
    assert_eq!(sets(""), "all web slow");
    assert_eq!(sets("[[routes]]\npath = \"/*\"\nupstream = \"shop\"\n"), "all web");
    assert_eq!(
        sets("[[routes]]\npath = \"/*\"\nupstream = \"shop\"\nuse = [\"web\", \"slow\"]\n"),
        "all web slow"
    );
}

#[test]
fn the_sets_of_the_server_are_first() {
    same(
        "use = [\"all\"]",
        "[sets.all]\ntimeout = \"5s\"\nread_timeout = \"6s\"\n[sets.slow]\ntimeout = \"50s\"\n\
         [[routes]]\npath = \"/a\"\nupstream = \"demo\"\n\
         [[routes]]\npath = \"/b\"\nupstream = \"demo\"\nuse = [\"slow\"]\n",
        "[[routes]]\npath = \"/a\"\nupstream = \"demo\"\ntimeout = \"5s\"\nread_timeout = \"6s\"\n\
         [[routes]]\npath = \"/b\"\nupstream = \"demo\"\ntimeout = \"50s\"\nread_timeout = \"6s\"\n",
    );
}

/// A limit once: with the cost of the last that names it.
#[test]
fn what_is_added_is_joined_and_headers_are_merged() {
    same(
        "",
        "[sets.one]\nlimits = [\"a\", \"b\"]\ndeny = [\"192.0.2.1\"]\nremove_request_headers = [\"x-a\"]\n\
         set_response_headers = { X-Frame-Options = \"DENY\", x-one = \"1\" }\n\
         [sets.two]\nallow = [\"198.51.100.0/24\"]\n\
         [[routes]]\npath = \"/a\"\nupstream = \"demo\"\nuse = [\"one\", \"two\"]\n\
         limits = [{ name = \"a\", cost = 5 }]\ndeny = [\"192.0.2.2\", \"192.0.2.1\"]\nallow = [\"203.0.113.0/24\"]\n\
         remove_request_headers = [\"X-A\", \"x-b\"]\nset_response_headers = { x-frame-options = \"SAMEORIGIN\" }\n",
        "[[routes]]\npath = \"/a\"\nupstream = \"demo\"\nlimits = [{ name = \"a\", cost = 5 }, \"b\"]\n\
         deny = [\"192.0.2.1\", \"192.0.2.2\"]\nallow = [\"203.0.113.0/24\"]\n\
         remove_request_headers = [\"x-a\", \"x-b\"]\n\
         set_response_headers = { x-one = \"1\", x-frame-options = \"SAMEORIGIN\" }\n",
    );
}

#[test]
fn a_fault_of_a_set_is_told_once() {
    let route = |path: &str| format!("[[routes]]\npath = \"{path}\"\nupstream = \"demo\"\nuse = [\"web\"]\n");
    let many: String = (0..150).map(|number| route(&format!("/{number}"))).collect();
    let report = parse(format!("{BEGIN}[sets.web]\ntimeout = \"soon\"\n{many}")).expect_err("a fault");
    let text = report.to_string();
    assert_eq!(text.matches("error: ").count(), 1, "{text}");
    assert!(text.contains("timeout = \"soon\""), "{text}");
}
