use proptest::prelude::*;

use super::*;

/// What a decoder makes of a body that comes in these pieces: its data, trailers, and the bytes after it; or how much
/// data came before the error.
fn decode(mut decoder: ChunkDecoder, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, usize), Vec<u8>> {
    let (mut data, mut after) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let Ok((consumed, part)) = decoder.decode(rest) else { return Err(data) };
            data.extend_from_slice(part);
            rest = &rest[consumed..];
        }
        after += rest.len();
    }
    if decoder.is_done() { Ok((data, decoder.trailers(&Trailers::All), after)) } else { Err(data) }
}

fn whole(body: &[u8]) -> Result<(Vec<u8>, Vec<u8>, usize), Vec<u8>> {
    decode(ChunkDecoder::of_request(), &[body])
}

#[test]
fn padding_after_a_size_is_read_in_responses_and_refused_in_requests() {
    let body: &[u8] = b"2  \r\nok\r\n0 \r\n\r\n";
    assert_eq!(whole(body), Err(vec![]));
    let read = decode(ChunkDecoder::of_response(), &[body]);
    assert_eq!(read, Ok((b"ok".to_vec(), vec![], 0)));
}

#[test]
fn trailers_have_room_for_16_kib_with_their_end() {
    let body = |value: usize| [b"0\r\nx: ".as_slice(), &vec![b'y'; value], b"\r\n\r\n"].concat();
    let max = MAX_TRAILERS - b"x: \r\n\r\n".len();
    assert!(whole(&body(1_100)).is_ok());
    assert!(whole(&body(max)).is_ok());
    assert!(whole(&body(max + 1)).is_err());
}

#[test]
fn what_comes_before_an_error_is_told() {
    assert_eq!(whole(b"2\r\nok\r\n1\r\nxy"), Err(b"okx".to_vec()));
    assert_eq!(whole(b"2\r\nok\r\n0\r\n x: y\r\n\r\n"), Err(b"ok".to_vec()));
    assert_eq!(whole(b"2\r\nok\r\n0\r\n\n"), Err(b"ok".to_vec()));
}

/// Bodies, good and broken.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "2\r\nok\r\n",
        "2 ;x\r\nok\r\n",
        "2;x=\"a;\\\"\"\r\nok\r\n",
        "02\r\nok\r\n",
        "2 \r\nok\r\n",
        "2;\r\nok\r\n",
        "2\nok\r\n",
        "2\r\nokk\r\n",
        "0\r\n\r\n",
        "0\r\n\n",
        "0\r\nx: y\r\n\r\n",
        "0\r\n x:\r\n\r\n",
        "g\r\n",
        "\r\n",
        "0000000000000000: x",
        "1\r\nh\r\n",
        "\r",
    ]);
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn cuts_change_nothing(body in body(), cut in any::<prop::sample::Index>(), second in any::<prop::sample::Index>()) {
        for decoder in [ChunkDecoder::of_request, ChunkDecoder::of_response] {
            let expected = decode(decoder(), &[&body]);
            let (one, other) = (cut.index(body.len() + 1), second.index(body.len() + 1));
            let (one, other) = (one.min(other), one.max(other));
            let pieces = [&body[..one], &body[one..other], &body[other..]];
            prop_assert_eq!(&decode(decoder(), &pieces), &expected);
            let bytes: Vec<_> = body.chunks(1).collect();
            prop_assert_eq!(&decode(decoder(), &bytes), &expected);
        }
    }

    #[test]
    fn an_error_is_final(body in body(), rest in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut decoder = ChunkDecoder::of_request();
        let mut bytes = &body[..];
        let failed = loop {
            match decoder.decode(bytes) {
                Err(MalformedChunk) => break true,
                Ok((0, _)) => break false,
                Ok((consumed, _)) => bytes = &bytes[consumed..],
            }
        };
        prop_assume!(failed);
        for bytes in [&body[..], &rest, b"0\r\n\r\n", b"\r\n", b""] {
            prop_assert_eq!(decoder.decode(bytes), Err(MalformedChunk));
            prop_assert!(!decoder.is_done());
        }
    }

    #[test]
    fn what_is_encoded_is_decoded(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5)) {
        let mut body = BytesMut::new();
        parts.iter().for_each(|part| encode(part, &mut body));
        encode_end(b"x: y\r\n", &mut body);
        body.extend_from_slice(b"GET");
        prop_assert_eq!(whole(&body), Ok((parts.concat(), b"x: y\r\n".to_vec(), 3)));
    }
}

/// `count` chunks of one byte, each with an extension of `extension` bytes.
fn small_chunks(count: usize, extension: usize) -> Vec<u8> {
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(extension));
    [chunk.repeat(count).into_bytes(), b"0\r\n\r\n".to_vec()].concat()
}

#[test]
fn a_request_body_has_at_most_16_kib_of_unneeded_framing() {
    // Each chunk has 7 bytes of framing and its extension. Five are not counted, and each byte of data allows for one more.
    let extension = 1_000;
    let allowed = (16 << 10) / (extension + 1);
    assert!(whole(&small_chunks(allowed, extension)).is_ok());
    assert!(whole(&small_chunks(allowed + 1, extension)).is_err());
    let response = decode(ChunkDecoder::of_response(), &[&small_chunks(allowed + 1, extension)]);
    assert!(response.is_ok(), "a backend is trusted with that");
    let mut long = BytesMut::new();
    (0..1_000).for_each(|_| encode(&[b'x'; 100], &mut long));
    encode_end(b"", &mut long);
    assert!(whole(&long).is_ok(), "ordinary chunks have no bound");
    let mut bytewise = BytesMut::new();
    (0..100_000).for_each(|_| encode(b"x", &mut bytewise));
    encode_end(b"", &mut bytewise);
    assert!(whole(&bytewise).is_ok(), "a client may write byte by byte");
}
