//! What a path becomes before it is matched and forwarded.

use proptest::prelude::*;
use tollgate::route::path::{Path, PathFault, without_prefix};

/// Raw, merged, kept.
const NORMALISED: &[(&str, &str, &str)] = &[
    ("/", "/", "/"),
    ("/a/b.c/~d_e-f", "/a/b.c/~d_e-f", "/a/b.c/~d_e-f"),
    ("//", "/", "//"),
    ("//a", "/a", "//a"),
    ("/a//b///c//", "/a/b/c/", "/a//b///c//"),
    ("/./a", "/a", "/a"),
    ("/a/.", "/a/", "/a/"),
    ("/a/./", "/a/", "/a/"),
    ("/b/../a", "/a", "/a"),
    ("/a/..", "/", "/"),
    ("/a/b/..", "/a/", "/a/"),
    ("/a/b/../", "/a/", "/a/"),
    ("/a/b/../../c", "/c", "/c"),
    ("/a//../b", "/b", "/a/b"),
    ("/a//..", "/", "/a/"),
    ("/a/..//b", "/b", "//b"),
    ("/a/.//b", "/a/b", "/a//b"),
    ("/...", "/...", "/..."),
    ("/.a/..b/c..", "/.a/..b/c..", "/.a/..b/c.."),
    ("/%61", "/a", "/a"),
    ("/%7Euser/%2Dx%5f", "/~user/-x_", "/~user/-x_"),
    ("/b/%2e%2E/a", "/a", "/a"),
    ("/b/.%2e/a/%2e", "/a/", "/a/"),
    ("/a%2fb", "/a%2Fb", "/a%2Fb"),
    ("/a%5cb", "/a%5Cb", "/a%5Cb"),
    ("/x/..%2f..", "/x/..%2F..", "/x/..%2F.."),
    ("/%252e%252e/%2541", "/%252e%252e/%2541", "/%252e%252e/%2541"),
    ("/caf%c3%a9", "/caf%C3%A9", "/caf%C3%A9"),
    ("/a%20b%0a%3F%23", "/a%20b%0A%3F%23", "/a%20b%0A%3F%23"),
    ("/a;x=1/..;/b", "/a;x=1/..;/b", "/a;x=1/..;/b"),
    ("/a/", "/a/", "/a/"),
    ("/A", "/A", "/A"),
    ("/{a}|\"<b>", "/{a}|\"<b>", "/{a}|\"<b>"),
];

#[test]
fn paths_have_one_form_merged_and_one_kept() {
    for (raw, merged, kept) in NORMALISED {
        let path = Path::parse(raw).unwrap();
        assert_eq!((path.form(true), path.form(false)), (*merged, *kept), "{raw}");
        assert_eq!(path.clone().into_owned(), path, "{raw}");
    }
}

#[test]
fn a_path_in_normal_form_is_borrowed() {
    for raw in ["/", "/a/b/", "/.well-known/x", "/a%2Fb"] {
        let path = Path::parse(raw).unwrap();
        for merge_slashes in [true, false] {
            assert_eq!(path.form(merge_slashes).as_ptr(), raw.as_ptr(), "{raw}");
        }
    }
    let raw = "/a//b";
    assert_eq!(Path::parse(raw).unwrap().form(false).as_ptr(), raw.as_ptr());
}

#[test]
fn what_a_backend_may_read_in_two_ways_is_refused() {
    let faults = [
        ("", PathFault::NotAbsolute),
        ("a", PathFault::NotAbsolute),
        ("*", PathFault::NotAbsolute),
        ("/%", PathFault::BadEscape),
        ("/%6", PathFault::BadEscape),
        ("/%6g", PathFault::BadEscape),
        ("/%+f", PathFault::BadEscape),
        ("/%%41", PathFault::BadEscape),
        ("/a%00", PathFault::Nul),
        ("/a\\b", PathFault::Forbidden(b'\\')),
        ("/a b", PathFault::Forbidden(b' ')),
        ("/a\tb", PathFault::Forbidden(b'\t')),
        ("/a\0", PathFault::Forbidden(0)),
        ("/a\x7f", PathFault::Forbidden(0x7f)),
        ("/é", PathFault::Forbidden(0xc3)),
        ("/a?b", PathFault::Forbidden(b'?')),
        ("/a#b", PathFault::Forbidden(b'#')),
        ("/..", PathFault::AboveRoot),
        ("/../a", PathFault::AboveRoot),
        ("/a/../..", PathFault::AboveRoot),
        ("/%2e%2e", PathFault::AboveRoot),
        ("//..", PathFault::AboveRoot),
        ("/a//../..", PathFault::AboveRoot),
    ];
    for (raw, fault) in faults {
        assert_eq!(Path::parse(raw), Err(fault), "{raw:?}");
    }
    assert_eq!(
        Path::parse("/a\\b").unwrap_err().to_string(),
        "the path contains the byte 0x5c, which must be percent-encoded"
    );
}

#[test]
fn a_prefix_is_stripped_by_whole_segments() {
    let cases = [
        ("/search/a", "/search", "/a"),
        ("/search/a", "/search/", "/a"),
        ("/search/", "/search", "/"),
        ("/search", "/search", "/"),
        ("/searching", "/search", "/searching"),
        ("/other", "/search", "/other"),
        ("/a", "/", "/a"),
    ];
    for (path, prefix, rest) in cases {
        assert_eq!(without_prefix(path, prefix), rest, "{path} without {prefix}");
    }
}

proptest! {
    #[test]
    fn normalising_twice_equals_once(raw in "(/|\\.|%2e|%2E|%2f|%41|%c3|%25|%|a|;|\\\\|é){0,24}") {
        check(&raw);
        check(&format!("/{raw}"));
    }

    #[test]
    fn no_text_panics(raw in any::<String>()) {
        check(&raw);
        check(&format!("/{raw}"));
    }
}

fn check(raw: &str) {
    let Ok(path) = Path::parse(raw) else { return };
    for merge_slashes in [true, false] {
        let once = path.form(merge_slashes);
        assert!(once.starts_with('/'), "{raw:?} became {once:?}");
        assert!(!once.split('/').any(|segment| matches!(segment, "." | "..")), "{raw:?} became {once:?}");
        assert!(!(merge_slashes && once.contains("//")), "{raw:?} became {once:?}");
        assert_eq!(Path::parse(once).unwrap().form(merge_slashes), once, "{raw:?}");
    }
}
