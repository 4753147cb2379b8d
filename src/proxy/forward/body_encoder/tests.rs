use std::io::Read as _;

use proptest::prelude::*;

use super::*;

fn decoded(encoding: Encoding, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match encoding {
        Encoding::Gzip => {
            flate2::read::GzDecoder::new(body).read_to_end(&mut bytes).expect("gzip");
        }
        Encoding::Brotli => {
            brotli::Decompressor::new(body, 4096).read_to_end(&mut bytes).expect("brotli");
        }
        Encoding::Zstd => {
            bytes.reserve(1 << 20);
            zstd_safe::decompress(&mut bytes, body).expect("zstd");
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Bytes taken in any pieces, with flushes between them, are decoded to the same bytes; and what was flushed can be
    /// decoded without what follows.
    #[test]
    fn pieces_and_flushes_never_change_a_body(
        seed in any::<u64>(),
        pieces in prop::collection::vec((0_usize..30_000, any::<bool>()), 0..12),
        is_random in any::<bool>(),
        declares in any::<bool>(),
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let range = if is_random { 0..=255 } else { b'a'..=b'd' };
        let length: usize = pieces.iter().map(|(length, _)| length).sum();
        let body: Vec<u8> = (0..length).map(|_| random.u8(range.clone())).collect();
        for encoding in Encoding::ALL {
            let declared = declares.then_some(length as u64);
            let mut encoder = BodyEncoder::new(encoding, declared, false).expect("an encoder");
            let (mut out, mut rest) = (Vec::new(), &body[..]);
            for &(length, is_flushed) in &pieces {
                let (piece, after) = rest.split_at(length);
                encoder.take(piece, |output| out.extend_from_slice(output)).expect("sound");
                if is_flushed {
                    encoder.flush(|output| out.extend_from_slice(output)).expect("sound");
                }
                rest = after;
            }
            encoder.finish(|output| out.extend_from_slice(output)).expect("sound");
            prop_assert_eq!(encoder.totals(), (length as u64, out.len() as u64));
            prop_assert!(decoded(encoding, &out) == body, "{encoding:?}");
        }
    }
}

#[test]
fn encoders_are_bounded_and_given_back() {
    let all: Vec<_> =
        (0..MAX_ENCODERS).map_while(|_| BodyEncoder::new(Encoding::Gzip, None, false)).collect();
    assert_eq!(all.len(), MAX_ENCODERS);
    assert!(BodyEncoder::new(Encoding::Zstd, None, false).is_none());
    drop(all);
    assert!(BodyEncoder::new(Encoding::Zstd, None, false).is_some());
}
