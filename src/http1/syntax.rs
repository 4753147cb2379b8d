//! The grammar that requests and responses share (RFC 9110 §5, RFC 9112 §5).

/// `field-name ":" OWS field-value OWS`: the name, the place of the value, and the value without the blanks around it.
///
/// # Errors
/// What is wrong with it.
pub fn split_field(line: &[u8]) -> Result<(&[u8], usize, &[u8]), &'static str> {
    let colon = line.iter().position(|&byte| !is_token(byte)).ok_or("a field has no colon")?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if line[colon] != b':' || name.is_empty() {
        return Err("a field name is not a token");
    }
    if !is_value(value) {
        return Err("a field value has a control character");
    }
    let trimmed = trim_blanks_start(value);
    Ok((name, line.len() - trimmed.len(), trim_blanks(trimmed)))
}

/// obs-text (0x80 and above) is opaque but legal; HTAB is the only control allowed (RFC 9110 §5.5).
fn is_value(value: &[u8]) -> bool {
    // Without a way out in the middle, so that the compiler looks at many bytes at once.
    value.iter().fold(true, |good, &byte| good & (((byte >= 0x20) & (byte != 0x7f)) | (byte == b'\t')))
}

fn trim_blanks_start(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    value
}

/// Whether a field's name is this one, which is given in lower case.
pub fn is_named(name: &[u8], lower: &[u8]) -> bool {
    // Without a way out in the middle, so that the compiler looks at many bytes at once.
    name.len() == lower.len()
        && name.iter().zip(lower).fold(0, |differs, (byte, lower)| differs | (lowered(*byte) ^ lower)) == 0
}

/// ASCII only.
const fn lowered(byte: u8) -> u8 {
    byte | if byte.is_ascii_uppercase() { 0x20 } else { 0 }
}

/// Without blanks and tabs at both ends.
pub fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
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
