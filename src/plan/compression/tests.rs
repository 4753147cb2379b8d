use proptest::prelude::*;

use super::*;

#[test]
fn patterns_of_media_types_fit_what_they_say() {
    let fits = |pattern: &str, media_type: &str| {
        MediaTypes([MediaTypePattern::parse(pattern).expect(pattern)].into()).has(media_type.as_bytes())
    };
    for (pattern, media_type) in [
        ("text/html", "text/html"),
        ("text/html", "TEXT/Html ; charset=utf-8"),
        ("TEXT/*", "text/csv"),
        ("application/*+json", "application/vnd.api+json;v=1"),
        ("text/event-stream", "text/event-stream"),
    ] {
        assert!(fits(pattern, media_type), "{pattern}: {media_type}");
    }
    for (pattern, media_type) in [
        ("text/html", "text/htm"),
        ("text/html", "text/html2"),
        ("text/html", ""),
        ("text/*", "text"),
        ("text/*", "application/text/x"),
        ("text/*", "text/event-stream"),
        ("text/*", "Text/Event-Stream; charset=utf-8"),
        ("application/*+json", "application/+json"),
        ("application/*+json", "application/json"),
        ("application/*+json", "text/a+json"),
    ] {
        assert!(!fits(pattern, media_type), "{pattern}: {media_type}");
    }
}

#[test]
fn weak_tags_are_found() {
    for tags in ["W/\"a\"", "\"b\", W/\"a\"", "W/\"\""] {
        assert!(names_weak_tag(tags.as_bytes()), "{tags}");
    }
    for tags in ["\"a\"", "*", "", "W/", "\"W/\", \"x\""] {
        assert!(!names_weak_tag(tags.as_bytes()), "{tags}");
    }
}

proptest! {
    /// Whatever a client sends, the coding is one that it named or covered by `*`.
    #[test]
    fn a_coding_that_is_chosen_was_asked_for(value in "[a-z*;=,. 0-9q-]{0,40}|(gzip|br|zstd|\\*|identity)(;q=[01]\\.?[0-9]{0,4})?") {
        let chosen = Compression::default().choose([value.as_bytes()].into_iter());
        if let Some(encoding) = chosen {
            prop_assert!(value.contains(encoding.name()) || value.contains('*'), "{encoding:?} of {value:?}");
        }
    }
}
