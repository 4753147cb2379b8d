//! The codes of faults by the sections of RFC 9114, RFC 9204, RFC 9218 and RFC 9220.

use bytes::BytesMut;

use super::Http3ErrorCode as Code;
use super::control::{OpenedKinds, UnidirectionalDecoder, UnidirectionalFault};
use super::request::{RequestDecoder, RequestFault};

/// What becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It goes on, or has ended well.
    Good,
    /// It is reset, or the client is told to stop.
    Stream(Code),
    Connection(Code),
}
use Outcome::{Connection, Good, Stream};

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |digits: &str| u8::from_str_radix(digits, 16).expect("digits");
    hex.split_whitespace().map(byte).collect()
}

/// A request stream that consists of these bytes. `ends`: the client has ended it.
fn request(stream: &[u8], ends: bool) -> Outcome {
    let mut decoder = RequestDecoder::new(4096);
    let read = decoder.decode(stream, &mut BytesMut::new());
    match read.and_then(|()| if ends { decoder.end() } else { Ok(()) }) {
        Ok(()) => Good,
        Err(RequestFault::Stream(code)) => Stream(code),
        Err(RequestFault::Connection(code)) => Connection(code),
    }
}

/// Streams in one direction of one connection, with `|` between them. `ends`: the last of them has ended.
fn one_way(streams: &str, ends: bool) -> Outcome {
    let mut opened = OpenedKinds::default();
    let mut last = Ok(());
    for stream in streams.split('|') {
        let mut decoder = UnidirectionalDecoder::default();
        last = decoder.decode(&bytes(stream), &mut opened);
        if ends && last.is_ok() {
            last = decoder.end();
        }
    }
    match last {
        Ok(()) => Good,
        Err(UnidirectionalFault::Unknown) => Stream(Code::STREAM_CREATION_ERROR),
        Err(UnidirectionalFault::Connection(code)) => Connection(code),
    }
}

/// HEADERS of `POST /` at `a`: static entries 20, 23 and 1, and a literal authority.
const POST: &str = "01 08 00 00 d4 d7 c1 50 01 61";
/// The same with `content-length: 3`: a literal value for static entry 4.
const POST_3: &str = "01 0b 00 00 d4 d7 c1 50 01 61 54 01 33";
/// HEADERS of `CONNECT` for `a`: static entry 15.
const CONNECT: &str = "01 06 00 00 cf 50 01 61";
/// HEADERS of trailers: `x: y`.
const TRAILERS: &str = "01 06 00 00 21 78 01 79";

