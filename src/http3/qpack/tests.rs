use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Sections of ls-qpack, and their fields: in each line the section, `|`, and `name:value` with commas between, all in
/// hexadecimal digits. They were made by `pylsqpack.Encoder` with `apply_settings(0, 0)` from random fields: entries of
/// the static table, their names with other values, and other names; values are text or any bytes.
const CORPUS: &str = include_str!("ls_qpack.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("text"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

fn decoded(section: &[u8]) -> Result<Fields, DecompressionFailed> {
    let mut fields = Vec::new();
    decode(section, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

#[test]
fn sections_of_ls_qpack_are_read() {
    let mut count = 0;
    for line in CORPUS.lines() {
        let (section, fields) = line.split_once('|').expect("a line");
        let fields = fields.split(',').filter_map(|field| field.split_once(':'));
        let fields: Fields = fields.map(|(name, value)| (bytes(name), bytes(value))).collect();
        assert_eq!(decoded(&bytes(section)), Ok(fields), "{line}");
        count += 1;
    }
    assert!(count >= 100, "{count}");
}

/// RFC 9204 appendix B.1; those after it need a dynamic table.
#[test]
fn the_examples_of_the_rfc_are_read() {
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(decoded(&section), Ok(vec![(b":path".to_vec(), b"/index.html".to_vec())]));
    for dynamic in ["0381 10 11", "0500 80 c1 81", "0000 80", "0000 10", "0000 4000", "0000 0000"] {
        assert_eq!(decoded(&bytes(dynamic)), Err(DecompressionFailed), "{dynamic}");
    }
}

#[test]
fn invalid_sections_fail() {
    // No prefix; a base below 0; an entry beyond the table; strings that are cut; integers that are cut or too large.
    let max = "ff 80 80 80 80 80 80 80 80 80 01";
    for invalid in [
        "",
        "00",
        "0080",
        "0081",
        "0000 ff24",
        "0000 5103 61",
        "0000 2361 62",
        "0000 ff",
        "0000 5f",
        &format!("0000 {max}"),
    ] {
        assert_eq!(decoded(&bytes(invalid)), Err(DecompressionFailed), "{invalid}");
    }
    assert_eq!(decoded(&bytes("0000 ff23")).map(|fields| fields.len()), Ok(1), "the last entry");
    assert_eq!(decoded(&bytes("00 05")), Ok(Vec::new()), "any base");
}
