//! Bodies with a content coding, which are decoded in a copy.

use tollgate::measure::Reading::{self, Absent, Unreadable, Value};
use tollgate::measure::scanner::FREE_OUTPUT;

use crate::harness::body_scan::{CODINGS, coded, json, scan, scan_cut, sse};

const TEXT: &str = r#"{"id":"x","data":[1,2,3,"four"],"usage":{"total_tokens":43},"end":"\u00e9"}"#;

fn tokens(coding: &str, body: &[u8]) -> Reading {
    scan(&[json("/usage/total_tokens")], coding, [body])[0]
}

/// A document whose value stands in the middle, and whose parts are not alike.
fn document(items: usize) -> String {
    let item = |number: usize| {
        format!("{{\"id\":{number},\"hash\":\"{:x}\"}}", number.wrapping_mul(0x9e37_79b9_7f4a))
    };
    let items = |from: usize| (from..from + items).map(item).collect::<Vec<_>>().join(",");
    format!("{{\"a\":[{}],\"usage\":{{\"total_tokens\":43}},\"b\":[{}]}}", items(0), items(100_000))
}

#[test]
fn each_coding_is_decoded_at_any_cut() {
    for coding in CODINGS {
        let body = coded(coding, TEXT.as_bytes());
        assert_eq!(scan_cut(&json("/usage/total_tokens"), coding, &body), Value(43), "{coding}");
        let events = format!("data: {TEXT}\r\n\r\n");
        let body = coded(coding, events.as_bytes());
        assert_eq!(scan_cut(&sse("/usage/total_tokens"), coding, &body), Value(43), "{coding}");
    }
}

#[test]
fn the_header_names_codings_in_any_writing() {
    let gzip = coded("gzip", TEXT.as_bytes());
    for name in ["gzip", "x-gzip", "GZip", " gzip\t", "identity, gzip", ",gzip,", "gzip, identity"] {
        assert_eq!(tokens(name, &gzip), Value(43), "{name}");
    }
    for name in ["", "identity", " , "] {
        assert_eq!(tokens(name, TEXT.as_bytes()), Value(43), "{name}");
    }
    for name in ["compress", "gzip;q=1", "gzi", "dcb", "gzip gzip", "gzip, unknown"] {
        assert_eq!(tokens(name, &gzip), Unreadable, "{name}");
    }
}

#[test]
fn two_codings_in_a_row_are_decoded_but_no_third() {
    for first in CODINGS {
        for second in CODINGS {
            let body = coded(second, &coded(first, TEXT.as_bytes()));
            let both = format!("{first}, {second}");
            assert_eq!(scan_cut(&json("/usage/total_tokens"), &both, &body), Value(43), "{both}");
        }
    }
    let body = coded("gzip", &coded("gzip", &coded("gzip", TEXT.as_bytes())));
    assert_eq!(tokens("gzip, gzip, gzip", &body), Unreadable);
}

#[test]
fn members_and_frames_follow_each_other() {
    let (first, rest) = TEXT.as_bytes().split_at(50);
    for coding in ["gzip", "zstd"] {
        let body = [coded(coding, first), coded(coding, b""), coded(coding, rest)].concat();
        assert_eq!(scan_cut(&json("/usage/total_tokens"), coding, &body), Value(43), "{coding}");
    }
    let padded = [coded("gzip", TEXT.as_bytes()), vec![0; 20]].concat();
    assert_eq!(scan_cut(&json("/usage/total_tokens"), "gzip", &padded), Value(43));
    let skippable = [b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), coded("zstd", TEXT.as_bytes())].concat();
    assert_eq!(scan_cut(&json("/usage/total_tokens"), "zstd", &skippable), Value(43));
}

