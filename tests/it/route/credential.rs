//! Credentials: where a request carries one, against a second implementation that copies and joins; and the request
//! without it, in which a second look finds none.

use proptest::prelude::*;
use tollgate::route::credential::{Credential, CredentialSource, without_cookies, without_credentials};

use crate::harness::sample_request::{Sample, get};

/// What a request carries, in the second implementation.
#[derive(Debug, PartialEq, Eq)]
enum Carried {
    Nothing,
    One(Vec<u8>),
    Several,
}

fn carried(mut values: Vec<Vec<u8>>) -> Carried {
    values.dedup();
    match values.len() {
        0 => Carried::Nothing,
        1 if values[0].is_empty() => Carried::Nothing,
        1 => Carried::One(values.remove(0)),
        _ => Carried::Several,
    }
}

/// `%41` is `A`, once; what is not an escape stays.
fn unescaped(text: &[u8], plus_is_blank: bool) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut at) = (Vec::new(), 0);
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap());
                at += 3;
                continue;
            }
            (b'+', ..) if plus_is_blank => decoded.push(b' '),
            (byte, ..) => decoded.push(byte),
        }
        at += 1;
    }
    decoded
}

fn parts(text: &[u8], separator: u8) -> Vec<Vec<u8>> {
    text.split(|byte| *byte == separator).map(<[u8]>::to_vec).collect()
}

fn trimmed(text: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(text).trim_matches([' ', '\t']).as_bytes().to_vec()
}

/// The decoded name of a query parameter.
fn parameter(pair: &[u8]) -> Vec<u8> {
    unescaped(&parts(pair, b'=')[0], true)
}

/// The name of a cookie.
fn cookie(pair: &[u8]) -> Vec<u8> {
    trimmed(&parts(pair, b'=')[0])
}

fn look(source: &str, headers: &[(String, String)], query: Option<&str>) -> Carried {
    let of = |name: &str| -> Vec<Vec<u8>> {
        let same = headers.iter().filter(|(sent, _)| sent.to_ascii_lowercase() == name);
        same.map(|(_, value)| trimmed(value.as_bytes())).collect()
    };
    let (place, name) = source.split_once(':').unwrap_or((source, ""));
    match place {
        "header" => carried(of(name)),
        "bearer" => match carried(of("authorization")) {
            Carried::One(value) => {
                let text = String::from_utf8(value).unwrap();
                // A tab separates, too: a lenient backend may take it so.
                let (scheme, token) = text.split_once([' ', '\t']).unwrap_or((&text, ""));
                let token = if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" };
                carried(vec![token.into()])
            }
            other => other,
        },
        "query" => {
            let pairs = query.map(|query| parts(query.as_bytes(), b'&')).unwrap_or_default();
            let value = |pair: &Vec<u8>| {
                let at = pair.iter().position(|byte| *byte == b'=').map_or(pair.len(), |at| at + 1);
                unescaped(&pair[at..], true)
            };
            carried(pairs.iter().filter(|pair| parameter(pair) == name.as_bytes()).map(value).collect())
        }
        _ => {
            let pairs = of("cookie").iter().flat_map(|value| parts(value, b';')).collect::<Vec<_>>();
            let value = |pair: &Vec<u8>| {
                let at = pair.iter().position(|byte| *byte == b'=')? + 1;
                let value = trimmed(&pair[at..]);
                let quoted = value.len() > 1 && value.starts_with(b"\"") && value.ends_with(b"\"");
                let inner = if quoted { &value[1..value.len() - 1] } else { &value[..] };
                Some(unescaped(inner, false))
            };
            let named = pairs.iter().filter(|pair| cookie(pair) == name.as_bytes());
            carried(named.filter_map(value).collect())
        }
    }
}

/// The same, as the gateway sees it.
fn find(source: &CredentialSource, sample: &Sample) -> Carried {
    sample.ask(|request| match source.find(request) {
        Credential::Missing => Carried::Nothing,
        Credential::Single(value) => Carried::One(value.into_owned()),
        Credential::Repeated => Carried::Several,
    })
}

fn sample(headers: &[(String, String)], query: Option<&str>) -> Sample {
    let path = query.map_or("/a".to_owned(), |query| format!("/a?{query}"));
    headers
        .iter()
        .fold(get(&path), |sample, (name, value)| sample.header(name, value.trim_matches([' ', '\t'])))
}

