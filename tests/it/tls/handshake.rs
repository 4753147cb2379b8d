//! TLS before the first request: certificates, versions, time-outs and refusals.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};

use crate::harness::shown::shown;
use crate::harness::{Authority, Backend, Client, Gateway, eventually, everything_to, tools};

/// A client that checks no name, so that it sees what strangers are shown.
fn careless() -> Arc<ClientConfig> {
    Arc::new(
        ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Careless))
            .with_no_client_auth(),
    )
}

#[derive(Debug)]
struct Careless;

impl rustls::client::danger::ServerCertVerifier for Careless {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_the_client_asks_for() {
    let authority = Authority::new();
    authority.certify("first", &["first.test"]);
    authority.certify("any", &["*.example.test"]);
    authority.certify("exact", &["api.example.test", "API2.Example.Test"]);
    let certificates: String = ["first", "any", "exact"].map(|file| authority.server(file)).concat();
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &certificates));
    let client = authority.client();
    for (name, certificate) in [
        ("first.test", "first"),
        ("www.example.test", "any"),
        ("API.example.test", "exact"),
        ("api2.example.test", "exact"),
    ] {
        assert_eq!(shown(&gateway, &client, name), certificate, "{name}");
    }
    let stranger = careless();
    for name in ["example.test", "a.b.example.test", "elsewhere.test", "127.0.0.1"] {
        assert_eq!(shown(&gateway, &stranger, name), "first", "{name}");
    }
}

/// Two kinds of key for one name: each client gets what it can check.
#[test]
fn a_name_may_have_certificates_with_different_kinds_of_keys() {
    let authority = Authority::new();
    authority.certify_for("edwards", &["a.test"], &rcgen::PKCS_ED25519);
    authority.certify("ecdsa", &["a.test"]);
    let certificates = authority.server("edwards") + &authority.server("ecdsa");
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &certificates));
    assert_eq!(shown(&gateway, &authority.client(), "a.test"), "edwards");
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let ecdsa: &'static [_] =
        vec![(rustls::SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki_ecdsa()][..].to_vec().leak()[..])]
            .leak();
    provider.signature_verification_algorithms.mapping = ecdsa;
    let old = authority.client_by(provider);
    assert_eq!(shown(&gateway, &old, "a.test"), "ecdsa");
}

#[test]
fn a_client_that_knows_only_rsa_is_shown_an_rsa_certificate_whatever_name_it_asks_for() {
    let authority = Authority::new();
    authority.certify("ecdsa", &["a.test", "127.0.0.1"]);
    authority.certify("exact", &["www.example.test"]);
    authority.certify_for("rsa", &["a.test", "*.example.test"], &rcgen::PKCS_RSA_SHA256);
    let certificates: String = ["ecdsa", "exact", "rsa"].map(|file| authority.server(file)).concat();
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &certificates));
    let all = authority.client();
    for (name, everybody, old) in [
        // An IP address is not sent as a name (RFC 6066 §3).
        ("127.0.0.1", "ecdsa", "rsa"),
        ("a.test", "ecdsa", "rsa"),
        ("www.example.test", "exact", "rsa"),
    ] {
        assert_eq!(shown(&gateway, &all, name), everybody, "{name}");
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(shown_by_openssl(&gateway, name, version), old, "{name} {version}");
        }
    }
}

/// The common name of the certificate that OpenSSL's client is shown when it offers RSA signatures only.
fn shown_by_openssl(gateway: &Gateway, name: &str, version: &str) -> String {
    let address = gateway.addr().to_string();
    let mut command = tools::needed("openssl");
    command.args(["s_client", "-connect", &address, version, "-sigalgs", "rsa_pss_rsae_sha256:RSA+SHA256"]);
    if name.parse::<std::net::IpAddr>().is_ok() {
        command.arg("-noservername");
    } else {
        command.args(["-servername", name]);
    }
    let output = command.stdin(Stdio::null()).output().expect("openssl");
    let said = String::from_utf8_lossy(&output.stdout);
    let subject = said.lines().find_map(|line| line.strip_prefix("subject=CN = "));
    subject
        .unwrap_or_else(|| panic!("no certificate:\n{said}\n{}", String::from_utf8_lossy(&output.stderr)))
        .to_owned()
}

fn webpki_ecdsa() -> &'static dyn rustls::pki_types::SignatureVerificationAlgorithm {
    let all = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let found =
        all.mapping.iter().find(|(scheme, _)| *scheme == rustls::SignatureScheme::ECDSA_NISTP256_SHA256);
    found.expect("it is known").1[0]
}

#[test]
fn both_versions_are_spoken() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    for (versions, spoken) in [
        (&[&rustls::version::TLS12], ProtocolVersion::TLSv1_2),
        (&[&rustls::version::TLS13], ProtocolVersion::TLSv1_3),
    ] {
        let mut client = Client::connect_tls(gateway.addr(), &authority.client_of(None, versions), "a.test");
        assert_eq!(client.tls().protocol_version(), Some(spoken));
        assert_eq!(client.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
        client.get("/", "").expect(200);
        assert_eq!(backend.latest().header("x-forwarded-proto").as_deref(), Some("https"));
    }
}

