//! How challenges are answered: before everything else, and nothing but them.

use rustls::ALL_VERSIONS;

use crate::harness::acme_server::{AcmeServer, look_by_http};
use crate::harness::any_certificate::shown;
use crate::harness::{Authority, Backend, Client, Gateway, Http2, eventually, get_with, send};

use super::{Acme, tls, wait_until_issued};

const PATH: &str = "/.well-known/acme-challenge/";
/// What the authority of the tests calls its first challenge.
const TOKEN: &str = "token-of-order-0000-and-name-0000";

/// An order whose challenge is looked at until the test ends it.
fn held(server: &AcmeServer) -> Backend {
    let gate = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        crate::harness::Next::Close
    });
    let address = gate.addr();
    server.validate(move |_, _, _| {
        crate::harness::get(address, "/");
        Ok(())
    });
    gate
}

#[test]
fn a_known_token_is_answered_before_routes_limits_and_bans() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let gate = held(&server);
    let acme = Acme {
        acme: "challenge = \"http-01\"",
        rest: "[limits.none]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1/day\"\n",
        ..Acme::of(&server, folder.path(), &["a.example"])
    };
    let toml = acme.toml(&backend).replace(
        "upstream = \"api\"\n",
        "upstream = \"api\"\nlimits = [\"none\"]\nredirect = \"https\"\ndeny = [\"127.0.0.0/8\"]\n",
    );
    let gateway = Gateway::start(&toml);
    gate.wait_for(1);
    let answer = get_with(gateway.addr(), &format!("{PATH}{TOKEN}"), "").expect(200);
    assert!(answer.text().starts_with(&format!("{TOKEN}.")), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let head = send(
        gateway.addr(),
        format!("HEAD {PATH}{TOKEN} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n"),
    );
    assert_eq!((head.status, head.text().len()), (200, 0));
    Http2::connect(gateway.addr()).get(&format!("{PATH}{TOKEN}")).expect(200);
    // Over TLS, too: an authority follows redirects.
    let config = Authority::new().client();
    assert!(Client::try_connect_tls(tls(&gateway), &config, "a.example").is_err(), "it is self-signed");
    for path in
        [PATH, "/.well-known/acme-challenge", &format!("{PATH}{TOKEN}x"), &format!("{PATH}{TOKEN}/"), "/"]
    {
        assert_ne!(get_with(gateway.addr(), path, "").status, 200, "{path}");
    }
    let posted =
        format!("POST {PATH}{TOKEN} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    assert_ne!(send(gateway.addr(), posted).status, 200);
    let line = &gateway.access_log(1)[0];
    assert_eq!((line["status"].as_u64(), line["route"].is_null()), (Some(200), true));
    gate.open_gate();
    wait_until_issued(&gateway, "a.example");
    eventually("the token to be forgotten", || {
        (get_with(gateway.addr(), &format!("{PATH}{TOKEN}"), "").status != 200).then_some(())
    });
    assert_eq!(backend.count(), 0);
}

#[test]
fn the_authority_finds_the_tokens_of_all_names() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let names = ["a.example", "b.example", "c.example"];
    let acme = Acme { acme: "challenge = \"http-01\"", ..Acme::of(&server, folder.path(), &names) };
    // The first order may come before the test knows the address.
    let address = crate::harness::free_address();
    server.validate(move |kind, name, token| match kind {
        "http-01" => look_by_http(address, name, token),
        other => Err(other.to_owned()),
    });
    let toml = acme.toml(&backend).replacen("127.0.0.1:0", &address.to_string(), 1);
    let gateway = Gateway::start(&toml);
    assert_eq!(wait_until_issued(&gateway, "c.example").names, names);
}

/// RFC 8737: its own protocol, one name, a certificate with the digest, and then the end.
#[test]
fn a_handshake_of_a_challenge_shows_its_certificate_and_ends() {
    let (server, folder, backend) = (AcmeServer::start(), tempfile::tempdir().unwrap(), Backend::ok());
    let gate = held(&server);
    let authority = Authority::new();
    authority.certify("client", &["client.test"]);
    let ca = format!("client_ca = \"{}\"\nclient_auth = \"required\"", authority.path("ca.pem").display());
    let acme = Acme { tls: &ca, ..Acme::of(&server, folder.path(), &["a.example", "b.example"]) };
    let gateway = Gateway::start(&acme.toml(&backend));
    gate.wait_for(1);
    for name in ["a.example", "A.EXAMPLE"] {
        let shown =
            shown(tls(&gateway), name, &["acme-tls/1"]).expect("a handshake without a client's certificate");
        assert_eq!(
            (shown.names.clone(), shown.protocol.as_deref()),
            (vec!["a.example".to_owned()], Some("acme-tls/1"))
        );
        assert_eq!(shown.rest.as_deref(), Some(&[][..]), "nothing is said on it");
    }
    // Other names, and other protocols beside it, are none of a challenge.
    assert!(shown(tls(&gateway), "other.example", &["acme-tls/1"]).is_err());
    assert!(shown(tls(&gateway), "a.example", &[]).is_ok_and(|shown| shown.protocol.is_none()));
    let both = shown(tls(&gateway), "a.example", &["acme-tls/1", "http/1.1"]).expect("a handshake");
    assert_eq!(both.protocol.as_deref(), Some("http/1.1"));
    // Clients go on as before: with a certificate.
    let config = authority.client_of(Some("client"), ALL_VERSIONS);
    assert!(Client::try_connect_tls(tls(&gateway), &config, "a.example").is_err(), "it is self-signed");
    gate.open_gate();
    eventually("the authority's certificate", || {
        shown(tls(&gateway), "a.example", &[]).ok().filter(|shown| shown.issuer == "authority of tests")
    });
    assert!(shown(tls(&gateway), "a.example", &["acme-tls/1"]).is_err(), "nothing is to be proven any more");
}
