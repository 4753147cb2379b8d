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

/// What the backend gets of a request with these fields, by a client that shows this certificate.
fn seen(
    gateway: &Gateway,
    authority: &Authority,
    own: Option<&str>,
    backend: &Backend,
    fields: &str,
) -> Vec<String> {
    let config = authority.client_of(own, &[&TLS13]);
    let mut client = Client::connect_tls(gateway.addr(), &config, "a.test");
    client.get("/", fields).expect(200);
    let latest = backend.latest();
    let names = ["client-cert", "client-cert-chain", "client_cert", "Client-Cert"];
    names.into_iter().filter_map(|name| latest.header(name).map(|value| format!("{name}: {value}"))).collect()
}

/// Each field of a certificate counts by itself: a renewed certificate keeps its name, and has another fingerprint.
#[test]
fn a_limit_may_count_by_a_field_of_the_certificate() {
    for (key, statuses) in [
        ("client-cert:cn", [200, 429, 429, 200]),
        ("client-cert:san", [200, 429, 200, 200]),
        ("client-cert:fingerprint", [200, 200, 200, 200]),
    ] {
        let (authority, backend) = (Authority::new(), Backend::ok());
        authority.certify("a", &["a.test"]);
        let uri = |params: &mut rcgen::CertificateParams, name: &str, of: &str| {
            let uri = rcgen::string::Ia5String::try_from(name).expect("a URI");
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
            params.distinguished_name.push(rcgen::DnType::CommonName, of);
        };
        for (file, name, of) in [
            ("one", "spiffe://a.test/one", "shop"),
            ("renewed", "spiffe://a.test/one", "shop"),
            ("two", "spiffe://a.test/two", "shop"),
            ("other", "spiffe://a.test/three", "other"),
        ] {
            authority.certify_with(file, &["a.test"], |params| uri(params, name, of));
        }
        let ca = format!("client_ca = \"{}\"\n", authority.path("ca.pem").display());
        let limit = format!(
            "[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"{key}\"\nmissing = \"deny\"\nrate = \"1/day\"\n"
        );
        let rest = format!("limits = [\"few\"]\n{limit}{}{ca}", authority.server("a"));
        let gateway = Gateway::start(&everything_to(&backend, &rest));
        let got = ["one", "renewed", "two", "other"]
            .map(|own| outcome(&gateway, &authority, Some(own), false).expect("an answer"));
        assert_eq!(got, statuses, "{key}");
    }
}

/// RFC 9440: what the client claims itself is dropped, in any spelling.
#[test]
fn the_backend_gets_the_certificate_and_no_claim_of_the_client() {
    let (authority, backend) = (Authority::new(), Backend::ok());
    for file in ["a", "one"] {
        authority.certify(file, &["a.test"]);
    }
    let ca = format!("client_ca = \"{}\"\nclient_auth = \"optional\"\n", authority.path("ca.pem").display());
    let pem = std::fs::read_to_string(authority.path("one.pem")).expect("it can be read");
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let forged = "client-cert: :Zm9yZ2Vk:\r\nClient-Cert-Chain: :Zm9yZ2Vk:\r\nclient_cert: :Zm9yZ2Vk:\r\n\
        CLIENT_CERT_CHAIN: :Zm9yZ2Vk:\r\n";
    for forwards in [true, false] {
        let rest = format!("forward_client_cert = {forwards}\n{}{ca}", authority.server("a"));
        let gateway = Gateway::start(&everything_to(&backend, &rest));
        let own = seen(&gateway, &authority, Some("one"), &backend, forged);
        let expected = [format!("client-cert: :{base64}:"), format!("Client-Cert: :{base64}:")];
        assert_eq!(own, if forwards { expected.to_vec() } else { Vec::new() });
        assert_eq!(seen(&gateway, &authority, None, &backend, forged), [""; 0], "no certificate, no field");
    }
    // A trusted proxy that has ended TLS is believed, where the gateway tells of no certificate itself.
    let trusted = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    for (line, passes) in [("", true), ("forward_client_cert = true", false)] {
        let gateway = Gateway::start(&(trusted.to_owned() + &everything_to(&backend, line)));
        let mut client = Client::connect(gateway.addr());
        client.get("/", "client-cert: :b2Y=:\r\n").expect(200);
        assert_eq!(backend.latest().header("client-cert").is_some(), passes, "{line}");
    }
}
