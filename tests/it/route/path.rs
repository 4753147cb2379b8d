//! What a path becomes before it is matched and forwarded.

use proptest::prelude::*;
use tollgate::route::path::PathMatching::{Lenient, Strict};
use tollgate::route::path::{Path, PathFault};

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
        let path = Path::parse(raw, Strict).unwrap();
        assert_eq!((path.form(true), path.form(false)), (*merged, *kept), "{raw}");
    }
}

#[test]
fn a_path_in_normal_form_is_borrowed() {
    for raw in ["/", "/a/b/", "/.well-known/x", "/a%2Fb"] {
        let path = Path::parse(raw, Strict).unwrap();
        for merge_slashes in [true, false] {
            assert_eq!(path.form(merge_slashes).as_ptr(), raw.as_ptr(), "{raw}");
        }
    }
    let raw = "/a//b";
    assert_eq!(Path::parse(raw, Strict).unwrap().form(false).as_ptr(), raw.as_ptr());
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
        assert_eq!(Path::parse(raw, Strict), Err(fault), "{raw:?}");
    }
    assert_eq!(
        Path::parse("/a\\b", Strict).unwrap_err().to_string(),
        "the path contains the byte 0x5c, which must be percent-encoded"
    );
}

#[test]
fn a_prefix_is_stripped_by_whole_segments() {
    let cases = [
        ("/search/a", "/search", "/a"),
        ("/search/", "/search", "/"),
        ("/search", "/search", ""),
        ("/searching", "/search", "/searching"),
        ("/other", "/search", "/other"),
        ("/a;v=1/b", "/a", "/a;v=1/b"),
        ("/A/b", "/a", "/A/b"),
    ];
    for (path, prefix, rest) in cases {
        let path = Path::parse(path, Strict).unwrap();
        assert_eq!(path.without_prefix(prefix, true), rest, "{path:?} without {prefix}");
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
    let Ok(path) = Path::parse(raw, Strict) else { return };
    for merge_slashes in [true, false] {
        let once = path.form(merge_slashes);
        assert!(once.starts_with('/'), "{raw:?} became {once:?}");
        assert!(!once.split('/').any(|segment| matches!(segment, "." | "..")), "{raw:?} became {once:?}");
        assert!(!(merge_slashes && once.contains("//")), "{raw:?} became {once:?}");
        assert_eq!(Path::parse(once, Strict).unwrap().form(merge_slashes), once, "{raw:?}");
        assert_eq!(path.folded(merge_slashes), once, "strictly, nothing is folded");
    }
    let lenient = Path::parse(raw, Lenient).unwrap();
    assert_eq!(lenient.has_encoded_dots(), path.has_encoded_dots(), "{raw:?}");
    for merge_slashes in [true, false] {
        assert_eq!(lenient.form(merge_slashes), path.form(merge_slashes), "{raw:?} is forwarded as spelled");
        let folded = lenient.folded(merge_slashes);
        assert!(folded.starts_with('/'), "{raw:?} became {folded:?}");
        assert!(
            !folded.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b';' && !path.has_encoded_dots()),
            "{raw:?} became {folded:?}"
        );
        assert!(!(merge_slashes && folded.len() > 1 && folded.ends_with('/')), "{raw:?} became {folded:?}");
        // Folded, no further dot segment comes to be.
        assert!(!folded.split('/').any(|segment| matches!(segment, "." | "..")), "{raw:?} became {folded:?}");
        if merge_slashes {
            let again = Path::parse(folded, Lenient).unwrap();
            assert_eq!(again.folded(true).to_owned(), folded, "{raw:?}");
        }
    }
}

