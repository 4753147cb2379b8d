//! Decodes compressed bodies with the formats' own libraries.

use std::io::Read;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// The bytes that can be decoded so far, and whether the body is whole. Panics on bytes that are not of the coding.
#[track_caller]
pub(crate) fn decoded(coding: &str, body: &[u8]) -> (Vec<u8>, bool) {
    match coding {
        "gzip" => read(flate2::read::GzDecoder::new(body)),
        "br" => of_brotli(body),
        "zstd" => of_zstd(body),
        coding => panic!("no coding: {coding}"),
    }
}

/// The body, which is whole.
#[track_caller]
pub(crate) fn whole(coding: &str, body: &[u8]) -> Vec<u8> {
    let (bytes, is_whole) = decoded(coding, body);
    assert!(is_whole, "{coding}: {} bytes are not the whole body", body.len());
    bytes
}

fn read(mut decoder: impl Read) -> (Vec<u8>, bool) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match decoder.read(&mut buffer) {
            Ok(0) => return (bytes, true),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
                return (bytes, false);
            }
        }
    }
}

fn of_brotli(body: &[u8]) -> (Vec<u8>, bool) {
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new(alloc(), alloc(), alloc());
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let (mut left, mut read) = (body.len(), 0);
    loop {
        let (mut room, mut written) = (buffer.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            body,
            &mut room,
            &mut written,
            &mut buffer,
            &mut 0,
            &mut state,
        );
        bytes.extend_from_slice(&buffer[..written]);
        match result {
            BrotliResult::ResultSuccess => {
                assert_eq!(left, 0, "nothing follows the stream");
                return (bytes, true);
            }
            BrotliResult::NeedsMoreInput => return (bytes, false),
            BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => panic!("no brotli"),
        }
    }
}

fn of_zstd(body: &[u8]) -> (Vec<u8>, bool) {
    let (mut context, mut bytes, mut buffer) = (DCtx::create(), Vec::new(), [0; 4096]);
    let mut input = InBuffer::around(body);
    loop {
        let mut output = OutBuffer::around(&mut buffer[..]);
        let hint = context.decompress_stream(&mut output, &mut input).expect("zstd");
        let count = output.pos();
        bytes.extend_from_slice(&buffer[..count]);
        if hint == 0 {
            assert_eq!(input.pos(), body.len(), "nothing follows the frame");
            return (bytes, true);
        }
        if input.pos() == body.len() && count < buffer.len() {
            return (bytes, false);
        }
    }
}
