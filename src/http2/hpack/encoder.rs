//! The encoder of HPACK blocks (RFC 7541 §6).
//!
//! It uses the static table and literals without indexing. It has no dynamic table, so a block does not depend on
//! earlier ones. Credentials and cookies are literals that intermediaries must not index either (§7.1.3).

use bytes::{BufMut as _, BytesMut};

use super::static_table;

/// Upper bound of the bytes of a field besides its name and value: three integers.
const FIELD_OVERHEAD: usize = 32;
/// Upper bound of the length of names in the static table.
const MAX_LENGTH: usize = 27;
/// For each length of a name and the low bits of its last letter: the first index of such a name in the static table, or 0.
static FIRST: [[u8; LETTERS]; MAX_LENGTH + 1] = chains().0;
/// For each index, that of another name of the same length and last letter, or 0.
static NEXT: [u8; static_table::LENGTH + 1] = chains().1;
/// Letters are told apart by five bits, whatever their case.
const LETTERS: usize = 32;

const fn chains() -> ([[u8; LETTERS]; MAX_LENGTH + 1], [u8; static_table::LENGTH + 1]) {
    let mut first = [[0; LETTERS]; MAX_LENGTH + 1];
    let mut next = [0; static_table::LENGTH + 1];
    let mut index: u8 = 61;
    assert!(index as usize == static_table::LENGTH);
    while index > 0 {
        let name = static_table::ENTRIES[index as usize - 1].0;
        // Entries with one name are adjacent.
        if index == 1 || !is_same(name, static_table::ENTRIES[index as usize - 2].0) {
            let chain = &mut first[name.len()][name[name.len() - 1] as usize % LETTERS];
            next[index as usize] = *chain;
            *chain = index;
        }
        index -= 1;
    }
    (first, next)
}

const fn is_same(name: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() && at < other.len() && name[at] == other[at] {
        at += 1;
    }
    at == name.len() && at == other.len()
}

/// Appends the field `:status` with a status of three digits.
pub fn put_status(status: u16, out: &mut BytesMut) {
    let indexed = match status {
        200 => 0x88,
        204 => 0x89,
        206 => 0x8a,
        304 => 0x8b,
        400 => 0x8c,
        404 => 0x8d,
        500 => 0x8e,
        _ => {
            let digit = |unit: u16| b'0' + u8::try_from(status / unit % 10).unwrap_or(0);
            out.extend_from_slice(&[0x08, 3, digit(100), digit(10), digit(1)]);
            return;
        }
    };
    out.put_u8(indexed);
}

/// The scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// The field `:scheme`: one byte.
pub fn scheme_field(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::Http => 0x86,
        Scheme::Https => 0x87,
    }
}

/// Appends a field. The name may have upper-case letters and is written in lower case.
pub fn put_field(name: &[u8], value: &[u8], out: &mut BytesMut) {
    out.reserve(name.len() + value.len() + FIELD_OVERHEAD);
    let Some(index) = name_index(name) else {
        put_new_name(name.len(), out);
        let start = out.len();
        out.extend_from_slice(name);
        out[start..].make_ascii_lowercase();
        return put_string(value, out);
    };
    let is_secret = is_never_indexed(index);
    match full_index(index, value) {
        Some(index) if !is_secret => put_integer(index, 0x80, 7, out),
        _ => {
            put_integer(index, if is_secret { 0x10 } else { 0 }, 4, out);
            put_string(value, out);
        }
    }
}

