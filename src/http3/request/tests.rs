use proptest::prelude::*;

use super::*;
use crate::http3::varint;

/// A frame.
fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    varint::put(kind, &mut bytes);
    varint::put(payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes.to_vec()
}

/// A field section of literals.
fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    for (name, value) in fields {
        let [name_length, value_length] =
            [name.len(), value.len()].map(|length| u8::try_from(length).unwrap());
        assert!(value_length < 127);
        match name_length {
            0..7 => bytes.push(0x20 | name_length),
            _ => bytes.extend_from_slice(&[0x27, name_length - 7]),
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(value_length);
        bytes.extend_from_slice(value.as_bytes());
    }
    bytes
}

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(frame::HEADERS, &section(fields))
}

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/a"), (":authority", "h")];

/// What a stream amounts to: the fault, the head, the body and the trailers.
type Message = (Result<(), RequestFault>, Option<Result<String, HeadError>>, Vec<u8>, Option<String>);

fn read(parts: &[&[u8]]) -> Message {
    let mut decoder = RequestDecoder::new(1 << 10);
    let mut body = BytesMut::new();
    let mut result = Ok(());
    for part in parts {
        result = result.and_then(|()| decoder.decode(part, &mut body));
        // Trailers may be longer.
        assert!(decoder.section.capacity() <= 48 << 10, "held: {}", decoder.section.capacity());
    }
    let result = result.and_then(|()| decoder.end());
    let text = |bytes: &BytesMut| String::from_utf8_lossy(bytes).into_owned();
    let head = decoder.take_head(false).map(|head| head.map(|head| text(&head.text)));
    (result, head, body.to_vec(), decoder.trailers().map(text))
}

/// Streams with what they amount to.
fn streams() -> Vec<(Vec<u8>, Result<(), RequestFault>)> {
    let (stream, connection) = (RequestFault::Stream, RequestFault::Connection);
    let post = headers(&POST);
    let with = |more: &[(&str, &str)]| headers(&[&POST[..], more].concat());
    let data = |payload: &[u8]| frame(frame::DATA, payload);
    let unknown = frame(0x21, b"grease");
    let connect = headers(&[(":method", "CONNECT"), (":authority", "h:1")]);
    let websocket = headers(&[&[(":method", "CONNECT"), (":protocol", "websocket")], &POST[1..]].concat());
    vec![
        (post.clone(), Ok(())),
        ([&post[..], &data(b"abc"), &data(b""), &data(b"d")].concat(), Ok(())),
        ([&unknown[..], &post, &unknown, &data(b"abc"), &unknown].concat(), Ok(())),
        ([&post[..], &data(b"abc"), &headers(&[("x-sum", "1")]), &unknown].concat(), Ok(())),
        ([&with(&[("content-length", "3")])[..], &data(b"abc")].concat(), Ok(())),
        (
            [&with(&[("content-length", "2")])[..], &data(b"abc")].concat(),
            Err(stream(Http3ErrorCode::MESSAGE_ERROR)),
        ),
        (
            [&with(&[("content-length", "4")])[..], &data(b"abc")].concat(),
            Err(stream(Http3ErrorCode::MESSAGE_ERROR)),
        ),
        (Vec::new(), Err(stream(Http3ErrorCode::REQUEST_INCOMPLETE))),
        (unknown.clone(), Err(stream(Http3ErrorCode::REQUEST_INCOMPLETE))),
        (data(b"abc"), Err(connection(Http3ErrorCode::FRAME_UNEXPECTED))),
        (
            [&post[..], &headers(&[("x", "1")]), &data(b"a")].concat(),
            Err(connection(Http3ErrorCode::FRAME_UNEXPECTED)),
        ),
        (
            [&post[..], &headers(&[("x", "1")]), &headers(&[])].concat(),
            Err(connection(Http3ErrorCode::FRAME_UNEXPECTED)),
        ),
        ([&post[..], &headers(&[(":path", "/")])].concat(), Err(stream(Http3ErrorCode::MESSAGE_ERROR))),
        ([&post[..], &headers(&[("X", "1")])].concat(), Err(stream(Http3ErrorCode::MESSAGE_ERROR))),
        (
            [&post[..], &frame(frame::HEADERS, &[1, 0])].concat(),
            Err(connection(Http3ErrorCode::QPACK_DECOMPRESSION_FAILED)),
        ),
        (
            [&post[..], &frame(frame::DATA, b"abc")[..4]].concat(),
            Err(connection(Http3ErrorCode::FRAME_ERROR)),
        ),
        ([&post[..], &[0]].concat(), Err(connection(Http3ErrorCode::FRAME_ERROR))),
        // Trailers of 16 KiB and less than 32 KiB with 32 bytes for each field, and of more (§4.2.2).
        ([&post[..], &headers(&[("x", "y"); 900])].concat(), Ok(())),
        ([&post[..], &headers(&[("x", "y"); 1_000])].concat(), Err(stream(Http3ErrorCode::EXCESSIVE_LOAD))),
        ([&post[..], &[1, 0x80, 0, 0x80, 1]].concat(), Err(stream(Http3ErrorCode::EXCESSIVE_LOAD))),
        ([&connect[..], &data(b"abc"), &unknown, &data(b"d")].concat(), Ok(())),
        (
            [&connect[..], &data(b"abc"), &headers(&[("x", "1")])].concat(),
            Err(connection(Http3ErrorCode::FRAME_UNEXPECTED)),
        ),
        (
            [&websocket[..], &headers(&[("x", "1")])].concat(),
            Err(connection(Http3ErrorCode::FRAME_UNEXPECTED)),
        ),
        ([&post[..], &data(b"").repeat(1_001)].concat(), Err(connection(Http3ErrorCode::EXCESSIVE_LOAD))),
        ([&post[..], &unknown.repeat(1_001)].concat(), Err(connection(Http3ErrorCode::EXCESSIVE_LOAD))),
    ]
}

