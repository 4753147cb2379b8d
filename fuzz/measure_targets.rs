//! What the fuzz target asserts of bodies from which values are read.

use std::sync::Arc;

use tollgate::measure::{BodyScanner, BodySource, JsonPointer, Reading};

const CODINGS: [&str; 6] = ["", "gzip", "deflate", "br", "zstd", "zstd, gzip"];

/// What is found in a body that arrives in these pieces, as a document and as lines; whether another document is awaited;
/// and what is found where the rest of the body is missing.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    readings: Vec<Reading>,
    in_lines: Vec<Reading>,
    awaits: [bool; 2],
    of_part: Vec<Reading>,
}

fn scan<'b>(coding: &str, pieces: impl IntoIterator<Item = &'b [u8]>) -> Found {
    let pointer = |text| JsonPointer::parse(text).expect("a pointer");
    let sources: Arc<[BodySource]> = [
        BodySource::Json(pointer("/usage/total_tokens")),
        BodySource::Json(pointer("/data/1")),
        BodySource::Json(pointer("")),
        BodySource::Sse(pointer("/usage/total_tokens")),
    ]
    .into();
    let mut lines = BodyScanner::lines(&sources, coding.as_bytes());
    let mut scanner = BodyScanner::new(sources, coding.as_bytes());
    for piece in pieces {
        scanner.scan(piece);
        lines.scan(piece);
    }
    let awaits = [scanner.awaits_document(), lines.awaits_document()];
    let of_part = [scanner.finish(false), lines.finish(false)].concat();
    let (readings, in_lines) = (scanner.finish(true).to_vec(), lines.finish(true).to_vec());
    assert_eq!(
        (scanner.finish(true).to_vec(), lines.finish(true).to_vec()),
        (readings.clone(), in_lines.clone())
    );
    Found { readings, in_lines, awaits, of_part }
}

/// What a parser finds in a list or a row of documents: the last value, if all of it is JSON.
fn parsed(body: &[u8]) -> Option<Reading> {
    let mut documents = serde_json::Deserializer::from_slice(body).into_iter::<serde_json::Value>();
    let mut found = Reading::Absent;
    while let Some(document) = documents.next() {
        let document = document.ok()?;
        // A parser takes `1{}` for two documents.
        let after = body.get(documents.byte_offset());
        if document.is_number() && after.is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        let elements = document.as_array().map_or(std::slice::from_ref(&document), Vec::as_slice);
        for value in elements.iter().filter_map(|element| element.pointer("/usage/total_tokens")) {
            match value {
                serde_json::Value::Null => {}
                value => found = value.as_u64().map_or(Reading::Unreadable, Reading::Value),
            }
        }
    }
    Some(found)
}

/// A body has the same values in any pieces. The first byte says where it is cut, the second one its coding.
///
/// Of damaged data a decoder may have written more in one piece than in several; values that both find are equal unless
/// a later one stands behind.
pub(crate) fn measured_body(data: &[u8]) {
    let [at, coding, body @ ..] = data else { return };
    let at = usize::from(*at).min(body.len());
    let coding = CODINGS[usize::from(*coding) % CODINGS.len()];
    let whole = scan(coding, [body]);
    let (first, rest) = body.split_at(at);
    let cut = scan(coding, [first, rest]);
    let single = scan(coding, body.chunks(1));
    assert_eq!((whole.readings.len(), whole.in_lines.len()), (4, 4));
    if coding.is_empty() {
        assert_eq!(cut, whole, "cut at {at}");
        assert_eq!(single, whole, "byte for byte");
        // What is read of a whole document, a parser would read.
        if let Reading::Value(units) = whole.readings[2] {
            assert!(units == 0 || body.iter().any(u8::is_ascii_digit));
        }
        // A fraction is rounded up here, and a parser has no whole number for it.
        if let (Some(Reading::Value(units)), [first, ..]) = (parsed(body), &whole.readings[..]) {
            assert_eq!(*first, Reading::Value(units));
            assert_eq!(whole.in_lines[0], Reading::Value(units));
        }
    }
}