const SOURCES: [&str; 5] = ["header:x-api-key", "bearer", "query:k", "query:api key", "cookie:k"];

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(vec![
        "x-api-key",
        "X-Api-Key",
        "x_api_key",
        "authorization",
        "cookie",
        "Cookie",
        "accept",
    ]);
    let words = prop::sample::select(vec![
        "k", "K", "=", ";", " ", "\"", "%6b", "%", "%4", "1", "Bearer ", "bearer", "BEARER  ", "Basic ", ",",
        "\t", "%22", "a=1",
    ]);
    let value = prop::collection::vec(words, 0..6).prop_map(|words| words.concat());
    prop::collection::vec((name.prop_map(str::to_owned), value), 0..5)
}

fn query() -> impl Strategy<Value = Option<String>> {
    let words = prop::sample::select(vec![
        "k",
        "=",
        "&",
        "%6B",
        "%6b",
        "api+key",
        "api%20key",
        "+",
        "%",
        "%zz",
        "1",
        ";",
        "?",
        "k=1",
        "K",
        "/",
    ]);
    prop::option::of(prop::collection::vec(words, 0..8).prop_map(|words| words.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_credential_is_found_as_by_a_second_implementation(
        source in prop::sample::select(&SOURCES[..]),
        headers in headers(),
        query in query(),
    ) {
        let parsed = CredentialSource::parse(source).unwrap();
        let sample = sample(&headers, query.as_deref());
        prop_assert_eq!(find(&parsed, &sample), look(source, &headers, query.as_deref()));
    }

    #[test]
    fn a_query_without_its_credentials_has_all_else_in_order(
        sources in prop::sample::subsequence(&SOURCES[..], 1..4),
        query in query(),
    ) {
        let query = query.unwrap_or_default();
        let parsed: Vec<_> = sources.iter().map(|source| CredentialSource::parse(source).unwrap()).collect();
        let hidden: Vec<_> = sources.iter().filter_map(|source| source.strip_prefix("query:")).collect();
        let kept: Vec<_> = parts(query.as_bytes(), b'&');
        let kept: Vec<_> = kept
            .into_iter()
            .filter(|pair| !hidden.iter().any(|name| parameter(pair) == name.as_bytes()))
            .collect();
        let expected = kept.join(&b'&');
        match without_credentials(&query, parsed.iter()) {
            None => prop_assert_eq!(expected, query.as_bytes()),
            Some(rest) => {
                prop_assert!(rest.len() < query.len() || query.is_empty());
                prop_assert_eq!(&expected, rest.as_bytes());
                prop_assert_eq!(without_credentials(&rest, parsed.iter()), None, "a second look");
                for source in parsed.iter().filter(|source| matches!(source, CredentialSource::Query(_))) {
                    prop_assert_eq!(find(source, &sample(&[], Some(&rest))), Carried::Nothing);
                }
            }
        }
    }

    #[test]
    fn cookies_without_the_credential_are_all_others_in_order(
        words in prop::collection::vec(
            prop::sample::select(vec!["k", "=", ";", "; ", " ", "\"", "%6b", "kk=1", "k=1", "a=b", "\u{e9}"]),
            0..10,
        ),
    ) {
        let value = words.concat();
        let source = CredentialSource::parse("cookie:k").unwrap();
        let others = |value: &[u8]| -> Vec<Vec<u8>> {
            let pairs = parts(value, b';').into_iter().filter(|pair| cookie(pair) != b"k");
            pairs.map(|pair| pair.trim_ascii().to_vec()).filter(|pair| !pair.is_empty()).collect()
        };
        let rest = without_cookies(value.as_bytes(), std::iter::once(&source));
        let has = parts(value.as_bytes(), b';').iter().any(|pair| cookie(pair) == b"k");
        prop_assert_eq!(rest.is_some(), has);
        if let Some(rest) = rest {
            prop_assert_eq!(others(&rest), others(value.as_bytes()));
            prop_assert_eq!(without_cookies(&rest, std::iter::once(&source)), None);
            prop_assert_eq!(rest.is_empty(), others(&rest).is_empty());
        }
    }
}
