//! `require` of a route and claims by JSON pointer.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{ISSUER, KeySetServer, SigningKey, ask, now, sso};
use crate::harness::api::good;
use crate::harness::{Backend, Gateway, Response, everything_to, get_with};

/// Claims as Keycloak and Auth0 write them.
fn nested(subject: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": "api", "sub": subject, "plan": "pro", "exp": now() + 3600,
        "scope": "orders:read profile",
        "realm_access": {"roles": ["user", "admin"]},
        "app_metadata": {"tenant": "acme", "seats": 7, "plan": "gold"},
        "https://example.com/groups": ["ops"],
        "email_verified": true,
    })
}

struct Service {
    key: SigningKey,
    backend: Backend,
    _issuer: KeySetServer,
    gateway: Gateway,
}

impl Service {
    /// A gateway whose route `all` has these lines.
    fn start(route: &str, auth: &str) -> Self {
        let key = SigningKey::new("k", Algorithm::ES256);
        let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
        let sso = sso(&issuer.url(), auth);
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
        let gateway =
            Gateway::start(&everything_to(&backend, &format!("auth = \"sso\"\n{route}\n{admin}{sso}")));
        Self { key, backend, _issuer: issuer, gateway }
    }

    fn ask(&self, claims: &Value) -> Response {
        ask(&self.gateway, &self.key.sign(claims))
    }

    fn without(&self, claim: &str) -> Response {
        let mut claims = nested("ann");
        claims.as_object_mut().expect("an object").remove(claim);
        self.ask(&claims)
    }
}

const LIMIT: &str =
    "limits = [\"few\"]\n[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"1/day\"";

#[test]
fn a_token_without_the_scope_gets_403_with_the_words_of_rfc_6750() {
    let service = Service::start(&format!("require = {{ scope = \"orders:read\" }}\n{LIMIT}"), "");
    let refused = service.without("scope").expect(403);
    let challenge = "Bearer realm=\"sso\", error=\"insufficient_scope\", scope=\"orders:read\"";
    assert_eq!(refused.header("www-authenticate"), Some(challenge));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(!refused.text().contains("orders"), "{}", refused.text());
    assert_eq!(service.backend.count(), 0, "a refusal is not forwarded");
    // A refusal is not charged.
    service.ask(&nested("ann")).expect(200);
    service.ask(&nested("ann")).expect(429);
    let log = service.gateway.access_log(3);
    assert_eq!((&log[0]["error"], &log[0]["status"]), (&json!("insufficient_scope"), &json!(403)));
    assert_eq!((&log[0]["consumer"], &log[0]["tier"]), (&json!("ann"), &json!("pro")));
    let counted = |result: &str| {
        let result = format!("result=\"{result}\"");
        service.gateway.metric("tollgate_auth_total", &["auth=\"sso\"", &result])
    };
    assert_eq!((counted("insufficient"), counted("accepted"), counted("invalid")), (1.0, 2.0, 0.0));
    // Without a token it is 401 as before.
    let missing = get_with(service.gateway.addr(), "/", "").expect(401);
    assert_eq!(missing.header("www-authenticate"), Some("Bearer realm=\"sso\""));
}

#[test]
fn all_of_the_requirements_must_hold_and_one_value_of_each_list() {
    let require = r#"require = { scope = ["orders:write", "orders:read profile"], "/realm_access/roles" = "admin", "https://example.com/groups" = ["ops", "root"], email_verified = true, "/app_metadata/seats" = 7, tier = ["pro", "gold"] }"#;
    let service = Service::start(require, "");
    service.ask(&nested("ann")).expect(200);
    for claim in
        ["scope", "realm_access", "https://example.com/groups", "email_verified", "app_metadata", "plan"]
    {
        let refused = service.without(claim).expect(403);
        assert_eq!(
            refused.header("www-authenticate"),
            Some("Bearer realm=\"sso\", error=\"insufficient_scope\""),
            "{claim}: of several scopes none is named"
        );
    }
    for (claim, value) in [
        ("scope", json!("orders:read")),
        ("scope", json!("profile,orders:read")),
        ("scope", json!("xorders:write")),
        ("realm_access", json!({"roles": "administrator"})),
        ("realm_access", json!({"roles": ["ADMIN"]})),
        ("realm_access", json!("admin")),
        ("realm_access", json!([{"roles": ["admin"]}])),
        ("email_verified", json!(false)),
        ("plan", json!("free")),
    ] {
        let mut claims = nested("ann");
        claims[claim] = value.clone();
        assert_eq!(service.ask(&claims).status, 403, "{claim}: {value}");
    }
    let mut claims = nested("ann");
    claims["scope"] = json!(["orders:write"]);
    service.ask(&claims).expect(200);
}

