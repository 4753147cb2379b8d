//! `tollgate check` on `[store]`: every fault with its place and a remedy, and no password on any screen.

use crate::harness::binary;
use std::process::Command;

const ROUTES: &str = "[upstreams]\ndemo = \"builtin:echo\"\n\
    [limits.per-client]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"10/s\"\n\
    [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-client\"]\n";

/// Exit status and all that is told of a file with these lines in `[store]`.
fn check(routes: &str, lines: &str) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let toml = format!("[store]\n{lines}\n{routes}");
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("it can be written");
    let output = Command::new(binary())
        .arg("check")
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .env("TEST_REDIS_URL", "redis://:hunter2@localhost:6379")
        .env("TEST_BAD_URL", "http://:hunter2@localhost")
        .output()
        .expect("the binary starts");
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().expect("it ends by itself"), told.concat())
}

#[track_caller]
fn good(lines: &str) -> String {
    let (status, told) = check(ROUTES, &format!("backend = \"redis\"\n{lines}"));
    assert_eq!(status, 0, "{lines}\n{told}");
    assert!(!told.contains("hunter2"), "{told}");
    told
}

/// A fault in line `line` of the file (1 is `[store]`, 2 the backend) that mentions `word`.
#[track_caller]
fn bad(lines: &str, line: usize, word: &str) {
    let (status, told) = check(ROUTES, &format!("backend = \"redis\"\n{lines}"));
    assert_eq!(status, 2, "{lines}\n{told}");
    assert!(told.contains(&format!("gateway.toml:{line}:")), "line {line} of\n{lines}\n{told}");
    assert!(told.contains("error: ") && told.contains(word), "`{word}` for\n{lines}\n{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn good_stores_are_good_and_their_passwords_are_not_shown() {
    for lines in [
        "url = \"redis://localhost\"",
        "url = \"redis://127.0.0.1:6379/3\"",
        "url = \"redis://[::1]:6379\"",
        "url = \"redis://:hunter2@localhost:6379\"",
        "url = \"redis://gate:hunter2@localhost:6379/0\"",
        "url = \"rediss://gate:hunter2@redis.internal\"",
        "url = [\"redis://:hunter2@a:7000\", \"redis://:hunter2@b:7001\"]",
        "url = \"redis+sentinel://:hunter2@a:26379/mymaster\"",
        "url = \"unix:///run/redis.sock\"",
        "url = \"unix://gate:hunter2@/run/redis.sock?db=2\"",
        "url_env = \"TEST_REDIS_URL\"",
        "url = \"redis://localhost\"\ntimeout = \"5ms\"\non_error = \"deny\"\nprefix = \"fleet-7\"\nmax_keys = 1000",
        "url = \"redis://localhost\"\nsecret = \"hunter2-and-more-of-it\"",
    ] {
        good(lines);
    }
}

#[test]
fn the_summary_names_the_store_without_its_password() {
    let told = good("url = \"redis://gate:hunter2@redis.internal:6380\"");
    assert!(told.contains("redis.internal"), "{told}");
}

#[test]
fn a_store_that_cannot_be_found_is_a_fault() {
    bad("timeout = \"5ms\"", 1, "url");
    bad("url = \"redis://localhost\"\nurl_env = \"TEST_REDIS_URL\"", 4, "url_env");
    bad("url_env = \"NO_SUCH_VARIABLE\"", 3, "NO_SUCH_VARIABLE");
    bad("url_env = \"TEST_BAD_URL\"", 3, "redis://");
    bad("url = []", 3, "url");
}

#[test]
fn a_url_that_is_none_is_a_fault() {
    for url in [
        "",
        "localhost",
        "localhost:6379",
        "http://localhost:6379",
        "unix://redis.sock",
        "redis://",
        "redis://localhost:port",
        "redis://localhost:70000",
        "redis://localhost:0",
        "redis://localhost/one",
        "redis://:hunter2@",
        "redis://:hunter2@localhost:port",
        "redis//:hunter2@localhost",
        "redis://localhost/0/1",
        "redis+sentinel://localhost:26379",
    ] {
        bad(&format!("url = \"{url}\""), 3, "://");
    }
}

#[test]
fn nodes_of_a_cluster_are_all_reached_alike() {
    for other in [
        "redis://:other@b:7001",
        "redis://gate:hunter2@b:7001",
        "rediss://:hunter2@b:7001",
        "redis://b:7001",
        "redis+sentinel://:hunter2@b:26379/mymaster",
    ] {
        bad(&format!("url = [\"redis://:hunter2@a:7000\", \"{other}\"]"), 3, "");
    }
    bad("url = [\"redis://a:7000/1\", \"redis://b:7001/1\"]", 3, "database");
    bad("url = [\"redis://a:7000\", 7]", 3, "");
}

#[test]
fn other_values_that_cannot_be_are_faults() {
    let with = |line: &str| format!("url = \"redis://localhost\"\n{line}");
    for (line, word) in [
        ("prefix = \"a{b\"", "prefix"),
        ("prefix = \"a}b\"", "prefix"),
        ("prefix = \"\"", "prefix"),
        ("timeout = \"0ms\"", "timeout"),
        ("timeout = \"soon\"", ""),
        ("on_error = \"panic\"", "on_error"),
        ("secret = \"\"", "secret"),
        ("tls = { ca = \"ca.pem\" }", "tls"),
        ("passwrd = \"hunter2\"", "passwrd"),
    ] {
        let (status, told) = check(ROUTES, &format!("backend = \"redis\"\n{}", with(line)));
        assert_eq!(status, 2, "{line}\n{told}");
        assert!(told.contains("gateway.toml:4:") && told.contains(word), "{line}\n{told}");
    }
}

#[test]
fn certificates_that_are_missing_or_go_with_nothing_are_faults() {
    let with = |tls: &str| format!("url = \"rediss://localhost\"\ntls = {{ {tls} }}");
    bad(&with("ca = \"missing.pem\""), 4, "missing.pem");
    bad(&with("cert = \"client.pem\""), 4, "key");
    bad(&with("key = \"client.key\""), 4, "cert");
    bad(&with("server_name = \"not a name\""), 4, "not a name");
    bad(&with("cipher = \"none\""), 4, "cipher");
}

#[test]
fn several_faults_are_told_at_once() {
    let (status, told) = check(
        ROUTES,
        "backend = \"redis\"\nurl = \"http://:hunter2@localhost\"\nprefix = \"{\"\non_error = \"hope\"",
    );
    assert_eq!(status, 2);
    for line in 3..=5 {
        assert!(told.contains(&format!("gateway.toml:{line}:")), "{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
}

/// A file that is no TOML is shown where it breaks, but not what it hides.
#[test]
fn a_slip_of_the_pen_shows_no_password() {
    let mut shown = Vec::new();
    for lines in [
        "url = \"redis://:hunter2@localhost",
        "url = redis://:hunter2@localhost",
        "url = \"redis://:hunter2@localhost\" \"",
        "url = [\"redis://:hunter2@a\", \"redis://:hunter2@b\"",
        "url = [\"redis://:hunter2@a\", \"http://:hunter2@b\"]",
        "url = { host = \"redis://:hunter2@a\" }",
        "uri = \"redis://:hunter2@localhost\"",
        "secret = \"hunter2-and-more-of-it",
        "secret = [\"hunter2-and-more-of-it\"]",
        "secrets = \"hunter2-and-more-of-it\"",
        "url = \"redis://:hunter2@localhost\"\nurl = \"redis://:hunter2@localhost\"",
        "url_env = \"redis://:hunter2@localhost\"",
        "password = \"hunter2\"",
    ] {
        let (status, told) = check(ROUTES, &format!("backend = \"redis\"\n{lines}"));
        assert_eq!(status, 2, "{lines}\n{told}");
        if told.contains("hunter2") {
            shown.push(told);
        }
    }
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn a_limit_may_say_what_it_does_without_the_store() {
    let with = |on_error: &str| {
        ROUTES.replace("rate = \"10/s\"\n", &format!("rate = \"10/s\"\non_error = \"{on_error}\"\n"))
    };
    let store = "backend = \"redis\"\nurl = \"redis://localhost\"";
    for on_error in ["local", "allow", "deny"] {
        let (status, told) = check(&with(on_error), store);
        assert_eq!(status, 0, "{told}");
    }
    let (status, told) = check(&with("ignore"), store);
    assert_eq!(status, 2);
    assert!(told.contains("ignore") && told.contains("gateway.toml:10:"), "{told}");
}

/// In a cluster limits of different keys are asked in turn, and what cannot be refunded cannot take part.
#[test]
fn what_cannot_be_refunded_stands_alone_in_a_cluster() {
    let routes = |limit: &str, key: &str| {
        format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n[limits.one]\nkey = \"ip\"\n{limit}\n\
             [limits.other]\nalgorithm = \"token-bucket\"\nkey = \"{key}\"\nrate = \"10/s\"\n\
             [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"one\", \"other\"]\n"
        )
    };
    let (cluster, single) = (
        "backend = \"redis\"\nurl = [\"redis://a:7000\", \"redis://b:7000\"]",
        "backend = \"redis\"\nurl = \"redis://a:7000\"",
    );
    for limit in [
        "algorithm = \"leaky-bucket\"\nrate = \"10/s\"",
        "algorithm = \"sliding-log\"\nrate = \"10/s\"\ncount_denied = true",
    ] {
        let (status, told) = check(&routes(limit, "global"), cluster);
        assert_eq!(status, 2, "{limit}\n{told}");
        assert!(told.contains("cluster") && told.contains("gateway.toml:"), "{told}");
        let (status, told) = check(&routes(limit, "global"), single);
        assert_eq!(status, 0, "one server decides all at once: {told}");
    }
    let (status, told) = check(&routes("algorithm = \"sliding-log\"\nrate = \"10/s\"", "global"), cluster);
    assert_eq!(status, 0, "{told}");
}
