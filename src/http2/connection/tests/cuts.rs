//! Received bytes have the same effect in any segments, and no bytes cause a panic or a hang.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The frames of a client.
#[derive(Clone, Debug)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Sent {
    fn put(&self, out: &mut BytesMut) {
        let header = FrameHeader {
            length: self.payload.len(),
            kind: self.kind,
            flags: self.flags,
            stream: self.stream,
        };
        header.put(out);
        out.extend_from_slice(&self.payload);
    }
}

fn sent(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Sent {
    Sent { kind, flags, stream, payload: payload.into() }
}

/// A few streams, so that frames share streams.
fn stream() -> impl Strategy<Value = u32> {
    prop_oneof![8 => (0_u32..8).prop_map(|number| number * 2 + 1), 1 => 0_u32..20]
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    let length = |digit: u8| [POST, &[0x0f, 13, 1, digit]].concat();
    prop_oneof![
        6 => Just(GET.to_vec()),
        6 => Just(POST.to_vec()),
        2 => Just(CONNECT.to_vec()),
        2 => (b'0'..=b'9').prop_map(length),
        // Trailers, and a header for the dynamic table.
        3 => Just(vec![0, 1, b'a', 1, b'b']),
        2 => Just([GET, &[0x40, 1, b'a', 1, b'b']].concat()),
        2 => Just([GET, &[0xbe]].concat()),
        1 => vec(any::<u8>(), 0..20),
    ]
}

/// A header block in frames, with padding and priority, or without.
fn heads() -> impl Strategy<Value = Vec<Sent>> {
    (stream(), block(), any::<bool>(), 0..4_u8, vec(any::<prop::sample::Index>(), 0..3)).prop_map(
        |(stream, block, ended, dress, cuts)| {
            let mut indices: Vec<_> = cuts.iter().map(|cut| cut.index(block.len() + 1)).collect();
            indices.extend([0, block.len()]);
            indices.sort_unstable();
            let mut frames = Vec::new();
            for pair in indices.windows(2) {
                frames.push(sent(kind::CONTINUATION, 0, stream, &block[pair[0]..pair[1]]));
            }
            let first = &mut frames[0];
            (first.kind, first.flags) = (kind::HEADERS, u8::from(ended) * flag::END_STREAM);
            if dress & 1 > 0 {
                first.flags |= flag::PRIORITY;
                first.payload.splice(..0, [0, 0, 0, 3, 9]);
            }
            if dress & 2 > 0 {
                first.flags |= flag::PADDED;
                first.payload.insert(0, 3);
                first.payload.extend([0; 3]);
            }
            let last = frames.len() - 1;
            frames[last].flags |= flag::END_HEADERS;
            frames
        },
    )
}

fn data() -> impl Strategy<Value = Vec<Sent>> {
    let length = prop_oneof![0..12_usize, Just(16_384), Just(8_000)];
    (stream(), length, any::<bool>(), proptest::option::weighted(0.3, 0..20_u8)).prop_map(
        |(stream, length, ended, padding)| {
            let mut frame = sent(kind::DATA, u8::from(ended), stream, vec![b'x'; length]);
            if let Some(padding) = padding
                && let Some(first) = frame.payload.first_mut()
            {
                *first = padding;
                frame.flags |= flag::PADDED;
            }
            vec![frame]
        },
    )
}

/// Frames in a valid order, except for random choices.
fn frames() -> impl Strategy<Value = Vec<Sent>> {
    let code = prop_oneof![Just(0_u32), Just(1), Just(8), Just(0x7fff_ffff)];
    let setting = (0_u8..8, prop_oneof![Just(0_u32), Just(1), Just(20_000), Just(1 << 31)]);
    let settings = vec(setting, 0..3).prop_map(|settings| {
        let payload = settings.iter().flat_map(|(id, value)| [&[0, *id][..], &value.to_be_bytes()].concat());
        vec![sent(kind::SETTINGS, 0, 0, payload.collect::<Vec<_>>())]
    });
    let one = prop_oneof![
        10 => heads(),
        10 => data(),
        2 => (stream(), code.clone()).prop_map(|(id, code)| vec![sent(kind::RST_STREAM, 0, id, code.to_be_bytes())]),
        2 => (prop_oneof![Just(0), stream()], code)
            .prop_map(|(id, code)| vec![sent(kind::WINDOW_UPDATE, 0, id, code.to_be_bytes())]),
        1 => settings,
        1 => Just(vec![sent(kind::SETTINGS, flag::ACK, 0, [])]),
        2 => any::<[u8; 8]>().prop_map(|payload| vec![sent(kind::PING, 0, 0, payload)]),
        1 => stream().prop_map(|id| vec![sent(kind::PRIORITY, 0, id, [0, 0, 0, 3, 1])]),
        1 => (10..255_u8, stream(), vec(any::<u8>(), 0..30)).prop_map(|(kind, id, payload)| vec![sent(kind, 0xff, id, payload)]),
        1 => Just(vec![sent(kind::GOAWAY, 0, 0, [0; 10])]),
    ];
    let odd = (0..11_u8, any::<u8>(), stream(), vec(any::<u8>(), 0..12));
    let odd = odd.prop_map(|(kind, flags, id, payload)| sent(kind, flags, id, payload));
    (vec(one, 1..40), proptest::option::weighted(0.5, (odd, any::<prop::sample::Index>()))).prop_map(
        |(parts, odd)| {
            let mut frames = parts.concat();
            if let Some((frame, index)) = odd {
                frames.insert(index.index(frames.len() + 1), frame);
            }
            frames
        },
    )
}

/// The received parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    stream: u32,
    head: String,
    body: Vec<u8>,
    trailers: Option<BytesMut>,
    ended: bool,
    lost: bool,
    /// The client has reset the stream, or the connection has ended.
    reset: bool,
}