/// The claims that a route requires are remembered with the token, and a reload that asks for others forgets it.
#[test]
fn a_reload_with_other_requirements_holds_at_once() {
    let service = Service::start("require = { scope = \"orders:read\" }", "");
    let token = service.key.sign(&nested("ann"));
    ask(&service.gateway, &token).expect(200);
    let (file, done) = (service.gateway.config_path(), "reloaded");
    let text = std::fs::read_to_string(file).expect("the file can be read");
    service.gateway.reload(&text.replace("orders:read", "orders:write"), done);
    ask(&service.gateway, &token).expect(403);
    service.gateway.reload(&text.replace("orders:read", "profile"), done);
    ask(&service.gateway, &token).expect(200);
}

#[test]
fn names_tiers_and_keys_stand_within_claims() {
    let limits = "limits = [\"tenant\"]\n[limits.tenant]\nalgorithm = \"fixed-window\"\n\
        key = \"jwt:/app_metadata/tenant\"\nmissing = \"deny\"\nrate = \"2/day\"";
    let key = SigningKey::new("k", Algorithm::ES256);
    let (backend, issuer) = (Backend::ok(), KeySetServer::start(&[&key]));
    let auth = format!(
        "[auth.sso]\ntype = \"jwt\"\njwks = \"{}\"\naudience = \"api\"\nname = \"/app_metadata/seats\"\n\
         tier = \"/app_metadata/plan\"\n",
        issuer.url()
    );
    let gateway = Gateway::start(&everything_to(&backend, &format!("auth = \"sso\"\n{limits}\n{auth}")));
    ask(&gateway, &key.sign(&nested("ann"))).expect(200);
    let latest = backend.latest();
    assert_eq!(latest.header("x-consumer").as_deref(), Some("7"));
    assert_eq!(latest.header("x-consumer-tier").as_deref(), Some("gold"));
    // Another consumer of the same tenant.
    let mut other = nested("bob");
    other["app_metadata"]["seats"] = json!(8);
    ask(&gateway, &key.sign(&other)).expect(200);
    ask(&gateway, &key.sign(&other)).expect(429);
    other["app_metadata"]["tenant"] = json!("zeta");
    ask(&gateway, &key.sign(&other)).expect(200);
    other["app_metadata"]["tenant"] = json!(["zeta"]);
    ask(&gateway, &key.sign(&other)).expect(429);
    other["app_metadata"] = json!({});
    ask(&gateway, &key.sign(&other)).expect(401);
}

#[test]
fn explain_names_the_requirement_that_clients_are_not_told() {
    let service = Service::start("require = { \"/realm_access/roles\" = [\"owner\", \"root\"] }", "");
    // The first request fetches the keys.
    service.ask(&nested("ann")).expect(403);
    let token = service.key.sign(&nested("ann"));
    let headers = json!({ "authorization": format!("Bearer {token}") });
    let body = json!({ "url": "http://localhost/", "headers": headers }).to_string();
    let told = good(&service.gateway, "POST explain", &body);
    assert_eq!((&told["status"], &told["consumer"]), (&json!(403), &json!("ann")), "{told}");
    assert!(
        told.to_string().contains("the route requires `/realm_access/roles`: `owner` or `root`"),
        "{told}"
    );
}
