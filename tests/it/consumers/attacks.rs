//! Attacks on API keys: each is a row of `docs/security.md`.

use std::collections::BTreeMap;
use std::path::Path;

use http::{HeaderMap, Request};

use super::{BY_CONSUMER, CSV, Files, key};
use crate::harness::sources::read;
use crate::harness::{AllVersions, Backend, Body, Client, Gateway, Load, everything_to, get_with, send};

const HEADER: &str = "header:x-api-key";
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn gateway(backend: &Backend, files: &Files, rest: &str) -> AllVersions {
    let auth = files.auth("keys", HEADER, "");
    AllVersions::start(&everything_to(backend, &format!("auth = \"keys\"\n{rest}\n{ADMIN}{auth}")))
}

/// Without a limit on failures: each is refused, and none takes a counter or a place among the top keys.
#[test]
fn invented_keys_take_no_counters() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, &format!("limits = [\"api\"]\n{BY_CONSUMER}"));
    let load = Load { requests: 2_000, concurrency: 4 };
    let statuses = load.run(gateway.addr(), |number| {
        format!("GET / HTTP/1.1\r\nhost: test\r\n{}\r\n", key(&format!("invented-{number}")))
    });
    assert_eq!(statuses, BTreeMap::from([(401, 2_000)]));
    assert!(gateway.metric("tollgate_store_keys", &[]) < 0.5);
    let keys = crate::harness::api::api(&gateway, "limits/api/keys");
    assert_eq!((&keys["requests"], &keys["keys"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(backend.count(), 0);
}

/// An address has exactly the wrong keys that `failures` admits, on all connections together, and a client with a good key
/// behind the same address notices nothing.
#[test]
fn guessing_is_bounded_by_address() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let limit = "[limits.wrong]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"ip\"\nrate = \"10/day\"\n";
    let auth = files.auth("keys", HEADER, "failures = \"wrong\"");
    let gateway = Gateway::start(&everything_to(&backend, &format!("auth = \"keys\"\n{limit}{auth}")));
    let load = Load { requests: 1_000, concurrency: 8 };
    let statuses = load.run(gateway.addr(), |number| {
        let key = if number % 2 == 0 { key(&format!("guess-{number}")) } else { key("key-ada-1") };
        format!("GET / HTTP/1.1\r\nhost: test\r\n{key}\r\n")
    });
    assert_eq!(statuses, BTreeMap::from([(200, 500), (401, 10), (429, 490)]));
}

/// Names that a backend may read as `x-consumer`, with a value that no gateway sends.
const CLAIMS: &str = "x-consumer: claimed\r\nX-Consumer: claimed\r\nX_Consumer: claimed\r\nx_consumer-tier: claimed\r\n\
    X-CONSUMER-TIER: claimed\r\nx-consumer-org: claimed\r\nx-Consumer_Id: claimed\r\n";

#[test]
fn a_client_can_not_claim_to_be_a_consumer() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let free = "auth_optional = true\n[[routes]]\npath = \"/free\"\nname = \"free\"\nupstream = \"api\"\n";
    let gateway = gateway(&backend, &files, free);
    let received = |path: &str, fields: &str| {
        get_with(gateway.addr(), path, fields).expect(200);
        let request = backend.latest();
        assert!(!request.head.contains("claimed"), "{}", request.head);
        (request.header("x-consumer"), request.header("x-consumer-tier"))
    };
    let ada = (Some("ada".to_owned()), Some("pro".to_owned()));
    for path in ["/free", "/free?x", "/"] {
        assert_eq!(received(path, CLAIMS), (None, None), "an anonymous client on {path}");
    }
    assert_eq!(received("/", &format!("{CLAIMS}{}", key("key-ada-1"))), ada);
    assert_eq!(received("/", &format!("{}{CLAIMS}", key("key-eve-1"))), (Some("eve".to_owned()), None));
    // A client can't nominate the gateway's own headers away either.
    let nominated = "connection: x-consumer, x-consumer-tier, x-api-key\r\n";
    assert_eq!(received("/", &format!("{nominated}{}", key("key-ada-1"))), ada);
    assert!(!backend.latest().head.contains("key-ada-1"));
    // A route without auth does not read keys: they pass like any other header.
    assert_eq!(received("/free", &key("key-ada-1")), (None, None));
}

