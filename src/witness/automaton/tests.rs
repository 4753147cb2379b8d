//! Automata read paths as routes do.

use proptest::prelude::*;

use super::*;
use crate::route::path::Path;

/// Reads a whole path: its bare form without the trailing slash, if the path is normalised.
fn read(paths: NormalPaths, text: &str) -> Option<String> {
    let (mut shape, mut bare) = (NormalPaths::BEGIN, String::new());
    for byte in text.bytes() {
        let (next, bytes) = paths.step(shape, byte)?;
        match bytes {
            BareBytes::Nothing => {}
            BareBytes::Slash => bare.push('/'),
            BareBytes::Byte => bare.push(byte.into()),
            BareBytes::SlashAndByte => bare.extend(['/', byte.into()]),
        }
        shape = next;
    }
    let bare = if shape.is_bare_empty { "/".to_owned() } else { bare };
    paths.is_end(shape).then_some(bare)
}

fn find(wanted: &[&str], others: &[&str], matching: PathMatching) -> PathSearch {
    let automata = |texts: &[&str]| -> Vec<PathAutomaton> {
        let of = |text: &&str| {
            let path = PathMatcher::parse(text, matching).unwrap();
            PathAutomaton::of_route(&path, matching).unwrap()
        };
        texts.iter().map(of).collect()
    };
    let paths = NormalPaths { merge_slashes: true, refuses_encoded_dots: true, without: None };
    paths.search(&mut automata(wanted), &mut automata(others), &mut 1_000_000)
}

#[test]
fn the_shortest_path_that_others_leave_is_found() {
    let found = |path: &str| PathSearch::Found(path.to_owned());
    for (wanted, others, expected) in [
        (&["/a/*"][..], &[][..], found("/a")),
        (&["/a/*"], &["/a"], found("/a/")),
        (&["/a/*"], &["/a", "~^/a/[a-z]*$"], found("/a/!")),
        (&["/a/*"], &["/a", "~^/a/"], PathSearch::Nothing),
        (&["/a/{x}"], &["~^/a/[^/]*$"], PathSearch::Nothing),
        (&["~^/x[0-9]{2}$"], &["~0", "~1"], found("/x22")),
        (&["~^/a/b"], &["/a/*"], PathSearch::Nothing),
        (&["~a"], &["~b", "~a[^b]*$"], PathSearch::Nothing),
        (&["~^a"], &[], PathSearch::Nothing),
        (&["/a/*", "~b$"], &[], found("/a/b")),
    ] {
        let answer = find(wanted, others, PathMatching::Strict);
        assert_eq!(answer, expected, "{wanted:?} without {others:?}");
    }
}

#[test]
fn lenient_paths_are_read_without_what_does_not_count() {
    for (wanted, others) in [
        (&["/a"][..], &["~^/A$"][..]),
        (&["/a/*"], &["/a", "/a/{x}", "~^/a/.+/.+$"]),
        (&["~^/a/[a-z]+$"], &["/a/{x}"]),
        (&["/a/b"], &["~^/a/b$"]),
    ] {
        assert_eq!(find(wanted, others, PathMatching::Lenient), PathSearch::Nothing, "{wanted:?}");
    }
    assert_ne!(find(&["/a/{x}"], &["~^/a/x$"], PathMatching::Lenient), PathSearch::Nothing);
    assert_ne!(find(&["~^/a;v=1$"], &["~^/a;v=2$"], PathMatching::Lenient), PathSearch::Nothing);
}

proptest! {
    /// The paths that are read are the normalised ones, and their bare form is the folded one.
    #[test]
    fn paths_are_read_as_they_are_normalised(
        text in prop::collection::vec(prop::sample::select(vec![
            "/", "/", "/", ".", "..", ";", "%2F", "%5C", "%3B", "%2E", "%41", "%2f", "%00", "%", "a", "A", "x;", "?", "\\",
        ]), 1..9),
        merge_slashes: bool,
        refuses_encoded_dots: bool,
    ) {
        let text: String = text.concat();
        let paths = NormalPaths { merge_slashes, refuses_encoded_dots, without: None };
        let normal = Path::parse(&text, PathMatching::Lenient).ok().filter(|path| {
            path.form(merge_slashes) == text && !(refuses_encoded_dots && path.has_encoded_dots())
        });
        let folded = normal.map(|path| path.folded(merge_slashes).to_owned());
        prop_assert_eq!(read(paths, &text).map(|bare| bare.to_ascii_lowercase()), folded, "{}", text);
    }
}
