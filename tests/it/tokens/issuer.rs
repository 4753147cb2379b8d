//! Good tokens of an issuer, by each algorithm.

use jsonwebtoken::{Algorithm, Header};
use serde_json::json;

use super::{KeySetServer, SigningKey, ask, claims, gateway, now, sso};
use crate::harness::{Backend, Gateway, everything_to, get_with};

const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("rs", Algorithm::RS256),
    ("ps", Algorithm::PS256),
    ("es", Algorithm::ES256),
    ("es384", Algorithm::ES384),
    ("ed", Algorithm::EdDSA),
];

#[test]
fn a_token_of_each_algorithm_names_its_consumer() {
    let keys = ALGORITHMS.map(|(id, algorithm)| SigningKey::new(id, algorithm));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&keys.each_ref()));
    let gateway = gateway(&backend, &sso(&issuer.url(), "[admin]\nlisten = \"127.0.0.1:0\""));
    for key in &keys {
        let token = key.sign(&claims(&format!("user-{}", key.id)));
        for time in ["verified", "remembered"] {
            ask(&gateway, &token).expect(200);
            let request = backend.latest();
            assert_eq!(request.header("x-consumer"), Some(format!("user-{}", key.id)), "{time}");
            assert_eq!(request.header("x-consumer-tier").as_deref(), Some("pro"));
            assert_eq!(request.header("authorization"), None, "the backend does not get it");
        }
    }
    let log = gateway.access_log(10);
    assert_eq!((&log[0]["consumer"], &log[0]["tier"]), (&"user-rs".into(), &"pro".into()));
    assert!(gateway.metric("tollgate_auth_total", &["auth=\"sso\"", "result=\"accepted\""]) >= 10.0);
}

#[test]
fn a_token_without_kid_is_tried_with_the_keys_for_its_algorithm() {
    let (first, second) = (SigningKey::new("a", Algorithm::ES256), SigningKey::new("b", Algorithm::ES256));
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&first, &second]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let nameless = Header { kid: None, ..second.header() };
    ask(&gateway, &second.sign_as(&nameless, &claims("ann"))).expect(200);
    let wrong = Header { kid: Some("a".into()), ..second.header() };
    ask(&gateway, &second.sign_as(&wrong, &claims("ann"))).expect(401);
}

#[test]
fn a_secret_verifies_hs256() {
    let backend = Backend::ok();
    let secret = "0123456789abcdef0123456789abcdef";
    let auth = "[auth.sso]\ntype = \"jwt\"\nsecret_env = \"TOKEN_SECRET\"\n";
    let toml = everything_to(&backend, &format!("auth = \"sso\"\n{auth}"));
    let gateway = Gateway::start_in(&toml, &[], &[("TOKEN_SECRET", secret)]);
    let sign = |algorithm, secret: &str| {
        let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        jsonwebtoken::encode(&Header::new(algorithm), &claims("ann"), &key).expect("it is signed")
    };
    ask(&gateway, &sign(Algorithm::HS256, secret)).expect(200);
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("ann"));
    ask(&gateway, &sign(Algorithm::HS256, "0123456789abcdef0123456789abcdeX")).expect(401);
    ask(&gateway, &sign(Algorithm::HS384, secret)).expect(401);
}

#[test]
fn a_refreshed_token_keeps_its_allowance() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
    let limit = "[limits.user]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"jwt:email\"\nrate = \"3/day\"\n";
    let auth = format!("limits = [\"user\"]\n{}{limit}", sso(&issuer.url(), ""));
    let gateway = gateway(&backend, &auth);
    let token = |email: &str, number: u64| {
        let claims = json!({"iss": super::ISSUER, "aud": "api", "sub": format!("s{number}"), "email": email, "exp": now() + 3600 + number});
        key.sign(&claims)
    };
    let statuses =
        |email: &str| (0..5).map(|number| ask(&gateway, &token(email, number)).status).collect::<Vec<_>>();
    assert_eq!(statuses("a@example.com"), [200, 200, 200, 429, 429]);
    assert_eq!(statuses("b@example.com"), [200, 200, 200, 429, 429]);
}

#[test]
fn api_keys_and_tokens_share_the_bearer_scheme() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("consumers.csv");
    std::fs::write(&file, "key,name\nplain-key,ada\n").expect("the file can be written");
    let keys = format!("[auth.keys]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"{}\"\n", file.display());
    for order in ["[\"keys\", \"sso\"]", "[\"sso\", \"keys\"]"] {
        let toml = everything_to(&backend, &format!("auth = {order}\n{}{keys}", sso(&issuer.url(), "")));
        let gateway = Gateway::start(&toml);
        ask(&gateway, "plain-key").expect(200);
        assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("ada"), "{order}");
        ask(&gateway, &key.sign(&claims("ann"))).expect(200);
        assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("ann"), "{order}");
        ask(&gateway, "other-key").expect(401);
        ask(&gateway, "eyJ.eyJ.x").expect(401);
        assert_eq!(get_with(gateway.addr(), "/", "").status, 401);
    }
}
