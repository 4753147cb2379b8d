//! Values of JSON documents, found by their pointers.

use tollgate::measure::Reading::{Absent, Unreadable, Value};
use tollgate::measure::pointer::MAX_TOKENS;
use tollgate::measure::{BodySource, JsonPointer, PointerFault, Reading};

use crate::harness::body_scan::{json, pointer, scan, scan_cut};

fn check(rows: &[(&str, &str, Reading)]) {
    for (at, text, expected) in rows {
        assert_eq!(scan_cut(&json(at), "", text.as_bytes()), *expected, "{at} in {text}");
    }
}

#[test]
fn a_pointer_is_parsed_and_shown_as_written() {
    for text in ["", "/", "/usage/total_tokens", "/a~1b/~0/0", "//x", "/é"] {
        assert_eq!(pointer(text).to_string(), text);
    }
    assert_eq!(JsonPointer::parse("usage"), Err(PointerFault::NotAbsolute));
    for text in ["/~", "/a~2", "/~~0"] {
        assert_eq!(JsonPointer::parse(text), Err(PointerFault::Tilde), "{text}");
    }
    assert!(JsonPointer::parse(&"/a".repeat(MAX_TOKENS)).is_ok());
    assert_eq!(JsonPointer::parse(&"/a".repeat(MAX_TOKENS + 1)), Err(PointerFault::TooLong));
}

