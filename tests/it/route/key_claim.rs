//! Whose counter a request spends from.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use tollgate::limit::units::Fingerprint;
use tollgate::route::key::{Key, KeyResult, KeySecret, Missing, Part, Repeated};
use tollgate::route::mask::Masking;

use crate::harness::sample_request::{Sample, get};

fn key(parts: &str, missing: Missing) -> Key {
    Key { missing, ..Key::new(parts.split(' ').map(|part| Part::parse(part).unwrap()).collect()) }
}

/// Several values are one key together.
fn joining(parts: &str) -> Key {
    Key { repeated: Some(Repeated::Join), ..key(parts, Missing::Ip) }
}

fn claim(key: &Key, sample: &Sample) -> KeyResult {
    sample.ask(|request| key.claim(&KeySecret::Process([7; 16]), request.matched_by("route", true)))
}

fn fingerprint(parts: &str, sample: &Sample) -> Fingerprint {
    match claim(&joining(parts), sample) {
        KeyResult::Key(fingerprint) => fingerprint,
        other => panic!("{parts} gave {other:?}"),
    }
}

fn same(parts: &str, one: &Sample, other: &Sample) -> bool {
    fingerprint(parts, one) == fingerprint(parts, other)
}

#[test]
fn each_part_sees_its_own_piece_of_the_request() {
    let one = get("/a?q=1").host("a.test").header("x-key", "k1").header("cookie", "sid=s1").from("192.0.2.1");
    let other =
        get("/b?q=2").host("b.test").header("x-key", "k2").header("cookie", "sid=s2").from("192.0.2.2");
    let other = other.method("PUT");
    for part in ["ip", "header:x-key", "cookie:sid", "query:q", "host", "path", "method"] {
        assert!(!same(part, &one, &other), "{part}");
        assert!(same(part, &one, &one.clone().header("x-other", "1")), "{part}");
    }
    for part in ["global", "route"] {
        assert!(same(part, &one, &other), "{part}");
    }
    assert!(!same("global ip", &one, &other));
}

#[test]
fn secret_route_and_path_form_are_part_of_the_claim() {
    for secret in [|byte| KeySecret::Process([byte; 16]), |byte| KeySecret::Fleet([byte; 32])] {
        let ask = |parts: &str, byte: u8, route: &str, merge_slashes| {
            let key = key(parts, Missing::Ip);
            get("//a").ask(|request| key.claim(&secret(byte), request.matched_by(route, merge_slashes)))
        };
        assert_eq!(ask("ip", 1, "r", true), ask("ip", 1, "s", false));
        assert_ne!(ask("ip", 1, "r", true), ask("ip", 2, "r", true));
        assert_ne!(ask("route", 1, "r", true), ask("route", 1, "s", true));
        assert_ne!(ask("path", 1, "r", true), ask("path", 1, "r", false));
    }
}

#[test]
fn each_policy_has_a_counter_of_its_own() {
    let owner = fingerprint("ip", &get("/"));
    assert_ne!(owner.of_policy(1), owner.of_policy(2));
    assert_ne!(owner.of_policy(1), fingerprint("ip", &get("/").from("192.0.2.9")).of_policy(1));
}

/// Gateways that share their counters must name them alike.
#[test]
fn a_fleets_fingerprint_is_the_keyed_blake3_of_the_text() {
    for length in [1, 40, 64 - 17, 64 - 16, 200, 5_000] {
        let value = "k".repeat(length);
        let mut text = vec![1];
        text.extend(1_u64.to_le_bytes());
        text.extend((length as u64).to_le_bytes());
        text.extend(value.as_bytes());
        let hash = blake3::keyed_hash(&[7; 32], &text);
        let expected = u128::from_le_bytes(hash.as_bytes()[..16].try_into().unwrap());
        let key = key("header:x-key", Missing::Ip);
        let sample = get("/").header("x-key", &value);
        let claim =
            sample.ask(|request| key.claim(&KeySecret::Fleet([7; 32]), request.matched_by("route", true)));
        assert_eq!(claim, KeyResult::Key(Fingerprint(expected)), "{length}");
    }
}

