//! Keys named by the values of their parts are the keys of requests that have them.

use proptest::prelude::*;
use tollgate::route::client::ClientRule;
use tollgate::route::key::{EVERYONE, Key, KeyFault, KeyResult, KeySecret, Part, PathForm};

use crate::harness::sample_request::{Sample, get};

const SECRETS: [KeySecret; 2] = [KeySecret::Process([7; 16]), KeySecret::Fleet([9; 32])];

fn key(parts: &[&str]) -> Key {
    Key::new(parts.iter().map(|part| Part::parse(part).unwrap()).collect())
}

fn named(parts: &[&str], values: &[&str]) -> Result<KeyResult, KeyFault> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    key(parts)
        .owner_of(
            &values,
            &SECRETS[0],
            &ClientRule::default(),
            PathForm { merge_slashes: true, ..PathForm::default() },
        )
        .map(KeyResult::Key)
}

fn claimed(parts: &[&str], sample: &Sample) -> KeyResult {
    sample.ask(|request| key(parts).claim(&SECRETS[0], request.matched_by("search", true)))
}

proptest! {
    #[test]
    fn they_are_those_of_requests(
        chosen in prop::collection::vec(0..8_usize, 1..5),
        word in "[!-~]{1,40}", token in "[a-z0-9]{1,80}", address in any::<[u8; 4]>(), v6 in any::<[u16; 8]>(), six: bool,
    ) {
        let ip = if six { std::net::Ipv6Addr::from(v6).to_string() } else { std::net::Ipv4Addr::from(address).to_string() };
        let path = format!("/{token}/x");
        let sample = get(&format!("{path}?q={token}"))
            .host(&format!("{token}.test")).header("x-key", &word).header("cookie", format!("sid={token}")).from(&ip);
        let host = format!("{}.TEST:8080", token.to_uppercase());
        let all = [
            ("ip", ip.as_str()), ("header:x-key", &word), ("cookie:sid", &token), ("query:q", &token), ("host", &host),
            ("path", &path), ("method", "GET"), ("route", "search"),
        ];
        let parts: Vec<_> = chosen.iter().map(|index| all[*index].0).collect();
        let values: Vec<_> = chosen.iter().map(|index| all[*index].1.to_owned()).collect();
        for secret in &SECRETS {
            let claim = sample.ask(|request| key(&parts).claim(secret, request.matched_by("search", true)));
            let owner = key(&parts).owner_of(&values, secret, &ClientRule::default(), PathForm { merge_slashes: true, ..PathForm::default() }).unwrap();
            prop_assert_eq!(claim, KeyResult::Key(owner));
        }
    }
}

#[test]
fn any_address_of_the_network_and_any_form_of_a_path_will_do() {
    let sample = get("/a/b").from("2001:db8::7");
    assert_eq!(named(&["ip"], &["2001:db8::9:9"]), Ok(claimed(&["ip"], &sample)));
    assert_eq!(named(&["ip"], &["::ffff:192.0.2.1"]), Ok(claimed(&["ip"], &get("/").from("192.0.2.1"))));
    assert_eq!(named(&["path"], &["/a//x/../%62"]), Ok(claimed(&["path"], &sample)));
}

#[test]
fn what_is_the_same_for_all_takes_no_value() {
    let sample = get("/").from("192.0.2.1");
    assert_eq!(named(&["global"], &[EVERYONE]), Ok(claimed(&["global"], &sample)));
    assert_eq!(named(&["global", "ip"], &["192.0.2.1"]), Ok(claimed(&["global", "ip"], &sample)));
    assert!(named(&["global"], &["all"]).is_err());
}

#[test]
fn no_value_too_many_or_too_few_and_none_that_can_not_be() {
    for (parts, values) in [
        (&["ip"][..], &["192.0.2.1", "192.0.2.1"][..]),
        (&["ip", "path"], &["192.0.2.1"]),
        (&["ip"], &["localhost"]),
        (&["path"], &["a"]),
        (&["path"], &["/.."]),
        (&["header:x-key"], &[""]),
        (&["ip"], &[]),
    ] {
        assert!(named(parts, values).is_err(), "{parts:?} {values:?}");
    }
}
