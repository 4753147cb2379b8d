//! Forged tokens: the attacks of RFC 8725, and every byte of a good token changed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::{KeySetServer, SigningKey, ask, claims, encoded, gateway, sso};
use crate::harness::{Backend, Client, Gateway};

/// A token with this header and no signature of use.
fn unsigned(header: &Value, signature: &str) -> String {
    format!("{}.{}.{signature}", encoded(header.to_string()), encoded(claims("eve").to_string()))
}

/// An issuer with one key of RSA and one of P-256.
fn issuer() -> (SigningKey, SigningKey, KeySetServer) {
    let (rsa, ec) = (SigningKey::new("rsa", Algorithm::RS256), SigningKey::new("ec", Algorithm::ES256));
    let issuer = KeySetServer::start(&[&rsa, &ec]);
    (rsa, ec, issuer)
}

#[track_caller]
fn assert_refused(gateway: &Gateway, backend: &Backend, token: &str, what: &str) {
    assert_refused_with(&[401], gateway, backend, token, what);
}

#[track_caller]
fn assert_refused_with(statuses: &[u16], gateway: &Gateway, backend: &Backend, token: &str, what: &str) {
    let before = backend.count();
    let status = ask(gateway, token).status;
    assert!(statuses.contains(&status), "{what}: {status}");
    assert_eq!(backend.count(), before, "{what}");
}

#[test]
fn none_is_no_algorithm() {
    let (_, _, issuer) = issuer();
    let backend = Backend::ok();
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    for name in ["none", "None", "NONE", "nOnE", "", "null"] {
        for signature in ["", "AA"] {
            assert_refused(
                &gateway,
                &backend,
                &unsigned(&json!({"alg": name, "kid": "rsa"}), signature),
                name,
            );
        }
    }
    assert_refused(&gateway, &backend, &unsigned(&json!({"kid": "rsa"}), "AA"), "no alg");
    assert_refused(&gateway, &backend, &unsigned(&json!({"alg": null, "kid": "rsa"}), "AA"), "null");
}

#[test]
fn a_public_key_is_no_secret() {
    let (rsa, ec, issuer) = issuer();
    let backend = Backend::ok();
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    for key in [&rsa, &ec] {
        let public = key.public();
        let parts = ["n", "x", "y"].map(|name| public[name].as_str().unwrap_or_default().to_owned());
        let texts = [public.to_string(), parts.concat(), super::key_set(&[key])];
        for secret in texts.iter().chain(&parts) {
            for bytes in [secret.as_bytes().to_vec(), URL_SAFE_NO_PAD.decode(secret).unwrap_or_default()] {
                let header = jsonwebtoken::Header { kid: Some(key.id.to_owned()), ..Default::default() };
                let forged = jsonwebtoken::encode(&header, &claims("eve"), &EncodingKey::from_secret(&bytes));
                assert_refused(&gateway, &backend, &forged.expect("it is signed"), "HS256 with a public key");
            }
        }
    }
}

#[test]
fn keys_and_places_of_keys_in_the_token_are_never_used() {
    let (_, _, issuer) = issuer();
    let backend = Backend::ok();
    let evil = SigningKey::new("evil", Algorithm::ES256);
    let evil_server = KeySetServer::start(&[&evil]);
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    for kid in ["ec", "evil", "../../../../dev/null", "' OR 1=1 --", "\u{0}", ""] {
        let mut header = json!({"alg": "ES256", "kid": kid, "jwk": evil.public(), "jku": evil_server.url(), "x5u": evil_server.url()});
        header["jwk"]["kid"] = kid.into();
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims("eve").to_string()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &evil.key, Algorithm::ES256)
            .expect("it is signed");
        // 503: of a `kid` that is unknown, the issuer is not asked again so soon.
        let statuses: &[u16] = if kid == "ec" { &[401] } else { &[401, 503] };
        assert_refused_with(statuses, &gateway, &backend, &format!("{message}.{signature}"), kid);
    }
    assert_eq!(evil_server.backend.count(), 0, "no URL of a token is fetched");
}

