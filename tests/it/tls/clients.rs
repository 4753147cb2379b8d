//! `client_ca` and `client_auth`: clients that must send a certificate.

use rustls::version::{TLS12, TLS13};

use crate::harness::{Authority, Backend, Client, Fault, Gateway, everything_to};

/// A gateway that asks for certificates by `authority`.
fn asking(authority: &Authority, backend: &Backend, demand: &str) -> Gateway {
    let ca = format!("client_ca = \"{}\"\n{demand}\n", authority.path("ca.pem").display());
    Gateway::start(&everything_to(backend, &(authority.server("a") + &ca)))
}

/// What a client gets that shows this certificate.
fn outcome(gateway: &Gateway, authority: &Authority, own: Option<&str>, old: bool) -> Result<u16, String> {
    let versions = if old { &[&TLS12] } else { &[&TLS13] };
    let config = authority.client_of(own, versions);
    let mut client =
        Client::try_connect_tls(gateway.addr(), &config, "a.test").map_err(|error| error.to_string())?;
    client.write("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    match client.try_read("GET") {
        Ok(response) => Ok(response.status),
        Err(Fault::Cut(why)) => Err(why),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn only_a_client_with_a_certificate_by_the_authority_is_served() {
    let authority = Authority::new();
    let strangers = Authority::new();
    authority.certify("a", &["a.test"]);
    authority.certify("friend", &["friend.test"]);
    let backend = Backend::ok();
    for old in [true, false] {
        let gateway = asking(&authority, &backend, "");
        assert_eq!(outcome(&gateway, &authority, Some("friend"), old), Ok(200));
        let before = backend.count();
        let refused = outcome(&gateway, &authority, None, old).expect_err("none is shown");
        assert!(refused.contains("CertificateRequired") || refused.contains("HandshakeFailure"), "{refused}");
        strangers.certify("stranger", &["friend.test"]);
        for file in ["stranger.pem", "stranger.key"] {
            std::fs::copy(strangers.path(file), authority.path(file)).expect("it can be copied");
        }
        let refused = outcome(&gateway, &authority, Some("stranger"), old).expect_err("not by the authority");
        assert!(refused.contains("UnknownCA") || refused.contains("DecryptError"), "{refused}");
        assert_eq!(backend.count(), before);
    }
}

/// One counter per subject, whatever its address; a client without a certificate is counted by address.
#[test]
fn a_limit_may_count_by_subject() {
    let authority = Authority::new();
    for file in ["a", "one", "two"] {
        authority.certify(file, &["a.test"]);
    }
    let backend = Backend::ok();
    let ca = format!("client_ca = \"{}\"\nclient_auth = \"optional\"\n", authority.path("ca.pem").display());
    let limit = "[limits.subject]\nalgorithm = \"fixed-window\"\nkey = \"tls:subject\"\nrate = \"2/day\"\n";
    let rest = format!("limits = [\"subject\"]\n{limit}{}{ca}", authority.server("a"));
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    for own in [Some("one"), Some("two"), None] {
        let statuses: Vec<_> =
            (0..3).map(|turn| outcome(&gateway, &authority, own, turn == 1).expect("an answer")).collect();
        assert_eq!(statuses, [200, 200, 429], "{own:?}");
    }
    // A resumed session knows the subject, too.
    let config = authority.client_of(Some("one"), &[&TLS13]);
    for _ in 0..3 {
        let mut client = Client::connect_tls(gateway.addr(), &config, "a.test");
        client.get("/", "").expect(429);
    }
}

#[test]
fn an_optional_certificate_may_be_missing_but_not_strange() {
    let authority = Authority::new();
    let strangers = Authority::new();
    authority.certify("a", &["a.test"]);
    strangers.certify("stranger", &["friend.test"]);
    for file in ["stranger.pem", "stranger.key"] {
        std::fs::copy(strangers.path(file), authority.path(file)).expect("it can be copied");
    }
    let backend = Backend::ok();
    let gateway = asking(&authority, &backend, "client_auth = \"optional\"");
    assert_eq!(outcome(&gateway, &authority, None, false), Ok(200));
    assert!(outcome(&gateway, &authority, Some("stranger"), false).is_err());
}