/// Appends a field whose name is in lower case and not in the static table. `end`: the end of its value, in parts.
pub fn put_new_field(name: &[u8], start: &[u8], end: &[&[u8]], out: &mut BytesMut) {
    let length = start.len() + end.iter().map(|part| part.len()).sum::<usize>();
    out.reserve(name.len() + length + FIELD_OVERHEAD);
    put_new_name(name.len(), out);
    out.extend_from_slice(name);
    put_integer(length, 0, 7, out);
    out.extend_from_slice(start);
    end.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a size update (§6.3), which may only stand at the start of a block.
///
/// An encoder without a dynamic table may write size 0 once, at the start of the first block of a connection. No
/// further size update is due then, whatever SETTINGS_HEADER_TABLE_SIZE the peer sends (§4.2).
pub fn put_table_size(size: usize, out: &mut BytesMut) {
    put_integer(size, 0x20, 5, out);
}

/// The first index of a name in the static table.
#[inline]
fn name_index(name: &[u8]) -> Option<usize> {
    let letter = usize::from(*name.last()?) % LETTERS;
    let mut index = usize::from(FIRST.get(name.len())?[letter]);
    // Few names have the length and the last letter of another.
    while index > 0 {
        let (known, _) = static_table::get(index)?;
        if known.eq_ignore_ascii_case(name) {
            return Some(index);
        }
        index = usize::from(NEXT[index]);
    }
    None
}

/// The index of the entry with this value and the name of the entry at `first`, which is the first with that name.
fn full_index(first: usize, value: &[u8]) -> Option<usize> {
    let (name, _) = static_table::get(first)?;
    let entries = static_table::ENTRIES.iter().zip(1..).skip(first - 1);
    let mut entries = entries.take_while(|((known, _), _)| *known == name);
    entries.find(|((_, known), _)| *known == value).map(|(_, index)| index)
}

/// Whether the name at this index is `authorization`, `cookie`, `proxy-authorization` or `set-cookie`.
fn is_never_indexed(index: usize) -> bool {
    matches!(index, 23 | 32 | 49 | 55)
}

/// Appends the begin of a field whose name is not in the static table, up to the name.
#[inline]
fn put_new_name(length: usize, out: &mut BytesMut) {
    match u8::try_from(length) {
        Ok(short) if short < 0x7f => out.extend_from_slice(&[0, short]),
        _ => {
            out.put_u8(0);
            put_integer(length, 0, 7, out);
        }
    }
}

#[inline]
fn put_string(string: &[u8], out: &mut BytesMut) {
    put_integer(string.len(), 0, 7, out);
    out.extend_from_slice(string);
}

/// Appends an integer (§5.1) that begins in the lowest `prefix` bits of a byte; `high` are the other bits.
#[inline]
fn put_integer(value: usize, high: u8, prefix: u32, out: &mut BytesMut) {
    let mask = (1_u8 << prefix) - 1;
    match u8::try_from(value) {
        Ok(small) if small < mask => out.put_u8(high | small),
        _ => put_long_integer(value - usize::from(mask), high | mask, out),
    }
}

/// Appends a byte, and the rest of an integer in groups of seven bits.
#[inline(never)]
fn put_long_integer(mut rest: usize, first: u8, out: &mut BytesMut) {
    let mut bytes = [first; 1 + usize::BITS.div_ceil(7) as usize];
    let mut length = 1;
    for byte in &mut bytes[1..] {
        *byte = low_bits(rest);
        length += 1;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        *byte |= 0x80;
    }
    out.extend_from_slice(&bytes[..length]);
}

/// The lowest seven bits.
fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_field(name.as_bytes(), value.as_bytes(), &mut out);
        out.to_vec()
    }

    #[test]
    fn entries_of_the_static_table_are_one_byte() {
        for ((name, value), index) in static_table::ENTRIES.iter().zip(1..) {
            let mut out = BytesMut::new();
            put_field(&name.to_ascii_uppercase(), value, &mut out);
            if matches!(*name, b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie") {
                assert_eq!(out[..], [0x1f, index - 15, 0]);
            } else {
                assert_eq!(out[..], [0x80 | index]);
            }
        }
    }

    #[test]
    fn names_are_indexed_or_in_lower_case() {
        assert_eq!(field(":method", "PUT"), b"\x02\x03PUT");
        assert_eq!(field(":status", "201"), b"\x08\x03201");
        assert_eq!(field("Age", "7"), b"\x0f\x06\x017");
        assert_eq!(field("X-Age", "7A"), b"\x00\x05x-age\x027A");
        assert_eq!(field("cookie", "a=b"), b"\x1f\x11\x03a=b");
        assert_eq!(field("", ""), [0, 0, 0]);
        assert_eq!(field("Authorization", "x")[..2], [0x1f, 8]);
    }

    #[test]
    fn a_status_is_indexed_if_it_can_be() {
        for status in 100..1000 {
            let mut out = BytesMut::new();
            put_status(status, &mut out);
            assert_eq!(out[..], field(":status", &status.to_string()));
        }
    }

    #[test]
    fn sizes_are_written_as_in_the_rfc() {
        let size = |size| {
            let mut out = BytesMut::new();
            put_table_size(size, &mut out);
            out.to_vec()
        };
        assert_eq!((size(0), size(1337)), (vec![0x20], vec![0x3f, 0x9a, 0x0a]));
    }
}