#[test]
fn streams_amount_to_requests_or_faults() {
    for (bytes, expected) in streams() {
        assert_eq!(read(&[&bytes]).0, expected, "{bytes:02x?}");
    }
    for kind in [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd] {
        let (fault, ..) = read(&[&headers(&POST), &frame(kind, b"")]);
        assert_eq!(fault, Err(RequestFault::Connection(Http3ErrorCode::FRAME_UNEXPECTED)), "{kind}");
    }
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    for (bytes, _) in streams().into_iter().filter(|(bytes, _)| bytes.len() < 500) {
        let whole = read(&[&bytes]);
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(read(&[one, other]), whole, "{bytes:02x?} cut at {cut}");
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&each), whole, "{bytes:02x?} byte by byte");
    }
}

#[test]
fn a_request_is_text_for_the_parser_of_heads() {
    let bytes = [headers(&POST), frame(frame::DATA, b"abc"), headers(&[("x-sum", "1")])].concat();
    let (result, head, body, trailers) = read(&[&bytes]);
    assert_eq!(result, Ok(()));
    assert_eq!(head, Some(Ok("POST /a HTTP/1.1\r\nhost: h\r\n\r\n".to_owned())));
    assert_eq!((&body[..], trailers.as_deref()), (&b"abc"[..], Some("x-sum: 1\r\n")));
}

#[test]
fn heads_that_http_2_refuses_are_refused() {
    for fields in [
        &[&POST[..], &[(":method", "GET")]].concat()[..],
        &[&[("x", "1")], &POST[..]].concat(),
        &[&POST[..], &[("X-Upper", "1")]].concat(),
        &[&POST[..], &[("connection", "close")]].concat(),
        &[&POST[..], &[("transfer-encoding", "chunked")]].concat(),
        &[&POST[..], &[("te", "gzip")]].concat(),
        &[&POST[..], &[("host", "other")]].concat()[..0],
        &[&POST[..], &[("x", "a\r\nb: c")]].concat(),
        &[&POST[..], &[(":unknown", "1")]].concat(),
        &[&POST[..], &[("content-length", "1"), ("content-length", "2")]].concat(),
        &POST[..3][..2],
    ] {
        let (_, head, ..) = read(&[&headers(fields)]);
        assert_eq!(head, Some(Err(HeadError::Malformed)), "{fields:?}");
    }
}

#[test]
fn a_large_head_is_not_held() {
    let mut decoder = RequestDecoder::new(1 << 10);
    let mut header = BytesMut::new();
    varint::put(frame::HEADERS, &mut header);
    varint::put(varint::MAX, &mut header);
    decoder.decode(&header, &mut BytesMut::new()).unwrap();
    for _ in 0..1_000 {
        decoder.decode(&[0; 1_000], &mut BytesMut::new()).unwrap();
    }
    assert_eq!(decoder.section.capacity(), 0);
    assert_eq!(decoder.take_head(false), Some(Err(HeadError::TooLarge)));
    let value = "y".repeat(100);
    let many = section(&[("x", value.as_str()); 20]);
    let (_, head, ..) = read(&[&frame(frame::HEADERS, &many)]);
    assert_eq!(head, Some(Err(HeadError::TooLarge)));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0..600_usize) {
        let (one, other) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(read(&[one, other]), read(&[&bytes]));
    }

    /// Frames in any order, against the rules said in another way.
    #[test]
    fn frames_in_any_order_follow_the_rules(kinds in prop::collection::vec(0..4_u8, 0..8)) {
        let bytes: Vec<u8> = kinds.iter().flat_map(|kind| match kind {
            0 => headers(&POST),
            1 => frame(frame::DATA, b"ab"),
            2 => headers(&[("x", "1")]),
            _ => frame(0x40, b"?"),
        }).collect();
        let known: String = kinds.iter().filter_map(|kind| ["h", "d", "t"].get(usize::from(*kind))).copied().collect();
        let is_good = regex::Regex::new("^hd*t?$").unwrap().is_match(&known);
        prop_assert_eq!(read(&[&bytes]).0.is_ok() , is_good || regex::Regex::new("^td*t?$").unwrap().is_match(&known));
    }
}
