//! Scans bodies for values, in pieces.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use tollgate::measure::{BodyScanner, BodySource, JsonPointer, Reading};

/// The codings that are decoded.
pub(crate) const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

pub(crate) fn pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

pub(crate) fn json(text: &str) -> BodySource {
    BodySource::Json(pointer(text))
}

pub(crate) fn sse(text: &str) -> BodySource {
    BodySource::Sse(pointer(text))
}

/// What is found in a body that arrives in these pieces.
pub(crate) fn scan<'b>(
    sources: &[BodySource],
    coding: &str,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<Reading> {
    let mut scanner = BodyScanner::new(sources.into(), coding.as_bytes());
    pieces.into_iter().for_each(|piece| scanner.scan(piece));
    let readings = scanner.finish(true).to_vec();
    assert_eq!(scanner.finish(true).to_vec(), readings, "the end changes nothing");
    readings
}

/// What is found in lines of JSON.
pub(crate) fn scan_lines<'b>(
    sources: &[BodySource],
    coding: &str,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Vec<Reading> {
    let mut scanner = BodyScanner::lines(sources, coding.as_bytes());
    pieces.into_iter().for_each(|piece| scanner.scan(piece));
    scanner.finish(true).to_vec()
}

/// What is found in a body of which the rest is missing, whether it is one of lines, and whether another document is
/// awaited.
pub(crate) fn scan_part(sources: &[BodySource], is_lines: bool, part: &[u8]) -> (Vec<Reading>, bool) {
    let mut scanner = match is_lines {
        true => BodyScanner::lines(sources, b""),
        false => BodyScanner::new(sources.into(), b""),
    };
    scanner.scan(part);
    (scanner.finish(false).to_vec(), scanner.awaits_document())
}

/// What one source finds, which must be the same for the whole body, for each cut in two, and byte for byte.
pub(crate) fn scan_cut(source: &BodySource, coding: &str, body: &[u8]) -> Reading {
    let sources = std::slice::from_ref(source);
    let whole = scan(sources, coding, [body]);
    let shown = || String::from_utf8_lossy(body).chars().take(400).collect::<String>();
    for at in 1..body.len() {
        let (first, rest) = body.split_at(at);
        assert_eq!(scan(sources, coding, [first, rest]), whole, "cut at {at}: {source:?} in {}", shown());
    }
    assert_eq!(scan(sources, coding, body.chunks(1)), whole, "byte for byte: {source:?} in {}", shown());
    whole[0]
}

/// A body in a coding.
pub(crate) fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(out, Compression::new(6));
            encoder.write_all(body).unwrap();
            out = encoder.finish().unwrap();
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(out, Compression::new(6));
            encoder.write_all(body).unwrap();
            out = encoder.finish().unwrap();
        }
        "br" => {
            let params = brotli::enc::BrotliEncoderParams { quality: 4, ..Default::default() };
            brotli::BrotliCompress(&mut &*body, &mut out, &params).unwrap();
        }
        "zstd" => {
            out.reserve(zstd_safe::compress_bound(body.len()));
            zstd_safe::compress(&mut out, body, 3).unwrap();
        }
        coding => panic!("no coding: {coding}"),
    }
    out
}