#[test]
fn spellings_of_one_path_are_folded() {
    let cases = [
        ("/", "/", "/"),
        ("/login", "/login", "/login"),
        ("/Login", "/login", "/login"),
        ("/%4Cogin", "/login", "/login"),
        ("/login/", "/login", "/login"),
        ("/login//", "/login", "/login/"),
        ("/login;x", "/login", "/login"),
        ("/login;", "/login", "/login"),
        ("/;x", "/", "/"),
        ("/login;a=b;c/", "/login", "/login"),
        ("/login/;x", "/login", "/login"),
        ("/;x/login", "/login", "//login"),
        ("/a;x/;y/B;z", "/a/b", "/a//b"),
        ("/./LOGIN;a=b/", "/login", "/login"),
        ("/login%3Bx", "/login%3bx", "/login%3bx"),
        ("/login%3bX/", "/login%3bx", "/login%3bx"),
        ("/a...;x", "/a...", "/a..."),
        ("/...;x/b", "/.../b", "/.../b"),
    ];
    for (raw, merged, kept) in cases {
        let path = Path::parse(raw, Lenient).unwrap();
        assert_eq!((path.folded(true), path.folded(false)), (merged, kept), "{raw}");
        assert_eq!(
            Path::parse(raw, Strict).unwrap().form(true),
            path.form(true),
            "{raw} is forwarded as spelled"
        );
    }
}

/// Backends that decode separators, or drop parameters, before they resolve dot segments read another path.
#[test]
fn encoded_dot_segments_are_found() {
    for matching in [Lenient, Strict] {
        for raw in [
            "/a/..;/b",
            "/..;x",
            "/a/.;x/b",
            "/a/%2e%2E;/b",
            "/a/.%2e;v=1",
            "/a//..;/",
            "/.;",
            "/a/..%3B/b",
            "/a/..%3bx/b",
            "/public/..%2fadmin",
            "/public/..%2F",
            "/public/%2e%2e%2fadmin",
            "/public/%2e%2e%2Fadmin",
            "/x%2f..%2f..%2fadmin",
            "/x%2F..",
            "/x%2f.%2fy",
            "/public/..%5cadmin",
            "/public/x%5C%2E%2E",
            "/a%2f..;x/b",
            "/a;x%2f../b",
            "/a%5c..%2f..%5cb",
            "/a%2f../../b",
        ] {
            assert!(Path::parse(raw, matching).unwrap().has_encoded_dots(), "{raw}");
        }
        for raw in [
            "/",
            "/a/b",
            "/a/../b",
            "/a/%2e%2e/b",
            "/public;/../admin",
            "/a/...;/b",
            "/a..;x",
            "/a/..a;x",
            "/a%2Fb",
            "/a%5Cb",
            "/a%2F..b",
            "/a%2F...%2Fb",
            "/a..%2Fb",
            "/%252e%252e%252f",
            "/..%252fa",
            "/;..",
            "/a;..%20",
        ] {
            assert!(!Path::parse(raw, matching).unwrap().has_encoded_dots(), "{raw}");
        }
    }
    let path = Path::parse("/A/..;X/b", Lenient).unwrap();
    assert_eq!(path.folded(true), "/a/..;x/b", "folding makes no dot segment");
}

#[test]
fn prefixes_are_stripped_as_they_are_compared() {
    let cases = [
        ("/Api/Users", "/api", "/Users"),
        ("/api;v=1/Users/", "/API", "/Users/"),
        ("/api", "/api", ""),
        ("/API/", "/api", "/"),
        ("/API;x", "/api", ""),
        ("/;x/api/a", "/api", "/a"),
        ("/a;1/B;2/c;3", "/a/b", "/c;3"),
        ("/a/;x/b/c", "/a/b", "/c"),
        ("/a", "/a/b", "/a"),
        ("/apis", "/api", "/apis"),
        ("/api%3Bx/a", "/api", "/api%3Bx/a"),
    ];
    for (path, prefix, rest) in cases {
        let path = Path::parse(path, Lenient).unwrap();
        assert_eq!(path.without_prefix(prefix, true), rest, "{path:?} without {prefix}");
    }
    let kept = Path::parse("/;x/api/a", Lenient).unwrap();
    assert_eq!(kept.without_prefix("/api", false), "/;x/api/a", "an empty segment is a segment");
}
