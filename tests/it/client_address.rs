//! Who asks, behind proxies that are trusted and those that are not.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use tollgate::http1::fields::FieldList;
use tollgate::route::client::ClientRule;

const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROXY: &str = "10.0.0.1";

fn rule() -> ClientRule {
    let trusted_proxies = ["10.0.0.0/8", "2001:db8:ffff::/48"].map(|network| network.parse().unwrap()).into();
    ClientRule { trusted_proxies, ..ClientRule::default() }
}

fn headers(name: &HeaderName, lines: &[&str]) -> FieldList {
    lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap())).collect()
}

fn client(peer: &str, headers: &FieldList) -> String {
    rule().identify(peer.parse().unwrap(), headers.fields()).address.to_string()
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
        assert_eq!(client(PROXY, &headers(&XFF, lines)), *expected, "{lines:?}");
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
        assert_eq!(client(PROXY, &headers(&FORWARDED, lines)), *expected, "{lines:?}");
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
        assert_eq!(client(PROXY, &headers(&XFF, &[&list])), "10.1.1.1", "{list}");
        let list = format!("for=192.0.2.1, for=\"{garbage}\", for=10.1.1.1");
        assert_eq!(client(PROXY, &headers(&FORWARDED, &[&list])), "10.1.1.1", "{list}");
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
        assert_eq!(client(PROXY, &headers(&FORWARDED, &[&list])), "10.1.1.1", "{list}");
    }
}

#[test]
fn a_quote_that_a_client_leaves_open_swallows_nothing() {
    for spoof in ["for=\"6.6.6.6", "for=6.6.6.6;x=\"\\", "\"", "\\", "for=6.6.6.6, \"for=7.7.7.7"] {
        let list = format!("{spoof}, for=192.0.2.1, for=\"10.1.1.1\"");
        assert_eq!(client(PROXY, &headers(&FORWARDED, &[&list])), "192.0.2.1", "{list}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says() {
    for (name, line) in
        [(XFF, "6.6.6.6"), (FORWARDED, "for=6.6.6.6"), (HeaderName::from_static("x-real-ip"), "6.6.6.6")]
    {
        assert_eq!(client("192.0.2.9", &headers(&name, &[line])), "192.0.2.9");
    }
    let nobody = ClientRule::default();
    assert!(!nobody.trusts("127.0.0.1".parse().unwrap()));
}

/// A proxy writes one of the fields, and passes the other as the client invented it.
#[test]
fn two_fields_that_disagree_are_not_believed() {
    let both = |forwarded, xff: &str| {
        let mut both = headers(&FORWARDED, &[forwarded]);
        both.push(&XFF, xff.as_bytes());
        client(PROXY, &both)
    };
    assert_eq!(both("for=192.0.2.1", "192.0.2.1"), "192.0.2.1");
    assert_eq!(both("for=192.0.2.1;proto=http, for=10.1.1.1", "6.6.6.6, 192.0.2.1"), "192.0.2.1");
    assert_eq!(both("for=6.6.6.6", "192.0.2.1"), PROXY);
    assert_eq!(both("for=192.0.2.1", "6.6.6.6"), PROXY);
    assert_eq!(both("for=_hidden", "192.0.2.1"), PROXY);
}

#[test]
fn at_most_64_items_are_read() {
    let list = |trusted: usize| format!("192.0.2.1{}", ", 10.1.1.1".repeat(trusted));
    assert_eq!(client(PROXY, &headers(&XFF, &[&list(63)])), "192.0.2.1");
    assert_eq!(client(PROXY, &headers(&XFF, &[&list(64)])), "10.1.1.1");
    let lines = vec!["10.1.1.1"; 64];
    assert_eq!(client(PROXY, &headers(&XFF, &[&["192.0.2.1"], &lines[1..]].concat())), "192.0.2.1");
    assert_eq!(client(PROXY, &headers(&XFF, &[&["192.0.2.1"], &lines[..]].concat())), "10.1.1.1");
    assert_eq!(client(PROXY, &headers(&XFF, &[&format!("192.0.2.1{}", ",".repeat(64))])), PROXY);
}

#[test]
fn ipv4_mapped_addresses_are_ipv4() {
    let mapped = ["::ffff:10.0.0.0/104".parse().unwrap()].into();
    let rule = ClientRule { trusted_proxies: mapped, ..ClientRule::default() };
    let trusts = |rule: &ClientRule, address: &str| rule.trusts(address.parse().unwrap());
    assert!(trusts(&rule, "10.9.9.9") && trusts(&rule, "::ffff:10.9.9.9") && !trusts(&rule, "11.0.0.1"));
    assert!(trusts(&self::rule(), "::ffff:10.9.9.9"));
    let everyone = ClientRule { trusted_proxies: ["::/0".parse().unwrap()].into(), ..ClientRule::default() };
    assert!(trusts(&everyone, "2001:db8::1") && !trusts(&everyone, "10.0.0.1"), "`::/0` is IPv6 alone");
    assert_eq!(client("::ffff:192.0.2.7", &FieldList::default()), "192.0.2.7");
}

#[test]
fn a_client_is_its_network() {
    let network = |ipv4_prefix, ipv6_prefix, address: &str| {
        let rule = ClientRule { trusted_proxies: Vec::new(), ipv4_prefix, ipv6_prefix };
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
        ClientRule { trusted_proxies: vec![], ipv4_prefix: 32, ipv6_prefix: 64 }
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
            prop_assert_eq!(client(PROXY, &headers(&name, &lines)), expected.to_string());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![32..127_u8, 128..=255_u8, Just(b'"'), Just(b'\\')], 0..60)) {
        for name in [XFF, FORWARDED] {
            let mut headers = FieldList::default();
            headers.push(&name, &bytes);
            rule().identify(PROXY.parse().unwrap(), headers.fields());
        }
    }
}