/// The gateway's order decides, not the client's.
#[test]
fn alpn_offers_http_2_before_http_1_1_and_nothing_else() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let connect = |offered: &[&str]| {
        let mut config = (*authority.client()).clone();
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        Client::try_connect_tls(gateway.addr(), &Arc::new(config), "a.test")
    };
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let mut client = connect(offered).unwrap();
        assert_eq!(client.tls().alpn_protocol(), chosen.map(str::as_bytes));
        if chosen != Some("h2") {
            client.get("/", "").expect(200);
        }
    }
    assert!(connect(&["spdy/3"]).is_err());
}

/// On any worker: what resumes a session lies with the client.
#[test]
fn a_client_that_comes_again_resumes_its_session() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let config = authority.client_of(None, versions);
        let kinds: Vec<_> = (0..8)
            .map(|_| {
                let mut client = Client::connect_tls(gateway.addr(), &config, "a.test");
                client.get("/", "").expect(200);
                client.tls().handshake_kind()
            })
            .collect();
        let resumed = kinds.iter().filter(|kind| **kind == Some(HandshakeKind::Resumed)).count();
        assert_eq!(resumed, 7, "all but the first: {kinds:?}");
    }
}

#[test]
fn a_handshake_that_does_not_end_is_cut() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let toml = everything_to(&backend, "[server]\nheader_timeout = \"300ms\"") + &authority.server("a");
    let gateway = Gateway::start(&toml);
    let mut silent = Client::connect(gateway.addr());
    let mut half = Client::connect(gateway.addr());
    // The beginning of a ClientHello.
    half.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert!(silent.closes());
    assert!(half.closes());
    // After the handshake, the same time is allowed for the head.
    let mut mute = Client::connect_tls(gateway.addr(), &authority.client(), "a.test");
    assert!(mute.closes());
    Client::connect_tls(gateway.addr(), &authority.client(), "a.test").get("/", "").expect(200);
    assert_eq!(backend.count(), 1);
}

#[test]
fn plain_bytes_on_a_tls_port_are_answered_by_an_alert_and_a_close() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    for bytes in
        ["GET / HTTP/1.1\r\nhost: test\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\0\0\0\0\0\0\0\0"]
    {
        let mut stream = std::net::TcpStream::connect(gateway.addr()).expect("it listens");
        stream.set_read_timeout(Some(crate::harness::TIMEOUT)).expect("an option");
        stream.write_all(bytes.as_bytes()).expect("it is taken");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("a close, no reset");
        assert!(answer.starts_with(b"\x15\x03"), "a TLS alert, not {answer:?}");
    }
    assert_eq!(backend.count(), 0);
    Client::connect_tls(gateway.addr(), &authority.client(), "a.test").get("/", "").expect(200);
}

/// Connections that never finish their handshake do not keep others out.
#[test]
fn unfinished_handshakes_make_room() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let rest = "[server]\nworkers = 1\nmax_connections = 4\n".to_owned() + &authority.server("a");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut idlers: Vec<_> = (0..4).map(|_| Client::connect(gateway.addr())).collect();
    assert!(idlers.iter_mut().all(|idler| idler.silent_for(Duration::from_millis(20))));
    for _ in 0..3 {
        let mut client = Client::connect_tls(gateway.addr(), &authority.client(), "a.test");
        client.get("/", "").expect(200);
    }
    assert!(idlers[0].closes(), "the first to come is the first to go");
}

#[test]
fn one_process_listens_with_tls_and_without() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let listen = "[server]\nlisten = [\"127.0.0.1:0\", { address = \"127.0.0.1:0\", tls = false }]\n";
    let gateway = Gateway::start(&everything_to(&backend, &(listen.to_owned() + &authority.server("a"))));
    let lines = gateway.stderr_lines();
    let addresses = lines.iter().find_map(|line| line.split_once("listening on ")).expect("the listeners").1;
    let (secure, plain) = addresses.split_once(", ").expect("two listeners");
    assert!(secure.ends_with(" (TLS)") && !plain.contains("TLS"), "{lines:?}");
    Client::connect_tls(gateway.addr(), &authority.client(), "a.test").get("/", "").expect(200);
    let plain = plain.trim().parse().expect("an address");
    Client::connect(plain).get("/", "").expect(200);
    let schemes: Vec<_> =
        backend.requests().iter().map(|request| request.header("x-forwarded-proto")).collect();
    assert_eq!(schemes, [Some("https".to_owned()), Some("http".to_owned())]);
}

#[test]
fn draining_does_not_wait_for_handshakes() {
    let authority = Authority::new();
    authority.certify("a", &["a.test"]);
    let backend = Backend::ok();
    let mut gateway = Gateway::start(&everything_to(&backend, &authority.server("a")));
    let mut idler = Client::connect(gateway.addr());
    assert!(idler.silent_for(Duration::from_millis(50)));
    gateway.signal(rustix::process::Signal::TERM);
    assert!(idler.closes());
    assert!(gateway.wait_for_exit().success());
    eventually("the backend to be left alone", || (backend.count() == 0).then_some(()));
}
