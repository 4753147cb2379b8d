//! Patterns for values of headers, cookies and parameters: how they are written, and what they match.

use std::ops::Range;

use http::HeaderName;
use proptest::prelude::*;
use tollgate::route::condition::{Condition, ValuePattern, ValuePatterns};
use tollgate::route::exemptions::{Exemption, Exemptions};
use tollgate::route::path::PathMatching;
use tollgate::route::{Conditions, RouteIndex, RouteTable};

use crate::harness::sample_request::{Sample, get, route};

/// What the pattern that a text stands for is shown as.
fn shown(text: &str) -> String {
    ValuePattern::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).to_string()
}

#[test]
fn patterns_are_read_and_shown_as_they_are_written() {
    let bytes = |text: &str| text.as_bytes().into();
    for (text, expected) in [
        ("", ValuePattern::Exact(bytes(""))),
        ("blue", ValuePattern::Exact(bytes("blue"))),
        ("true", ValuePattern::Exact(bytes("true"))),
        ("blue*", ValuePattern::Prefix(bytes("blue"))),
        ("*blue", ValuePattern::Suffix(bytes("blue"))),
        ("*blue*", ValuePattern::Contains(bytes("blue"))),
        ("*", ValuePattern::Present),
        (r"\*", ValuePattern::Exact(bytes("*"))),
        (r"\*blue\*", ValuePattern::Exact(bytes("*blue*"))),
        (r"*\*", ValuePattern::Suffix(bytes("*"))),
        (r"\**", ValuePattern::Prefix(bytes("*"))),
        (r"*\**", ValuePattern::Contains(bytes("*"))),
        (r"\~bot", ValuePattern::Exact(bytes("~bot"))),
        ("a~b", ValuePattern::Exact(bytes("a~b"))),
        (r"C:\new", ValuePattern::Exact(bytes(r"C:\new"))),
        (r"\\*", ValuePattern::Exact(bytes(r"\*"))),
    ] {
        let pattern = ValuePattern::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert_eq!(pattern, expected, "{text}");
        assert_eq!(ValuePattern::parse(&shown(text)), Ok(expected), "{text}");
    }
    assert_eq!((shown("~^a|b$"), shown("~*^a")), ("~^a|b$".into(), "~*^a".into()));
    // No text with a star at its end stands for this one.
    assert_eq!(ValuePattern::Prefix(bytes(r"a\")).to_string(), r"~^a\\");
    let patterns = ["a*", "*", r#"b"c"#].map(|text| ValuePattern::parse(text).unwrap());
    let patterns = ValuePatterns::new(patterns.into_iter().chain([ValuePattern::Absent]));
    assert_eq!(patterns.to_string(), r#"["b\"c", "a*", true, false]"#);
}

#[test]
fn faults_of_patterns_say_what_to_write() {
    let long = format!("~{}", "a".repeat(1_025));
    for (text, message, help) in [
        ("a*b", "a `*` inside a text has no meaning", "write it at the begin or the end; `\\\\*` for the"),
        ("*a*b", "a `*` inside a text has no meaning", "write it at the begin or the end"),
        ("a**", "a `*` inside a text has no meaning", "write it at the begin or the end"),
        ("**", "the stars have no text between them", "write `*` for any value"),
        ("***", "the stars have no text between them", "write `*` for any value"),
        ("~", "the regular expression is empty", "write `*` for any value, or `\\\\~` for"),
        ("~*", "the regular expression is empty", "write `*` for any value"),
        ("~ ^a", "no regular expression of tollgate begins with a blank", "leave the blank out"),
        ("~(a", "this is not a regular expression: unclosed group", "the syntax is that of RE2"),
        ("~(?=a)", "this is not a regular expression: look-around", "the syntax is that of RE2"),
        ("~a{1,100}{1,100}{1,100}", "the regular expression is too large", "write smaller repetitions"),
        (&long, "the regular expression is longer than 1024 bytes", "divide it between the items of a list"),
    ] {
        let fault = ValuePattern::parse(text).unwrap_err();
        assert!(fault.message.starts_with(message), "{text}: {}", fault.message);
        assert!(fault.help.starts_with(help), "{text}: {}", fault.help);
    }
}

/// Text of variables stands for itself, also in a regular expression.
#[test]
fn literal_ranges_have_no_patterns() {
    let parse =
        |text: &str, literal: Range<usize>| ValuePattern::parse_with(text, std::slice::from_ref(&literal));
    let bytes = |text: &str| text.as_bytes().into();
    for (text, literal, expected) in [
        ("a*", 0..2, ValuePattern::Exact(bytes("a*"))),
        ("a**", 0..2, ValuePattern::Prefix(bytes("a*"))),
        ("*", 0..1, ValuePattern::Exact(bytes("*"))),
        ("**", 1..2, ValuePattern::Suffix(bytes("*"))),
        ("~a", 0..2, ValuePattern::Exact(bytes("~a"))),
        (r"\*", 0..2, ValuePattern::Exact(bytes(r"\*"))),
        (r"\*", 1..2, ValuePattern::Exact(bytes(r"\*"))),
        (r"\*", 0..1, ValuePattern::Prefix(bytes(r"\"))),
        ("*a*", 1..1, ValuePattern::Contains(bytes("a"))),
    ] {
        assert_eq!(parse(text, literal.clone()), Ok(expected), "{text} {literal:?}");
    }
    for (text, literal, expected) in
        [("~^a.b$", 2..5, r"^a\.b$"), ("~*a", 1..3, r"\*a"), ("~.*", 1..2, r"\.*")]
    {
        let Ok(ValuePattern::Regex(regex)) = parse(text, literal) else { panic!("{text}") };
        assert_eq!((regex.text(), regex.ignores_case()), (expected, false));
    }
    let fault = parse(r"~\d", 2..3).unwrap_err();
    assert_eq!(fault.message, "a backslash stands before a variable in a regular expression");
}

#[test]
fn values_of_protocols_codings_and_media_types_are_compared_without_case() {
    let holds = |name: &str, pattern: &str, value: &str| {
        let name: HeaderName = name.parse().unwrap();
        let condition = Condition::header(name.clone(), [ValuePattern::parse(pattern).unwrap()]);
        get("/").header(name.as_str(), value).ask(|request| condition.holds(request))
    };
    for name in ["upgrade", "connection", "accept-encoding", "content-encoding", "te", "transfer-encoding"] {
        assert!(holds(name, "WebSocket", "websocket") && holds(name, "websocket", "WEBSOCKET"), "{name}");
    }
    for pattern in ["application/JSON", "Application/*", "*/JSON", "*TION/J*", "~^application/J"] {
        for name in ["content-type", "accept"] {
            assert!(holds(name, pattern, "APPLICATION/json"), "{name} {pattern}");
        }
        assert!(!holds("x-type", pattern, "APPLICATION/json"), "{pattern}");
    }
    assert!(holds("x-type", "~*^application/J", "APPLICATION/json"));
}

/// A pattern by its meaning.
#[derive(Clone, Debug)]
enum Wanted {
    Is(String),
    Begins(String),
    Ends(String),
    Contains(String),
    Regex(&'static str, bool),
    Present,
    Absent,
}

impl Wanted {
    /// As it is written in the file; `None`: it is no string.
    fn written(&self) -> Option<String> {
        let escaped = |text: &String| text.replace('*', "\\*").replace('~', "\\~");
        Some(match self {
            Self::Is(text) => escaped(text),
            Self::Begins(text) => format!("{}*", escaped(text)),
            Self::Ends(text) => format!("*{}", escaped(text)),
            Self::Contains(text) => format!("*{}*", escaped(text)),
            Self::Regex(text, ignores_case) => format!("~{}{text}", if *ignores_case { "*" } else { "" }),
            Self::Present => "*".to_owned(),
            Self::Absent => return None,
        })
    }

    fn pattern(&self) -> ValuePattern {
        let parse =
            |text: String| ValuePattern::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        self.written().map_or(ValuePattern::Absent, parse)
    }

    fn accepts(&self, values: &[&str], ignores_case: bool) -> bool {
        let folded = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
        let accepts = |value: &&str| {
            let folded_value = folded(value);
            match self {
                Self::Is(text) => folded_value == folded(text),
                Self::Begins(text) => folded_value.starts_with(&folded(text)),
                Self::Ends(text) => folded_value.ends_with(&folded(text)),
                Self::Contains(text) => folded_value.contains(&folded(text)),
                Self::Regex(text, ignores) => {
                    let mut builder = regex::RegexBuilder::new(text);
                    builder.case_insensitive(*ignores || ignores_case).build().unwrap().is_match(value)
                }
                Self::Present => true,
                Self::Absent => false,
            }
        };
        match self {
            Self::Absent => values.is_empty(),
            _ => values.iter().any(accepts),
        }
    }
}

/// Where a value stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Header(&'static str),
    Query(&'static str),
    Cookie(&'static str),
}

const PLACES: [Place; 7] = [
    Place::Header("x"),
    Place::Header("x"),
    Place::Header("upgrade"),
    Place::Query("q"),
    Place::Query("r"),
    Place::Cookie("c"),
    Place::Cookie("d"),
];

#[derive(Clone, Debug)]
struct Asked {
    place: Place,
    any_of: Vec<Wanted>,
    negated: bool,
}

impl Asked {
    fn condition(&self) -> Condition {
        let patterns: Vec<_> = self.any_of.iter().map(Wanted::pattern).collect();
        let condition = match self.place {
            Place::Header(name) => Condition::header(HeaderName::from_static(name), patterns),
            Place::Query(name) => Condition::query(name, patterns),
            Place::Cookie(name) => Condition::cookie(name, patterns),
        };
        if self.negated { condition.negated() } else { condition }
    }

    fn holds(&self, sent: &[(Place, String)]) -> bool {
        let of_place = sent.iter().filter(|(place, _)| *place == self.place);
        let values: Vec<_> = of_place.map(|(_, value)| value.as_str()).collect();
        let ignores_case = self.place == Place::Header("upgrade");
        self.negated != self.any_of.iter().any(|wanted| wanted.accepts(&values, ignores_case))
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    // A text that ends with a backslash cannot stand before a star.
    let before_star = || "[abA*~\\\\]{0,2}[abA*~]";
    let regexes = vec!["^a", "b$", "(ab|ba)", "^[ab]{2}$", "a.b", "A", "^$", "(a|b)*~", "aa|b{2}"];
    prop_oneof![
        4 => "[abA*~\\\\]{0,3}".prop_map(Wanted::Is),
        2 => before_star().prop_map(Wanted::Begins),
        2 => "[abA*~\\\\]{1,3}".prop_map(Wanted::Ends),
        2 => before_star().prop_map(Wanted::Contains),
        3 => (prop::sample::select(regexes), any::<bool>()).prop_map(|(text, case)| Wanted::Regex(text, case)),
        1 => Just(Wanted::Present),
        1 => Just(Wanted::Absent),
    ]
}

/// Mostly one pattern, at times as many as have an index.
fn any_of() -> impl Strategy<Value = Vec<Wanted>> {
    prop_oneof![
        4 => prop::collection::vec(wanted(), 1..2),
        2 => prop::collection::vec(wanted(), 2..4),
        1 => prop::collection::vec(wanted(), 8..20),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let place = prop::sample::select(&PLACES[..]);
    (place, any_of(), prop::bool::weighted(0.2)).prop_map(|(place, any_of, negated)| Asked {
        place,
        any_of,
        negated,
    })
}

fn sent() -> impl Strategy<Value = Vec<(Place, String)>> {
    prop::collection::vec((prop::sample::select(&PLACES[..]), "[abA*~\\\\]{0,4}"), 0..8)
}

/// A request with these values, each header and cookie on a line of its own.
fn sample(sent: &[(Place, String)]) -> Sample {
    let query: Vec<_> = sent
        .iter()
        .filter_map(|(place, value)| match place {
            Place::Query(name) => Some(format!("{name}={value}")),
            _ => None,
        })
        .collect();
    sent.iter().fold(get(&format!("/a?{}", query.join("&"))), |sample, (place, value)| match place {
        Place::Header(name) => sample.header(name, value),
        Place::Cookie(name) => sample.header("cookie", format!("z=0; {name}={value}")),
        Place::Query(_) => sample,
    })
}

/// The place of a route in the order of those that match.
fn weight(asked: &[Asked]) -> usize {
    let is_one = |one: &&Asked| !one.negated && !matches!(one.place, Place::Cookie(_));
    let is_cookie = |one: &Asked| !one.negated && matches!(one.place, Place::Cookie(_));
    asked.iter().filter(is_one).count()
        + usize::from(asked.iter().any(is_cookie))
        + usize::from(asked.iter().any(|one| one.negated))
}

proptest! {
    /// The table finds the route that plain comparisons find, one route and one pattern after the other.
    #[test]
    fn routes_are_found_as_by_plain_comparisons(
        routes in prop::collection::vec(prop::collection::vec(asked(), 0..4), 1..40),
        requests in prop::collection::vec(sent(), 1..8),
    ) {
        let conditions = routes.iter().map(|asked| {
            Conditions { values: asked.iter().map(Asked::condition).collect(), ..route("/a") }
        });
        let table = RouteTable::new(conditions.collect(), PathMatching::Strict);
        for sent in requests {
            let fits = |(_, asked): &(usize, &Vec<Asked>)| asked.iter().all(|one| one.holds(&sent));
            let order = |(index, asked): &(usize, &Vec<Asked>)| (std::cmp::Reverse(weight(asked)), *index);
            let expected = routes.iter().enumerate().filter(fits).min_by_key(order);
            let found = sample(&sent).ask(|request| table.find(request));
            prop_assert_eq!(found, expected.map(|(index, _)| RouteIndex(index)), "{:?}", sent);
        }
    }

    /// Exemptions hold as plain comparisons do, however many they are.
    #[test]
    fn exemptions_hold_as_by_plain_comparisons(
        wanted in prop::collection::vec((prop::sample::select(&["x", "upgrade"][..]), wanted()), 0..20),
        requests in prop::collection::vec(sent(), 1..8),
    ) {
        let is_written = |wanted: &Wanted| wanted.written().is_some_and(|text| !text.is_empty());
        let wanted: Vec<_> = wanted.into_iter().filter(|(_, wanted)| is_written(wanted)).collect();
        let parse = |(name, wanted): &(&str, Wanted)| {
            Exemption::parse(&format!("header:{name}={}", wanted.written().unwrap())).unwrap()
        };
        let exemptions = Exemptions::new(wanted.iter().map(parse).collect());
        for sent in requests {
            let expected = wanted.iter().any(|(name, wanted)| {
                let asked = Asked { place: Place::Header(name), any_of: vec![wanted.clone()], negated: false };
                asked.holds(&sent)
            });
            let hold = sample(&sent).ask(|request| exemptions.hold(request.matched_by("", true)));
            prop_assert_eq!(hold, expected, "{:?}", sent);
        }
    }

    /// Different patterns have different texts, and a text stands for its pattern.
    #[test]
    fn a_pattern_is_what_it_is_shown_as(one in any_of(), other in any_of(), values in sent()) {
        let place = Place::Header("x");
        let asked = |any_of: &Vec<Wanted>| Asked { place, any_of: any_of.clone(), negated: false };
        let (first, second) = (asked(&one).condition(), asked(&other).condition());
        prop_assert_eq!(first == second, first.to_string() == second.to_string());
        for wanted in one {
            let shown = wanted.pattern().to_string();
            let read = match wanted {
                Wanted::Absent => ValuePattern::Absent,
                _ => ValuePattern::parse(&shown).unwrap(),
            };
            let again = Condition::header(HeaderName::from_static("x"), [read]);
            let once = Asked { place, any_of: vec![wanted], negated: false };
            let holds = sample(&values).ask(|request| again.holds(request));
            prop_assert_eq!(holds, once.holds(&values), "{}", shown);
        }
    }
}
