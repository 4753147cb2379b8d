//! Exemptions from a limit.

use proptest::prelude::*;
use tollgate::route::exemptions::{Exemption, Exemptions};
use tollgate::route::path::Path;

use crate::harness::sample_request::{Sample, get};

fn exempt(text: &str, sample: &Sample) -> bool {
    let exemption = Exemption::parse(text).unwrap();
    sample.ask(|request| exemption.holds(request.matched_by("", true)))
}

#[test]
fn addresses_are_exempt_by_themselves_not_by_their_prefix() {
    let from = |address: &str| get("/").from(address);
    let cases = [
        ("ip:10.0.0.0/8", "10.9.9.9", true),
        ("ip:10.0.0.0/8", "11.0.0.0", false),
        ("ip:10.1.2.3/8", "10.9.9.9", true),
        ("ip:10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("ip:::ffff:10.0.0.0/104", "10.0.0.1", true),
        ("ip:::ffff:10.0.0.1", "10.0.0.1", true),
        ("ip:192.0.2.1", "192.0.2.1", true),
        ("ip:192.0.2.1", "192.0.2.2", false),
        ("ip:2001:db8::1", "2001:db8::1", true),
        ("ip:2001:db8::1", "2001:db8::2", false),
        ("ip:2001:db8::/32", "2001:db8:9::1", true),
        ("ip:::/0", "10.0.0.1", false),
    ];
    for (text, address, expected) in cases {
        assert_eq!(exempt(text, &from(address)), expected, "{text} and {address}");
    }
}

#[test]
fn an_unidentified_client_is_exempt_by_no_address() {
    let sample = get("/").from("10.0.0.1").header("x-internal", "1");
    assert!(exempt("ip:10.0.0.0/8", &sample));
    let sample = sample.unidentified();
    assert!(!exempt("ip:10.0.0.0/8", &sample) && !exempt("ip:10.0.0.1", &sample));
    assert!(exempt("header:x-internal=1", &sample) && exempt("path:/", &sample));
}

#[test]
fn a_header_exempts_with_exactly_its_value() {
    let with = |value: &str| get("/").header("x-internal", value);
    assert!(exempt("header:X-Internal=a=1", &with("a=1")));
    assert!(exempt("header:x-internal=1", &with("0").header("x-internal", "1")));
    for value in ["", "11", "0, 1", "1 "] {
        assert!(!exempt("header:x-internal=1", &with(value)), "{value:?}");
    }
    assert!(!exempt("header:x-internal=1", &get("/")));
}

#[test]
fn the_value_of_a_header_is_a_pattern() {
    let with = |value: &str| get("/").header("user-agent", value);
    for (pattern, value, expected) in [
        ("probe*", "probe/1.0", true),
        ("probe*", "a probe", false),
        ("*probe", "a probe", true),
        ("*probe*", "a probe/1.0", true),
        ("~^probe/[0-9]$", "probe/1", true),
        ("~*^PROBE/[0-9]$", "probe/1", true),
        ("~^PROBE/[0-9]$", "probe/1", false),
        ("*", "", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("true", "a", false),
    ] {
        assert_eq!(exempt(&format!("header:user-agent={pattern}"), &with(value)), expected, "{pattern}");
    }
    assert!(exempt("header:upgrade=websocket", &get("/").header("upgrade", "WebSocket")));
    assert!(!exempt("header:user-agent=*", &get("/")));
}

#[test]
fn a_path_exempts_in_the_form_that_is_forwarded() {
    assert!(exempt("path:/health", &get("/x/..//%68ealth")));
    assert!(!exempt("path:/health", &get("/health/")));
    assert!(exempt("path:/health/*", &get("/health/deep")));
    let kept = Exemption::parse("path:/health").unwrap();
    let holds = |path: &str| get(path).ask(|request| kept.holds(request.matched_by("", false)));
    assert!(holds("/health") && !holds("//health"));
    assert!(!holds("/search//../health"), "forwarded as `/search/health` by a route that keeps slashes");
}

#[test]
fn faults_say_what_would_be_right() {
    let cases = [
        ("10.0.0.0/8", "`10.0.0.0/8` is not an exemption", "write `ip:10.0.0.0/8`, "),
        ("ip:10.0.0.0/33", "`10.0.0.0/33` is neither an address nor a network", "write an address"),
        ("ip:fe80::1%eth0", "`fe80::1%eth0` is neither", "write an address"),
        (
            "header:x-internal",
            "`header:x-internal` has no value",
            "write the value that exempts: `header:x-internal=secret`",
        ),
        (
            "header:x-internal=",
            "`header:x-internal=` has no value",
            "write the value that exempts: `header:x-internal=s",
        ),
        (
            "header:x internal=1",
            "no request can carry the header `x internal` with this value",
            "write a field's name",
        ),
        ("header:x= 1", "no request can carry the header `x` with this value", "write a field's name"),
        ("header:x=a\nb", "no request can carry the header `x` with this value", "write a field's name"),
        ("header:x=a*b", "a `*` inside a text has no meaning", "write it at the begin or the end"),
        ("header:x=~(", "this is not a regular expression: unclosed group", "the syntax is that of RE2"),
        ("path:health", "`health` is not a path pattern", "write `/health`"),
        ("cookie:a=1", "`cookie:a=` is not an exemption", "write `ip:"),
    ];
    for (text, message, help) in cases {
        let fault = Exemption::parse(text).unwrap_err();
        assert!(fault.message.starts_with(message), "{text}: {}", fault.message);
        assert!(fault.help.starts_with(help), "{text}: {}", fault.help);
    }
}

#[test]
fn an_exemption_is_shown_without_its_secret() {
    for (text, shown) in [
        ("ip:10.1.0.0/8", "ip:10.0.0.0/8"),
        ("ip:192.0.2.1", "ip:192.0.2.1"),
        ("header:x-internal=hunter2", "header:x-internal=…"),
        ("path:/health/*", "path:/health/*"),
    ] {
        assert_eq!(Exemption::parse(text).unwrap().to_string(), shown);
    }
}

fn written() -> impl Strategy<Value = String> {
    prop_oneof![
        "ip:10\\.[0-2]\\.[0-2]\\.[0-2](/(8|9|1[5-7]|2[2-4]|3[0-2]))?",
        "ip:::ffff:10\\.[0-2]\\.[0-2]\\.[0-2](/(9[5-6]|104|112|12[0-8]))?",
        "ip:2001:db8:[0-2]::[0-2](/(0|32|4[7-8]|12[7-8]))?",
        "header:(x|X|y)=[ab]{1,2}",
        "path:(/(a|b|\\{p\\})){1,3}(/|/\\*)?",
    ]
    .prop_filter("a name that stands twice", |text| Exemption::parse(text).is_ok())
}

fn sample() -> impl Strategy<Value = Sample> {
    let address = "10\\.[0-3]\\.[0-3]\\.[0-3]|::ffff:10\\.[0-2]\\.0\\.1|2001:db8:[0-3]::[0-3]|::[1-2]";
    let path = "(/(a|b|A|\\.\\.|)){1,4}".prop_filter("leaves the root", |path| {
        Path::parse(path, tollgate::route::path::PathMatching::Strict).is_ok()
    });
    let headers = prop::collection::vec((prop::sample::select(vec!["x", "y", "z"]), "[abA]{0,2}"), 0..4);
    (address, path, headers, any::<bool>()).prop_map(|(address, path, headers, identified)| {
        let bare = get(&path).from(&address);
        let sample = headers.into_iter().fold(bare, |sample, (name, value)| sample.header(name, value));
        if identified { sample } else { sample.unidentified() }
    })
}

proptest! {
    /// However many exemptions there are, together they say what each says alone.
    #[test]
    fn exemptions_hold_if_one_of_them_does(
        texts in prop::collection::vec(written(), 0..24),
        samples in prop::collection::vec(sample(), 1..12),
        merge_slashes in any::<bool>(),
    ) {
        let each: Vec<_> = texts.iter().map(|text| Exemption::parse(text).unwrap()).collect();
        let all = Exemptions::new(each.clone());
        prop_assert!(all.iter().eq(&each));
        for sample in samples {
            let (hold, first, expected) = sample.ask(|request| {
                let expected = each.iter().find(|exemption| exemption.holds(request.matched_by("", merge_slashes)));
                (all.hold(request.matched_by("", merge_slashes)), all.first(request.matched_by("", merge_slashes)), expected)
            });
            prop_assert_eq!(hold, expected.is_some(), "{:?} by {:?}", &sample, &texts);
            prop_assert_eq!(first, expected);
        }
    }

    #[test]
    fn no_text_panics(text in "(ip:|header:|path:|=|/|1|\\.|::|a|\\*|é){0,10}") {
        let _ = Exemption::parse(&text);
    }
}
