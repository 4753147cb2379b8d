//! Keys as people write and read them.

use proptest::prelude::*;
use tollgate::route::key::{Key, KeySecret, LABEL_END, Missing, Part, Repeated};
use tollgate::route::mask::{Masking, ShortIds};

use crate::harness::sample_request::{Sample, get};

fn key(parts: &str) -> Key {
    let parts = parts.split(' ').map(|part| Part::parse(part).unwrap()).collect();
    Key { repeated: Some(Repeated::Join), ..Key::new(parts) }
}

fn masking(reveal: bool) -> Masking<'static> {
    if reveal { Masking::Off } else { Masking::NoIds }
}

fn described(key: &Key, sample: &Sample, reveal: bool) -> Vec<(String, Option<String>)> {
    sample.ask(|request| key.describe(request.matched_by("search", true), masking(reveal)))
}

#[test]
fn parts_are_written_as_in_the_file() {
    for text in [
        "ip",
        "header:x-api-key",
        "cookie:Sid",
        "query:a b",
        "host",
        "path",
        "method",
        "route",
        "global",
        "tls:subject",
    ] {
        assert_eq!(Part::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Part::parse("header:X-API-Key").unwrap().to_string(), "header:x-api-key");
}

#[test]
fn faults_say_what_would_be_right() {
    let cases = [
        ("", "`` is not a key", "write `ip`, `ip/24`, `country`, `asn`, `header:NAME`"),
        ("IP", "`IP` is not a key", "write `ip`, "),
        ("user", "`user` is not a key", "write `ip`, "),
        ("x:y", "`x:y` is not a key", "write `ip`, "),
        ("header", "the key `header` lacks a name", "write `header:NAME`"),
        ("header:", "the key `header:` lacks a valid name", "write `header:NAME`, as in `header:api-key`"),
        ("header:x y", "the key `header:x y` lacks a valid name", "write `header:NAME`"),
        ("cookie:a=b", "the key `cookie:a=b` lacks a valid name", "write `cookie:NAME`"),
        ("query:", "the key `query:` lacks a valid name", "write `query:NAME`"),
        ("ip:1", "the key `ip` takes no name", "write `ip`"),
        ("tls:issuer", "`tls:issuer` is not a key", "write `ip`, "),
        ("jwt:", "the key `jwt:` lacks a claim", "write `jwt:CLAIM`"),
        ("ip/0", "the key `ip/0` has no valid prefix length", "write `ip/24`"),
        ("ip/24, 48", "the key `ip/24, 48` has no valid prefix length", "write `ip/24`"),
    ];
    for (text, message, help) in cases {
        let fault = Part::parse(text).unwrap_err();
        assert_eq!(fault.to_string(), message, "{text}");
        assert!(fault.help.starts_with(help), "{text}: {}", fault.help);
    }
}

#[test]
fn several_values_are_told_without_showing_them() {
    let sample = get("/?q=secret-1&q=secret-2").header("cookie", "sid=secret-3; sid=secret-4");
    let key = Key { repeated: None, ..key("query:q cookie:sid") };
    assert_eq!(
        described(&key, &sample, true),
        [
            ("query:q has several values".to_owned(), None),
            ("ip (cookie:sid has several values)".to_owned(), Some("192.0.2.1".to_owned())),
        ]
    );
    let mut label = String::new();
    sample.ask(|request| key.write_label(request.matched_by("search", true), Masking::Off, &mut label));
    assert_eq!(label, "query:q has several values\n192.0.2.1\n");
}

#[test]
fn keys_have_words() {
    let cases = [
        ("ip", "per client address"),
        ("header:x-api-key", "per header `x-api-key`"),
        ("cookie:sid", "per cookie `sid`"),
        ("query:q", "per query parameter `q`"),
        ("ip path", "per client address and path"),
        ("ip host method", "per client address, host and method"),
        ("route", "per route"),
        ("global", "for everybody together"),
        ("tls:subject", "per subject of the client certificate"),
        ("global path", "per path"),
    ];
    for (parts, words) in cases {
        assert_eq!(key(parts).to_string(), words);
    }
    assert!(key("ip query:q").may_be_missing() && !key("ip path host method route global").may_be_missing());
    assert_eq!(Missing::Shared.to_string(), "all such requests share one counter");
}

#[test]
fn values_are_masked_unless_revealed() {
    let sample =
        get("/a?q=abc").host("a.test").header("cookie", "sid=k-12345678901234").header("x-key", "secret-one");
    let all = key("ip host path method route global cookie:sid query:q header:x-key");
    let values =
        |reveal| described(&all, &sample, reveal).into_iter().map(|(_, value)| value.unwrap_or_default());
    let open = ["192.0.2.1", "a.test", "/a", "GET", "search", ""];
    assert!(values(false).eq(open.into_iter().chain(["…1234", "…", "…"])));
    assert!(values(true).eq(open.into_iter().chain(["k-12345678901234", "abc", "secret-one"])));
    let twice = get("/").header("x-key", b"\xff\"").header("x-key", "ééééé\u{85}ééé");
    assert_eq!(
        described(&key("header:x-key"), &twice, true)[0].1.as_deref(),
        Some("\u{fffd}\\\", ééééé\\u{85}ééé")
    );
    assert_eq!(described(&key("header:x-key"), &twice, false)[0].1.as_deref(), Some("…"));
}

#[test]
fn a_missing_part_is_told_as_what_stands_in() {
    let mut key = key("header:x-key path");
    let mut first = |missing| {
        key.missing = missing;
        described(&key, &get("/a").from("2001:db8::7"), false).swap_remove(0)
    };
    let address = Some("2001:db8::".to_owned());
    assert_eq!(first(Missing::Ip), ("ip (header:x-key is missing)".into(), address));
    assert_eq!(first(Missing::Shared), ("everybody (header:x-key is missing)".into(), None));
    assert_eq!(first(Missing::Skip), ("header:x-key is missing".into(), None));
    assert_eq!(first(Missing::Deny), ("header:x-key is missing".into(), None));
}

fn labelled(key: &Key, sample: &Sample, reveal: bool) -> Vec<String> {
    let mut label = String::new();
    sample.ask(|request| key.write_label(request.matched_by("search", true), masking(reveal), &mut label));
    label.split_terminator(LABEL_END).map(str::to_owned).collect()
}

#[test]
fn a_label_is_short() {
    let long = "é".repeat(4_000);
    let sample = get(&format!("/?q={long}")).header("x-key", &long);
    let cut = |count| format!("{}…", "é".repeat(count));
    assert_eq!(labelled(&key("query:q"), &sample, true), [cut(120)]);
    assert_eq!(labelled(&key("query:q"), &sample, false), ["…éééé"]);
    let many = key("header:x-key header:x-key header:x-key header:x-key header:x-key header:x-key");
    assert_eq!(labelled(&many, &sample, true), vec![cut(80); 6]);
    assert_eq!(labelled(&key("global"), &sample, true), [] as [&str; 0]);
    assert_eq!(labelled(&key("host"), &sample, true), [""], "a part that is empty is one");
}

proptest! {
    #[test]
    fn a_label_says_what_a_description_says(
        (value, other, reveal) in ("[a-zé\"\\\\\t]{0,40}", "[a-z0-9%+]{0,20}", any::<bool>()),
        missing in 0_usize..4,
    ) {
        let missing = [Missing::Ip, Missing::Shared, Missing::Skip, Missing::Deny][missing];
        let mut sample = get(&format!("/a?q={other}%0A")).host("a.test");
        if value.len() % 5 > 0 {
            sample = sample.header("x-key", &value).header("x-key", &other);
        }
        let key = Key { missing, ..key("ip header:x-key query:q global path") };
        let label = sample.ask(|request| key.label(request.matched_by("search", true), masking(reveal)));
        prop_assert_eq!(labelled(&key, &sample, reveal), label);
    }

    #[test]
    fn what_is_parsed_is_written_the_same(text in "(ip|header|cookie|query|global|:|a|B|=| |é){0,5}") {
        if let Ok(part) = Part::parse(&text) {
            prop_assert_eq!(Part::parse(&part.to_string()).unwrap(), part);
        }
    }

    #[test]
    fn a_short_value_shows_nothing(value in "[a-z]{1,15}") {
        let sample = get("/").header("x-key", &value);
        let told = described(&key("header:x-key"), &sample, false);
        prop_assert_eq!(told, [("header:x-key".to_owned(), Some("…".to_owned()))]);
    }
}

#[test]
fn credentials_are_told_apart_by_scheme_end_and_id() {
    let ids = ShortIds::new(&KeySecret::Process([7; 16]));
    let told = |value: &str| {
        let sample = get("/").header("authorization", value).header("x-key", value);
        let both = key("header:authorization header:x-key");
        let mut label = String::new();
        sample.ask(|request| {
            both.write_label(request.matched_by("search", true), Masking::Ids(&ids), &mut label)
        });
        let described =
            sample.ask(|request| both.describe(request.matched_by("search", true), Masking::Ids(&ids)));
        let described: Vec<_> = described.into_iter().filter_map(|(_, value)| value).collect();
        assert_eq!(label.split_terminator(LABEL_END).collect::<Vec<_>>(), described);
        <[String; 2]>::try_from(described).unwrap()
    };
    let [credentials, key] = told("Bearer one-secret-token-f3a9");
    let id = credentials.strip_prefix("Bearer …f3a9 #").unwrap();
    assert_eq!(key, format!("…f3a9 #{id}"), "one value has one id");
    assert!(id.len() == 4 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_ne!(told("Bearer two-secret-token-f3a9")[0], credentials);
    assert!(told("Basic dXNlcjpwYXNzd29yZA==")[0].starts_with("Basic … #"));
}