#[test]
fn each_fault_of_a_request_stream_has_its_code() {
    let unexpected = Connection(Code::FRAME_UNEXPECTED);
    let (cut, undecodable) = (Connection(Code::FRAME_ERROR), Connection(Code::QPACK_DECOMPRESSION_FAILED));
    let cases = [
        ("4.1: a head", POST, "", Good),
        ("4.1: a head, a body and trailers", POST, "00 01 78 01 06 00 00 21 78 01 79", Good),
        ("4.1: DATA before a head", "", "00 01 78", unexpected),
        ("4.1: DATA after trailers", POST, "01 06 00 00 21 78 01 79 00 01 78", unexpected),
        ("4.1: HEADERS after trailers", POST, "01 06 00 00 21 78 01 79 01 02 00 00", unexpected),
        ("4.1: nothing", "", "", Stream(Code::REQUEST_INCOMPLETE)),
        ("4.1: a reserved frame alone", "", "21 00", Stream(Code::REQUEST_INCOMPLETE)),
        ("4.1.2: fewer bytes than declared", POST_3, "00 01 78", Stream(Code::MESSAGE_ERROR)),
        ("4.1.2: as many", POST_3, "00 01 78 00 02 79 7a", Good),
        ("4.1.2: more bytes than declared", POST_3, "00 04 78 79 7a 7a", Stream(Code::MESSAGE_ERROR)),
        ("4.1.2: none, and trailers", POST_3, TRAILERS, Stream(Code::MESSAGE_ERROR)),
        ("4.2: upper-case trailers", POST, "01 06 00 00 21 58 01 79", Stream(Code::MESSAGE_ERROR)),
        ("4.3: a pseudo-field in trailers", POST, "01 03 00 00 c1", Stream(Code::MESSAGE_ERROR)),
        ("4.4: DATA after CONNECT", CONNECT, "00 01 78", Good),
        ("4.4: HEADERS after CONNECT", CONNECT, TRAILERS, unexpected),
        ("7.1: a frame that is cut in its header", POST, "00", cut),
        ("7.1: a frame that is cut in its length", POST, "00 40", cut),
        ("7.1: DATA that is cut", POST, "00 02 78", cut),
        ("7.1: HEADERS that are cut", "01 08 00 00 d4", "", cut),
        ("7.1: a reserved frame that is cut", POST, "21 02 78", cut),
        ("7.2.3: CANCEL_PUSH", POST, "03 01 00", unexpected),
        ("7.2.4: SETTINGS", POST, "04 00", unexpected),
        ("7.2.5: PUSH_PROMISE of a client", POST, "05 03 00 00 00", unexpected),
        ("7.2.6: GOAWAY", POST, "07 01 00", unexpected),
        ("7.2.7: MAX_PUSH_ID", POST, "0d 01 00", unexpected),
        ("7.2.8: PRIORITY of HTTP/2", POST, "02 00", unexpected),
        ("7.2.8: PING of HTTP/2", POST, "06 00", unexpected),
        ("7.2.8: WINDOW_UPDATE of HTTP/2", POST, "08 00", unexpected),
        ("7.2.8: CONTINUATION of HTTP/2", POST, "09 00", unexpected),
        ("7.2.8: SETTINGS before a head", "", "04 00", unexpected),
        ("9: reserved and unknown frames", POST, "21 02 78 79 40 40 00 00 01 78 7f ff 00", Good),
        ("9204 2.2.3: a reference to the dynamic table", "01 03 00 00 80", "", undecodable),
        ("9204 3.1: an entry beyond the static table", "01 04 00 00 ff 24", "", undecodable),
        ("9204 4.5.1.1: entries of the dynamic table needed", "01 03 01 00 c1", "", undecodable),
        ("9204 4.5.1.2: a base below 0", "01 03 00 80 c1", "", undecodable),
        ("9204 4.5: no prefix", "01 00", "", undecodable),
        ("9204 4.5: half a prefix", "01 01 00", "", undecodable),
        ("9204 4.5.4: a string that is cut", "01 04 00 00 50 02", "", undecodable),
        ("9204 4.1.1: an integer that is too large", "01 09 00 00 ff ff ff ff ff ff 7f", "", undecodable),
        ("9204 4.5: trailers that are cut", POST, "01 03 00 00 21", undecodable),
    ];
    for (what, head, rest, expected) in cases {
        let stream = bytes(&[head, rest].join(" "));
        assert_eq!(request(&stream, true), expected, "{what}");
        // A fault of a frame is found when it is there, one of the end later.
        let at_once = request(&stream, false);
        assert!(at_once == expected || at_once == Good, "{what}: {at_once:?}");
    }
}