/// Sends the bytes in segments of these sizes, in a cycle. Returns the outcome.
fn outcome(
    bytes: &[u8],
    sizes: &[usize],
    takes_at_once: bool,
) -> (Vec<Seen>, Vec<Frame>, Option<super::super::ConnectionEnd>) {
    let context = Context::from_waker(Waker::noop());
    let mut peer = Peer::new(|stream| Http2Codec::server(stream, BytesMut::new(), Rc::default(), &SETTINGS));
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    let (mut seen, mut frames) = (Vec::<Seen>::new(), Vec::new());
    let mut take = |peer: &Peer| {
        seen.resize_with(peer.requests.len(), Seen::default);
        for (request, seen) in peer.requests.iter().zip(&mut seen) {
            seen.stream = request.stream.id;
            seen.head = format!("{:?}", request.head);
            let mut body = BytesMut::new();
            while let Poll::Ready(read) = request.stream.poll_read(&context, &mut body) {
                match read {
                    Ok(0) => seen.ended = true,
                    Err(_) => seen.lost = true,
                    Ok(_) => continue,
                }
                break;
            }
            // The data is not released: the window updates depend on the segments.
            seen.body.extend_from_slice(&body);
            seen.trailers = request.stream.trailers();
            seen.reset = request.stream.poll_reset(&context).is_ready();
        }
    };
    while !rest.is_empty() && !peer.over {
        let (now, later) = rest.split_at((*sizes.next().expect("it repeats")).min(rest.len()));
        rest = later;
        peer.write(now);
        frames.extend(peer.frames());
        if takes_at_once {
            take(&peer);
        }
        let state = peer.connection.state.borrow();
        assert!(state.inbound.bytes.len() <= 48 << 10, "{}", state.inbound.bytes.len());
        assert!(state.outbound.bytes.is_empty() || peer.over);
    }
    take(&peer);
    frames.extend(peer.whole_frames());
    // Padding is released with its segment, so increments differ.
    frames.retain(|frame| frame.header.kind != kind::WINDOW_UPDATE);
    let end = peer.connection.end();
    (seen, frames, end)
}

