//! `fold = "lower"`: spellings of a value that applications take for one.
//!
//! | value | folded | why |
//! |---|---|---|
//! | `Anna` | `anna` | log-ins are often compared without case |
//! | `anna ` and a NUL, a no-break space … | `anna` | applications trim values, and C ends a text at a NUL |
//! | `ａｎｎａ` | `anna` | compatibility characters (NFKC, UAX #15): databases and identity providers map them |

use unicode_normalization::UnicodeNormalization as _;

/// A value as it is compared: by Unicode, or by ASCII if it is not UTF-8.
pub(super) fn folded(value: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(value) {
        Ok(text) => folded_text(text).into_bytes(),
        Err(_) => {
            let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
            let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
            let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
            value.get(start..end).unwrap_or_default().to_ascii_lowercase()
        }
    }
}

/// The same of a text.
pub(super) fn folded_text(text: &str) -> String {
    let is_blank = |letter: char| letter.is_whitespace() || letter == '\0';
    if text.is_ascii() {
        return text.trim_matches(is_blank).to_ascii_lowercase();
    }
    let composed: String = text.nfkc().collect();
    // Letters of lower case may be composed anew.
    let lower: String = composed.to_lowercase().nfkc().collect();
    lower.trim_matches(is_blank).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_value_are_folded() {
        for spelling in [
            "Anna",
            "ANNA",
            "anna ",
            " anna",
            "anna\t",
            "anna\0",
            "\0 anna \0\0",
            "anna\u{a0}",
            "anna\u{3000}",
            "ａｎｎａ",
            "ＡＮＮＡ\u{a0}\0",
            "𝐚𝐧𝐧𝐚",
        ] {
            assert_eq!(folded(spelling.as_bytes()), b"anna", "{spelling:?}");
        }
        for (value, expected) in [
            ("", ""),
            (" \0", ""),
            ("a b", "a b"),
            ("a\0b", "a\0b"),
            ("caf\u{e9}", "café"),
            ("CAFE\u{301}", "café"),
            ("\u{212a}", "k"),
            ("ﬁ", "fi"),
            ("①", "1"),
        ] {
            assert_eq!(folded_text(value), expected, "{value:?}");
        }
        assert_eq!(folded(b" A\xff\0 "), b"a\xff");
        assert_eq!(folded(b"\0 "), b"");
    }

    proptest! {
        #[test]
        fn blanks_around_a_value_do_not_count(value in any::<String>(), before in "[ \t\0\u{a0}]{0,3}", after in "[ \r\0\u{3000}]{0,3}") {
            prop_assert_eq!(folded_text(&format!("{before}{value}{after}")), folded_text(&value));
        }

        #[test]
        fn no_bytes_panic(value in prop::collection::vec(any::<u8>(), 0..24)) {
            let folded = folded(&value);
            prop_assert!(!folded.first().is_some_and(|byte| matches!(byte, 0 | b' ')));
        }
    }
}
