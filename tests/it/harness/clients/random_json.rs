//! Random documents and bytes for scanners of JSON, and what a parser finds in a document.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tollgate::measure::Reading;

/// Cases a property. `PROPTEST_CASES` sets another number.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// Keys and strings with all that a scanner might stumble over.
fn text() -> impl Strategy<Value = String> {
    "[ab0/~é\u{1F600}\"\\\\\n{}\\[\\]:,]{0,12}"
}

/// A document with up to five levels.
pub(crate) fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (0..4_000_u32).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            vec((text(), inner), 0..5).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// The pointers of a value and of all values in it.
pub(crate) fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), all));
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                pointers(item, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        _ => {}
    }
}

/// What a parser finds.
pub(crate) fn expected(found: Option<&Value>) -> Reading {
    match found {
        None | Some(Value::Null) => Reading::Absent,
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => Reading::Value(whole),
            (None, Some(quarters)) if quarters >= 0.0 => {
                Reading::Value(quarters.ceil().to_string().parse().expect("a whole number"))
            }
            _ => Reading::Unreadable,
        },
        Some(_) => Reading::Unreadable,
    }
}

/// Whether a pointer leads into each element of a list that is the whole document: its first token is not an index.
pub(crate) fn leads_into_each(at: &str) -> bool {
    let is_index = |token: &str| {
        token == "0"
            || !token.is_empty() && !token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit())
    };
    at.split('/').nth(1).is_some_and(|token| !is_index(token))
}

/// What a parser finds at a pointer in several documents: the last value.
pub(crate) fn last_of(documents: &[Value], at: &str) -> Reading {
    let readings = documents.iter().map(|document| expected(document.pointer(at)));
    readings.rev().find(|reading| *reading != Reading::Absent).unwrap_or_default()
}

/// What a parser finds at a pointer in a body that is this document.
pub(crate) fn expected_of(document: &Value, at: &str) -> Reading {
    match document {
        Value::Array(elements) if leads_into_each(at) => last_of(elements, at),
        document => expected(document.pointer(at)),
    }
}

/// The pieces of a body in these lengths, again and again.
pub(crate) fn pieces<'b>(body: &'b [u8], lengths: &[usize]) -> Vec<&'b [u8]> {
    let (mut rest, mut pieces) = (body, Vec::new());
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(1, |length| (*length).clamp(1, rest.len()));
        let (piece, behind) = rest.split_at(length);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Bytes that scanners decide by, among others.
pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = select(
        [
            &b"{"[..],
            b"}",
            b"[",
            b"]",
            b"\"",
            b":",
            b",",
            b"\\",
            b"\\u00",
            b"1",
            b"-",
            b"e",
            b".",
            b"a",
            b"\"a\":",
            b"\"done\":",
            b"0",
        ]
        .into_iter()
        .chain([&b"null"[..], b"true", b" ", b"\n", b"\r", b"data:", b"data", b"\xef\xbb\xbf", b"\xff"])
        .collect::<Vec<_>>(),
    );
    vec(
        prop_oneof![9 => token.prop_map(<[u8]>::to_vec), 1 => any::<u8>().prop_map(|byte| vec![byte])],
        0..120,
    )
    .prop_map(|parts| parts.concat())
}
