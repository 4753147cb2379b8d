//! Faults of `[auth]` with `type = "jwt"`, each with its line.

use std::process::{Command, Output};

use jsonwebtoken::Algorithm;

use super::{SigningKey, claims, key_set, now, sso};
use crate::harness::api::good;
use crate::harness::{Gateway, binary};

fn check(auth: &str) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let toml = format!(
        "[upstreams]\na = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"a\"\nauth = \"sso\"\n[auth.sso]\ntype = \"jwt\"\n{auth}\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("the file can be written");
    std::fs::write(folder.path().join("empty.json"), "{\"keys\":[]}").expect("the file can be written");
    std::fs::write(folder.path().join("text.json"), "keys").expect("the file can be written");
    let Output { status, stdout, stderr } = Command::new(binary())
        .arg("check")
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .env("SHORT", "too short")
        .env("LONG", "0123456789abcdef0123456789abcdef")
        .output()
        .expect("the binary starts");
    let text = format!("{}{}", String::from_utf8_lossy(&stderr), String::from_utf8_lossy(&stdout));
    (status.code().expect("an exit status"), text)
}

#[test]
fn each_fault_is_named_with_its_remedy() {
    for (auth, message) in [
        ("", "`jwks`"),
        ("jwks = \"http://idp.example.com/keys\"", "must not come over `http://`"),
        ("jwks = \"ftp://idp.example.com/keys\"", "is not the URL of a key set"),
        ("jwks = \"https://user:secret@idp.example.com/keys\"", "the URL of the key set has a user"),
        ("jwks = \"empty.json\"", "has no keys"),
        ("jwks = \"text.json\"", "is not a JSON Web Key Set"),
        ("jwks = \"missing.json\"", "missing.json"),
        (
            "jwks = \"https://a.example/k\"\nalgorithms = [\"none\"]",
            "tokens without a signature are never accepted",
        ),
        ("jwks = \"https://a.example/k\"\nalgorithms = [\"HS256\"]", "is for a secret"),
        ("jwks = \"https://a.example/k\"\nalgorithms = [\"rs256\"]", "is not an algorithm"),
        ("jwks = \"https://a.example/k\"\nalgorithms = []", "algorithms"),
        ("jwks = \"https://a.example/k\"\nsecret_env = \"LONG\"", "either `jwks` or `secret_env`"),
        ("jwks = \"https://a.example/k\"\nleeway = \"1h\"", "clocks that differ by so much"),
        ("jwks = \"https://a.example/k\"\nname = \"\"", "a claim has a name"),
        ("secret_env = \"SHORT\"", "the secret is too short for HS256"),
        ("secret_env = \"LONG\"\nalgorithms = [\"RS256\"]", "is not an algorithm for a secret"),
    ] {
        let (status, text) = check(auth);
        assert!(status != 0 && text.contains(message), "{auth}: {text}");
        assert!(!text.contains("too short:") && !text.contains("secret@"), "{text}");
    }
}

#[test]
fn check_describes_what_verifies_tokens() {
    let (status, text) = check("jwks = \"https://idp.example.com/keys\"\naudience = \"api\"");
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains(
            "Auth `sso`: tokens in `bearer`, verified by the keys of `https://idp.example.com/keys`."
        ),
        "{text}"
    );
    let (_, text) = check("secret_env = \"LONG\"");
    assert!(text.contains("verified by a secret (HS256)"), "{text}");
    let (_, text) = check("jwks = \"https://idp.example.com/keys\"");
    assert!(text.contains("has no `audience`"), "{text}");
}

#[test]
fn explain_says_why_a_token_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (key, other) = (SigningKey::new("k", Algorithm::ES256), SigningKey::new("k", Algorithm::ES256));
    let file = folder.path().join("keys.json");
    std::fs::write(&file, key_set(&[&key])).expect("the file can be written");
    let toml = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\na = \"builtin:echo\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"a\"\nauth = \"sso\"\n{}",
        sso(&file.display().to_string(), "")
    );
    std::fs::write(folder.path().join("gateway.toml"), &toml).expect("the file can be written");
    let gateway = Gateway::start(&toml);
    let explain = |token: &str| {
        let headers = serde_json::json!({ "authorization": format!("Bearer {token}") });
        let body = serde_json::json!({ "url": "http://localhost/", "headers": headers });
        good(&gateway, "POST explain", &body.to_string())
    };
    let token = key.sign(&claims("ann"));
    let told = explain(&token);
    assert_eq!([&told["consumer"], &told["tier"], &told["auth"]], ["ann", "pro", "sso"], "{told}");
    let mut expired = claims("ann");
    expired["exp"] = (now() - 3600).into();
    for (token, reason) in [
        (key.sign(&expired), "the token has expired"),
        (other.sign(&claims("ann")), "the token's signature is wrong"),
        ("eyJ.eyJ.eyJ".to_owned(), "the token is malformed"),
        ("key".to_owned(), "the token is malformed"),
    ] {
        let told = explain(&token);
        assert_eq!(told["status"], 401, "{told}");
        let told = told.to_string();
        assert!(told.contains(reason) && !told.contains(&token), "{told}");
    }
    let output = Command::new(binary())
        .args(["explain", "GET", "http://localhost/", "-H", &format!("authorization: Bearer {token}")])
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("not verified: ") && !told.contains("ann"), "{told}");
}