/// Whether the connection ended because of a frame of a stream that the client had ended.
fn is_late(end: Option<&super::super::ConnectionEnd>) -> bool {
    end.is_some_and(|end| format!("{end:?}").contains("of a stream that is over"))
}

/// The outcome does not depend on the segments. At a connection error, requests not returned yet are dropped.
///
/// There are two exceptions. A frame that follows the reset of its stream ends the connection, or only the stream while
/// its request is still served. The latter depends on whether a segment ended between the two. A request that either side
/// resets in the segment of its head is not returned.
fn assert_same(bytes: &[u8], sizes: &[usize], takes_at_once: bool) {
    let (mut whole, mut cut) = (outcome(bytes, &[16 << 10], false), outcome(bytes, sizes, takes_at_once));
    if is_late(whole.2.as_ref()) || is_late(cut.2.as_ref()) {
        return;
    }
    if whole.2.is_some() {
        retain_common(&mut whole.0, &mut cut.0, |_| true);
    }
    retain_common(&mut whole.0, &mut cut.0, |seen| seen.reset);
    assert_eq!(cut, whole);
}

/// Removes the requests that only one of the two has, where they may be missing.
fn retain_common(one: &mut Vec<Seen>, other: &mut Vec<Seen>, may_be_missing: impl Fn(&Seen) -> bool) {
    let has = |all: &[Seen], stream: u32| all.iter().any(|seen| seen.stream == stream);
    one.retain(|seen| !may_be_missing(seen) || has(other, seen.stream));
    other.retain(|seen| !may_be_missing(seen) || has(one, seen.stream));
}

fn opened(frames: &[Sent]) -> BytesMut {
    let mut bytes = BytesMut::from(PREFACE);
    sent(kind::SETTINGS, 0, 0, []).put(&mut bytes);
    frames.iter().for_each(|frame| frame.put(&mut bytes));
    bytes
}

#[test]
fn a_reset_in_the_segment_of_its_head_is_no_difference() {
    for end_stream in [0, flag::END_STREAM] {
        let head = |stream| sent(kind::HEADERS, flag::END_HEADERS | end_stream, stream, super::POST);
        let reset = sent(kind::RST_STREAM, 0, 1, 8_u32.to_be_bytes());
        assert_same(&opened(&[head(1), head(3), reset.clone()]), &[1], true);
        assert_same(&opened(&[head(1), reset]), &[1], true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cuts_do_not_matter(frames in frames(), sizes in vec(prop_oneof![1..30_usize, 1..20_000_usize], 1..20)) {
        let bytes = opened(&frames);
        assert_same(&bytes, &sizes, true);
        if bytes.len() < 4_000 {
            assert_same(&bytes, &[1], false);
        }
    }

    #[test]
    fn no_bytes_do_harm(garbage in vec(any::<u8>(), 0..3_000), sizes in vec(1..300_usize, 1..9), greeted in any::<bool>()) {
        let mut bytes = if greeted { opened(&[]) } else { BytesMut::from(PREFACE) };
        bytes.extend_from_slice(&garbage);
        assert_same(&bytes, &sizes, true);
    }

    /// Frames with valid headers and random payloads.
    #[test]
    fn no_payload_does_harm(
        frames in vec((0..11_u8, any::<u8>(), stream(), vec(any::<u8>(), 0..40)), 0..60),
        sizes in vec(1..99_usize, 1..9),
    ) {
        let sent = |(kind, flags, id, payload): (u8, u8, u32, Vec<u8>)| sent(kind, flags, id, payload);
        let frames: Vec<_> = frames.into_iter().map(sent).collect();
        assert_same(&opened(&frames), &sizes, true);
    }
}