#[test]
fn each_fault_of_a_stream_in_one_direction_has_its_code() {
    let unexpected = Connection(Code::FRAME_UNEXPECTED);
    let (settings, id) = (Connection(Code::SETTINGS_ERROR), Connection(Code::ID_ERROR));
    let (malformed, created) = (Connection(Code::FRAME_ERROR), Connection(Code::STREAM_CREATION_ERROR));
    let cases = [
        ("6.2: no type yet", "", Good),
        ("6.2: a type that is not whole", "40", Good),
        ("6.2.1: the control stream", "00 04 00", Good),
        ("6.2.1: its type in two bytes", "40 00 04 00", Good),
        ("6.2.1: two control streams", "00 04 00|00 04 00", created),
        ("6.2.1: another frame first", "00 07 01 00", Connection(Code::MISSING_SETTINGS)),
        ("6.2.1: a reserved frame first", "00 21 00", Connection(Code::MISSING_SETTINGS)),
        ("6.2.2: a push stream of a client", "01 00", created),
        ("6.2.3: a reserved type", "21", Stream(Code::STREAM_CREATION_ERROR)),
        ("6.2: an unknown type", "7f ff 00", Stream(Code::STREAM_CREATION_ERROR)),
        ("7.1: GOAWAY without an id", "00 04 00 07 00", malformed),
        ("7.1: GOAWAY with more than an id", "00 04 00 07 02 00 00", malformed),
        ("7.1: MAX_PUSH_ID that ends early", "00 04 00 0d 01 40", malformed),
        ("7.1: CANCEL_PUSH of 9 bytes", "00 04 00 03 09", malformed),
        ("7.1: a setting without a value", "00 04 01 06", malformed),
        ("7.1: a setting whose value is cut", "00 04 02 06 40", malformed),
        ("7.2.1: DATA", "00 04 00 00 00", unexpected),
        ("7.2.2: HEADERS", "00 04 00 01 02 00 00", unexpected),
        ("7.2.3: CANCEL_PUSH of what was not promised", "00 04 00 03 01 00", id),
        ("7.2.4: two SETTINGS", "00 04 00 04 00", unexpected),
        ("7.2.4: a setting twice", "00 04 04 06 01 06 02", settings),
        ("7.2.4.1: a reserved setting", "00 04 02 21 05", Good),
        ("7.2.4.1: ENABLE_PUSH of HTTP/2", "00 04 02 02 00", settings),
        ("7.2.4.1: MAX_CONCURRENT_STREAMS of HTTP/2", "00 04 02 03 01", settings),
        ("7.2.4.1: INITIAL_WINDOW_SIZE of HTTP/2", "00 04 02 04 01", settings),
        ("7.2.4.1: MAX_FRAME_SIZE of HTTP/2", "00 04 02 05 01", settings),
        ("7.2.5: PUSH_PROMISE", "00 04 00 05 00", unexpected),
        ("7.2.6: GOAWAY whose id decreases", "00 04 00 07 01 08 07 01 04", Good),
        ("7.2.6: GOAWAY whose id increases", "00 04 00 07 01 04 07 01 08", id),
        ("7.2.7: MAX_PUSH_ID that increases", "00 04 00 0d 01 04 0d 01 08", Good),
        ("7.2.7: MAX_PUSH_ID that decreases", "00 04 00 0d 01 08 0d 01 04", id),
        ("7.2.8: PRIORITY of HTTP/2", "00 04 00 02 00", unexpected),
        ("7.2.8: PING of HTTP/2", "00 04 00 06 00", unexpected),
        ("7.2.8: WINDOW_UPDATE of HTTP/2", "00 04 00 08 00", unexpected),
        ("7.2.8: CONTINUATION of HTTP/2", "00 04 00 09 00", unexpected),
        ("9: reserved and unknown frames", "00 04 00 21 01 78 40 40 00", Good),
        ("9218 7.2: PRIORITY_UPDATE", "00 04 00 80 0f 07 00 01 00", Good),
        ("9220 3: ENABLE_CONNECT_PROTOCOL", "00 04 02 08 01", Good),
        ("9220 3: with another value", "00 04 02 08 02", settings),
        ("9297 2.1.1: H3_DATAGRAM with another value", "00 04 02 33 02", settings),
    ];
    for (what, streams, expected) in cases {
        assert_eq!(one_way(streams, false), expected, "{what}");
    }
}

#[test]
fn each_fault_of_a_stream_of_qpack_has_its_code() {
    let created = Connection(Code::STREAM_CREATION_ERROR);
    let encoder = Connection(Code::QPACK_ENCODER_STREAM_ERROR);
    let decoder = Connection(Code::QPACK_DECODER_STREAM_ERROR);
    for (what, streams, expected) in [
        ("9204 4.2: two encoder streams", "02|02", created),
        ("9204 4.2: two decoder streams", "03|03", created),
        ("9204 4.3.1: a capacity of 0", "02 20", Good),
        ("9204 4.3.1: a capacity beyond the maximum", "02 21", encoder),
        ("9204 4.3.2: an insertion with a known name", "02 c1 01 61", encoder),
        ("9204 4.3.3: an insertion with a literal name", "02 41 61 01 61", encoder),
        ("9204 4.3.4: a duplicate", "02 00", encoder),
        ("9204 4.4.1: an acknowledged section", "03 84", decoder),
        ("9204 4.4.2: a cancelled stream", "03 44", Good),
        ("9204 4.4.3: an increment", "03 01", decoder),
        ("9204 4.4.3: an increment of 0", "03 00", decoder),
        ("9204 4.1.1: an integer that is too large", "03 7f ff ff ff ff ff ff ff ff ff 7f", decoder),
    ] {
        assert_eq!(one_way(streams, false), expected, "{what}");
    }
}

#[test]
fn streams_that_a_connection_needs_do_not_end() {
    let closed = Connection(Code::CLOSED_CRITICAL_STREAM);
    for (what, stream, expected) in [
        ("6.2: a stream that ends before its type", "40", Good),
        ("6.2.1: the control stream", "00 04 00", closed),
        ("6.2.1: the control stream without settings", "00", closed),
        ("6.2.1: the control stream in a frame", "00 04 00 07 01", closed),
        ("9204 4.2: the encoder stream", "02", closed),
        ("9204 4.2: the decoder stream", "03 44", closed),
    ] {
        assert_eq!(one_way(stream, true), expected, "the end of {what}");
    }
}
