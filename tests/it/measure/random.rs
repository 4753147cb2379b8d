//! Random documents, beside what `serde_json` finds, and random bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use tollgate::measure::Reading;

use crate::harness::body_scan::{CODINGS, coded, json, scan, sse};
use crate::harness::random_json::{bytes, document, expected_of, pieces, pointers, runner};

/// A string with each of its characters as an escape.
fn escaped(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// Writes a document with escapes only, and with whitespace wherever it may stand.
fn write_escaped(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(" ,\r\n");
    match value {
        Value::String(text) => escaped(text),
        Value::Array(items) => format!("[ {}\t]", list(items.iter().map(write_escaped).collect())),
        Value::Object(fields) => {
            let pair = |(key, item): (&String, &Value)| format!("{} : {}", escaped(key), write_escaped(item));
            format!("{{ {}\t}}", list(fields.iter().map(pair).collect()))
        }
        other => other.to_string(),
    }
}

#[test]
fn a_scan_finds_what_a_parser_finds() {
    let strategy = (document(), vec(1..20_usize, 1..6), "(/[ab0]){0,3}");
    let check = |(document, lengths, other): (Value, Vec<usize>, String)| {
        let mut all = vec![other];
        pointers(&document, "", &mut all);
        all.truncate(32);
        let expected: Vec<Reading> = all.iter().map(|at| expected_of(&document, at)).collect();
        let sources: Vec<_> = all.iter().map(|at| json(at)).collect();
        let events: Vec<_> = all.iter().map(|at| sse(at)).collect();
        let plain = document.to_string();
        let pretty = serde_json::to_string_pretty(&document).expect("it is written");
        for text in [plain, pretty, write_escaped(&document)] {
            for lengths in [&lengths[..], &[1], &[1 << 20]] {
                let found = scan(&sources, "", pieces(text.as_bytes(), lengths));
                prop_assert_eq!(&found, &expected, "{:?} in {}", &all, &text);
            }
            let lines: String = text.lines().map(|line| format!("data: {line}\n")).collect();
            let found = scan(&events, "", pieces(format!("{lines}\n").as_bytes(), &lengths));
            prop_assert_eq!(&found, &expected, "{:?} in events of {}", &all, &text);
            let coding = CODINGS[text.len() % CODINGS.len()];
            let body = coded(coding, text.as_bytes());
            let found = scan(&sources, coding, pieces(&body, &lengths));
            prop_assert_eq!(&found, &expected, "{:?} in {}", &all, &text);
        }
        Ok(())
    };
    runner(400).run(&strategy, check).expect("no case differs");
}

#[test]
fn random_bytes_mean_the_same_in_any_pieces() {
    let sources = [json("/a/0/a"), sse("/a"), json(""), json("/a"), sse("")];
    let strategy = (bytes(), vec(1..9_usize, 1..5));
    let check = |(body, lengths): (Vec<u8>, Vec<usize>)| {
        let whole = scan(&sources, "", [&body[..]]);
        prop_assert_eq!(scan(&sources, "", pieces(&body, &lengths)), whole.clone());
        prop_assert_eq!(scan(&sources, "", body.chunks(1)), whole);
        Ok(())
    };
    runner(3_000).run(&strategy, check).expect("no case differs");
}

#[test]
fn damaged_codings_mean_the_same_in_any_pieces() {
    let text =
        r#"{"a":[{"a":12},{"b":"a longer text, which is a longer text"}],"b":{"a":34},"a":[{"a":56}]}"#;
    let sources = [json("/a/0/a"), json("/b/a"), sse("/a")];
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let strategy = (select(CODINGS.to_vec()), damage, any::<prop::sample::Index>(), vec(1..30_usize, 1..5));
    let check = |(coding, damage, end, lengths): (
        &str,
        Vec<(prop::sample::Index, u8)>,
        prop::sample::Index,
        Vec<usize>,
    )| {
        let mut body = coded(coding, text.as_bytes());
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(end.index(body.len()) + 1);
        // Decoders may write what they have before they see the damage, or not: a value is the same or none.
        let whole = scan(&sources, coding, [&body[..]]);
        let cut = scan(&sources, coding, pieces(&body, &lengths));
        for (one, other) in whole.iter().zip(&cut) {
            let (one, other) = (value(*one), value(*other));
            prop_assert!(one.is_none() || other.is_none() || one == other, "{:?} and {:?}", one, other);
        }
        Ok(())
    };
    runner(4_000).run(&strategy, check).expect("no case differs");
}

fn value(reading: Reading) -> Option<u64> {
    if let Reading::Value(value) = reading { Some(value) } else { None }
}
