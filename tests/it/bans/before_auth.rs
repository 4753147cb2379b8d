//! A ban of a key that needs neither credential nor body is looked for before the credential.

use crate::harness::api::good;
use crate::harness::config_folder::ConfigFolder;
use crate::harness::{Gateway, get_with, send};

/// `/keys` and `/passwords` with a limit by address, which can ban; `/consumer` with one by consumer.
fn gateway(files: &ConfigFolder) -> Gateway {
    let route = |name: &str, auth: &str, limit: &str| {
        format!(
            "[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"api\"\nauth = \"{auth}\"\nlimits = [\"{limit}\"]\n"
        )
    };
    let limit = |name: &str, key: &str| {
        format!("[limits.{name}]\nalgorithm = \"token-bucket\"\nrate = \"1000/s\"\nkey = {key}\n")
    };
    Gateway::start(&format!(
        "[upstreams]\napi = \"builtin:echo\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\n\
         [auth.users]\ntype = \"basic\"\nfile = \"{}\"\nfailures = \"wrong\"\n\
         [limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"2/day\"\n{}{}{}{}{}{}{}",
        files.path("consumers.csv").display(),
        files.path("users").display(),
        limit("address", "\"ip\""),
        limit("consumer", "\"consumer\""),
        limit("name", "[\"ip\", \"form:name\"]"),
        route("keys", "keys", "address"),
        route("passwords", "users", "address"),
        route("consumer", "keys", "consumer"),
        route("form", "keys", "name"),
    ))
}

fn files() -> ConfigFolder {
    // The password is `secret`.
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    ConfigFolder::new(&[("consumers.csv", "key,name\nkey-of-ann,ann\n"), ("users", &format!("ann:{hash}\n"))])
}

fn ban(gateway: &Gateway, place: &str) {
    good(gateway, &format!("POST limits/{place}/ban"), "{\"for\": \"1h\"}");
}

#[test]
fn a_banned_address_meets_its_ban_whatever_its_credential_is() {
    let files = files();
    let gateway = gateway(&files);
    let wrong = "authorization: Basic YW5uOndyb25n\r\n";
    get_with(gateway.addr(), "/keys", "").expect(401);
    get_with(gateway.addr(), "/passwords", wrong).expect(401);
    ban(&gateway, "address/keys/127.0.0.1");
    for path in ["/keys", "/passwords"] {
        for fields in [
            "",
            "x-api-key: wrong\r\n",
            "x-api-key: key-of-ann\r\n",
            wrong,
            "authorization: Basic YW5uOnNlY3JldA==\r\n",
        ] {
            let response = get_with(gateway.addr(), path, fields).expect(429);
            assert!(response.banned_for().is_some(), "{path} {fields}: {}", response.text());
        }
    }
    let refused = gateway.metric("tollgate_decisions_total", &["limit=\"address\"", "decision=\"banned\""]);
    assert!((refused - 10.0).abs() < 0.5, "{refused}");
    good(&gateway, "DELETE limits/address/keys/127.0.0.1/ban", "");
    // No password was checked meanwhile: one failure of two was counted.
    get_with(gateway.addr(), "/passwords", wrong).expect(401);
    get_with(gateway.addr(), "/passwords", wrong).expect(429);
}

#[test]
fn a_ban_of_a_consumer_or_a_value_of_the_body_comes_after_the_credential() {
    let files = files();
    let gateway = gateway(&files);
    get_with(gateway.addr(), "/consumer", "x-api-key: key-of-ann\r\n").expect(200);
    ban(&gateway, "consumer/keys/ann");
    get_with(gateway.addr(), "/consumer", "x-api-key: wrong\r\n").expect(401);
    get_with(gateway.addr(), "/consumer", "x-api-key: key-of-ann\r\n").expect(429);
    let post = |key: &str| {
        let head = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 8";
        send(
            gateway.addr(),
            format!("POST /form HTTP/1.1\r\nhost: test\r\nx-api-key: {key}\r\n{head}\r\n\r\nname=bob"),
        )
    };
    post("key-of-ann").expect(200);
    ban(&gateway, "name/keys/127.0.0.1,bob");
    post("wrong").expect(401);
    post("key-of-ann").expect(429);
}

/// Whether it stands in is known only after the credential.
#[test]
fn a_ban_of_the_address_that_stands_in_for_a_consumer_meets_no_consumer() {
    let files = files();
    let gateway = Gateway::start(&format!(
        "[upstreams]\napi = \"builtin:echo\"\n\
         [auth.users]\ntype = \"basic\"\nfile = \"{}\"\n\
         [limits.consumer]\nalgorithm = \"token-bucket\"\nkey = \"consumer\"\nrate = \"1/day\"\n\
         ban = {{ after = 1, within = \"1h\", for = \"1h\" }}\n\
         [[routes]]\npath = \"/\"\nupstream = \"api\"\nauth = \"users\"\nauth_optional = true\nlimits = [\"consumer\"]\n",
        files.path("users").display(),
    ));
    get_with(gateway.addr(), "/", "").expect(200);
    get_with(gateway.addr(), "/", "").expect(429);
    let banned = get_with(gateway.addr(), "/", "").expect(429);
    assert!(banned.banned_for().is_some(), "{}", banned.text());
    // The password is checked aside, so that the request waits for its consumer.
    get_with(gateway.addr(), "/", "authorization: Basic YW5uOnNlY3JldA==\r\n").expect(200);
}