#[test]
fn a_token_with_critical_extensions_or_of_another_kind_is_refused() {
    let (_, ec, issuer) = issuer();
    let backend = Backend::ok();
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let sign = |header: &str, claims: &str| {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &ec.key, Algorithm::ES256).expect("it is signed");
        format!("{message}.{signature}")
    };
    let good = claims("ann").to_string();
    ask(&gateway, &sign(r#"{"alg":"ES256","kid":"ec"}"#, &good)).expect(200);
    ask(&gateway, &sign(r#"{"alg":"ES256","kid":"ec","typ":"at+jwt"}"#, &good)).expect(200);
    ask(&gateway, &sign(r#"{"alg":"ES256","kid":"ec","typ":"application/JWT"}"#, &good)).expect(200);
    for header in [
        r#"{"alg":"ES256","kid":"ec","crit":["exp"]}"#,
        r#"{"alg":"ES256","kid":"ec","crit":[]}"#,
        r#"{"alg":"ES256","kid":"ec","crit":null}"#,
        r#"{"alg":"ES256","kid":"ec","b64":false,"crit":["b64"]}"#,
        r#"{"alg":"ES256","kid":"ec","typ":"logout+jwt"}"#,
        r#"{"alg":"ES256","alg":"ES256","kid":"ec"}"#,
        r#"{"alg":"none","alg":"ES256","kid":"ec"}"#,
        r#"{"alg":"ES256","kid":"ec","kid":"ec"}"#,
        r#"{"alg":"ES256","kid":7}"#,
        r#"{"alg":["ES256"],"kid":"ec"}"#,
        r#"[{"alg":"ES256","kid":"ec"}]"#,
        r#"{"alg":"ES256","kid":"ec"} x"#,
    ] {
        assert_refused(&gateway, &backend, &sign(header, &good), header);
    }
    let twice = format!(r#"{{"sub":"root",{}"#, good.strip_prefix('{').expect("an object"));
    assert_refused(&gateway, &backend, &sign(r#"{"alg":"ES256","kid":"ec"}"#, &twice), "a claim twice");
    let escaped = format!(r#"{{"\u0073ub":"root",{}"#, good.strip_prefix('{').expect("an object"));
    assert_refused(
        &gateway,
        &backend,
        &sign(r#"{"alg":"ES256","kid":"ec"}"#, &escaped),
        "a claim twice, escaped",
    );
    assert_refused(&gateway, &backend, &sign(r#"{"alg":"ES256","kid":"ec"}"#, "[]"), "no object");
}

#[test]
fn no_byte_of_a_token_can_change() {
    let (rsa, ec, issuer) = issuer();
    let backend = Backend::ok();
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let mut client = Client::connect(gateway.addr());
    let mut ask = |token: &str| client.get("/", &format!("authorization: Bearer {token}\r\n")).status;
    for key in [&rsa, &ec] {
        let token = key.sign(&claims("ann"));
        let header = token.find('.').expect("a dot");
        assert_eq!(ask(&token), 200);
        for at in 0..token.len() {
            assert_eq!(ask(&token[..at]), 401, "cut at {at}");
            let mut changed = token.clone().into_bytes();
            for byte in [b'A', b'.', b'=', b'_'] {
                let was = std::mem::replace(&mut changed[at], byte);
                if was != byte {
                    let status = ask(std::str::from_utf8(&changed).expect("ASCII"));
                    // The header may name another key, of which the issuer is not asked again so soon.
                    let is_unknown = status == 503 && at < header;
                    assert!(status == 401 || is_unknown, "{} at {at}: {status}", char::from(byte));
                }
                changed[at] = was;
            }
        }
        for longer in [
            format!("{token}="),
            format!("{token}A"),
            format!("{token}."),
            format!("{token}.AA"),
            format!("{token}\t{token}"),
        ] {
            assert_eq!(ask(&longer), 401, "{longer}");
        }
    }
    assert_eq!(ask(&ec.sign(&json!({"sub": "x".repeat(9000)}))), 401, "too long");
}
