//! The codec against independent ones: the encoder of `httlib-hpack` and the decoder of `loona-hpack`.
//!
//! The decoder of `loona-hpack` differs from RFC 7541, or from what is checked here, in three ways. It takes size
//! updates after fields, and more than two of them. It refuses a block that ends with a size update. It refuses
//! integers of more than four bytes after the prefix.

use bytes::BytesMut;
use httlib_hpack::Encoder as OracleEncoder;
use loona_hpack::Decoder as OracleDecoder;
use loona_hpack::decoder::{DecoderError, IntegerDecodingError};
use proptest::prelude::*;
use proptest::sample::select;

use super::decoder::Decoder;
use super::{CompressionError, encoder, static_table};

type Bytes = Vec<u8>;
type Fields = Vec<(Bytes, Bytes)>;

/// What one block has: size updates, and fields with the oracle's flags.
#[derive(Clone, Debug)]
struct Block {
    sizes: Vec<u32>,
    fields: Vec<(Bytes, Bytes, u8)>,
}

fn text() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => "[a-z0-9/:. -]{0,30}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => select(vec![&b""[..], b"a", b"gzip, deflate", b"200", b"GET"]).prop_map(<[u8]>::to_vec),
    ]
}

fn name() -> impl Strategy<Value = Bytes> {
    let known = select(&static_table::ENTRIES[..]).prop_map(|(name, _)| name.to_vec());
    prop_oneof![2 => known, 2 => "[a-d]{1,2}".prop_map(String::into_bytes), 1 => text()]
}

fn block(limit: u32) -> impl Strategy<Value = Block> {
    let sizes = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(0..=limit, 1..=2)];
    let fields = prop::collection::vec((name(), text(), 0_u8..32), 1..8);
    (sizes, fields).prop_map(|(sizes, fields)| Block { sizes, fields })
}

fn blocks() -> impl Strategy<Value = (u32, Vec<Block>)> {
    let limit = select(vec![0_u32, 40, 100, 300, 4096]);
    limit.prop_flat_map(|limit| (Just(limit), prop::collection::vec(block(limit), 1..8)))
}

fn encoded(oracle: &mut OracleEncoder<'_>, block: &Block) -> Bytes {
    let mut out = Vec::new();
    for size in &block.sizes {
        oracle.update_max_dynamic_size(*size, &mut out).unwrap();
    }
    for field in &block.fields {
        oracle.encode(field.clone(), &mut out).unwrap();
    }
    out
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> (Result<(), CompressionError>, Fields) {
    let mut fields = Vec::new();
    let result = decoder.decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())));
    (result, fields)
}

fn oracle_decode(oracle: &mut OracleDecoder<'_>, block: &[u8]) -> (Result<(), DecoderError>, Fields) {
    let mut fields = Vec::new();
    let result =
        oracle.decode_with_cb(block, |name, value| fields.push((name.into_owned(), value.into_owned())));
    (result, fields)
}

fn oracle_decoder(limit: u32) -> OracleDecoder<'static> {
    let mut oracle = OracleDecoder::new();
    oracle.set_max_table_size(limit as usize);
    oracle.set_max_allowed_table_size(limit as usize);
    oracle
}

/// Blocks of the oracle's encoder with some bytes changed, or bytes at random.
fn damaged_blocks() -> impl Strategy<Value = (u32, Vec<Bytes>)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let valid = (blocks(), prop::collection::vec(changes, 8)).prop_map(|((limit, blocks), changes)| {
        let mut oracle = OracleEncoder::with_dynamic_size(limit);
        let damaged = blocks.iter().zip(changes).map(|(block, changes)| {
            let mut block = encoded(&mut oracle, block);
            for (index, byte) in changes {
                let index = index.index(block.len());
                block[index] = byte;
            }
            block
        });
        (limit, damaged.collect())
    });
    let first = prop_oneof![2 => 0x80..=0xc4_u8, 1 => 0x40..=0x7f_u8, 1 => any::<u8>(), 1 => 0..4_u8];
    let random = prop::collection::vec(prop::collection::vec(first, 0..40), 1..4);
    prop_oneof![valid, random.prop_map(|blocks| (4096, blocks))]
}

