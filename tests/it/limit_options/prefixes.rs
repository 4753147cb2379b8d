//! `key = "ip/24"`: clients by networks of their own size.

use super::{ask, start};
use crate::harness::Gateway;

fn gateway(limits: &[(&str, &str)]) -> Gateway {
    let names: Vec<_> = limits.iter().map(|(name, _)| format!("{name:?}")).collect();
    let mut rest = format!(
        "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [{}]\n",
        names.join(", ")
    );
    for (name, key) in limits {
        rest +=
            &format!("[limits.{name}]\nalgorithm = \"fixed-window\"\nrate = \"3/366day\"\nkey = {key:?}\n");
    }
    start("trusted_proxies = [\"127.0.0.1\"]", &rest)
}

fn status(gateway: &Gateway, client: &str) -> u16 {
    ask(gateway, &format!("x-forwarded-for: {client}\r\n")).status
}

#[test]
fn addresses_of_one_network_share_a_counter() {
    let gateway = gateway(&[("x", "ip/24")]);
    let of_one = ["198.51.100.1", "198.51.100.2", "198.51.100.255", "198.51.100.3"];
    assert_eq!(of_one.map(|client| status(&gateway, client)), [200, 200, 200, 429]);
    assert_eq!(status(&gateway, "198.51.101.1"), 200, "another network");
    // IPv6 keeps the gateway's prefix, 64.
    let v6 = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8:0:1::1"];
    assert_eq!(v6.map(|client| status(&gateway, client)), [200, 200, 200, 429, 200]);
}

#[test]
fn a_prefix_of_ipv6_leaves_ipv4_as_it_is() {
    let gateway = gateway(&[("x", "ip/48")]);
    let v6 = ["2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:ffff::1", "2001:db8:1:3::1", "2001:db8:2::1"];
    assert_eq!(v6.map(|client| status(&gateway, client)), [200, 200, 200, 429, 200]);
    let v4 = ["198.51.100.1", "198.51.100.1", "198.51.100.1", "198.51.100.1", "198.51.100.2"];
    assert_eq!(v4.map(|client| status(&gateway, client)), [200, 200, 200, 429, 200]);
}

/// A client that owns a /48 uses another /64 for each request: only the limit by /48 stops it.
#[test]
fn limits_by_64_56_and_48_stand_side_by_side() {
    let gateway = gateway(&[("a", "ip/64"), ("b", "ip/56"), ("c", "ip/24,48")]);
    let client = |number: u32| format!("2001:db8:7:{:x}::1", number << 8);
    let statuses: Vec<_> = (0..6).map(|number| status(&gateway, &client(number))).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    let refused = ask(&gateway, &format!("x-forwarded-for: {}\r\n", client(9)));
    assert!(refused.text().contains(r#""violated-policies":["c"]"#), "{}", refused.text());
    assert_eq!(status(&gateway, "2001:db8:8::1"), 200, "another /48");
}
