//! Fragments in paths are found in any block of fields that HPACK allows, however it is written and cut.

use proptest::prelude::*;
use tollgate::http2::fragments::Fragments;
use tollgate::http2::frames::Frames;

use crate::harness::frames::{CONTINUATION, END_HEADERS, HEADERS, frame};
use crate::harness::hpack::{put_number, put_string};

const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Entries of the static table.
const STATIC: usize = 61;
/// Bytes of the dynamic table, until the client wants less (RFC 7541 §4.2).
const ROOM: usize = 4096;

/// A field as it is written.
#[derive(Clone, Debug)]
enum Written {
    Literal {
        name: Name,
        value: Vec<u8>,
        form: Form,
        huffman: (bool, bool),
    },
    Static(usize),
    /// One of those in the dynamic table.
    Dynamic(prop::sample::Index),
    Resize(usize),
}

#[derive(Clone, Debug)]
enum Name {
    Text(String),
    Static(usize),
    /// That of one in the dynamic table.
    Dynamic(prop::sample::Index),
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Kept,
    Passing,
    NeverKept,
}

/// A block of fields, and how it is put into frames.
#[derive(Clone, Debug)]
struct Block {
    fields: Vec<Written>,
    /// It goes on in further frames after so many bytes.
    cuts: Vec<usize>,
    padding: Option<u8>,
    priority: bool,
    /// It belongs to the stream before.
    trailers: bool,
}

/// A client's dynamic table: name, value and size of each entry, the newest first.
struct Table {
    entries: Vec<(String, Vec<u8>)>,
    room: usize,
}

impl Table {
    fn keep(&mut self, name: String, value: Vec<u8>) {
        self.entries.insert(0, (name, value));
        self.shrink();
    }

    fn shrink(&mut self) {
        let size = |entries: &[(String, Vec<u8>)]| {
            entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
        };
        while size(&self.entries) > self.room {
            self.entries.pop();
        }
    }

    /// Writes a field. Whether it is a path with a fragment; `None` if it cannot be written.
    fn write(&mut self, field: &Written, block: &mut Vec<u8>) -> Option<bool> {
        let is_bad = |name: &str, value: &[u8]| name == ":path" && value.contains(&b'#');
        match field {
            Written::Static(place) => put_number(*place, 0x80, 0x7f, block),
            Written::Dynamic(index) => {
                let place = index.index(self.entries.len().max(1));
                let (name, value) = self.entries.get(place)?;
                put_number(STATIC + 1 + place, 0x80, 0x7f, block);
                return Some(is_bad(name, value));
            }
            Written::Resize(room) => {
                put_number(*room, 0x20, 0x1f, block);
                self.room = *room;
                self.shrink();
            }
            Written::Literal { name, value, form, huffman } => {
                let (high, mask) = match form {
                    Form::Kept => (0x40, 0x3f),
                    Form::Passing => (0, 0x0f),
                    Form::NeverKept => (0x10, 0x0f),
                };
                let name = match name {
                    Name::Text(name) => {
                        put_number(0, high, mask, block);
                        put_string(name.as_bytes(), huffman.0, block);
                        name.clone()
                    }
                    Name::Static(place) => {
                        put_number(*place, high, mask, block);
                        if matches!(place, 4 | 5) { ":path" } else { "other" }.to_owned()
                    }
                    Name::Dynamic(index) => {
                        let place = index.index(self.entries.len().max(1));
                        let (name, _) = self.entries.get(place)?;
                        put_number(STATIC + 1 + place, high, mask, block);
                        name.clone()
                    }
                };
                put_string(value, huffman.1, block);
                let bad = is_bad(&name, value);
                if let Form::Kept = form {
                    self.keep(name, value.clone());
                }
                return Some(bad);
            }
        }
        Some(false)
    }
}

/// The frames of these blocks, and the streams of the requests among them that have a fragment.
fn written(blocks: &[Block]) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut bad, mut stream) = (Vec::new(), Vec::new(), 1);
    let mut table = Table { entries: Vec::new(), room: ROOM };
    for (number, block) in blocks.iter().enumerate() {
        let mut fields = Vec::new();
        // Not `any`, which would leave the rest unwritten.
        let has_fragment = block
            .fields
            .iter()
            .filter_map(|field| table.write(field, &mut fields))
            .filter(|bad| *bad)
            .count()
            > 0;
        let trailers = block.trailers && number > 0;
        if !trailers {
            stream += 2;
        }
        if has_fragment && !trailers {
            bad.push(stream);
        }
        put_frames(block, stream, &fields, &mut bytes);
        bytes.extend(frame(6, 0, 0, b"#ping---"));
    }
    (bytes, bad)
}

