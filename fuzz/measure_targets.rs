//! What the fuzz target asserts of bodies from which values are read.

use std::sync::Arc;

use tollgate::measure::{BodyScanner, BodySource, JsonPointer, Reading};

const CODINGS: [&str; 6] = ["", "gzip", "deflate", "br", "zstd", "zstd, gzip"];

/// What is found in a body that arrives in these pieces.
fn scan<'b>(coding: &str, pieces: impl IntoIterator<Item = &'b [u8]>) -> Vec<Reading> {
    let pointer = |text| JsonPointer::parse(text).expect("a pointer");
    let sources: Arc<[BodySource]> = [
        BodySource::Json(pointer("/usage/total_tokens")),
        BodySource::Json(pointer("/data/1")),
        BodySource::Json(pointer("")),
        BodySource::Sse(pointer("/usage/total_tokens")),
    ]
    .into();
    let mut scanner = BodyScanner::new(sources, coding.as_bytes());
    pieces.into_iter().for_each(|piece| scanner.scan(piece));
    let readings = scanner.finish().to_vec();
    assert_eq!(scanner.finish().to_vec(), readings);
    readings
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
    assert_eq!(whole.len(), 4);
    if coding.is_empty() {
        assert_eq!(cut, whole, "cut at {at}");
        assert_eq!(single, whole, "byte for byte");
        // What is read of a whole document, a parser would read.
        if let Reading::Value(units) = whole[2] {
            assert!(units == 0 || body.iter().any(u8::is_ascii_digit));
        }
    }
}