#[test]
fn a_client_can_not_claim_it_in_trailers() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, "");
    let request = format!(
        "POST / HTTP/1.1\r\nhost: test\r\n{}transfer-encoding: chunked\r\ntrailer: x-consumer, X_Consumer_Tier, x-sum\r\n\r\n\
         2\r\nhi\r\n0\r\nx-consumer: claimed\r\nx-sum: 1\r\nX_Consumer_Tier: claimed\r\n\r\n",
        key("key-ada-1")
    );
    send(gateway.addr(), request).expect(200);
    assert_eq!(backend.latest().trailers, "x-sum: 1\r\n");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-consumer", "claimed".parse().expect("a value"));
    trailers.insert("x-sum", "1".parse().expect("a value"));
    let body = Body { bytes: b"hi".to_vec(), trailers: Some(trailers) };
    for client in gateway.clients() {
        let request = Request::post("http://test/").header("x-api-key", "key-ada-1");
        let request = request.header("x-consumer", "claimed").header("trailer", "x-consumer, x-sum");
        let answer = client.exchange(request.body(()).expect("a request"), body.clone());
        answer.expect("an answer").expect(200);
        let seen = backend.latest();
        assert_eq!(seen.trailers, "x-sum: 1\r\n", "{}", client.version());
        assert_eq!(seen.header("x-consumer").as_deref(), Some("ada"), "{}", client.version());
    }
}

#[test]
fn two_different_keys_are_refused_and_equal_ones_are_one() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    for (source, refused, admitted) in [
        (
            HEADER,
            &[
                "x-api-key: key-ada-1\r\nx-api-key: key-bob-1\r\n",
                "x-api-key: key-bob-1\r\nx-other: 1\r\nX-API-KEY: key-ada-1\r\n",
                "x-api-key: key-ada-1\r\nx-api-key: wrong\r\n",
                "x-api-key: key-ada-1\r\nx-api-key:\r\n",
                // The same consumer, but a backend may know the keys apart.
                "x-api-key: key-ada-1\r\nx-api-key: key-ada-2\r\n",
            ][..],
            "x-api-key: key-ada-1\r\nX-Api-Key:  key-ada-1 \r\n",
        ),
        (
            "bearer",
            &[
                "authorization: Bearer key-ada-1\r\nauthorization: Bearer key-bob-1\r\n",
                "authorization: Bearer key-ada-1\r\nauthorization: Basic YTpi\r\n",
                "authorization: Basic YTpi\r\nauthorization: Bearer key-ada-1\r\n",
            ],
            "authorization: Bearer key-ada-1\r\nauthorization: Bearer key-ada-1\r\n",
        ),
        (
            "cookie:key",
            &[
                "cookie: key=key-ada-1; key=key-bob-1\r\n",
                "cookie: key=key-ada-1\r\ncookie: key=key-bob-1\r\n",
            ],
            "cookie: key=key-ada-1; a=1; key=key-ada-1\r\n",
        ),
    ] {
        let auth = files.auth("keys", source, "");
        let gateway = Gateway::start(&everything_to(&backend, &format!("auth = \"keys\"\n{auth}")));
        for fields in refused {
            let response = get_with(gateway.addr(), "/", fields);
            assert_eq!(response.status, 400, "{fields}");
            assert_eq!(response.header("www-authenticate"), None, "{fields}");
            assert_eq!(response.json()["detail"], "there are several different credentials");
        }
        get_with(gateway.addr(), "/", admitted).expect(200);
        assert_eq!(backend.latest().header("x-consumer"), Some("ada".into()), "{source}");
        // The lines of two workers come in any order.
        let log = gateway.access_log(refused.len() + 1);
        let repeated = log.iter().filter(|record| record["error"] == "credential_repeated");
        assert_eq!(repeated.count(), refused.len(), "{log:?}");
    }
    let auth = files.auth("keys", "query:key", "");
    let gateway = Gateway::start(&everything_to(&backend, &format!("auth = \"keys\"\n{auth}")));
    for query in ["key=key-ada-1&key=key-bob-1", "key=key-ada-1&key=", "key=key-ada-1&%6bey=key-ada-2"] {
        gateway.get(&format!("/?{query}")).expect(400);
    }
    gateway.get("/?key=key-ada-1&%6bey=key%2dada-1").expect(200);
}