fn put_frames(block: &Block, stream: u32, mut fields: &[u8], bytes: &mut Vec<u8>) {
    let mut parts = Vec::new();
    for cut in &block.cuts {
        let (part, rest) = fields.split_at((*cut).min(fields.len()));
        parts.push(part);
        fields = rest;
    }
    parts.push(fields);
    let last = parts.len() - 1;
    for (number, part) in parts.into_iter().enumerate() {
        let end = if number == last { END_HEADERS } else { 0 };
        if number > 0 {
            bytes.extend(frame(CONTINUATION, end | PADDED | PRIORITY, stream, part));
            continue;
        }
        let (mut flags, mut payload) = (end, Vec::new());
        if let Some(padding) = block.padding {
            flags |= PADDED;
            payload.push(padding);
        }
        if block.priority {
            flags |= PRIORITY;
            payload.extend([0, 0, 0, 0, b'#']);
        }
        payload.extend(part);
        payload.extend(vec![0x44; usize::from(block.padding.unwrap_or_default())]);
        bytes.extend(frame(HEADERS, flags, stream, &payload));
    }
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "/[a-z0-9/?#'>%.]{0,20}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(b"#~|>?'\0\xff0a".to_vec()), 0..400),
    ]
}

fn field() -> impl Strategy<Value = Written> {
    let name = prop_oneof![
        3 => Just(Name::Text(":path".to_owned())),
        1 => ":pat|:paths|Path|[a-z:]{1,8}".prop_map(Name::Text),
        3 => (4_usize..=5).prop_map(Name::Static),
        1 => (1_usize..=STATIC).prop_map(Name::Static),
        2 => any::<prop::sample::Index>().prop_map(Name::Dynamic),
    ];
    let form = prop::sample::select(vec![Form::Kept, Form::Kept, Form::Passing, Form::NeverKept]);
    prop_oneof![
        6 => (name, value(), form, any::<(bool, bool)>())
            .prop_map(|(name, value, form, huffman)| Written::Literal { name, value, form, huffman }),
        1 => (1_usize..=STATIC).prop_map(Written::Static),
        3 => any::<prop::sample::Index>().prop_map(Written::Dynamic),
        1 => (0..=ROOM).prop_map(Written::Resize),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let fields = prop::collection::vec(field(), 0..6);
    let cuts = prop::collection::vec(0_usize..30, 0..4);
    (fields, cuts, prop::option::weighted(0.3, any::<u8>()), any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(fields, cuts, padding, priority, trailers)| Block {
            fields,
            cuts,
            padding,
            priority,
            trailers,
        })
}

/// The streams with a fragment that are found in bytes that come in these pieces.
fn found(bytes: &[u8], pieces: &[usize]) -> Vec<u32> {
    let (mut frames, mut fragments) = (Frames::default(), Fragments::default());
    let (mut rest, mut streams) = (bytes, Vec::new());
    for piece in pieces.iter().cycle() {
        let (mut here, behind) = rest.split_at((*piece).min(rest.len()));
        rest = behind;
        while let Some(part) = frames.next(&mut here) {
            streams.extend(fragments.see(&part));
        }
        if rest.is_empty() {
            return streams;
        }
    }
    streams
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn every_fragment_is_found_and_nothing_else(
        blocks in prop::collection::vec(block(), 1..12),
        pieces in prop::collection::vec(1_usize..60, 1..40),
    ) {
        let (bytes, bad) = written(&blocks);
        prop_assert_eq!(&found(&bytes, &[bytes.len()]), &bad, "at once");
        prop_assert_eq!(found(&bytes, &pieces), bad);
    }

    #[test]
    fn arbitrary_bytes_are_read_alike_however_they_are_cut(
        frames in prop::collection::vec(
            (prop::sample::select(vec![0_u8, 1, 1, 1, 9, 9]), any::<u8>(), prop::collection::vec(any::<u8>(), 0..80)), 0..8),
        rest in prop::collection::vec(any::<u8>(), 0..40),
        pieces in prop::collection::vec(1_usize..20, 1..40),
    ) {
        let framed = frames.iter().zip(1..).flat_map(|((kind, flags, payload), stream)| frame(*kind, *flags, stream, payload));
        let bytes: Vec<u8> = framed.chain(rest).collect();
        prop_assert_eq!(found(&bytes, &[bytes.len().max(1)]), found(&bytes, &pieces));
    }
}
