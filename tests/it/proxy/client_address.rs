//! The client's address, behind trusted and untrusted proxies.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use tollgate::route::client::{ClientAddress, ClientRule, ClientSource};

use crate::harness::field_list::FieldList;

const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROXY: &str = "10.0.0.1";

fn rule(source: ClientSource) -> ClientRule {
    let trusted_proxies = ["10.0.0.0/8", "2001:db8:ffff::/48"].map(|network| network.parse().unwrap()).into();
    ClientRule { trusted_proxies, source, ..ClientRule::default() }
}

fn source_of(name: &HeaderName) -> ClientSource {
    match name.as_str() {
        "x-forwarded-for" => ClientSource::XForwardedFor,
        "forwarded" => ClientSource::Forwarded,
        _ => ClientSource::Header(name.clone()),
    }
}

fn headers(name: &HeaderName, lines: &[&str]) -> FieldList {
    lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap())).collect()
}

/// The client, if these lines of the header that is believed are all that `peer` sends.
fn named(peer: &str, name: &HeaderName, lines: &[&str]) -> ClientAddress {
    rule(source_of(name)).identify(peer.parse().unwrap(), headers(name, lines).fields())
}

fn client(peer: &str, name: &HeaderName, lines: &[&str]) -> String {
    let client = named(peer, name, lines);
    assert!(client.identified, "{lines:?}");
    client.address.to_string()
}

/// The last hop that can be read, where something stands before it that cannot.
fn unidentified(peer: &str, name: &HeaderName, lines: &[&str]) -> String {
    let client = named(peer, name, lines);
    assert!(!client.identified, "{lines:?}");
    client.address.to_string()
}

