//! Streams of documents: lists whose elements are documents, lines of JSON, and documents in a row.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Deserializer, Value as Json};
use tollgate::measure::Reading::{self, Absent, Unreadable, Value};
use tollgate::measure::{BodyFormat, BodyScanner};

use crate::harness::body_scan::{CODINGS, coded, json, scan, scan_cut, scan_lines, scan_part};
use crate::harness::random_json::{
    bytes, document, expected, last_of, leads_into_each, pieces, pointers, runner,
};

/// Gemini's list, as it is streamed.
const LIST: &str = r#"[{"candidates":[{"content":{"parts":[{"text":"a]},{"}]}}],"usageMetadata":{"totalTokenCount":9}}
,
{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":31},"modelVersion":"x"}
]"#;
/// Ollama's lines.
const LINES: &str = "{\"message\":{\"content\":\"\\n{\\\"eval_count\\\":7}\"},\"done\":false}\n\
    {\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":26,\"eval_count\":298}\n";

#[test]
fn a_pointer_leads_into_each_element_of_a_list() {
    for (at, text, expected) in [
        ("/usageMetadata/totalTokenCount", LIST, Value(31)),
        ("/usageMetadata/promptTokenCount", LIST, Value(4)),
        ("/n", r#"[{"n":1},{"n":2}]"#, Value(2)),
        ("/n", r#" [ {"n":1} , {"n":2} ] "#, Value(2)),
        ("/n", "\u{feff}[{\"n\":1}]", Value(1)),
        ("/n", r#"[{"n":1},{"x":[{"n":3}]},{}]"#, Value(1)),
        ("/n", r#"[{"n":1},{"n":null}]"#, Value(1)),
        ("/n", r#"[{"n":1},{"n":"2"}]"#, Unreadable),
        ("/n", r#"[{"n":"2"},{"n":1}]"#, Value(1)),
        ("/n", r#"[{"n":1,"n":2},3,"n",[{"n":4}],null,true]"#, Value(2)),
        ("/n", "[]", Absent),
        ("/n", "[[]]", Absent),
        // Only the outermost list is a stream.
        ("/n", r#"[[{"n":4}]]"#, Absent),
        ("/a/n", r#"{"a":[{"n":4}]}"#, Absent),
        ("/a/n", r#"[{"a":[{"n":4}]},{"a":{"n":5}}]"#, Value(5)),
        ("/a/1", r#"[{"a":[1,2]},{"a":[3]}]"#, Value(2)),
        // An index means this element.
        ("/0/n", r#"[{"n":1},{"n":2}]"#, Value(1)),
        ("/1/n", r#"[{"n":1},{"n":2}]"#, Value(2)),
        ("/0/n", r#"[{"0":{"n":1}}]"#, Absent),
        ("/0/n", r#"{"0":{"n":1}}"#, Value(1)),
        ("/-/n", r#"[{"-":{"n":1}}]"#, Value(1)),
        ("/00/n", r#"[{"00":{"n":1}}]"#, Value(1)),
        // The whole document is the list.
        ("", r#"[1,2]"#, Unreadable),
        // Documents follow each other.
        ("/n", "[{\"n\":1},{\"n\":2}]\n[{\"n\":3}]", Value(3)),
        ("/n", "[{\"n\":1}]{\"n\":2}", Value(2)),
        ("/n", "{\"n\":1}\n[{\"n\":2},{}]", Value(2)),
    ] {
        assert_eq!(scan_cut(&json(at), "", text.as_bytes()), expected, "{at} in {text}");
        let line = scan_lines(&[json(at)], "", [text.as_bytes()]);
        assert_eq!(line, [expected], "{at} in the line {text}");
    }
}

#[test]
fn each_source_of_a_list_has_its_own_depth() {
    let sources = ["/n", "/1/n", "/0", "/a/b", "/1/a/b", "/1/x/0/y"].map(json);
    let text = r#"[{"n":1,"a":{"b":2}},{"a":{"b":3},"n":4,"x":[{"y":6}]},{"n":5}]"#;
    let expected = [Value(5), Value(4), Unreadable, Value(3), Value(3), Value(6)];
    for piece in [1, 2, 3, 5, 100] {
        assert_eq!(scan(&sources, "", text.as_bytes().chunks(piece)), expected);
    }
}

#[test]
fn lines_have_the_value_of_the_last_that_has_it() {
    let sources = [json("/prompt_eval_count"), json("/eval_count"), json("/done")];
    for piece in 1..LINES.len() {
        let found = scan_lines(&sources, "", LINES.as_bytes().chunks(piece));
        assert_eq!(found, [Value(26), Value(298), Unreadable], "by {piece}");
    }
    for coding in CODINGS {
        let body = coded(coding, LINES.as_bytes());
        for at in 0..=body.len() {
            let (first, rest) = body.split_at(at);
            assert_eq!(scan_lines(&sources[..2], coding, [first, rest]), [Value(26), Value(298)], "{coding}");
        }
    }
    let found = scan_lines(&sources[..1], "", [&b"{\"prompt_eval_count\":1}\r\n\r\n  \n{}\nwhat?\n{}"[..]]);
    assert_eq!(found, [Value(1)], "what stood before the fault");
    assert_eq!(scan_lines(&sources[..1], "", [&b"what?"[..]]), [Unreadable]);
    let many: Vec<_> = (0..40).map(|_| json("/a")).collect();
    assert_eq!(scan_lines(&many, "", [&b"{\"a\":1}"[..]]).len(), 40);
}

#[test]
fn each_coding_of_a_list_is_decoded_at_any_cut() {
    for coding in CODINGS {
        let body = coded(coding, LIST.as_bytes());
        assert_eq!(scan_cut(&json("/usageMetadata/totalTokenCount"), coding, &body), Value(31), "{coding}");
    }
}

/// The complete elements of a list, or documents, of a text that breaks off, as a parser finds them: the last value.
fn of_complete(text: &str, at: &str) -> Reading {
    let list = text.trim_start().strip_prefix('[');
    let mut rest = list.unwrap_or(text);
    let mut found = Absent;
    loop {
        rest = rest.trim_start_matches([' ', '\n', ',']);
        let mut stream = Deserializer::from_str(rest).into_iter::<Json>();
        let Some(Ok(document)) = stream.next() else { return found };
        let reading = expected(document.pointer(at));
        found = if reading == Absent { found } else { reading };
        rest = &rest[stream.byte_offset()..];
    }
}

#[test]
fn a_value_is_never_taken_from_a_cut_document() {
    for (is_lines, text) in [(false, LIST), (true, LINES)] {
        for at in ["/usageMetadata/totalTokenCount", "/usageMetadata/promptTokenCount", "/eval_count"] {
            for length in (0..=text.len()).filter(|length| text.is_char_boundary(*length)) {
                let part = &text[..length];
                let (found, awaits) = scan_part(&[json(at)], is_lines, part.as_bytes());
                assert_eq!(found, [of_complete(part, at)], "{at} in {part}");
                let is_over = match is_lines {
                    true => length >= LINES.len() - 1,
                    false => length == 0 || length == LIST.len(),
                };
                assert_eq!(awaits, !is_over, "{part}");
            }
        }
    }
}

/// The first document of a body may be its only one, so its values count as soon as they are complete.
#[test]
fn from_the_second_document_on_a_body_is_a_stream() {
    for (part, is_lines, expected, awaits) in [
        ("{\"n\":1,", false, Value(1), false),
        ("{\"n\":1}", false, Value(1), false),
        ("{\"n\":1}\n", false, Value(1), false),
        ("{\"n\":1}\n{\"n\":2,", false, Value(1), true),
        ("{\"n\":1}{\"n\":2}", false, Value(2), true),
        ("[{\"n\":1,", false, Absent, true),
        ("[{\"n\":1},{\"n\":2,", false, Value(1), true),
        ("[{\"n\":1},{\"n\":2}", false, Value(2), true),
        ("[{\"n\":1},{\"n\":2}]", false, Value(2), false),
        ("[{\"n\":1}]{", false, Value(1), true),
        ("[{\"n\":1},x", false, Value(1), true),
        ("{\"n\":1,", true, Absent, true),
        ("{\"n\":1}", true, Value(1), true),
        ("{\"n\":1}\n{\"n\":2,", true, Value(1), true),
        ("{\"n\":1,\"done\":true}", true, Value(1), false),
        ("{\"n\":1,\"done\":true}\n", true, Value(1), false),
        ("{\"n\":1,\"done\":true,", true, Absent, true),
        ("{\"n\":1,\"done\":true}\n{", true, Value(1), true),
        ("{\"n\":1,\"done\":true}\n{\"n\":2}\n", true, Value(2), true),
        ("{\"n\":1,\"done\":true}\nx", true, Value(1), true),
        ("{\"n\":1,\"done\":true,\"done\":false}\n", true, Value(1), true),
        ("{\"n\":1,\"done\":false}\n", true, Value(1), true),
        ("{\"n\":1,\"done\":\"true\"}\n", true, Value(1), true),
        ("{\"n\":1,\"done\":1}\n", true, Value(1), true),
        ("{\"n\":1,\"x\":{\"done\":true}}\n", true, Value(1), true),
        ("{\"n\":1,\"done\":tru}\n", true, Absent, true),
        // Not said by lines: their content type is another.
        ("{\"n\":1}\n{\"n\":2,\"done\":true}\n", false, Value(2), true),
    ] {
        let (found, awaited) = scan_part(&[json("/n")], is_lines, part.as_bytes());
        let found = found[0];
        let is_faulty = part.contains("tru}");
        assert_eq!((found, awaited), (if is_faulty { Unreadable } else { expected }, awaits), "{part}");
    }
    // The digits of a number that is a whole document may go on.
    assert_eq!(scan_part(&[json("")], false, b"12").0, [Absent]);
    assert_eq!(scan_part(&[json("")], true, b"12\n13").0, [Value(12)]);
    assert_eq!(scan_lines(&[json("")], "", [&b"12\n13"[..]]), [Value(13)]);
    assert_eq!(scan_part(&[json("")], true, b"12\n{\"a\":").0, [Value(12)]);
    assert_eq!(scan_part(&[json("")], true, b"12\n\"a").0, [Value(12)]);
}

#[test]
fn content_types_tell_the_form_of_a_body() {
    for (content_type, format) in [
        ("application/x-ndjson", BodyFormat::Lines),
        ("Application/NDJSON; charset=utf-8", BodyFormat::Lines),
        (" application/jsonl ;a=b", BodyFormat::Lines),
        ("application/x-jsonl", BodyFormat::Lines),
        ("application/jsonlines", BodyFormat::Lines),
        ("application/x-jsonlines", BodyFormat::Lines),
        ("application/stream+json", BodyFormat::Lines),
        ("text/event-stream", BodyFormat::Events),
        ("application/json", BodyFormat::Document),
        ("application/x-ndjsons", BodyFormat::Document),
        ("x-ndjson", BodyFormat::Document),
        ("", BodyFormat::Document),
    ] {
        assert_eq!(BodyFormat::of(content_type.as_bytes()), format, "{content_type}");
    }
}

/// The pointers of all documents whose first token is no index, at most 31.
fn pointers_of(documents: &[Json], other: String) -> Vec<String> {
    let mut all = vec![other];
    documents.iter().filter(|document| document.is_object()).for_each(|document| {
        pointers(document, "", &mut all);
    });
    all.retain(|at| leads_into_each(at));
    all.truncate(31);
    all
}

/// Lists and lines of random documents, whole and cut at any byte: a parser finds the same.
#[test]
fn a_stream_has_what_a_parser_finds() {
    let cut = any::<prop::sample::Index>();
    let strategy = (vec(document(), 0..6), vec(1..20_usize, 1..6), "(/[ab~é]){1,2}", cut);
    let check = |(documents, lengths, other, cut): (Vec<Json>, Vec<usize>, String, prop::sample::Index)| {
        let all = pointers_of(&documents, other.replace('~', "~0"));
        let sources: Vec<_> = all.iter().map(|at| json(at)).collect();
        // A list in a row of documents is a stream of its own, and one in a list is not.
        let expected: Vec<Reading> = all.iter().map(|at| last_of(&documents, at)).collect();
        let list = Json::Array(documents.clone());
        for text in [list.to_string(), serde_json::to_string_pretty(&list).expect("it is written")] {
            for lengths in [&lengths[..], &[1], &[1 << 20]] {
                let found = scan(&sources, "", pieces(text.as_bytes(), lengths));
                prop_assert_eq!(&found, &expected, "{:?} in {}", &all, &text);
            }
            let coding = CODINGS[text.len() % CODINGS.len()];
            let found = scan(&sources, coding, pieces(&coded(coding, text.as_bytes()), &lengths));
            prop_assert_eq!(&found, &expected, "{:?} in {}", &all, &text);
        }
        let objects: Vec<Json> = documents.into_iter().filter(|document| !document.is_array()).collect();
        let lines: String = objects.iter().map(|document| format!("{document}\n")).collect();
        let expected: Vec<Reading> = all.iter().map(|at| last_of(&objects, at)).collect();
        prop_assert_eq!(scan_lines(&sources, "", pieces(lines.as_bytes(), &lengths)), expected.clone());
        prop_assert_eq!(scan(&sources, "", pieces(lines.as_bytes(), &lengths)), expected);
        let length = cut.index(lines.len() + 1);
        // A line is complete with its last byte; one that is no object has no values of these pointers.
        let whole = lines.as_bytes()[..length].iter().filter(|byte| **byte == b'\n').count();
        let ends_object = lines.as_bytes().get(length) == Some(&b'\n');
        let complete = &objects[..(whole + usize::from(ends_object)).min(objects.len())];
        let expected: Vec<Reading> = all.iter().map(|at| last_of(complete, at)).collect();
        let (found, _) = scan_part(&sources, true, &lines.as_bytes()[..length]);
        prop_assert_eq!(found, expected, "{:?} in {} bytes of {}", &all, length, &lines);
        Ok(())
    };
    runner(300).run(&strategy, check).expect("no case differs");
}

/// Whatever the bytes are, lines mean the same in any pieces.
#[test]
fn random_lines_mean_the_same_in_any_pieces() {
    let sources = [json("/a/0/a"), json(""), json("/a"), json("/0/a")];
    let strategy = (bytes(), vec(1..9_usize, 1..5));
    let state = |body: &[u8], lengths: &[usize]| {
        let mut scanner = BodyScanner::lines(&sources, b"");
        pieces(body, lengths).into_iter().for_each(|piece| scanner.scan(piece));
        let ends = (scanner.is_at_end(), scanner.awaits_document());
        (scanner.finish(false).to_vec(), ends, scanner.finish(true).to_vec())
    };
    let check = |(body, lengths): (Vec<u8>, Vec<usize>)| {
        let whole = state(&body, &[1 << 20]);
        prop_assert_eq!(state(&body, &lengths), whole.clone());
        prop_assert_eq!(state(&body, &[1]), whole);
        Ok(())
    };
    runner(3_000).run(&strategy, check).expect("no case differs");
}
