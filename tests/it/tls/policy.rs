//! `min_version`, `ciphers` and `crl` of `[[server.tls]]`.

use std::process::Command;

use rcgen::SerialNumber;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::harness::{Authority, Backend, Client, Gateway, binary, everything_to};

/// Whether a client that shows this certificate, and speaks these versions alone, is served.
fn is_served(
    gateway: &Gateway,
    authority: &Authority,
    own: Option<&str>,
    version: &'static SupportedProtocolVersion,
) -> bool {
    let config = authority.client_of(own, &[version]);
    let Ok(mut client) = Client::try_connect_tls(gateway.addr(), &config, "a.test") else { return false };
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    client.try_read("GET").is_ok_and(|response| response.status == 200)
}

#[test]
fn versions_and_suites_that_are_not_allowed_are_refused() {
    let (authority, backend) = (Authority::new(), Backend::ok());
    authority.certify("a", &["a.test"]);
    for (lines, old, new) in [
        ("", true, true),
        ("min_version = \"1.2\"", true, true),
        ("min_version = \"1.3\"", false, true),
        ("ciphers = [\"TLS_AES_128_GCM_SHA256\"]", false, true),
        ("ciphers = [\"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"]", true, false),
        (
            "ciphers = [\"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384\", \"TLS_CHACHA20_POLY1305_SHA256\"]",
            true,
            true,
        ),
        // The certificate has a key of ECDSA.
        ("ciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]", false, false),
    ] {
        let gateway =
            Gateway::start(&everything_to(&backend, &format!("{}{lines}\n", authority.server("a"))));
        let served = [&TLS12, &TLS13].map(|version| is_served(&gateway, &authority, None, version));
        assert_eq!(served, [old, new], "{lines}");
    }
}

#[test]
fn a_withdrawn_certificate_is_refused_also_after_a_reload() {
    let (authority, backend) = (Authority::new(), Backend::ok());
    authority.certify("a", &["a.test"]);
    for (file, serial) in [("one", 11), ("two", 12)] {
        authority.certify_with(file, &["a.test"], |params| {
            params.serial_number = Some(SerialNumber::from(serial));
        });
    }
    authority.revoke("list.pem", &[11, 99], 2050);
    let client_ca = authority.path("ca.pem").display().to_string();
    let crl = authority.path("list.pem").display().to_string();
    let lines = format!("client_ca = \"{client_ca}\"\ncrl = \"{crl}\"\n");
    let toml = everything_to(&backend, &(authority.server("a") + &lines));
    let gateway = Gateway::start(&toml);
    let served = || ["one", "two"].map(|own| is_served(&gateway, &authority, Some(own), &TLS13));
    assert_eq!(served(), [false, true]);
    assert!(!is_served(&gateway, &authority, Some("one"), &TLS12));
    authority.revoke("list.pem", &[12], 2050);
    gateway.reload(&toml, "reloaded");
    assert_eq!(served(), [true, false]);
    // A list that has ended is no list: the last one stays in force.
    authority.revoke("list.pem", &[], 2026);
    gateway.reload(&toml, "the list of withdrawn certificates ended on 2026-01-01");
    assert_eq!(served(), [true, false]);
}

#[test]
fn policies_with_faults_are_told_with_their_lines() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    authority.revoke("list.pem", &[1], 2050);
    authority.revoke("ended.pem", &[1], 2026);
    let check = |lines: &str| {
        let toml = format!(
            "{}{lines}\n[[routes]]\npath = \"/*\"\nrespond = {{ status = 204 }}\n",
            authority.server("a"),
        );
        std::fs::write(authority.path("gateway.toml"), toml).expect("it can be written");
        let mut command = Command::new(binary());
        let output =
            command.arg("check").current_dir(authority.path("")).output().expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let second = authority.server("a");
    for (lines, words) in [
        ("crl = \"list.pem\"", "`crl` has no effect: clients are asked for no certificate"),
        ("client_ca = \"ca.pem\"\ncrl = \"ended.pem\"", "ended on 2026-01-01"),
        ("client_ca = \"ca.pem\"\ncrl = \"ca.pem\"", "holds no list of withdrawn certificates"),
        ("client_ca = \"ca.pem\"\ncrl = \"none.pem\"", "cannot read `none.pem`"),
        ("min_version = \"1.1\"", "`1.1`"),
        ("ciphers = []", "is an empty list"),
        ("ciphers = [\"TLS_RSA_WITH_AES_128_CBC_SHA\"]", "is not a cipher suite that is spoken"),
        ("ciphers = [\"ECDHE-RSA-AES128-GCM-SHA256\"]", "the suites are `TLS_AES_"),
        ("ciphers = [\"TLS_AES_128_GCM_SHA256\", \"TLS_AES_128_GCM_SHA256\"]", "names this suite twice"),
        (
            "min_version = \"1.3\"\nciphers = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]",
            "this suite is one of TLS 1.2",
        ),
        (&format!("min_version = \"1.3\"\n{second}"), "has another policy of TLS than the first"),
    ] {
        let (status, told) = check(lines);
        assert!(status == Some(2) && told.contains(words), "{lines}\n{told}");
    }
    let (status, told) = check("client_ca = \"ca.pem\"\ncrl = \"list.pem\"\nmin_version = \"1.3\"");
    assert_eq!(status, Some(0), "{told}");
}
