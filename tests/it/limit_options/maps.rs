//! `tier` of a limit by a map of networks or values.

use std::process::Command;

use serde_json::json;

use crate::harness::api::good;
use crate::harness::{Backend, Gateway, binary, get_with};

const RATES: &str = "# tiers by network\nnetwork,tier\n192.0.2.0/24,partner\n\n\"192.0.2.7\" , probe\n2001:db8::/32,partner\n\
    shop.example.com,partner\n";

/// Two a day, three for partners, no limit for probes: by what `tier` looks up. Clients are named by a trusted proxy.
fn configuration(backend: &Backend, file: &std::path::Path, tier: &str) -> String {
    format!(
        "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams]\napi = \"{}\"\n[maps.plan]\nfile = \"{}\"\n\
         [limits.api]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"2/day\"\ntier = \"map:plan({tier})\"\n\
         [limits.api.tiers.partner]\nrate = \"3/day\"\n[limits.api.tiers.probe]\nunlimited = true\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"api\"]\n",
        backend.url(),
        file.display(),
    )
}

fn passed(gateway: &Gateway, client: &str, fields: &str) -> usize {
    let fields = format!("x-forwarded-for: {client}\r\n{fields}");
    (0..9).filter(|_| get_with(gateway.addr(), "/", &fields).status == 200).count()
}

#[test]
fn the_longest_network_with_the_clients_address_names_the_tier() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let file = folder.path().join("rates.csv");
    std::fs::write(&file, RATES).expect("the file can be written");
    let toml = configuration(&backend, &file, "ip");
    let toml = toml.replace("key = \"ip\"", "key = \"ip\"\nbefore_auth = true");
    // A name is no network, and there are no others to look up.
    std::fs::write(&file, RATES.replace("shop.example.com,partner\n", "")).expect("written");
    let gateway = Gateway::start(&toml);
    for (client, count) in [
        ("192.0.2.1", 3),
        ("192.0.2.7", 9),
        ("::ffff:192.0.2.9", 3),
        ("2001:db8:1::1", 3),
        ("198.51.100.1", 2),
        ("2001:db9::1", 2),
    ] {
        assert_eq!(passed(&gateway, client, ""), count, "{client}");
    }
    let told = good(&gateway, "GET limits/api/keys/192.0.2.1", "");
    assert_eq!((&told["tier"], &told["policies"][0]["quota"]), (&json!("partner"), &json!(3)), "{told}");
    let keys = good(&gateway, "GET limits/api/keys?by=requests", "");
    let tiers: Vec<_> =
        keys["keys"].as_array().expect("a list").iter().map(|key| key["tier"].clone()).collect();
    assert_eq!(tiers.iter().filter(|tier| **tier == json!("partner")).count(), 3, "{keys}");
    // A reload reads the file again; one with faults keeps the old map.
    std::fs::write(&file, "198.51.100.0/24,probe\n").expect("written");
    gateway.reload(&toml, "reloaded");
    assert_eq!((passed(&gateway, "198.51.100.1", ""), passed(&gateway, "192.0.2.2", "")), (9, 2));
    std::fs::write(&file, "198.51.100.0/24\n").expect("written");
    gateway.reload(&toml, "this line has no two values");
    assert_eq!(passed(&gateway, "198.51.100.1", ""), 9);
}

#[test]
fn values_are_looked_up_whole() {
    let (backend, folder) = (Backend::ok(), tempfile::tempdir().expect("a directory"));
    let file = folder.path().join("rates.csv");
    std::fs::write(&file, "gold,partner\nmonitor,probe\n").expect("the file can be written");
    let gateway = Gateway::start(&configuration(&backend, &file, "header:x-plan"));
    for (number, (fields, count)) in [
        ("x-plan: gold\r\n", 3),
        ("x-plan: monitor\r\n", 9),
        ("x-plan: Gold\r\n", 2),
        ("x-plan: gold2\r\n", 2),
        ("x-plan:\r\n", 2),
        ("", 2),
        ("x-plan: gold\r\nx-plan: gold\r\n", 3),
        ("x-plan: gold\r\nx-plan: monitor\r\n", 2),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(passed(&gateway, &format!("198.51.100.{number}"), fields), count, "{fields:?}");
    }
}

