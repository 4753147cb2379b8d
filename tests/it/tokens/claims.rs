//! Claims: times, issuer, audience, names.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{INVALID, ISSUER, KeySetServer, SigningKey, ask, gateway, now, sso};
use crate::harness::Backend;

#[test]
fn each_claim_is_checked() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
    let gateway = gateway(&backend, &sso(&issuer.url(), ""));
    let good = || json!({"iss": ISSUER, "aud": "api", "sub": "ann", "exp": now() + 3600});
    let with = |name: &str, value: Value| {
        let mut claims = good();
        if value.is_null() {
            claims.as_object_mut().expect("an object").remove(name);
        } else {
            claims[name] = value;
        }
        ask(&gateway, &key.sign(&claims))
    };
    with("aud", json!(["other", "api"])).expect(200);
    with("nbf", json!(now() - 5)).expect(200);
    with("nbf", json!(now() + 10)).expect(200);
    with("exp", json!(now() - 10)).expect(200);
    with("sub", json!(7)).expect(200);
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("7"));
    with("sub", json!("Bl\u{fc}te")).expect(200);
    assert_eq!(backend.latest().header("x-consumer").as_deref(), Some("Bl%C3%BCte"));
    let before = backend.count();
    for (name, value) in [
        ("exp", json!(null)),
        ("exp", json!(now() - 3600)),
        ("exp", json!("never")),
        ("exp", json!(1e300)),
        ("exp", json!(-1)),
        ("nbf", json!(now() + 3600)),
        ("nbf", json!([])),
        ("iat", json!(now() + 3600)),
        ("iss", json!(null)),
        ("iss", json!("https://idp.example.com")),
        ("iss", json!([ISSUER])),
        ("aud", json!(null)),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", json!({"api": true})),
        ("sub", json!(null)),
        ("sub", json!("")),
        ("sub", json!(["ann"])),
        ("sub", json!("x".repeat(257))),
        ("plan", json!("x".repeat(257))),
    ] {
        let response = with(name, value.clone()).expect(401);
        assert_eq!(response.header("www-authenticate"), Some(INVALID), "{name}: {value}");
    }
    assert_eq!(backend.count(), before, "a refusal is not forwarded");
    let log = gateway.access_log(26);
    let refused: Vec<_> = log.iter().filter(|line| line["error"] == "credential_invalid").collect();
    assert_eq!(refused.len(), 20);
    assert!(refused.iter().all(|line| line["consumer"].is_null()));
}