proptest! {
    #[test]
    fn blocks_of_another_encoder_are_decoded((limit, blocks) in blocks()) {
        let mut oracle = OracleEncoder::with_dynamic_size(limit);
        let mut decoder = Decoder::new(limit as usize);
        for block in &blocks {
            let expected: Fields = block.fields.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect();
            prop_assert_eq!(decode(&mut decoder, &encoded(&mut oracle, block)), (Ok(()), expected));
        }
    }

    #[test]
    fn a_block_cut_anywhere_has_the_first_fields((limit, blocks) in blocks()) {
        let mut oracle = OracleEncoder::with_dynamic_size(limit);
        let block = encoded(&mut oracle, &blocks[0]);
        let (_, whole) = decode(&mut Decoder::new(limit as usize), &block);
        let mut lengths = Vec::new();
        for end in 0..=block.len() {
            let (result, fields) = decode(&mut Decoder::new(limit as usize), &block[..end]);
            prop_assert!(whole.starts_with(&fields), "{} bytes", end);
            lengths.extend(result.is_ok().then_some(fields.len()));
        }
        lengths.dedup();
        prop_assert_eq!(lengths, (0..=whole.len()).collect::<Vec<_>>());
    }

    #[test]
    fn our_blocks_are_decoded_by_another_decoder(
        status in 100_u16..1000,
        fields in prop::collection::vec((name(), text()), 1..20),
    ) {
        let mut block = BytesMut::new();
        encoder::put_table_size(0, &mut block);
        encoder::put_status(status, &mut block);
        let mut expected = vec![(b":status".to_vec(), status.to_string().into_bytes())];
        for (name, value) in fields {
            encoder::put_field(&name, &value, &mut block);
            expected.push((name.to_ascii_lowercase(), value));
        }
        let (result, decoded) = oracle_decode(&mut OracleDecoder::new(), &block);
        prop_assert_eq!((result, &decoded), (Ok(()), &expected));
        prop_assert_eq!(decode(&mut Decoder::new(4096), &block), (Ok(()), expected));
    }

    #[test]
    fn damaged_blocks_are_refused_as_by_another_decoder((limit, blocks) in damaged_blocks()) {
        let (mut decoder, mut oracle) = (Decoder::new(limit as usize), oracle_decoder(limit));
        for block in blocks {
            let (ours, fields) = decode(&mut decoder, &block);
            let (theirs, their_fields) = oracle_decode(&mut oracle, &block);
            match (ours, theirs) {
                (Ok(()), Err(DecoderError::SizeUpdateAtEnd)) => {}
                (Ok(()), Err(DecoderError::IntegerDecodingError(IntegerDecodingError::TooManyOctets))) => break,
                (Ok(()), theirs) => prop_assert_eq!(theirs, Ok(())),
                // Size updates that stand where they may not: without them, both refuse.
                (Err(_), Ok(()) | Err(DecoderError::SizeUpdateAtEnd)) => {
                    prop_assert!(block.iter().any(|byte| byte & 0xe0 == 0x20), "refused: {:x?}", block);
                    break;
                }
                (Err(_), Err(_)) => {
                    prop_assert!(their_fields.starts_with(&fields));
                    break;
                }
            }
            prop_assert_eq!(fields, their_fields);
        }
    }

    #[test]
    fn memory_is_bounded(
        limit in 0_usize..5000,
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..9),
    ) {
        let mut decoder = Decoder::new(limit);
        for block in blocks {
            // Literals with indexing, so that the table fills.
            let literals = block.chunks(90).zip((0x41..0x7d).cycle()).flat_map(|(value, index)| {
                [&[index, u8::try_from(value.len()).unwrap()], value].concat()
            });
            prop_assert_eq!(decode(&mut decoder, &literals.collect::<Bytes>()).0, Ok(()));
            let (_, fields) = decode(&mut decoder, &block);
            prop_assert!(fields.len() <= block.len());
            prop_assert!(decoder.memory() <= 2 * limit.max(8) + 12 * (limit / 32).next_power_of_two().max(4));
        }
    }
}
