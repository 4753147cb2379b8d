use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

/// A frame whose payload consists of integers.
fn frame(kind: u64, payload: &[u64]) -> Vec<u8> {
    let (mut bytes, mut inner) = (BytesMut::new(), BytesMut::new());
    payload.iter().for_each(|value| varint::put(*value, &mut inner));
    varint::put(kind, &mut bytes);
    varint::put(inner.len() as u64, &mut bytes);
    bytes.extend_from_slice(&inner);
    bytes.to_vec()
}

fn read(parts: &[&[u8]]) -> Result<(), UnidirectionalFault> {
    let (mut decoder, mut opened) = (UnidirectionalDecoder::default(), OpenedKinds::default());
    parts.iter().try_for_each(|part| decoder.decode(part, &mut opened))
}

fn streams() -> Vec<(Vec<u8>, Result<(), UnidirectionalFault>)> {
    let fault = |code| Err(UnidirectionalFault::Connection(code));
    let settings = frame(frame::SETTINGS, &[0x6, 1_000, 0x1, 0, 0x7, 0, 0x21, 5]);
    let control = |frames: &[Vec<u8>]| [&[0][..], &settings, &frames.concat()].concat();
    vec![
        (vec![0], Ok(())),
        (control(&[]), Ok(())),
        (control(&[frame(0x40, &[1, 2]), frame(frame::GOAWAY, &[8]), frame(frame::GOAWAY, &[4])]), Ok(())),
        (control(&[frame(frame::GOAWAY, &[4]), frame(frame::GOAWAY, &[8])]), fault(Http3ErrorCode::ID_ERROR)),
        (control(&[frame(frame::MAX_PUSH_ID, &[4]), frame(frame::MAX_PUSH_ID, &[8])]), Ok(())),
        (
            control(&[frame(frame::MAX_PUSH_ID, &[8]), frame(frame::MAX_PUSH_ID, &[4])]),
            fault(Http3ErrorCode::ID_ERROR),
        ),
        // Bytes after the only field (§7.1), however many.
        (control(&[frame(frame::GOAWAY, &[4, 0])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(&[frame(frame::GOAWAY, &[0; 2_000])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(&[frame(frame::MAX_PUSH_ID, &[0; 9])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(&[frame(frame::CANCEL_PUSH, &[0; 9])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(&[frame(frame::CANCEL_PUSH, &[0])]), fault(Http3ErrorCode::ID_ERROR)),
        (control(&[frame(frame::GOAWAY, &[])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(&[frame(frame::GOAWAY, &[1, 2])]), fault(Http3ErrorCode::FRAME_ERROR)),
        (control(std::slice::from_ref(&settings)), fault(Http3ErrorCode::FRAME_UNEXPECTED)),
        (control(&[frame(frame::DATA, &[])]), fault(Http3ErrorCode::FRAME_UNEXPECTED)),
        (control(&[frame(frame::HEADERS, &[])]), fault(Http3ErrorCode::FRAME_UNEXPECTED)),
        (control(&[frame(0x6, &[])]), fault(Http3ErrorCode::FRAME_UNEXPECTED)),
        (control(&vec![frame(0x40, &[]); 10_000]), fault(Http3ErrorCode::EXCESSIVE_LOAD)),
        ([&[0][..], &frame(frame::GOAWAY, &[4])].concat(), fault(Http3ErrorCode::MISSING_SETTINGS)),
        ([&[0][..], &frame(frame::SETTINGS, &[0x2, 1])].concat(), fault(Http3ErrorCode::SETTINGS_ERROR)),
        (
            [&[0][..], &frame(frame::SETTINGS, &[0x6, 1, 0x6, 1])].concat(),
            fault(Http3ErrorCode::SETTINGS_ERROR),
        ),
        ([&[0][..], &frame(frame::SETTINGS, &[0x8, 2])].concat(), fault(Http3ErrorCode::SETTINGS_ERROR)),
        ([&[0][..], &frame(frame::SETTINGS, &[0x6])].concat(), fault(Http3ErrorCode::FRAME_ERROR)),
        (
            [&[0][..], &frame(frame::SETTINGS, &[1_000_000; 300])].concat(),
            fault(Http3ErrorCode::EXCESSIVE_LOAD),
        ),
        (vec![1], fault(Http3ErrorCode::STREAM_CREATION_ERROR)),
        (vec![0x21], Err(UnidirectionalFault::Unknown)),
        (vec![0x7f, 0xff], Err(UnidirectionalFault::Unknown)),
        (vec![2, 0x20, 0x20], Ok(())),
        (vec![2, 0x21], fault(Http3ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (vec![2, 0xc0], fault(Http3ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (vec![3, 0x44, 0x7f, 0x80, 0x01], Ok(())),
        (vec![3, 0x84], fault(Http3ErrorCode::QPACK_DECODER_STREAM_ERROR)),
        (vec![3, 0x01], fault(Http3ErrorCode::QPACK_DECODER_STREAM_ERROR)),
        (vec![3, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], fault(Http3ErrorCode::QPACK_DECODER_STREAM_ERROR)),
    ]
}

#[test]
fn a_stream_means_the_same_wherever_it_is_cut() {
    for (bytes, expected) in streams() {
        assert_eq!(read(&[&bytes]), expected, "{:02x?}", bytes.get(..40).unwrap_or(&bytes));
        for cut in 0..bytes.len().min(300) {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(read(&[one, other]), expected, "{bytes:02x?} cut at {cut}");
        }
    }
}

#[test]
fn each_stream_is_there_once_and_needed() {
    for kind in [0, 2, 3] {
        let mut opened = OpenedKinds::default();
        let [mut first, mut second] = [UnidirectionalDecoder::default(), UnidirectionalDecoder::default()];
        first.decode(&[kind], &mut opened).unwrap();
        let created = Http3ErrorCode::STREAM_CREATION_ERROR.into();
        assert_eq!(second.decode(&[kind], &mut opened), Err(created));
        assert_eq!(first.end(), Err(Http3ErrorCode::CLOSED_CRITICAL_STREAM.into()));
    }
    assert_eq!(UnidirectionalDecoder::default().end(), Ok(()), "its type was not told");
}

/// PRIORITY_UPDATE (RFC 9218 §7.2), which browsers send with requests.
#[test]
fn frames_of_control_are_bounded_by_requests() {
    let settings = [&[0][..], &frame(frame::SETTINGS, &[])].concat();
    let priority = frame(0xf_0700, &[4]);
    let (mut control, mut opened) = (UnidirectionalDecoder::default(), OpenedKinds::default());
    control.decode(&settings, &mut opened).unwrap();
    for _ in 0..100_000 {
        opened.request_received();
        (0..FRAMES_PER_REQUEST).for_each(|_| control.decode(&priority, &mut opened).unwrap());
    }
    // Without requests there is an end, also where requests came before.
    let excessive = Err(Http3ErrorCode::EXCESSIVE_LOAD.into());
    let left = (0..).find(|_| control.decode(&priority, &mut opened) == excessive).unwrap();
    assert!(left <= MAX_FRAMES, "{left}");
    // All streams of the connection have it together.
    let mut decoder = UnidirectionalDecoder::default();
    assert_eq!(decoder.decode(&[3, 0x44], &mut opened), excessive);
    assert_eq!(UnidirectionalDecoder::default().decode(&[0x21], &mut opened), excessive);
}

#[test]
fn unknown_streams_are_bounded() {
    let mut opened = OpenedKinds::default();
    let open = |opened: &mut OpenedKinds| UnidirectionalDecoder::default().decode(&[0x21], opened);
    for _ in 0..MAX_FRAMES {
        assert_eq!(open(&mut opened), Err(UnidirectionalFault::Unknown));
    }
    assert_eq!(open(&mut opened), Err(Http3ErrorCode::EXCESSIVE_LOAD.into()));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        kind in 0..4_u8,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        cut in 0..400_usize,
    ) {
        let bytes = [&[kind][..], &bytes].concat();
        let (one, other) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(read(&[one, other]), read(&[&bytes]));
    }
}
