//! The encoder of field sections (RFC 9204 §4.5).

use bytes::{BufMut as _, BytesMut};

use super::static_table::{ENTRIES, LENGTH, QpackEntry};
use crate::http2::head::{InvalidHead, write_response, write_trailers};

/// The prefix of a field section that needs no dynamic table (§4.5.1).
const PREFIX: &[u8] = &[0, 0];
/// Upper bound of the bytes of a field besides its name and value: three integers.
const FIELD_OVERHEAD: usize = 32;
/// Upper bound of the length of names in the static table.
const MAX_LENGTH: usize = 33;
/// Letters are told apart by five bits, whatever their case.
const LETTERS: usize = 32;
/// No entry.
const NONE: u8 = u8::MAX;
/// For each length of a name and the low bits of its last letter: the first entry with such a name, or [`NONE`].
static FIRST: [[u8; LETTERS]; MAX_LENGTH + 1] = chains().0;
/// For each entry, the next with a name of the same length and last letter, or [`NONE`].
static NEXT: [u8; LENGTH] = chains().1;

const fn chains() -> ([[u8; LETTERS]; MAX_LENGTH + 1], [u8; LENGTH]) {
    let mut first = [[NONE; LETTERS]; MAX_LENGTH + 1];
    let mut next = [NONE; LENGTH];
    let mut index: u8 = 99;
    assert!(index as usize == LENGTH);
    while index > 0 {
        index -= 1;
        let name = ENTRIES[index as usize].0;
        let chain = &mut first[name.len()][name[name.len() - 1] as usize % LETTERS];
        next[index as usize] = *chain;
        *chain = index;
    }
    (first, next)
}

/// Appends the field section of a response head, given as HTTP/1.1. Connection-specific fields are left out. Returns whether
/// it answers a gRPC call: see [`put_response`](crate::http2::head::put_response) of HTTP/2.
///
/// # Errors
///
/// It has no status line, or a line that is not a field.
pub fn put_response(head: &[u8], out: &mut BytesMut) -> Result<bool, InvalidHead> {
    out.extend_from_slice(PREFIX);
    write_response(head, out, put_status, put_field)
}

/// Appends the field section of trailers, given as lines.
///
/// # Errors
///
/// A line is not a field.
pub fn put_trailers(lines: &[u8], out: &mut BytesMut) -> Result<(), InvalidHead> {
    out.extend_from_slice(PREFIX);
    write_trailers(lines, |name, value| put_field(name, value, out))
}

fn put_status(status: u16, out: &mut BytesMut) {
    put_field(b":status", itoa::Buffer::new().format(status).as_bytes(), out);
}

/// Appends a field. The name may have upper-case letters and is written in lower case.
fn put_field(name: &[u8], value: &[u8], out: &mut BytesMut) {
    out.reserve(name.len() + value.len() + FIELD_OVERHEAD);
    // What intermediaries must not index either (§7.1.3).
    let is_secret = is_secret(name);
    match find(name, value) {
        // §4.5.2.
        Some((index, true)) if !is_secret => put_integer(index, 0xc0, 6, out),
        // §4.5.4.
        Some((index, _)) => {
            put_integer(index, if is_secret { 0x70 } else { 0x50 }, 4, out);
            put_string(value, out);
        }
        // §4.5.6.
        None => {
            put_integer(name.len(), if is_secret { 0x30 } else { 0x20 }, 3, out);
            let start = out.len();
            out.extend_from_slice(name);
            out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
            put_string(value, out);
        }
    }
}

fn is_secret(name: &[u8]) -> bool {
    [&b"authorization"[..], b"cookie", b"proxy-authorization", b"set-cookie"]
        .iter()
        .any(|secret| secret.eq_ignore_ascii_case(name))
}

/// The first entry with this name, or the one with this value, too: then `true`.
fn find(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let letter = usize::from(*name.last()?) % LETTERS;
    let mut index = FIRST.get(name.len())?[letter];
    let mut named = None;
    while index != NONE {
        let at = usize::from(index);
        let (known, known_value): QpackEntry = *ENTRIES.get(at)?;
        if known.eq_ignore_ascii_case(name) {
            if known_value == value {
                return Some((at, true));
            }
            named = named.or(Some((at, false)));
        }
        index = *NEXT.get(at)?;
    }
    named
}

fn put_string(string: &[u8], out: &mut BytesMut) {
    put_integer(string.len(), 0, 7, out);
    out.extend_from_slice(string);
}

/// Appends an integer (RFC 7541 §5.1) that begins in the lowest `prefix` bits of a byte; `high` are the other bits.
fn put_integer(value: usize, high: u8, prefix: u32, out: &mut BytesMut) {
    let mask = u8::MAX >> (8 - prefix);
    match u8::try_from(value) {
        Ok(small) if small < mask => return out.put_u8(high | small),
        _ => out.put_u8(high | mask),
    }
    let mut rest = value - usize::from(mask);
    while rest >= 0x80 {
        out.put_u8(u8::try_from(rest & 0x7f).unwrap_or_default() | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decode;
    use super::*;

    fn decoded(section: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decode(section, |name, value| fields.push((text(name), text(value)))).expect("a good section");
        fields
    }

    #[test]
    fn a_response_is_read_as_it_was_written() {
        let mut section = BytesMut::new();
        let head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nConnection: close\r\nset-cookie: a=b\r\nX-New: 1\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(put_response(head, &mut section), Ok(false));
        let expected = [
            (":status", "404"),
            ("content-type", "text/plain"),
            ("set-cookie", "a=b"),
            ("x-new", "1"),
            ("content-length", "7"),
        ];
        assert_eq!(decoded(&section), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    proptest! {
        #[test]
        fn fields_are_read_as_they_were_written(
            fields in prop::collection::vec((
                prop_oneof!["[a-z0-9-]{1,40}", prop::sample::select(
                    ENTRIES.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
                )],
                prop_oneof!["[ -~]{0,300}", prop::sample::select(
                    ENTRIES.iter().map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
                )],
            ), 0..20)
        ) {
            let mut section = BytesMut::from(PREFIX);
            fields.iter().for_each(|(name, value)| put_field(name.as_bytes(), value.as_bytes(), &mut section));
            prop_assert_eq!(decoded(&section), fields);
        }

        #[test]
        fn any_section_is_read_or_refused(section in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut count = 0;
            if decode(&section, |_, _| count += 1).is_err() {
                prop_assert!(count <= section.len());
            }
        }
    }
}
