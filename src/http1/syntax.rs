//! The grammar that requests and responses share (RFC 9110 §5, RFC 9112 §5).

/// `field-name ":" OWS field-value OWS`: the name, the position of the value, and the value without the blanks around
/// it.
///
/// # Errors
///
/// The fault of the line.
pub fn split_field(line: &[u8]) -> Result<(&[u8], usize, &[u8]), &'static str> {
    let (name, rest) = line.split_at(token_length(line));
    let value = match rest {
        [] => return Err("a field has no colon"),
        [b':', value @ ..] if !name.is_empty() => value,
        _ => return Err("a field name is not a token"),
    };
    if !is_value(value) {
        return Err("a field value has a control character");
    }
    let trimmed = trim_blanks_start(value);
    Ok((name, line.len() - trimmed.len(), trim_blanks_end(trimmed)))
}

/// The number of token bytes at the start of the line. Names rarely contain other characters than letters and `-`, so
/// eight bytes at a time are checked for others.
fn token_length(line: &[u8]) -> usize {
    let mut length = 0;
    while let Some(eight) = line[length..].first_chunk() {
        let others = others(u64::from_le_bytes(*eight));
        length += others.trailing_zeros() as usize / 8;
        if others != 0 {
            break;
        }
    }
    length + line[length..].iter().take_while(|&&byte| is_token(byte)).count()
}

/// The top bits of those bytes that are neither letters nor `-`. No sum of two bytes below 0x80 carries into the next
/// byte.
const fn others(eight: u64) -> u64 {
    let seven_bits = eight & repeated(0x7f);
    let lower = seven_bits | repeated(b' ');
    let from_a = lower + repeated(0x80 - b'a');
    let past_z = lower + repeated(0x80 - b'z' - 1);
    let no_hyphen = (seven_bits ^ repeated(b'-')) + repeated(0x7f);
    (eight | (!from_a | past_z) & no_hyphen) & repeated(0x80)
}

/// obs-text (0x80 and above) is opaque but legal; HTAB is the only control allowed (RFC 9110 §5.5).
pub fn is_value(value: &[u8]) -> bool {
    let good = |byte| byte >= b' ' && byte != DEL || byte == b'\t';
    all(value, |eight| any_below(eight, b' ') | any_equal(eight, DEL), good)
}

/// Whether a target has only valid characters, or ones that clients send nevertheless: visible ASCII but `#`.
pub fn is_target(target: &[u8]) -> bool {
    let good = |byte| byte > b' ' && byte < DEL && byte != b'#';
    let suspects = |eight| {
        any_below(eight, b'!') | any_equal(eight, DEL) | any_equal(eight, b'#') | (eight & repeated(0x80))
    };
    all(target, suspects, good)
}

const DEL: u8 = 0x7f;

/// Whether all bytes are `good`. Eight at a time are checked by `suspects`, which is 0 if all eight are good; the last
/// eight overlap those before them, which costs less than checking the rest one by one.
fn all(bytes: &[u8], suspects: impl Fn(u64) -> u64, good: impl Fn(u8) -> bool) -> bool {
    let (words, _) = bytes.as_chunks();
    let is_clean = |eight: &[u8; 8]| suspects(u64::from_ne_bytes(*eight)) == 0;
    match bytes.last_chunk() {
        Some(last) if is_clean(last) && words.iter().all(is_clean) => true,
        _ => bytes.iter().all(|&byte| good(byte)),
    }
}

/// A word of eight equal bytes.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Not 0 if one of the bytes is below `bound`, which is at most 0x80: only then does the subtraction borrow into a top
/// bit that was clear (Bit Twiddling Hacks, "Determine if a word has a byte less than n").
const fn any_below(eight: u64, bound: u8) -> u64 {
    eight.wrapping_sub(repeated(bound)) & !eight & repeated(0x80)
}

/// Not 0 if one of the bytes is this one.
const fn any_equal(eight: u64, byte: u8) -> u64 {
    any_below(eight ^ repeated(byte), 1)
}

fn trim_blanks_start(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    value
}

/// Whether a field's name, a token, is this one, which consists of lower-case letters, digits and `-`.
///
/// The bit that distinguishes upper from lower case is set in all of these, and no token character but the upper-case
/// letters becomes one of them when it is set.
pub fn is_named(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    let (words, rest) = name.as_chunks::<8>();
    let (lower_words, lower_rest) = lower.as_chunks::<8>();
    let words = words.iter().zip(lower_words);
    let rest = rest.iter().zip(lower_rest);
    let differs = words.fold(0, |sum, (&eight, &lower)| {
        sum | ((u64::from_ne_bytes(eight) | repeated(b' ')) ^ u64::from_ne_bytes(lower))
    });
    differs == 0 && rest.fold(0, |sum, (byte, lower)| sum | ((byte | b' ') ^ lower)) == 0
}

fn trim_blanks_end(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Without blanks and tabs at both ends.
pub fn trim_blanks(value: &[u8]) -> &[u8] {
    trim_blanks_end(trim_blanks_start(value))
}

/// The items of a comma-separated list, without the blanks around them.
pub fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    list.split(|&byte| byte == b',').map(trim_blanks)
}

/// Whether a comma-separated list has this item, in any case.
pub fn has_item(list: &[u8], item: &[u8]) -> bool {
    items(list).any(|part| part.eq_ignore_ascii_case(item))
}

/// 1*DIGIT below 2^63; no sign, no blank, no list.
pub fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let length = value.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then_some(u64::from(byte.wrapping_sub(b'0')))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    (length < 1 << 63).then_some(length)
}

/// tchar of RFC 9110 §5.6.2.
pub const fn is_token(byte: u8) -> bool {
    IS_TOKEN[byte as usize]
}

const IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+')
            || matches!(byte, b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn eight_at_a_time_are_judged_as_one_by_one(bytes in prop::collection::vec(prop_oneof![8 => b' '..=b'~', 1 => any::<u8>()], 0..40)) {
            let value = bytes.iter().all(|&byte| byte >= b' ' && byte != 0x7f || byte == b'\t');
            prop_assert_eq!(is_value(&bytes), value);
            let target = bytes.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#');
            prop_assert_eq!(is_target(&bytes), target);
        }

        #[test]
        fn a_token_ends_where_its_first_other_byte_stands(line in prop::collection::vec(prop_oneof![8 => b'A'..=b'z', 1 => Just(b'-'), 1 => any::<u8>()], 0..40)) {
            let length = line.iter().position(|&byte| !is_token(byte)).unwrap_or(line.len());
            prop_assert_eq!(token_length(&line), length);
        }

        #[test]
        fn names_are_equal_in_any_case_and_not_otherwise(one in "[!#$%&'*+.^_`|~0-9A-Za-z-]{0,20}", other in "[0-9a-z-]{0,20}", same in any::<bool>()) {
            let lower = if same { one.to_ascii_lowercase() } else { other };
            prop_assume!(lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            prop_assert_eq!(is_named(one.as_bytes(), lower.as_bytes()), one.eq_ignore_ascii_case(&lower));
        }
    }
}