/// Computed by hand from the text that the module describes, with another SipHash.
#[test]
fn a_fingerprint_is_the_hash_of_the_text_that_is_documented() {
    let mut text = vec![1];
    text.extend(2_u64.to_le_bytes());
    for value in ["a", "bc"] {
        text.extend((value.len() as u64).to_le_bytes());
        text.extend(value.as_bytes());
    }
    text.push(254);
    text.extend(4_u64.to_le_bytes());
    text.extend([192, 0, 2, 1]);
    text.push(8);
    let expected = siphasher::sip128::SipHasher13::new_with_key(&[7; 16]).hash(&text).as_u128();
    let sample = get("/").header("x-key", "a").header("x-key", "bc");
    assert_eq!(fingerprint("header:x-key cookie:sid global", &sample), Fingerprint(expected));
}

#[test]
fn a_header_is_all_its_values_byte_for_byte() {
    let with = |values: &[&[u8]]| values.iter().fold(get("/"), |sample, value| sample.header("X-Key", value));
    let distinct: &[&[&[u8]]] = &[
        &[b"a", b"b"],
        &[b"b", b"a"],
        &[b"a, b"],
        &[b"a,b"],
        &[b"ab"],
        &[b"a"],
        &[b"A"],
        &[b"a", b""],
        &[b"", b"a"],
        &[b"\xff"],
        &[b"\xfe"],
        &[&[b'k'; 8000]],
        &[&[b'k'; 8001]],
    ];
    for (place, one) in distinct.iter().enumerate() {
        assert!(same("header:x-KEY", &with(one), &with(one)));
        for other in &distinct[place + 1..] {
            assert!(!same("header:x-key", &with(one), &with(other)), "{one:?} and {other:?}");
        }
    }
}

#[test]
fn composite_parts_never_run_together() {
    let pair = |a: &str, b: &str| get("/").header("a", a).header("b", b);
    assert!(!same("header:a header:b", &pair("a:b", "c"), &pair("a", "b:c")));
    assert!(!same("header:a header:b", &pair("x", "yz"), &pair("xy", "z")));
    assert!(!same("header:a header:b", &pair("x", "y"), &pair("y", "x")));
}

/// How backends read them: escapes decoded, quotes left away.
#[test]
fn a_cookie_is_its_decoded_value() {
    let with = |lines: &[&str]| lines.iter().fold(get("/"), |sample, line| sample.header("cookie", line));
    let expected = with(&["sid=abc"]);
    let cases: &[&[&str]] = &[
        &["other=1; sid=abc; sid=abc"],
        &["sid=\"abc\""],
        &["sid=%61bc"],
        &["sid=\"a%62%63\""],
        &["  sid = abc  "],
        &["other=1;sid=abc"],
        &["other=1", "sid=abc", "sid=%61bc"],
        &["xsid=1; SID=2; sid; =3; sid=abc"],
    ];
    for lines in cases {
        assert!(same("cookie:sid", &expected, &with(lines)), "{lines:?}");
        let strict = key("cookie:sid", Missing::Deny);
        assert_eq!(claim(&strict, &expected), claim(&strict, &with(lines)), "{lines:?}");
    }
    assert!(!same("cookie:sid", &with(&["sid=a=b"]), &with(&["sid=a"])), "a value may hold `=`");
    assert!(!same("cookie:sid", &with(&["sid=100%"]), &with(&["sid=100"])), "a bad escape stays");
    assert!(!same("cookie:sid", &with(&["sid=a+b"]), &with(&["sid=a b"])), "`+` is not a blank");
}