#[test]
fn x_forwarded_for_is_read_from_the_right_past_trusted_addresses() {
    let cases: &[(&[&str], &str)] = &[
        (&[], PROXY),
        (&[""], PROXY),
        (&["192.0.2.1"], "192.0.2.1"),
        (&["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        (&["6.6.6.6, 192.0.2.1, 10.1.1.1"], "192.0.2.1"),
        (&["6.6.6.6", "192.0.2.1,10.1.1.1", "10.1.1.2"], "192.0.2.1"),
        (&["192.0.2.1 ,, \t,10.1.1.1,"], "192.0.2.1"),
        (&["10.1.1.2, 10.1.1.1"], "10.1.1.2"),
        (&["192.0.2.1:4711"], "192.0.2.1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["[2001:DB8::1]:4711"], "2001:db8::1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.1, ::ffff:10.1.1.1, 2001:db8:ffff::7"], "192.0.2.1"),
    ];
    for (lines, expected) in cases {
        assert_eq!(client(PROXY, &XFF, lines), *expected, "{lines:?}");
    }
}

#[test]
fn forwarded_is_read_the_same_way() {
    let cases: &[(&[&str], &str)] = &[
        (&["for=192.0.2.1"], "192.0.2.1"),
        (&["For=\"192.0.2.1:80\";proto=http;by=10.0.0.1"], "192.0.2.1"),
        (&["proto=http ; for = 192.0.2.1"], "192.0.2.1"),
        (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
        (&["for=\"[2001:db8::1]:_port\""], "2001:db8::1"),
        (&["for=[2001:db8::1]"], "2001:db8::1"),
        (&["for=6.6.6.6, for=192.0.2.1", "for=10.1.1.1, , for=\"10.1.1.2:1\""], "192.0.2.1"),
        (&["for=6.6.6.6;by=\"a, for=7.7.7.7; \\\"\", for=10.1.1.1"], "6.6.6.6"),
        (&["for=192.0.2.1;ext=\"x;for=6.6.6.6\""], "192.0.2.1"),
        (&["for=192.0.2.1;ext=\"x\\\\\""], "192.0.2.1"),
    ];
    for (lines, expected) in cases {
        assert_eq!(client(PROXY, &FORWARDED, lines), *expected, "{lines:?}");
    }
}

#[test]
fn garbage_ends_the_walk_at_the_last_good_hop() {
    let addresses = [
        "unknown",
        "_hidden",
        "_",
        "x",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:x",
        "1.2.3.4:+1",
        "1.2.3.4:65536",
        "[::1",
        "::1]",
        "[::1]x",
        "[::1]:",
        "[1.2.3.4]",
        "fe80::1%eth0",
        "[fe80::1%25eth0]:1",
        "1.2.3.4 5",
        "é",
    ];
    for garbage in addresses {
        let list = format!("192.0.2.1, {garbage}, 10.1.1.1");
        assert_eq!(unidentified(PROXY, &XFF, &[&list]), "10.1.1.1", "{list}");
        let list = format!("for=192.0.2.1, for=\"{garbage}\", for=10.1.1.1");
        assert_eq!(unidentified(PROXY, &FORWARDED, &[&list]), "10.1.1.1", "{list}");
    }
    for garbage in [
        "proto=http",
        "for",
        "for=",
        "for=\"\"",
        "for=\"1.2.3.4",
        "for=1.2.3.4;for=1.2.3.4",
        ";",
        "for=\"1\\.2.3.4\"",
    ] {
        let list = format!("for=192.0.2.1, {garbage}, for=10.1.1.1");
        assert_eq!(unidentified(PROXY, &FORWARDED, &[&list]), "10.1.1.1", "{list}");
    }
}

#[test]
fn a_quote_that_a_client_leaves_open_swallows_nothing() {
    for spoof in ["for=\"6.6.6.6", "for=6.6.6.6;x=\"\\", "\"", "\\", "for=6.6.6.6, \"for=7.7.7.7"] {
        let list = format!("{spoof}, for=192.0.2.1, for=\"10.1.1.1\"");
        assert_eq!(client(PROXY, &FORWARDED, &[&list]), "192.0.2.1", "{list}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says() {
    for (name, line) in
        [(XFF, "6.6.6.6"), (FORWARDED, "for=6.6.6.6"), (HeaderName::from_static("x-real-ip"), "6.6.6.6")]
    {
        assert_eq!(client("192.0.2.9", &name, &[line]), "192.0.2.9");
    }
    let rule = ClientRule::default();
    assert!(!rule.trusts("127.0.0.1".parse().unwrap()));
}

/// A proxy writes one of the headers, and passes the others as the client invented them.
#[test]
fn one_header_is_believed_and_the_others_change_nothing() {
    let real_ip = HeaderName::from_static("x-real-ip");
    for believed in [&XFF, &FORWARDED, &real_ip] {
        let value = if *believed == FORWARDED { "for=192.0.2.1" } else { "192.0.2.1" };
        for spoof in
            ["6.6.6.6", "for=6.6.6.6", "10.1.1.1", "for=10.1.1.1", "x", "", "\"", "unknown", "192.0.2.1"]
        {
            for other in [&XFF, &FORWARDED, &real_ip, &HeaderName::from_static("x_forwarded_for")] {
                if other == believed {
                    continue;
                }
                let mut fields = headers(other, &[spoof]);
                fields.push(believed, value.as_bytes());
                fields.push(other, spoof.as_bytes());
                let client = rule(source_of(believed)).identify(PROXY.parse().unwrap(), fields.fields());
                let expected = rule(ClientSource::Peer).client("192.0.2.1".parse().unwrap());
                assert_eq!(client, expected, "{other}: {spoof} beside {believed}");
            }
        }
    }
}

#[test]
fn without_the_header_that_is_believed_the_peer_is_the_client() {
    for believed in
        [ClientSource::XForwardedFor, ClientSource::Forwarded, source_of(&"x-real-ip".parse().unwrap())]
    {
        let client = rule(believed).identify(PROXY.parse().unwrap(), FieldList::default().fields());
        assert_eq!((client.address.to_string(), client.identified), (PROXY.to_owned(), true));
    }
    let mut fields = headers(&XFF, &["192.0.2.1"]);
    fields.push(&FORWARDED, b"for=192.0.2.1");
    let client = rule(ClientSource::Peer).identify(PROXY.parse().unwrap(), fields.fields());
    assert_eq!((client.address.to_string(), client.identified), (PROXY.to_owned(), true));
}

#[test]
fn a_header_of_its_own_holds_one_address() {
    let name = HeaderName::from_static("cf-connecting-ip");
    for (value, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("10.1.1.1", "10.1.1.1"),
    ] {
        assert_eq!(client(PROXY, &name, &[value]), expected);
    }
    // The trusted proxy added the last one.
    assert_eq!(client(PROXY, &name, &["junk", "192.0.2.1", "192.0.2.2"]), "192.0.2.2");
    let garbage: [&[&str]; 6] = [
        &["192.0.2.1, 192.0.2.2"],
        &["192.0.2.1", "junk"],
        &["192.0.2.1,"],
        &["unknown"],
        &["for=192.0.2.1"],
        &[""],
    ];
    for lines in garbage {
        assert_eq!(unidentified(PROXY, &name, lines), PROXY);
    }
}

/// Which header a proxy sends that is not the one that is read.
#[test]
fn a_proxy_that_sends_another_header_is_told_of() {
    let overlooked = |source: &ClientSource, peer: &str, names: &[&HeaderName]| {
        let fields: FieldList =
            names.iter().map(|name| ((*name).clone(), HeaderValue::from_static("192.0.2.1"))).collect();
        rule(source.clone()).overlooked(peer.parse().unwrap(), fields.fields())
    };
    let (xff, forwarded) = (ClientSource::XForwardedFor, ClientSource::Forwarded);
    let real_ip = HeaderName::from_static("x-real-ip");
    assert_eq!(overlooked(&xff, PROXY, &[&FORWARDED]), Some("forwarded"));
    assert_eq!(overlooked(&forwarded, PROXY, &[&XFF]), Some("x-forwarded-for"));
    assert_eq!(overlooked(&source_of(&real_ip), PROXY, &[&XFF]), Some("x-forwarded-for"));
    for (source, peer, names) in [
        (&xff, "192.0.2.9", vec![&FORWARDED]),
        (&xff, PROXY, vec![&FORWARDED, &XFF]),
        (&xff, PROXY, vec![&real_ip]),
        (&forwarded, PROXY, vec![&FORWARDED]),
        (&source_of(&real_ip), PROXY, vec![&real_ip, &XFF]),
        (&ClientSource::Peer, PROXY, vec![&XFF]),
    ] {
        assert_eq!(overlooked(source, peer, &names), None, "{source} from {peer}: {names:?}");
    }
}

#[test]
fn at_most_64_items_are_read() {
    let list = |trusted: usize| format!("192.0.2.1{}", ", 10.1.1.1".repeat(trusted));
    assert_eq!(client(PROXY, &XFF, &[&list(63)]), "192.0.2.1");
    assert_eq!(unidentified(PROXY, &XFF, &[&list(64)]), "10.1.1.1");
    let lines = vec!["10.1.1.1"; 64];
    assert_eq!(client(PROXY, &XFF, &lines), "10.1.1.1");
    assert_eq!(client(PROXY, &XFF, &[&["192.0.2.1"], &lines[1..]].concat()), "192.0.2.1");
    assert_eq!(unidentified(PROXY, &XFF, &[&["192.0.2.1"], &lines[..]].concat()), "10.1.1.1");
    assert_eq!(unidentified(PROXY, &XFF, &[&format!("192.0.2.1{}", ",".repeat(64))]), PROXY);
}

#[test]
fn ipv4_mapped_addresses_are_ipv4() {
    let mapped = ["::ffff:10.0.0.0/104".parse().unwrap()].into();
    let rule = ClientRule { trusted_proxies: mapped, ..ClientRule::default() };
    let trusts = |rule: &ClientRule, address: &str| rule.trusts(address.parse().unwrap());
    assert!(trusts(&rule, "10.9.9.9") && trusts(&rule, "::ffff:10.9.9.9") && !trusts(&rule, "11.0.0.1"));
    assert!(trusts(&self::rule(ClientSource::Peer), "::ffff:10.9.9.9"));
    let everyone = ClientRule { trusted_proxies: ["::/0".parse().unwrap()].into(), ..ClientRule::default() };
    assert!(trusts(&everyone, "2001:db8::1") && !trusts(&everyone, "10.0.0.1"), "`::/0` is IPv6 alone");
    assert_eq!(client("::ffff:192.0.2.7", &XFF, &[]), "192.0.2.7");
}

#[test]
fn a_client_is_its_network() {
    let network = |ipv4_prefix, ipv6_prefix, address: &str| {
        let rule = ClientRule { ipv4_prefix, ipv6_prefix, ..ClientRule::default() };
        let client = rule.client(address.parse().unwrap());
        assert_eq!(client.address.to_string(), address.trim_start_matches("::ffff:"));
        client.network.to_string()
    };
    assert_eq!(network(32, 64, "192.0.2.77"), "192.0.2.77");
    assert_eq!(network(24, 64, "::ffff:192.0.2.77"), "192.0.2.0");
    assert_eq!(network(0, 64, "192.0.2.77"), "0.0.0.0");
    assert_eq!(network(200, 200, "192.0.2.77"), "192.0.2.77");
    assert_eq!(network(32, 64, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(network(32, 56, "2001:db8:1:2ff::1"), "2001:db8:1:200::");
    assert_eq!(network(32, 128, "2001:db8::1"), "2001:db8::1");
    assert_eq!(network(32, 0, "2001:db8::1"), "::");
    assert_eq!(
        ClientRule::default(),
        ClientRule {
            locations: None,
            trusted_proxies: vec![],
            source: ClientSource::XForwardedFor,
            ipv4_prefix: 32,
            ipv6_prefix: 64
        }
    );
}

proptest! {
    /// Whatever a client writes, what its proxy appends decides.
    #[test]
    fn what_stands_further_left_never_matters(
        spoof in "[\"\\\\,;= a-z0-9.:\\[\\]=_]{0,40}",
        octet in 1..255_u8,
        several_lines in any::<bool>(),
    ) {
        let expected: IpAddr = [192, 0, 2, octet].into();
        for (name, added) in [(XFF, format!("{expected}")), (FORWARDED, format!("for=\"{expected}:1\";proto=http"))] {
            let joined = format!("{spoof},{added}");
            let lines = if several_lines { vec![&*spoof, &added] } else { vec![&*joined] };
            prop_assert_eq!(client(PROXY, &name, &lines), expected.to_string());
        }
    }

    /// Whatever stands in headers that are not believed, the client stays the same.
    #[test]
    fn other_headers_never_matter(
        believed in 0..3_usize,
        spoof in "[\"\\\\,;= a-z0-9.:\\[\\]=_]{0,40}",
        before in any::<bool>(),
    ) {
        let all = [XFF, FORWARDED, HeaderName::from_static("x-real-ip")];
        let value: &[u8] = if believed == 1 { b"for=192.0.2.7" } else { b"192.0.2.7" };
        let mut fields = FieldList::default();
        let push = |fields: &mut FieldList| {
            all.iter().enumerate().filter(|(other, _)| *other != believed).for_each(|(_, name)| fields.push(name, spoof.as_bytes()));
        };
        if before { push(&mut fields) }
        fields.push(&all[believed], value);
        if !before { push(&mut fields) }
        let rule = rule(source_of(&all[believed]));
        let client = rule.identify(PROXY.parse().unwrap(), fields.fields());
        prop_assert_eq!(client, rule.client([192, 0, 2, 7].into()));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![32..127_u8, 128..=255_u8, Just(b'"'), Just(b'\\')], 0..60)) {
        for name in [XFF, FORWARDED] {
            let mut headers = FieldList::default();
            headers.push(&name, &bytes);
            for source in [source_of(&name), ClientSource::Header(name.clone())] {
                let client = rule(source).identify(PROXY.parse().unwrap(), headers.fields());
                let gains = !client.identified && client.address != PROXY.parse::<IpAddr>().unwrap();
                prop_assert!(!gains || client.address.to_string().starts_with("10."), "{client:?}");
            }
        }
    }
}
