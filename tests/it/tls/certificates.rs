//! What `check` says of certificates whose fault depends on the day.

use crate::harness::Authority;
use crate::harness::config::parse;

/// A good file with this certificate.
fn with(authority: &Authority, files: &[&str]) -> String {
    let certificates: String = files.iter().map(|file| authority.server(file)).collect();
    format!(
        "upstreams.demo = \"builtin:echo\"\nroutes = [{{ path = \"/*\", upstream = \"demo\" }}]\n{certificates}"
    )
}

#[test]
fn an_expired_certificate_is_a_fault() {
    let authority = Authority::new();
    authority.certify_with("old", &["a.test"], |params| {
        params.not_before = rcgen::date_time_ymd(2019, 12, 31);
        params.not_after = rcgen::date_time_ymd(2020, 12, 31);
    });
    let report = parse(with(&authority, &["old"])).expect_err("it is a fault").to_string();
    assert!(report.contains("the certificate in `cert` expired on 2020-12-31"), "{report}");
    assert!(report.contains("= help: have it renewed"), "{report}");
}

#[test]
fn a_certificate_of_tomorrow_is_a_warning() {
    let authority = Authority::new();
    authority.certify_with("new", &["a.test"], |params| {
        params.not_before = rcgen::date_time_ymd(2400, 1, 1);
        params.not_after = rcgen::date_time_ymd(2401, 1, 1);
    });
    let loaded = parse(with(&authority, &["new"])).expect("it can be used");
    let warnings = loaded.warnings.to_string();
    assert!(warnings.contains("is not valid before 2400-01-01"), "{warnings}");
}

#[test]
fn a_certificate_that_no_client_gets_is_a_warning() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    authority.certify("nameless", &["127.0.0.1"]);
    let loaded = parse(with(&authority, &["a", "nameless"])).expect("it can be used");
    assert_eq!(loaded.warnings.warning_lines().len(), 1, "{}", loaded.warnings);
    assert!(loaded.warnings.to_string().contains("is for no DNS name"), "{}", loaded.warnings);
    let loaded = parse(with(&authority, &["nameless", "a"])).expect("it can be used");
    assert_eq!(loaded.warnings.warning_lines().len(), 0, "the default needs none: {}", loaded.warnings);
}

#[test]
fn certificates_without_a_listener_for_them_are_a_warning() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let server = "[server]\nlisten = [{ address = \"127.0.0.1:1\", tls = false }]\n[[server.tls]]";
    let text = with(&authority, &["a"]).replace("[[server.tls]]", server);
    let loaded = parse(text).expect("it can be used");
    assert!(loaded.warnings.to_string().contains("no listener speaks TLS"), "{}", loaded.warnings);
}
