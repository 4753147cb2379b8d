//! Certificates that change under running connections.

use rustix::process::Signal;
use rustls::HandshakeKind;

use crate::harness::shown::{common_name, shown};
use crate::harness::{Authority, Backend, Client, Gateway, eventually, everything_to};

#[test]
fn a_reload_shows_new_certificates_and_keeps_open_connections() {
    let authority = Authority::new();
    authority.certify("before", &["a.test"]);
    authority.certify("after", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("before")));
    let config = authority.client();
    let mut open = Client::connect_tls(gateway.addr(), &config, "a.test");
    open.get("/", "").expect(200);
    gateway.reload(&everything_to(&backend, &authority.server("after")), "server: new certificates");
    assert_eq!(shown(&gateway, &authority.client(), "a.test"), "after");
    open.get("/", "").expect(200);
    assert_eq!((common_name(&open), backend.count()), ("before".to_owned(), 2));
}

/// The same names in `gateway.toml`, other files behind them: what a renewal does.
#[test]
fn a_hangup_reads_renewed_files() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let toml = everything_to(&backend, &authority.server("a"));
    let gateway = Gateway::start(&toml);
    authority.certify_with("a", &["a.test"], |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "renewed");
    });
    gateway.reload(&toml, "server: new certificates");
    assert_eq!(shown(&gateway, &authority.client(), "a.test"), "renewed");
}

#[test]
fn a_reload_with_a_faulty_certificate_changes_nothing() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let toml = everything_to(&backend, &authority.server("a"));
    let gateway = Gateway::start(&toml);
    authority.certify("other", &["a.test"]);
    std::fs::copy(authority.path("other.key"), authority.path("a.key")).expect("it can be copied");
    gateway.reload(&toml, "not reloaded");
    gateway.wait_for_log("does not belong to the certificate");
    assert_eq!(shown(&gateway, &authority.client(), "a.test"), "a");
}

#[test]
fn sessions_outlive_a_reload_that_changes_no_certificate() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let toml = everything_to(&backend, &authority.server("a"));
    let gateway = Gateway::start(&toml);
    let config = authority.client();
    Client::connect_tls(gateway.addr(), &config, "a.test").get("/", "").expect(200);
    gateway.reload(&toml, "reloaded: no changes");
    let again = Client::connect_tls(gateway.addr(), &config, "a.test");
    assert_eq!(again.tls().handshake_kind(), Some(HandshakeKind::Resumed));
}

/// Whether a listener speaks TLS is settled: it goes on with the certificates that it has.
#[test]
fn listeners_keep_tls_until_a_restart() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    gateway.reload(&everything_to(&backend, ""), "`server.listen` has changed");
    gateway.wait_for_log("reloaded: nothing changes before a restart");
    assert_eq!(shown(&gateway, &authority.client(), "a.test"), "a");
}

#[test]
fn watching_notices_renewed_files() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let toml = everything_to(&backend, &authority.server("a"));
    let gateway = Gateway::start_with(&toml, &["--watch"]);
    for round in ["first", "second"] {
        authority.certify_with("a", &["a.test"], |params| {
            params.distinguished_name.push(rcgen::DnType::CommonName, round);
        });
        eventually("the renewed certificate to be shown", || {
            (shown(&gateway, &authority.client(), "a.test") == round).then_some(())
        });
    }
    let faults = gateway.stderr_lines().iter().filter(|line| line.contains("not reloaded")).count();
    assert!(faults <= 2, "once at most between certificate and key:\n{}", gateway.stderr());
    gateway.signal(Signal::HUP);
}