/// `check` of a map with these rows, whose only limit has this line.
fn check(rows: &[u8], tier: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("rates.csv"), rows).expect("the file can be written");
    let toml = format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[maps.plan]\nfile = \"rates.csv\"\n\
         [limits.api]\nalgorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"2/s\"\n{tier}\n\
         [limits.api.tiers.pro]\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"api\"]\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), toml).expect("the file can be written");
    let output =
        Command::new(binary()).arg("check").current_dir(folder.path()).output().expect("the binary starts");
    let text = [output.stderr, output.stdout].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

#[test]
fn faults_name_the_line_and_quote_nothing_of_it() {
    const IP: &str = "tier = \"map:plan(ip)\"";
    for (rows, words) in [
        (&b"10.0.0.0/8,pro\nhunter2\n"[..], "rates.csv:2"),
        (b"10.0.0.0/8,pro\n10.0.0.0/8,hunter2\n", "this value has the tier `pro` already"),
        (b"10.0.0.1,pro\n10.0.0.1/32,hunter2\n", "rates.csv:2"),
        (b"10.0.0.0/8,pro,hunter2\n", "rates.csv:1"),
        (b"10.0.0.0/8,\n", "rates.csv:1"),
        (b",pro\n", "rates.csv:1"),
        (b"10.0.0.0/8,pro\nhunter2,pro\n", "this line begins with neither an address nor a network"),
        (b"10.0.0.0/8,pro\n\xff,pro\n", "not UTF-8"),
        (b"10.0.0.0/8,\"pro\nhunter2,pro\n", "rates.csv"),
    ] {
        let (status, text) = check(rows, IP);
        assert_eq!(status, Some(2), "{words}\n{text}");
        assert!(text.contains(words) && !text.contains("hunter2"), "{words}\n{text}");
    }
    for (tier, words) in [
        ("tier = \"map:plans(ip)\"", "did you mean `plan`"),
        ("tier = \"plan\"", "is not a map of tiers"),
        ("tier = \"map:plan(ip/24)\"", "a map cannot look `ip/24` up"),
        ("tier = \"map:plan(json:/a)\"", "the body is read later"),
        ("tier = \"map:plan(global)\"", "it is the same for all requests"),
        ("tier = \"map:plan(nothing)\"", "`nothing` is not a key"),
        ("tier = \"map:plan(consumer)\"\nbefore_auth = true", "cannot have `before_auth`"),
    ] {
        let (status, text) = check(b"10.0.0.0/8,pro\n", tier);
        assert!(status == Some(2) && text.contains(words), "{tier}\n{text}");
    }
}

#[test]
fn warnings_tell_what_has_no_effect() {
    const IP: &str = "tier = \"map:plan(ip)\"";
    for (rows, tier, words) in [
        (&b"10.0.0.0/8,Pro\n"[..], IP, "limit `api` has no tier `Pro` of map `plan`"),
        (b"", IP, "the map is empty"),
        (b"10.0.0.0/8,pro\n", "", "no limit uses the map `plan`"),
        (b"gold,pro\n", "tier = \"map:plan(header:x-plan)\"", "any client can send `header:x-plan`"),
    ] {
        let (status, text) = check(rows, tier);
        assert!(status == Some(0) && text.contains(words), "{words}\n{text}");
    }
    let (status, text) = check(b"\xef\xbb\xbf10.0.0.0/8,pro\r\n10.1.0.0/16,pro\r\n", IP);
    assert!(status == Some(0) && !text.contains("warning"), "{text}");
    assert!(text.contains("the tier is that of `ip` in map `plan`"), "{text}");
}
