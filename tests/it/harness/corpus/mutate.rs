//! Small damage to a message, of the kinds that parsers disagree about.

use super::generate::Random;

/// Bytes that mean something to a parser.
const TELLING: &[u8] = b"\r\n\t :;,=\"\\/.%#\0\x0b\x7f\x80\xff0159afgxG_-+";

/// Damages the message in one to three places.
pub(super) fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(12) {
            0 => bytes[at] = byte(random),
            1 | 2 => bytes.insert(at, byte(random)),
            3 => drop(bytes.remove(at)),
            4 => {
                let end = (at + 1 + random.below(12)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => bytes.truncate(at),
            6 => double_line(random, bytes),
            7 => digit(random, bytes),
            _ => line_end(random, bytes),
        }
    }
}

fn byte(random: &mut Random) -> u8 {
    if random.percent(80) { TELLING[random.below(TELLING.len())] } else { random.next().to_le_bytes()[0] }
}

/// One of the places at which `found` holds.
fn place(random: &mut Random, bytes: &[u8], found: impl Fn(u8) -> bool) -> Option<usize> {
    let places: Vec<usize> = (0..bytes.len()).filter(|&at| found(bytes[at])).collect();
    (!places.is_empty()).then(|| places[random.below(places.len())])
}

/// An end of a line becomes something like it.
fn line_end(random: &mut Random, bytes: &mut Vec<u8>) {
    const ENDS: &[&[u8]] =
        &[b"\n", b"\r", b"", b"\r\r\n", b"\n\r", b"\r\n\r\n", b"\r\n ", b" \r\n", b"\r \n"];
    let Some(at) = place(random, bytes, |byte| byte == b'\n') else { return };
    let begin = if at > 0 && bytes[at - 1] == b'\r' { at - 1 } else { at };
    bytes.splice(begin..=at, random.pick(ENDS).iter().copied());
}

fn double_line(random: &mut Random, bytes: &mut Vec<u8>) {
    let Some(end) = place(random, bytes, |byte| byte == b'\n') else { return };
    let begin = bytes[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = bytes[begin..=end].to_vec();
    bytes.splice(begin..begin, line);
}

/// A number is off by one.
fn digit(random: &mut Random, bytes: &mut [u8]) {
    let Some(at) = place(random, bytes, |byte| byte.is_ascii_digit()) else { return };
    bytes[at] = if random.percent(50) { bytes[at] + 1 } else { bytes[at].saturating_sub(1) };
}