#[test]
fn a_query_parameter_is_its_decoded_value() {
    let expected = get("/?q=a+b%2Bc");
    for query in ["q=a%20b%2bc", "x=1&q=a+b%2Bc&q=%61+b%2Bc", "&&%71=%61+b%2bc", "xq=1&Q=2&q=a+b%2bc"] {
        assert!(same("query:q", &expected, &get(&format!("/?{query}"))), "{query}");
    }
    assert!(!same("query:q", &get("/?q=100%"), &get("/?q=100")), "a bad escape stays");
    assert!(
        same("query:a%20b", &get("/?a%2520b=1"), &get("/?x&a%2520b=1")),
        "names in the file are plain text"
    );
}

/// Several values of each kind of part, in requests that have nothing else in common with one that has a single value.
fn several() -> [(&'static str, Sample, Sample); 5] {
    let one = get("/?q=a").header("x-key", "a").header("cookie", "sid=a");
    [
        ("header:x-key", get("/").header("x-key", "a").header("X-KEY", "b"), one.clone()),
        ("header:x-key", get("/").header("x-key", "a").header("x-key", ""), one.clone()),
        ("query:q", get("/?q=a&x=1&q=b"), one.clone()),
        ("query:q", get("/?q=&%71=a"), one.clone()),
        ("cookie:sid", get("/").header("cookie", "sid=a; sid=b"), one),
    ]
}

#[test]
fn several_values_are_refused_missing_or_one_key() {
    for (part, sample, one) in several() {
        for missing in [Missing::Ip, Missing::Shared, Missing::Skip, Missing::Deny] {
            let with = |repeated| claim(&Key { repeated, ..key(part, missing) }, &sample);
            let absent = claim(&key(part, missing), &get("/"));
            assert_eq!(with(Some(Repeated::Deny)), KeyResult::Repeated, "{part}");
            assert_eq!(with(Some(Repeated::Missing)), absent, "{part}");
            let joined = with(Some(Repeated::Join));
            assert!(matches!(joined, KeyResult::Key(_)) && joined != absent, "{part}");
            assert_ne!(joined, claim(&key(part, missing), &one), "{part}");
            let default = if part.starts_with("cookie") { absent } else { KeyResult::Repeated };
            assert_eq!(with(None), default, "{part}");
        }
    }
    let join = |query: &str| claim(&joining("query:q"), &get(query));
    assert_eq!(join("/?q=a&q=b"), join("/?q=%61&x&q=b"));
    for other in ["/?q=b&q=a", "/?q=a&q=b&q=a", "/?q=ab", "/?q=a&q=", "/?q=a,+b"] {
        assert_ne!(join("/?q=a&q=b"), join(other), "{other}");
    }
}

#[test]
fn each_part_of_a_composite_has_its_own_default() {
    let both = get("/?q=a").header("cookie", "sid=a; sid=b");
    let composite = key("cookie:sid query:q", Missing::Shared);
    assert_eq!(claim(&composite, &both), claim(&composite, &get("/?q=a")));
    let repeated = get("/?q=a&q=b").header("cookie", "sid=a");
    assert_eq!(claim(&composite, &repeated), KeyResult::Repeated);
    let all = Key { repeated: Some(Repeated::Deny), ..composite.clone() };
    assert_eq!(claim(&all, &both), KeyResult::Repeated);
    // Whatever else is missing, and wherever.
    for parts in ["header:x-key query:q", "query:q header:x-key"] {
        for missing in [Missing::Ip, Missing::Shared, Missing::Skip, Missing::Deny] {
            assert_eq!(claim(&key(parts, missing), &repeated), KeyResult::Repeated, "{parts}");
        }
    }
}

#[test]
fn missing_says_what_happens_without_a_value() {
    let absent = [
        get("/"),
        get("/?q").header("x-key", "").header("cookie", "sid=; other=1"),
        get("/?q=&q=").header("x-key", "").header("x-key", "").header("cookie", "sid=\"\"; sid="),
    ];
    for part in ["header:x-key", "cookie:sid", "query:q"] {
        for sample in &absent {
            assert_eq!(claim(&key(part, Missing::Skip), sample), KeyResult::Skip, "{part}");
            assert_eq!(claim(&key(part, Missing::Deny), sample), KeyResult::Deny, "{part}");
            let elsewhere = sample.clone().from("192.0.2.2");
            let (ip, shared) = (key(part, Missing::Ip), key(part, Missing::Shared));
            assert_ne!(claim(&ip, sample), claim(&ip, &elsewhere), "{part}");
            assert_eq!(claim(&shared, sample), claim(&shared, &elsewhere), "{part}");
            assert_ne!(claim(&ip, sample), claim(&shared, sample), "{part}");
        }
    }
    let present = get("/").header("x-key", "k");
    assert_eq!(
        claim(&key("header:x-key", Missing::Skip), &present),
        claim(&key("header:x-key", Missing::Ip), &present)
    );
}

#[test]
fn of_a_composite_only_the_missing_part_is_replaced() {
    let shared = key("header:a header:b", Missing::Shared);
    let with = |a: &str| get("/").header("a", a);
    assert_ne!(claim(&shared, &with("1")), claim(&shared, &with("2")));
    assert_eq!(claim(&shared, &with("1")), claim(&shared, &with("1").from("192.0.2.2")));
    let ip = key("header:a header:b", Missing::Ip);
    assert_ne!(claim(&ip, &with("1")), claim(&ip, &with("1").from("192.0.2.2")));
    assert_ne!(claim(&ip, &with("1")), claim(&ip, &get("/").header("b", "1")));
    assert_eq!(claim(&key("ip header:a", Missing::Deny), &get("/")), KeyResult::Deny);
}

#[test]
fn a_header_never_passes_for_the_address_that_stands_in() {
    let address = Ipv4Addr::new(192, 168, 200, 201);
    let stands_in = get("/").from(&address.to_string());
    assert!(!same("header:x-key", &stands_in, &get("/").header("x-key", address.octets())));
    assert!(!same("header:x-key", &stands_in, &get("/").header("x-key", address.to_string())));
    assert!(!same("cookie:sid", &stands_in, &get("/").header("cookie", format!("sid={address}"))));
}

#[test]
fn clients_of_one_network_share_an_allowance() {
    let from = |address: &str| get("/").from(address);
    assert!(same("ip", &from("2001:db8:1:2::1"), &from("2001:db8:1:2:ffff::9")));
    assert!(!same("ip", &from("2001:db8:1:2::1"), &from("2001:db8:1:3::1")));
    assert!(same("ip", &from("::ffff:192.0.2.1"), &from("192.0.2.1")));
}

proptest! {
    #[test]
    fn claims_are_equal_only_if_all_values_are(
        one in prop::collection::vec("[ab]{0,3}", 0..4),
        other in prop::collection::vec("[ab]{0,3}", 0..4),
    ) {
        let with = |values: &[String]| values.iter().fold(get("/"), |sample, value| sample.header("x-key", value));
        let present = |values: &[String]| values.iter().any(|value| !value.is_empty());
        // Equal values are one.
        let one_of = |values: &[String]| {
            if values.iter().all(|value| *value == values[0]) { values[..values.len().min(1)].to_vec() } else { values.to_vec() }
        };
        let equal = if present(&one) || present(&other) { one_of(&one) == one_of(&other) } else { true };
        prop_assert_eq!(same("header:x-key", &with(&one), &with(&other)), equal);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![32..127_u8, 128..=255_u8], 0..40), query in "[a-z%&=+;]{0,30}") {
        let sample = get(&format!("/?{query}")).header("cookie", &bytes).header("x-key", &bytes);
        for missing in [Missing::Ip, Missing::Deny] {
            let key = key("header:x-key cookie:a query:a", missing);
            claim(&key, &sample);
            sample.ask(|request| key.describe(request.matched_by("route", true), Masking::Off));
        }
    }
}