#[test]
fn a_pointer_leads_through_objects_and_arrays() {
    check(&[
        ("/usage/total_tokens", r#"{"id":"x","usage":{"prompt_tokens":1,"total_tokens":43}}"#, Value(43)),
        ("/usage/total_tokens", "{ \"usage\" : {\r\n\t\"total_tokens\" : 43 } }\n", Value(43)),
        ("/a/b", r#"{"b":1,"x":{"a":{"b":2}},"a":{"x":{"b":3},"b":4}}"#, Value(4)),
        ("/a/b", r#"{"a":[{"b":1}],"b":2}"#, Absent),
        ("/a/b", r#"{"a":"b","b":2}"#, Absent),
        ("/a/1/b", r#"{"a":[{"b":1},{"b":2},{"b":3}]}"#, Value(2)),
        ("/1", "[[1,2],3,[4]]", Value(3)),
        ("/0/0/1", "[[[1,2]]]", Value(2)),
        ("/01", "[1,2]", Absent),
        ("/-", "[1,2]", Absent),
        ("/1", r#"{"1":7}"#, Value(7)),
        ("/", r#"{"":7}"#, Value(7)),
        ("//a", r#"{"":{"a":7}}"#, Value(7)),
        ("/a~1b", r#"{"a/b":7}"#, Value(7)),
        ("/~01", r#"{"~1":7}"#, Value(7)),
        ("", "7", Value(7)),
        ("", " 7 ", Value(7)),
        ("", "\u{feff}7", Value(7)),
        ("/a", "\u{feff}{\"a\":7}", Value(7)),
        ("/a", "", Absent),
        ("/a", "{}", Absent),
        ("/a/0", "{\"a\":[]}", Absent),
        ("/a", r#"{"x":"}\\\"a\":1","a":2}"#, Value(2)),
        ("/a", r#"{"x":["\\\\","]}\"[{"],"a":2}"#, Value(2)),
    ]);
}

#[test]
fn keys_are_compared_without_their_escapes() {
    check(&[
        ("/usage", r#"{"us\u0061ge":1}"#, Value(1)),
        ("/usage", r#"{"\u0075\u0073\u0061\u0067\u0065":1}"#, Value(1)),
        ("/a\"\\/~0\n", r#"{"a\"\\":{"~\n":1}}"#, Value(1)),
        ("/a~1\t\r\u{8}\u{c}", r#"{"a\/\t\r\b\f":1}"#, Value(1)),
        ("/é😀", r#"{"\u00e9\uD83D\uDE00":1}"#, Value(1)),
        ("/é😀", r#"{"é😀":1}"#, Value(1)),
        ("/a", r#"{"a\ud800":1,"\ud800a":2,"\udc00a":3,"a\ud800\ud800":4,"\ud83dA":5}"#, Absent),
        ("/ab", r#"{"a":1,"abc":2,"aB":3,"b":4}"#, Absent),
        ("/a", r#"{"\x61":1,"a":2}"#, Unreadable),
        ("/a", r#"{"\u00g1":1,"a":2}"#, Unreadable),
    ]);
    let long = "k".repeat(100_000);
    let text = format!("{{\"{long}\":1,\"{long}x\":2,\"k\":3}}");
    let found = scan(&[json("/k"), json(&format!("/{long}"))], "", text.as_bytes().chunks(7));
    assert_eq!(found, [Value(3), Value(1)]);
}

#[test]
fn only_numbers_from_zero_on_are_values() {
    let rows = [
        ("0", Value(0)),
        ("-0", Value(0)),
        ("-0.0e5", Value(0)),
        ("1.0", Value(1)),
        ("1.2", Value(2)),
        ("12e2", Value(1200)),
        ("12E-1", Value(2)),
        ("1e400", Value(u64::MAX)),
        ("1e-9", Value(1)),
        ("18446744073709551615", Value(u64::MAX)),
        ("18446744073709551614", Value(u64::MAX - 1)),
        ("9007199254740993", Value(9_007_199_254_740_993)),
        ("9007199254740992.5", Value(9_007_199_254_740_993)),
        ("-1", Unreadable),
        ("-0.1", Unreadable),
        ("\"12\"", Unreadable),
        ("true", Unreadable),
        ("false", Unreadable),
        ("{}", Unreadable),
        ("[1]", Unreadable),
        ("null", Absent),
        ("NaN", Unreadable),
        ("Infinity", Unreadable),
        ("01", Unreadable),
        ("+1", Unreadable),
        ("1.", Unreadable),
        ("0x10", Unreadable),
        ("nul", Unreadable),
        ("", Unreadable),
    ];
    for (number, expected) in rows {
        check(&[
            ("/a", &format!("{{\"a\":{number}}}"), expected),
            ("/a", &format!("{{\"a\": {number} ,\"b\":1}}"), expected),
            ("/0", &format!("[{number}]"), if number.is_empty() { Absent } else { expected }),
        ]);
    }
}

#[test]
fn the_last_of_several_values_counts() {
    check(&[
        ("/a", r#"{"a":1,"a":2}"#, Value(2)),
        ("/a", r#"{"a":1,"a":null}"#, Absent),
        ("/a", r#"{"a":1,"a":"2"}"#, Unreadable),
        ("/a/b", r#"{"a":{"b":1},"a":{}}"#, Absent),
        ("/a", "{\"a\":1}\n{\"a\":2}\n", Value(2)),
        ("/a", "{\"a\":1}{\"b\":2}", Value(1)),
        ("/a", "{\"a\":1}\n{\"a\":null}", Value(1)),
        ("/a", "{\"a\":1}\n{\"a\":\"x\"}", Unreadable),
        ("", "1 2\n3", Value(3)),
    ]);
}

#[test]
fn what_is_no_json_is_unreadable_unless_a_value_came_before() {
    check(&[
        ("/a", "<html>{\"a\":1}</html>", Unreadable),
        ("/a", "hello", Unreadable),
        ("/a", "{a:1}", Unreadable),
        ("/a", "{\"a\" 1}", Unreadable),
        ("/a", "{\"a\":1 2}", Value(1)),
        ("/a", "{\"a\":1]", Value(1)),
        ("/a", "{\"a\":1x}", Unreadable),
        ("/a", "{,\"a\":1}", Unreadable),
        ("/a", "{\"b\":1,}", Unreadable),
        ("/a", "{\"a\"::1}", Unreadable),
        ("/a", "]", Unreadable),
        ("/a", "{\"a\":1}}", Value(1)),
        ("/1", "[1;2]", Unreadable),
        ("/a", "{\"a\":1},{\"a\":2}", Value(1)),
    ]);
}

#[test]
fn a_body_that_breaks_off_has_its_complete_values() {
    let text = r#"{"a":12,"b":{"c":34}}"#;
    let sources = [json("/a"), json("/b/c"), json("/b")];
    for length in 0..=text.len() {
        let found = scan(&sources, "", [&text.as_bytes()[..length]]);
        // A number ends at the byte behind it.
        let first = if length > 7 { Value(12) } else { Absent };
        let second = if length > 19 { Value(34) } else { Absent };
        let third = if length > 12 { Unreadable } else { Absent };
        assert_eq!(found, [first, second, third], "{length}");
    }
}

#[test]
fn several_sources_are_found_in_one_pass() {
    let text = r#"{"usage":{"in":3,"out":4,"more":[5,6]},"cost":7}"#;
    let sources = ["/usage/in", "/usage/out", "/usage", "/usage/more/1", "/cost", "/usage/in", "/none"];
    let sources: Vec<BodySource> = sources.iter().map(|text| json(text)).collect();
    let expected = [Value(3), Value(4), Unreadable, Value(6), Value(7), Value(3), Absent];
    for piece in [1, 2, 3, 5, 100] {
        assert_eq!(scan(&sources, "", text.as_bytes().chunks(piece)), expected);
    }
    let many: Vec<BodySource> = (0..40).map(|_| json("/cost")).collect();
    let found = scan(&many, "", [text.as_bytes()]);
    assert_eq!(found.len(), 40);
    assert!(found[..32].iter().all(|reading| *reading == Value(7)));
    assert!(found[32..].iter().all(|reading| *reading == Unreadable));
    assert!(scan(&[], "gzip", [text.as_bytes()]).is_empty());
}

#[test]
fn the_depth_of_what_no_pointer_leads_into_has_no_bound() {
    let (open, close) = ("[{\"a\":".repeat(200_000), "}]".repeat(200_000));
    let text = format!("{{\"x\":{open}1{close},\"a\":2}}");
    assert_eq!(scan(&[json("/a")], "", text.as_bytes().chunks(1_000)), [Value(2)]);
}