#[test]
fn huge_and_odd_keys_are_looked_up_whole_or_refused() {
    let long = "k".repeat(16_000);
    let csv = format!(
        "key,name\n{long},long\nschlüssel,umlaut\nwith blank,blank\n\"a,b\"\"c-1234\",quoted\n%41%42%43,percent\n"
    );
    let (backend, files) = (Backend::ok(), Files::with_consumers(csv));
    let gateway = gateway(&backend, &files, "");
    let status = |value: &[u8]| {
        let head = [&b"GET / HTTP/1.1\r\nhost: test\r\nx-api-key: "[..], value, b"\r\n\r\n"].concat();
        let mut client = Client::connect(gateway.addr());
        client.exchange(head).status
    };
    for (value, name) in [
        (long.as_str(), "long"),
        ("schlüssel", "umlaut"),
        ("with blank", "blank"),
        (" \t with blank \t", "blank"),
        ("a,b\"c-1234", "quoted"),
        ("%41%42%43", "percent"),
    ] {
        assert_eq!(status(value.as_bytes()), 200, "{name}");
        assert_eq!(backend.latest().header("x-consumer"), Some(name.into()));
    }
    for wrong in [
        &long.as_bytes()[1..],
        &[long.as_bytes(), b"k"].concat(),
        b"A",
        b"with  blank",
        b"with\tblank",
        b"schl\xfcssel",
        &[0xff; 100],
        b"sha256:",
        &"é".repeat(4_000).into_bytes(),
    ] {
        assert_eq!(status(wrong), 401, "{}", String::from_utf8_lossy(wrong));
    }
    assert_eq!((status(b""), status(b" \t ")), (401, 401));
    for control in [&b"a\0b"[..], b"\x01", b"a\x7fb", b"a\rb"] {
        assert_eq!(status(control), 400, "{control:?}");
    }
    assert_eq!(status(&[b'k'; 20_000]), 431, "a line of a head has at most 16 KiB");
    let errors = gateway.access_log(22);
    let missing = errors.iter().filter(|record| record["error"] == "credential_missing").count();
    assert_eq!(missing, 2);
}

/// A statistical test of durations would fail at random on a busy machine. Instead: the code of a look-up compares no byte of
/// a key, only 128 bits of its keyed hash, and the table keeps no key.
#[test]
fn a_look_up_hashes_the_whole_key_and_compares_no_byte_of_it() {
    let code = read(Path::new("src/route/consumers.rs"));
    let function = |signature: &str| {
        let (_, rest) = code.split_once(signature).unwrap_or_else(|| panic!("no `{signature}`"));
        rest.split("\n    }\n").next().expect("a body").to_owned()
    };
    let find = function("pub fn find(&self, key: &[u8])");
    assert!(find.contains("self.row(self.fingerprint(key))") && find.matches("key").count() == 1, "{find}");
    let fingerprint = function("fn fingerprint(&self, key: &[u8]) -> u128");
    assert!(fingerprint.contains("self.keyed(digest(&SHA256, key).as_ref())"), "{fingerprint}");
    assert!(fingerprint.contains("self.keyed(key)") && !fingerprint.contains("=="), "{fingerprint}");
    let keyed = function("fn keyed(&self, bytes: &[u8]) -> u128");
    assert!(
        keyed.contains("SipHasher24::new_with_key(&self.secret)") && keyed.contains("write(bytes)"),
        "{keyed}"
    );
    let row = function("fn row(&self, fingerprint: u128)");
    assert!(row.contains("Some(&fingerprint)") && !row.contains("key"), "{row}");
    // A key is hashed and let go: `values` are those of the other columns.
    let push = function("pub fn push<'v>(");
    assert!(push.contains("fingerprints.push(fingerprint)") && !push.contains("push_str(key"), "{push}");
}