#[test]
fn a_head_of_gzip_may_have_all_its_fields() {
    let plain = coded("gzip", TEXT.as_bytes());
    for flags in 0..32_u8 {
        let mut body = plain[..10].to_vec();
        body[3] = flags;
        if flags & 4 != 0 {
            body.extend_from_slice(b"\x05\0extra");
        }
        if flags & 8 != 0 {
            body.extend_from_slice(b"name\0");
        }
        if flags & 16 != 0 {
            body.extend_from_slice(b"\0");
        }
        if flags & 2 != 0 {
            body.extend_from_slice(b"cc");
        }
        body.extend_from_slice(&plain[10..]);
        assert_eq!(scan_cut(&json("/usage/total_tokens"), "gzip", &body), Value(43), "{flags:b}");
    }
    let mut reserved = plain;
    reserved[3] = 0x20;
    assert_eq!(tokens("gzip", &reserved), Unreadable);
}

#[test]
fn a_body_that_breaks_off_has_what_was_decoded() {
    let text = document(3_000);
    for coding in CODINGS {
        let body = coded(coding, text.as_bytes());
        assert_eq!(tokens(coding, &body), Value(43), "{coding}");
        assert_eq!(tokens(coding, &body[..body.len() / 4]), Absent, "{coding}");
        assert_eq!(tokens(coding, &body[..body.len() * 7 / 8]), Value(43), "{coding}");
    }
}

#[test]
fn damage_leaves_what_came_before_it() {
    let text = document(3_000);
    for coding in CODINGS {
        assert_eq!(tokens(coding, b"this is not coded at all"), Unreadable, "{coding}");
        assert_eq!(tokens(coding, TEXT.as_bytes()), Unreadable, "{coding}");
        let whole = coded(coding, text.as_bytes());
        let behind = [&whole[..], b"\x01\x02garbage"].concat();
        assert_eq!(tokens(coding, &behind), Value(43), "{coding}");
        let none = coded(coding, b"{\"a\":1}");
        assert_eq!(tokens(coding, &[&none[..], b"\x01\x02garbage"].concat()), Unreadable, "{coding}");
    }
}

#[test]
fn a_bomb_is_unreadable() {
    let zeros = " ".repeat(usize::try_from(FREE_OUTPUT).unwrap() * 4);
    let text = format!("{{\"usage\":{{\"total_tokens\":43}},\"x\":\"{zeros}\",\"y\":1}}");
    for coding in CODINGS {
        let body = coded(coding, text.as_bytes());
        assert!(body.len() < text.len() / 500, "{coding}");
        for piece in [100, body.len()] {
            let found = scan(&[json("/usage/total_tokens")], coding, body.chunks(piece));
            assert_eq!(found, [Unreadable], "{coding}");
        }
        let twice = coded("gzip", &body);
        assert_eq!(tokens(&format!("{coding}, gzip"), &twice), Unreadable, "{coding}");
    }
    // The same without a coding is read.
    assert_eq!(tokens("", text.as_bytes()), Value(43));
}

#[test]
fn a_small_body_may_be_coded_tightly() {
    let spaces = " ".repeat(usize::try_from(FREE_OUTPUT).unwrap() / 2);
    let text = format!("{{\"x\":\"{spaces}\",\"usage\":{{\"total_tokens\":43}}}}");
    for coding in CODINGS {
        assert_eq!(tokens(coding, &coded(coding, text.as_bytes())), Value(43), "{coding}");
    }
}

#[test]
fn a_window_beyond_the_bound_is_refused() {
    // A frame of zstd whose window is 16 MiB (exponent 14), and one of 8 MiB; both hold one raw block.
    let frame = |window: u8| {
        let length = u32::try_from(TEXT.len()).unwrap();
        let block = (length << 3 | 1).to_le_bytes();
        [b"\x28\xb5\x2f\xfd\x00", &[window << 3][..], &block[..3], TEXT.as_bytes()].concat()
    };
    assert_eq!(scan_cut(&json("/usage/total_tokens"), "zstd", &frame(13)), Value(43));
    assert_eq!(tokens("zstd", &frame(14)), Unreadable);
    assert_eq!(tokens("zstd", &frame(31)), Unreadable);
    // The large window of brotli, 2^30 bytes, is none of RFC 7932.
    assert_eq!(tokens("br", b"\x11\x1e\x0b\x00\x80a\x03"), Unreadable);
}
